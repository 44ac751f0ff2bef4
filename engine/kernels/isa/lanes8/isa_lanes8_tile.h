/* isa_lanes8_tile.h - the float tile and the operand forms (isa_tile.h) of sets with eight lanes, AVX2 and NEON: 6 x
 * 16, two vectors of columns.
 *
 * Floats: 12 multiply-adds of a vector against 8 loads a group. bf16 has no instruction here, so its permission is
 *         not used. */
#ifndef BT_ENGINE_KERNELS_ISA_LANES8_ISA_LANES8_TILE_H
#define BT_ENGINE_KERNELS_ISA_LANES8_ISA_LANES8_TILE_H

#include "engine/kernels/isa/isa_tile.h"

#if defined(BT_VECTORS) && !defined(__AVX512F__)
#include <string.h>

#if !defined(BT_NEON)
BT_INLINE void transpose8(vf r[8]) {
    vf t[8], u[8];
    BT_UNROLL for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    BT_UNROLL for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    BT_UNROLL for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

BT_INLINE void transpose(vi r[VL]) {
    vf f[VL];
    BT_UNROLL for (int i = 0; i < VL; i++) f[i] = v_bits(r[i]);
    transpose8(f);
    BT_UNROLL for (int i = 0; i < VL; i++) r[i] = vi_bits(f[i]);
}
#endif

BT_INLINE vf load_tail(const float *p, size_t have) {
    return have >= VL ? v_load(p) : have ? v_load_n(p, have) : v_set(0);
}
BT_INLINE void put(float *p, vf v, size_t have, int acc) {
    if (have >= VL)
        v_store(p, acc ? v_add(v, v_load(p)) : v);
    else if (have)
        v_store_n(p, acc ? v_add(v, v_load_n(p, have)) : v, have);
}

BT_INLINE void tile_f32(const int rows, const tile_out *o, const uint32_t *a, size_t lda,
                        const uint32_t *b, size_t groups) {
    vf acc[MR][2];
    const float *fa = (const float *)(const void *)a, *fb = (const float *)(const void *)b;
    prefetch_c(o->c, o->ldc, (size_t)rows);
    BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = v_set(0);
    for (size_t g = 0; g < groups; g++, fa++, fb += NR) {
        vf b0 = v_load(fb), b1 = v_load(fb + VL);
        BT_UNROLL for (int i = 0; i < rows; i++) {
            vf ai = v_set(fa[(size_t)i * lda]);
            acc[i][0] = v_fma(ai, b0, acc[i][0]);
            acc[i][1] = v_fma(ai, b1, acc[i][1]);
        }
    }
    BT_UNROLL for (int i = 0; i < rows; i++) BT_UNROLL for (int j = 0; j < 2; j++) {
        size_t from = (size_t)j * VL;
        put(o->c + (size_t)i * o->ldc + from, v_mul(acc[i][j], v_set(o->alpha)),
            o->cols > from ? o->cols - from : 0, o->acc);
    }
}

BT_INLINE void tile_store_i8(const tile_i8_out *o, int i, int j, vi sum) {
    size_t from = (size_t)j * VL;
    vf f = v_float(vi_add(sum, vi_set(0u - (uint32_t)o->sums[i])));
    const size_t here = o->cols > from ? o->cols - from : 0;
    f = v_mul(f, v_set(o->dq[i] * o->scale));
    if (o->by && here) f = v_mul(f, v_load_n(o->by + from, here < VL ? here : VL));
    put(o->y + (size_t)i * o->ldy + from, f, here, o->acc);
}

/* one instance for each number of rows, so that every accumulator has a register */
#define TILE_SWITCH(name, body, out, ta, tb) \
    static void name(size_t rows, const out *o, const ta *a, size_t lda, const tb *b, \
                     size_t groups) { \
        switch (rows) { \
            TILE_CASES_6(body) \
        default: break; \
        } \
    }
TILE_SWITCH(run_f32, tile_f32, tile_out, uint32_t, uint32_t)

/* ---- operand forms --------------------------------------------------------------------------- */
/* Stores NR values as columns from k on of A row `dst`, and as one group of a B panel. */
BT_INLINE void a_put(uint32_t *dst, size_t k, const vf x[2], const bt_prec prec) {
    BT_UNROLL for (int h = 0; h < 2; h++)
        v_store((float *)(void *)(dst + k) + h * VL, rounded(x[h], prec));
}
BT_INLINE void b_put(uint32_t *dst, const vf x[2], const vf next[2], const bt_prec prec) {
    (void)next;
    a_put(dst, 0, x, prec);
}
/* Stores the same values as a row of A and as a group of B. */
BT_INLINE void ab_put(uint32_t *a, size_t ld, uint32_t *b, const vf x[2][2], const bt_prec prec) {
    (void)ld;
    a_put(a, 0, x[0], prec);
    a_put(b, 0, x[0], prec);
}

static void a_rows_f32(uint32_t *dst, size_t ld, const float *src, size_t lds, size_t rows,
                       size_t k) {
    for (size_t i = 0; i < rows; i++) memcpy(dst + i * ld, src + i * lds, k * 4);
}
static void a_rows_half(uint32_t *dst, size_t ld, const float *src, size_t lds, size_t rows,
                        size_t k) {
    for (size_t i = 0; i < rows; i++) round_row((float *)(void *)(dst + i * ld), src + i * lds, k);
}

BT_INLINE void a_cols(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                      size_t rows, size_t k, const bt_prec prec) {
    float *out = (float *)(void *)dst;
    for (size_t r = 0; r < rows; r += 8) {
        size_t have = rows - r < 8 ? rows - r : 8;
        for (size_t j = 0; j < k; j += 8) {
            size_t n = k - j < 8 ? k - j : 8;
            vf t[8];
            for (size_t i = 0; i < 8; i++) {
                t[i] = i < n ? load_tail(src + (j + i) * lds + r, have) : v_set(0);
                if (scale && i < n) t[i] = v_mul(t[i], v_set(scale[j + i]));
                t[i] = rounded(t[i], prec);
            }
            transpose8(t);
            for (size_t i = 0; i < have; i++) put(out + (r + i) * ld + j, t[i], n, 0);
        }
    }
}
static void a_cols_f32(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                       size_t rows, size_t k) {
    a_cols(dst, ld, src, lds, scale, rows, k, BT_PREC_FP32);
}
static void a_cols_half(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                        size_t rows, size_t k) {
    a_cols(dst, ld, src, lds, scale, rows, k, BT_PREC_FP16);
}

BT_INLINE void b_rows(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k,
                      const bt_prec prec) {
    float *out = (float *)(void *)dst;
    for (size_t j = 0; j < k; j++, out += NR) {
        v_store(out, rounded(load_tail(src + j * lds, cols), prec));
        v_store(out + VL, rounded(load_tail(src + j * lds + VL, cols > VL ? cols - VL : 0), prec));
    }
}
static void b_rows_f32(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_rows(dst, src, lds, cols, k, BT_PREC_FP32);
}
static void b_rows_half(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_rows(dst, src, lds, cols, k, BT_PREC_FP16);
}

BT_INLINE void b_cols(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k,
                      const bt_prec prec) {
    float *out = (float *)(void *)dst;
    for (size_t h = 0; h < NR; h += 8) {
        for (size_t j = 0; j < k; j += 8) {
            vf t[8];
            for (size_t i = 0; i < 8; i++)
                t[i] = h + i < cols ? rounded(load_tail(src + (h + i) * lds + j, k - j), prec)
                                    : v_set(0);
            transpose8(t);
            for (size_t i = 0; i < 8 && j + i < k; i++) v_store(out + (j + i) * NR + h, t[i]);
        }
    }
}
static void b_cols_f32(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_cols(dst, src, lds, cols, k, BT_PREC_FP32);
}
static void b_cols_half(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_cols(dst, src, lds, cols, k, BT_PREC_FP16);
}

static void b_i8_f32(uint32_t *dst, const int8_t *src, size_t lds, size_t cols, size_t k) {
    float *out = (float *)(void *)dst;
    for (size_t j = 0; j < k; j++, out += NR) {
        for (size_t h = 0; h < NR; h += VL) {
            size_t have = cols > h ? cols - h : 0;
            v_store(out + h,
                    have ? v_from_i8_n(src + j * lds + h, have < VL ? have : VL) : v_set(0));
        }
    }
}

/* Converts codes + 1, interleaved in fours along k; writes a multiple of four rows. */
static void b_codes_f32(uint32_t *dst, const uint8_t *fours, size_t k) {
    const vi low = vi_set(255), minus_one = vi_set(0u - 1u);
    for (size_t j = 0; j < k; j += 4, fours += 4 * NR, dst += 4 * NR) {
        for (size_t h = 0; h < NR; h += VL) {
            const vi w = vi_load(fours + 4 * h);
            BT_UNROLL for (int i = 0; i < 4; i++) {
                const vi c = vi_add(vi_and(vi_srl(w, 8 * i), low), minus_one);
                v_store((float *)(void *)(dst + i * NR + h), v_float(c));
            }
        }
    }
}

#define NOT_KEPT NULL, NULL, NULL, NULL
static const form form_f32 = {1,          BT_PREC_FP32, a_rows_f32,  a_cols_f32, b_rows_f32,
                              b_cols_f32, b_i8_f32,     b_codes_f32, run_f32,    NOT_KEPT};
static const form form_half = {1,           BT_PREC_FP16, a_rows_half, a_cols_half, b_rows_half,
                               b_cols_half, b_i8_f32,     b_codes_f32, run_f32,     NOT_KEPT};
static const form *form_of(bt_prec prec) { return prec == BT_PREC_FP16 ? &form_half : &form_f32; }

#endif
#endif
