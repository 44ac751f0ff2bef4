/* ops.c - the kernel table over whole problems.
 *
 * Every operation is cut over the thread pool so that a thread owns outputs (rows, columns, heads) outright; what is summed
 * across the cut goes through blocks of fixed size added in order. So the thread count never shows in a result. */
#include "engine/kernels/ops/ops.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/threads.h"

enum { MAX_THREADS = 1024 };

static struct {
    bt_arena arena;
    size_t per_thread;                          /* bytes of scratch each thread owns */
    size_t M, N, K, T, D;                       /* largest sizes planned */
    int threads;
    const char *isa;                            /* the plan holds for this kernel set */
} scratch;

static size_t most(size_t a, size_t b) { return a > b ? a : b; }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

bt_code bt_ops_plan(size_t M, size_t N, size_t K, size_t T, size_t D, size_t *bytes, bt_err *err) {
    scratch.M = most(M, scratch.M);
    scratch.N = most(N, scratch.N);
    scratch.K = most(K, scratch.K);
    scratch.T = most(T, scratch.T);
    scratch.D = most(D, scratch.D);
    size_t need = bt_k()->scratch_bytes(scratch.M, scratch.N, scratch.K, scratch.T, scratch.D);
    need = (need + 4095) / 4096 * 4096 + 4096;  /* whole pages, one more: threads never share a line or an alias set */
    if (need > scratch.per_thread || bt_threads_count() > scratch.threads) {
        bt_arena fresh;
        bt_arena_plan(&fresh, "kernel scratch");
        scratch.threads = bt_threads_count() > scratch.threads ? bt_threads_count() : scratch.threads;
        scratch.per_thread = most(need, scratch.per_thread);
        bt_arena_reserve(&fresh, (size_t)scratch.threads, scratch.per_thread);
        bt_arena_release(&scratch.arena);
        bt_code rc = bt_arena_commit(&fresh, err);
        if (rc != BT_OK) {
            scratch.per_thread = 0;
            return rc;
        }
        scratch.arena = fresh;
    }
    if (bytes) *bytes = scratch.arena.bytes;
    return BT_OK;
}

void bt_ops_release(void) {
    bt_arena_release(&scratch.arena);
    memset(&scratch, 0, sizeof scratch);
}

static void *thread_scratch(int thread) {
    return bt_arena_at(&scratch.arena, (size_t)thread * scratch.per_thread);
}

/* ---- profile: what each operation costs, when asked -------------------------------------------------------------------- */
static struct {
    bool on, held;
    size_t n;
    bt_op_profile row[BT_OPS_MAX];
} profile;

void bt_ops_profile(bool on) {
    if (on) memset(&profile, 0, sizeof profile);
    profile.on = on;
}

void bt_ops_profile_hold(bool hold) { profile.held = hold; }

size_t bt_ops_profile_rows(bt_op_profile *rows, size_t max) {
    size_t n = profile.n < max ? profile.n : max;
    if (n) memcpy(rows, profile.row, n * sizeof *rows);
    return n;
}

/* the row of an operation; names are literals */
static bt_op_profile *profile_row(const char *name) {
    size_t i = 0;
    while (i < profile.n && profile.row[i].name != name) i++;
    if (i == BT_OPS_MAX) return &profile.row[BT_OPS_MAX - 1];
    if (i == profile.n) profile.row[profile.n++].name = name;
    return &profile.row[i];
}

/* bt_parallel_for, timed under `name` when the profile is on: ops are multiply-adds counted twice, bytes what memory must move */
static void run(const char *name, double ops, double bytes, size_t n, size_t grain, bt_range_fn fn, void *ctx) {
    if (!profile.on || profile.held) {
        bt_parallel_for(n, grain, fn, ctx);
        return;
    }
    int64_t from = bt_now_ns();
    bt_parallel_for(n, grain, fn, ctx);
    bt_op_profile *r = profile_row(name);
    r->calls++;
    r->ns += bt_now_ns() - from;
    r->ops += ops;
    r->bytes += bytes;
}

void bt_ops_run(const char *name, double bytes, size_t n, size_t grain, bt_range_fn fn, void *ctx) { run(name, 0, bytes, n, grain, fn, ctx); }

static double product(size_t a, size_t b, size_t c) { return (double)a * (double)b * (double)c; }

/* ---- rows ------------------------------------------------------------------------------------------------------------ */
typedef struct rows_job {                       /* one struct for all row operations; each uses what it needs */
    float *y, *dq, *rstd;
    int8_t *xq;
    const float *x, *dy, *gain, *rstd_in, *cosines, *sines;
    const int32_t *index;
    float eps;
    int flag;
    size_t C, ld, heads, rows;
} rows_job;

size_t bt_ops_row_grain(size_t C) { return C >= 4096 ? 1 : 4096 / (C ? C : 1); }

static void do_rmsnorm(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_k()->rmsnorm(j->y ? j->y + a * j->C : NULL, j->rstd ? j->rstd + a : NULL, j->x + a * j->C, j->gain, j->eps, b - a, j->C);
}

void bt_op_rmsnorm(float *y, float *rstd, const float *x, const float *gain, float eps, size_t rows, size_t C) {
    rows_job j = {.y = y, .rstd = rstd, .x = x, .gain = gain, .eps = eps, .C = C};
    run("rmsnorm", 0, 4.0 * product(rows, C, y ? 2 : 1), rows, bt_ops_row_grain(C), do_rmsnorm, &j);
}

static void do_rmsnorm_dx(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_k()->rmsnorm_dx(j->y + a * j->C, j->dy + a * j->C, j->x + a * j->C, j->gain, j->rstd_in + a, j->flag, b - a, j->C);
}

static void do_rmsnorm_dgain(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_k()->rmsnorm_dgain(j->dq, j->dy, j->x, j->rstd_in, j->rows, j->C, a, b);
}

void bt_op_rmsnorm_bwd(float *dx, float *dgain, const float *dy, const float *x, const float *gain, const float *rstd, int acc, size_t rows,
                       size_t C) {
    rows_job j = {.y = dx, .dq = dgain, .dy = dy, .x = x, .gain = gain, .rstd_in = rstd, .flag = acc, .C = C, .rows = rows};
    if (dgain) run("rmsnorm_dgain", 0, 4.0 * product(rows, C, 2), C, 64, do_rmsnorm_dgain, &j);    /* before dx: dx may overwrite dy */
    run("rmsnorm_dx", 0, 4.0 * product(rows, C, acc ? 4 : 3), rows, bt_ops_row_grain(C), do_rmsnorm_dx, &j);
}

static void do_quant(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_k()->quant_rows(j->xq + a * j->C, j->dq + a, j->x + a * j->C, b - a, j->C);
}

void bt_op_quant(int8_t *xq, float *dq, const float *x, size_t rows, size_t C) {
    rows_job j = {.xq = xq, .dq = dq, .x = x, .C = C};
    run("quant", 0, 5.0 * product(rows, C, 1), rows, bt_ops_row_grain(C), do_quant, &j);
}

static void do_rmsnorm_quant(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_k()->rmsnorm_quant(j->xq + a * j->C, j->dq + a, j->rstd + a, j->y ? j->y + a * j->C : NULL, j->x + a * j->C, j->gain, j->eps, b - a,
                          j->C);
}

void bt_op_rmsnorm_quant(int8_t *xq, float *dq, float *rstd, float *y, const float *x, const float *gain, float eps, size_t rows, size_t C) {
    rows_job j = {.xq = xq, .dq = dq, .rstd = rstd, .y = y, .x = x, .gain = gain, .eps = eps, .C = C};
    run("rmsnorm_quant", 0, product(rows, C, y ? 9 : 5), rows, bt_ops_row_grain(C), do_rmsnorm_quant, &j);
}

static void do_rope(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_k()->rope(j->y + a * j->ld, j->ld, j->cosines, j->sines, j->index + a, j->flag, b - a, j->heads, j->C);
}

void bt_op_rope(float *x, size_t ld, const float *cosines, const float *sines, const int32_t *pos, int inverse, size_t rows, size_t heads,
                size_t D) {
    rows_job j = {.y = x, .ld = ld, .cosines = cosines, .sines = sines, .index = pos, .flag = inverse, .heads = heads, .C = D};
    run("rope", 0, 8.0 * product(rows, heads, D), rows, bt_ops_row_grain(heads * D), do_rope, &j);
}

/* ---- ternary weights ------------------------------------------------------------------------------------------------- */
typedef struct codes_job { const float *w; int8_t *codes; float mean, inv_scale; int sign; bt_tern_stats *stats; } codes_job;

static void do_tern_codes(void *ctx, int thread, size_t a, size_t b) {
    const codes_job *j = ctx;
    j->stats[thread] = bt_k()->tern_codes(j->codes + a, j->w + a, j->mean, j->inv_scale, j->sign, b - a);
}

bt_tern_stats bt_op_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale, int sign, size_t n) {
    bt_tern_stats part[MAX_THREADS], all = {0, 0, 0};
    codes_job j = {w, codes, mean, inv_scale, sign, part};
    int threads = bt_threads_count();
    memset(part, 0, (size_t)threads * sizeof *part);
    run("tern_codes", 0, 6.0 * (double)n, n, BT_SUM_BLOCK, do_tern_codes, &j);
    for (int i = 0; i < threads; i++) {
        all.zero += part[i].zero;
        all.pos += part[i].pos;
        all.flips += part[i].flips;
    }
    return all;
}

typedef struct product_job {
    float *y;
    const float *x, *b, *dq;
    const int8_t *xq;
    void *packed;
    const void *packed_in;
    const int8_t *codes;
    float scale;
    size_t ldy, ldx, ldb, M, N, K;
    int ta, tb, flags;
    bt_prec prec;
    const bt_noise *noise;
} product_job;

static void do_tern_pack(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    (void)thread;
    bt_k()->tern_pack(j->packed, j->codes, j->N, j->K, a, b);
}

void bt_op_tern_pack(void *packed, const int8_t *codes, size_t N, size_t K) {
    product_job j = {.packed = packed, .codes = codes, .N = N, .K = K};
    run("tern_pack", 0, 3.0 * product(N, K, 1), N, BT_TERN_ROWS, do_tern_pack, &j);
}

static size_t product_grain(void) { return bt_k()->row_grain > 16 ? bt_k()->row_grain : 16; }    /* rows that stay on one thread */

static void do_tern_fwd(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_k()->tern_fwd(j->y, j->ldy, j->xq, j->dq, j->packed_in, j->scale, a, b, j->N, j->K, j->flags, thread_scratch(thread));
}

void bt_op_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const void *packed, float scale, size_t M, size_t N, size_t K,
                    int flags) {
    product_job j = {.y = y, .ldy = ldy, .xq = xq, .dq = dq, .packed_in = packed, .scale = scale, .N = N, .K = K, .flags = flags};
    run("tern_fwd", 2.0 * product(M, N, K), 0, M, product_grain(), do_tern_fwd, &j);
}

static void do_tern_dx(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_k()->tern_dx(j->y, j->ldy, j->x, j->ldx, j->packed_in, j->scale, a, b, j->N, j->K, j->prec, j->flags, thread_scratch(thread));
}

void bt_op_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed, float scale, size_t M, size_t N, size_t K,
                   bt_prec prec, int flags) {
    product_job j = {.y = dx, .ldy = lddx, .x = dy, .ldx = lddy, .packed_in = packed, .scale = scale, .N = N, .K = K, .prec = prec, .flags = flags};
    run("tern_dx", 2.0 * product(M, N, K), 0, M, product_grain(), do_tern_dx, &j);
}

static void do_tern_dw(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_k()->tern_dw(j->y, j->x, j->ldx, j->xq, j->dq, j->M, j->N, j->K, a, b, j->prec, thread_scratch(thread));
}

void bt_op_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq, size_t M, size_t N, size_t K, bt_prec prec) {
    product_job j = {.y = dw, .x = dy, .ldx = lddy, .xq = xq, .dq = dq, .M = M, .N = N, .K = K, .prec = prec};
    run("tern_dw", 2.0 * product(M, N, K), 0, N, product_grain(), do_tern_dw, &j);
}

static void do_tern_dx8(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_k()->tern_dx8(j->y, j->ldy, j->x, j->ldx, j->packed_in, j->scale, a, b, j->N, j->K, j->noise, j->flags, thread_scratch(thread));
}

void bt_op_tern_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed, float scale, size_t M, size_t N, size_t K,
                    const bt_noise *noise, int flags) {
    product_job j = {.y = dx, .ldy = lddx, .x = dy, .ldx = lddy, .packed_in = packed, .scale = scale, .N = N, .K = K, .noise = noise, .flags = flags};
    run("tern_dx8", 2.0 * product(M, N, K), 0, M, product_grain(), do_tern_dx8, &j);
}

static void do_tern_dw8(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_k()->tern_dw8(j->y, j->x, j->ldx, j->xq, j->dq, j->M, j->N, j->K, a, b, j->noise, thread_scratch(thread));
}

void bt_op_tern_dw8(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq, size_t M, size_t N, size_t K, const bt_noise *noise) {
    product_job j = {.y = dw, .x = dy, .ldx = lddy, .xq = xq, .dq = dq, .M = M, .N = N, .K = K, .noise = noise};
    run("tern_dw8", 2.0 * product(M, N, K), 0, N, product_grain(), do_tern_dw8, &j);
}

/* ---- int8 weights, in parts -------------------------------------------------------------------------------------------- */
typedef struct w8_job {
    const bt_w8 *w;
    float *dx;
    const float *dy, *weights;
    size_t lddx, lddy, N, K;
    const bt_noise *noise;
} w8_job;

static size_t part_rows(size_t N, size_t part) { return least(BT_W8_PART, N - part * BT_W8_PART); }
static size_t part_bytes(size_t K) { return (bt_k()->w8_bytes(BT_W8_PART, K) + 63) / 64 * 64; }
static char *part_packed(const w8_job *j, size_t part) { return (char *)j->w->packed + part * part_bytes(j->K); }
size_t bt_op_w8_bytes(size_t N, size_t K) { return (N + BT_W8_PART - 1) / BT_W8_PART * part_bytes(K); }

/* four rows at a time: their codes fit any set's scratch */
static void do_w8_pack(void *ctx, int thread, size_t a, size_t b) {
    const w8_job *j = ctx;
    int8_t *codes = thread_scratch(thread);
    for (size_t r = a, n; r < b; r += n) {
        size_t part = r / BT_W8_PART, at = r % BT_W8_PART;
        n = least(4, b - r);
        bt_k()->quant_rows(codes, j->w->scale + r, j->weights + r * j->K, n, j->K);
        bt_k()->w8_pack(part_packed(j, part), codes, part_rows(j->N, part), j->K, at, at + n);
    }
}

void bt_op_w8_pack(const bt_w8 *w, const float *weights, size_t N, size_t K) {
    w8_job j = {.w = w, .weights = weights, .N = N, .K = K};
    run("w8_pack", 0, 5.0 * product(N, K, 1), N, BT_TERN_ROWS, do_w8_pack, &j);
}

static void do_w8_dx8(void *ctx, int thread, size_t a, size_t b) {
    const w8_job *j = ctx;
    for (size_t part = 0; part * BT_W8_PART < j->N; part++) {
        size_t first = part * BT_W8_PART;
        bt_noise noise = {j->noise->rows, j->noise->salt ^ (j->noise->first + (uint32_t)first) * BT_NOISE_LANE, 0};
        bt_k()->w8_dx8(j->dx, j->lddx, j->dy + first, j->lddy, part_packed(j, part), j->w->scale + first, a, b, part_rows(j->N, part), j->K, &noise,
                       part ? BT_ACC : 0, thread_scratch(thread));
    }
}

void bt_op_w8_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const bt_w8 *w, size_t M, size_t N, size_t K, const bt_noise *noise) {
    w8_job j = {.w = w, .dx = dx, .lddx = lddx, .dy = dy, .lddy = lddy, .N = N, .K = K, .noise = noise};
    run("w8_dx8", 2.0 * product(M, N, K), 0, M, product_grain(), do_w8_dx8, &j);
}

static void do_tern_gemv(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    (void)thread;
    bt_k()->tern_gemv(j->y, j->xq, j->dq[0], j->packed_in, j->scale, j->K, a, b);
}

void bt_op_tern_gemv(float *y, const int8_t *xq, float dq, const uint8_t *packed2, float scale, size_t N, size_t K) {
    product_job j = {.y = y, .xq = xq, .dq = &dq, .packed_in = packed2, .scale = scale, .K = K};
    run("tern_gemv", 2.0 * product(1, N, K), product(N, K, 1) / 4, N, 64, do_tern_gemv, &j);
}

static void do_gemv(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    (void)thread;
    bt_k()->gemv(j->y, j->b, j->x, j->K, a, b);
}

void bt_op_gemv(float *y, const float *w, const float *x, size_t N, size_t K) {
    product_job j = {.y = y, .b = w, .x = x, .K = K};
    run("gemv", 2.0 * product(1, N, K), 4.0 * product(N, K, 1), N, 64, do_gemv, &j);
}

/* ---- dense products -------------------------------------------------------------------------------------------------- */
static void do_gemm(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    const float *x = j->ta ? j->x + a : j->x + a * j->ldx;
    bt_k()->gemm(j->y + a * j->ldy, j->ldy, x, j->ldx, j->ta, j->b, j->ldb, j->tb, j->scale, b - a, j->N, j->K, j->prec, j->flags,
                 thread_scratch(thread));
}

void bt_op_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const float *b, size_t ldb, int tb, float alpha, size_t M, size_t N,
                size_t K, bt_prec prec, int flags) {
    product_job j = {.y = c, .ldy = ldc, .x = a, .ldx = lda, .ta = ta, .b = b, .ldb = ldb, .tb = tb, .scale = alpha, .N = N, .K = K,
                     .prec = prec, .flags = flags};
    run("gemm", 2.0 * product(M, N, K), 0, M, product_grain(), do_gemm, &j);
}

/* ---- attention ------------------------------------------------------------------------------------------------------- */
typedef struct attn_job {
    float *o, *lse_out, *dq, *dk, *dv;
    const float *dout, *o_in, *lse, *q, *k, *v;
    const bt_attn_shape *s;
    size_t H, KV, runs, rows;
    bt_prec prec;
} attn_job;

static size_t group_of(const attn_job *j) { return j->s->group ? j->s->group : j->H / j->KV; }

static void do_attn_fwd(void *ctx, int thread, size_t a, size_t b) {        /* units: (sequence, head) */
    const attn_job *j = ctx;
    const bt_attn_shape *s = j->s;
    for (size_t u = a; u < b; u++) {
        size_t row = u / j->H * s->T, h = u % j->H, kv = (s->skip + h) / group_of(j);
        bt_k()->attn_fwd(j->o + row * s->ldo + h * s->D, j->lse_out + u * s->T, j->q + row * s->ldq + h * s->D, j->k + row * s->ldk + kv * s->D,
                         j->v + row * s->ldv + kv * s->D, s, 0, s->T, j->prec, thread_scratch(thread));
    }
}

void bt_op_attn_fwd(float *o, float *lse, const float *q, const float *k, const float *v, const bt_attn_shape *s, size_t B, size_t H, size_t KV,
                    bt_prec prec) {
    attn_job j = {.o = o, .lse_out = lse, .q = q, .k = k, .v = v, .s = s, .H = H, .KV = KV, .prec = prec};
    run("attn_fwd", 2.0 * product(B * H, s->T * s->T, s->D), 0, B * H, 1, do_attn_fwd, &j);
}

static void do_attn_bwd(void *ctx, int thread, size_t a, size_t b) {        /* units: (sequence, kv head, run of its query heads in order) */
    const attn_job *j = ctx;
    const bt_attn_shape *s = j->s;
    size_t group = group_of(j), each = s->run ? s->run : group / j->runs;
    for (size_t u = a; u < b; u++) {
        size_t seq = u / (j->KV * j->runs), row = seq * s->T, piece = u % (j->KV * j->runs), kv = piece / j->runs, out = piece % j->runs * j->rows + row;
        float *dk = j->dk + out * s->ldk + kv * s->D, *dv = j->dv + out * s->ldv + kv * s->D;
        for (size_t t = 0; t < s->T; t++) {
            memset(dk + t * s->ldk, 0, s->D * sizeof *dk);
            memset(dv + t * s->ldv, 0, s->D * sizeof *dv);
        }
        size_t first = most(kv * group, s->skip) - s->skip, end = least((kv + 1) * group - s->skip, j->H), run = (first / each + piece % j->runs) * each;
        for (size_t h = most(first, run); h < least(end, run + each); h++) {
            size_t oq = row * s->ldq + h * s->D, oo = row * s->ldo + h * s->D;
            bt_k()->attn_bwd(j->dq + oq, dk, dv, j->dout + oo, j->o_in + oo, j->lse + (seq * j->H + h) * s->T, j->q + oq,
                             j->k + row * s->ldk + kv * s->D, j->v + row * s->ldv + kv * s->D, s, j->prec, thread_scratch(thread));
        }
    }
}

void bt_op_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const float *o, const float *lse, const float *q, const float *k,
                    const float *v, const bt_attn_shape *s, size_t B, size_t H, size_t KV, size_t runs, bt_prec prec) {
    attn_job j = {.dq = dq, .runs = runs, .rows = B * s->T, .dk = dk, .dv = dv, .dout = dout, .o_in = o, .lse = lse, .q = q, .k = k, .v = v, .s = s, .H = H, .KV = KV, .prec = prec};
    run("attn_bwd", 5.0 * product(B * H, s->T * s->T, s->D), 0, B * KV * runs, 1, do_attn_bwd, &j);
}

/* ---- head and embedding ---------------------------------------------------------------------------------------------- */
typedef struct head_job {
    float *loss, *logits, *dx, *dE;
    const float *x, *E;
    const int32_t *targets;
    float dscale;
    size_t first, rows, V, C, ld;
    const bt_head8 *int8;
} head_job;

static void do_xent(void *ctx, int thread, size_t a, size_t b) {
    const head_job *j = ctx;
    (void)thread;
    for (size_t r = a; r < b; r++) {
        float *logits = j->logits + r * j->ld;
        bt_k()->softmax_xent(j->loss + r, logits, j->targets + r, j->dscale, 1, j->V);
        if (j->int8 && j->targets[r] >= 0) logits[j->targets[r]] += j->dscale;          /* the probability alone */
    }
}

/* columns a..b, rows in ascending order */
static void do_head_targets(void *ctx, int thread, size_t a, size_t b) {
    const bt_head_targets *j = ctx;
    const float minus = -j->dscale;
    (void)thread;
    for (size_t m = 0; m < j->rows; m++) {
        if (j->index[m] < 0 || (size_t)j->index[m] < j->from || (size_t)j->index[m] >= j->to) continue;
        size_t word = (size_t)j->index[m] * j->C, row = m * j->C;
        if (j->dx) bt_k()->row_axpy(j->dx + row + a, j->E + word + a, &minus, 1, b - a);
        if (j->dE) bt_k()->row_axpy(j->dE + word + a, j->x + row + a, &minus, 1, b - a);
    }
}

void bt_op_head_targets(const bt_head_targets *j) {
    run("head_targets", 0, (j->dx && j->dE ? 24.0 : 12.0) * product(j->rows, j->C, 1), j->C, 64, do_head_targets, (void *)(uintptr_t)j);
}

void bt_op_head_dE8(float *dE, const float *p, size_t ldp, const float *x, const bt_head8 *h, size_t rows, size_t V, size_t C) {
    bt_op_quant(h->xq, h->dq, x, rows, C);
    bt_op_tern_dw8(dE, p, ldp, h->xq, h->dq, rows, V, C, &h->noise);
}

static void head_grads8(const head_job *j) {
    bt_head8 h = *j->int8;
    h.noise.rows += j->first;
    bt_op_w8_dx8(j->dx, j->C, j->logits, j->ld, &h.w, j->rows, j->V, j->C, &h.noise);
    bt_op_head_dE8(j->dE, j->logits, j->ld, j->x, &h, j->rows, j->V, j->C);
    bt_op_head_targets(&(bt_head_targets){j->dx, j->dE, j->x, j->E, j->targets, 0, j->V, j->dscale, j->rows, j->C});
}

double bt_op_head_loss(float *dx, float *dE, const float *x, const float *E, const int32_t *targets, float dscale, float *logits, size_t chunk,
                       float *row_loss, size_t M, size_t V, size_t C, bt_prec prec, const bt_head8 *int8) {
    size_t ld = bt_ops_logits_ld(V);
    if (int8 && dscale != 0) bt_op_w8_pack(&int8->w, E, V, C);
    for (size_t m = 0; m < M; m += chunk) {
        size_t rows = M - m < chunk ? M - m : chunk;
        head_job j = {.loss = row_loss + m, .logits = logits, .targets = targets + m, .dscale = dscale, .V = V, .ld = ld, .first = m, .rows = rows, .C = C,
                      .x = x + m * C, .E = E, .dx = dx + m * C, .dE = dE, .int8 = int8};
        bt_op_gemm(logits, ld, x + m * C, C, 0, E, C, 1, 1.0f, rows, V, C, prec, 0);
        run("softmax_xent", 0, 8.0 * product(rows, V, 1), rows, 1, do_xent, &j);
        if (dscale == 0) continue;
        if (int8) {
            head_grads8(&j);
            continue;
        }
        bt_op_gemm(dx + m * C, C, logits, ld, 0, E, C, 0, 1.0f, rows, C, V, prec, 0);
        bt_op_gemm(dE, C, logits, ld, 1, x + m * C, C, 0, 1.0f, V, C, rows, prec, BT_ACC);
    }
    double loss = 0;
    for (size_t m = 0; m < M; m++) loss += (double)row_loss[m];
    return loss;
}

typedef struct embed_job {
    float *out;
    const float *in;
    const int32_t *tokens;
    size_t M, C;
} embed_job;

static void do_embed(void *ctx, int thread, size_t a, size_t b) {
    const embed_job *j = ctx;
    (void)thread;
    for (size_t m = a; m < b; m++) memcpy(j->out + m * j->C, j->in + (size_t)j->tokens[m] * j->C, j->C * sizeof(float));
}

void bt_op_embed(float *x, const float *E, const int32_t *tokens, size_t M, size_t C) {
    embed_job j = {.out = x, .in = E, .tokens = tokens, .C = C};
    run("embed", 0, 8.0 * product(M, C, 1), M, 16, do_embed, &j);
}

static void do_embed_bwd(void *ctx, int thread, size_t a, size_t b) {       /* columns a..b, rows in ascending order */
    const embed_job *j = ctx;
    (void)thread;
    for (size_t m = 0; m < j->M; m++) bt_k()->add(j->out + (size_t)j->tokens[m] * j->C + a, j->in + m * j->C + a, b - a);
}

void bt_op_embed_bwd(float *dE, const float *dx, const int32_t *tokens, size_t M, size_t C) {
    embed_job j = {.out = dE, .in = dx, .tokens = tokens, .M = M, .C = C};
    run("embed_bwd", 0, 12.0 * product(M, C, 1), C, 64, do_embed_bwd, &j);
}
