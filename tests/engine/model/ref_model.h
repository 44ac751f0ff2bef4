/* ref_model.h - the network in double precision and in the simplest form, forward and backward, as the reference for
 * engine/model. It shares only the tensor table with the engine. Every linear layer normalises (norm = bitlinear) and
 * quantises its own input, attention computes the whole T x T matrix, and every activation is saved. Gradients follow
 * the straight-through formula: y = deq(q(x)) deq(q(W))^T, dx = dy deq(q(W)), dW = dy^T deq(q(x)). */
#ifndef BT_TESTS_REF_MODEL_H
#define BT_TESTS_REF_MODEL_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/shape/params.h"

typedef struct ref_pass {
    const bt_model_cfg *c;
    const bt_params *p;
    const double *w;   /* flat array, as in the engine */
    double *g;         /* flat array; NULL: only the loss is computed */
    void *taken[4096]; /* all allocations */
    size_t n_taken;
} ref_pass;

/* Returns the dropout factor of value c of row m at a place where values are added to the residual: 0 the embedding, 1
 * + 2 layer attention, 2 + 2 layer the feed-forward part. NULL: no dropout. */
static double (*ref_dropout)(size_t place, size_t m, size_t c);

typedef struct ref_norm {
    const bt_tensor *gain;
    double *x, *y, *rstd;
    size_t rows, K;
} ref_norm;
typedef struct ref_linear {
    const bt_tensor *t;
    bool normed;
    ref_norm norm;
    double *xq, *wq, *y;
    size_t M;
} ref_linear;

static double *ref_take(ref_pass *r, size_t n) {
    double *d = calloc(n ? n : 1, sizeof *d);
    if (!d || r->n_taken == sizeof r->taken / sizeof *r->taken) abort();
    r->taken[r->n_taken++] = d;
    return d;
}

static double *ref_norm_fwd(ref_pass *r, ref_norm *n, const bt_tensor *gain, double *x, size_t rows,
                            size_t K) {
    *n = (ref_norm){gain, x, ref_take(r, rows * K), ref_take(r, rows), rows, K};
    for (size_t i = 0; i < rows; i++) {
        double ss = 0;
        for (size_t k = 0; k < K; k++) ss += x[i * K + k] * x[i * K + k];
        n->rstd[i] = 1.0 / sqrt(ss / (double)K + r->c->norm_eps);
        for (size_t k = 0; k < K; k++)
            n->y[i * K + k] = x[i * K + k] * n->rstd[i] * (gain ? r->w[gain->offset + k] : 1.0);
    }
    return n->y;
}

static double *ref_norm_bwd(ref_pass *r, const ref_norm *n, const double *dy) {
    size_t K = n->K;
    double *dx = ref_take(r, n->rows * K);
    for (size_t i = 0; i < n->rows; i++) {
        const double *x = n->x + i * K, *d = dy + i * K;
        double s = n->rstd[i], dot = 0;
        for (size_t k = 0; k < K; k++) {
            double gk = n->gain ? r->w[n->gain->offset + k] : 1.0;
            if (n->gain) r->g[n->gain->offset + k] += d[k] * x[k] * s;
            dot += d[k] * gk * x[k];
        }
        for (size_t k = 0; k < K; k++) {
            double gk = n->gain ? r->w[n->gain->offset + k] : 1.0;
            dx[i * K + k] = s * d[k] * gk - x[k] * s * s * s * dot / (double)K;
        }
    }
    return dx;
}

static double *ref_linear_fwd(ref_pass *r, ref_linear *l, const bt_tensor *t, double *x, size_t M) {
    size_t N = t->rows, K = t->cols;
    *l = (ref_linear){.t = t,
                      .M = M,
                      .normed = r->c->norm == BT_NORM_BITLINEAR,
                      .xq = ref_take(r, M * K),
                      .wq = ref_take(r, N * K),
                      .y = ref_take(r, M * N)};
    const double *w = r->w + t->offset;
    if (l->normed) x = ref_norm_fwd(r, &l->norm, NULL, x, M, K);
    double mean = 0, scale = 0;
    const size_t unit = r->c->scale == BT_SCALE_TENSOR
                            ? N * K
                            : bt_scale_inputs(r->c->scale, K); /* weights with one scale */
    for (size_t i = 0; i < N * K; i++) mean += w[i] / (double)(N * K);
    for (size_t i = 0; i < N * K; i++) {
        if (i % unit == 0) {
            scale = 0;
            for (size_t k = i; k < i + unit; k++) scale += fabs(w[k]) / (double)unit;
            scale = fmax(scale, 1e-5);
        }
        if (r->c->linear == BT_LIN_DENSE)
            l->wq[i] = w[i];
        else if (r->c->linear == BT_LIN_BITNET1)
            l->wq[i] = scale * (double)((w[i] > mean) - (w[i] < mean));
        else
            l->wq[i] = scale * fmax(-1, fmin(1, nearbyint(w[i] / scale)));
    }
    for (size_t i = 0; i < M; i++) {
        double a = 1e-5;
        for (size_t k = 0; k < K; k++) a = fmax(a, fabs(x[i * K + k]));
        for (size_t k = 0; k < K; k++) {
            l->xq[i * K + k] = r->c->linear == BT_LIN_DENSE
                                   ? x[i * K + k]
                                   : nearbyint(x[i * K + k] * 127.0 / a) * a / 127.0;
        }
        for (size_t n = 0; n < N; n++) {
            for (size_t k = 0; k < K; k++) l->y[i * N + n] += l->xq[i * K + k] * l->wq[n * K + k];
        }
    }
    return l->y;
}

static double *ref_linear_bwd(ref_pass *r, const ref_linear *l, const double *dy) {
    size_t N = l->t->rows, K = l->t->cols;
    double *dx = ref_take(r, l->M * K);
    for (size_t i = 0; i < l->M; i++) {
        for (size_t n = 0; n < N; n++) {
            for (size_t k = 0; k < K; k++) {
                dx[i * K + k] += dy[i * N + n] * l->wq[n * K + k];
                r->g[l->t->offset + n * K + k] += dy[i * N + n] * l->xq[i * K + k];
            }
        }
    }
    return l->normed ? ref_norm_bwd(r, &l->norm, dx) : dx;
}

/* Rotates pairs (i, i + R/2) of every head by position; sign -1 rotates back. */
static void ref_rope(const ref_pass *r, int layer, double *x, size_t M, size_t heads, double sign) {
    size_t D = (size_t)r->c->D, T = (size_t)r->c->T, R = bt_model_rotary(r->c);
    const bt_rope_scaling none = {0};
    const bool local = r->c->rope_local_theta > 0 && bt_model_layer_is_local(r->c, layer);
    const bt_rope_scaling *scaling = local ? &none : &r->c->rope;
    const double by = bt_rope_attention(scaling),
                 theta = local ? r->c->rope_local_theta : r->c->rope_theta;
    for (size_t m = 0; m < M; m++) {
        for (size_t h = 0; h < heads; h++) {
            double *v = x + (m * heads + h) * D;
            for (size_t i = 0; i < R / 2; i++) {
                double angle = sign * (double)(m % T) *
                               (double)bt_rope_frequency((int)i, theta, scaling, (int)R, (int)T),
                       a = by * v[i], b = by * v[i + R / 2];
                v[i] = a * cos(angle) - b * sin(angle);
                v[i + R / 2] = b * cos(angle) + a * sin(angle);
            }
        }
    }
}

/* Returns whether layer i has a rotary embedding. */
static bool ref_rotates(const ref_pass *r, int i) {
    return !r->c->no_rope_every || (i + 1) % r->c->no_rope_every != 0;
}

static const double GELU_ROOT = 0.7978845608028654; /* sqrt(2 / pi) */

static double ref_act(const ref_pass *r, double x) {
    if (r->c->act == BT_ACT_GELU)
        return 0.5 * x * (1 + tanh(GELU_ROOT * (x + 0.044715 * x * x * x)));
    return r->c->act == BT_ACT_RELU2 ? (x > 0 ? x * x : 0) : x / (1 + exp(-x));
}

static double ref_dact(const ref_pass *r, double x) {
    if (r->c->act == BT_ACT_RELU2) return x > 0 ? 2 * x : 0;
    if (r->c->act == BT_ACT_GELU) {
        const double t = tanh(GELU_ROOT * (x + 0.044715 * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_ROOT * (1 + 3 * 0.044715 * x * x);
    }
    double s = 1 / (1 + exp(-x));
    return s * (1 + x * (1 - s));
}

typedef struct ref_layer {
    ref_norm attn_norm, ffn_norm, attn_sub, ffn_sub, q_norm, k_norm, attn_post, ffn_post;
    size_t window;
    double query_factor, cap;
    ref_linear q, k, v, o, gate, up, down;
    /* rotated heads; (B, H, T, T), and the derivative of the soft limit; attention output; act(gate) * up */
    double *qr, *kr, *prob, *slope, *att, *h;
} ref_layer;

static void ref_attention(const ref_pass *r, ref_layer *l, size_t B) {
    size_t T = (size_t)r->c->T, H = (size_t)r->c->H, KV = (size_t)r->c->KV, D = (size_t)r->c->D;
    for (size_t bh = 0; bh < B * H; bh++) {
        size_t b = bh / H, h = bh % H, j = h / (H / KV);
        for (size_t t = 0; t < T; t++) {
            double *p = l->prob + (bh * T + t) * T, top = -INFINITY, sum = 0;
            const size_t W = l->window, first = W && t + 1 > W ? t + 1 - W : 0;
            for (size_t u = first; u <= t; u++) {
                for (size_t d = 0; d < D; d++)
                    p[u] += l->qr[((b * T + t) * H + h) * D + d] *
                            l->kr[((b * T + u) * KV + j) * D + d] * l->query_factor;
                if (l->cap > 0) p[u] = l->cap * tanh(p[u] / l->cap);
                l->slope[(bh * T + t) * T + u] = l->cap > 0 ? 1 - p[u] / l->cap * p[u] / l->cap : 1;
                top = fmax(top, p[u]);
            }
            for (size_t u = first; u <= t; u++) sum += p[u] = exp(p[u] - top);
            for (size_t u = first; u <= t; u++) {
                p[u] /= sum;
                for (size_t d = 0; d < D; d++)
                    l->att[((b * T + t) * H + h) * D + d] += p[u] *
                                                             l->v.y[((b * T + u) * KV + j) * D + d];
            }
        }
    }
}

static void ref_attention_bwd(const ref_pass *r, const ref_layer *l, size_t B, const double *datt,
                              double *dq, double *dk, double *dv) {
    size_t T = (size_t)r->c->T, H = (size_t)r->c->H, KV = (size_t)r->c->KV, D = (size_t)r->c->D;
    for (size_t bh = 0; bh < B * H; bh++) {
        size_t b = bh / H, h = bh % H, j = h / (H / KV);
        for (size_t t = 0; t < T; t++) {
            const double *p = l->prob + (bh * T + t) * T;
            size_t q = ((b * T + t) * H + h) * D;
            double mean = 0;
            for (int pass = 0; pass < 2; pass++) {
                for (size_t u = 0; u <= t; u++) {
                    size_t k = ((b * T + u) * KV + j) * D;
                    double dp = 0;
                    for (size_t d = 0; d < D; d++) dp += datt[q + d] * l->v.y[k + d];
                    if (pass == 0) mean += p[u] * dp;
                    for (size_t d = 0; d < D && pass == 1; d++) {
                        double ds = p[u] * (dp - mean) * l->query_factor *
                                    l->slope[(bh * T + t) * T + u];
                        dv[k + d] += p[u] * datt[q + d];
                        dq[q + d] += ds * l->kr[k + d];
                        dk[k + d] += ds * l->qr[q + d];
                    }
                }
            }
        }
    }
}

static double *ref_copy(ref_pass *r, const double *x, size_t n) {
    double *y = ref_take(r, n);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static void ref_add(double *y, const double *x, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] += x[i];
}

static double *ref_dropped(ref_pass *r, size_t place, const double *x, size_t M) {
    const size_t C = (size_t)r->c->C;
    double *y = ref_copy(r, x, M * C);
    for (size_t i = 0; ref_dropout && i < M * C; i++) y[i] *= ref_dropout(place, i / C, i % C);
    return y;
}

static void ref_bias_fwd(ref_pass *r, int i, bt_param_id id, double *y, size_t M) {
    const bt_tensor *t = bt_params_get(r->p, i, id);
    for (size_t k = 0; t && k < M * t->count; k++) y[k] += r->w[t->offset + k % t->count];
}

static void ref_bias_bwd(ref_pass *r, int i, bt_param_id id, const double *dy, size_t M) {
    const bt_tensor *t = bt_params_get(r->p, i, id);
    for (size_t k = 0; t && r->g && k < M * t->count; k++) r->g[t->offset + k % t->count] += dy[k];
}

static double *ref_layer_fwd(ref_pass *r, ref_layer *l, int i, double *x, size_t B) {
    const bt_model_cfg *c = r->c;
    size_t M = B * (size_t)c->T, C = (size_t)c->C, H = (size_t)c->H, KV = (size_t)c->KV,
           D = (size_t)c->D, F = (size_t)c->F;
    bool pre = c->norm != BT_NORM_BITLINEAR, sub = c->norm == BT_NORM_SUBLN;
    double *n1 =
        pre ? ref_norm_fwd(r, &l->attn_norm, bt_params_get(r->p, i, BT_P_ATTN_NORM), x, M, C) : x;
    l->qr = ref_copy(r, ref_linear_fwd(r, &l->q, bt_params_get(r->p, i, BT_P_ATTN_Q), n1, M),
                     M * H * D);
    l->kr = ref_copy(r, ref_linear_fwd(r, &l->k, bt_params_get(r->p, i, BT_P_ATTN_K), n1, M),
                     M * KV * D);
    (void)ref_linear_fwd(r, &l->v, bt_params_get(r->p, i, BT_P_ATTN_V), n1, M);
    ref_bias_fwd(r, i, BT_P_ATTN_Q_BIAS, l->qr, M);
    ref_bias_fwd(r, i, BT_P_ATTN_K_BIAS, l->kr, M);
    ref_bias_fwd(r, i, BT_P_ATTN_V_BIAS, l->v.y, M);
    if (c->qk_norm) {
        l->qr = ref_copy(
            r, ref_norm_fwd(r, &l->q_norm, bt_params_get(r->p, i, BT_P_Q_NORM), l->qr, M * H, D),
            M * H * D);
        l->kr = ref_copy(
            r, ref_norm_fwd(r, &l->k_norm, bt_params_get(r->p, i, BT_P_K_NORM), l->kr, M * KV, D),
            M * KV * D);
    }
    if (ref_rotates(r, i)) {
        ref_rope(r, i, l->qr, M, H, 1);
        ref_rope(r, i, l->kr, M, KV, 1);
    }
    l->window = bt_model_layer_is_local(c, i) ? (size_t)c->window : 0;
    l->query_factor = 1 / sqrt(c->query_scale > 0 ? c->query_scale : (double)D);
    l->prob = ref_take(r, B * H * (size_t)c->T * (size_t)c->T);
    l->slope = ref_take(r, B * H * (size_t)c->T * (size_t)c->T);
    l->cap = c->attention_cap;
    l->att = ref_take(r, M * H * D);
    ref_attention(r, l, B);
    double *a = sub ? ref_norm_fwd(r, &l->attn_sub, bt_params_get(r->p, i, BT_P_ATTN_SUBNORM),
                                   l->att, M, H * D)
                    : l->att;
    double *y = ref_copy(r, x, M * C);
    double *o = ref_linear_fwd(r, &l->o, bt_params_get(r->p, i, BT_P_ATTN_O), a, M);
    if (c->post_norm)
        o = ref_norm_fwd(r, &l->attn_post, bt_params_get(r->p, i, BT_P_ATTN_POST_NORM), o, M, C);
    ref_add(y, ref_dropped(r, 1 + 2 * (size_t)i, o, M), M * C);
    double *n2 = pre ? ref_norm_fwd(r, &l->ffn_norm, bt_params_get(r->p, i, BT_P_FFN_NORM), y, M, C)
                     : y;
    double *gate = ref_linear_fwd(r, &l->gate, bt_params_get(r->p, i, BT_P_FFN_GATE), n2, M);
    double *up = ref_linear_fwd(r, &l->up, bt_params_get(r->p, i, BT_P_FFN_UP), n2, M);
    l->h = ref_take(r, M * F);
    for (size_t k = 0; k < M * F; k++) l->h[k] = ref_act(r, gate[k]) * up[k];
    double *hn = sub ? ref_norm_fwd(r, &l->ffn_sub, bt_params_get(r->p, i, BT_P_FFN_SUBNORM), l->h,
                                    M, F)
                     : l->h;
    double *z = ref_copy(r, y, M * C);
    double *down = ref_linear_fwd(r, &l->down, bt_params_get(r->p, i, BT_P_FFN_DOWN), hn, M);
    if (c->post_norm)
        down = ref_norm_fwd(r, &l->ffn_post, bt_params_get(r->p, i, BT_P_FFN_POST_NORM), down, M,
                            C);
    ref_add(z, ref_dropped(r, 2 + 2 * (size_t)i, down, M), M * C);
    return z;
}

/* d is the gradient of the layer's output; the function replaces it by the gradient of its input. */
static void ref_layer_bwd(ref_pass *r, const ref_layer *l, int i, double *d, size_t B) {
    const bt_model_cfg *c = r->c;
    size_t M = B * (size_t)c->T, C = (size_t)c->C, H = (size_t)c->H, KV = (size_t)c->KV,
           D = (size_t)c->D, F = (size_t)c->F;
    bool pre = c->norm != BT_NORM_BITLINEAR, sub = c->norm == BT_NORM_SUBLN;
    double *ddown = ref_dropped(r, 2 + 2 * (size_t)i, d, M);
    if (c->post_norm) ddown = ref_norm_bwd(r, &l->ffn_post, ddown);
    double *dh = ref_linear_bwd(r, &l->down, ddown);
    if (sub) dh = ref_norm_bwd(r, &l->ffn_sub, dh);
    double *dgate = ref_take(r, M * F), *dup = ref_take(r, M * F);
    for (size_t k = 0; k < M * F; k++) {
        dgate[k] = dh[k] * l->up.y[k] * ref_dact(r, l->gate.y[k]);
        dup[k] = dh[k] * ref_act(r, l->gate.y[k]);
    }
    double *dn = ref_linear_bwd(r, &l->gate, dgate);
    ref_add(dn, ref_linear_bwd(r, &l->up, dup), M * C);
    ref_add(d, pre ? ref_norm_bwd(r, &l->ffn_norm, dn) : dn, M * C);
    double *doo = ref_dropped(r, 1 + 2 * (size_t)i, d, M);
    if (c->post_norm) doo = ref_norm_bwd(r, &l->attn_post, doo);
    double *da = ref_linear_bwd(r, &l->o, doo);
    if (sub) da = ref_norm_bwd(r, &l->attn_sub, da);
    double *dq = ref_take(r, M * H * D), *dk = ref_take(r, M * KV * D),
           *dv = ref_take(r, M * KV * D);
    ref_attention_bwd(r, l, B, da, dq, dk, dv);
    if (ref_rotates(r, i)) {
        ref_rope(r, i, dq, M, H, -1);
        ref_rope(r, i, dk, M, KV, -1);
    }
    if (c->qk_norm) {
        dq = ref_norm_bwd(r, &l->q_norm, dq);
        dk = ref_norm_bwd(r, &l->k_norm, dk);
    }
    ref_bias_bwd(r, i, BT_P_ATTN_Q_BIAS, dq, M);
    ref_bias_bwd(r, i, BT_P_ATTN_K_BIAS, dk, M);
    ref_bias_bwd(r, i, BT_P_ATTN_V_BIAS, dv, M);
    dn = ref_linear_bwd(r, &l->q, dq);
    ref_add(dn, ref_linear_bwd(r, &l->k, dk), M * C);
    ref_add(dn, ref_linear_bwd(r, &l->v, dv), M * C);
    ref_add(d, pre ? ref_norm_bwd(r, &l->attn_norm, dn) : dn, M * C);
}

/* Returns the sum of the token losses; if g is not NULL, adds gradients of scale times that sum. logits (M, V) may be
 * NULL. */
static double ref_run(const bt_model_cfg *c, const bt_params *p, const double *w,
                      const int32_t *inputs, const int32_t *targets, size_t B, double scale,
                      double *g, double *logits) {
    ref_pass *r = calloc(1, sizeof *r);
    ref_layer *layers = calloc((size_t)c->L, sizeof *layers);
    if (!r || !layers) abort();
    *r = (ref_pass){.c = c, .p = p, .w = w, .g = g};
    size_t M = B * (size_t)c->T, C = (size_t)c->C, V = (size_t)c->V;
    size_t embed = bt_params_get(p, -1, BT_P_EMBED)->offset,
           head = c->tied ? embed : bt_params_get(p, -1, BT_P_HEAD)->offset;
    double *x = ref_take(r, M * C), *dn = ref_take(r, M * C), *row = ref_take(r, V), total = 0;
    const double embed_factor = c->embed_scale ? sqrt((double)C) : 1;
    for (size_t i = 0; i < M * C; i++)
        x[i] = embed_factor * w[embed + (size_t)inputs[i / C] * C + i % C];
    x = ref_dropped(r, 0, x, M);
    for (int i = 0; i < c->L; i++) x = ref_layer_fwd(r, &layers[i], i, x, B);
    ref_norm last;
    double *n = ref_norm_fwd(r, &last, bt_params_get(p, -1, BT_P_FINAL_NORM), x, M, C);
    for (size_t m = 0; m < M; m++) {
        double top = -INFINITY, sum = 0;
        for (size_t v = 0; v < V; v++) {
            row[v] = 0;
            for (size_t k = 0; k < C; k++) row[v] += n[m * C + k] * w[head + v * C + k];
            if (c->logit_cap > 0) row[v] = c->logit_cap * tanh(row[v] / c->logit_cap);
            top = fmax(top, row[v]);
            if (logits) logits[m * V + v] = row[v];
        }
        for (size_t v = 0; v < V; v++) sum += exp(row[v] - top);
        if (targets[m] < 0) continue;
        double lse = log(sum) + top;
        total += lse - row[targets[m]];
        for (size_t v = 0; v < V && g; v++) {
            double q = exp(row[v] - top) / sum, d = (q - (v == (size_t)targets[m])) * scale;
            if (c->logit_cap > 0) d *= 1 - row[v] / c->logit_cap * (row[v] / c->logit_cap);
            for (size_t k = 0; k < C; k++) {
                dn[m * C + k] += d * w[head + v * C + k];
                g[head + v * C + k] += d * n[m * C + k];
            }
        }
    }
    if (g) {
        double *d = ref_norm_bwd(r, &last, dn);
        for (int i = c->L - 1; i >= 0; i--) ref_layer_bwd(r, &layers[i], i, d, B);
        d = ref_dropped(r, 0, d, M);
        for (size_t i = 0; i < M * C; i++)
            g[embed + (size_t)inputs[i / C] * C + i % C] += embed_factor * d[i];
    }
    for (size_t i = 0; i < r->n_taken; i++) free(r->taken[i]);
    free(layers);
    free(r);
    return total;
}

#endif
