/* control_part.c - user requests to a running training (run_control.h): rank 0 takes them, the step's exchange
 * distributes them, and each part executes its own. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/train/trainer_impl.h"

/* LEAVE: 0, or 1 + the highest rank except rank 0 that received a signal to leave */
enum { NOTE_VERBS, NOTE_LR, NOTE_LEAVE, NOTES };

static bt_code control_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)s, (void)err;
    *self = t;
    return BT_OK;
}

static void control_put_notes(void *self, bt_trainer *t, int64_t *notes) {
    const int rank = bt_comm_rank(t->mesh.world);
    const bt_control asked = bt_control_take(t->requests);
    (void)self;
    if (rank == 0) {
        notes[NOTE_VERBS] = asked.verbs;
        notes[NOTE_LR] = asked.lr_bits;
    } else if (asked.verbs & BT_REQ_STOP)
        notes[NOTE_LEAVE] = 1 + rank;
}

/* Host loss is announced to one rank (batch system, cloud): all ranks save and leave together, and the supervisor
 * restarts the run without that host. */
static void leave_together(bt_trainer *t, bt_step_outcome *out, int rank) {
    char title[80];
    out->control.verbs |= BT_REQ_STOP;
    snprintf(title, sizeof title, "rank %d received a signal to leave: all ranks save and leave",
             rank);
    bt_telemetry_event_of(&t->telemetry, BT_EVENT_RANK_LEAVES, rank, t->at.step, NULL, title);
}

static bt_code control_exchanged(void *self, bt_trainer *t, bt_step_outcome *o,
                                 const bt_reduce_times *took, const int64_t *notes, bt_err *err) {
    (void)self, (void)took, (void)err;
    o->control.verbs |= notes[NOTE_VERBS];
    if (notes[NOTE_LR] != 0) o->control.lr_bits = notes[NOTE_LR];
    if (notes[NOTE_LEAVE] && !(o->control.verbs & BT_REQ_STOP))
        leave_together(t, o, (int)notes[NOTE_LEAVE] - 1);
    return BT_OK;
}

static void change_lr(bt_trainer *t, double factor) {
    char body[64];
    t->at.lr_factor = factor;
    snprintf(body, sizeof body, "{\"lr_factor\":%.17g}", factor);
    bt_telemetry_event(&t->telemetry, BT_EVENT_CONTROL, t->at.step - 1, body,
                       "learning rate factor %g from this step on", factor);
}

/* Executes requests, whose authors the supervisor records. evaluated: the current weights have a validation loss. */
static bt_code act_on(bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err) {
    if (c->verbs & BT_REQ_LR) change_lr(t, bt_control_lr_factor(c));
    BT_TRY(bt_parts_act(t, c, evaluated, err));
    if (c->verbs & BT_REQ_STOP) t->step.stop = true;
    return BT_OK;
}

static void while_paused(void *ctx) { bt_saver_check(&((bt_trainer *)ctx)->saver, true); }

static bt_code pause_here(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_telemetry_flush(&t->telemetry, err));
    BT_TRY(bt_saver_finish(&t->saver, err));
    bt_telemetry_event(&t->telemetry, BT_EVENT_PAUSED, t->at.step - 1, NULL,
                       "paused after step %" PRId64, t->at.step);
    int64_t began = bt_now_ns();
    bt_progress_enter(t->page, BT_AT_PAUSE, t->at.step - 1);
    while (!t->step.stop) {
        bt_control c;
        const bt_control_idle idle = {while_paused, t};
        BT_TRY(bt_control_wait(t->mesh.world, t->requests, &idle, &c, err));
        BT_TRY(act_on(t, &c, false, err));
        BT_TRY(bt_saver_finish(&t->saver, err));
        if (c.verbs & BT_REQ_RESUME) break;
    }
    bt_telemetry_event(&t->telemetry, BT_EVENT_CONTINUED, t->at.step - 1, NULL,
                       "%s after a pause of %.1f s", t->step.stop ? "stopping" : "resumed",
                       (double)(bt_now_ns() - began) / 1e9);
    return BT_OK;
}

static bool control_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    (void)self, (void)t;
    return o->control.verbs != 0;
}

static bt_code control_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)self;
    BT_TRY(act_on(t, &o->control, o->evaluated, err));
    const bool pause = (o->control.verbs & BT_REQ_PAUSE) && !(o->control.verbs & BT_REQ_RESUME);
    return pause && !t->step.stop ? pause_here(t, err) : BT_OK;
}

const bt_part bt_part_control = {.name = "control",
                                 .notes = NOTES,
                                 .create = control_create,
                                 .put_notes = control_put_notes,
                                 .exchanged = control_exchanged,
                                 .due = control_due,
                                 .after_step = control_after_step,
                                 .phase = BT_SPAN_EXCLUDED};
