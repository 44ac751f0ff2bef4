/* isa_gemv.h - products for decoding: few rows of inputs with matrices that are read once from memory, which are 2-bit
 * ternary weights (int8 inputs) or the head (fp32, bf16 or fp16 weights, fp32 inputs). Included once by each set's
 * file.
 *
 * A ternary row is blocks of 32 bytes for 128 inputs: bits 2i, 2i+1 of byte j hold code + 1 of input 32 i + j
 * (kernels/table/ternary.h), so a shift and a mask give 32 consecutive unsigned operands. sum w x = sum (w + 1) x
 * - sum x.
 *
 * Roofline: one byte holds four weights; a core that reads B bytes/s multiplies 4 B weights/s. AVX-512 with VNNI
 *           needs 4 masks and 4 vpdpbusd for 64 bytes of one row: about 3 cycles, less time than memory needs to
 *           deliver them to one core. With more rows of inputs, four rows of weights are unpacked once for four
 *           rows of inputs and remain in L1 for the next four. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_GEMV_H
#define BT_ENGINE_KERNELS_ISA_ISA_GEMV_H

#include "engine/kernels/isa/isa_few_rows.h"
#include "engine/kernels/isa/lanes8/isa_neon_gemv.h"

#if defined(BT_VECTORS)

#if !defined(BT_NEON)
/* ---- 2-bit ternary weights, 32 bytes at a time ------------------------------------------------- */
/* loads the first `have` bytes, then zeros */
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

/* `rows` rows at once. The 4 vpmaddubsw of a block sum to at most 4 * 512, so 8 blocks fit in 16 bits */
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

static void gemv_256(const few_rows *p) {
    const size_t stride = round_up(p->K, 128) / 4;
    int32_t sum[4];
    for (size_t n = 0; n < p->N; n += 4) {
        const size_t rows = smaller_size(4, p->N - n);
        const uint8_t *w = p->w + n * stride;
        for (size_t m = 0; m < p->M; m++) {
            const int8_t *xq = p->xq + m * p->K;
            if (rows == 4)
                gemv_rows_256(4, sum, xq, w, stride, p->K);
            else
                for (size_t r = 0; r < rows; r++)
                    gemv_rows_256(1, sum + r, xq, w + r * stride, stride, p->K);
            for (size_t r = 0; r < rows; r++)
                gemv_put(p->y + m * p->ldy + n + r, sum[r] - p->all[m], p->dq[m] * p->scale,
                         p->acc);
        }
    }
}

#if defined(__AVX512F__)
/* prefetch distance in bytes; hardware does not detect a stream in rows this short */
enum { GEMV_AHEAD = 4096 };

/* Copies pairs of 32-byte blocks of x so that one load matches the same two bits of 64 packed bytes; zeros beyond K. */
static void few_inputs(int8_t *xs, const int8_t *xq, size_t K) {
    const size_t whole = K / 256 * 256;
    int8_t last[256] = {0};
    memcpy(last, xq + whole, K - whole);
    for (size_t k = 0; k < K; k += 256, xs += 256) {
        const int8_t *x = k < whole ? xq + k : last;
        for (size_t i = 0; i < 4; i++) {
            memcpy(xs + 64 * i, x + 32 * i, 32);
            memcpy(xs + 64 * i + 32, x + 32 * i + 128, 32);
        }
    }
}

/* Loads 64 bytes of a row of `stride` bytes, or the last 32 followed by zeros, which are multiplied by inputs of 0. */
BT_INLINE __m512i few_weights(const uint8_t *w, size_t at, size_t stride) {
    return at + 64 <= stride ? dwords(w + at) : _mm512_maskz_loadu_epi32(0x00ff, w + at);
}

BT_INLINE int32_t hsum_512(__m512i v) {
    return hsum_i32(_mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1)));
}

/* One row of inputs: instead of shifting its two bits, the code at position i keeps the factor 4^i in its own
 * accumulator, which is shifted down once at the end. */
BT_INLINE void gemv_one_512(const int rows, int32_t *sum, const int8_t *xs, const uint8_t *w,
                            size_t stride) {
    __m512i acc[4][4], place[4];
    BT_UNROLL for (int i = 0; i < 4; i++) {
        place[i] = _mm512_set1_epi8((char)(3 << 2 * i));
        BT_UNROLL for (int r = 0; r < rows; r++) acc[r][i] = _mm512_setzero_si512();
    }
    for (size_t at = 0; at < stride; at += 64, xs += 256) {
        __m512i v[4];
        BT_UNROLL for (int r = 0; r < rows; r++)
            v[r] = few_weights(w + (size_t)r * stride, at, stride);
        BT_UNROLL for (int i = 0; i < 4; i++) {
            __m512i x = dwords(xs + 64 * i);
            BT_UNROLL for (int r = 0; r < rows; r++)
                acc[r][i] = x_dpbusd(acc[r][i], _mm512_and_si512(v[r], place[i]), x);
        }
    }
    BT_UNROLL for (int r = 0; r < rows; r++) {
        BT_UNROLL for (int i = 1; i < 4; i++) acc[r][0] =
            _mm512_add_epi32(acc[r][0], _mm512_srai_epi32(acc[r][i], (unsigned)(2 * i)));
        sum[r] = hsum_512(acc[r][0]);
    }
}

/* Unpacks weights once for `few` rows of inputs; sum[m * 4 + r] belongs to input row m and weight row r. */
BT_INLINE void gemv_few_512(const int rows, const int few, int32_t *sum, const int8_t *xs,
                            size_t ldx, const uint8_t *w, size_t stride) {
    const __m512i three = _mm512_set1_epi8(3);
    __m512i acc[4][4];
    BT_UNROLL for (int r = 0; r < rows; r++) BT_UNROLL for (int m = 0; m < few; m++)
        acc[r][m] = _mm512_setzero_si512();
    for (size_t at = 0; at < stride; at += 64, xs += 256) {
        __m512i v[4];
        BT_UNROLL for (int r = 0; r < rows; r++)
            v[r] = few_weights(w + (size_t)r * stride, at, stride);
        BT_UNROLL for (int i = 0; i < 4; i++) {
            __m512i u[4];
            BT_UNROLL for (int r = 0; r < rows; r++) {
                u[r] = _mm512_and_si512(v[r], three);
                v[r] = _mm512_srli_epi16(v[r], 2);
            }
            BT_UNROLL for (int m = 0; m < few; m++) {
                __m512i x = dwords(xs + (size_t)m * ldx + 64 * i);
                BT_UNROLL for (int r = 0; r < rows; r++) acc[r][m] = x_dpbusd(acc[r][m], u[r], x);
            }
        }
    }
    BT_UNROLL for (int m = 0; m < few; m++) BT_UNROLL for (int r = 0; r < rows; r++)
        sum[m * 4 + r] = hsum_512(acc[r][m]);
}

BT_INLINE void gemv_some_512(const int rows, size_t few, int32_t *sum, const int8_t *xs, size_t ldx,
                             const uint8_t *w, size_t stride) {
    switch (few) {
    case 1: gemv_one_512(rows, sum, xs, w, stride); break;
    case 2: gemv_few_512(rows, 2, sum, xs, ldx, w, stride); break;
    case 3: gemv_few_512(rows, 3, sum, xs, ldx, w, stride); break;
    default: gemv_few_512(rows, 4, sum, xs, ldx, w, stride); break;
    }
}

static void gemv_512(const few_rows *p, int8_t *xs) {
    const size_t stride = round_up(p->K, 128) / 4, ldx = few_stride(p->K);
    for (size_t m = 0; m < p->M; m++) few_inputs(xs + m * ldx, p->xq + m * p->K, p->K);
    for (size_t n = 0; n < p->N; n += 4) {
        const size_t rows = smaller_size(4, p->N - n);
        const uint8_t *w = p->w + n * stride;
        int32_t sum[16];
        /* the address may be beyond the end, which a prefetch permits */
        for (size_t o = 0; o < 4 * stride; o += 64)
            _mm_prefetch((const char *)w + o + GEMV_AHEAD, _MM_HINT_T0);
        for (size_t m = 0; m < p->M; m += 4) {
            const size_t few = smaller_size(4, p->M - m);
            if (rows == 4)
                gemv_some_512(4, few, sum, xs + m * ldx, ldx, w, stride);
            else
                for (size_t r = 0; r < rows; r++)
                    gemv_some_512(1, few, sum + r, xs + m * ldx, ldx, w + r * stride, stride);
            for (size_t i = 0; i < few; i++)
                for (size_t r = 0; r < rows; r++)
                    gemv_put(p->y + (m + i) * p->ldy + n + r, sum[i * 4 + r] - p->all[m + i],
                             p->dq[m + i] * p->scale, p->acc);
        }
    }
}
#endif /* __AVX512F__ */
#endif /* BT_NEON */

static size_t gemv_scratch(size_t K) { return BT_FEW_ROWS * few_stride(K); }

static few_rows few_rows_of(float *y, size_t ldy, const int8_t *xq, const float *dq, size_t M,
                            const uint8_t *packed2, float scale, size_t K, size_t n0, size_t n1,
                            int flags) {
    few_rows p = {.y = y + n0,
                  .ldy = ldy,
                  .M = M,
                  .K = K,
                  .N = n1 - n0,
                  .xq = xq,
                  .dq = dq,
                  .w = packed2 + n0 * (round_up(K, 128) / 4),
                  .scale = scale,
                  .acc = flags & BT_ACC};
    for (size_t m = 0; m < M; m++) p.all[m] = sum_i8(xq + m * K, K);
    return p;
}

static void prod_tern_gemv(float *y, size_t ldy, const int8_t *xq, const float *dq, size_t M,
                           const uint8_t *packed2, float scale, size_t K, size_t n0, size_t n1,
                           int flags, void *scratch) {
    const few_rows p = few_rows_of(y, ldy, xq, dq, M, packed2, scale, K, n0, n1, flags);
#if defined(__AVX512F__)
    if (bt_cpu_get()->avx512_vnni) {
        gemv_512(&p, scratch);
        return;
    }
#endif
#if defined(BT_NEON)
    gemv_neon(&p, scratch);
#else
    (void)scratch;
    gemv_256(&p);
#endif
}

/* ---- the head ---------------------------------------------------------------------------------- */
/* number of input rows that share four rows of weights in registers */
enum { FEW = VL == 16 ? 4 : 2 };

BT_INLINE vf head_weights(const void *w, size_t i, const bt_stored_as as) {
    if (as == BT_AS_F32) return v_load((const float *)w + i);
    const uint16_t *h = (const uint16_t *)w + i;
    return as == BT_AS_F16 ? v_load_half(h) : v_bits(vi_sll(vi_from_u16(h), 16));
}

/* loads n < VL weights of the head, then zeros */
BT_INLINE vf head_weights_n(const void *w, size_t i, size_t n, const bt_stored_as as) {
    if (as == BT_AS_F32) return v_load_n((const float *)w + i, n);
    uint16_t some[VL] = {0};
    memcpy(some, (const uint16_t *)w + i, n * sizeof *some);
    return head_weights(some, 0, as);
}

/* Computes one sum for each output over K in ascending order, so that the bits do not depend on how many rows are
 * computed together. */
BT_INLINE void head_block(const int rows, const int few, const bt_stored_as as, float *y,
                          size_t ldy, const void *w, size_t first, const float *x, size_t K) {
    vf acc[4][FEW], v[FEW];
    BT_UNROLL for (int r = 0; r < rows; r++) BT_UNROLL for (int m = 0; m < few; m++)
        acc[r][m] = v_set(0);
    size_t k = 0;
    for (; k + VL <= K; k += VL) {
        BT_UNROLL for (int m = 0; m < few; m++) v[m] = v_load(x + (size_t)m * K + k);
        BT_UNROLL for (int r = 0; r < rows; r++) {
            const size_t at = first + (size_t)r * K + k;
            /* prefetches the next rows, which may be beyond the end of the matrix */
            __builtin_prefetch((const char *)w +
                               (at + (size_t)rows * K) * (as == BT_AS_F32 ? 4 : 2));
            vf a = head_weights(w, at, as);
            BT_UNROLL for (int m = 0; m < few; m++) acc[r][m] = v_fma(a, v[m], acc[r][m]);
        }
    }
    if (k < K) {
        BT_UNROLL for (int m = 0; m < few; m++) v[m] = v_load_n(x + (size_t)m * K + k, K - k);
        BT_UNROLL for (int r = 0; r < rows; r++) {
            vf a = head_weights_n(w, first + (size_t)r * K + k, K - k, as);
            BT_UNROLL for (int m = 0; m < few; m++) acc[r][m] = v_fma(a, v[m], acc[r][m]);
        }
    }
    BT_UNROLL for (int m = 0; m < few; m++) BT_UNROLL for (int r = 0; r < rows; r++)
        y[(size_t)m * ldy + (size_t)r] = v_hsum(acc[r][m]);
}

BT_INLINE void head_rows(const int rows, size_t few, const bt_stored_as as, float *y, size_t ldy,
                         const void *w, size_t first, const float *x, size_t K) {
    if (few == 1) head_block(rows, 1, as, y, ldy, w, first, x, K);
    if (few == 2) head_block(rows, 2, as, y, ldy, w, first, x, K);
#if defined(__AVX512F__)
    if (few == 3) head_block(rows, 3, as, y, ldy, w, first, x, K);
    if (few == 4) head_block(rows, 4, as, y, ldy, w, first, x, K);
#endif
}

BT_INLINE void head_as(const bt_stored_as as, float *y, size_t ldy, const void *w, const float *x,
                       size_t M, size_t K, size_t n0, size_t n1) {
    for (size_t n = n0; n < n1; n += 4) {
        const size_t rows = smaller_size(4, n1 - n);
        for (size_t m = 0; m < M; m += FEW) {
            const size_t few = smaller_size(FEW, M - m);
            if (rows == 4)
                head_rows(4, few, as, y + m * ldy + n, ldy, w, n * K, x + m * K, K);
            else
                for (size_t r = 0; r < rows; r++)
                    head_rows(1, few, as, y + m * ldy + n + r, ldy, w, (n + r) * K, x + m * K, K);
        }
    }
}

static void prod_gemv(float *y, size_t ldy, const void *w, bt_stored_as as, const float *x,
                      size_t M, size_t K, size_t n0, size_t n1) {
    switch (as) {
    case BT_AS_BF16: head_as(BT_AS_BF16, y, ldy, w, x, M, K, n0, n1); break;
    case BT_AS_F16: head_as(BT_AS_F16, y, ldy, w, x, M, K, n0, n1); break;
    default: head_as(BT_AS_F32, y, ldy, w, x, M, K, n0, n1); break;
    }
}

#define BT_GEMV_SLOTS .tern_gemv = prod_tern_gemv, .gemv = prod_gemv

#endif /* BT_VECTORS */
#endif
