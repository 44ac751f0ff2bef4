/* isa_gemv.h - decoding: int8 vector x 2-bit ternary matrix. Included once by each set's file.
 *
 * A row is blocks of 32 bytes for 128 inputs: bits 2i, 2i+1 of byte j hold code + 1 of input 32 i +
 * j (kernels/table/ternary.h), so a shift and a mask give 32 consecutive unsigned operands. sum w x
 * = sum (w + 1) x - sum x.
 *
 * Roofline: one byte carries four weights; a core that reads B bytes/s multiplies 4 B weights/s.
 *           AVX-512 with VNNI, per 64
 * bytes: 4 masks, 4 vpdpbusd; four rows share the loads of x. That is ~3 cycles, above what memory
 * delivers to one core. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_GEMV_H
#define BT_ENGINE_KERNELS_ISA_ISA_GEMV_H

#include "engine/kernels/isa/isa_products.h"

#if defined(__AVX2__)

/* the first `have` bytes, zeros beyond */
BT_INLINE __m256i load_32(const int8_t *x, size_t have) {
    if (have >= 32) return bytes32(x);
    int8_t tmp[32] = {0};
    if (have) memcpy(tmp, x, have);
    return bytes32(tmp);
}

BT_INLINE int32_t hsum_i32(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* `rows` rows at once; 4 vpmaddubsw of a block add up within 4 * 512, 8 blocks within 16 bits */
BT_INLINE void gemv_rows_256(const int rows, int32_t *sum, const int8_t *xq, const uint8_t *w,
                             size_t stride, size_t K) {
    const __m256i three = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    __m256i total[4], acc[4];
    BT_UNROLL for (int r = 0; r < rows; r++) total[r] = acc[r] = _mm256_setzero_si256();
    for (size_t k = 0, b = 0; k < K; k += 128, b++) {
        __m256i v[4];
        BT_UNROLL for (int r = 0; r < rows; r++) v[r] = bytes32(w + (size_t)r * stride + 32 * b);
        BT_UNROLL for (int i = 0; i < 4; i++) {
            size_t at = k + 32 * (size_t)i;
            __m256i x = load_32(xq + (at < K ? at : 0), at < K ? K - at : 0);
            BT_UNROLL for (int r = 0; r < rows; r++) {
                acc[r] = _mm256_add_epi16(acc[r],
                                          _mm256_maddubs_epi16(_mm256_and_si256(v[r], three), x));
                v[r] = _mm256_srli_epi16(v[r], 2);
            }
        }
        if (b % 8 == 7 || k + 128 >= K) {
            BT_UNROLL for (int r = 0; r < rows; r++) {
                total[r] = _mm256_add_epi32(total[r], _mm256_madd_epi16(acc[r], ones));
                acc[r] = _mm256_setzero_si256();
            }
        }
    }
    BT_UNROLL for (int r = 0; r < rows; r++) sum[r] = hsum_i32(total[r]);
}

static void gemv_four(int32_t sum[4], const int8_t *xq, const uint8_t *w, size_t stride, size_t K,
                      size_t rows) {
    if (rows == 4)
        gemv_rows_256(4, sum, xq, w, stride, K);
    else
        for (size_t r = 0; r < rows; r++) gemv_rows_256(1, sum + r, xq, w + r * stride, stride, K);
}

#if defined(__AVX512F__)
/* rows are too short for the hardware to see a stream */
enum { GEMV_AHEAD = 4096 };
/* inputs put in order on the stack; longer rows go the other way */
enum { GEMV_K = 16384 };

/* xs: two blocks of x side by side, so that one load serves bits 2i, 2i+1 of 64 packed bytes. The
 * two bits stay where they are: place i counts 4^i, in an accumulator of its own that is shifted
 * down at the end (every term is a multiple) */
BT_INLINE void gemv_rows_512(const int rows, int32_t *sum, const int8_t *xs, const uint8_t *w,
                             size_t stride, size_t steps) {
    __m512i acc[4][4], place[4];
    BT_UNROLL for (int i = 0; i < 4; i++) {
        place[i] = _mm512_set1_epi8((char)(3 << 2 * i));
        BT_UNROLL for (int r = 0; r < rows; r++) acc[r][i] = _mm512_setzero_si512();
    }
    for (size_t k = 0; k < steps; k++, w += 64, xs += 256) {
        __m512i v[4];
        BT_UNROLL for (int r = 0; r < rows; r++) v[r] = dwords(w + (size_t)r * stride);
        BT_UNROLL for (int i = 0; i < 4; i++) {
            __m512i x = dwords(xs + 64 * i);
            BT_UNROLL for (int r = 0; r < rows; r++)
                acc[r][i] = x_dpbusd(acc[r][i], _mm512_and_si512(v[r], place[i]), x);
        }
    }
    BT_UNROLL for (int r = 0; r < rows; r++) {
        BT_UNROLL for (int i = 1; i < 4; i++) acc[r][0] =
            _mm512_add_epi32(acc[r][0], _mm512_srai_epi32(acc[r][i], (unsigned)(2 * i)));
        sum[r] = hsum_i32(_mm256_add_epi32(_mm512_castsi512_si256(acc[r][0]),
                                           _mm512_extracti64x4_epi64(acc[r][0], 1)));
    }
}

static void gemv_512(float *y, const int8_t *xq, int32_t all, float s, const uint8_t *w, size_t K,
                     size_t rows) {
    size_t stride = up(K, 128) / 4, steps = K / 256, rest = steps * 256;
    int8_t xs[GEMV_K];
    for (size_t k = 0; k < rest; k += 256) {
        for (size_t i = 0; i < 4; i++) {
            memcpy(xs + k + 64 * i, xq + k + 32 * i, 32);
            memcpy(xs + k + 64 * i + 32, xq + k + 32 * i + 128, 32);
        }
    }
    for (size_t n = 0; n < rows; n += 4, w += 4 * stride) {
        size_t have = least(4, rows - n);
        int32_t sum[4], more[4] = {0};
        /* may lie beyond the end */
        for (size_t o = 0; o < 4 * stride; o += 64)
            _mm_prefetch((const char *)w + o + GEMV_AHEAD, _MM_HINT_T0);
        if (have == 4)
            gemv_rows_512(4, sum, xs, w, stride, steps);
        else
            for (size_t r = 0; r < have; r++)
                gemv_rows_512(1, sum + r, xs, w + r * stride, stride, steps);
        if (rest < K) gemv_four(more, xq + rest, w + rest / 4, stride, K - rest, have);
        for (size_t r = 0; r < have; r++) y[n + r] = (float)(sum[r] + more[r] - all) * s;
    }
}
#endif

static void prod_tern_gemv(float *y, const int8_t *xq, float dq, const uint8_t *packed2,
                           float scale, size_t K, size_t n0, size_t n1) {
    size_t stride = up(K, 128) / 4;
    int32_t all = sum_i8(xq, K), sum[4];
    float s = dq * scale;
#if defined(__AVX512F__)
    if (bt_cpu_get()->avx512_vnni && K <= GEMV_K) {
        gemv_512(y + n0, xq, all, s, packed2 + n0 * stride, K, n1 - n0);
        return;
    }
#endif
    for (size_t n = n0; n < n1; n += 4) {
        size_t rows = least(4, n1 - n);
        gemv_four(sum, xq, packed2 + n * stride, stride, K, rows);
        for (size_t r = 0; r < rows; r++) y[n + r] = (float)(sum[r] - all) * s;
    }
}

#endif /* __AVX2__ */
#endif
