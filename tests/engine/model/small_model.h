/* small_model.h - a model of two layers in fp32, with gradients, for tests of losses. */
#ifndef BT_TESTS_SMALL_MODEL_H
#define BT_TESTS_SMALL_MODEL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/model.h"

/* Returns a setup for `sequences` sequences of `tokens` tokens over a vocabulary of `words` words, with four heads;
 * tests change other fields. */
static inline bt_model_setup small_setup(int sequences, int tokens, int words, int width,
                                         int feed_forward) {
    return (bt_model_setup){.cfg = {.L = 2,
                                    .C = width,
                                    .H = 4,
                                    .KV = 2,
                                    .D = width / 4,
                                    .F = feed_forward,
                                    .T = tokens,
                                    .V = words,
                                    .norm = BT_NORM_SUBLN,
                                    .act = BT_ACT_RELU2,
                                    .linear = BT_LIN_DENSE,
                                    .tied = true,
                                    .rope_theta = 100,
                                    .norm_eps = 1e-5,
                                    .init_std = 0.3},
                            .B = sequences,
                            .prec = BT_PREC_FP32,
                            .train = true,
                            .n_threads = 2};
}

/* Creates a model with random weights of a seed; the caller destroys it. */
static inline bt_model *small_model(const bt_model_setup *s, uint64_t seed) {
    bt_model *m = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_create(&m, s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, seed);
    return m;
}

/* Checks that the loss changes along a random direction of all weights as the gradients in m predict. loss returns the
 * loss of the present weights in the scale of the gradients; deviation is that of the direction; h is the step in both
 * directions. The weights are restored. */
static inline void small_slope(bt_model *m, double (*loss)(bt_model *m), float deviation, double h,
                               double tolerance) {
    const size_t n = bt_model_params(m)->total;
    float *w = bt_model_weights(m), *kept = malloc(n * sizeof *kept),
          *way = malloc(n * sizeof *way);
    double slope = 0, side[2];
    assert_non_null(kept);
    assert_non_null(way);
    bt_rng_normal(way, n, 0, deviation, 17, 4);
    for (size_t i = 0; i < n; i++) slope += (double)way[i] * (double)bt_model_grads(m)[i];
    memcpy(kept, w, n * sizeof *kept);
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < n; i++) w[i] = kept[i] + (float)(k ? h : -h) * way[i];
        side[k] = loss(m);
    }
    memcpy(w, kept, n * sizeof *kept);
    const double measured = (side[1] - side[0]) / (2 * h);
    if (!(fabs(measured - slope) < tolerance * fabs(slope)))
        fail_msg("the loss changes by %g, %g by the gradients", measured, slope);
    free(kept);
    free(way);
}

#endif
