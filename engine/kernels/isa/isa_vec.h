/* isa_vec.h - one vector of floats: 16 lanes under AVX-512, 8 under AVX2 and NEON, the same names for all.
 *
 * Included by isa_*.c only, compiled with that file's flags; everything is static inline, so
 * nothing leaks. `_n` forms touch the first n lanes only (0 < n <= VL) and read zeros elsewhere: a
 * row's tail goes through the same arithmetic as its body, so a value never depends on where a
 * range was cut. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_VEC_H
#define BT_ENGINE_KERNELS_ISA_ISA_VEC_H

#include "engine/kernels/isa/lanes8/isa_neon_vec.h"

#if defined(BT_VECTORS)
#if !defined(BT_NEON)
#include <immintrin.h>

BT_INLINE __m256i bytes32(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

#if defined(__AVX512F__)
enum { VL = 16 };
typedef __m512 vf;
typedef __mmask16 vmask;

BT_INLINE vf v_set(float a) { return _mm512_set1_ps(a); }
BT_INLINE vf v_load(const float *p) { return _mm512_loadu_ps(p); }
BT_INLINE void v_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
BT_INLINE vmask v_first(size_t n) { return (vmask)((1u << n) - 1u); }
BT_INLINE vf v_load_n(const float *p, size_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
BT_INLINE void v_store_n(float *p, vf a, size_t n) { _mm512_mask_storeu_ps(p, v_first(n), a); }
BT_INLINE vf v_add(vf a, vf b) { return _mm512_add_ps(a, b); }
BT_INLINE vf v_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
BT_INLINE vf v_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
BT_INLINE vf v_div(vf a, vf b) { return _mm512_div_ps(a, b); }
BT_INLINE vf v_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
BT_INLINE vf v_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
BT_INLINE vf v_max(vf a, vf b) { return _mm512_max_ps(a, b); }
BT_INLINE vf v_min(vf a, vf b) { return _mm512_min_ps(a, b); }
BT_INLINE vf v_sqrt(vf a) { return _mm512_sqrt_ps(a); }
BT_INLINE vf v_abs(vf a) { return _mm512_abs_ps(a); }
/* takes the first n lanes of a, the other lanes of b */
BT_INLINE vf v_where_n(vf a, vf b, size_t n) { return _mm512_mask_blend_ps(v_first(n), b, a); }
/* x == y ? a : b */
BT_INLINE vf v_where_eq(vf x, vf y, vf a, vf b) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_EQ_OQ), b, a);
}
BT_INLINE float v_hsum(vf a) { return _mm512_reduce_add_ps(a); }
BT_INLINE float v_hmax(vf a) { return _mm512_reduce_max_ps(a); }
typedef __m512d vd;
BT_INLINE vd d_zero(void) { return _mm512_setzero_pd(); }
/* adds the lower half of a's lanes */
BT_INLINE vd d_add_low(vd s, vf a) {
    return _mm512_add_pd(s, _mm512_cvtps_pd(_mm512_castps512_ps256(a)));
}
BT_INLINE vd d_add_high(vd s, vf a) {
    return _mm512_add_pd(
        s, _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1))));
}
BT_INLINE double d_hsum(vd a) { return _mm512_reduce_add_pd(a); }
/* x * 2^n */
BT_INLINE vf v_pow2(vf x, vf n) { return _mm512_scalef_ps(x, n); }
BT_INLINE vf v_rint(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* rounded to fp16 */
BT_INLINE vf v_half(vf a) { return _mm512_cvtph_ps(_mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
BT_INLINE vf v_load_half(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
BT_INLINE void v_store_half(uint16_t *p, vf a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
BT_INLINE int v_any_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0; }
/* Rounds ties to even and saturates to int8. A whole vector is stored without a mask, because masked stores of bytes
 * are slow on some processors. */
BT_INLINE void v_store_i8_n(int8_t *p, vf a, size_t n) {
    if (n == VL)
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a)));
    else
        _mm512_mask_cvtsepi32_storeu_epi8(p, v_first(n), _mm512_cvtps_epi32(a));
}
BT_INLINE vf v_from_i8_n(const int8_t *p, size_t n) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(v_first(n), p)));
}

typedef __m512i vi; /* VL lanes of 32 bits */
/* operations with the same names for 8 and 16 lanes; VI_QUARTERS repeats sixteen bytes over the vector */
#define VI_OP(name) _mm512_##name
#define VI_QUARTERS(q) _mm512_broadcast_i32x4(q)
BT_INLINE vi vi_set(uint32_t a) { return _mm512_set1_epi32((int)a); }
BT_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
BT_INLINE void vi_store(void *p, vi a) { _mm512_storeu_si512(p, a); }
BT_INLINE vi vi_lanes(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
BT_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
BT_INLINE vi vi_add8(vi a, vi b) { return _mm512_add_epi8(a, b); }
BT_INLINE vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
BT_INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
BT_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
BT_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
BT_INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
BT_INLINE vi vi_min(vi a, vi b) { return _mm512_min_epi32(a, b); }
BT_INLINE vi vi_srl(vi a, int n) { return _mm512_srli_epi32(a, (unsigned)n); }
BT_INLINE vi vi_sll(vi a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
BT_INLINE vi vi_from_u16(const uint16_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
BT_INLINE vi vi_from_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
BT_INLINE void vi_store_u16(uint16_t *p, vi a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(a));
}
/* x is NaN ? a : b */
BT_INLINE vi vi_where_nan(vf x, vi a, vi b) {
    return _mm512_mask_mov_epi32(b, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), a);
}
BT_INLINE vi vi_sra(vi a, int n) { return _mm512_srai_epi32(a, (unsigned)n); }
/* half to even */
BT_INLINE vi vi_round(vf a) { return _mm512_cvtps_epi32(a); }
BT_INLINE vf v_float(vi a) { return _mm512_cvtepi32_ps(a); }
BT_INLINE vi vi_bits(vf a) { return _mm512_castps_si512(a); }
BT_INLINE vf v_bits(vi a) { return _mm512_castsi512_ps(a); }
BT_INLINE int32_t vi_hsum(vi a) { return _mm512_reduce_add_epi32(a); }
BT_INLINE int32_t vi_hmax(vi a) { return _mm512_reduce_max_epi32(a); }
BT_INLINE void vi_store_i8_n(int8_t *p, vi a, size_t n) {
    if (n == VL)
        _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(a));
    else
        _mm512_mask_cvtepi32_storeu_epi8(p, v_first(n), a);
}

#else
enum { VL = 8 };
typedef __m256 vf;

BT_INLINE vf v_set(float a) { return _mm256_set1_ps(a); }
BT_INLINE vf v_load(const float *p) { return _mm256_loadu_ps(p); }
BT_INLINE void v_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
BT_INLINE __m256i v_first(size_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
BT_INLINE vf v_load_n(const float *p, size_t n) { return _mm256_maskload_ps(p, v_first(n)); }
BT_INLINE void v_store_n(float *p, vf a, size_t n) { _mm256_maskstore_ps(p, v_first(n), a); }
BT_INLINE vf v_add(vf a, vf b) { return _mm256_add_ps(a, b); }
BT_INLINE vf v_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
BT_INLINE vf v_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
BT_INLINE vf v_div(vf a, vf b) { return _mm256_div_ps(a, b); }
BT_INLINE vf v_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
BT_INLINE vf v_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
BT_INLINE vf v_max(vf a, vf b) { return _mm256_max_ps(a, b); }
BT_INLINE vf v_min(vf a, vf b) { return _mm256_min_ps(a, b); }
BT_INLINE vf v_sqrt(vf a) { return _mm256_sqrt_ps(a); }
BT_INLINE vf v_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
BT_INLINE vf v_where_n(vf a, vf b, size_t n) {
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(v_first(n)));
}
BT_INLINE vf v_where_eq(vf x, vf y, vf a, vf b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(x, y, _CMP_EQ_OQ));
}
BT_INLINE float v_hsum(vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
BT_INLINE float v_hmax(vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
typedef __m256d vd;
BT_INLINE vd d_zero(void) { return _mm256_setzero_pd(); }
BT_INLINE vd d_add_low(vd s, vf a) {
    return _mm256_add_pd(s, _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
}
BT_INLINE vd d_add_high(vd s, vf a) {
    return _mm256_add_pd(s, _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
}
BT_INLINE double d_hsum(vd a) {
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}
BT_INLINE vf v_rint(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
BT_INLINE vf v_half(vf a) { return _mm256_cvtph_ps(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT)); }
BT_INLINE vf v_load_half(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
BT_INLINE void v_store_half(uint16_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}
BT_INLINE int v_any_nan(vf a) { return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0; }
/* n in [-126, 127], a whole number */
BT_INLINE vf v_pow2(vf x, vf n) {
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)),
                                  23);
    return _mm256_mul_ps(x, _mm256_castsi256_ps(e));
}
BT_INLINE vf v_from_i8_n(const int8_t *p, size_t n) {
    int64_t all = 0;
    __builtin_memcpy(&all, p, n);
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_cvtsi64_si128(all)));
}

typedef __m256i vi; /* VL lanes of 32 bits */
#define VI_OP(name) _mm256_##name
#define VI_QUARTERS(q) _mm256_broadcastsi128_si256(q)
BT_INLINE vi vi_set(uint32_t a) { return _mm256_set1_epi32((int)a); }
BT_INLINE vi vi_load(const void *p) { return bytes32(p); }
BT_INLINE void vi_store(void *p, vi a) { _mm256_storeu_si256((__m256i *)p, a); }
BT_INLINE vi vi_lanes(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
BT_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
BT_INLINE vi vi_add8(vi a, vi b) { return _mm256_add_epi8(a, b); }
BT_INLINE vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
BT_INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
BT_INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
BT_INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
BT_INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
BT_INLINE vi vi_min(vi a, vi b) { return _mm256_min_epi32(a, b); }
BT_INLINE vi vi_srl(vi a, int n) { return _mm256_srli_epi32(a, n); }
BT_INLINE vi vi_sll(vi a, int n) { return _mm256_slli_epi32(a, n); }
BT_INLINE vi vi_from_u16(const uint16_t *p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
BT_INLINE vi vi_from_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
BT_INLINE void vi_store_u16(uint16_t *p, vi a) { /* each lane below 2^16 */
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}
BT_INLINE vi vi_where_nan(vf x, vi a, vi b) {
    return _mm256_blendv_epi8(b, a, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
BT_INLINE vi vi_sra(vi a, int n) { return _mm256_srai_epi32(a, n); }
/* half to even */
BT_INLINE vi vi_round(vf a) { return _mm256_cvtps_epi32(a); }
BT_INLINE vf v_float(vi a) { return _mm256_cvtepi32_ps(a); }
BT_INLINE vi vi_bits(vf a) { return _mm256_castps_si256(a); }
BT_INLINE vf v_bits(vi a) { return _mm256_castsi256_ps(a); }
BT_INLINE __m128i vi_fold(vi a, __m128i (*f)(__m128i, __m128i)) {
    __m128i s = f(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = f(s, _mm_shuffle_epi32(s, 0x4e));
    return f(s, _mm_shuffle_epi32(s, 0xb1));
}
BT_INLINE __m128i fold_add(__m128i a, __m128i b) { return _mm_add_epi32(a, b); }
BT_INLINE __m128i fold_max(__m128i a, __m128i b) { return _mm_max_epi32(a, b); }
BT_INLINE int32_t vi_hsum(vi a) { return _mm_cvtsi128_si32(vi_fold(a, fold_add)); }
BT_INLINE int32_t vi_hmax(vi a) { return _mm_cvtsi128_si32(vi_fold(a, fold_max)); }
BT_INLINE void vi_store_i8_n(int8_t *p, vi a, size_t n) {
    __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)),
            b = _mm_packs_epi16(w, w);
    int64_t all = _mm_cvtsi128_si64(b);
    __builtin_memcpy(p, &all, n);
}
BT_INLINE void v_store_i8_n(int8_t *p, vf a, size_t n) {
    vi_store_i8_n(p, _mm256_cvtps_epi32(a), n);
}
#endif /* __AVX512F__ */
#endif /* BT_NEON */

/* exp, relative error below 2e-7 for |x| <= 87; arguments are clamped there, so the result is finite and positive.
 * NaN is preserved: v_min and v_max return their second operand if one is NaN */
BT_INLINE vf v_exp(vf x) {
    x = v_min(v_set(87.0f), v_max(v_set(-87.0f), x));
    vf n = v_rint(v_mul(x, v_set(1.44269504f)));
    vf f = v_fnma(n, v_set(-2.12194440e-4f), v_fnma(n, v_set(0.693359375f), x));
    vf p = v_set(1.9875691500e-4f); /* Cephes expf */
    p = v_fma(p, f, v_set(1.3981999507e-3f));
    p = v_fma(p, f, v_set(8.3334519073e-3f));
    p = v_fma(p, f, v_set(4.1665795894e-2f));
    p = v_fma(p, f, v_set(1.6666665459e-1f));
    p = v_fma(p, f, v_set(5.0000001201e-1f));
    p = v_fma(p, v_mul(f, f), v_add(f, v_set(1.0f)));
    return v_pow2(p, n);
}

/* 2^x, relative error below 2e-7 for x in [-126, 127], where arguments are clamped: the exp of attention, whose
 * scores are in powers of two. NaN is preserved. Minimax on [-1/2, 1/2] */
BT_INLINE vf v_exp2(vf x) {
    x = v_min(v_set(127.0f), v_max(v_set(-126.0f), x));
    vf n = v_rint(x), f = v_sub(x, n);
    vf p = v_fma(v_set(1.327647196e-3f), f, v_set(9.675541503e-3f));
    p = v_fma(p, f, v_set(5.550713275e-2f));
    p = v_fma(p, f, v_set(2.402211972e-1f));
    p = v_fma(p, f, v_set(6.931469671e-1f));
    p = v_fma(p, f, v_set(1.000000072f));
    return v_pow2(p, n);
}

/* 2^x with relative error below 8e-5, for values that are then rounded to bf16 (2e-3). x below -125 is clamped; x
 * above 127 is not allowed. NaN is preserved. Minimax on [-1/2, 1/2]. The low bits of the sum are the integer part
 * of x, which a shift moves into the exponent */
BT_INLINE vf v_exp2_coarse(vf x) {
    const vf whole = v_set(12582912.0f); /* 1.5 * 2^23: its last bit has the value 1 */
    x = v_max(v_set(-125.0f), x);
    vf t = v_add(x, whole), f = v_sub(x, v_sub(t, whole));
    vf p = v_fma(v_set(5.517166909e-2f), f, v_set(2.426111222e-1f));
    p = v_fma(p, f, v_set(6.932609855e-1f));
    p = v_fma(p, f, v_set(9.999280735e-1f));
    return v_bits(vi_add(vi_bits(p), vi_sll(vi_bits(t), 23)));
}

#endif /* BT_VECTORS */
#endif
