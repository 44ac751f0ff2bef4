/* profile_part.c - measures the time of each operation of a step (train.profile). */
#include "engine/observe/profile.h"

#include <stdlib.h>

#include "engine/train/trainer_impl.h"

static bt_code profile_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t;
    if (!s->cfg->profile.profile) return BT_OK;
    return bt_part_new(self, sizeof(bt_profile), "the profile", err);
}

static bt_code profile_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const int64_t first = t->attempt.first_step, stop = t->attempt.stop_at,
                  last = stop > 0 && stop < t->cfg.train.steps ? stop : t->cfg.train.steps;
    (void)err;
    bt_profile_step(self, t->at.step - first, last - first, o->rank_values[BT_MR_STEP_TIME]);
    return BT_OK;
}

/* Operations are those of rank 0; processor times are means over the ranks. */
static bt_code profile_end_run(void *self, bt_trainer *t, bt_train_result *out, bt_err *err) {
    bt_profile *p = self;
    char line[200];
    t->attempt.memory_peak_mib = bt_memory_peak_mib();
    bt_profile_close(p, (bt_prec)t->cfg.train.precision);
    BT_TRY(bt_all_reduce_f64(t->mesh.world, p->processor_ms, BT_PHASE_COUNT, BT_SUM, err));
    for (int i = 0; i < BT_PHASE_COUNT; i++) p->processor_ms[i] /= bt_comm_size(t->mesh.world);
    for (size_t i = 0; i < p->n; i++) {
        bt_profile_text(line, sizeof line, &p->rows[i]);
        bt_telemetry_event(&t->telemetry, BT_EVENT_PROFILE, t->at.step - 1, NULL, "%s", line);
    }
    out->profile = *p;
    return BT_OK;
}

const bt_part bt_part_profile = {.name = "profile",
                                 .create = profile_create,
                                 .release = free,
                                 .after_step = profile_after_step,
                                 .phase = BT_MR_OTHER,
                                 .end = profile_end_run};
