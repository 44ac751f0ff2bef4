/* ops_products.c - matrix products over the thread pool: ternary weights, int8 weights, dense. */
#include "engine/base/small.h"
#include "engine/kernels/ops/ops_internal.h"

/* ---- ternary weights ------------------------------------------------------------------------- */
typedef struct codes_job {
    const float *w;
    const uint16_t *half; /* read if w is NULL */
    int8_t *codes;
    float mean, inv_scale;
    int sign;
    bt_tern_stats *stats;
} codes_job;

static void do_tern_codes(void *ctx, int thread, size_t a, size_t b) {
    const codes_job *j = ctx;
    float some[BT_SUM_BLOCK];
    for (size_t at = a, n; at < b; at += n) {
        n = j->w ? b - a : bt_min_size(b - at, BT_SUM_BLOCK);
        if (!j->w) bt_active_kernels()->from_bf16(some, j->half + at, n);
        bt_tern_stats s = bt_active_kernels()->tern_codes(j->codes + at, j->w ? j->w + at : some,
                                                          j->mean, j->inv_scale, j->sign, n);
        j->stats[thread].zero += s.zero;
        j->stats[thread].pos += s.pos;
        j->stats[thread].flips += s.flips;
    }
}

static bt_tern_stats convert_codes(codes_job *j, double bytes, size_t n) {
    bt_tern_stats part[BT_OPS_MAX_THREADS], all = {0, 0, 0};
    int threads = bt_threads_count();
    j->stats = part;
    memset(part, 0, (size_t)threads * sizeof *part);
    bt_ops_timed("tern_codes", 0, bytes * (double)n, n, BT_SUM_BLOCK, do_tern_codes, j);
    for (int i = 0; i < threads; i++) {
        all.zero += part[i].zero;
        all.pos += part[i].pos;
        all.flips += part[i].flips;
    }
    return all;
}

bt_tern_stats bt_op_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale, int sign,
                               size_t n) {
    codes_job j = {.w = w, .codes = codes, .mean = mean, .inv_scale = inv_scale, .sign = sign};
    return convert_codes(&j, 6, n);
}

bt_tern_stats bt_op_tern_codes_bf16(int8_t *codes, const uint16_t *w, float mean, float inv_scale,
                                    int sign, size_t n) {
    codes_job j = {.half = w, .codes = codes, .mean = mean, .inv_scale = inv_scale, .sign = sign};
    return convert_codes(&j, 4, n);
}

typedef struct product_job {
    float *y;
    const float *x, *dq;
    bt_grads grads; /* output gradients of the int8 products */
    const void *b;
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
    bt_active_kernels()->tern_pack(j->packed, j->codes, j->N, j->K, a, b);
}

void bt_op_tern_pack(void *packed, const int8_t *codes, size_t N, size_t K) {
    product_job j = {.packed = packed, .codes = codes, .N = N, .K = K};
    bt_ops_timed("tern_pack", 0, 3.0 * product(N, K, 1), N, BT_TERN_ROWS, do_tern_pack, &j);
}

/* four rows at a time, because their codes fit the scratch memory of every set */
static void do_pack_2bit(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    int8_t *codes = bt_ops_scratch(thread);
    for (size_t r = a, n; r < b; r += n) {
        n = bt_min_size(4, b - r);
        (void)bt_active_kernels()->tern_codes(codes, j->x + r * j->K, 0, j->scale, 0, n * j->K);
        bt_active_kernels()->packed_2bit_pack(j->packed, codes, j->N, j->K, r, r + n);
    }
}

void bt_op_pack_2bit(void *packed, const float *w, float inv_scale, size_t N, size_t K) {
    product_job j = {.packed = packed, .x = w, .scale = inv_scale, .N = N, .K = K};
    bt_ops_timed("thin_pack", 0, 4.25 * product(N, K, 1), N, BT_TERN_ROWS, do_pack_2bit, &j);
}

static void do_pack_2bit_rows(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    int8_t *codes = bt_ops_scratch(thread);
    for (size_t r = a; r < b; r++) {
        (void)bt_active_kernels()->tern_codes(codes, j->x + r * j->ldx, 0, 1.0f / j->dq[r * j->ldy],
                                              0, j->K);
        bt_active_kernels()->packed_2bit_pack(j->packed, codes, j->N, j->K, r, r + 1);
    }
}

void bt_op_pack_2bit_rows(void *packed, const float *w, size_t ldw, const float *scales, size_t lds,
                          size_t N, size_t K) {
    product_job j = {
        .packed = packed, .x = w, .ldx = ldw, .dq = scales, .ldy = lds, .N = N, .K = K};
    bt_ops_timed("thin_pack", 0, 4.25 * product(N, K, 1), N, BT_TERN_ROWS, do_pack_2bit_rows, &j);
}

/* minimum number of rows for one thread */
static size_t product_grain(void) {
    return bt_active_kernels()->row_grain > 16 ? bt_active_kernels()->row_grain : 16;
}

static void do_tern_fwd(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->tern_fwd(j->y, j->ldy, j->xq, j->dq, j->packed_in, j->scale, a, b, j->N,
                                  j->K, j->flags, bt_ops_scratch(thread));
}

void bt_op_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const void *packed,
                    float scale, size_t M, size_t N, size_t K, int flags) {
    product_job j = {.y = y,
                     .ldy = ldy,
                     .xq = xq,
                     .dq = dq,
                     .packed_in = packed,
                     .scale = scale,
                     .N = N,
                     .K = K,
                     .flags = flags};
    bt_ops_timed("tern_fwd", 2.0 * product(M, N, K), 0, M, product_grain(), do_tern_fwd, &j);
}

static void do_tern_dx(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->tern_dx(j->y, j->ldy, j->x, j->ldx, j->packed_in, j->scale, a, b, j->N,
                                 j->K, j->prec, j->flags, bt_ops_scratch(thread));
}

void bt_op_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                   float scale, size_t M, size_t N, size_t K, bt_prec prec, int flags) {
    product_job j = {.y = dx,
                     .ldy = lddx,
                     .x = dy,
                     .ldx = lddy,
                     .packed_in = packed,
                     .scale = scale,
                     .N = N,
                     .K = K,
                     .prec = prec,
                     .flags = flags};
    bt_ops_timed("tern_dx", 2.0 * product(M, N, K), 0, M, product_grain(), do_tern_dx, &j);
}

static void do_tern_dw(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->tern_dw(j->y, j->x, j->ldx, j->xq, j->dq, j->M, j->N, j->K, a, b, j->prec,
                                 bt_ops_scratch(thread));
}

void bt_op_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                   size_t M, size_t N, size_t K, bt_prec prec) {
    product_job j = {
        .y = dw, .x = dy, .ldx = lddy, .xq = xq, .dq = dq, .M = M, .N = N, .K = K, .prec = prec};
    bt_ops_timed("tern_dw", 2.0 * product(M, N, K), 0, N, product_grain(), do_tern_dw, &j);
}

static void do_tern_dx8(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->tern_dx8(j->y, j->ldy, j->grads, j->packed_in, j->scale, a, b, j->N, j->K,
                                  j->noise, j->flags, bt_ops_scratch(thread));
}

void bt_op_tern_dx8(float *dx, size_t lddx, bt_grads dy, const void *packed, float scale, size_t M,
                    size_t N, size_t K, const bt_noise *noise, int flags) {
    product_job j = {.y = dx,
                     .ldy = lddx,
                     .grads = dy,
                     .packed_in = packed,
                     .scale = scale,
                     .N = N,
                     .K = K,
                     .noise = noise,
                     .flags = flags};
    bt_ops_timed("tern_dx8", 2.0 * product(M, N, K), 0, M, product_grain(), do_tern_dx8, &j);
}

static void do_tern_dw8(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->tern_dw8(j->y, j->grads, j->xq, j->dq, j->M, j->N, j->K, a, b, j->noise,
                                  bt_ops_scratch(thread));
}

void bt_op_tern_dw8(float *dw, bt_grads dy, const int8_t *xq, const float *dq, size_t M, size_t N,
                    size_t K, const bt_noise *noise) {
    product_job j = {
        .y = dw, .grads = dy, .xq = xq, .dq = dq, .M = M, .N = N, .K = K, .noise = noise};
    bt_ops_timed("tern_dw8", 2.0 * product(M, N, K), 0, N, product_grain(), do_tern_dw8, &j);
}

/* ---- int8 weights, in parts ------------------------------------------------------------------ */
typedef struct w8_job {
    const bt_w8 *w;
    float *dx;
    const float *dy;
    const bt_table *weights;
    size_t lddx, lddy, N, K;
    const bt_noise *noise;
} w8_job;

static size_t block_rows(size_t N, size_t block) {
    return bt_min_size(BT_W8_BLOCK, N - block * BT_W8_BLOCK);
}
static size_t panel_block_bytes(size_t K) {
    return (bt_active_kernels()->w8_bytes(BT_W8_BLOCK, K) + 63) / 64 * 64;
}
static char *block_packed(const w8_job *j, size_t block) {
    return (char *)j->w->packed + block * panel_block_bytes(j->K);
}
size_t bt_op_w8_bytes(size_t N, size_t K) {
    return (N + BT_W8_BLOCK - 1) / BT_W8_BLOCK * panel_block_bytes(K);
}

/* Four rows at a time: their codes fit the scratch memory of every set, and so does a row of floats, which must be
 * expanded first where sets multiply bf16. */
static void pack_w8_rows(void *ctx, int thread, size_t a, size_t b) {
    const w8_job *j = ctx;
    int8_t *codes = bt_ops_scratch(thread);
    float *row = (float *)(void *)(codes + (4 * j->K + 63) / 64 * 64);
    const bool direct = !j->weights->bf16 && !j->weights->rounded;
    for (size_t r = a, n; r < b; r += n) {
        size_t block = r / BT_W8_BLOCK, at = r % BT_W8_BLOCK;
        n = bt_min_size(4, b - r);
        if (direct)
            bt_active_kernels()->quant_rows(codes, j->w->scale + r, j->weights->f32 + r * j->K, n,
                                            j->K);
        for (size_t i = 0; i < n && !direct; i++) {
            bt_table_read(row, j->weights, (r + i) * j->K, j->K);
            bt_active_kernels()->quant_rows(codes + i * j->K, j->w->scale + r + i, row, 1, j->K);
        }
        bt_active_kernels()->w8_pack(block_packed(j, block), codes, block_rows(j->N, block), j->K,
                                     at, at + n);
    }
}

void bt_op_w8_pack(const bt_w8 *w, const bt_table *weights, size_t N, size_t K) {
    w8_job j = {.w = w, .weights = weights, .N = N, .K = K};
    bt_ops_timed("w8_pack", 0, 5.0 * product(N, K, 1), N, BT_TERN_ROWS, pack_w8_rows, &j);
}

static void do_w8_dx8(void *ctx, int thread, size_t a, size_t b) {
    const w8_job *j = ctx;
    for (size_t block = 0; block * BT_W8_BLOCK < j->N; block++) {
        size_t first = block * BT_W8_BLOCK;
        bt_noise noise = {j->noise->rows,
                          j->noise->salt ^ (j->noise->first + (uint32_t)first) * BT_NOISE_LANE, 0};
        const void *words = j->w->rows ? (const char *)j->w->packed + first * j->K
                                       : block_packed(j, block);
        bt_active_kernels()->w8_dx8(j->dx, j->lddx, j->dy + first, j->lddy, words,
                                    j->w->scale + first, a, b, block_rows(j->N, block), j->K,
                                    &noise, (block ? BT_ACC : 0) | (j->w->rows ? BT_COMPACT : 0),
                                    bt_ops_scratch(thread));
    }
}

/* Outputs a..b of all rows, so that each panel of weights is unpacked by one thread only. */
static void do_w8_fwd(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->w8_fwd(j->y + a, j->ldy, j->xq, j->dq, (const int8_t *)j->b + a * j->K,
                                j->x + a, 0, j->M, b - a, j->K, bt_ops_scratch(thread));
}

void bt_op_w8_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const bt_w8 *w, size_t M,
                  size_t N, size_t K) {
    product_job j = {.y = y,
                     .ldy = ldy,
                     .xq = xq,
                     .dq = dq,
                     .b = w->packed,
                     .x = w->scale,
                     .M = M,
                     .N = N,
                     .K = K};
    /* a small vocabulary is still divided among all threads */
    const size_t part = bt_max_size(BT_TERN_ROWS, N / 8 / BT_TERN_ROWS * BT_TERN_ROWS);
    bt_ops_timed("w8_fwd", 2.0 * product(M, N, K), 0, N, bt_min_size(BT_W8_BLOCK, part), do_w8_fwd,
                 &j);
}

void bt_op_w8_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const bt_w8 *w, size_t M,
                  size_t N, size_t K, const bt_noise *noise) {
    w8_job j = {
        .w = w, .dx = dx, .lddx = lddx, .dy = dy, .lddy = lddy, .N = N, .K = K, .noise = noise};
    bt_ops_timed("w8_dx8", 2.0 * product(M, N, K), 0, M, product_grain(), do_w8_dx8, &j);
}

/* ---- few rows: weights are read once; threads divide the outputs ------------------------- */
enum { GEMV_GRAIN = 64 };

static void do_tern_gemv(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    bt_active_kernels()->tern_gemv(j->y, j->ldy, j->xq, j->dq, j->M, j->packed_in, j->scale, j->K,
                                   a, b, j->flags, bt_ops_scratch(thread));
}

void bt_op_tern_gemv(float *y, size_t ldy, const int8_t *xq, const float *dq, const bt_tern2 *w,
                     size_t M, int flags) {
    product_job j = {.y = y,
                     .ldy = ldy,
                     .xq = xq,
                     .dq = dq,
                     .packed_in = w->packed,
                     .scale = w->scale,
                     .M = M,
                     .K = w->K,
                     .flags = flags};
    bt_ops_timed("tern_gemv", 2.0 * product(M, w->N, w->K), product(w->N, w->K, 1) / 4, w->N,
                 GEMV_GRAIN, do_tern_gemv, &j);
}

typedef struct gemv_job {
    float *y;
    size_t ldy, M, K;
    const void *w;
    bt_stored_as as;
    const float *x;
} gemv_job;

static void do_gemv(void *ctx, int thread, size_t a, size_t b) {
    const gemv_job *j = ctx;
    (void)thread;
    bt_active_kernels()->gemv(j->y, j->ldy, j->w, j->as, j->x, j->M, j->K, a, b);
}

void bt_op_gemv(float *y, const void *w, bt_stored_as as, const float *x, size_t M, size_t N,
                size_t K) {
    gemv_job j = {y, N, M, K, w, as, x};
    bt_ops_timed("gemv", 2.0 * product(M, N, K), (as == BT_AS_F32 ? 4.0 : 2.0) * product(N, K, 1),
                 N, GEMV_GRAIN, do_gemv, &j);
}

/* ---- dense products -------------------------------------------------------------------------- */
static void multiply_rows(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    const float *x = j->ta ? j->x + a : j->x + a * j->ldx;
    bt_active_kernels()->gemm(j->y + a * j->ldy, j->ldy, x, j->ldx, j->ta, j->b, j->ldb, j->tb,
                              j->scale, b - a, j->N, j->K, j->prec, j->flags,
                              bt_ops_scratch(thread));
}

/* columns a to b of all rows */
static void do_gemm_columns(void *ctx, int thread, size_t a, size_t b) {
    const product_job *j = ctx;
    const size_t size = j->flags & BT_B_BF16 ? sizeof(uint16_t) : sizeof(float);
    const char *from = (const char *)j->b + (j->tb ? a * j->ldb : a) * size;
    bt_active_kernels()->gemm(j->y + a, j->ldy, j->x, j->ldx, j->ta, from, j->ldb, j->tb, j->scale,
                              j->M, b - a, j->K, j->prec, j->flags, bt_ops_scratch(thread));
}

/* For few rows and many columns: divides the columns among threads. The bits are the same, except for OpenBLAS,
 * whose rounding depends on the shape. */
enum { GEMM_COLUMNS = 128 };
static bool by_columns(size_t M, size_t N) {
    return M <= product_grain() && N >= 4 * GEMM_COLUMNS && bt_threads_count() > 1 &&
           strcmp(bt_kernels_isa(), "blas") != 0;
}

void bt_op_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b, size_t ldb,
                int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec, int flags) {
    product_job j = {.y = c,
                     .ldy = ldc,
                     .x = a,
                     .ldx = lda,
                     .ta = ta,
                     .b = b,
                     .ldb = ldb,
                     .tb = tb,
                     .scale = alpha,
                     .M = M,
                     .N = N,
                     .K = K,
                     .prec = prec,
                     .flags = flags};
    if (by_columns(M, N))
        bt_ops_timed("gemm", 2.0 * product(M, N, K), 0, N, GEMM_COLUMNS, do_gemm_columns, &j);
    else
        bt_ops_timed("gemm", 2.0 * product(M, N, K), 0, M, product_grain(), multiply_rows, &j);
}

/* Expands BT_TABLE8_ROWS rows of b to floats at a time, just before the product that reads them. */
static void gemm_table8(float *c, size_t ldc, const float *a, size_t lda, bt_table b, int tb,
                        size_t M, size_t N, size_t K, bt_prec prec, int flags) {
    const bool half = prec == BT_PREC_BF16 && bt_kernels_multiply_bf16();
    const size_t rows = tb ? N : K, cols = tb ? K : N;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(BT_TABLE8_ROWS, rows - at);
        const bt_table part = bt_table_from(b, at * b.width);
        bt_ops_widen(&part, n, cols, half);
        const int with = (half ? BT_B_BF16 : 0) | (tb || at == 0 ? flags : flags | BT_ACC);
        if (tb)
            bt_op_gemm(c + at, ldc, a, lda, 0, b.wide, cols, 1, 1.0f, M, n, K, prec, with);
        else
            bt_op_gemm(c, ldc, a + at, lda, 0, b.wide, cols, 0, 1.0f, M, N, n, prec, with);
    }
}

void bt_op_gemm_table(float *c, size_t ldc, const float *a, size_t lda, bt_table b, size_t ldb,
                      int tb, size_t M, size_t N, size_t K, bt_prec prec, int flags) {
    if (b.i8)
        gemm_table8(c, ldc, a, lda, b, tb, M, N, K, prec, flags);
    else if (b.bf16)
        bt_op_gemm(c, ldc, a, lda, 0, b.bf16, ldb, tb, 1.0f, M, N, K, prec, flags | BT_B_BF16);
    else
        bt_op_gemm(c, ldc, a, lda, 0, b.f32, ldb, tb, 1.0f, M, N, K, prec, flags);
}
