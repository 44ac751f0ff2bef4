/* early_stop_part.c - ends a training after train.stop_when evaluations in a row without a new best validation loss.
 *
 * The count is stored in checkpoints, so a resumed run ends at the same evaluation as an uninterrupted one. The loss is
 * equal on all ranks, hence so is the decision. Requested evaluations during a pause do not count, and none counts
 * while layers become ternary (train.lambda_steps). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/span.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_property.h"
#include "engine/config/tune_cfg.h"
#include "engine/train/trainer_impl.h"

typedef struct early_stop {
    int64_t worse;     /* evaluations since the best one */
    double best;       /* infinite before the first evaluation */
    int64_t best_step; /* steps done at the best evaluation */
} early_stop;

static bt_code create_early_stop(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                 bt_err *err) {
    (void)s;
    if (t->cfg.train.stop_when == 0) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(early_stop), "the early stop", err));
    ((early_stop *)*self)->best = INFINITY;
    return BT_OK;
}

static void save_early_stop(void *ctx, bt_json *j) {
    const early_stop *e = ctx;
    bt_json_int(j, "worse", e->worse);
    if (isfinite(e->best)) bt_json_num(j, "best", e->best);
    bt_json_int(j, "best_step", e->best_step);
}

static void load_early_stop_values(void *ctx, const bt_state_values *v) {
    early_stop *e = ctx;
    e->worse = bt_state_int(v, "worse", 0);
    e->best = bt_state_real(v, "best", INFINITY);
    e->best_step = bt_state_int(v, "best_step", 0);
}

static void add_early_stop_state(void *self, bt_trainer *t, bt_state *s) {
    (void)t;
    bt_state_add(s, &(bt_state_row){.name = "early_stop",
                                    .ctx = self,
                                    .save = save_early_stop,
                                    .load = load_early_stop_values});
}

static void decide_early_stop(const early_stop *e, bt_trainer *t) {
    t->step.ends_early = e->worse >= t->cfg.train.stop_when;
}

static bt_code load_early_stop(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    (void)err;
    if (stage == BT_LOAD_RESUMED) decide_early_stop(self, t);
    return BT_OK;
}

static bool early_stop_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    (void)self;
    return o->evaluated && bt_run_lambda(&t->cfg, t->at.step) >= 1;
}

static bt_code count_worse_evaluations(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    early_stop *e = self;
    const double loss = t->validation.newest.nats;
    (void)o, (void)err;
    if (loss < e->best) {
        e->best = loss;
        e->best_step = t->at.step;
        e->worse = 0;
    } else
        e->worse++;
    decide_early_stop(e, t);
    return BT_OK;
}

static bt_code report_early_stop(void *self, bt_trainer *t, bt_train_result *out, bt_err *err) {
    const early_stop *e = self;
    char best[32];
    (void)err;
    if (t->step.ends_early && t->at.step < t->cfg.train.steps)
        snprintf(out->early, sizeof out->early,
                 "%" PRId64 " evaluations without a new best validation loss, which is %s of step "
                 "%" PRId64,
                 e->worse, bt_metric_format(best, sizeof best, e->best, BT_UNIT_NATS),
                 e->best_step);
    return BT_OK;
}

const bt_part bt_part_early_stop = {.name = "early_stop",
                                    .create = create_early_stop,
                                    .release = free,
                                    .add_state = add_early_stop_state,
                                    .load = load_early_stop,
                                    .due = early_stop_due,
                                    .after_step = count_worse_evaluations,
                                    .phase = BT_SPAN_EXCLUDED,
                                    .end = report_early_stop};
