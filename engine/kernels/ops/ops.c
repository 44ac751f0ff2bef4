/* ops.c - applies the kernel table to whole arrays, divided over threads.
 *
 * Every operation divides its outputs (rows, columns or heads) among the threads of the pool; one thread computes
 * each output. A sum over a divided dimension is computed in blocks of fixed size, which are added in order.
 * Results therefore do not depend on the number of threads. */
#include "engine/kernels/ops/ops.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

static struct {
    bt_arena arena;
    size_t per_thread;    /* bytes of scratch each thread owns */
    size_t M, N, K, T, D; /* largest sizes planned */
    int threads;
    const char *isa; /* kernel set for which the plan was made */
} scratch;

bt_code bt_ops_plan(size_t M, size_t N, size_t K, size_t T, size_t D, size_t *bytes, bt_err *err) {
    scratch.M = bt_max_size(M, scratch.M);
    scratch.N = bt_max_size(N, scratch.N);
    scratch.K = bt_max_size(K, scratch.K);
    scratch.T = bt_max_size(T, scratch.T);
    scratch.D = bt_max_size(D, scratch.D);
    size_t need = bt_active_kernels()->scratch_bytes(scratch.M, scratch.N, scratch.K, scratch.T,
                                                     scratch.D);
    /* one extra page, so that the scratch of two threads never shares a cache line or maps to the same cache sets */
    need = (need + 4095) / 4096 * 4096 + 4096;
    if (need > scratch.per_thread || bt_threads_count() > scratch.threads) {
        bt_arena fresh;
        bt_arena_plan(&fresh, "kernel scratch");
        scratch.threads = bt_threads_count() > scratch.threads ? bt_threads_count()
                                                               : scratch.threads;
        scratch.per_thread = bt_max_size(need, scratch.per_thread);
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

void *bt_ops_scratch(int thread) {
    return bt_arena_at(&scratch.arena, (size_t)thread * scratch.per_thread);
}

/* ---- profile: cost of each operation, if enabled -------------------------------------------------- */
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

/* Returns the row of an operation. Names are literals, so their addresses are compared. */
static bt_op_profile *profile_row(const char *name) {
    size_t i = 0;
    while (i < profile.n && profile.row[i].name != name) i++;
    if (i == BT_OPS_MAX) return &profile.row[BT_OPS_MAX - 1];
    if (i == profile.n) profile.row[profile.n++].name = name;
    return &profile.row[i];
}

void bt_ops_timed(const char *name, double ops, double bytes, size_t n, size_t grain,
                  bt_range_fn fn, void *ctx) {
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

void bt_ops_run(const char *name, double bytes, size_t n, size_t grain, bt_range_fn fn, void *ctx) {
    bt_ops_timed(name, 0, bytes, n, grain, fn, ctx);
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* arguments of all row operations; each uses some of them */
typedef struct rows_job {
    float *y, *dq, *rstd;
    int8_t *xq;
    uint16_t *saved;
    const float *x, *dy, *gain, *rstd_in;
    const bt_rotation *by;
    float eps;
    int flag;
    size_t C, ld, heads, rows;
} rows_job;

size_t bt_ops_row_grain(size_t C) { return C >= 4096 ? 1 : 4096 / (C ? C : 1); }

static void do_rmsnorm(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_active_kernels()->rmsnorm(j->y ? j->y + a * j->C : NULL, j->rstd ? j->rstd + a : NULL,
                                 j->x + a * j->C, j->gain, j->eps, b - a, j->C);
}

void bt_op_rmsnorm(float *y, float *rstd, const float *x, const float *gain, float eps, size_t rows,
                   size_t C) {
    rows_job j = {.y = y, .rstd = rstd, .x = x, .gain = gain, .eps = eps, .C = C};
    bt_ops_timed("rmsnorm", 0, 4.0 * product(rows, C, y ? 2 : 1), rows, bt_ops_row_grain(C),
                 do_rmsnorm, &j);
}

static void do_rmsnorm_dx(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_active_kernels()->rmsnorm_dx(j->y + a * j->C, j->dy + a * j->C, j->x + a * j->C, j->gain,
                                    j->rstd_in + a, j->flag, b - a, j->C);
}

/* Computes columns a to b in the blocks of rows that bt_op_rmsnorm_bwd_saved uses, so that the bits are equal. */
static void do_rmsnorm_dgain(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    enum { STRIP = 64 };
    (void)thread;
    for (size_t c = a, n; c < b; c += n) {
        n = bt_min_size(STRIP, b - c);
        for (size_t r = 0; r < j->rows; r += BT_NORM_BLOCK) {
            float sums[STRIP] = {0};
            bt_active_kernels()->rmsnorm_dgain(sums, j->dy + r * j->C + c, j->x + r * j->C + c,
                                               j->rstd_in + r,
                                               bt_min_size(BT_NORM_BLOCK, j->rows - r), j->C, 0, n);
            bt_active_kernels()->add(j->dq + c, sums, n);
        }
    }
}

void bt_op_rmsnorm_bwd(float *dx, float *dgain, const float *dy, const float *x, const float *gain,
                       const float *rstd, int acc, size_t rows, size_t C) {
    rows_job j = {.y = dx,
                  .dq = dgain,
                  .dy = dy,
                  .x = x,
                  .gain = gain,
                  .rstd_in = rstd,
                  .flag = acc,
                  .C = C,
                  .rows = rows};
    /* must precede dx, because dx may overwrite dy */
    if (dgain)
        bt_ops_timed("rmsnorm_dgain", 0, 4.0 * product(rows, C, 2), C, 64, do_rmsnorm_dgain, &j);
    bt_ops_timed("rmsnorm_dx", 0, 4.0 * product(rows, C, acc ? 4 : 3), rows, bt_ops_row_grain(C),
                 do_rmsnorm_dx, &j);
}

static void do_bwd_saved(void *ctx, int thread, size_t a, size_t b) { /* blocks of rows */
    const bt_rmsnorm_bwd_saved *j = ctx;
    const bt_kernels *k = bt_active_kernels();
    (void)thread;
    for (size_t block = a; block < b; block++) {
        const size_t first = block * BT_NORM_BLOCK,
                     end = bt_min_size(first + BT_NORM_BLOCK, j->rows);
        float *sums = j->sums + block * 2 * j->C, *x = sums + j->C;
        memset(sums, 0, j->C * sizeof *sums);
        for (size_t r = first; r < end; r++) {
            const size_t at = r * j->C;
            k->from_bf16(x, j->x + at, j->C);
            if (j->dgain) k->rmsnorm_dgain(sums, j->dy + at, x, j->rstd + r, 1, j->C, 0, j->C);
            k->rmsnorm_dx(j->dx + at, j->dy + at, x, j->gain, j->rstd + r, j->acc, 1, j->C);
        }
    }
}

static void do_saved_sums(void *ctx, int thread, size_t a, size_t b) { /* columns */
    const bt_rmsnorm_bwd_saved *j = ctx;
    (void)thread;
    for (size_t r = 0, block = 0; r < j->rows; r += BT_NORM_BLOCK, block++)
        bt_active_kernels()->add(j->dgain + a, j->sums + block * 2 * j->C + a, b - a);
}

void bt_op_rmsnorm_bwd_saved(const bt_rmsnorm_bwd_saved *j) {
    void *ctx = (void *)(uintptr_t)j;
    bt_ops_timed("rmsnorm_bwd", 0, product(j->rows, j->C, j->acc ? 14 : 10),
                 (j->rows + BT_NORM_BLOCK - 1) / BT_NORM_BLOCK, 1, do_bwd_saved, ctx);
    if (j->dgain) bt_ops_timed("rmsnorm_bwd", 0, 0, j->C, 64, do_saved_sums, ctx);
}

static void do_quant(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_active_kernels()->quant_rows(j->xq + a * j->C, j->dq + a, j->x + a * j->C, b - a, j->C);
}

void bt_op_quant(int8_t *xq, float *dq, const float *x, size_t rows, size_t C) {
    rows_job j = {.xq = xq, .dq = dq, .x = x, .C = C};
    bt_ops_timed("quant", 0, 5.0 * product(rows, C, 1), rows, bt_ops_row_grain(C), do_quant, &j);
}

static void do_rmsnorm_quant(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_active_kernels()->rmsnorm_quant(j->xq + a * j->C, j->dq + a, j->rstd + a,
                                       j->y ? j->y + a * j->C : NULL, j->x + a * j->C, j->gain,
                                       j->eps, b - a, j->C);
}

void bt_op_rmsnorm_quant(int8_t *xq, float *dq, float *rstd, float *y, const float *x,
                         const float *gain, float eps, size_t rows, size_t C) {
    rows_job j = {
        .xq = xq, .dq = dq, .rstd = rstd, .y = y, .x = x, .gain = gain, .eps = eps, .C = C};
    bt_ops_timed("rmsnorm_quant", 0, product(rows, C, y ? 9 : 5), rows, bt_ops_row_grain(C),
                 do_rmsnorm_quant, &j);
}

static void do_rmsnorm_quant_save(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    const size_t some = bt_max_size(1, 4096 / j->C); /* number of rows that fit the L1 cache */
    for (size_t r = a; r < b; r += some) {
        const size_t end = bt_min_size(b, r + some);
        do_rmsnorm_quant(ctx, thread, r, end);
        bt_active_kernels()->to_bf16(j->saved + r * j->C, j->x + r * j->C, (end - r) * j->C);
    }
}

void bt_op_rmsnorm_quant_save(uint16_t *saved, int8_t *xq, float *dq, float *rstd, const float *x,
                              const float *gain, float eps, size_t rows, size_t C) {
    rows_job j = {
        .saved = saved, .xq = xq, .dq = dq, .rstd = rstd, .x = x, .gain = gain, .eps = eps, .C = C};
    bt_ops_timed("rmsnorm_quant", 0, product(rows, C, 7), rows, bt_ops_row_grain(C),
                 do_rmsnorm_quant_save, &j);
}

static void do_rope(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_rotation by = *j->by;
    by.pos += a;
    bt_active_kernels()->rope(j->y + a * j->ld, j->ld, &by, j->flag, b - a, j->heads, j->C);
}

void bt_op_rope(float *x, size_t ld, const bt_rotation *by, int inverse, size_t rows, size_t heads,
                size_t D) {
    rows_job j = {.y = x, .ld = ld, .by = by, .flag = inverse, .heads = heads, .C = D};
    bt_ops_timed("rope", 0, 8.0 * product(rows, heads, D), rows, bt_ops_row_grain(heads * D),
                 do_rope, &j);
}

static void do_rope_save(void *ctx, int thread, size_t a, size_t b) {
    const rows_job *j = ctx;
    (void)thread;
    bt_rotation by = *j->by;
    by.pos += a;
    for (size_t r = a; r < b; r++, by.pos++) {
        float *x = j->y + r * j->ld;
        bt_active_kernels()->rope(x, j->ld, &by, 0, 1, j->heads, j->C);
        bt_active_kernels()->to_bf16(j->saved + r * j->ld, x, j->ld);
    }
}

void bt_op_rope_save(uint16_t *saved, float *x, const bt_rotation *by, size_t rows, size_t heads,
                     size_t D) {
    rows_job j = {.y = x, .saved = saved, .ld = heads * D, .by = by, .heads = heads, .C = D};
    bt_ops_timed("rope", 0, 6.0 * product(rows, heads, D), rows, bt_ops_row_grain(heads * D),
                 do_rope_save, &j);
}
