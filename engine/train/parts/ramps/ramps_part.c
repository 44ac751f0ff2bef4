/* ramps_part.c - lets sequences grow (train.seq_ramp). The step number determines the span of attention, so all
 * ranks change together, and a resumed run reads the same data. */
#include <inttypes.h>
#include <stdlib.h>

#include "engine/config/ramp.h"
#include "engine/train/trainer_impl.h"

static bt_code ramps_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    const bt_run_cfg *c = s->cfg;
    if (!c->ramps.seq_ramp[0]) return BT_OK;
    bt_ramp *r = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot take memory for the ramp");
    *self = r;
    t->micro.stretch = c->model.seq_len;
    return bt_ramp_read(r, "train.seq_ramp", c->ramps.seq_ramp, c->ramps.ramp_steps, err);
}

/* The shares refer to the current number of steps, also where it has changed during the run. */
static int64_t step_of_plan(const bt_trainer *t) {
    if (!t->step.planned_steps) return t->at.step;
    return (int64_t)((double)t->at.step * (double)t->step.planned_steps /
                     (double)t->cfg.train.steps);
}

static bt_code ramps_before_step(void *self, bt_trainer *t, bt_err *err) {
    const bool first = t->at.step == t->attempt.first_step;
    const int64_t step = t->at.step,
                  stretch = t->cfg.model.seq_len >> bt_ramp_halvings(self, step_of_plan(t));
    (void)err;
    if (!first && stretch <= t->micro.stretch) return BT_OK; /* sequences do not shrink again */
    t->micro.stretch = stretch;
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, step - 1, NULL,
                       "from step %" PRId64 " on attention sees stretches of %" PRId64, step + 1,
                       stretch);
    return BT_OK;
}

static bool ramps_partial(void *self, const bt_trainer *t) {
    (void)self;
    return t->micro.stretch != t->cfg.model.seq_len;
}

const bt_part bt_part_ramps = {.name = "ramps",
                               .create = ramps_create,
                               .release = free,
                               .before_step = ramps_before_step,
                               .partial = ramps_partial};
