/* time_budget_part.c - corrects the number of steps of a run while it trains, so that it ends on time
 * (train.time_budget).
 *
 * Rank 0 sends the time that it has used as a note of each step's exchange. At each tenth of the time or of the steps,
 * all ranks compute the same new number of steps. From then on the curve of the learning rate and the growth of
 * sequences end with the new number. No run becomes so short that its layers are not ternary at its end. The half life
 * of the average and the intervals of validations and checkpoints keep their number of steps. Pauses on request do not
 * count.
 *
 * Checkpoints contain the number of steps and the time used, so a resumed run continues with both. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/config/run_property.h"
#include "engine/train/parts/time_budget/budget_steps.h"
#include "engine/train/trainer_impl.h"

enum { PARTS = 10 };            /* number of equal parts of the time, and of the steps */
static const double MOST = 1.5; /* times train.steps */

typedef struct time_budget {
    double budget_s;
    int64_t planned, steps; /* total number of steps at the start of the run, and now */
    int64_t began_ns;       /* time at which the current step began */
    double spent_s;         /* time of all steps on this rank */
    bt_time_use now;        /* steps before the current one, and their time on rank 0 */
    bt_time_use marks[2];   /* `now` at the newest and at the second newest measurement */
    int part;               /* number of completed parts at the newest measurement */
} time_budget;

static bt_code create_time_budget(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                  bt_err *err) {
    (void)t;
    if (s->cfg->time_budget.time_budget == 0) return BT_OK;
    BT_TRY(bt_part_new(self, sizeof(time_budget), "the budget of time", err));
    time_budget *b = *self;
    b->budget_s = s->cfg->time_budget.time_budget;
    b->planned = b->steps = s->cfg->train.steps;
    return BT_OK;
}

static void save_time_budget(void *ctx, bt_json *j) {
    const time_budget *b = ctx;
    bt_json_int(j, "steps", b->steps);
    bt_json_int(j, "planned", b->planned);
    bt_json_num(j, "seconds", b->now.seconds);
}

static void load_time_budget_values(void *ctx, const bt_state_values *v) {
    time_budget *b = ctx;
    b->steps = bt_state_int(v, "steps", b->steps);
    b->planned = bt_state_int(v, "planned", b->planned);
    b->spent_s = b->now.seconds = bt_state_real(v, "seconds", 0);
}

static void add_time_budget_state(void *self, bt_trainer *t, bt_state *s) {
    (void)t;
    bt_state_add(s, &(bt_state_row){.name = "time_budget",
                                    .ctx = self,
                                    .save = save_time_budget,
                                    .load = load_time_budget_values});
}

static void set_number_of_steps(const time_budget *b, bt_trainer *t) {
    t->cfg.train.steps = t->now.train.steps = t->lr.steps = b->steps;
    t->step.planned_steps = b->planned;
}

/* Returns the smallest number of steps from `steps` to `most` with which the layers are ternary in the last step. */
static int64_t steps_until_ternary(const bt_trainer *t, int64_t steps, int64_t most) {
    while (steps < most) {
        const int64_t middle = steps + (most - steps) / 2;
        if (!bt_run_has(&t->cfg, BT_RUN_DENSE, middle - 1) &&
            bt_run_lambda(&t->cfg, middle - 1) >= 1)
            most = middle;
        else
            steps = middle + 1;
    }
    return steps;
}

/* Returns the number of completed parts of the time, or of the steps if that is larger. */
static int completed_parts(const time_budget *b) {
    const double time = b->now.seconds / b->budget_s,
                 steps = (double)b->now.steps / (double)b->steps;
    return (int)(PARTS * fmax(time, steps));
}

static bt_code load_time_budget(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err) {
    time_budget *b = self;
    (void)err;
    if (stage == BT_LOAD_RESUMED) set_number_of_steps(b, t);
    b->now.steps = t->at.step;
    b->marks[0] = b->marks[1] = b->now;
    b->part = completed_parts(b);
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
    const int part = completed_parts(b);
    if (part <= b->part) return BT_OK;
    const bt_time_use before = b->marks[1];
    b->marks[1] = b->marks[0];
    b->marks[0] = b->now;
    b->part = part;
    const int64_t most = (int64_t)(MOST * (double)b->planned);
    int64_t steps = bt_budget_steps(b->budget_s, before, b->now, b->steps, most);
    if (steps <= t->at.step) steps = t->at.step + 1; /* this step will be done */
    if (steps < b->steps) steps = steps_until_ternary(t, steps, b->steps);
    if (steps == b->steps) return BT_OK;
    bt_telemetry_event(&t->telemetry, BT_EVENT_RAMP, t->at.step - 1, NULL,
                       "the run ends after step %" PRId64 ", not %" PRId64
                       ": %.0f of its %.0f seconds are used (train.time_budget)",
                       steps, b->steps, b->now.seconds, b->budget_s);
    b->steps = steps;
    set_number_of_steps(b, t);
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
