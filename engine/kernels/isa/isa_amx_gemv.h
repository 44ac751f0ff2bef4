/* isa_amx_gemv.h - few rows of int8 inputs x 2-bit ternary weights on tiles. Included by isa_amx_set.h.
 *
 *     for 32 rows of weights          C: 2 x 2 tiles of 16 rows of weights by 16 rows of inputs
 *       for 256 inputs                64 bytes of each row -> 4 places of 2 bits: A, 8 KiB of stack (L1)
 *         for each place              codes + 1 (unsigned) by inputs (signed): tdpbusd
 *     C leaves by way of a transpose of 16 x 16 dwords, so that a row of outputs is written on end.
 * A place costs 16 cycles of loads and 16 of products a tile, and unpacking 2 instructions and a store for 64
 * weights, so four rows of inputs cost nearly what 16 do. With fewer rows the vector kernel is faster. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_AMX_GEMV_H
#define BT_ENGINE_KERNELS_ISA_ISA_AMX_GEMV_H

#include "engine/kernels/isa/isa_gemv.h"

#if defined(BT_AMX_TILES)

/* smallest number of input rows for which tiles are faster than vectors */
enum { AMX_FEW_LEAST = 4 };

/* Copies 64 bytes of each input row to B [16 groups][16 rows][4]; missing rows become zeros. */
static void amx_few_inputs(int8_t *b, const int8_t *xq, size_t M, size_t K) {
    const size_t ldx = few_stride(K);
    int8_t *xs = b + ldx * BT_FEW_ROWS;
    for (size_t h = 0; h < M; h += 16, b += 16 * ldx) {
        const size_t rows = smaller_size(16, M - h);
        for (size_t m = 0; m < rows; m++) few_inputs(xs + m * ldx, xq + (h + m) * K, K);
        for (size_t k = 0; k < ldx; k += 64) {
            vi t[VL];
            for (size_t m = 0; m < VL; m++) t[m] = m < rows ? vi_load(xs + m * ldx + k) : vi_set(0);
            transpose(t);
            for (size_t g = 0; g < VL; g++) vi_store(b + 16 * k + 64 * g, t[g]);
        }
    }
}

/* Unpacks `have` rows of weights into A [4 positions][32][64]; the contents of missing rows are undefined. */
static void amx_few_weights(uint8_t *a, const uint8_t *w, size_t have, size_t at, size_t stride) {
    const __m512i three = _mm512_set1_epi8(3);
    for (size_t r = 0; r < MR; r++) {
        const __m512i v = few_weights(w + (r < have ? r : 0) * stride, at, stride);
        vi_store(a + 64 * r, _mm512_and_si512(v, three));
        vi_store(a + 64 * (MR + r), _mm512_and_si512(_mm512_srli_epi16(v, 2), three));
        vi_store(a + 64 * (2 * MR + r), _mm512_and_si512(_mm512_srli_epi16(v, 4), three));
        vi_store(a + 64 * (3 * MR + r), _mm512_and_si512(_mm512_srli_epi16(v, 6), three));
    }
}

/* Writes the results of 16 weight rows from n and 16 input rows from m; c has rows of NR sums. */
static void amx_few_out(const few_rows *p, const int32_t *c, size_t n, size_t m) {
    vi t[VL];
    const size_t have = smaller_size(VL, p->N - n), rows = smaller_size(VL, p->M - m);
    for (size_t i = 0; i < VL; i++) t[i] = vi_load(c + i * NR);
    transpose(t);
    for (size_t i = 0; i < rows; i++) {
        const vf sum = _mm512_cvtepi32_ps(_mm512_sub_epi32(t[i], _mm512_set1_epi32(p->all[m + i])));
        vf v = v_mul(sum, v_set(p->dq[m + i] * p->scale));
        float *y = p->y + (m + i) * p->ldy + n;
        if (p->acc) v = v_add(v_load_n(y, have), v);
        v_store_n(y, v, have);
    }
}

static void amx_few(const few_rows *p, int8_t *b) {
    const size_t stride = round_up(p->K, 128) / 4, ldx = few_stride(p->K);
    const int wide = p->M > 16;
    _Alignas(64) uint8_t a[4 * MR * 64];
    _Alignas(64) int32_t c[MR * NR];
    amx_few_inputs(b, p->xq, p->M, p->K);
    amx_shape(MR, CHUNK);
    for (size_t n = 0; n < p->N; n += MR) {
        const uint8_t *w = p->w + n * stride;
        const size_t have = smaller_size(MR, p->N - n);
        amx_zero(0);
        amx_zero(1);
        amx_zero(2);
        amx_zero(3);
        for (size_t at = 0; at < stride; at += 64) {
            amx_few_weights(a, w, have, at, stride);
            for (size_t i = 0; i < 4; i++) {
                const int8_t *x = b + (4 * at + 64 * i) * 16;
                amx_load(4, a + i * MR * 64, 64);
                amx_load(5, a + i * MR * 64 + 16 * 64, 64);
                amx_load(6, x, 64);
                amx_dot_us8(0, 4, 6);
                amx_dot_us8(2, 5, 6);
                if (!wide) continue;
                amx_load(7, x + 16 * ldx, 64);
                amx_dot_us8(1, 4, 7);
                amx_dot_us8(3, 5, 7);
            }
        }
        amx_out((char *)c, AMX_LD, 1);
        for (size_t m = 0; m < p->M; m += 16)
            for (size_t h = 0; h < have; h += 16) amx_few_out(p, c + h * NR + m, n + h, m);
    }
}

/* scratch for the inputs in row order (16 rows at a time) and as tiles */
static size_t amx_gemv_scratch(size_t K) { return (BT_FEW_ROWS + 16) * few_stride(K); }

static void amx_tern_gemv(float *y, size_t ldy, const int8_t *xq, const float *dq, size_t M,
                          const uint8_t *packed2, float scale, size_t K, size_t n0, size_t n1,
                          int flags, void *scratch) {
    if (M < AMX_FEW_LEAST) {
        bt_kernels_avx512.tern_gemv(y, ldy, xq, dq, M, packed2, scale, K, n0, n1, flags, scratch);
        return;
    }
    few_rows p = few_rows_of(y, ldy, xq, dq, M, packed2, scale, K, n0, n1, flags);
    amx_few(&p, scratch);
}

#endif
#endif
