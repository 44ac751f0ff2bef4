/* dropout_part.c - a share of what enters the residual (train.dropout), or of the inputs of adapters (tune.dropout), is
 * left out at random. */
#include "engine/train/trainer_impl.h"

static bool adapters_drop(const bt_run_cfg *c) {
    return c->tune.mode == BT_TUNE_LORA && c->tune.dropout > 0;
}

static bt_code dropout_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)err;
    /* There is no state. */
    if (s->cfg->dropout.dropout > 0 || adapters_drop(s->cfg)) *self = t;
    return BT_OK;
}

static void dropout_model_setup(void *self, bt_trainer *t, bt_model_setup *setup) {
    (void)self;
    setup->drops = t->cfg.dropout.dropout > 0;
    setup->drops_lora = adapters_drop(&t->cfg);
}

static void dropout_before_pass(void *self, bt_trainer *t, int64_t first_row) {
    (void)self;
    const uint64_t seed = (uint64_t)t->cfg.run.seed, step = (uint64_t)t->at.step;
    bt_model_dropout(t->model, t->cfg.dropout.dropout, seed, step, (uint64_t)first_row);
    bt_model_lora_dropout(t->model, t->cfg.tune.dropout, seed, step, (uint64_t)first_row);
}

static size_t planned_bytes(const bt_model_setup *s) {
    bt_arena_row rows[BT_PLAN_MAX];
    size_t bytes = 0;
    for (size_t n = bt_model_plan(s, rows, BT_PLAN_MAX); n-- > 0;) bytes += rows[n].bytes;
    return bytes;
}

static size_t dropout_bytes(const bt_rank_setup *s, size_t saved) {
    (void)saved;
    bt_model_setup with = s->model;
    with.drops = s->cfg->dropout.dropout > 0;
    with.drops_lora = adapters_drop(s->cfg);
    return planned_bytes(&with) - planned_bytes(&s->model);
}

const bt_part bt_part_dropout = {
    .name = "dropout",
    .memory = {"dropout", "a branch before dropout, or the gradient of one", dropout_bytes, false},
    .create = dropout_create,
    .model_setup = dropout_model_setup,
    .before_pass = dropout_before_pass};
