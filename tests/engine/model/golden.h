/* golden.h - helpers for golden files: their path, and a training loop like that of nano without the trainer. */
#ifndef BT_TESTS_MODEL_GOLDEN_H
#define BT_TESTS_MODEL_GOLDEN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <stdint.h>

#include "engine/base/rng.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/model.h"
#include "engine/optim/optim.h"

static inline FILE *golden_open(const char *name) {
    char path[1024];
    const char *src = getenv("BT_SRC");
    (void)snprintf(path, sizeof path, "%s/tests/engine/model/%s", src ? src : ".", name);
    return fopen(path, "rb");
}

/* Returns token i + 1 of the endless sequence of synth:chain, as PyTorch's script computes it. */
static inline int32_t chain_next(int32_t t, uint64_t i, uint64_t seed, int32_t V) {
    return (int32_t)((5 * (int64_t)t + 17 + (int64_t)(bt_splitmix64(seed + i) & 3)) % V);
}

typedef struct chain {
    uint64_t i, seed;
    int32_t t, V;
} chain;

/* Fills the next B sequences of T + 1 tokens. */
static inline void chain_batch(chain *c, int32_t *inputs, int32_t *targets, int B, int T) {
    for (int b = 0; b < B; b++) {
        for (int t = 0; t <= T; t++) {
            if (t < T) inputs[b * T + t] = c->t;
            if (t > 0) targets[b * T + t - 1] = c->t;
            c->t = chain_next(c->t, c->i++, c->seed, c->V);
        }
    }
}

/* Creates AdamW over all tensors of a model; the caller frees its spans, *of, after it. */
static inline bt_optim *model_optim(bt_model *m, bt_optim_span **of) {
    const bt_params *p = bt_model_params(m);
    const bt_optim_cfg cfg = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    bt_optim_span *spans = *of = calloc(p->n, sizeof *spans);
    bt_optim *o = NULL;
    bt_err err = BT_ERR_INIT;
    assert_non_null(spans);
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        spans[i] = (bt_optim_span){.begin = t->offset,
                                   .end = t->offset + t->count,
                                   .decay = t->decay,
                                   .matrix = t->linear,
                                   .lr_factor = 1};
    }
    if (bt_optim_create(&o, &cfg, spans, p->n, (bt_range){0, p->total}, &err) != BT_OK)
        fail_msg("%s", err.msg);
    return o;
}

/* Makes one optimizer step over `micros` micro-batches of m; returns the mean loss. */
static inline double train_step(bt_model *m, bt_optim *o, chain *data, int32_t *inputs,
                                int32_t *targets, int B, int micros, int64_t t, float lr) {
    const bt_params *p = bt_model_params(m);
    const bt_model_cfg *c = bt_model_config(m);
    double tokens = (double)B * micros * c->T, loss = 0;
    bt_model_zero_grads(m);
    for (int i = 0; i < micros; i++) {
        chain_batch(data, inputs, targets, B, c->T);
        loss += bt_model_train_micro(m, inputs, targets, 1.0 / tokens, NULL, NULL);
    }
    double norm = sqrt(bt_op_sum_squares(bt_model_grads(m), p->total)), clip = 1.0 / (norm + 1e-6);
    bt_optim_update u = {
        .t = t, .grad_scale = (float)(clip < 1 ? clip : 1), .lr = lr, .decay = 0.1f};
    bt_optim_step(o, bt_model_weights(m), bt_model_grads(m), &u);
    bt_model_quantise(m);
    return loss / tokens;
}

#endif
