/* isa_avx512_tile.h - register tiles and operand forms of the AVX-512 products (isa_tile.h).
 *
 * All products have one form:
 *     C tile (MR, NR) += sum over groups of   broadcast A[row][group]  (.)  B[group][NR columns]
 * with one instruction per (row, 16 columns): vfmadd231ps, vdpbf16ps or vpdpbusd. 14 rows x 2 vectors of columns
 * fill 28 registers; 2 hold B, 1 the broadcast. Per group there are 28 multiply-adds and 16 loads, so that two
 * units are busy in every cycle:
 *
 *            B group: | 16 columns | 16 columns |      <- panel [groups][32], streams from L1/L2: 128 B per 14
 *            cycles
 *     A row 0  . ->   |  acc 0,0   |  acc 0,1   |
 *     A row 1  . ->   |  acc 1,0   |  acc 1,1   |      <- rows at a padded stride: no two in one cache set
 *       ...           |    ...     |    ...     |
 *     A row 13 . ->   |  acc 13,0  |  acc 13,1  |
 *
 * bf16 and VNNI instructions are written as asm, for two reasons: the file needs no compiler flags for them, so
 * that the compiler cannot emit them for a processor without; and gcc 12 spills vpdpbusd accumulators with the
 * intrinsic. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_AVX512_TILE_H
#define BT_ENGINE_KERNELS_ISA_ISA_AVX512_TILE_H

#include "engine/kernels/isa/isa_tile.h"
#include "engine/kernels/table/cpu.h"

#if defined(__AVX512F__)
#include <string.h>

/* ---- asm ------------------------------------------------------------------------------------- */
/* Adds 4 products of unsigned u and signed s bytes to each dword. */
BT_INLINE __m512i x_dpbusd(__m512i acc, __m512i u, __m512i s) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(u), "v"(s));
    return acc;
}
BT_INLINE __m512i x_maddubs(__m512i acc, __m512i u, __m512i s) { /* words += pairs of products */
    __m512i t;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(acc), "=&v"(t) : "v"(u), "v"(s));
    return acc;
}
BT_INLINE __m512 x_dpbf16(__m512 acc, __m512i a, __m512i b) {
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}
/* rounds lo, then hi, to 16 bf16 values each; ties to even */
BT_INLINE __m512i x_pack_bf16(__m512 lo, __m512 hi) {
    __m512i r;
    __asm__("vcvtne2ps2bf16 %2, %1, %0" : "=v"(r) : "v"(hi), "v"(lo));
    return r;
}

BT_INLINE __m512i dwords(const void *p) { return _mm512_loadu_si512(p); }
BT_INLINE __m512i broadcast_group(const uint32_t *p) { return _mm512_set1_epi32((int)*p); }
/* bytes p[0] to p[3], repeated in every dword */
BT_INLINE __m512i four(const int8_t *p) {
    int32_t w;
    memcpy(&w, p, 4);
    return _mm512_set1_epi32(w);
}
/* min(have, 16) values, then zeros; have may be 0 */
BT_INLINE vf load_tail(const float *p, size_t have) {
    return have >= 16 ? v_load(p) : have ? v_load_n(p, have) : v_set(0);
}

/* ---- register tiles -------------------------------------------------------------------------- */
/* Fourteen rows of A from seven registers: every fifth row has a pointer, the rows between are reached by 1, 2, 4
 * and 3 times lda. Without this, compilers keep fourteen offsets and reload some of them within the loop. */
typedef struct a_walk {
    const char *at[3];
    size_t ld, ld3;
} a_walk;
BT_INLINE a_walk walk_from(const void *a, size_t ld_bytes, const int rows) {
    a_walk w = {{a, (const char *)a + (rows > 5 ? 5 : 0) * ld_bytes,
                 (const char *)a + (rows > 10 ? 10 : 0) * ld_bytes},
                ld_bytes,
                3 * ld_bytes};
    __asm__("" : "+r"(w.at[1]), "+r"(w.at[2]), "+r"(w.ld3));
    return w;
}
BT_INLINE const void *walk_row(const a_walk *w, const int i) {
    const char *p = w->at[i / 5];
    return i % 5 == 3 ? p + w->ld3 : p + (size_t)(i % 5) * w->ld;
}
BT_INLINE void advance_walk(a_walk *w) { BT_UNROLL for (int i = 0; i < 3; i++) w->at[i] += 4; }

/* Mask of the columns 16 * half .. 16 * half + 15 that are below cols. */
BT_INLINE __mmask16 columns(size_t cols, int half) {
    size_t from = (size_t)half * 16;
    return cols >= from + 16 ? 0xffff : cols > from ? v_first(cols - from) : 0;
}

/* The two vectors of one row of the tile. whole: all columns exist, so no mask is needed. `o` is a local copy,
 * because stores could change the original */
BT_INLINE void store_tile_row(float *p, size_t cols, __m512 f[2], const int acc, const int whole) {
    BT_UNROLL for (int j = 0; j < 2; j++) {
        __mmask16 m = whole ? 0xffff : columns(cols, j);
        if (acc)
            f[j] = _mm512_add_ps(f[j], whole ? _mm512_loadu_ps(p + 16 * j)
                                             : _mm512_maskz_loadu_ps(m, p + 16 * j));
        if (whole)
            _mm512_storeu_ps(p + 16 * j, f[j]);
        else
            _mm512_mask_storeu_ps(p + 16 * j, m, f[j]);
    }
}

BT_INLINE void tile_store(const tile_out *o, int i, __m512 v[2], const int whole) {
    __m512 f[2], alpha = _mm512_set1_ps(o->alpha);
    BT_UNROLL for (int j = 0; j < 2; j++) f[j] = _mm512_mul_ps(v[j], alpha);
    store_tile_row(o->c + (size_t)i * o->ldc, o->cols, f, o->acc, whole);
}

#define TILE_STORE(store, type, rows, acc) \
    do { \
        const type own_ = *o; \
        if (own_.cols >= NR) \
            BT_UNROLL for (int i = 0; i < (rows); i++) store(&own_, i, acc[i], 1); \
        else \
            BT_UNROLL for (int i = 0; i < (rows); i++) store(&own_, i, acc[i], 0); \
    } while (0)

BT_INLINE void tile_f32(const int rows, const tile_out *o, const uint32_t *a, size_t lda,
                        const uint32_t *b, size_t groups) {
    __m512 acc[14][2];
    prefetch_c(o->c, o->ldc, (size_t)rows);
    BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    a_walk w = walk_from(a, 4 * lda, rows);
    for (size_t g = 0; g < groups; g++, advance_walk(&w), b += NR) {
        __m512 b0 = _mm512_castsi512_ps(dwords(b)), b1 = _mm512_castsi512_ps(dwords(b + 16));
        BT_UNROLL for (int i = 0; i < rows; i++) {
            __m512 ai = _mm512_castsi512_ps(broadcast_group(walk_row(&w, i)));
            acc[i][0] = _mm512_fmadd_ps(ai, b0, acc[i][0]);
            acc[i][1] = _mm512_fmadd_ps(ai, b1, acc[i][1]);
        }
    }
    TILE_STORE(tile_store, tile_out, rows, acc);
}

BT_INLINE void tile_bf16(const int rows, const tile_out *o, const uint32_t *a, size_t lda,
                         const uint32_t *b, size_t groups) {
    __m512 acc[14][2];
    prefetch_c(o->c, o->ldc, (size_t)rows);
    BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    a_walk w = walk_from(a, 4 * lda, rows);
    for (size_t g = 0; g < groups; g++, advance_walk(&w), b += NR) {
        __m512i b0 = dwords(b), b1 = dwords(b + 16);
        BT_UNROLL for (int i = 0; i < rows; i++) {
            __m512i ai = broadcast_group(walk_row(&w, i));
            acc[i][0] = x_dpbf16(acc[i][0], ai, b0);
            acc[i][1] = x_dpbf16(acc[i][1], ai, b1);
        }
    }
    TILE_STORE(tile_store, tile_out, rows, acc);
}

BT_INLINE void tile_store_i8(const tile_i8_out *o, int i, __m512i v[2], const int whole) {
    __m512i sum = _mm512_set1_epi32(o->sums[i]);
    __m512 f[2], scale = _mm512_set1_ps(o->dq[i] * o->scale);
    BT_UNROLL for (int j = 0; j < 2; j++)
        f[j] = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(v[j], sum)), scale);
    if (o->by)
        BT_UNROLL for (int j = 0; j < 2; j++)
            f[j] = _mm512_mul_ps(f[j], _mm512_maskz_loadu_ps(columns(o->cols, j), o->by + 16 * j));
    store_tile_row(o->y + (size_t)i * o->ldy, o->cols, f, o->acc, whole);
}

BT_INLINE void tile_vnni(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                         const uint8_t *b, size_t groups) {
    __m512i acc[14][2];
    prefetch_c(o->y, o->ldy, (size_t)rows);
    BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm512_setzero_si512();
    a_walk w = walk_from(a, lda, rows);
    for (size_t g = 0; g < groups; g++, advance_walk(&w), b += 4 * NR) {
        __m512i b0 = dwords(b), b1 = dwords(b + 64);
        BT_UNROLL for (int i = 0; i < rows; i++) {
            __m512i ai = four(walk_row(&w, i));
            acc[i][0] = x_dpbusd(acc[i][0], b0, ai);
            acc[i][1] = x_dpbusd(acc[i][1], b1, ai);
        }
    }
    TILE_STORE(tile_store_i8, tile_i8_out, rows, acc);
}

/* Without VNNI: vpmaddubsw gives pairs within +-2*2*128 = 512, so 63 groups add up in 16 bits without saturating
 * (32 are used); then vpmaddwd widens into the 32-bit sums in L1. This takes two instructions a group instead of
 * the usual three. */
BT_INLINE void tile_maddubs(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                            const uint8_t *b, size_t groups) {
    __m512i total[14][2];
    const __m512i ones = _mm512_set1_epi16(1);
    for (int i = 0; i < rows; i++) total[i][0] = total[i][1] = _mm512_setzero_si512();
    for (size_t g0 = 0; g0 < groups; g0 += 32) {
        __m512i acc[14][2];
        size_t g1 = groups - g0 < 32 ? groups : g0 + 32;
        BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm512_setzero_si512();
        for (size_t g = g0; g < g1; g++, b += 4 * NR) {
            __m512i b0 = dwords(b), b1 = dwords(b + 64);
            BT_UNROLL for (int i = 0; i < rows; i++) {
                __m512i ai = four(a + (size_t)i * lda + 4 * g);
                acc[i][0] = x_maddubs(acc[i][0], b0, ai);
                acc[i][1] = x_maddubs(acc[i][1], b1, ai);
            }
        }
        BT_UNROLL for (int i = 0; i < rows; i++) BT_UNROLL for (int j = 0; j < 2; j++) {
            total[i][j] = _mm512_add_epi32(total[i][j], _mm512_madd_epi16(acc[i][j], ones));
        }
    }
    TILE_STORE(tile_store_i8, tile_i8_out, rows, total);
}

/* Computes the product for any unsigned b, whose even and odd bytes become 16-bit words: two vpmaddwd per group. */
BT_INLINE void tile_words(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                          const uint8_t *b, size_t groups) {
    __m512i acc[14][2];
    const __m512i low = _mm512_set1_epi16(255);
    BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm512_setzero_si512();
    for (size_t g = 0; g < groups; g++, b += 4 * NR) {
        __m512i e[2], d[2];
        BT_UNROLL for (int j = 0; j < 2; j++) {
            __m512i v = dwords(b + 64 * j);
            e[j] = _mm512_and_si512(v, low);
            d[j] = _mm512_srli_epi16(v, 8);
        }
        BT_UNROLL for (int i = 0; i < rows; i++) {
            __m512i ai = four(a + (size_t)i * lda + 4 * g),
                    ae = _mm512_srai_epi16(_mm512_slli_epi16(ai, 8), 8),
                    ad = _mm512_srai_epi16(ai, 8);
            BT_UNROLL for (int j = 0; j < 2; j++) {
                acc[i][j] = _mm512_add_epi32(acc[i][j],
                                             _mm512_add_epi32(_mm512_madd_epi16(e[j], ae),
                                                              _mm512_madd_epi16(d[j], ad)));
            }
        }
    }
    TILE_STORE(tile_store_i8, tile_i8_out, rows, acc);
}

/* one instance for each number of rows, so that every accumulator has a register */
#define TILE_SWITCH(name, body, out, ta, tb) \
    static void name(size_t rows, const out *o, const ta *a, size_t lda, const tb *b, \
                     size_t groups) { \
        switch (rows) { \
            TILE_CASES_6(body) \
            TILE_CASE(body, 7) \
            TILE_CASE(body, 8) \
            TILE_CASE(body, 9) \
            TILE_CASE(body, 10) \
            TILE_CASE(body, 11) \
            TILE_CASE(body, 12) TILE_CASE(body, 13) TILE_CASE(body, 14) default : break; \
        } \
    }
TILE_SWITCH(run_f32, tile_f32, tile_out, uint32_t, uint32_t)
TILE_SWITCH(run_bf16, tile_bf16, tile_out, uint32_t, uint32_t)
TILE_SWITCH(run_vnni, tile_vnni, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_maddubs, tile_maddubs, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_words, tile_words, tile_i8_out, int8_t, uint8_t)

#if defined(BT_AMX_TILES)
#include "engine/kernels/isa/isa_amx_tile.h"
#else
/* b is code + 1 */
static tile_i8_fn tile_i8(void) { return bt_cpu_get()->avx512_vnni ? run_vnni : run_maddubs; }
/* b is any byte */
static tile_i8_fn tile_u8(void) { return bt_cpu_get()->avx512_vnni ? run_vnni : run_words; }
#define TILE_F32 run_f32
#define TILE_BF16 run_bf16
#endif

static int32_t sum_i8(const int8_t *x, size_t n) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i s = _mm512_setzero_si512();
    /* bytes from n on become 0x80 and add 128 each to the sum; the bias of the other bytes is also 128 */
    for (size_t i = 0; i < n; i += 64) {
        __mmask64 m = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        s = _mm512_add_epi64(
            s, _mm512_sad_epu8(_mm512_xor_si512(_mm512_maskz_loadu_epi8(m, x + i), flip),
                               _mm512_setzero_si512()));
    }
    return (int32_t)(_mm512_reduce_add_epi64(s) - (int64_t)((n + 63) / 64 * 64 * 128));
}

/* ---- operand forms --------------------------------------------------------------------------- */
/* 16 x 16 dwords: r[i] lane j <-> r[j] lane i */
BT_INLINE void transpose16(__m512i r[16]) {
    __m512i t[16];
    BT_UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    BT_UNROLL for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* r[i + 4 q] holds rows 4q .. 4q+3, columns i, i+4, i+8, i+12 */
    BT_UNROLL for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    BT_UNROLL for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

BT_INLINE void transpose(vi r[VL]) { transpose16(r); }

/* lane i becomes the bf16 pair (lo[i], hi[i]) */
BT_INLINE __m512i pair_bf16(__m512 lo, __m512 hi) {
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(zip, x_pack_bf16(lo, hi));
}

/* Stores NR values as columns from k on of A row `dst`, and as one group of a B panel. bf16 joins two rows in a
 * group. */
BT_INLINE void a_put(uint32_t *dst, size_t k, const vf x[2], const bt_prec prec) {
    if (prec == BT_PREC_BF16) {
        _mm512_storeu_si512(dst + k / 2, x_pack_bf16(x[0], x[1]));
        return;
    }
    BT_UNROLL for (int h = 0; h < 2; h++)
        v_store((float *)(void *)(dst + k) + h * VL, rounded(x[h], prec));
}
BT_INLINE void b_put(uint32_t *dst, const vf x[2], const vf next[2], const bt_prec prec) {
    BT_UNROLL for (int h = 0; h < 2; h++) {
        if (prec == BT_PREC_BF16)
            _mm512_storeu_si512(dst + h * VL, pair_bf16(x[h], next[h]));
        else
            v_store((float *)(void *)dst + h * VL, rounded(x[h], prec));
    }
}

/* lane i becomes the pair (lo[i], hi[i]) of the first 16 values, or with `last` of the last 16 */
BT_INLINE __m512i pair16(__m512i lo, __m512i hi, const int last) {
    const __m512i zip = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(lo, last ? _mm512_add_epi16(zip, _mm512_set1_epi16(16)) : zip,
                                     hi);
}

/* Stores equal values as rows of A, `ld` apart, and as one group of B. bf16 stores two rows, other types one */
BT_INLINE void ab_put(uint32_t *a, size_t ld, uint32_t *b, const vf x[2][2], const bt_prec prec) {
    if (prec != BT_PREC_BF16) {
        a_put(a, 0, x[0], prec);
        b_put(b, x[0], x[0], prec);
        return;
    }
    const __m512i row = x_pack_bf16(x[0][0], x[0][1]), next = x_pack_bf16(x[1][0], x[1][1]);
    _mm512_storeu_si512(a, row);
    _mm512_storeu_si512(a + ld, next);
    BT_UNROLL for (int h = 0; h < 2; h++) _mm512_storeu_si512(b + h * VL, pair16(row, next, h));
}

/* A form [rows][ld] from a row-major (rows, k) matrix */
static void a_rows_f32(uint32_t *dst, size_t ld, const float *src, size_t lds, size_t rows,
                       size_t k) {
    for (size_t i = 0; i < rows; i++) memcpy(dst + i * ld, src + i * lds, k * 4);
}
static void a_rows_bf16(uint32_t *dst, size_t ld, const float *src, size_t lds, size_t rows,
                        size_t k) {
    for (size_t i = 0; i < rows; i++) {
        const float *s = src + i * lds;
        uint32_t *d = dst + i * ld;
        size_t j = 0;
        /* heads of attention have short rows that are far apart */
        for (size_t l = 0; k <= 128 && l < k; l += 16)
            _mm_prefetch((const char *)(s + 8 * lds + l), _MM_HINT_T0);
        for (; j + 32 <= k; j += 32, d += 16)
            _mm512_storeu_si512(d, x_pack_bf16(v_load(s + j), v_load(s + j + 16)));
        if (j < k) {
            __m512i v = x_pack_bf16(load_tail(s + j, k - j),
                                    load_tail(s + j + 16, k - j > 16 ? k - j - 16 : 0));
            _mm512_mask_storeu_epi32(d, v_first((k - j + 1) / 2), v);
        }
    }
}

static void a_rows_half(uint32_t *dst, size_t ld, const float *src, size_t lds, size_t rows,
                        size_t k) {
    for (size_t i = 0; i < rows; i++) round_row((float *)(void *)(dst + i * ld), src + i * lds, k);
}

/* A form from a (k, rows) matrix; element (k, row) is multiplied by scale[k] when scale is given */
BT_INLINE vf scaled(const float *src, size_t lds, const float *scale, size_t row, size_t have,
                    size_t j, size_t k) {
    if (j >= k) return v_set(0);
    vf v = load_tail(src + j * lds + row, have);
    return scale ? v_mul(v, v_set(scale[j])) : v;
}
BT_INLINE void a_cols(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                      size_t rows, size_t k, const bt_prec prec) {
    const int bf16 = prec == BT_PREC_BF16;
    const size_t group = bf16 ? 2 : 1, groups = (k + group - 1) / group;
    /* goes along a row of src first and prefetches that row's next cache line */
    for (size_t g = 0; g < groups; g += 16) {
        __mmask16 m = groups - g < 16 ? v_first(groups - g) : 0xffff;
        for (size_t r = 0; r < rows; r += 16) {
            size_t have = rows - r < 16 ? rows - r : 16;
            __m512i t[16];
            for (size_t j = g * group; r + 16 < rows && j < (g + 16) * group && j < k; j++)
                _mm_prefetch((const char *)(src + j * lds + r + 16), _MM_HINT_T0);
            BT_UNROLL for (size_t i = 0; i < 16; i++) {
                if (bf16)
                    t[i] = pair_bf16(scaled(src, lds, scale, r, have, 2 * (g + i), k),
                                     scaled(src, lds, scale, r, have, 2 * (g + i) + 1, k));
                else
                    t[i] = _mm512_castps_si512(
                        rounded(scaled(src, lds, scale, r, have, g + i, k), prec));
            }
            transpose16(t);
            for (size_t i = 0; i < have; i++)
                _mm512_mask_storeu_epi32(dst + (r + i) * ld + g, m, t[i]);
        }
    }
}
static void a_cols_f32(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                       size_t rows, size_t k) {
    a_cols(dst, ld, src, lds, scale, rows, k, BT_PREC_FP32);
}
static void a_cols_bf16(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                        size_t rows, size_t k) {
    a_cols(dst, ld, src, lds, scale, rows, k, BT_PREC_BF16);
}
static void a_cols_half(uint32_t *dst, size_t ld, const float *src, size_t lds, const float *scale,
                        size_t rows, size_t k) {
    a_cols(dst, ld, src, lds, scale, rows, k, BT_PREC_FP16);
}

/* B panel [groups][NR] from a (k, cols) matrix with cols <= NR; missing columns are zero */
BT_INLINE void b_rows(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k,
                      const bt_prec prec) {
    for (size_t j = 0; j < k; j++, dst += NR) {
        v_store((float *)(void *)dst, rounded(load_tail(src + j * lds, cols), prec));
        v_store((float *)(void *)(dst + 16),
                rounded(load_tail(src + j * lds + 16, cols > 16 ? cols - 16 : 0), prec));
    }
}
static void b_rows_f32(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_rows(dst, src, lds, cols, k, BT_PREC_FP32);
}
static void b_rows_half(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_rows(dst, src, lds, cols, k, BT_PREC_FP16);
}
static void b_rows_bf16(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    size_t high = cols > 16 ? cols - 16 : 0;
    for (size_t j = 0; j < k; j += 2, dst += NR) {
        const float *s = src + j * lds, *t = s + lds;
        int both = j + 1 < k;
        _mm512_storeu_si512(dst,
                            pair_bf16(load_tail(s, cols), both ? load_tail(t, cols) : v_set(0)));
        _mm512_storeu_si512(dst + 16, pair_bf16(load_tail(s + 16, high),
                                                both ? load_tail(t + 16, high) : v_set(0)));
    }
}

/* B panel from a (cols, k) matrix */
BT_INLINE __m512i b_col(const float *s, size_t have, const bt_prec prec, const int whole) {
    if (prec == BT_PREC_BF16) {
        if (whole) return x_pack_bf16(v_load(s), v_load(s + 16));
        return x_pack_bf16(load_tail(s, have), load_tail(s + 16, have > 16 ? have - 16 : 0));
    }
    return _mm512_castps_si512(rounded(whole ? v_load(s) : load_tail(s, have), prec));
}
/* Converts 16 columns from src. whole: all 16 exist, with 16 groups each. Prefetches the rows after these. */
BT_INLINE void b_square(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t have,
                        size_t groups, const bt_prec prec, const int whole) {
    const size_t group = prec == BT_PREC_BF16 ? 2 : 1;
    __m512i t[16];
    BT_UNROLL for (size_t i = 0; i < 16; i++, src += lds) {
        t[i] = whole || i < cols ? b_col(src, have, prec, whole) : _mm512_setzero_si512();
        if (whole)
            BT_UNROLL for (size_t l = 0; l < group; l++)
                _mm_prefetch((const char *)(src + 16 * lds + 16 * l), _MM_HINT_T0);
    }
    transpose16(t);
    BT_UNROLL for (size_t i = 0; i < 16; i++) if (whole || i < groups)
        _mm512_storeu_si512(dst + i * NR, t[i]);
}
BT_INLINE void b_cols(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k,
                      const bt_prec prec) {
    const size_t group = prec == BT_PREC_BF16 ? 2 : 1, groups = (k + group - 1) / group;
    for (size_t h = 0; h < NR; h += 16) {
        size_t there = cols > h ? cols - h : 0;
        for (size_t g = 0; g < groups; g += 16) {
            const float *s = src + h * lds + g * group;
            size_t have = k - g * group;
            if (there >= 16 && have >= 16 * group)
                b_square(dst + g * NR + h, s, lds, 16, have, 16, prec, 1);
            else
                b_square(dst + g * NR + h, s, lds, there, have, groups - g, prec, 0);
        }
    }
}
static void b_cols_f32(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_cols(dst, src, lds, cols, k, BT_PREC_FP32);
}
static void b_cols_bf16(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_cols(dst, src, lds, cols, k, BT_PREC_BF16);
}
static void b_cols_half(uint32_t *dst, const float *src, size_t lds, size_t cols, size_t k) {
    b_cols(dst, src, lds, cols, k, BT_PREC_FP16);
}

/* B panel from rows of xq, int8 (k, cols), for dw; floats and bf16 both represent int8 exactly */
BT_INLINE __m512 i8_row(const int8_t *p, size_t have) {
    __mmask16 m = have >= 16 ? 0xffff : v_first(have);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, p)));
}
static void b_i8_f32(uint32_t *dst, const int8_t *src, size_t lds, size_t cols, size_t k) {
    for (size_t j = 0; j < k; j++, dst += NR) {
        for (size_t h = 0; h < NR; h += 16)
            v_store((float *)(void *)(dst + h), i8_row(src + j * lds + h, cols > h ? cols - h : 0));
    }
}
static void b_i8_bf16(uint32_t *dst, const int8_t *src, size_t lds, size_t cols, size_t k) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    for (size_t j = 0; j < k; j += 2, dst += NR) {
        for (size_t h = 0; h < NR; h += 16) {
            size_t have = cols > h ? cols - h : 0;
            __m512i lo = _mm512_castps_si512(i8_row(src + j * lds + h, have));
            __m512i hi = _mm512_castps_si512(i8_row(src + (j + 1) * lds + h, j + 1 < k ? have : 0));
            _mm512_storeu_si512(dst + h, _mm512_or_si512(_mm512_srli_epi32(lo, 16),
                                                         _mm512_and_si512(hi, high)));
        }
    }
}

/* B panel for dx from ternary codes + 1, interleaved in fours along k. Writes a multiple of four rows. */
static void b_codes_f32(uint32_t *dst, const uint8_t *fours, size_t k) {
    const __m512i low = _mm512_set1_epi32(255), one = _mm512_set1_epi32(1);
    for (size_t j = 0; j < k; j += 4, fours += 4 * NR, dst += 4 * NR) {
        for (size_t h = 0; h < NR; h += 16) {
            __m512i w = dwords(fours + 4 * h);
            BT_UNROLL for (size_t i = 0; i < 4; i++) {
                __m512i c = _mm512_sub_epi32(
                    _mm512_and_si512(_mm512_srli_epi32(w, (unsigned)(8 * i)), low), one);
                v_store((float *)(void *)(dst + i * NR + h), _mm512_cvtepi32_ps(c));
            }
        }
    }
}
/* -1, 0 and 1 are 0xbf80, 0 and 0x3f80 as bf16; a table gives each byte, and bit 2 of the index selects the upper
 * one */
static void b_codes_bf16(uint32_t *dst, const uint8_t *fours, size_t k) {
    const __m512i lo =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13));
    const __m512i hi = _mm512_broadcast_i32x4(
        _mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15));
    const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(
        (char)0x80, 0, (char)0x80, 0, (char)0xbf, 0, 0x3f, 0, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m512i upper = _mm512_set1_epi16(0x0400);
    for (size_t j = 0; j < k; j += 4, fours += 4 * NR, dst += 2 * NR) {
        BT_UNROLL for (size_t h = 0; h < NR; h += 16) {
            __m512i w = dwords(fours + 4 * h);
            _mm512_storeu_si512(
                dst + h,
                _mm512_shuffle_epi8(table, _mm512_or_si512(_mm512_shuffle_epi8(w, lo), upper)));
            _mm512_storeu_si512(
                dst + NR + h,
                _mm512_shuffle_epi8(table, _mm512_or_si512(_mm512_shuffle_epi8(w, hi), upper)));
        }
    }
}

#include "engine/kernels/isa/isa_avx512_kept.h"

#define NOT_KEPT NULL, NULL, NULL, NULL
static const form form_f32 = {1,          BT_PREC_FP32, a_rows_f32,  a_cols_f32, b_rows_f32,
                              b_cols_f32, b_i8_f32,     b_codes_f32, TILE_F32,   NOT_KEPT};
static const form form_bf16 = {2,           BT_PREC_BF16, a_rows_bf16,  a_cols_bf16, b_rows_bf16,
                               b_cols_bf16, b_i8_bf16,    b_codes_bf16, TILE_BF16,   a_rows_kept,
                               a_cols_kept, b_rows_kept,  b_cols_kept};
static const form form_half = {1,           BT_PREC_FP16, a_rows_half, a_cols_half, b_rows_half,
                               b_cols_half, b_i8_f32,     b_codes_f32, TILE_F32,    NOT_KEPT};
static const form *form_of(bt_prec prec) {
    if (prec == BT_PREC_FP16) return &form_half;
    return prec == BT_PREC_BF16 && bt_cpu_get()->avx512_bf16 ? &form_bf16 : &form_f32;
}

#endif /* __AVX512F__ */
#endif
