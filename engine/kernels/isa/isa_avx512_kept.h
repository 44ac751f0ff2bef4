/* isa_avx512_kept.h - operand forms of isa_avx512_tile.h for values that are already stored as bf16, with the same
 * bits. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_AVX512_KEPT_H
#define BT_ENGINE_KERNELS_ISA_ISA_AVX512_KEPT_H

#include "engine/kernels/isa/isa_tile.h"

#if defined(__AVX512F__)

/* min(have, 32) values, then zeros */
BT_INLINE __m512i load16(const uint16_t *p, size_t have) {
    return have >= 32 ? _mm512_loadu_si512(p)
                      : _mm512_maskz_loadu_epi16(((__mmask32)1 << have) - 1, p);
}
/* A form [rows][ld] from a row-major (rows, k) matrix */
static void a_rows_kept(uint32_t *dst, size_t ld, const uint16_t *src, size_t lds, size_t rows,
                        size_t k) {
    for (size_t i = 0; i < rows; i++) {
        const uint16_t *s = src + i * lds;
        uint32_t *d = dst + i * ld;
        size_t j = 0;
        /* heads of attention have short rows that are far apart */
        for (size_t l = 0; k <= 128 && l < k; l += 32)
            _mm_prefetch((const char *)(s + 8 * lds + l), _MM_HINT_T0);
        for (; j + 32 <= k; j += 32, d += 16) _mm512_storeu_si512(d, _mm512_loadu_si512(s + j));
        if (j < k) _mm512_mask_storeu_epi32(d, v_first((k - j + 1) / 2), load16(s + j, k - j));
    }
}

/* A form from a (k, rows) matrix */
static void a_cols_kept(uint32_t *dst, size_t ld, const uint16_t *src, size_t lds, size_t rows,
                        size_t k) {
    const size_t groups = (k + 1) / 2;
    for (size_t g = 0; g < groups; g += 16) {
        const __mmask16 m = groups - g < 16 ? v_first(groups - g) : 0xffff;
        for (size_t r = 0; r < rows; r += 16) {
            const size_t have = rows - r < 16 ? rows - r : 16;
            __m512i t[16];
            BT_UNROLL for (size_t i = 0; i < 16; i++) {
                const size_t j = 2 * (g + i);
                const uint16_t *s = src + j * lds + r;
                t[i] = pair16(j < k ? load16(s, have) : _mm512_setzero_si512(),
                              j + 1 < k ? load16(s + lds, have) : _mm512_setzero_si512(), 0);
            }
            transpose16(t);
            for (size_t i = 0; i < have; i++)
                _mm512_mask_storeu_epi32(dst + (r + i) * ld + g, m, t[i]);
        }
    }
}

/* B panel [groups][NR] from a (k, cols) matrix with cols <= NR; missing columns are zero */
static void b_rows_kept(uint32_t *dst, const uint16_t *src, size_t lds, size_t cols, size_t k) {
    for (size_t j = 0; j < k; j += 2, dst += NR) {
        const uint16_t *s = src + j * lds;
        const __m512i lo = load16(s, cols),
                      hi = j + 1 < k ? load16(s + lds, cols) : _mm512_setzero_si512();
        BT_UNROLL for (int h = 0; h < 2; h++) _mm512_storeu_si512(dst + 16 * h, pair16(lo, hi, h));
    }
}

/* B panel from a (cols, k) matrix */
static void b_cols_kept(uint32_t *dst, const uint16_t *src, size_t lds, size_t cols, size_t k) {
    const size_t groups = (k + 1) / 2;
    for (size_t h = 0; h < NR; h += 16) {
        const size_t there = cols > h ? cols - h : 0;
        for (size_t g = 0; g < groups; g += 16) {
            const uint16_t *s = src + h * lds + 2 * g;
            const size_t have = k - 2 * g;
            __m512i t[16];
            BT_UNROLL for (size_t i = 0; i < 16; i++, s += lds) {
                t[i] = i < there ? load16(s, have) : _mm512_setzero_si512();
                if (there > i + 16) _mm_prefetch((const char *)(s + 16 * lds), _MM_HINT_T0);
            }
            transpose16(t);
            BT_UNROLL for (size_t i = 0; i < 16; i++) if (i < groups - g)
                _mm512_storeu_si512(dst + (g + i) * NR + h, t[i]);
        }
    }
}

#endif /* __AVX512F__ */
#endif
