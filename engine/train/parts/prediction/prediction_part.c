/* prediction_part.c - compares step times with the planner's prediction or trial. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/train/parts/prediction/prediction_check.h"
#include "engine/train/trainer_impl.h"

static bt_code prediction_create(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                 bt_err *err) {
    (void)t;
    bt_prediction_check *c = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "cannot take memory for the prediction");
    (void)bt_predicted_read(s->cfg->launch.predicted_parts, &c->predicted);
    *self = c;
    return BT_OK;
}

static bt_code prediction_build(void *self, bt_trainer *t, bt_err *err) {
    (void)self, (void)err;
    t->telemetry.predicted_ms = t->cfg.launch.predicted_ms;
    return BT_OK;
}

/* An attempt with another layout has no prediction; "-" replaces that of the previous attempt. */
static void prediction_facts(void *self, bt_trainer *t, bool goes_on) {
    (void)self;
    bt_predicted p;
    char key[64];
    (void)bt_predicted_read(t->cfg.launch.predicted_parts, &p);
    if (goes_on && isnan(p.step_ms)) bt_trainer_fact(t, "plan.step_ms", "-");
    for (int i = 0; i < BT_PREDICTED_PARTS; i++) {
        const double ms = *bt_predicted_part(&p, i);
        snprintf(key, sizeof key, "plan.%s", bt_predicted_key(i));
        if (isfinite(ms)) bt_trainer_fact(t, key, "%.9g", ms);
    }
}

static bool prediction_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    (void)self, (void)o;
    return t->cfg.launch.predicted_ms > 0 && !bt_parts_partial(t);
}

/* Rank 0 receives the values of all ranks. */
static bt_code prediction_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o, (void)err;
    if (bt_comm_rank(t->mesh.world) == 0)
        bt_prediction_check_step(self, &t->telemetry, t->at.step - 1);
    return BT_OK;
}

const bt_part bt_part_prediction = {.name = "prediction",
                                    .create = prediction_create,
                                    .release = free,
                                    .build = prediction_build,
                                    .facts = prediction_facts,
                                    .due = prediction_due,
                                    .after_step = prediction_after_step,
                                    .phase = BT_MR_MONITOR};
