/* isa_generic.c - every slot in plain loops: the oracle that faster sets are tested against. Rows
 * and flat arrays here, products in isa_generic_gemm.c. Sums over a row run in double, so the
 * oracle's own error is far below any bound. */
#include "engine/kernels/isa/isa_generic.h"

#include <math.h>
#include <string.h>

#include "engine/kernels/isa/isa_exact.h"
#include "engine/kernels/isa/isa_moments.h"
#include "engine/kernels/isa/isa_stats.h"
#include "engine/kernels/table/half.h"

static float generic_row_rstd(const float *x, float eps, size_t C) {
    double sum = 0;
    for (size_t c = 0; c < C; c++) sum += (double)x[c] * x[c];
    return (float)(1.0 / sqrt(sum / (double)C + (double)eps));
}

static void rmsnorm(float *y, float *rstd, const float *x, const float *gain, float eps,
                    size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        float s = generic_row_rstd(x + r * C, eps, C);
        if (rstd) rstd[r] = s;
        for (size_t c = 0; y && c < C; c++)
            y[r * C + c] = x[r * C + c] * s * (gain ? gain[c] : 1.0f);
    }
}

/* dx = rstd * (g dy - x * rstd^2 * mean(g dy x)) */
static void rmsnorm_dx(float *dx, const float *dy, const float *x, const float *gain,
                       const float *rstd, int acc, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C, *dyr = dy + r * C;
        double dot = 0;
        for (size_t c = 0; c < C; c++) dot += (double)dyr[c] * (gain ? gain[c] : 1.0f) * xr[c];
        double s = rstd[r], k = s * s * dot / (double)C;
        for (size_t c = 0; c < C; c++) {
            float v = (float)(s * ((double)dyr[c] * (gain ? gain[c] : 1.0f) - xr[c] * k));
            dx[r * C + c] = acc ? dx[r * C + c] + v : v;
        }
    }
}

static void rmsnorm_dgain(float *dgain, const float *dy, const float *x, const float *rstd,
                          size_t rows, size_t C, size_t c0, size_t c1) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = c0; c < c1; c++) dgain[c] += dy[r * C + c] * x[r * C + c] * rstd[r];
    }
}

static void quant_row(int8_t *xq, float *dq, const float *x, size_t C) {
    float a = 1e-5f;
    for (size_t c = 0; c < C; c++) a = fmaxf(a, fabsf(x[c]));
    float scale = 127.0f / a;
    for (size_t c = 0; c < C; c++) {
        float q = rintf(x[c] * scale);
        xq[c] = (int8_t)(q < -128.0f ? -128.0f : q > 127.0f ? 127.0f : q);
    }
    *dq = a / 127.0f;
}

static void quant_rows(int8_t *xq, float *dq, const float *x, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) quant_row(xq + r * C, dq + r, x + r * C, C);
}

static void rmsnorm_quant(int8_t *xq, float *dq, float *rstd, float *y, const float *x,
                          const float *gain, float eps, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        const float *xr = x + r * C;
        float s = generic_row_rstd(xr, eps, C), a = 1e-5f;
        rstd[r] = s;
        for (size_t c = 0; c < C; c++) {
            float v = xr[c] * s * (gain ? gain[c] : 1.0f);
            if (y) y[r * C + c] = v;
            a = fmaxf(a, fabsf(v));
        }
        float scale = 127.0f / a;
        for (size_t c = 0; c < C; c++) {
            float q = rintf(xr[c] * s * (gain ? gain[c] : 1.0f) * scale);
            xq[r * C + c] = (int8_t)(q < -128.0f ? -128.0f : q > 127.0f ? 127.0f : q);
        }
        dq[r] = a / 127.0f;
    }
}

static void rope(float *x, size_t ld, const bt_rotation *by, int inverse, size_t rows, size_t heads,
                 size_t D) {
    size_t half = by->dims / 2;
    for (size_t r = 0; r < rows; r++) {
        const size_t at = (size_t)by->pos[r] * half;
        const float *co = by->cos + at, *si = by->sin + at;
        for (size_t h = 0; h < heads; h++) {
            float *p = x + r * ld + h * D;
            for (size_t i = 0; i < half; i++) {
                float a = p[i], b = p[i + half], s = inverse ? -si[i] : si[i];
                p[i] = a * co[i] - b * s;
                p[i + half] = b * co[i] + a * s;
            }
        }
    }
}

static float gelu_gate(float g) {
    return 1.0f / (1.0f + expf(-BT_GELU * g * (1.0f + BT_GELU_CUBE * g * g)));
}

static float act_value(float g, bt_act act) {
    if (act == BT_ACT_RELU2) return g > 0 ? g * g : 0.0f;
    if (act == BT_ACT_GELU) return g * gelu_gate(g);
    return g / (1.0f + expf(-g));
}

static float act_slope(float g, bt_act act) {
    if (act == BT_ACT_RELU2) return g > 0 ? 2.0f * g : 0.0f;
    if (act == BT_ACT_GELU) {
        const float p = gelu_gate(g);
        return p + p * (1.0f - p) * BT_GELU * g * (1.0f + 3.0f * BT_GELU_CUBE * g * g);
    }
    float s = 1.0f / (1.0f + expf(-g));
    return s * (1.0f + g * (1.0f - s));
}

static void glu(float *y, const float *gate, const float *up, bt_act act, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = act_value(gate[i], act) * up[i];
}

static void glu_bwd(float *dgate, float *dup, const float *dy, const float *gate, const float *up,
                    bt_act act, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float g = gate[i], u = up[i];
        dgate[i] = dy[i] * u * act_slope(g, act);
        dup[i] = dy[i] * act_value(g, act);
    }
}

static void softmax_xent(float *loss, float *logits, const int32_t *targets, float dscale,
                         size_t rows, size_t V) {
    for (size_t r = 0; r < rows; r++) {
        float *l = logits + r * V, top = -INFINITY;
        if (targets[r] < 0) {
            loss[r] = 0;
            if (dscale != 0) memset(l, 0, V * sizeof *l);
            continue;
        }
        for (size_t i = 0; i < V; i++) top = fmaxf(top, l[i]);
        double sum = 0;
        for (size_t i = 0; i < V; i++) sum += (double)expf(l[i] - top);
        // cppcheck-suppress invalidFunctionArg ; the sum has exp(0) in it
        loss[r] = (float)(log(sum) + (double)top - (double)l[targets[r]]);
        for (size_t i = 0; dscale != 0 && i < V; i++) {
            l[i] = (float)((double)expf(l[i] - top) / sum - (i == (size_t)targets[r] ? 1.0 : 0.0)) *
                   dscale;
        }
    }
}

static void generic_add(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static void scale(float *y, float a, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] *= a;
}

static void to_bf16(uint16_t *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t b;
        memcpy(&b, x + i, sizeof b);
        y[i] = (b & 0x7fffffffu) > 0x7f800000u ? (uint16_t)(b >> 16 | 0x40u)
                                               : (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
    }
}

static void from_bf16(float *y, const uint16_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t b = (uint32_t)x[i] << 16;
        memcpy(y + i, &b, sizeof b);
    }
}

static void to_half(uint16_t *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = bt_float_to_half(x[i]);
}

static void from_half(float *y, const uint16_t *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = bt_half_to_float(x[i]);
}

static double sum_squares(const float *x, size_t n) {
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)x[i] * x[i];
    return s;
}

static double sum_abs(const float *x, size_t n) {
    double s = 0;
    for (size_t i = 0; i < n; i++) s += fabs((double)x[i]);
    return s;
}

static double sum(const float *x, size_t n) {
    double s = 0;
    for (size_t i = 0; i < n; i++) s += (double)x[i];
    return s;
}

/* decoupled weight decay: Loshchilov and Hutter, arXiv:1711.05101 */
static void adamw(float *w, const float *g, float *m, float *v, float grad_scale, float lr,
                  float b1, float b2, float eps, float decay, float c1, float c2, size_t n) {
    float keep = 1.0f - lr * decay, step = lr / c1, root = 1.0f / sqrtf(c2);
    for (size_t i = 0; i < n; i++) {
        float grad = g[i] * grad_scale;
        m[i] = b1 * m[i] + (1.0f - b1) * grad;
        v[i] = b2 * v[i] + (1.0f - b2) * grad * grad;
        w[i] = w[i] * keep - step * m[i] / (sqrtf(v[i]) * root + eps);
    }
}

static bt_tern_stats generic_tern_codes(int8_t *codes, const float *w, float mean, float inv_scale,
                                        int sign, size_t n) {
    bt_tern_stats st = {0, 0, 0};
    for (size_t i = 0; i < n; i++) {
        float x = w[i] - mean, q = rintf(x * inv_scale);
        int c = sign ? (x > 0) - (x < 0) : q < -1.0f ? -1 : q > 1.0f ? 1 : (int)q;
        st.zero += c == 0;
        st.pos += c > 0;
        st.flips += c != codes[i];
        codes[i] = (int8_t)c;
    }
    return st;
}

static double weight_at(const void *w, bt_stored_as as, size_t i) {
    switch (as) {
    case BT_AS_BF16: return (double)bt_bf16_to_float(((const uint16_t *)w)[i]);
    case BT_AS_F16: return (double)bt_half_to_float(((const uint16_t *)w)[i]);
    default: return (double)((const float *)w)[i];
    }
}

static void gemv(float *y, size_t ldy, const void *w, bt_stored_as as, const float *x, size_t M,
                 size_t K, size_t n0, size_t n1) {
    for (size_t m = 0; m < M; m++)
        for (size_t n = n0; n < n1; n++) {
            double s = 0;
            for (size_t k = 0; k < K; k++) s += weight_at(w, as, n * K + k) * (double)x[m * K + k];
            y[m * ldy + n] = (float)s;
        }
}

/* ---- rows of which a rank has some columns only ----------------------------------------------- */

static float generic_gain_at(const float *gain, size_t c) { return gain ? gain[c] : 1.0f; }

static void row_stats(bt_row_stat *out, const float *x, const float *gain, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        bt_row_stat s = {0, 0, 1};
        float top = 0;
        for (size_t c = 0; c < C; c++) {
            float v = fabsf(x[r * C + c] * generic_gain_at(gain, c));
            s.sum += (double)x[r * C + c] * x[r * C + c];
            if (!(v > top)) continue;
            top = v;
            s.a = fabsf(x[r * C + c]);
            s.b = fabsf(generic_gain_at(gain, c));
        }
        out[r] = s;
    }
}

static void row_apply(int8_t *xq, float *dq, float *y, const float *x, const float *gain,
                      const float *rstd, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        float s = rstd ? rstd[r] : 1.0f, a = xq ? fmaxf(dq[r], 1e-5f) : 1.0f, most = 127.0f / a;
        for (size_t c = 0; c < C; c++) {
            float v = x[r * C + c] * s * generic_gain_at(gain, c), q = rintf(v * most);
            if (y) y[r * C + c] = v;
            if (xq) xq[r * C + c] = (int8_t)(q < -128.0f ? -128.0f : q > 127.0f ? 127.0f : q);
        }
        if (xq) dq[r] = a / 127.0f;
    }
}

static void generic_row_dot(double *out, const float *dy, const float *x, const float *gain,
                            size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        double dot = 0;
        for (size_t c = 0; c < C; c++)
            dot += (double)dy[r * C + c] * generic_gain_at(gain, c) * x[r * C + c];
        out[r] = dot;
    }
}

static void row_dx(float *dx, const float *dy, const float *x, const float *gain, const float *rstd,
                   const float *mean, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        double s = rstd[r], k = s * s * (double)mean[r];
        for (size_t c = 0; c < C; c++)
            dx[r * C + c] =
                (float)(s * ((double)dy[r * C + c] * generic_gain_at(gain, c) - x[r * C + c] * k));
    }
}

static void row_axpy(float *y, const float *x, const float *a, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < C; c++) y[r * C + c] += x[r * C + c] * a[r];
    }
}

static void row_lse(bt_row_stat *out, const float *logits, const int32_t *targets, size_t rows,
                    size_t V) {
    for (size_t r = 0; r < rows; r++) {
        const float *l = logits + r * V;
        bt_row_stat s = {0, -INFINITY, targets[r] < 0 ? 0.0f : l[targets[r]]};
        for (size_t i = 0; i < V; i++) s.a = fmaxf(s.a, l[i]);
        for (size_t i = 0; i < V; i++) s.sum += (double)expf(l[i] - s.a);
        out[r] = s;
    }
}

static void row_softmax(float *logits, const float *top, const float *k, const int32_t *targets,
                        float dscale, size_t rows, size_t V) {
    for (size_t r = 0; r < rows; r++) {
        float *l = logits + r * V;
        for (size_t i = 0; i < V; i++) l[i] = expf(l[i] - top[r]) * k[r];
        if (targets[r] >= 0) l[targets[r]] -= dscale;
    }
}

/* independent chains of baseline vectors; x -> 0.5 x + 1 stays finite */
static double generic_peak_ops(bt_peak kind, size_t rounds) {
    enum { CHAINS = 32, TURNS = 64 };
    float x[CHAINS] = {0};
    if (kind != BT_PEAK_FP32) return 0;
    for (size_t r = 0; r < rounds * TURNS; r++) {
        for (int i = 0; i < CHAINS; i++) x[i] = x[i] * 0.5f + 1.0f;
    }
    float sum = 0;
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    return sum >= 0 ? 2.0 * CHAINS * TURNS * (double)rounds : 0;
}

const bt_kernels bt_kernels_generic = {
    .name = "generic",
    .rmsnorm = rmsnorm,
    .rmsnorm_dx = rmsnorm_dx,
    .rmsnorm_dgain = rmsnorm_dgain,
    .quant_rows = quant_rows,
    .rmsnorm_quant = rmsnorm_quant,
    .rope = rope,
    .glu = glu,
    .glu_bwd = glu_bwd,
    .softmax_xent = softmax_xent,
    .row_stats = row_stats,
    .row_apply = row_apply,
    .row_dot = generic_row_dot,
    .row_dx = row_dx,
    .row_axpy = row_axpy,
    .row_lse = row_lse,
    .row_softmax = row_softmax,
    .add = generic_add,
    .scale = scale,
    .to_bf16 = to_bf16,
    .from_bf16 = from_bf16,
    .to_half = to_half,
    .from_half = from_half,
    .sum_squares = sum_squares,
    .sum_abs = sum_abs,
    .sum = sum,
    .adamw = adamw,
    BT_EXACT_SLOTS,
    BT_STATS_SLOTS,
    BT_MOMENTS_SLOTS,
    .tern_codes = generic_tern_codes,
    .tern_bytes = bt_generic_tern_bytes,
    .tern_pack = bt_generic_tern_pack,
    .packed_2bit_bytes = bt_generic_packed_2bit_bytes,
    .packed_2bit_pack = bt_generic_packed_2bit_pack,
    .packed_2bit_codes = bt_generic_packed_2bit_codes,
    .tern_fwd = bt_generic_tern_fwd,
    .tern_dx = bt_generic_tern_dx,
    .tern_dw = bt_generic_tern_dw,
    .tern_dx8 = bt_generic_tern_dx8,
    .tern_dw8 = bt_generic_tern_dw8,
    .w8_bytes = bt_generic_w8_bytes,
    .w8_pack = bt_generic_w8_pack,
    .w8_dx8 = bt_generic_w8_dx8,
    .w8_fwd = bt_generic_w8_fwd,
    .gemm = bt_generic_gemm,
    .attn_fwd = bt_generic_attn_fwd,
    .attn_bwd = bt_generic_attn_bwd,
    .tern_gemv = bt_generic_tern_gemv,
    .gemv = gemv,
    .peak_ops = generic_peak_ops,
    .scratch_bytes = bt_generic_scratch_bytes,
};
