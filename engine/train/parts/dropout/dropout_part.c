/* dropout_part.c - a share of what enters the residual is left out at random (train.dropout). */
#include "engine/train/trainer_impl.h"

static bt_code dropout_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)err;
    if (s->cfg->train.dropout > 0) *self = t; /* there is no state */
    return BT_OK;
}

static bt_code dropout_build(void *self, bt_trainer *t, bt_err *err) {
    (void)self, (void)err;
    t->micro.dropout = t->cfg.train.dropout;
    return BT_OK;
}

const bt_part bt_part_dropout = {
    .name = "dropout", .create = dropout_create, .build = dropout_build};
