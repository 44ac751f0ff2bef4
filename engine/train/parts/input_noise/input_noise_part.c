/* input_noise_part.c - tokens that the model reads are replaced or masked at random (train.token_noise,
 * train.mask_inputs). The noise is a function of the seed, the step, and the token's number in the global batch: it
 * has the same bits in every layout and after a resume. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/config/run_property.h"
#include "engine/train/trainer_impl.h"

typedef struct input_noise {
    double masked, replaced; /* probabilities */
    uint64_t seed, vocab;
    size_t rows;
    int32_t inputs[]; /* (rows) of the current micro-batch */
} input_noise;

static bt_code input_noise_create(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                  bt_err *err) {
    const bt_run_cfg *c = s->cfg;
    const size_t rows = (size_t)(c->train.micro_batch * c->model.seq_len);
    (void)t;
    if (c->input_noise.token_noise + c->input_noise.mask_inputs == 0) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(input_noise) + rows * sizeof(int32_t), "noise of the inputs",
                       err));
    input_noise *n = *self;
    *n = (input_noise){.masked = c->input_noise.mask_inputs,
                       .replaced = c->input_noise.token_noise,
                       .seed = (uint64_t)c->run.seed,
                       .vocab = (uint64_t)c->model.vocab,
                       .rows = rows};
    return BT_OK;
}

/* Soft targets are those of the unchanged token, so the noise begins after them, and the loss rises. */
static bool is_without_noise(const bt_trainer *t, int64_t step) {
    return bt_run_has(&t->cfg, BT_RUN_SOFT_TARGETS, step);
}

static bt_code announce_first_noise(void *self, bt_trainer *t, bt_err *err) {
    const int64_t step = t->at.step;
    (void)self;
    (void)err;
    if (step > 0 && is_without_noise(t, step - 1) && !is_without_noise(t, step))
        bt_parts_new_level(t);
    return BT_OK;
}

static void change_inputs(void *self, bt_trainer *t, bt_batch *b, int64_t first_row) {
    input_noise *n = self;
    const int64_t step = t->at.step;
    if (is_without_noise(t, step)) return;
    const uint64_t stream = bt_rng_u64(n->seed, bt_hash_name("input noise"), (uint64_t)step);
    for (size_t i = 0; i < n->rows; i++) {
        const uint64_t row = (uint64_t)first_row + i;
        const double u = bt_rng_unit(n->seed, stream, 2 * row);
        n->inputs[i] = u < n->masked ? -1
                       : u < n->masked + n->replaced
                           ? (int32_t)(bt_rng_u64(n->seed, stream, 2 * row + 1) % n->vocab)
                           : b->inputs[i];
    }
    b->inputs = n->inputs;
}

const bt_part bt_part_input_noise = {.name = "input_noise",
                                     .create = input_noise_create,
                                     .release = free,
                                     .before_step = announce_first_noise,
                                     .change_batch = change_inputs};
