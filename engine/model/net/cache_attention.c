/* cache_attention.c - attention of a query over cached keys and values, in vector lanes. */
#include "engine/model/net/cache_attention.h"

#include <math.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"

/* KEYS keys are processed at a time, so that their sums do not wait for each other; likewise COLUMNS of the output. */
enum { LANES = 16, KEYS = 4, COLUMNS = 4 };
typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

#define LOAD(v, p) memcpy(&(v), p, sizeof(lanes))

static inline float sum_lanes(const lanes *v) {
    float s[LANES];
    memcpy(s, v, sizeof s);
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++) s[j] += s[j + half];
    return s[0];
}

static inline float sum_rest(const float *q, const float *k, size_t from, size_t D) {
    float s = 0;
    for (size_t i = from; i < D; i++) s += q[i] * k[i];
    return s;
}

BT_WIDEST static void scores(float *s, const float *q, const bt_cached *c, float scale) {
    const size_t D = c->D, whole = D / LANES * LANES;
    size_t t = 0;
    for (; t + KEYS <= c->seen; t += KEYS) {
        const float *k = c->k + t * c->ld;
        lanes sum[KEYS] = {{0}, {0}, {0}, {0}}, a, b;
        for (size_t i = 0; i < whole; i += LANES) {
            LOAD(a, q + i);
            for (size_t j = 0; j < KEYS; j++) {
                LOAD(b, k + j * c->ld + i);
                sum[j] += a * b;
            }
        }
        for (size_t j = 0; j < KEYS; j++)
            s[t + j] = scale * (sum_lanes(&sum[j]) + sum_rest(q, k + j * c->ld, whole, D));
    }
    for (; t < c->seen; t++) {
        const float *k = c->k + t * c->ld;
        lanes sum = {0}, a, b;
        for (size_t i = 0; i < whole; i += LANES) {
            LOAD(a, q + i);
            LOAD(b, k + i);
            sum += a * b;
        }
        s[t] = scale * (sum_lanes(&sum) + sum_rest(q, k, whole, D));
    }
}

BT_WIDEST static void weighted_sum(float *o, const float *w, const bt_cached *c) {
    size_t i = 0;
    for (; i + COLUMNS * LANES <= c->D; i += COLUMNS * LANES) {
        lanes sum[COLUMNS] = {{0}, {0}, {0}, {0}}, b;
        for (size_t t = 0; t < c->seen; t++) {
            for (size_t j = 0; j < COLUMNS; j++) {
                LOAD(b, c->v + t * c->ld + i + j * LANES);
                sum[j] += w[t] * b;
            }
        }
        memcpy(o + i, sum, sizeof sum);
    }
    for (; i + LANES <= c->D; i += LANES) {
        lanes sum = {0}, b;
        for (size_t t = 0; t < c->seen; t++) {
            LOAD(b, c->v + t * c->ld + i);
            sum += w[t] * b;
        }
        memcpy(o + i, &sum, sizeof sum);
    }
    for (; i < c->D; i++) {
        o[i] = 0;
        for (size_t t = 0; t < c->seen; t++) o[i] += w[t] * c->v[t * c->ld + i];
    }
}

void bt_cache_attend(float *o, const float *q, const bt_cached *c, float *weights) {
    const int32_t none = -1;
    bt_row_stat stat;
    scores(weights, q, c, c->scale);
    for (size_t i = 0; c->cap > 0 && i < c->seen; i++)
        weights[i] = c->cap * tanhf(weights[i] / c->cap);
    bt_active_kernels()->row_lse(&stat, weights, &none, 1, c->seen);
    const float share = (float)(1.0 / stat.sum);
    bt_active_kernels()->row_softmax(weights, &stat.a, &share, &none, 0, 1, c->seen);
    weighted_sum(o, weights, c);
}
