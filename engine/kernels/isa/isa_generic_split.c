/* isa_generic_split.c - the oracle of the row slots of which a rank has some columns only. */
#include <math.h>

#include "engine/kernels/isa/isa_generic.h"

static float gain_at(const float *gain, size_t c) { return gain ? gain[c] : 1.0f; }

void bt_generic_row_stats(bt_row_stat *out, const float *x, const float *gain, size_t rows,
                          size_t C) {
    for (size_t r = 0; r < rows; r++) {
        bt_row_stat s = {0, 0, 1};
        float top = 0;
        for (size_t c = 0; c < C; c++) {
            float v = fabsf(x[r * C + c] * gain_at(gain, c));
            s.sum += (double)x[r * C + c] * x[r * C + c];
            if (!(v > top)) continue;
            top = v;
            s.a = fabsf(x[r * C + c]);
            s.b = fabsf(gain_at(gain, c));
        }
        out[r] = s;
    }
}

void bt_generic_row_apply(int8_t *xq, float *dq, float *y, const float *x, const float *gain,
                          const float *rstd, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        float s = rstd ? rstd[r] : 1.0f, a = xq ? fmaxf(dq[r], 1e-5f) : 1.0f, scale = 127.0f / a;
        for (size_t c = 0; c < C; c++) {
            float v = x[r * C + c] * s * gain_at(gain, c), q = rintf(v * scale);
            if (y) y[r * C + c] = v;
            if (xq) xq[r * C + c] = (int8_t)(q < -128.0f ? -128.0f : q > 127.0f ? 127.0f : q);
        }
        if (xq) dq[r] = a / 127.0f;
    }
}

void bt_generic_row_dot(double *out, const float *dy, const float *x, const float *gain,
                        size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        double dot = 0;
        for (size_t c = 0; c < C; c++)
            dot += (double)dy[r * C + c] * gain_at(gain, c) * x[r * C + c];
        out[r] = dot;
    }
}

void bt_generic_row_dx(float *dx, const float *dy, const float *x, const float *gain,
                       const float *rstd, const float *mean, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        double s = rstd[r], k = s * s * (double)mean[r];
        for (size_t c = 0; c < C; c++)
            dx[r * C + c] =
                (float)(s * ((double)dy[r * C + c] * gain_at(gain, c) - x[r * C + c] * k));
    }
}

void bt_generic_row_axpy(float *y, const float *x, const float *a, size_t rows, size_t C) {
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < C; c++) y[r * C + c] += x[r * C + c] * a[r];
    }
}

void bt_generic_row_lse(bt_row_stat *out, const float *logits, const int32_t *targets, size_t rows,
                        size_t V) {
    for (size_t r = 0; r < rows; r++) {
        const float *l = logits + r * V;
        bt_row_stat s = {0, -INFINITY, targets[r] < 0 ? 0.0f : l[targets[r]]};
        for (size_t i = 0; i < V; i++) s.a = fmaxf(s.a, l[i]);
        for (size_t i = 0; i < V; i++) s.sum += (double)expf(l[i] - s.a);
        out[r] = s;
    }
}

void bt_generic_row_softmax(float *logits, const float *top, const float *k, const int32_t *targets,
                            float dscale, size_t rows, size_t V) {
    for (size_t r = 0; r < rows; r++) {
        float *l = logits + r * V;
        for (size_t i = 0; i < V; i++) l[i] = expf(l[i] - top[r]) * k[r];
        if (targets[r] >= 0) l[targets[r]] -= dscale;
    }
}
