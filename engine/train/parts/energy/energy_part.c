/* energy_part.c - measures the energy of each step of this rank in joules, if the processor counts it. */
#include "engine/observe/energy.h"

#include <stdlib.h>

#include "engine/base/testing/testing.h"
#include "engine/train/trainer_impl.h"

static bt_code energy_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    char why[BT_ENERGY_WHY];
    (void)t, (void)s;
    bt_energy *e = calloc(1, sizeof *e);
    if (!e) return bt_fail(err, BT_NOMEM, "cannot take memory for the energy counters");
    bt_energy_open(e, bt_testing_powercap(), why, sizeof why);
    *self = e;
    return BT_OK;
}

static void energy_release(void *self) {
    bt_energy_close(self);
    free(self);
}

static bt_code energy_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)t, (void)err;
    o->rank_values[BT_MR_ENERGY] = bt_energy_take(self);
    return BT_OK;
}

const bt_part bt_part_energy = {.name = "energy",
                                .create = energy_create,
                                .release = energy_release,
                                .after_step = energy_after_step,
                                .phase = BT_MR_MONITOR};
