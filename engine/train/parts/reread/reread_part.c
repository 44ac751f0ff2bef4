/* reread_part.c - reads the newest checkpoint again in an idle thread (ckpt.verify). Damage emits an event and makes
 * another checkpoint due. */
#include "engine/train/trainer_impl.h"

static bt_code reread_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)err;
    if (s->cfg->ckpt.verify) *self = t;
    return BT_OK;
}

static bool reread_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    (void)self, (void)o;
    return bt_comm_rank(t->mesh.world) == 0;
}

static bt_code reread_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)self, (void)o, (void)err;
    bt_saver_check(&t->saver, false);
    return BT_OK;
}

const bt_part bt_part_reread = {.name = "reread",
                                .create = reread_create,
                                .due = reread_due,
                                .after_step = reread_after_step,
                                .phase = BT_MR_MONITOR};
