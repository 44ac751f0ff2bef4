/* isa_split.h - row slots for ranks that have only some columns of a row, over isa_vec.h: one source for AVX2 and
 * AVX-512.
 *
 * Roofline: as in isa_rows.h every array moves once. Between two slots the caller exchanges the results of the ranks'
 * columns. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_SPLIT_H
#define BT_ENGINE_KERNELS_ISA_ISA_SPLIT_H

#include "engine/kernels/isa/isa_rows.h"

#if defined(BT_VECTORS)

static void split_row_stats(bt_row_stat *out, const float *x, const float *gain, size_t rows,
                            size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        vf top = v_set(0), top2 = top;
        size_t c = 0;
        for (; c + 2 * VL <= C; c += 2 * VL) {
            top = v_max(top, v_abs(v_mul(v_load(xr + c), gain_at(gain, c, VL))));
            top2 = v_max(top2, v_abs(v_mul(v_load(xr + c + VL), gain_at(gain, c + VL, VL))));
        }
        for (; c < C; c += VL) {
            size_t n = C - c < VL ? C - c : VL;
            top = v_max(top, v_abs(v_mul(ld(xr + c, n), gain_at(gain, c, n))));
        }
        float most = v_hmax(v_max(top, top2));
        vf vmost = v_set(most), at = v_set(0), zero = at;
        EACH_VECTOR(C, vf a = ld(xr + i, n);
                    at = v_max(at, v_where_eq(v_abs(v_mul(a, gain_at(gain, i, n))), vmost, v_abs(a),
                                              zero)));
        float x0 = v_hmax(at);
        vf vx = v_set(x0), g = zero;
        if (gain)
            EACH_VECTOR(C, vf a = ld(xr + i, n); vf b = ld(gain + i, n);
                        g = v_max(g, v_where_eq(v_abs(v_mul(a, b)), vmost,
                                                v_where_eq(v_abs(a), vx, v_abs(b), zero), zero)));
        out[r] = (bt_row_stat){row_squares(xr, C), x0, gain ? v_hmax(g) : 1.0f};
    }
}

static void split_row_apply(int8_t *xq, float *dq, float *y, const float *x, const float *gain,
                            const float *rstd, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        vf s = v_set(rstd ? rstd[r] : 1.0f);
        if (y)
            EACH_VECTOR(C,
                        st(y + r * C + i, v_mul(v_mul(ld(xr + i, n), s), gain_at(gain, i, n)), n));
        if (!xq) continue;
        float a = dq[r] > 1e-5f ? dq[r] : 1e-5f;
        vf q = v_set(127.0f / a);
        EACH_VECTOR(C,
                    v_store_i8_n(xq + r * C + i,
                                 v_mul(v_mul(v_mul(ld(xr + i, n), s), gain_at(gain, i, n)), q), n));
        dq[r] = a / 127.0f;
    }
}

static void split_row_dot(double *out, const float *dy, const float *x, const float *gain,
                          size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C, *dyr = dy + r * C;
        vf sum = v_set(0), sum2 = sum;
        size_t c = 0;
        for (; c + 2 * VL <= C; c += 2 * VL) {
            sum = v_fma(v_mul(v_load(dyr + c), gain_at(gain, c, VL)), v_load(xr + c), sum);
            sum2 = v_fma(v_mul(v_load(dyr + c + VL), gain_at(gain, c + VL, VL)),
                         v_load(xr + c + VL), sum2);
        }
        for (; c < C; c += VL) {
            size_t n = C - c < VL ? C - c : VL;
            sum = v_fma(v_mul(ld(dyr + c, n), gain_at(gain, c, n)), ld(xr + c, n), sum);
        }
        out[r] = (double)v_hsum(v_add(sum, sum2));
    }
}

static void split_row_dx(float *dx, const float *dy, const float *x, const float *gain,
                         const float *rstd, const float *mean, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C, *dyr = dy + r * C;
        float *out = dx + r * C, s = rstd[r];
        vf vs = v_set(s), vk = v_set((float)((double)s * s * s * (double)mean[r]));
        EACH_VECTOR(
            C, st(out + i,
                  v_fnma(ld(xr + i, n), vk, v_mul(v_mul(ld(dyr + i, n), gain_at(gain, i, n)), vs)),
                  n));
    }
}

static void split_row_axpy(float *y, const float *x, const float *a, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        float *yr = y + r * C;
        vf k = v_set(a[r]);
        EACH_VECTOR(C, st(yr + i, v_add(ld(yr + i, n), v_mul(ld(xr + i, n), k)), n));
    }
}

static void split_row_lse(bt_row_stat *out, const float *logits, const int32_t *targets,
                          size_t rows, size_t V) {
    for (size_t r = 0; r < rows; r++) {
        const float *l = logits + r * V;
        vf top = v_set(-INFINITY);
        EACH_VECTOR(V, top = v_max(top, v_where_n(ld(l + i, n), top, n)));
        float m = v_hmax(top);
        vf vtop = v_set(m);
        double sum = 0;
        for (size_t b = 0; b < V; b += BT_SUM_BLOCK) {
            size_t count = V - b < BT_SUM_BLOCK ? V - b : BT_SUM_BLOCK;
            vf s = v_set(0);
            EACH_VECTOR(count,
                        s = v_add(s, v_where_n(v_exp(v_sub(ld(l + b + i, n), vtop)), v_set(0), n)));
            sum += (double)v_hsum(s);
        }
        out[r] = (bt_row_stat){sum, m, targets[r] < 0 ? 0.0f : l[targets[r]]};
    }
}

static void split_row_softmax(float *logits, const float *top, const float *k,
                              const int32_t *targets, float dscale, size_t rows, size_t V) {
    for (size_t r = 0; r < rows; r++) {
        float *l = logits + r * V;
        vf vtop = v_set(top[r]), vk = v_set(k[r]);
        EACH_VECTOR(V, st(l + i, v_mul(v_exp(v_sub(ld(l + i, n), vtop)), vk), n));
        if (targets[r] >= 0) l[targets[r]] -= dscale;
    }
}

#define BT_SPLIT_SLOTS \
    .row_stats = split_row_stats, .row_apply = split_row_apply, .row_dot = split_row_dot, \
    .row_dx = split_row_dx, .row_axpy = split_row_axpy, .row_lse = split_row_lse, \
    .row_softmax = split_row_softmax

#endif /* BT_VECTORS */
#endif
