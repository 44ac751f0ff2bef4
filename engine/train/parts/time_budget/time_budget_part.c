/* time_budget_part.c - corrects the number of steps of a run while it trains, so that it ends on time
 * (train.time_budget).
 *
 * Rank 0 sends the time that it has used as a note of each step's exchange. At each tenth of the time or of the steps,
 * all ranks compute the same new number of steps. The curve of the learning rate ends there from then on. What else was
 * derived from train.steps before the run (ramps, the half life of the average, intervals of validations and
 * checkpoints) stays as it is. Pauses on request do not count.
 *
 * Checkpoints contain the number of steps and the time used, so a resumed run continues with both. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/train/parts/time_budget/budget_steps.h"
#include "engine/train/trainer_impl.h"

enum { PARTS = 10 };            /* number of equal parts of the time, and of the steps */
static const double MOST = 1.5; /* times train.steps */

typedef struct time_budget {
    double budget_s;
    int64_t steps, most;  /* total number of steps; its maximum */
    int64_t began_ns;     /* begin of the current step */
    double spent_s;       /* time of all steps on this rank */
    bt_time_use now;      /* by rank 0's clock, before the current step */
    bt_time_use marks[2]; /* the newest correction, or the start; and the one before */
    int part;             /* part in which the newest mark lies */
} time_budget;

static bt_code create_time_budget(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                  bt_err *err) {
    (void)t;
    if (s->cfg->time_budget.time_budget == 0) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(time_budget), "the budget of time", err));
    time_budget *b = *self;
    b->budget_s = s->cfg->time_budget.time_budget;
    b->steps = s->cfg->train.steps;
    b->most = (int64_t)(MOST * (double)b->steps);
    return BT_OK;
}

static void save_time_budget(void *ctx, bt_json *j) {
    const time_budget *b = ctx;
    bt_json_int(j, "steps", b->steps);
    bt_json_int(j, "most", b->most);
    bt_json_num(j, "seconds", b->now.seconds);
}

static void load_time_budget_values(void *ctx, const bt_state_values *v) {
    time_budget *b = ctx;
    b->steps = bt_state_int(v, "steps", b->steps);
    b->most = bt_state_int(v, "most", b->most);
    b->spent_s = b->now.seconds = bt_state_real(v, "seconds", 0);
}

static void add_time_budget_state(void *self, bt_trainer *t, bt_state *s) {
    (void)t;
    bt_state_add(s, &(bt_state_row){.name = "time_budget",
                                    .ctx = self,
                                    .save = save_time_budget,
                                    .load = load_time_budget_values});
}

static void set_number_of_steps(bt_trainer *t, int64_t steps) {
    t->cfg.train.steps = t->now.train.steps = t->lr.steps = steps;
}

/* The larger of the shares of the time and of the steps, in parts. */
static int current_part(const time_budget *b) {
    const double time = b->now.seconds / b->budget_s,
                 steps = (double)b->now.steps / (double)b->steps;
    return (int)(PARTS * fmax(time, steps));
}

static bt_code load_time_budget(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    time_budget *b = self;
    (void)err;
    if (stage == BT_LOAD_RESUMED) set_number_of_steps(t, b->steps);
    b->now.steps = t->at.step;
    b->marks[0] = b->marks[1] = b->now;
    b->part = current_part(b);
    return BT_OK;
}

static bt_code begin_timed_step(void *self, bt_trainer *t, bt_err *err) {
    (void)t, (void)err;
    ((time_budget *)self)->began_ns = bt_now_ns();
    return BT_OK;
}

static void put_spent_time(void *self, bt_trainer *t, int64_t *notes) {
    const time_budget *b = self;
    if (bt_comm_rank(t->mesh.world) == 0) notes[0] = (int64_t)(1e3 * b->spent_s);
}

static bt_code correct_number_of_steps(void *self, bt_trainer *t, bt_step_outcome *o,
                                       const bt_reduce_times *took, const int64_t *notes,
                                       bt_err *err) {
    time_budget *b = self;
    (void)o, (void)took, (void)err;
    b->now = (bt_time_use){t->at.step, (double)notes[0] / 1e3};
    const int part = current_part(b);
    if (part <= b->part) return BT_OK;
    const bt_time_use before = b->marks[1];
    b->marks[1] = b->marks[0];
    b->marks[0] = b->now;
    b->part = part;
    int64_t steps = bt_budget_steps(b->budget_s, before, b->now, b->steps, b->most);
    if (steps <= t->at.step) steps = t->at.step + 1; /* this step will be done */
    if (steps == b->steps) return BT_OK;
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "the run ends after step %" PRId64 ", not %" PRId64
                       ": %.0f of its %.0f seconds are used (train.time_budget)",
                       steps, b->steps, b->now.seconds, b->budget_s);
    b->steps = steps;
    set_number_of_steps(t, steps);
    bt_trainer_fact(t, "steps_total", "%" PRId64, steps);
    return BT_OK;
}

static bt_code end_timed_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    time_budget *b = self;
    (void)t, (void)o, (void)err;
    b->spent_s += (double)(bt_now_ns() - b->began_ns) / 1e9;
    return BT_OK;
}

const bt_part bt_part_time_budget = {.name = "time_budget",
                                     .notes = 1,
                                     .create = create_time_budget,
                                     .release = free,
                                     .add_state = add_time_budget_state,
                                     .load = load_time_budget,
                                     .before_step = begin_timed_step,
                                     .put_notes = put_spent_time,
                                     .exchanged = correct_number_of_steps,
                                     .after_step = end_timed_step,
                                     .phase = BT_SPAN_EXCLUDED};
