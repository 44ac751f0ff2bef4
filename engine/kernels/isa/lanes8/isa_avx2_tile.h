/* isa_avx2_tile.h - register tiles of the AVX2 products of int8; floats: isa_lanes8_tile.h.
 *
 * int8 x ternary: code + 1 is 0..2, so vpmaddubsw yields pairs within +-512 and 32 groups add up in
 * 16 bits without saturating; vpmaddwd then widens them into 32-bit sums. With AVX-VNNI vpdpbusd
 * does it in one instruction a group. */
#ifndef BT_ENGINE_KERNELS_ISA_LANES8_ISA_AVX2_TILE_H
#define BT_ENGINE_KERNELS_ISA_LANES8_ISA_AVX2_TILE_H

#include "engine/kernels/isa/lanes8/isa_lanes8_tile.h"
#include "engine/kernels/table/cpu.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#include <string.h>

BT_INLINE __m256i y_dpbusd(__m256i acc, __m256i u, __m256i s) {
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(u), "x"(s));
    return acc;
}
/* gcc 12 spills the accumulators when given the intrinsics */
BT_INLINE __m256i y_maddubs(__m256i acc, __m256i u, __m256i s) {
    __m256i t;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(acc), "=&x"(t) : "x"(u), "x"(s));
    return acc;
}
BT_INLINE __m256i y_madd(__m256i acc, __m256i a, __m256i b) {
    __m256i t;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc), "=&x"(t) : "x"(a), "x"(b));
    return acc;
}
/* bytes p[0] to p[3], repeated in every dword */
BT_INLINE __m256i four(const int8_t *p) {
    int32_t w;
    memcpy(&w, p, 4);
    return _mm256_set1_epi32(w);
}
BT_INLINE void tile_vnni(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                         const uint8_t *b, size_t groups) {
    __m256i acc[MR][2];
    prefetch_c(o->y, o->ldy, (size_t)rows);
    BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm256_setzero_si256();
    for (size_t g = 0; g < groups; g++, b += 4 * NR) {
        __m256i b0 = bytes32(b), b1 = bytes32(b + 32);
        BT_UNROLL for (int i = 0; i < rows; i++) {
            __m256i ai = four(a + (size_t)i * lda + 4 * g);
            acc[i][0] = y_dpbusd(acc[i][0], b0, ai);
            acc[i][1] = y_dpbusd(acc[i][1], b1, ai);
        }
    }
    BT_UNROLL for (int i = 0; i < rows; i++) BT_UNROLL for (int j = 0; j < 2; j++)
        tile_store_i8(o, i, j, acc[i][j]);
}

BT_INLINE void tile_maddubs(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                            const uint8_t *b, size_t groups) {
    __m256i total[MR][2];
    prefetch_c(o->y, o->ldy, (size_t)rows);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < rows; i++) total[i][0] = total[i][1] = _mm256_setzero_si256();
    for (size_t g0 = 0; g0 < groups; g0 += 32) {
        __m256i acc[MR][2];
        size_t g1 = groups - g0 < 32 ? groups : g0 + 32;
        BT_UNROLL for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm256_setzero_si256();
        for (size_t g = g0; g < g1; g++, b += 4 * NR) {
            __m256i b0 = bytes32(b), b1 = bytes32(b + 32);
            BT_UNROLL for (int i = 0; i < rows; i++) {
                __m256i ai = four(a + (size_t)i * lda + 4 * g);
                acc[i][0] = y_maddubs(acc[i][0], b0, ai);
                acc[i][1] = y_maddubs(acc[i][1], b1, ai);
            }
        }
        BT_UNROLL for (int i = 0; i < rows; i++) BT_UNROLL for (int j = 0; j < 2; j++) {
            total[i][j] = _mm256_add_epi32(total[i][j], _mm256_madd_epi16(acc[i][j], ones));
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < 2; j++) tile_store_i8(o, i, j, total[i][j]);
}

/* Computes the product for any unsigned b: its even and odd bytes become 16-bit words, two vpmaddwd per group. It takes
 * three rows at a time, because b takes four registers. */
BT_INLINE void tile_words(const int rows, const tile_i8_out *o, const int8_t *a, size_t lda,
                          const uint8_t *b, size_t groups) {
    prefetch_c(o->y, o->ldy, (size_t)rows);
    const __m256i low = _mm256_set1_epi16(255);
    for (int r0 = 0; r0 < rows; r0 += 3, a += 3 * lda) {
        const int have = rows - r0 < 3 ? rows - r0 : 3;
        const uint8_t *p = b;
        __m256i acc[3][2];
        const int8_t *row[3] = {a, a + (have > 1 ? lda : 0), a + (have > 2 ? 2 * lda : 0)};
        BT_UNROLL for (int i = 0; i < 3; i++) acc[i][0] = acc[i][1] = _mm256_setzero_si256();
        for (size_t g = 0; g < groups; g++, p += 4 * NR) {
            __m256i b0 = bytes32(p), b1 = bytes32(p + 32);
            __m256i e0 = _mm256_and_si256(b0, low), d0 = _mm256_srli_epi16(b0, 8),
                    e1 = _mm256_and_si256(b1, low), d1 = _mm256_srli_epi16(b1, 8);
            BT_UNROLL for (int i = 0; i < 3; i++) {
                __m256i ai = four(row[i] + 4 * g),
                        ae = _mm256_srai_epi16(_mm256_slli_epi16(ai, 8), 8),
                        ad = _mm256_srai_epi16(ai, 8);
                acc[i][0] = y_madd(y_madd(acc[i][0], e0, ae), d0, ad);
                acc[i][1] = y_madd(y_madd(acc[i][1], e1, ae), d1, ad);
            }
        }
        for (int i = 0; i < have; i++)
            for (int j = 0; j < 2; j++) tile_store_i8(o, r0 + i, j, acc[i][j]);
    }
}

TILE_SWITCH(run_vnni, tile_vnni, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_maddubs, tile_maddubs, tile_i8_out, int8_t, uint8_t)
TILE_SWITCH(run_words, tile_words, tile_i8_out, int8_t, uint8_t)

/* b is code + 1 */
static tile_i8_fn tile_i8(void) { return bt_cpu_get()->avx_vnni ? run_vnni : run_maddubs; }
/* b is any byte */
static tile_i8_fn tile_u8(void) { return bt_cpu_get()->avx_vnni ? run_vnni : run_words; }

static int32_t sum_i8(const int8_t *x, size_t n) {
    const __m256i flip = _mm256_set1_epi8((char)0x80);
    __m256i s = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 32 <= n; i += 32)
        s = _mm256_add_epi64(s, _mm256_sad_epu8(_mm256_xor_si256(bytes32(x + i), flip),
                                                _mm256_setzero_si256()));
    int64_t part[4];
    memcpy(part, &s, sizeof part);
    int64_t sum = part[0] + part[1] + part[2] + part[3] - (int64_t)(i * 128);
    for (; i < n; i++) sum += x[i];
    return (int32_t)sum;
}

#endif
#endif
