/* dropout_part.c - a share of what enters the residual is left out at random (train.dropout). */
#include "engine/train/trainer_impl.h"

static bt_code dropout_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)err;
    if (s->cfg->dropout.dropout > 0) *self = t; /* there is no state */
    return BT_OK;
}

static void dropout_model_setup(void *self, bt_trainer *t, bt_model_setup *setup) {
    (void)self, (void)t;
    setup->drops = true;
}

static void dropout_before_pass(void *self, bt_trainer *t, int64_t first_row) {
    (void)self;
    bt_model_dropout(t->model, t->cfg.dropout.dropout, (uint64_t)t->cfg.run.seed,
                     (uint64_t)t->at.step, (uint64_t)first_row);
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
    if (s->cfg->dropout.dropout == 0) return 0;
    with.drops = true;
    return planned_bytes(&with) - planned_bytes(&s->model);
}

const bt_part bt_part_dropout = {
    .name = "dropout",
    .memory = {"dropout", "a branch before dropout, or the gradient of one", dropout_bytes, false},
    .create = dropout_create,
    .model_setup = dropout_model_setup,
    .before_pass = dropout_before_pass};
