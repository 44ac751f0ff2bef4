/* train_control.c - what people ask for, done by all ranks at the same step. */
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/train/parts.h"

enum { PAUSE_POLL_NS = 20000000 };

static double as_double(int64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* takes the box; positive doubles order like their bits, so the largest note of all ranks is rank
 * 0's */
static void take(bt_trainer *t, int64_t *control, int64_t *lr) {
    if (!t->requests) return;
    uint32_t bits = atomic_exchange(&t->requests->bits, 0);
    if (bits & BT_REQ_LR) {
        int64_t factor = (int64_t)atomic_load(&t->requests->lr_factor_bits);
        if (as_double(factor) > 0 && as_double(factor) < 1e6)
            *lr = factor;
        else
            bits &= ~(uint32_t)BT_REQ_LR;
    }
    *control |= bits;
}

void bt_control_ask(bt_trainer *t) {
    if (t->rank != 0) return;
    take(t, &t->notes[NOTE_CONTROL], &t->notes[NOTE_LR]);
    double minutes = (double)(bt_now_ns() - t->ckpt_at_ns) / 60e9;
    if (t->cfg.ckpt_minutes > 0 && t->cfg.ckpt_every == 0 && minutes >= t->cfg.ckpt_minutes)
        t->notes[NOTE_CONTROL] |= REQ_CKPT_DUE;
}

static bt_code act(bt_trainer *t, int64_t control, int64_t lr, bt_err *err) {
    int64_t step = t->at.step - 1;
    if (control & BT_REQ_LR) {
        t->at.lr_factor = as_double(lr);
        char body[64];
        snprintf(body, sizeof body, "{\"lr_factor\":%.17g}", t->at.lr_factor);
        bt_telemetry_event(&t->telemetry, "control", BT_EV_INFO, step, body,
                           "learning rate times %g from now on", t->at.lr_factor);
    }
    if (control & BT_REQ_EVAL) {
        bt_telemetry_event(&t->telemetry, "control", BT_EV_INFO, step, NULL,
                           "evaluation asked for");
        if (t->evaluator)
            BT_TRY(bt_trainer_evaluate(t, err));
        else
            bt_telemetry_event(&t->telemetry, "warning", BT_EV_WARN, step, NULL,
                               "no validation data: data.val_frac is 0");
    }
    if (control & BT_REQ_CHECKPOINT) {
        bt_telemetry_event(&t->telemetry, "control", BT_EV_INFO, step, NULL,
                           "checkpoint asked for");
        BT_TRY(bt_telemetry_flush(&t->telemetry, err));
        BT_TRY(bt_state_save(t, err));
    }
    if (control & BT_REQ_STOP) {
        bt_telemetry_event(&t->telemetry, "control", BT_EV_INFO, step, NULL, "stop asked for");
        t->stop = true;
    }
    return BT_OK;
}

/* All ranks sleep between looks: a blocking broadcast would burn every core for the length of the
 * pause. */
static bt_code hear_next(bt_trainer *t, int64_t said[2], bt_err *err) {
    said[0] = said[1] = 0;
    while (t->rank == 0 && said[0] == 0) {
        take(t, &said[0], &said[1]);
        if (said[0] == 0) bt_sleep_ns(PAUSE_POLL_NS);
    }
    bt_request r;
    BT_TRY(bt_all_reduce_i64_start(t->mesh.world, said, 2, BT_MAX, &r, err));
    for (bool done = false;;) {
        BT_TRY(bt_request_test(&r, &done, err));
        if (done) return BT_OK;
        bt_sleep_ns(PAUSE_POLL_NS);
    }
}

static bt_code pause_here(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_telemetry_flush(&t->telemetry, err));
    bt_telemetry_event(&t->telemetry, "control", BT_EV_INFO, t->at.step - 1, NULL, "paused");
    int64_t began = bt_now_ns();
    bt_place_enter(t->place, BT_AT_PAUSE, t->at.step - 1);
    while (!t->stop) {
        int64_t said[2];
        BT_TRY(hear_next(t, said, err));
        BT_TRY(act(t, said[0], said[1], err));
        if (said[0] & BT_REQ_RESUME) break;
    }
    bt_telemetry_event(&t->telemetry, "control", BT_EV_INFO, t->at.step - 1, NULL,
                       "%s after a pause of %.1f s", t->stop ? "stopping" : "going on",
                       (double)(bt_now_ns() - began) / 1e9);
    return BT_OK;
}

/* The time this takes belongs to no step. */
bt_code bt_control_obey(bt_trainer *t, bt_err *err) {
    int64_t control = t->notes[NOTE_CONTROL];
    if (control == 0) return BT_OK;
    int64_t began = bt_now_ns();
    BT_TRY(act(t, control, t->notes[NOTE_LR], err));
    if ((control & BT_REQ_PAUSE) && !(control & BT_REQ_RESUME) && !t->stop)
        BT_TRY(pause_here(t, err));
    bt_meter_exclude(&t->meter, bt_now_ns() - began);
    return BT_OK;
}
