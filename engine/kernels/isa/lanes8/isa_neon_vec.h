/* isa_neon_vec.h - the vectors of isa_vec.h under NEON: eight lanes in two registers. Operations and the order of
 * sums are those of AVX2, so float results have the bits of the AVX2 set. */
#ifndef BT_ENGINE_KERNELS_ISA_LANES8_ISA_NEON_VEC_H
#define BT_ENGINE_KERNELS_ISA_LANES8_ISA_NEON_VEC_H

#include "engine/kernels/isa/isa_inline.h"

#if defined(BT_NEON)
#include <arm_neon.h>
#include <string.h>

enum { VL = 8 };
typedef struct vf {
    float32x4_t l, h;
} vf;
typedef struct vi { /* VL lanes of 32 bits */
    int32x4_t l, h;
} vi;
typedef struct vd {
    float64x2_t l, h;
} vd;

/* applies one operation to both registers */
#define EACH_HALF(type, f, a, b) ((type){f((a).l, (b).l), f((a).h, (b).h)})

BT_INLINE vf v_set(float a) { return (vf){vdupq_n_f32(a), vdupq_n_f32(a)}; }
BT_INLINE vf v_load(const float *p) { return (vf){vld1q_f32(p), vld1q_f32(p + 4)}; }
BT_INLINE void v_store(float *p, vf a) {
    vst1q_f32(p, a.l);
    vst1q_f32(p + 4, a.h);
}
/* lanes below n have all bits set */
BT_INLINE uint32x4_t q_first(size_t from, size_t n) {
    const uint32x4_t lanes = {0, 1, 2, 3};
    return vcltq_u32(vaddq_u32(lanes, vdupq_n_u32((uint32_t)from)), vdupq_n_u32((uint32_t)n));
}
BT_INLINE float32x4_t q_load_n(const float *p, size_t n) {
    if (n >= 4) return vld1q_f32(p);
    float32x4_t v = vdupq_n_f32(0);
    if (n > 0) v = vld1q_lane_f32(p, v, 0);
    if (n > 1) v = vld1q_lane_f32(p + 1, v, 1);
    if (n > 2) v = vld1q_lane_f32(p + 2, v, 2);
    return v;
}
BT_INLINE void q_store_n(float *p, float32x4_t v, size_t n) {
    if (n >= 4) {
        vst1q_f32(p, v);
        return;
    }
    if (n > 0) vst1q_lane_f32(p, v, 0);
    if (n > 1) vst1q_lane_f32(p + 1, v, 1);
    if (n > 2) vst1q_lane_f32(p + 2, v, 2);
}
BT_INLINE vf v_load_n(const float *p, size_t n) {
    return (vf){q_load_n(p, n), n > 4 ? q_load_n(p + 4, n - 4) : vdupq_n_f32(0)};
}
BT_INLINE void v_store_n(float *p, vf a, size_t n) {
    q_store_n(p, a.l, n);
    if (n > 4) q_store_n(p + 4, a.h, n - 4);
}
BT_INLINE vf v_add(vf a, vf b) { return EACH_HALF(vf, vaddq_f32, a, b); }
BT_INLINE vf v_sub(vf a, vf b) { return EACH_HALF(vf, vsubq_f32, a, b); }
BT_INLINE vf v_mul(vf a, vf b) { return EACH_HALF(vf, vmulq_f32, a, b); }
BT_INLINE vf v_div(vf a, vf b) { return EACH_HALF(vf, vdivq_f32, a, b); }
BT_INLINE vf v_fma(vf a, vf b, vf c) {
    return (vf){vfmaq_f32(c.l, a.l, b.l), vfmaq_f32(c.h, a.h, b.h)};
}
BT_INLINE vf v_fnma(vf a, vf b, vf c) {
    return (vf){vfmsq_f32(c.l, a.l, b.l), vfmsq_f32(c.h, a.h, b.h)};
}
/* returns the second operand if one is NaN, unlike fmax and fmaxnm */
BT_INLINE float32x4_t q_max(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
BT_INLINE float32x4_t q_min(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
BT_INLINE vf v_max(vf a, vf b) { return EACH_HALF(vf, q_max, a, b); }
BT_INLINE vf v_min(vf a, vf b) { return EACH_HALF(vf, q_min, a, b); }
BT_INLINE vf v_sqrt(vf a) { return (vf){vsqrtq_f32(a.l), vsqrtq_f32(a.h)}; }
BT_INLINE vf v_abs(vf a) { return (vf){vabsq_f32(a.l), vabsq_f32(a.h)}; }
BT_INLINE vf v_where_n(vf a, vf b, size_t n) {
    return (vf){vbslq_f32(q_first(0, n), a.l, b.l), vbslq_f32(q_first(4, n), a.h, b.h)};
}
BT_INLINE vf v_where_eq(vf x, vf y, vf a, vf b) {
    return (vf){vbslq_f32(vceqq_f32(x.l, y.l), a.l, b.l), vbslq_f32(vceqq_f32(x.h, y.h), a.h, b.h)};
}
BT_INLINE float v_hsum(vf a) {
    const float32x4_t s = vaddq_f32(a.l, a.h);
    return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}
BT_INLINE float v_hmax(vf a) {
    float32x4_t s = q_max(a.l, a.h);
    s = q_max(s, vextq_f32(s, s, 2));
    return vgetq_lane_f32(q_max(s, vextq_f32(s, s, 1)), 0);
}
BT_INLINE vd d_zero(void) { return (vd){vdupq_n_f64(0), vdupq_n_f64(0)}; }
BT_INLINE vd d_add_quarter(vd s, float32x4_t a) {
    return (vd){vaddq_f64(s.l, vcvt_f64_f32(vget_low_f32(a))),
                vaddq_f64(s.h, vcvt_high_f64_f32(a))};
}
BT_INLINE vd d_add_low(vd s, vf a) { return d_add_quarter(s, a.l); }
BT_INLINE vd d_add_high(vd s, vf a) { return d_add_quarter(s, a.h); }
BT_INLINE double d_hsum(vd a) { return vpaddd_f64(vaddq_f64(a.l, a.h)); }
BT_INLINE vf v_rint(vf a) { return (vf){vrndnq_f32(a.l), vrndnq_f32(a.h)}; }
BT_INLINE vf v_load_half(const uint16_t *p) {
    const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
    return (vf){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
BT_INLINE float16x8_t v_to_half(vf a) { return vcvt_high_f16_f32(vcvt_f16_f32(a.l), a.h); }
BT_INLINE void v_store_half(uint16_t *p, vf a) {
    vst1q_u16(p, vreinterpretq_u16_f16(v_to_half(a)));
}
BT_INLINE vf v_half(vf a) {
    const float16x8_t h = v_to_half(a);
    return (vf){vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
BT_INLINE int v_any_nan(vf a) {
    return vminvq_u32(vandq_u32(vceqq_f32(a.l, a.l), vceqq_f32(a.h, a.h))) == 0;
}

BT_INLINE vi vi_set(uint32_t a) { return (vi){vdupq_n_s32((int32_t)a), vdupq_n_s32((int32_t)a)}; }
BT_INLINE vi vi_load(const void *p) {
    const int8_t *b = p;
    return (vi){vreinterpretq_s32_s8(vld1q_s8(b)), vreinterpretq_s32_s8(vld1q_s8(b + 16))};
}
BT_INLINE void vi_store(void *p, vi a) {
    int8_t *b = p;
    vst1q_s8(b, vreinterpretq_s8_s32(a.l));
    vst1q_s8(b + 16, vreinterpretq_s8_s32(a.h));
}
BT_INLINE vi vi_lanes(void) {
    const int32x4_t l = {0, 1, 2, 3}, h = {4, 5, 6, 7};
    return (vi){l, h};
}
BT_INLINE vi vi_add(vi a, vi b) { return EACH_HALF(vi, vaddq_s32, a, b); }
BT_INLINE vi vi_add8(vi a, vi b) {
    return (
        vi){vreinterpretq_s32_s8(vaddq_s8(vreinterpretq_s8_s32(a.l), vreinterpretq_s8_s32(b.l))),
            vreinterpretq_s32_s8(vaddq_s8(vreinterpretq_s8_s32(a.h), vreinterpretq_s8_s32(b.h)))};
}
BT_INLINE vi vi_mul(vi a, vi b) { return EACH_HALF(vi, vmulq_s32, a, b); }
BT_INLINE vi vi_xor(vi a, vi b) { return EACH_HALF(vi, veorq_s32, a, b); }
BT_INLINE vi vi_and(vi a, vi b) { return EACH_HALF(vi, vandq_s32, a, b); }
BT_INLINE vi vi_or(vi a, vi b) { return EACH_HALF(vi, vorrq_s32, a, b); }
BT_INLINE vi vi_max(vi a, vi b) { return EACH_HALF(vi, vmaxq_s32, a, b); }
BT_INLINE vi vi_min(vi a, vi b) { return EACH_HALF(vi, vminq_s32, a, b); }
/* operators: an immediate where n is a constant */
BT_INLINE int32x4_t q_srl(int32x4_t a, int n) {
    return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) >> (uint32_t)n);
}
BT_INLINE vi vi_srl(vi a, int n) { return (vi){q_srl(a.l, n), q_srl(a.h, n)}; }
BT_INLINE vi vi_sll(vi a, int n) { return (vi){a.l << n, a.h << n}; }
BT_INLINE vi vi_sra(vi a, int n) { return (vi){a.l >> n, a.h >> n}; }
BT_INLINE vi vi_of_u16(uint16x8_t w) {
    return (vi){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(w))),
                vreinterpretq_s32_u32(vmovl_high_u16(w))};
}
BT_INLINE vi vi_from_u16(const uint16_t *p) { return vi_of_u16(vld1q_u16(p)); }
BT_INLINE vi vi_from_u8(const uint8_t *p) { return vi_of_u16(vmovl_u8(vld1_u8(p))); }
BT_INLINE void vi_store_u16(uint16_t *p, vi a) { /* each lane below 2^16 */
    vst1q_u16(p, vmovn_high_u32(vmovn_u32(vreinterpretq_u32_s32(a.l)), vreinterpretq_u32_s32(a.h)));
}
BT_INLINE vi vi_where_nan(vf x, vi a, vi b) {
    return (vi){vbslq_s32(vceqq_f32(x.l, x.l), b.l, a.l), vbslq_s32(vceqq_f32(x.h, x.h), b.h, a.h)};
}
/* half to even */
BT_INLINE vi vi_round(vf a) { return (vi){vcvtnq_s32_f32(a.l), vcvtnq_s32_f32(a.h)}; }
BT_INLINE vf v_float(vi a) { return (vf){vcvtq_f32_s32(a.l), vcvtq_f32_s32(a.h)}; }
BT_INLINE vi vi_bits(vf a) { return (vi){vreinterpretq_s32_f32(a.l), vreinterpretq_s32_f32(a.h)}; }
BT_INLINE vf v_bits(vi a) { return (vf){vreinterpretq_f32_s32(a.l), vreinterpretq_f32_s32(a.h)}; }
BT_INLINE int32_t vi_hsum(vi a) { return vaddvq_s32(vaddq_s32(a.l, a.h)); }
BT_INLINE int32_t vi_hmax(vi a) { return vmaxvq_s32(vmaxq_s32(a.l, a.h)); }
/* saturated to int8 */
BT_INLINE void vi_store_i8_n(int8_t *p, vi a, size_t n) {
    const int8x8_t b = vqmovn_s16(vqmovn_high_s32(vqmovn_s32(a.l), a.h));
    int8_t all[VL];
    if (n == VL) {
        vst1_s8(p, b);
        return;
    }
    vst1_s8(all, b);
    memcpy(p, all, n);
}
BT_INLINE void v_store_i8_n(int8_t *p, vf a, size_t n) { vi_store_i8_n(p, vi_round(a), n); }
BT_INLINE vf v_from_i8_n(const int8_t *p, size_t n) {
    int8_t all[VL] = {0};
    if (n < VL) p = memcpy(all, p, n);
    const int16x8_t w = vmovl_s8(vld1_s8(p));
    return v_float((vi){vmovl_s16(vget_low_s16(w)), vmovl_high_s16(w)});
}
/* n in [-126, 127], a whole number */
BT_INLINE vf v_pow2(vf x, vf n) {
    return v_mul(x, v_bits(vi_sll(vi_add(vi_round(n), vi_set(127)), 23)));
}

/* transposes four rows of four lanes */
BT_INLINE void q_transpose4(int32x4_t r[4]) {
    const int64x2_t a = vreinterpretq_s64_s32(vtrn1q_s32(r[0], r[1])),
                    b = vreinterpretq_s64_s32(vtrn2q_s32(r[0], r[1])),
                    c = vreinterpretq_s64_s32(vtrn1q_s32(r[2], r[3])),
                    d = vreinterpretq_s64_s32(vtrn2q_s32(r[2], r[3]));
    r[0] = vreinterpretq_s32_s64(vtrn1q_s64(a, c));
    r[1] = vreinterpretq_s32_s64(vtrn1q_s64(b, d));
    r[2] = vreinterpretq_s32_s64(vtrn2q_s64(a, c));
    r[3] = vreinterpretq_s32_s64(vtrn2q_s64(b, d));
}
BT_INLINE void transpose(vi r[VL]) {
    int32x4_t ll[4], lh[4], hl[4], hh[4]; /* halves of the rows below and from 4 on */
    BT_UNROLL for (int i = 0; i < 4; i++) ll[i] = r[i].l, lh[i] = r[i].h, hl[i] = r[4 + i].l,
                                          hh[i] = r[4 + i].h;
    q_transpose4(ll);
    q_transpose4(lh);
    q_transpose4(hl);
    q_transpose4(hh);
    BT_UNROLL for (int i = 0; i < 4; i++) {
        r[i] = (vi){ll[i], hl[i]};
        r[4 + i] = (vi){lh[i], hh[i]};
    }
}
BT_INLINE void transpose8(vf r[VL]) {
    vi t[VL];
    BT_UNROLL for (int i = 0; i < VL; i++) t[i] = vi_bits(r[i]);
    transpose(t);
    BT_UNROLL for (int i = 0; i < VL; i++) r[i] = v_bits(t[i]);
}

#endif /* BT_NEON */
#endif
