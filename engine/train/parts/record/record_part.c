/* record_part.c - sends the step's values and the statistics of train.stats_every to the sink. */
#include <math.h>

#include "engine/config/run_property.h"
#include "engine/config/tune_cfg.h"
#include "engine/train/trainer_impl.h"

static bt_code record_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)s, (void)err;
    *self = t;
    return BT_OK;
}

static bt_code record_statistics(bt_trainer *t, const bt_step_outcome *o, bt_err *err) {
    const bt_sample_step s = {.step = t->at.step - 1,
                              .applied = o->applied,
                              .unscale = 1 / o->loss_scale,
                              .residual_ratio = o->residual_ratio,
                              .grad_bits = o->grad_bits};
    bt_progress_enter(t->page, BT_AT_RECORD, t->at.step - 1);
    return bt_observer_sample(t->observer, &s, err);
}

/* A step before a pause is always recorded, because an evaluation during the pause belongs to it. */
static bool has_record(const bt_trainer *t, const bt_step_outcome *o) {
    if (o->again) return false;
    return bt_every(t->at.step - 1, t->cfg.train.log_every) || o->evaluated || !o->applied ||
           (o->control.verbs & BT_REQ_PAUSE) || bt_trainer_at_end(t) || bt_trainer_at_stop(t);
}

static bt_code record_train_step(bt_trainer *t, const bt_step_outcome *o, bt_err *err) {
    double values[BT_MS_COUNT];
    bt_progress_enter(t->page, BT_AT_RECORD, t->at.step - 1);
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    values[BT_MS_TOKENS] = (double)t->at.tokens;
    values[BT_MS_LOSS] = o->global_loss;
    values[BT_MS_COUNTED] = (double)o->counted;
    values[BT_MS_GRAD_NORM] = o->grad_norm;
    values[BT_MS_LR] = o->lr;
    values[BT_MS_WEIGHT_DECAY] = o->weight_decay;
    values[BT_MS_LOSS_SCALE] = o->loss_scale;
    values[BT_MS_SKIPPED] = !o->applied;
    if (o->score.n > 0) values[BT_MS_ACCURACY] = o->score.right / o->score.n;
    if (t->setup.model.pairs) values[BT_MS_REWARD_MARGIN] = o->score.margin / o->score.n;
    if (o->evaluated) values[BT_MS_VAL_ACCURACY] = t->validation.newest.accuracy;
    if (o->evaluated) values[BT_MS_VAL_MARGIN] = t->validation.newest.margin;
    if (o->evaluated) values[BT_MS_VAL_F1] = t->validation.newest.macro_f1;
    values[BT_MS_LAMBDA] = bt_run_has(&t->cfg, BT_RUN_FADES, 0)
                               ? bt_run_lambda(&t->cfg, t->at.step - 1)
                               : NAN;
    if (o->evaluated) values[BT_MS_VAL_LOSS] = t->validation.newest.nats;
    return bt_telemetry_post(&t->telemetry, t->at.step - 1, values, o->rank_values, err);
}

static bt_code record_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)self;
    if (bt_every(t->at.step - 1, t->cfg.train.stats_every)) BT_TRY(record_statistics(t, o, err));
    return has_record(t, o) ? record_train_step(t, o, err) : BT_OK;
}

const bt_part bt_part_record = {.name = "record",
                                .create = record_create,
                                .after_step = record_after_step,
                                .phase = BT_MR_MONITOR};
