/* isa_generic_gemm.c - the products of the generic set. Operands are fp32 or rounded to fp16 (bt_prec is a
 * permission, not an obligation: bf16 is not used, attention is always fp32); the packed form of a ternary matrix
 * is a copy of its codes, the 2-bit one that of kernels/table/ternary.h. */
#include "engine/kernels/isa/isa_generic.h"

#include <math.h>
#include <string.h>

#include "engine/kernels/table/half.h"
#include "engine/kernels/table/ternary.h"

static float round_operand(float x, bt_prec prec) { return prec == BT_PREC_FP16 ? bt_half(x) : x; }

size_t bt_generic_tern_bytes(size_t N, size_t K) { return N * K; }

void bt_generic_tern_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                          size_t n1) {
    (void)N;
    if (n1 > n0) memcpy((int8_t *)packed + n0 * K, codes + n0 * K, (n1 - n0) * K);
}

size_t bt_generic_packed_2bit_bytes(size_t N, size_t K) { return N * bt_tern2_row_bytes(K); }

void bt_generic_packed_2bit_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                                 size_t n1) {
    (void)N;
    bt_tern2_pack((uint8_t *)packed + n0 * bt_tern2_row_bytes(K), codes, n1 - n0, K);
}

void bt_generic_packed_2bit_codes(int8_t *codes, const void *packed, size_t K, size_t n, size_t k0,
                                  size_t k1) {
    bt_tern2_read(codes, (const uint8_t *)packed + n * bt_tern2_row_bytes(K), k0, k1 - k0);
}

/* W (N, K) in either packed form; see code_at */
typedef struct codes_of {
    const void *packed;
    size_t K;
    bool packed_2bit;
} codes_of;
static codes_of codes_in(const void *packed, size_t K, int flags) {
    return (codes_of){packed, K, (flags & BT_COMPACT) != 0};
}
static int code_at(const codes_of *w, size_t n, size_t k) {
    return w->packed_2bit
               ? bt_tern2_code((const uint8_t *)w->packed + n * bt_tern2_row_bytes(w->K), k)
               : ((const int8_t *)w->packed)[n * w->K + k];
}

static int32_t dot_i8(const int8_t *a, const codes_of *w, size_t n) {
    int32_t s = 0;
    for (size_t k = 0; k < w->K; k++) s += a[k] * code_at(w, n, k);
    return s;
}

void bt_generic_tern_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq,
                         const void *packed, float scale, size_t m0, size_t m1, size_t N, size_t K,
                         int flags, void *scratch) {
    const codes_of w = codes_in(packed, K, flags);
    (void)scratch;
    for (size_t m = m0; m < m1; m++) {
        for (size_t n = 0; n < N; n++) {
            float v = (float)dot_i8(xq + m * K, &w, n) * (dq[m] * scale);
            y[m * ldy + n] = flags & BT_ACC ? y[m * ldy + n] + v : v;
        }
    }
}

void bt_generic_tern_dx(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                        float scale, size_t m0, size_t m1, size_t N, size_t K, bt_prec prec,
                        int flags, void *scratch) {
    const codes_of w = codes_in(packed, K, flags);
    (void)scratch;
    for (size_t m = m0; m < m1; m++) {
        float *out = dx + m * lddx;
        if (!(flags & BT_ACC)) memset(out, 0, K * sizeof *out);
        for (size_t n = 0; n < N; n++) {
            float a = round_operand(dy[m * lddy + n], prec) * scale;
            for (size_t k = 0; k < K; k++) out[k] += a * (float)code_at(&w, n, k);
        }
    }
}

void bt_generic_tern_dw(float *dw, const float *dy, size_t lddy, const int8_t *xq, const float *dq,
                        size_t M, size_t N, size_t K, size_t n0, size_t n1, bt_prec prec,
                        void *scratch) {
    (void)N;
    (void)scratch;
    for (size_t m = 0; m < M; m++) {
        for (size_t n = n0; n < n1; n++) {
            float a = round_operand(dy[m * lddy + n] * dq[m], prec);
            for (size_t k = 0; k < K; k++) dw[n * K + k] += a * (float)xq[m * K + k];
        }
    }
}

/* to_int8, from_int8: 127 / absmax and absmax / 127 of a value returned by bt_noise_absmax */
static float to_int8(uint32_t top) { return 127.0f / bt_noise_bits(top); }
static float from_int8(uint32_t top) { return bt_noise_bits(top) / 127.0f; }

static int stochastic_round(float v, uint32_t word, size_t byte) {
    /* the result is 0 if v is not finite; its scale is then NaN or infinite */
    return v >= -128.0f && v <= 128.0f ? bt_noise_round(v, word >> (8 * byte) & 255u) : 0;
}

static float grad_at(bt_grads g, size_t row, size_t col) {
    const size_t at = row * g.ld + col;
    return g.bf16 ? bt_bf16_to_float(g.bf16[at]) : g.f32[at];
}

/* Writes or adds to `out` the product of a row of gradients, rounded with `key`, with w (N, K) and scale. by: factors
 * of the gradients, NULL: 1. sum: scratch of K elements. */
static void row_dx8(float *out, bt_grads row, const float *by, const void *packed, float scale,
                    size_t N, size_t K, uint32_t key, int flags, int32_t *sum) {
    const codes_of w = codes_in(packed, K, flags);
    uint32_t top = BT_NOISE_LEAST;
    for (size_t n = 0; n < N; n++)
        top = bt_noise_absmax(top, grad_at(row, 0, n) * (by ? by[n] : 1));
    memset(sum, 0, K * sizeof *sum);
    for (size_t n = 0; n < N; n++) {
        uint32_t word = bt_noise_word(key, (uint32_t)(n / 64 * 16 + n % 16));
        int q = stochastic_round(grad_at(row, 0, n) * (by ? by[n] : 1) * to_int8(top), word,
                                 n / 16 % 4);
        for (size_t k = 0; k < K; k++) sum[k] += q * code_at(&w, n, k);
    }
    for (size_t k = 0; k < K; k++) {
        float v = (float)sum[k] * (from_int8(top) * scale);
        out[k] = flags & BT_ACC ? out[k] + v : v;
    }
}

void bt_generic_tern_dx8(float *dx, size_t lddx, bt_grads dy, const void *packed, float scale,
                         size_t m0, size_t m1, size_t N, size_t K, const bt_noise *noise, int flags,
                         void *scratch) {
    for (size_t m = m0; m < m1; m++)
        row_dx8(dx + m * lddx, bt_grads_from(dy, m, 0), NULL, packed, scale, N, K,
                noise->rows[m] ^ noise->salt, flags, scratch);
}

size_t bt_generic_w8_bytes(size_t N, size_t K) { return N * K; }

void bt_generic_w8_pack(void *packed, const int8_t *codes, size_t N, size_t K, size_t n0,
                        size_t n1) {
    (void)N;
    memcpy((int8_t *)packed + n0 * K, codes, (n1 - n0) * K);
}

void bt_generic_w8_dx8(float *dx, size_t lddx, const float *dy, size_t lddy, const void *packed,
                       const float *row_scale, size_t m0, size_t m1, size_t N, size_t K,
                       const bt_noise *noise, int flags, void *scratch) {
    for (size_t m = m0; m < m1; m++)
        row_dx8(dx + m * lddx, bt_grads_f32(dy + m * lddy, lddy), row_scale, packed, 1, N, K,
                noise->rows[m] ^ noise->salt, flags & BT_ACC, scratch);
}

void bt_generic_w8_fwd(float *y, size_t ldy, const int8_t *xq, const float *dq, const int8_t *codes,
                       const float *row_scale, size_t m0, size_t m1, size_t N, size_t K,
                       void *scratch) {
    const codes_of w = codes_in(codes, K, 0);
    (void)scratch;
    for (size_t m = m0; m < m1; m++)
        for (size_t n = 0; n < N; n++)
            y[m * ldy + n] = (float)dot_i8(xq + m * K, &w, n) * dq[m] * row_scale[n];
}

void bt_generic_tern_dw8(float *dw, bt_grads dy, const int8_t *xq, const float *dq, size_t M,
                         size_t N, size_t K, size_t n0, size_t n1, const bt_noise *noise,
                         void *scratch) {
    int32_t *sum = scratch; /* (K) */
    (void)N;
    for (size_t b = 0; b < M; b += BT_GRAD_BLOCK) {
        size_t end = M - b < BT_GRAD_BLOCK ? M : b + BT_GRAD_BLOCK;
        for (size_t n = n0; n < n1; n++) {
            uint32_t top = BT_NOISE_LEAST;
            for (size_t m = b; m < end; m++) top = bt_noise_absmax(top, grad_at(dy, m, n) * dq[m]);
            memset(sum, 0, K * sizeof *sum);
            for (size_t m = b; m < end; m++) {
                uint32_t word = bt_noise_word(noise->rows[m / 4 * 4] ^ noise->salt ^ BT_NOISE_DW,
                                              noise->first + (uint32_t)n);
                int q = stochastic_round(grad_at(dy, m, n) * dq[m] * to_int8(top), word, m % 4);
                for (size_t k = 0; k < K; k++) sum[k] += q * xq[m * K + k];
            }
            for (size_t k = 0; k < K; k++) dw[n * K + k] += (float)sum[k] * from_int8(top);
        }
    }
}

void bt_generic_gemm(float *c, size_t ldc, const float *a, size_t lda, int ta, const void *floats,
                     size_t ldb, int tb, float alpha, size_t M, size_t N, size_t K, bt_prec prec,
                     int flags, void *scratch) {
    const float *b = floats;
    (void)scratch;
    for (size_t m = 0; m < M; m++) {
        float *out = c + m * ldc;
        if (!(flags & BT_ACC)) memset(out, 0, N * sizeof *out);
        for (size_t k = 0; k < K; k++) {
            float x = alpha * round_operand(ta ? a[k * lda + m] : a[m * lda + k], prec);
            if (prec == BT_PREC_FP16)
                for (size_t n = 0; n < N; n++)
                    out[n] += x * bt_half(tb ? b[n * ldb + k] : b[k * ldb + n]);
            else if (tb)
                for (size_t n = 0; n < N; n++) out[n] += x * b[n * ldb + k];
            else
                for (size_t n = 0; n < N; n++) out[n] += x * b[k * ldb + n];
        }
    }
}

static size_t generic_first_key(size_t t, size_t window) {
    return window && t + 1 > window ? t + 1 - window : 0;
}

static float capped(float score, float cap) { return cap > 0 ? cap * tanhf(score / cap) : score; }

static float dot_f32(const float *a, const float *b, size_t n) {
    float s = 0;
    for (size_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

/* Rounds n elements, `step` apart, to whole multiples of their largest magnitude / 127. */
static void round_to_int8(float *to, size_t to_step, const float *x, size_t step, size_t n) {
    float top = 0, trouble = 0;
    for (size_t i = 0; i < n; i++) {
        top = fmaxf(top, fabsf(x[i * step]));
        trouble += 0.0f * x[i * step]; /* becomes NaN if an element is not finite */
    }
    const float by = top > 0 ? 127.0f / top : 0, scale = top / 127.0f + trouble;
    for (size_t i = 0; i < n; i++) to[i * to_step] = rintf(x[i * step] * by) * scale;
}

/* rounds (T, D) by rows, or rows [from, T) by columns */
static const float *rounded_rows(float *to, const float *x, size_t ld, size_t T, size_t D) {
    for (size_t t = 0; t < T; t++) round_to_int8(to + t * D, 1, x + t * ld, 1, D);
    return to;
}
static const float *rounded_columns(float *to, const float *x, size_t ld, size_t from, size_t T,
                                    size_t D) {
    for (size_t d = 0; d < D; d++)
        round_to_int8(to + from * D + d, D, x + from * ld + d, ld, T - from);
    return to;
}

void bt_generic_attn_fwd(float *o, float *lse, const void *q_, const void *k_, const void *v_,
                         const bt_attn_shape *s, size_t t0, size_t t1, bt_prec prec,
                         void *scratch) {
    const float *q = q_, *k = k_, *v = v_;
    float *p = scratch, *room = p + t1; /* p: (t1) scores of one query */
    size_t ldq = s->ldq, ldk = s->ldk, ldv = s->ldv;
    (void)prec;
    if (s->int8) {
        const size_t n = t1 * s->D;
        q = rounded_rows(room, q, ldq, t1, s->D);
        k = rounded_rows(room + n, k, ldk, t1, s->D);
        v = rounded_columns(room + 2 * n, v, ldv, generic_first_key(t0, s->window), t1, s->D);
        ldq = ldk = ldv = s->D;
    }
    for (size_t t = t0; t < t1; t++) {
        size_t from = generic_first_key(t, s->window);
        float top = -INFINITY;
        for (size_t j = from; j <= t; j++) {
            p[j] = capped(s->scale * dot_f32(q + t * ldq, k + j * ldk, s->D), s->cap);
            top = fmaxf(top, p[j]);
        }
        double sum = 0, weights = 0;
        float left[BT_ATTN_LANES] = {0};
        for (size_t j = from; j <= t; j++) {
            sum += (double)(p[j] = expf(p[j] - top));
            if (s->int8) {
                float *over = &left[j % BT_ATTN_LANES], x = BT_ATTN_STEPS * p[j] + *over;
                p[j] = rintf(x);
                *over = x - p[j];
            }
            weights += (double)p[j];
        }
        float *out = o + t * s->ldo, inv = (float)(1.0 / weights);
        memset(out, 0, s->D * sizeof *out);
        for (size_t j = from; j <= t; j++) {
            for (size_t d = 0; d < s->D; d++) out[d] += p[j] * inv * v[j * ldv + d];
        }
        lse[t] = top + (float)log(sum);
    }
}

/* p = exp(s - lse); ds = p (dp - delta), delta = do . o (Dao et al., arXiv:2205.14135, appendix
 * B) */
void bt_generic_attn_bwd(float *dq, float *dk, float *dv, const float *dout, const void *o_,
                         const float *lse, const void *q_, const void *k_, const void *v_,
                         const bt_attn_shape *s, bt_prec prec, void *scratch) {
    const float *o = o_, *q = q_, *k = k_, *v = v_;
    /* operands of the products whose depth is D */
    const float *q8 = q, *k8 = k, *v8 = v, *g8 = dout;
    size_t ldq = s->ldq, ldk = s->ldk, ldv = s->ldv, ldg = s->ldo;
    (void)prec;
    if (s->int8) {
        float *room = scratch;
        const size_t n = s->T * s->D;
        q8 = rounded_rows(room, q, ldq, s->T, s->D);
        k8 = rounded_rows(room + n, k, ldk, s->T, s->D);
        v8 = rounded_rows(room + 2 * n, v, ldv, s->T, s->D);
        g8 = rounded_rows(room + 3 * n, dout, ldg, s->T, s->D);
        ldq = ldk = ldv = ldg = s->D;
    }
    for (size_t t = 0; t < s->T; t++) {
        const float *go = dout + t * s->ldo, *qt = q + t * s->ldq;
        float *gq = dq + t * s->ldq, delta = dot_f32(go, o + t * s->ldo, s->D);
        memset(gq, 0, s->D * sizeof *gq);
        for (size_t j = generic_first_key(t, s->window); j <= t; j++) {
            const float *kj = k + j * s->ldk;
            const float score = capped(s->scale * dot_f32(q8 + t * ldq, k8 + j * ldk, s->D),
                                       s->cap),
                        of_cap = s->cap > 0 ? score / s->cap : 0, p = expf(score - lse[t]);
            float ds = p * (dot_f32(g8 + t * ldg, v8 + j * ldv, s->D) - delta) *
                       (1 - of_cap * of_cap) * s->scale;
            for (size_t d = 0; d < s->D; d++) {
                gq[d] += ds * kj[d];
                dk[j * s->ldk + d] += ds * qt[d];
                dv[j * s->ldv + d] += p * go[d];
            }
        }
    }
}

void bt_generic_tern_gemv(float *y, size_t ldy, const int8_t *xq, const float *dq, size_t M,
                          const uint8_t *packed2, float scale, size_t K, size_t n0, size_t n1,
                          int flags, void *scratch) {
    size_t row_bytes = bt_tern2_row_bytes(K);
    (void)scratch;
    for (size_t m = 0; m < M; m++, xq += K, y += ldy)
        for (size_t n = n0; n < n1; n++) {
            const uint8_t *w = packed2 + n * row_bytes;
            int32_t s = 0;
            for (size_t k = 0; k < K; k++) s += bt_tern2_code(w, k) * xq[k];
            float v = (float)s * (dq[m] * scale);
            y[n] = flags & BT_ACC ? y[n] + v : v;
        }
}

size_t bt_generic_scratch_bytes(size_t M, size_t N, size_t K, size_t T, size_t D) {
    size_t most = N > K ? N : K;
    (void)M;
    const size_t attention = T + 4 * T * D;
    return (attention > most ? attention : most) * sizeof(float);
}
