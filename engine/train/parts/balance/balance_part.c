/* balance_part.c - gives slower ranks fewer micro-batches according to their measured speed (parallel.balance=auto). */
#include <inttypes.h>
#include <stdio.h>

#include "engine/train/trainer_impl.h"

static bt_code balance_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)s, (void)err;
    *self = t; /* the part needs no state besides the trainer */
    return BT_OK;
}

static void balance_event(bt_trainer *t, double gain) {
    const bt_micro_plan *p = &t->micro_plan;
    char body[512], *at = body, *end = body + sizeof body;
    int64_t least = INT64_MAX, most = INT64_MIN;
    at += snprintf(at, (size_t)(end - at), "{\"micro_batches\":[");
    for (size_t i = 0; i < p->dp; i++) {
        if (p->shares[i] < least) least = p->shares[i];
        if (p->shares[i] > most) most = p->shares[i];
        if (end - at > 32)
            at += snprintf(at, (size_t)(end - at), "%s%" PRId64, i ? "," : "", p->shares[i]);
    }
    snprintf(at, (size_t)(end - at), "]}");
    bt_telemetry_event(&t->telemetry, BT_EVENT_BALANCE, t->at.step - 1, body,
                       "from the next step ranks take %" PRId64 " to %" PRId64
                       " micro-batches by their speed: steps %.0f %% shorter",
                       least, most, 100 * gain);
}

static bool balance_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    (void)self, (void)o;
    return t->micro_plan.balance == BT_BALANCE_AUTO;
}

static bt_code balance_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    double gain;
    (void)self;
    BT_TRY(bt_micro_plan_adjust(&t->micro_plan, o->seconds_per_micro, &gain, err));
    if (!(gain > 0)) return BT_OK;
    balance_event(t, gain);
    /* units move between ranks of the tree sum */
    if (t->cfg.train.reproducible) BT_TRY(bt_trainer_make_reducer(t, err));
    return bt_trainer_replace_data(t, err);
}

const bt_part bt_part_balance = {.name = "balance",
                                 .create = balance_create,
                                 .due = balance_due,
                                 .after_step = balance_after_step,
                                 .phase = BT_MR_COMM_EXPOSED};
