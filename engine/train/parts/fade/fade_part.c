/* fade_part.c - makes layers ternary gradually (train.lambda_steps): lambda is a function of the step number. */
#include <stdlib.h>

#include "engine/config/tune_cfg.h"
#include "engine/train/trainer_impl.h"

typedef struct fade {
    double lambda; /* lambda of the next step */
} fade;

static bt_code fade_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (!bt_tune_fades(s->cfg)) return BT_OK;
    return bt_part_new(self, sizeof(fade), "train.lambda_steps", err);
}

static bt_code fade_load(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    fade *f = self;
    (void)err;
    if (stage == BT_LOAD_BEFORE) return BT_OK;
    f->lambda = bt_tune_lambda(&t->cfg, t->at.step);
    bt_model_lambda(t->model, f->lambda);
    return BT_OK;
}

static bt_code fade_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    fade *f = self;
    const double lambda = bt_tune_lambda(&t->cfg, t->at.step);
    (void)o, (void)err;
    if (lambda != f->lambda) bt_parts_new_level(t);
    f->lambda = lambda;
    bt_model_lambda(t->model, lambda);
    return BT_OK;
}

const bt_part bt_part_fade = {.name = "fade",
                              .create = fade_create,
                              .release = free,
                              .load = fade_load,
                              .after_step = fade_after_step,
                              .phase = BT_MR_OPTIM};
