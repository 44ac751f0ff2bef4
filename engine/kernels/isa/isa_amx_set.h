/* isa_amx_set.h - the AMX set, included by isa_amx.c (instructions) and isa_emulated_amx.c (software tiles, tests
 * only).
 *
 * It is the AVX-512 set with other tiles: 32 x 32 results in four tile registers instead of 14 x 32 in vectors.
 * Forward and int8 gradients use tdpbsud. Products of few rows with 2-bit weights use tdpbusd (isa_amx_gemv.h).
 * Products of bf16 and attention use tdpbf16ps. fp32 operands and row slots use the code of AVX-512.
 *
 * Blocking (isa_products.h, isa_int8.h), from a probe of a Xeon with 2 MiB of L2 and 48 KiB of L1 a core: operands
 * as contiguous tiles of 1 KiB (74-81 % of peak from L2 against about 50 % for rows with a stride), A in blocks of
 * 128 rows x 4 KiB in L2, K cut at 4 KiB only, results written once in row order. That probe reached 49-61 % of
 * the int8 peak with a fused epilogue; this code reaches 14-31 % forward (results/step_time.md). */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_AMX_SET_H
#define BT_ENGINE_KERNELS_ISA_ISA_AMX_SET_H

#include "engine/kernels/table/kernels.h"

#if defined(__AVX512F__)
#define BT_AMX_TILES 1

/* the shared headers define vector tiles that this set does not use */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "engine/kernels/isa/isa_amx_gemv.h"
#include "engine/kernels/isa/isa_attention.h"
#include "engine/kernels/isa/isa_int8.h"
#include "engine/kernels/isa/isa_products.h"
#include "engine/kernels/isa/isa_rows.h"

/* four independent accumulators; operands stay in registers */
#define PEAK_LOOP(name, dot) \
    static void name(size_t rounds) { \
        amx_shape(32, CHUNK); \
        amx_zero(0); \
        amx_zero(1); \
        amx_zero(2); \
        amx_zero(3); \
        amx_zero(4); \
        amx_zero(5); \
        amx_zero(6); \
        amx_zero(7); \
        for (size_t r = 0; r < rounds * 16; r++) { \
            dot(0, 4, 6); \
            dot(1, 4, 7); \
            dot(2, 5, 6); \
            dot(3, 5, 7); \
        } \
    }
PEAK_LOOP(peak_i8, amx_dot_su8)
PEAK_LOOP(peak_bf16, amx_dot_bf16)

static double peak_ops(bt_peak kind, size_t rounds) {
    if (kind == BT_PEAK_FP32) return bt_kernels_avx512.peak_ops(kind, rounds);
    (kind == BT_PEAK_INT8 ? peak_i8 : peak_bf16)(rounds);
    return (kind == BT_PEAK_INT8 ? 32768.0 : 16384.0) * 64 * (double)rounds;
}

/* Only bf16 is multiplied by tiles; other operands use the AVX-512 set, which has the same packed form. */
static void amx_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *b,
                     size_t ldb, int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec,
                     int flags, void *scratch) {
    (prec == BT_PREC_BF16 ? prod_gemm : bt_kernels_avx512.gemm)(
        c, ldc, a, lda, ta, b, ldb, tb, alpha, M, N, K, prec, flags, scratch);
}
static void amx_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                        float scale, size_t m0, size_t m1, size_t N, size_t K, bt_prec prec,
                        int flags, void *scratch) {
    (prec == BT_PREC_BF16 ? prod_tern_dx : bt_kernels_avx512.tern_dx)(
        dx, lddx, dy, lddy, packed, scale, m0, m1, N, K, prec, flags, scratch);
}
static void amx_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                        size_t M, size_t N, size_t K, size_t n0, size_t n1, bt_prec prec,
                        void *scratch) {
    (prec == BT_PREC_BF16 ? prod_tern_dw : bt_kernels_avx512.tern_dw)(dw, dy, lddy, xq, dq, M, N, K,
                                                                      n0, n1, prec, scratch);
}
static void amx_attn_fwd(float *o, float *lse, const void *q, const void *k, const void *v,
                         const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec,
                         void *scratch) {
    (prec == BT_PREC_BF16 && !s->int8 ? attn_fwd : bt_kernels_avx512.attn_fwd)(
        o, lse, q, k, v, s, t0, t1, prec, scratch);
}
static void amx_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o,
                         const float *lse, const void *q, const void *k, const void *v,
                         const bt_attn_shape *s, bt_prec prec, void *scratch) {
    (prec == BT_PREC_BF16 && !s->int8 ? attn_bwd : bt_kernels_avx512.attn_bwd)(
        dq, dk, dv, dout, o, lse, q, k, v, s, prec, scratch);
}

static size_t amx_scratch(size_t M, size_t N, size_t K, size_t T, size_t D) {
    size_t longest = most(K, N),
           products = most(product_scratch(),
                           most(int8_scratch(longest), amx_gemv_scratch(longest))),
           own = most(attn_dwords(T, D) * 4, products);
    return most(own, bt_kernels_avx512.scratch_bytes(M, N, K, T, D));
}

#define BT_AMX_TABLE(set_name) \
    { \
        .name = set_name, .row_grain = MR, .gemm = amx_gemm, .multiplies_bf16 = prod_bf16, \
        .tern_bytes = prod_tern_bytes, .tern_pack = prod_tern_pack, \
        .packed_2bit_bytes = prod_packed_2bit_bytes, .packed_2bit_pack = prod_packed_2bit_pack, \
        .packed_2bit_codes = prod_packed_2bit_codes, .tern_dx = amx_tern_dx, \
        .tern_dw = amx_tern_dw, BT_INT8_SLOTS, .attn_fwd = amx_attn_fwd, .attn_bwd = amx_attn_bwd, \
        .tern_gemv = amx_tern_gemv, .peak_ops = peak_ops, .scratch_bytes = amx_scratch \
    }

#endif /* __AVX512F__ */
#endif
