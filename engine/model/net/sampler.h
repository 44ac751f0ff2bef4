/* sampler.h - draws the next token from logits.
 *
 * Order:    repetition penalty -> temperature -> top-k -> top-p -> min-p -> draw. Each uses the result of the
 *           previous: temperature divides all logits; top-k keeps the k likeliest tokens; top-p the smallest set
 *           of the likeliest with this share of their probability; min-p drops tokens less likely than this share
 *           of the likeliest. The draw is proportional to the remaining probabilities. At least one token always
 *           remains. This is the order of transformers' logits processors.
 * Exact:    a function of (logits, bt_sampling, history, index): the same on every machine and for any number of
 *           threads.
 * Owns:     memory for one vocabulary. Threads: one caller. No allocation after create. */
#ifndef BT_ENGINE_MODEL_NET_SAMPLER_H
#define BT_ENGINE_MODEL_NET_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_sampling {
    double temperature; /* 0: always the likeliest token */
    int top_k;          /* 0: no limit */
    /* the smallest set of tokens with this total probability is kept; >= 1: all; 0: only the likeliest */
    double top_p;
    double min_p; /* share of the likeliest token's probability; 0: all */
    /* The logit of a token that has occurred is divided by this number if it is positive and multiplied by it if it is
     * negative (CTRL: Keskar et al. 2019, arXiv:1909.05858, section 4.1); 0 or 1: no penalty. */
    double repetition_penalty;
    uint64_t seed;
} bt_sampling;

typedef struct bt_history { /* tokens that have occurred; borrowed */
    const int32_t *tokens;  /* each in [0, V) */
    size_t n;
} bt_history;

typedef struct bt_sampler bt_sampler;

bt_code bt_sampler_create(bt_sampler **out, size_t V, bt_err *err) BT_MUST_CHECK;
void bt_sampler_destroy(bt_sampler *s);
/* Draws a token from logits (V). index: number of the draw, which seeds the random number. Of equally likely tokens the
 * smaller one counts as more likely. */
int32_t bt_sampler_draw(bt_sampler *s, const float *logits, const bt_sampling *how,
                        bt_history occurred, uint64_t index);

/* Returns the natural logarithm of the sum of exp(logits[0..V)). logits[i] minus it is a log-probability. */
double bt_log_sum_exp(const float *logits, size_t V);

typedef struct bt_ranked {
    int32_t token;
    float logit;
} bt_ranked;
/* Writes the n <= V likeliest tokens, the likeliest first, and of equal ones the smaller token first. It makes at
 * most n * V comparisons, so n should be small. */
void bt_likeliest(bt_ranked *out, size_t n, const float *logits, size_t V);

#endif
