// ctest: timeout=300 optimised
/* Product slots of every set that this processor supports, compared with the generic set: ternary, dense and attention
 * products on awkward sizes, strides and unaligned pointers. tern_fwd, tern_dx8, w8_dx8, w8_fwd, tern_dw8 and tern_gemv
 * give equal bits. For all other slots |got - want| <= tol * sum |a||b|, with tol = 2e-6 for fp32 operands and 2^-7 for
 * bf16; with fp16 all sets round their operands equally, except BLAS, which keeps fp32. */

#include "tests/engine/kernels/isa_util.h"
#include "tests/engine/kernels/stored_results.h"

#include "engine/kernels/table/half.h"

static const bt_kernels *const G = &bt_kernels_generic;

static double tolerance_of(const bt_kernels *k, int prec) {
    if (prec == BT_PREC_BF16) return 1.0 / 128;
    return prec == BT_PREC_FP16 && strcmp(k->name, "blas") == 0 ? 1.0 / 1024 : 2e-6;
}

typedef struct shape {
    size_t M, N, K;
} shape;

/* Returns every awkward size for each dimension, then sizes that cross the blocking of a set. */
static size_t list_shapes(shape *out) {
    static const size_t few[] = {0, 1, 2, 3, 15, 16, 17, 31, 33, 63, 65, 255};
    static const shape more[] = {{14, 32, 256},   {29, 64, 1030}, {300, 96, 70},  {5, 700, 2600},
                                 {130, 33, 1200}, {64, 530, 40},  {1, 192, 192},  {257, 40, 515},
                                 {1030, 70, 40},  {70, 470, 33},  {520, 34, 1024}};
    size_t n = 0;
    for (size_t i = 0; i < 12; i++) {
        out[n++] = (shape){few[i], few[(i * 5 + 3) % 12], few[(i * 7 + 4) % 12]};
        out[n++] = (shape){few[(i * 5 + 2) % 12], few[i], few[(i * 7 + 9) % 12]};
        out[n++] = (shape){few[(i * 7 + 10) % 12], few[(i * 5 + 8) % 12], few[i]};
        if (i < 11) /* 255 in all dimensions would take a fifth of the total time */
            out[n++] = (shape){few[i], few[i], few[i]};
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) out[n++] = more[i];
    return n;
}

static void *packed_by(const bt_kernels *k, const int8_t *codes, size_t N, size_t K) {
    void *p = take(k->tern_bytes(N, K), 4);
    for (size_t n = 0; n < N; n += BT_TERN_ROWS)
        k->tern_pack(p, codes, N, K, n, n + BT_TERN_ROWS < N ? n + BT_TERN_ROWS : N);
    return p;
}

/* Packing 2-bit codes in several calls of any length gives the same bits. */
static void *packed_2bit_by(const bt_kernels *k, const int8_t *codes, size_t N, size_t K) {
    void *p = take(k->packed_2bit_bytes(N, K), 4);
    for (size_t n = 0, rows; n < N; n += rows) {
        rows = n % 3 ? 5 : 64;
        if (rows > N - n) rows = N - n;
        k->packed_2bit_pack(p, codes + n * K, N, K, n, n + rows);
    }
    return p;
}

/* The codes of any inputs of a row are those that were packed. */
static void packed_2bit_codes(const bt_kernels *k, shape s) {
    int8_t *w = bytes_in(s.N * s.K, -1, 1), *row = bytes_in(s.K, 2, 2);
    void *p = packed_2bit_by(k, w, s.N, s.K);
    for (size_t n = 0; n < s.N; n++) {
        const size_t cut = n * 7 % (s.K + 1);
        k->packed_2bit_codes(row, p, s.K, n, 0, cut);
        k->packed_2bit_codes(row + cut, p, s.K, n, cut, s.K);
        same_bits("packed_2bit_codes", row, w + n * s.K, s.K);
    }
}

static void tern_fwd(const bt_kernels *k, shape s) {
    size_t ldy = s.N + 3;
    int8_t *x = bytes_in(s.M * s.K, -128, 127), *w = bytes_in(s.N * s.K, -1, 1);
    float *dq = floats(s.M), *y = floats(s.M * ldy), *want = copy_of(y, s.M * ldy),
          *packed_2bit = copy_of(y, s.M * ldy);
    void *p = packed_by(k, w, s.N, s.K), *tp = packed_2bit_by(k, w, s.N, s.K),
         *gp = packed_by(G, w, s.N, s.K), *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1);
    for (int flags = 0; flags < 2; flags++) {
        size_t cut = s.M / 3; /* Two calls give the result of one. */
        k->tern_fwd(y, ldy, x, dq, p, 0.37f, 0, cut, s.N, s.K, flags, tmp);
        k->tern_fwd(y, ldy, x, dq, p, 0.37f, cut, s.M, s.N, s.K, flags, tmp);
        ORACLE(want, s.M * ldy * 4,
               G->tern_fwd(want, ldy, x, dq, gp, 0.37f, 0, s.M, s.N, s.K, flags, NULL));
        same_bits("tern_fwd", y, want, s.M * ldy * 4);
        k->tern_fwd(packed_2bit, ldy, x, dq, tp, 0.37f, 0, s.M, s.N, s.K, flags | BT_COMPACT, tmp);
        same_bits("tern_fwd, 2 bits", packed_2bit, y, s.M * ldy * 4);
    }
}

static void tern_dx(const bt_kernels *k, shape s) {
    size_t lddx = s.K + 1, lddy = s.N + 5;
    int8_t *w = bytes_in(s.N * s.K, -1, 1), *aw = take(s.N * s.K, 1);
    for (size_t i = 0; i < s.N * s.K; i++) aw[i] = (int8_t)abs(w[i]);
    float *dy = floats(s.M * lddy), *dx = floats(s.M * lddx), *want = copy_of(dx, s.M * lddx),
          *size = abs_of(dx, s.M * lddx), *packed_2bit = copy_of(dx, s.M * lddx);
    void *p = packed_by(k, w, s.N, s.K), *gp = packed_by(G, w, s.N, s.K),
         *tp = packed_2bit_by(k, w, s.N, s.K), *ap = packed_by(G, aw, s.N, s.K);
    void *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1);
    float *ady = abs_of(dy, s.M * lddy), *start = copy_of(dx, s.M * lddx);
    ORACLE(size, s.M * lddx * 4,
           G->tern_dx(size, lddx, ady, lddy, ap, 0.37f, 0, s.M, s.N, s.K, BT_PREC_FP32, BT_ACC,
                      NULL));
    for (int prec = 0; prec < 3; prec++)
        for (int flags = 0; flags < 2; flags++) {
            if (s.M > 0) memcpy(dx, start, s.M * lddx * 4), memcpy(want, start, s.M * lddx * 4);
            if (s.M > 0) memcpy(packed_2bit, start, s.M * lddx * 4);
            ORACLE(want, s.M * lddx * 4,
                   G->tern_dx(want, lddx, dy, lddy, gp, 0.37f, 0, s.M, s.N, s.K, (bt_prec)prec,
                              flags, NULL));
            size_t cut = s.M / 2;
            k->tern_dx(dx, lddx, dy, lddy, p, 0.37f, 0, cut, s.N, s.K, (bt_prec)prec, flags, tmp);
            k->tern_dx(dx, lddx, dy, lddy, p, 0.37f, cut, s.M, s.N, s.K, (bt_prec)prec, flags, tmp);
            near_scaled(prec == BT_PREC_FP16 ? "tern_dx fp16"
                        : prec               ? "tern_dx bf16"
                                             : "tern_dx fp32",
                        dx, want, size, tolerance_of(k, prec), s.M * lddx);
            k->tern_dx(packed_2bit, lddx, dy, lddy, tp, 0.37f, 0, s.M, s.N, s.K, (bt_prec)prec,
                       flags | BT_COMPACT, tmp);
            same_bits("tern_dx, 2 bits", packed_2bit, dx, s.M * lddx * 4);
        }
}

static void tern_dw(const bt_kernels *k, shape s) {
    size_t lddy = s.N + 2, n = s.N * s.K;
    int8_t *x = bytes_in(s.M * s.K, -128, 127), *ax = take(s.M * s.K, 1);
    for (size_t i = 0; i < s.M * s.K; i++) ax[i] = (int8_t)(x[i] == -128 ? 127 : abs(x[i]));
    float *dy = floats(s.M * lddy), *dq = floats(s.M), *dw = floats(n), *start = copy_of(dw, n),
          *want = copy_of(dw, n), *size = abs_of(dw, n);
    float *ady = abs_of(dy, s.M * lddy), *adq = abs_of(dq, s.M);
    void *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1);
    ORACLE(size, n * 4,
           G->tern_dw(size, ady, lddy, ax, adq, s.M, s.N, s.K, 0, s.N, BT_PREC_FP32, NULL));
    for (int prec = 0; prec < 3; prec++) {
        if (n) memcpy(dw, start, n * 4), memcpy(want, start, n * 4);
        ORACLE(want, n * 4,
               G->tern_dw(want, dy, lddy, x, dq, s.M, s.N, s.K, 0, s.N, (bt_prec)prec, NULL));
        size_t cut = s.N / 2;
        k->tern_dw(dw, dy, lddy, x, dq, s.M, s.N, s.K, 0, cut, (bt_prec)prec, tmp);
        k->tern_dw(dw, dy, lddy, x, dq, s.M, s.N, s.K, cut, s.N, (bt_prec)prec, tmp);
        near_scaled(prec == BT_PREC_FP16 ? "tern_dw fp16"
                    : prec               ? "tern_dw bf16"
                                         : "tern_dw fp32",
                    dw, want, size, 1.05 * tolerance_of(k, prec), n);
    }
}

static bt_noise noise_of(size_t M) {
    uint32_t *rows = take(M * 4, 4);
    for (size_t i = 0; i < M; i++) rows[i] = (uint32_t)(unit() * 4294967296.0);
    return (bt_noise){rows, 77, 3};
}

/* Rounds n floats to bf16 in place and returns the same values as bf16. */
static bt_grads round_to_bf16(float *dy, size_t n, size_t ld) {
    uint16_t *half = take(n * sizeof *half, 4);
    G->to_bf16(half, dy, n);
    G->from_bf16(dy, half, n);
    return bt_grads_bf16(half, ld);
}

static void tern_dx8(const bt_kernels *k, shape s) {
    size_t lddx = s.K + 1, lddy = s.N + 5;
    int8_t *w = bytes_in(s.N * s.K, -1, 1);
    float *dy = floats(s.M * lddy), *dx = floats(s.M * lddx), *want = copy_of(dx, s.M * lddx),
          *packed_2bit = copy_of(dx, s.M * lddx);
    void *p = packed_by(k, w, s.N, s.K), *gp = packed_by(G, w, s.N, s.K),
         *tp = packed_2bit_by(k, w, s.N, s.K), *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1),
         *gtmp = scratch_for(G, s.M, s.N, s.K, 1, 1);
    bt_noise noise = noise_of(s.M);
    if (s.M > 2 && s.N > 0) memset(dy + lddy, 0, s.N * 4); /* a row of zeros */
    const bt_grads g = bt_grads_f32(dy, lddy);
    for (int flags = 0; flags < 2; flags++) {
        size_t cut = s.M / 3;
        k->tern_dx8(dx, lddx, g, p, 0.37f, 0, cut, s.N, s.K, &noise, flags, tmp);
        k->tern_dx8(dx, lddx, g, p, 0.37f, cut, s.M, s.N, s.K, &noise, flags, tmp);
        ORACLE(want, s.M * lddx * 4,
               G->tern_dx8(want, lddx, g, gp, 0.37f, 0, s.M, s.N, s.K, &noise, flags, gtmp));
        same_bits("tern_dx8", dx, want, s.M * lddx * 4);
        k->tern_dx8(packed_2bit, lddx, g, tp, 0.37f, 0, s.M, s.N, s.K, &noise, flags | BT_COMPACT,
                    tmp);
        same_bits("tern_dx8, 2 bits", packed_2bit, dx, s.M * lddx * 4);
    }
    const bt_grads half = round_to_bf16(dy, s.M * lddy, lddy);
    k->tern_dx8(dx, lddx, g, p, 0.37f, 0, s.M, s.N, s.K, &noise, 0, tmp);
    k->tern_dx8(packed_2bit, lddx, half, p, 0.37f, 0, s.M, s.N, s.K, &noise, 0, tmp);
    same_bits("tern_dx8 of bf16", packed_2bit, dx, s.M * lddx * 4);
}

/* The weights have any int8 value, and each row has its own scale. */
static void w8_dx8(const bt_kernels *k, shape s) {
    size_t lddx = s.K + 1, lddy = s.N + 5;
    int8_t *w = bytes_in(s.N * s.K, -128, 127);
    float *dy = floats(s.M * lddy), *by = floats(s.N), *dx = floats(s.M * lddx),
          *want = copy_of(dx, s.M * lddx), *of_rows = copy_of(dx, s.M * lddx);
    void *p = take(k->w8_bytes(s.N, s.K), 4), *gp = take(G->w8_bytes(s.N, s.K), 4),
         *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1), *gtmp = scratch_for(G, s.M, s.N, s.K, 1, 1);
    bt_noise noise = noise_of(s.M);
    for (size_t n = 0, rows; n < s.N; n += rows) {
        /* calls of any length that begin at multiples of 4 */
        rows = n % 3 ? 4 : 64;
        if (rows > s.N - n) rows = s.N - n;
        k->w8_pack(p, w + n * s.K, s.N, s.K, n, n + rows);
        G->w8_pack(gp, w + n * s.K, s.N, s.K, n, n + rows);
    }
    if (s.M > 2 && s.N > 0) memset(dy + lddy, 0, s.N * 4);
    for (int flags = 0; flags < 2; flags++) {
        size_t cut = s.M / 3;
        k->w8_dx8(dx, lddx, dy, lddy, p, by, 0, cut, s.N, s.K, &noise, flags, tmp);
        k->w8_dx8(dx, lddx, dy, lddy, p, by, cut, s.M, s.N, s.K, &noise, flags, tmp);
        ORACLE(want, s.M * lddx * 4,
               G->w8_dx8(want, lddx, dy, lddy, gp, by, 0, s.M, s.N, s.K, &noise, flags, gtmp));
        same_bits("w8_dx8", dx, want, s.M * lddx * 4);
        k->w8_dx8(of_rows, lddx, dy, lddy, w, by, 0, s.M, s.N, s.K, &noise, flags | BT_COMPACT,
                  tmp);
        same_bits("w8_dx8 of rows", of_rows, dx, s.M * lddx * 4);
    }
}

static void w8_fwd(const bt_kernels *k, shape s) {
    size_t ldy = s.N + 3, cut = s.M / 3;
    int8_t *x = bytes_in(s.M * s.K, -128, 127), *w = bytes_in(s.N * s.K, -128, 127);
    float *dq = floats(s.M), *by = floats(s.N), *y = floats(s.M * ldy),
          *want = copy_of(y, s.M * ldy);
    void *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1);
    k->w8_fwd(y, ldy, x, dq, w, by, 0, cut, s.N, s.K, tmp);
    k->w8_fwd(y, ldy, x, dq, w, by, cut, s.M, s.N, s.K, tmp);
    ORACLE(want, s.M * ldy * 4, G->w8_fwd(want, ldy, x, dq, w, by, 0, s.M, s.N, s.K, NULL));
    same_bits("w8_fwd", y, want, s.M * ldy * 4);
}

static void tern_dw8(const bt_kernels *k, shape s) {
    size_t lddy = s.N + 2, n = s.N * s.K, cut = s.N / 2;
    int8_t *x = bytes_in(s.M * s.K, -128, 127);
    float *dy = floats(s.M * lddy), *dq = floats(s.M), *dw = floats(n), *want = copy_of(dw, n);
    void *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1), *gtmp = scratch_for(G, s.M, s.N, s.K, 1, 1);
    bt_noise noise = noise_of(s.M);
    const bt_grads g = bt_grads_f32(dy, lddy);
    k->tern_dw8(dw, g, x, dq, s.M, s.N, s.K, 0, cut, &noise, tmp);
    k->tern_dw8(dw, g, x, dq, s.M, s.N, s.K, cut, s.N, &noise, tmp);
    ORACLE(want, n * 4, G->tern_dw8(want, g, x, dq, s.M, s.N, s.K, 0, s.N, &noise, gtmp));
    same_bits("tern_dw8", dw, want, n * 4);
    float *of_bf16 = copy_of(dw, n);
    const bt_grads half = round_to_bf16(dy, s.M * lddy, lddy);
    k->tern_dw8(dw, g, x, dq, s.M, s.N, s.K, 0, s.N, &noise, tmp);
    k->tern_dw8(of_bf16, half, x, dq, s.M, s.N, s.K, 0, s.N, &noise, tmp);
    same_bits("tern_dw8 of bf16", of_bf16, dw, n * 4);
}

static void check_gemm(const bt_kernels *k, shape s) {
    for (int t = 0; t < 4; t++) {
        int ta = t & 1, tb = t >> 1;
        size_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 1, ldc = s.N + 2,
               na = (ta ? s.K : s.M) * lda, nb = (tb ? s.N : s.K) * ldb;
        float *a = floats(na), *b = floats(nb), *c = floats(s.M * ldc),
              *start = copy_of(c, s.M * ldc), *want = copy_of(c, s.M * ldc);
        float *size = abs_of(c, s.M * ldc), *aa = abs_of(a, na), *ab = abs_of(b, nb);
        void *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1);
        ORACLE(size, s.M * ldc * 4,
               G->gemm(size, ldc, aa, lda, ta, ab, ldb, tb, 1.5f, s.M, s.N, s.K, BT_PREC_FP32,
                       BT_ACC, NULL));
        for (int prec = 0; prec < 3; prec++)
            for (int flags = 0; flags < 2; flags++) {
                if (s.M > 0) memcpy(c, start, s.M * ldc * 4), memcpy(want, start, s.M * ldc * 4);
                ORACLE(want, s.M * ldc * 4,
                       G->gemm(want, ldc, a, lda, ta, b, ldb, tb, 1.5f, s.M, s.N, s.K,
                               (bt_prec)prec, flags, NULL));
                k->gemm(c, ldc, a, lda, ta, b, ldb, tb, 1.5f, s.M, s.N, s.K, (bt_prec)prec, flags,
                        tmp);
                near_scaled(prec == BT_PREC_FP16 ? "gemm fp16"
                            : prec               ? "gemm bf16"
                                                 : "gemm fp32",
                            c, want, size, tolerance_of(k, prec), s.M * ldc);
            }
        drop_all("gemm");
    }
}

/* A second operand stored as bf16 gives the bits of the same values stored as floats. */
static void gemm_of_bf16(const bt_kernels *k, shape s) {
    if (!k->multiplies_bf16) return;
    for (int t = 0; t < 4; t++) {
        int ta = t & 1, tb = t >> 1;
        size_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 1, ldc = s.N + 2,
               na = (ta ? s.K : s.M) * lda, nb = (tb ? s.N : s.K) * ldb;
        float *a = floats(na), *b = floats(nb), *c = floats(s.M * ldc),
              *want = copy_of(c, s.M * ldc);
        uint16_t *half = take(nb * sizeof *half, 4);
        void *tmp = scratch_for(k, s.M, s.N, s.K, 1, 1);
        G->to_bf16(half, b, nb);
        G->from_bf16(b, half, nb);
        for (int prec = 0; prec < 3; prec++)
            for (int flags = 0; flags < 2; flags++) {
                k->gemm(want, ldc, a, lda, ta, b, ldb, tb, 1.5f, s.M, s.N, s.K, (bt_prec)prec,
                        flags, tmp);
                k->gemm(c, ldc, a, lda, ta, half, ldb, tb, 1.5f, s.M, s.N, s.K, (bt_prec)prec,
                        flags | BT_B_BF16, tmp);
                same_bits("gemm of bf16", c, want, s.M * ldc * 4);
            }
        drop_all("gemm of bf16");
    }
}

static void tern_gemv(const bt_kernels *k, shape s) {
    size_t row = (s.K + 127) / 128 * 32;
    uint8_t *p = take(s.N * row, 1);
    for (size_t i = 0; i < s.N * row; i++) { /* any code except 3, also in the padding */
        int v = 0;
        for (int j = 0; j < 4; j++) v |= (int)(unit() * 3) << (2 * j);
        p[i] = (uint8_t)v;
    }
    size_t M = s.M < BT_FEW_ROWS ? s.M : BT_FEW_ROWS, n0 = s.N / 4, ldy = s.N + 3;
    int8_t *x = bytes_in(M * s.K, -128, 127);
    float *y = floats(M * ldy), *want = copy_of(y, M * ldy), *dq = filled(M, 0.02f);
    for (size_t m = 0; m < M; m++) dq[m] += 0.001f * (float)m;
    for (int flags = 0; flags <= BT_ACC; flags++) {
        k->tern_gemv(y, ldy, x, dq, M, p, 0.37f, s.K, n0, s.N, flags,
                     scratch_for(k, M, s.N, s.K, 1, 1));
        ORACLE(want, M * ldy * 4,
               G->tern_gemv(want, ldy, x, dq, M, p, 0.37f, s.K, n0, s.N, flags, NULL));
        same_bits("tern_gemv", y, want, M * ldy * 4);
    }
}

/* Products with one row give the same bits for each format of weights. */
static void check_gemv(const bt_kernels *k, shape s) {
    size_t M = s.M < BT_FEW_ROWS ? s.M : BT_FEW_ROWS, n0 = s.N / 4, n = s.N * s.K;
    float *w = floats(n), *x = floats(M * s.K), *aw = abs_of(w, n), *ax = abs_of(x, M * s.K);
    uint16_t *half[3] = {NULL, take(n * 2, 4), take(n * 2, 4)};
    G->to_bf16(half[BT_AS_BF16], w, n);
    G->to_half(half[BT_AS_F16], w, n);
    for (int as = BT_AS_F32; as <= BT_AS_F16; as++) {
        const void *from = as == BT_AS_F32 ? (const void *)w : half[as];
        float *y = filled(M * s.N, 9), *want = filled(M * s.N, 9), *size = filled(M * s.N, 9);
        k->gemv(y, s.N, from, (bt_stored_as)as, x, M, s.K, n0, s.N);
        ORACLE(want, M * s.N * 4, G->gemv(want, s.N, from, (bt_stored_as)as, x, M, s.K, n0, s.N));
        ORACLE(size, M * s.N * 4, G->gemv(size, s.N, aw, BT_AS_F32, ax, M, s.K, n0, s.N));
        near_scaled("gemv", y, want, size, 2e-6, M * s.N);
        for (size_t m = 0; m < M; m++) {
            k->gemv(want + m * s.N, s.N, from, (bt_stored_as)as, x + m * s.K, 1, s.K, n0, s.N);
            same_bits("gemv of one row", want + m * s.N, y + m * s.N, s.N * 4);
        }
    }
}

/* Bounds are relative to the rms: 5e-5 with fp32 operands, 0.06 with bf16 or fp16 (about 4 deviations of the sums'
 * error if each operand is rounded by 2^-9). */
static void check_attention(const bt_kernels *k, size_t T, size_t D, size_t window, int prec) {
    bt_attn_shape s = uneven_heads(T, D, window);
    float *q = floats(T * s.ldq), *kk = floats(T * s.ldk), *v = floats(T * s.ldv),
          *o = filled(T * s.ldo, 9), *wo = filled(T * s.ldo, 9);
    float *lse = filled(T, 9), *wl = filled(T, 9), *go = floats(T * s.ldo);
    void *tmp = scratch_for(k, 1, 1, 1, T, D), *gtmp = scratch_for(G, 1, 1, 1, T, D);
    /* For a query with few keys, ds is the difference of the nearly equal dp and delta, so the rounding of dp is the
     * floor. */
    double within = prec ? 0.06 : 5e-5, floor = 1e-6, diff = prec ? 0.06 : 1e-6;
    k->attn_fwd(o, lse, q, kk, v, &s, 0, T, (bt_prec)prec, tmp);
    if (!recall_result(wo, T * s.ldo * 4) || !recall_result(wl, T * 4)) {
        G->attn_fwd(wo, wl, q, kk, v, &s, 0, T, (bt_prec)prec, gtmp);
        store_result(wo, T * s.ldo * 4);
        store_result(wl, T * 4);
    }
    near_rms("attn_fwd o", o, wo, within, floor, T * s.ldo);
    near_rms("attn_fwd lse", lse, wl, within, floor, T);
    float *dq = filled(T * s.ldq, 9), *dk = floats(T * s.ldk), *dv = floats(T * s.ldv);
    for (size_t i = 0; i < T * s.ldk; i++) dk[i] *= 0.01f;
    for (size_t i = 0; i < T * s.ldv; i++) dv[i] *= 0.01f;
    float *wdq = filled(T * s.ldq, 9), *wdk = copy_of(dk, T * s.ldk), *wdv = copy_of(dv, T * s.ldv);
    k->attn_bwd(dq, dk, dv, go, wo, wl, q, kk, v, &s, (bt_prec)prec, tmp);
    if (!recall_result(wdq, T * s.ldq * 4) || !recall_result(wdk, T * s.ldk * 4) ||
        !recall_result(wdv, T * s.ldv * 4)) {
        G->attn_bwd(wdq, wdk, wdv, go, wo, wl, q, kk, v, &s, (bt_prec)prec, gtmp);
        store_result(wdq, T * s.ldq * 4);
        store_result(wdk, T * s.ldk * 4);
        store_result(wdv, T * s.ldv * 4);
    }
    for (size_t i = 0; i < T * s.ldq; i++)
        if (i % s.ldq >= D) assert_true(dq[i] == 9), dq[i] = wdq[i] = 0;
    near_rms("attn_bwd dq", dq, wdq, within, diff, T * s.ldq);
    near_rms("attn_bwd dk", dk, wdk, within, diff, T * s.ldk);
    near_rms("attn_bwd dv", dv, wdv, within, diff, T * s.ldv);
    /* Rows of a later range do not depend on the range. */
    if (T > BT_ATTN_ROWS) {
        float *part = copy_of(o, T * s.ldo), *pl = copy_of(lse, T);
        for (size_t i = BT_ATTN_ROWS * s.ldo; i < T * s.ldo; i++)
            if (i % s.ldo < D) part[i] = -1;
        k->attn_fwd(part, pl, q, kk, v, &s, BT_ATTN_ROWS, T, (bt_prec)prec, tmp);
        same_bits("attn_fwd of a range", part, o, T * s.ldo * 4);
        same_bits("attn_fwd lse of a range", pl, lse, T * 4);
    }
    drop_all("attention");
}

/* All formats represent these operands exactly; only the exponential differs, by 8e-5 in bf16. */
static void attention_of_whole_numbers(const bt_kernels *k, int prec) {
    enum { T = 70, D = 16 };
    bt_attn_shape s = {.T = T, .D = D, .ldq = D, .ldk = D, .ldv = D, .ldo = D, .scale = 0.25f};
    float *q = floats(T * D), *kk = floats(T * D), *v = floats(T * D), *o = filled(T * D, 9),
          *lse = filled(T, 9), *wo = filled(T * D, 9), *wl = filled(T, 9);
    for (size_t i = 0; i < T * D; i++) q[i] = rintf(3 * q[i]), kk[i] = rintf(3 * kk[i]);
    k->attn_fwd(o, lse, q, kk, v, &s, 0, T, (bt_prec)prec, scratch_for(k, 1, 1, 1, T, D));
    G->attn_fwd(wo, wl, q, kk, v, &s, 0, T, (bt_prec)prec, scratch_for(G, 1, 1, 1, T, D));
    for (size_t t = 0; t < T; t++)
        if (!(fabsf(lse[t] - wl[t]) < (prec == BT_PREC_BF16 ? 1e-4f : 1e-5f)))
            fail_msg("query %zu, precision %d: normaliser %.6f, generic %.6f", t, prec,
                     (double)lse[t], (double)wl[t]);
    drop_all("attention of whole numbers");
}

/* Conversions between fp16 and float, by instruction (avx2, avx512) and by bt_half: every fp16 value, the points
 * halfway between two values, and their neighbours. */
static void check_halves(const bt_kernels *k) {
    for (uint32_t i = 0; i < 0x10000; i += 7) {
        /* the bits of an fp16 number as a float, whose exponent is 112 higher */
        uint32_t bits = (i & 0x8000u) << 16 | (i & 0x7fffu) << 13;
        float x, got, one = 1, inf = INFINITY;
        memcpy(&x, &bits, 4);
        x *= 0x1p112f;
        for (int j = 0; j < 5; j++) {
            float ulp = fabsf(x) < 0x1p-14f ? 0x1p-24f : ldexpf(1, ilogbf(x) - 10),
                  y = x + ulp * (float)j / 4, want = bt_half(y);
            if (fabsf(y) >= 65520) assert_true(want == copysignf(inf, y));
            if (j == 0 || j == 4) assert_true(fabsf(y) > 65504 || want == y);
            if (j == 1) assert_true(fabsf(y) > 65504 || want == x);
            k->gemm(&got, 1, &y, 1, 0, &one, 1, 0, 1, 1, 1, 1, BT_PREC_FP16, 0,
                    scratch_for(k, 1, 1, 1, 1, 1));
            if (strcmp(k->name, "blas") != 0 && got != want)
                fail_msg("%a becomes %a, by bt_half %a", (double)y, (double)got, (double)want);
            drop_all("half");
        }
    }
}

static void (*const cases[])(const bt_kernels *, shape) = {
    tern_fwd, tern_dx,    tern_dw,      tern_dx8,  w8_dx8,     w8_fwd,
    tern_dw8, check_gemm, gemm_of_bf16, tern_gemv, check_gemv, packed_2bit_codes};

/* A benchmark loop has no expected result, so the test checks that more rounds count more operations, and zero if the
 * instruction is missing. */
static void check_peak(const bt_kernels *k) {
    for (int kind = 0; kind < 3; kind++) {
        double once = k->peak_ops((bt_peak)kind, 1);
        assert_true(once >= 0 && k->peak_ops((bt_peak)kind, 3) == 3 * once &&
                    (kind != BT_PEAK_FP32 || once > 0));
    }
}

/* Runs each case once, for every_slot_has_a_case. */
static void run_few(const bt_kernels *k) {
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        cases[c](k, (shape){5, 17, 31});
        drop_all("product");
    }
    check_attention(k, 17, 16, 0, 0);
    check_peak(k);
}

static void every_slot_has_a_case(void **state) {
    (void)state;
    bool called[SLOTS_MOST] = {false};
    assert_true(bt_kernels_slots() <= SLOTS_MOST);
    slots_called(called, run_few);
    slots_owed(called, true);
}

static void run_slots(const bt_kernels *k) {
    shape all[64];
    size_t n = list_shapes(all);
    oracle.on = true;
    oracle.next = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (size_t i = 0; i < n; i++) {
            draw = (uint64_t)(c * n + i)
                   << 32; /* The inputs of a case depend only on its number, because not every set
                                                 * has every case. */
            cases[c](k, all[i]);
            drop_all("product");
        }
    check_halves(k);
    check_peak(k);
    /* The bounds of attention are statistical, so its inputs do not depend on the cases above. */
    draw = 0;
    static const size_t T[] = {1, 2, 3, 15, 16, 17, 31, 33, 63, 65, 129, 255, 300},
                        D[] = {2, 16, 30, 32, 64, 128};
    for (size_t i = 0; i < sizeof T / sizeof *T; i++)
        for (int prec = 0; prec < 3; prec++) {
            check_attention(k, T[i], D[i % 6], 0, prec);
            check_attention(k, T[i], D[(i + 3) % 6], i % 3 ? 1 + i * i : 0, prec);
        }
    for (int prec = 0; prec < 3; prec++) attention_of_whole_numbers(k, prec);
    assert_true(oracle.next == oracle.n);
    oracle.on = false;
}

static void run_set(const char *isa) {
    if (!set_is_asked_for(isa)) skip();
    bt_err err = BT_ERR_INIT;
    if (bt_kernels_select(isa, &err) != BT_OK) {
        print_message("skipped: no %s (%s)\n", isa, err.msg);
        skip();
    }
    run_slots(bt_active_kernels());
}

static void test_generic(void **state) {
    (void)state;
    run_set("generic");
}
static void test_blas(void **state) {
    (void)state;
    run_set("blas");
}
static void test_avx2(void **state) {
    (void)state;
    run_set("avx2");
}
static void test_avx2_plain(void **state) {
    (void)state;
    run_set("avx2-plain");
}
static void test_avx512(void **state) {
    (void)state;
    run_set("avx512");
}
static void test_avx512_plain(void **state) {
    (void)state;
    run_set("avx512-plain");
}
static void test_amx(void **state) {
    (void)state;
    run_set("amx");
}
static void test_neon(void **state) {
    (void)state;
    run_set("neon");
}
static void test_neon_dotprod(void **state) {
    (void)state;
    run_set("neon-dotprod");
}
static void test_neon_plain(void **state) {
    (void)state;
    run_set("neon-plain");
}

static void test_emulated_amx(void **state) {
    (void)state;
    bt_kernels k;
    if (!set_is_asked_for("emulated-amx") || !emulated_amx(&k)) skip();
    run_slots(&k);
    assert_true(k.peak_ops(BT_PEAK_INT8, 1) > 0 && k.peak_ops(BT_PEAK_BF16, 1) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slot_has_a_case),
        cmocka_unit_test(test_generic),
        cmocka_unit_test(test_blas),
        cmocka_unit_test(test_avx2),
        cmocka_unit_test(test_avx2_plain),
        cmocka_unit_test(test_avx512),
        cmocka_unit_test(test_avx512_plain),
        cmocka_unit_test(test_amx),
        cmocka_unit_test(test_emulated_amx),
        cmocka_unit_test(test_neon),
        cmocka_unit_test(test_neon_dotprod),
        cmocka_unit_test(test_neon_plain),
    };
    const char *file = getenv("BT_TEST_ORACLE");
    return cmocka_run_group_tests(tests, NULL,
                                  file && !read_oracle(file) ? keep_oracle : forget_oracle);
}
