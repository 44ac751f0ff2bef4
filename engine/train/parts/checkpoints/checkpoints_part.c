/* checkpoints_part.c - decides when a checkpoint on disk is due, and advances one that is written during training. */
#include <stdlib.h>

#include "engine/train/trainer_impl.h"
#include "engine/update/residual.h"

enum { NOTE_BUSY, NOTE_DUE, NOTES };

typedef struct checkpoints {
    bool busy;      /* some rank has not finished the current stage of the pending checkpoint */
    bool clock_due; /* a checkpoint is due by rank 0's clock */
    bool postponed; /* a checkpoint waits because the last step was bad */
} checkpoints;

static bt_code checkpoints_create(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                  bt_err *err) {
    (void)t, (void)s;
    return bt_part_new(self, sizeof(checkpoints), "checkpoints", err);
}

static void checkpoints_put_notes(void *self, bt_trainer *t, int64_t *notes) {
    (void)self;
    notes[NOTE_BUSY] = bt_saver_busy(&t->saver);
    notes[NOTE_DUE] = bt_comm_rank(t->mesh.world) == 0 && bt_saver_due(&t->saver);
}

static bt_code checkpoints_exchanged(void *self, bt_trainer *t, bt_step_outcome *o,
                                     const bt_reduce_times *took, const int64_t *notes,
                                     bt_err *err) {
    checkpoints *c = self;
    (void)t, (void)took, (void)err;
    c->busy = notes[NOTE_BUSY] != 0;
    /* the first computation of a repeated step counts too */
    c->clock_due = notes[NOTE_DUE] != 0 || (o->computed > 1 && c->clock_due);
    return BT_OK;
}

/* Weights of a bad step may be damaged, so a checkpoint waits for the next good step, except after the last step. */
static bool is_last_step(const bt_trainer *t, const bt_step_outcome *o) {
    return bt_trainer_at_end(t) || bt_trainer_at_stop(t) || (o->control.verbs & BT_REQ_STOP);
}

static bool is_due(const checkpoints *c, const bt_trainer *t, const bt_step_outcome *o) {
    return (bt_trainer_at_end(t) && t->cfg.ckpt.final) || bt_trainer_at_stop(t) ||
           (o->control.verbs & BT_REQ_STOP) || c->clock_due || c->postponed ||
           (o->best && !o->bad) || bt_every(t->at.step, t->cfg.ckpt.every);
}

/* A pending checkpoint enters its next stage when no rank is busy. */
static bool next_stage(const checkpoints *c, const bt_trainer *t) {
    return bt_saver_pending(&t->saver) && !c->busy;
}

static bool is_save_wanted(const checkpoints *c, const bt_trainer *t, const bt_step_outcome *o) {
    return is_due(c, t, o) || (o->control.verbs & BT_REQ_CHECKPOINT);
}

static bool checkpoints_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    return next_stage(self, t) || is_save_wanted(self, t, o);
}

static bt_code checkpoints_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    checkpoints *c = self;
    const bool due_now = is_due(c, t, o);
    if (next_stage(c, t)) BT_TRY(bt_saver_advance(&t->saver, err));
    if (is_save_wanted(c, t, o)) c->postponed = o->bad && !is_last_step(t, o);
    if (!due_now || c->postponed) return BT_OK;
    return bt_trainer_save(t, o->best, is_last_step(t, o), err);
}

static bt_code checkpoints_act(void *self, bt_trainer *t, const bt_control *request, bool evaluated,
                               bt_err *err) {
    const checkpoints *c = self;
    (void)evaluated;
    if (!(request->verbs & BT_REQ_CHECKPOINT)) return BT_OK;
    if (!c->postponed) return bt_trainer_save(t, false, false, err);
    bt_telemetry_event(&t->telemetry, BT_EVENT_CONTROL, t->at.step - 1, NULL,
                       "the requested checkpoint is saved after the next good step");
    return BT_OK;
}

/* Returns the size of this rank's part of the state that replicas also hold. */
static size_t checkpoint_copy_bytes(const bt_rank_setup *s, size_t saved) {
    const size_t replicas = (size_t)(s->sharded ? s->shape.dp_replicate : s->dp);
    if (!s->cfg->ckpt.async || !s->cfg->run.out[0]) return 0;
    return (bt_weights_own_bytes(s) + bt_update_bytes(s).optimizer + saved) / replicas +
           bt_residual_bytes(s);
}

const bt_part bt_part_checkpoints = {
    .name = "checkpoints",
    .memory = {"checkpoint",
               "copy of the state, written while training continues "
               "(ckpt.async)",
               checkpoint_copy_bytes, false},
    .notes = NOTES,
    .create = checkpoints_create,
    .release = free,
    .put_notes = checkpoints_put_notes,
    .exchanged = checkpoints_exchanged,
    .due = checkpoints_due,
    .after_step = checkpoints_after_step,
    .phase = BT_MR_CKPT,
    .act = checkpoints_act};
