/* isa_rows.h - row and flat slots over isa_vec.h: one source for AVX2 and AVX-512, included once by each set's
 * file.
 *
 * Roofline: every slot here moves its arrays once (a row fits L1, so a second pass over it is free); the bound is
 *           memory bandwidth, and for softmax and silu the ~14 instructions of exp per vector. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_ROWS_H
#define BT_ENGINE_KERNELS_ISA_ISA_ROWS_H

#include <math.h>
#include <string.h>

#include "engine/kernels/isa/isa_exact.h"
#include "engine/kernels/isa/isa_moments.h"
#include "engine/kernels/isa/isa_stats.h"
#include "engine/kernels/isa/isa_vec.h"
#include "engine/kernels/table/kernels.h"

#if defined(BT_VECTORS)

/* Calls `body` with (i, n) for each whole vector of [0, count), then once for the rest. With n == VL the compiler
 * removes masks. */
#define EACH_VECTOR(count, body) \
    do { \
        size_t i = 0, whole_ = (count) - (count) % VL; \
        for (; i < whole_; i += VL) { \
            const size_t n = VL; \
            body; \
        } \
        if (i < (count)) { \
            const size_t n = (count)-i; \
            body; \
        } \
    } while (0)

BT_INLINE vf ld(const float *p, size_t n) { return n == VL ? v_load(p) : v_load_n(p, n); }
BT_INLINE void st(float *p, vf a, size_t n) {
    if (n == VL)
        v_store(p, a);
    else
        v_store_n(p, a, n);
}
BT_INLINE vf gain_at(const float *gain, size_t i, size_t n) {
    return gain ? ld(gain + i, n) : v_set(1.0f);
}

/* dot products of a row in four interleaved accumulators */
BT_INLINE float row_dot(const float *a, const float *b, size_t C) {
    vf s[4] = {v_set(0), v_set(0), v_set(0), v_set(0)};
    size_t i = 0;
    for (; i + 4 * VL <= C; i += 4 * VL) {
        BT_UNROLL for (size_t j = 0; j < 4; j++)
            s[j] = v_fma(v_load(a + i + j * VL), v_load(b + i + j * VL), s[j]);
    }
    for (; i < C; i += VL) {
        size_t n = C - i < VL ? C - i : VL;
        s[0] = v_fma(v_load_n(a + i, n), v_load_n(b + i, n), s[0]);
    }
    return v_hsum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])));
}

/* Sums squares by strips of 32 columns, added in double. Ranks that divide a row at such strips obtain the sum of the
 * whole row, up to an error far below that of a float. */
BT_INLINE double row_squares(const float *x, size_t C) {
    enum { STRIP = 32 };
    vd low = d_zero(), high = low;
    size_t i = 0;
    for (; i + STRIP <= C; i += STRIP) {
        vf s = v_set(0);
        BT_UNROLL for (size_t j = 0; j < STRIP; j += VL) {
            vf v = v_load(x + i + j);
            s = v_fma(v, v, s);
        }
        low = d_add_low(low, s);
        high = d_add_high(high, s);
    }
    if (i < C) {
        vf s = v_set(0);
        for (; i < C; i += VL) {
            vf v = v_load_n(x + i, C - i < VL ? C - i : VL);
            s = v_fma(v, v, s);
        }
        low = d_add_low(low, s);
        high = d_add_high(high, s);
    }
    return d_hsum(low) + d_hsum(high);
}

BT_INLINE float row_rstd(const float *x, float eps, size_t C) {
    return (float)(1.0 / sqrt(row_squares(x, C) / (double)C + (double)eps));
}

static void rows_rmsnorm(float *y, float *rstd, const float *x, const float *gain, float eps,
                         size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        float s = row_rstd(xr, eps, C);
        if (rstd) rstd[r] = s;
        if (!y) continue;
        float *yr = y + r * C;
        EACH_VECTOR(C, st(yr + i, v_mul(v_mul(ld(xr + i, n), v_set(s)), gain_at(gain, i, n)), n));
    }
}

/* dx = rstd * (g dy - x * rstd^2 * mean(g dy x)) */
static void rows_rmsnorm_dx(float *dx, const float *dy, const float *x, const float *gain,
                            const float *rstd, int acc, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C, *dyr = dy + r * C;
        float *out = dx + r * C;
        vf sum = v_set(0), sum2 = v_set(0);
        size_t c = 0;
        for (; c + 2 * VL <= C; c += 2 * VL) {
            sum = v_fma(v_mul(v_load(dyr + c), gain_at(gain, c, VL)), v_load(xr + c), sum);
            sum2 = v_fma(v_mul(v_load(dyr + c + VL), gain_at(gain, c + VL, VL)),
                         v_load(xr + c + VL), sum2);
        }
        for (; c < C; c += VL) {
            size_t n = C - c < VL ? C - c : VL;
            sum = v_fma(v_mul(v_load_n(dyr + c, n), gain ? v_load_n(gain + c, n) : v_set(1.0f)),
                        v_load_n(xr + c, n), sum);
        }
        float s = rstd[r],
              k = (float)((double)s * s * s * (double)v_hsum(v_add(sum, sum2)) / (double)C);
        vf vs = v_set(s), vk = v_set(k);
        if (acc) {
            EACH_VECTOR(C, st(out + i,
                              v_add(ld(out + i, n),
                                    v_fnma(ld(xr + i, n), vk,
                                           v_mul(v_mul(ld(dyr + i, n), gain_at(gain, i, n)), vs))),
                              n));
        } else {
            EACH_VECTOR(C, st(out + i,
                              v_fnma(ld(xr + i, n), vk,
                                     v_mul(v_mul(ld(dyr + i, n), gain_at(gain, i, n)), vs)),
                              n));
        }
    }
}

/* Keeps a strip of four vectors of columns in registers over all rows. */
static void rows_rmsnorm_dgain(float *dgain, const float *dy, const float *x, const float *rstd,
                               size_t rows, size_t C, size_t c0, size_t c1) {
    size_t c = c0;
    for (; c + 4 * VL <= c1; c += 4 * VL) {
        vf s[4];
        BT_UNROLL for (size_t j = 0; j < 4; j++) s[j] = v_load(dgain + c + j * VL);
        for (size_t r = 0; r < rows; r++) {
            const float *d = dy + r * C + c, *xr = x + r * C + c;
            BT_UNROLL for (size_t j = 0; j < 4; j++)
                s[j] = v_fma(v_mul(v_load(d + j * VL), v_load(xr + j * VL)), v_set(rstd[r]), s[j]);
        }
        BT_UNROLL for (size_t j = 0; j < 4; j++) v_store(dgain + c + j * VL, s[j]);
    }
    for (; c < c1; c += VL) {
        size_t n = c1 - c < VL ? c1 - c : VL;
        vf s = v_load_n(dgain + c, n);
        for (size_t r = 0; r < rows; r++)
            s = v_fma(v_mul(v_load_n(dy + r * C + c, n), v_load_n(x + r * C + c, n)),
                      v_set(rstd[r]), s);
        v_store_n(dgain + c, s, n);
    }
}

BT_INLINE float row_absmax(const float *x, size_t C) {
    vf a = v_set(1e-5f), b = a;
    size_t i = 0;
    for (; i + 2 * VL <= C; i += 2 * VL) {
        a = v_max(a, v_abs(v_load(x + i)));
        b = v_max(b, v_abs(v_load(x + i + VL)));
    }
    for (; i < C; i += VL) a = v_max(a, v_abs(v_load_n(x + i, C - i < VL ? C - i : VL)));
    return v_hmax(v_max(a, b));
}

static void rows_quant(int8_t *xq, float *dq, const float *x, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        float a = row_absmax(xr, C), scale = 127.0f / a;
        EACH_VECTOR(C, v_store_i8_n(xq + r * C + i, v_mul(ld(xr + i, n), v_set(scale)), n));
        dq[r] = a / 127.0f;
    }
}

static void rows_rmsnorm_quant(int8_t *xq, float *dq, float *rstd, float *y, const float *x,
                               const float *gain, float eps, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        float s = row_rstd(xr, eps, C);
        vf vs = v_set(s), top = v_set(1e-5f);
        rstd[r] = s;
        if (y) {
            EACH_VECTOR(C, vf v = v_mul(v_mul(ld(xr + i, n), vs), gain_at(gain, i, n));
                        st(y + r * C + i, v, n); top = v_max(top, v_abs(v)));
        } else {
            EACH_VECTOR(
                C, top = v_max(top, v_abs(v_mul(v_mul(ld(xr + i, n), vs), gain_at(gain, i, n)))));
        }
        float a = v_hmax(top), scale = 127.0f / a;
        EACH_VECTOR(C, v_store_i8_n(xq + r * C + i,
                                    v_mul(v_mul(v_mul(ld(xr + i, n), vs), gain_at(gain, i, n)),
                                          v_set(scale)),
                                    n));
        dq[r] = a / 127.0f;
    }
}

static void rows_rope(float *x, size_t row_ld, const bt_rotation *by, int inverse, size_t rows,
                      size_t heads, size_t D) {
    size_t half = by->dims / 2;
    vf sign = v_set(inverse ? -1.0f : 1.0f);
    for (size_t r = 0; r < rows; r++) {
        const size_t at = (size_t)by->pos[r] * half;
        const float *co = by->cos + at, *si = by->sin + at;
        for (size_t h = 0; h < heads; h++) {
            float *p = x + r * row_ld + h * D;
            EACH_VECTOR(half, vf a = ld(p + i, n); vf b = ld(p + half + i, n); vf c = ld(co + i, n);
                        vf s = v_mul(ld(si + i, n), sign); st(p + i, v_fnma(b, s, v_mul(a, c)), n);
                        st(p + half + i, v_fma(a, s, v_mul(b, c)), n));
        }
    }
}

BT_INLINE vf sigmoid(vf g) {
    return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_sub(v_set(0), g))));
}

BT_INLINE vf gelu_gate(vf g) {
    const vf cube = v_fma(v_mul(g, g), v_set(BT_GELU_CUBE), v_set(1.0f));
    return sigmoid(v_mul(v_mul(g, v_set(BT_GELU)), cube));
}

static void rows_glu(float *y, const float *gate, const float *up, bt_act act, size_t count) {
    if (act == BT_ACT_RELU2) {
        EACH_VECTOR(count, vf g = v_max(ld(gate + i, n), v_set(0));
                    st(y + i, v_mul(v_mul(g, g), ld(up + i, n)), n));
    } else if (act == BT_ACT_GELU) {
        EACH_VECTOR(count, vf g = ld(gate + i, n);
                    st(y + i, v_mul(v_mul(g, gelu_gate(g)), ld(up + i, n)), n));
    } else {
        EACH_VECTOR(count, vf g = ld(gate + i, n);
                    st(y + i, v_mul(v_mul(g, sigmoid(g)), ld(up + i, n)), n));
    }
}

static void rows_glu_bwd(float *dgate, float *dup, const float *dy, const float *gate,
                         const float *up, bt_act act, size_t count) {
    if (act == BT_ACT_RELU2) {
        EACH_VECTOR(count, vf g = v_max(ld(gate + i, n), v_set(0)); vf d = ld(dy + i, n);
                    vf u = ld(up + i, n); st(dgate + i, v_mul(v_mul(d, u), v_add(g, g)), n);
                    st(dup + i, v_mul(d, v_mul(g, g)), n));
    } else if (act == BT_ACT_GELU) {
        EACH_VECTOR(count, vf g = ld(gate + i, n); vf d = ld(dy + i, n); vf u = ld(up + i, n);
                    vf p = gelu_gate(g); vf rest = v_mul(p, v_sub(v_set(1.0f), p));
                    vf inner = v_fma(v_mul(g, g), v_set(3.0f * BT_GELU_CUBE), v_set(1.0f));
                    vf slope = v_fma(v_mul(rest, v_mul(g, v_set(BT_GELU))), inner, p);
                    st(dgate + i, v_mul(v_mul(d, u), slope), n);
                    st(dup + i, v_mul(d, v_mul(g, p)), n));
    } else {
        EACH_VECTOR(count, vf g = ld(gate + i, n); vf d = ld(dy + i, n); vf u = ld(up + i, n);
                    vf s = sigmoid(g);
                    vf slope = v_mul(s, v_fma(g, v_sub(v_set(1.0f), s), v_set(1.0f)));
                    st(dgate + i, v_mul(v_mul(d, u), slope), n);
                    st(dup + i, v_mul(d, v_mul(g, s)), n));
    }
}

/* Reads the row twice: the sum of exp needs the maximum, and the gradient needs the sum. Partial sums are in
 * vectors over BT_SUM_BLOCK logits, then in double. */
static void rows_softmax_xent(float *loss, float *logits, const int32_t *targets, float dscale,
                              size_t rows, size_t V) {
    for (size_t r = 0; r < rows; r++) {
        float *l = logits + r * V;
        if (targets[r] < 0) {
            loss[r] = 0;
            if (dscale != 0) memset(l, 0, V * sizeof *l);
            continue;
        }
        vf m0 = v_set(-INFINITY), m1 = m0;
        size_t j = 0;
        for (; j + 2 * VL <= V; j += 2 * VL) {
            m0 = v_max(m0, v_load(l + j));
            m1 = v_max(m1, v_load(l + j + VL));
        }
        for (; j < V; j += VL) {
            size_t n = V - j < VL ? V - j : VL;
            m0 = v_max(m0, v_where_n(v_load_n(l + j, n), m0, n));
        }
        float top = v_hmax(v_max(m0, m1)), want = l[targets[r]];
        vf vtop = v_set(top);
        double sum = 0;
        for (size_t b = 0; b < V; b += BT_SUM_BLOCK) {
            size_t count = V - b < BT_SUM_BLOCK ? V - b : BT_SUM_BLOCK;
            float *lb = l + b;
            vf s = v_set(0);
            if (dscale != 0) { /* the logit is replaced by its exp */
                EACH_VECTOR(count, vf e = v_exp(v_sub(ld(lb + i, n), vtop)); st(lb + i, e, n);
                            s = v_add(s, v_where_n(e, v_set(0), n)));
            } else {
                EACH_VECTOR(
                    count, s = v_add(s, v_where_n(v_exp(v_sub(ld(lb + i, n), vtop)), v_set(0), n)));
            }
            sum += (double)v_hsum(s);
        }
        // cppcheck-suppress invalidFunctionArg ; the sum has exp(0) in it
        loss[r] = (float)(log(sum) + (double)top - (double)want);
        if (dscale == 0) continue;
        vf k = v_set((float)((double)dscale / sum));
        EACH_VECTOR(V, st(l + i, v_mul(ld(l + i, n), k), n));
        l[targets[r]] -= dscale;
    }
}

static void rows_add(float *y, const float *x, size_t count) {
    EACH_VECTOR(count, st(y + i, v_add(ld(y + i, n), ld(x + i, n)), n));
}
static void rows_scale(float *y, float a, size_t count) {
    EACH_VECTOR(count, st(y + i, v_mul(ld(y + i, n), v_set(a)), n));
}

/* the nearest bf16, its bits in the low half of each lane */
BT_INLINE vi bf16_of(vf v) {
    const vi b = vi_bits(v), odd = vi_and(vi_srl(b, 16), vi_set(1));
    return vi_where_nan(v, vi_or(vi_srl(b, 16), vi_set(0x40)),
                        vi_srl(vi_add(vi_add(b, vi_set(0x7fff)), odd), 16));
}

static void rows_to_bf16(uint16_t *y, const float *x, size_t count) {
    size_t i = 0;
    for (; i + VL <= count; i += VL) {
        vi_store_u16(y + i, bf16_of(v_load(x + i)));
    }
    if (i < count) bt_kernels_generic.to_bf16(y + i, x + i, count - i);
}

static void rows_from_bf16(float *y, const uint16_t *x, size_t count) {
    size_t i = 0;
    for (; i + VL <= count; i += VL) v_store(y + i, v_bits(vi_sll(vi_from_u16(x + i), 16)));
    if (i < count) bt_kernels_generic.from_bf16(y + i, x + i, count - i);
}

static void rows_to_half(uint16_t *y, const float *x, size_t count) {
    size_t i = 0;
    for (; i + VL <= count; i += VL) {
        vf v = v_load(x + i);
        if (v_any_nan(v))
            bt_kernels_generic.to_half(y + i, x + i, VL);
        else
            v_store_half(y + i, v);
    }
    if (i < count) bt_kernels_generic.to_half(y + i, x + i, count - i);
}

static void rows_from_half(float *y, const uint16_t *x, size_t count) {
    size_t i = 0;
    for (; i + VL <= count; i += VL) v_store(y + i, v_load_half(x + i));
    if (i < count) bt_kernels_generic.from_half(y + i, x + i, count - i);
}

#define SUM_SLOT(name, term) \
    static double name(const float *x, size_t count) { \
        vf s[4] = {v_set(0), v_set(0), v_set(0), v_set(0)}; \
        size_t i = 0; \
        for (; i + 4 * VL <= count; i += 4 * VL) { \
            BT_UNROLL for (size_t j = 0; j < 4; j++) { \
                vf v = v_load(x + i + j * VL); \
                s[j] = term(v, s[j]); \
            } \
        } \
        for (; i < count; i += VL) { \
            vf v = v_load_n(x + i, count - i < VL ? count - i : VL); \
            s[0] = term(v, s[0]); \
        } \
        return (double)v_hsum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3]))); \
    }
#define TERM_SQUARE(v, s) v_fma(v, v, s)
SUM_SLOT(rows_sum_squares, TERM_SQUARE)

/* Sums for a weight's scale are in double: the result as float does not depend on the distribution over ranks. */
#define PRECISE_SUM_SLOT(name, term) \
    static double name(const float *x, size_t count) { \
        vd low = d_zero(), high = low; \
        EACH_VECTOR(count, vf v = term(ld(x + i, n)); low = d_add_low(low, v); \
                    high = d_add_high(high, v)); \
        return d_hsum(low) + d_hsum(high); \
    }
#define SAME(v) (v)
PRECISE_SUM_SLOT(rows_sum_abs, v_abs)
PRECISE_SUM_SLOT(rows_sum, SAME)

static void rows_adamw(float *w, const float *g, float *m, float *v, float grad_scale, float lr,
                       float b1, float b2, float eps, float decay, float c1, float c2,
                       size_t count) {
    vf gs = v_set(grad_scale), vb1 = v_set(b1), vb2 = v_set(b2), nb1 = v_set(1.0f - b1),
       nb2 = v_set(1.0f - b2);
    vf keep = v_set(1.0f - lr * decay), step = v_set(lr / c1), root = v_set(1.0f / sqrtf(c2)),
       ve = v_set(eps);
    EACH_VECTOR(count, vf gi = v_mul(ld(g + i, n), gs);
                vf mi = v_fma(vb1, ld(m + i, n), v_mul(nb1, gi));
                vf va = v_fma(vb2, ld(v + i, n), v_mul(v_mul(nb2, gi), gi)); st(m + i, mi, n);
                st(v + i, va, n); vf u = v_div(v_mul(step, mi), v_fma(v_sqrt(va), root, ve));
                st(w + i, v_sub(v_mul(ld(w + i, n), keep), u), n));
}

#if defined(BT_NEON)
static bt_tern_stats rows_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale,
                                     int sign, size_t count) {
    bt_tern_stats st_ = {0, 0, 0};
    const vf vm = v_set(mean), vs = v_set(inv_scale);
    size_t i = 0;
    for (; i + VL <= count; i += VL) {
        const vf x = v_sub(v_load(w + i), vm), q = sign ? x : v_rint(v_mul(x, vs));
        const uint16x8_t pos = vmovn_high_u32(vmovn_u32(vcgtzq_f32(q.l)), vcgtzq_f32(q.h)),
                         neg = vmovn_high_u32(vmovn_u32(vcltzq_f32(q.l)), vcltzq_f32(q.h));
        /* masks are -1 */
        const int8x8_t p = vreinterpret_s8_u8(vmovn_u16(pos)),
                       c = vsub_s8(vreinterpret_s8_u8(vmovn_u16(neg)), p),
                       same = vreinterpret_s8_u8(vceq_s8(c, vld1_s8(codes + i)));
        st_.pos += (unsigned)-vaddv_s8(p);
        st_.zero += 8u - (unsigned)vaddv_s8(vabs_s8(c));
        st_.flips += 8u - (unsigned)-vaddv_s8(same);
        vst1_s8(codes + i, c);
    }
#elif defined(__AVX512F__)
/* Converts 64 codes at a time as masks: ties round to even, so rint(x) > 0 exactly where x > 1/2. The last codes
 * use the generic loop, because a masked store of bytes takes 50 cycles on some processors. */
static bt_tern_stats rows_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale,
                                     int sign, size_t count) {
    bt_tern_stats st_ = {0, 0, 0};
    const __m512 vm = _mm512_set1_ps(mean), vs = _mm512_set1_ps(sign ? 1.0f : inv_scale);
    const __m512 more = _mm512_set1_ps(sign ? 0.0f : 0.5f),
                 less = _mm512_set1_ps(sign ? 0.0f : -0.5f);
    size_t i = 0;
    for (; i + 64 <= count; i += 64) {
        uint64_t pos = 0, neg = 0;
        BT_UNROLL for (size_t h = 0; h < 64; h += 16) {
            __m512 x = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(w + i + h), vm), vs);
            pos |= (uint64_t)_mm512_cmp_ps_mask(x, more, _CMP_GT_OQ) << h;
            neg |= (uint64_t)_mm512_cmp_ps_mask(x, less, _CMP_LT_OQ) << h;
        }
        /* bytes of a mask are -1 */
        __m512i c = _mm512_sub_epi8(_mm512_movm_epi8(neg), _mm512_movm_epi8(pos));
        st_.flips += (unsigned)__builtin_popcountll(
            _mm512_cmpneq_epi8_mask(c, _mm512_loadu_si512(codes + i)));
        st_.pos += (unsigned)__builtin_popcountll(pos);
        st_.zero += 64u - (unsigned)__builtin_popcountll(pos | neg);
        _mm512_storeu_si512(codes + i, c);
    }
#else
static bt_tern_stats rows_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale,
                                     int sign, size_t count) {
    bt_tern_stats st_ = {0, 0, 0};
    const __m256 vm = _mm256_set1_ps(mean), vs = _mm256_set1_ps(inv_scale),
                 zero = _mm256_setzero_ps();
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 x = _mm256_sub_ps(_mm256_loadu_ps(w + i), vm),
               q = sign ? x : v_rint(_mm256_mul_ps(x, vs));
        __m256i pos = _mm256_castps_si256(_mm256_cmp_ps(q, zero, _CMP_GT_OQ)),
                neg = _mm256_castps_si256(_mm256_cmp_ps(q, zero, _CMP_LT_OQ));
        __m256i c32 = _mm256_sub_epi32(neg, pos); /* masks are -1 */
        __m128i c16 = _mm_packs_epi32(_mm256_castsi256_si128(c32),
                                      _mm256_extracti128_si256(c32, 1)),
                c = _mm_packs_epi16(c16, c16);
        __m128i old = _mm_loadl_epi64((const __m128i *)(const void *)(codes + i));
        unsigned p = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(pos)),
                 g = (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(neg));
        st_.pos += (unsigned)__builtin_popcount(p);
        st_.zero += 8u - (unsigned)__builtin_popcount(p | g);
        st_.flips += 8u - (unsigned)__builtin_popcount(
                              (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(c, old)) & 0xffu);
        _mm_storel_epi64((__m128i *)(void *)(codes + i), c);
    }
#endif
    if (i < count) {
        bt_tern_stats tail = bt_kernels_generic.tern_codes(codes + i, w + i, mean, inv_scale, sign,
                                                           count - i);
        st_.zero += tail.zero;
        st_.pos += tail.pos;
        st_.flips += tail.flips;
    }
    return st_;
}

#define BT_ROWS_SLOTS \
    .rmsnorm = rows_rmsnorm, .rmsnorm_dx = rows_rmsnorm_dx, .rmsnorm_dgain = rows_rmsnorm_dgain, \
    .quant_rows = rows_quant, .rmsnorm_quant = rows_rmsnorm_quant, .rope = rows_rope, \
    .glu = rows_glu, .glu_bwd = rows_glu_bwd, .softmax_xent = rows_softmax_xent, .add = rows_add, \
    .scale = rows_scale, .to_bf16 = rows_to_bf16, .from_bf16 = rows_from_bf16, \
    .to_half = rows_to_half, .from_half = rows_from_half, .sum_squares = rows_sum_squares, \
    .sum_abs = rows_sum_abs, .sum = rows_sum, .adamw = rows_adamw, .tern_codes = rows_tern_codes, \
    BT_EXACT_SLOTS, BT_STATS_SLOTS, BT_MOMENTS_SLOTS

#endif /* BT_VECTORS */
#endif
