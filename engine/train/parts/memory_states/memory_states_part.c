/* memory_states_part.c - keeps the state of the newest steps in shared memory (memory_saver.h). After a fault, a run
 * resumes from it without losing steps. */
#include <stdlib.h>

#include "engine/base/tables/metric.h"
#include "engine/ckpt/memory/memory_ring.h"
#include "engine/ckpt/memory/memory_state.h"
#include "engine/train/parts/memory_states/memory_saver.h"
#include "engine/train/trainer_impl.h"
#include "engine/update/residual.h"

/* Without states in memory the part only records the reason. */
static bt_code memory_states_create(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                    bt_err *err) {
    (void)t, (void)s;
    return bt_part_new(self, sizeof(bt_memory_saver), "states in memory", err);
}

static void memory_states_release(void *self) {
    bt_memory_saver_close(self);
    free(self);
}

static bt_code memory_states_ready(void *self, bt_trainer *t, bt_err *err) {
    bt_memory_saver *m = self;
    const bool first = m->every == 0,
               from = t->attempt.from.attempt > 0 || t->attempt.from.number > 0;
    bt_memory_saver_close(m);
    return bt_memory_saver_open(m, t, first && from ? &t->attempt.from : NULL, err);
}

static void memory_states_facts(void *self, bt_trainer *t, bool goes_on) {
    const bt_memory_saver *m = self;
    (void)goes_on;
    char size[32];
    if (m->to)
        bt_trainer_fact(t, "memory_states", "two, %s on rank 0%s",
                        bt_metric_format(size, sizeof size, (double)bt_memory_state_total(m->to),
                                         BT_UNIT_BYTES),
                        m->spread ? ", each host's part copied to the next host" : "");
    else if (t->attempt.no_memory_states[0])
        bt_trainer_fact(t, "memory_states", "none: %s", t->attempt.no_memory_states);
}

static void memory_states_put_notes(void *self, bt_trainer *t, int64_t *notes) {
    bt_memory_saver *m = self;
    notes[0] = bt_memory_saver_interval(m, t->step.seconds);
    bt_memory_saver_publish(m, t);
}

static bt_code memory_states_exchanged(void *self, bt_trainer *t, bt_step_outcome *o,
                                       const bt_reduce_times *took, const int64_t *notes,
                                       bt_err *err) {
    bt_memory_saver *m = self;
    (void)o, (void)took, (void)err;
    m->every = notes[0];
    bt_memory_saver_synchronised(m, t);
    return BT_OK;
}

static bool memory_states_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    const bt_memory_saver *m = self;
    (void)o;
    return m->to && bt_every(t->at.step, m->every);
}

static bt_code memory_states_after_step(void *self, bt_trainer *t, bt_step_outcome *o,
                                        bt_err *err) {
    (void)o;
    return bt_memory_saver_write(self, t, err);
}

/* If the last checkpoint failed, the state in memory remains as the newest one. */
static bt_code memory_states_end_run(void *self, bt_trainer *t, bt_train_result *out, bt_err *err) {
    (void)out, (void)err;
    if (!t->saver.trouble[0]) bt_memory_saver_forget(self, t);
    return BT_OK;
}

/* Size of the two newest states that the ranks of the first host hold or, for a spread state, of this rank's part
 * and of copies of another host's parts, which are assumed to be of equal size. */
static size_t memory_state_bytes(const bt_rank_setup *s, size_t saved) {
    int sharer; /* -1 if this rank keeps no part */
    if (s->cfg->ckpt.memory != BT_CKPT_MEMORY_AUTO || !s->cfg->run.out[0]) return 0;
    const size_t residual = bt_residual_bytes(s);
    const int ranks = s->shape.pp * s->shape.dp_replicate * s->shape.dp_shard * s->shape.tp;
    const bool spread = bt_comm_host(ranks - 1) != bt_comm_host(0) &&
                        (residual > 0 || !bt_mesh_first_host_has_all(&s->shape, s->sharded));
    const int sharers = bt_mesh_sharers(&s->shape, &s->me, s->sharded, !spread, &sharer);
    if (sharer < 0) return 0;
    const size_t held = bt_weights_own_bytes(s) + bt_update_bytes(s).optimizer + saved,
                 parts = spread
                             ? 1 + (size_t)bt_memory_kept(bt_mesh_rank_of(&s->shape, &s->me), ranks)
                             : 1;
    return parts * bt_memory_state_bytes(held / (size_t)sharers + residual, 3 * s->params.n);
}

const bt_part bt_part_memory_states = {.name = "memory_states",
                                       .memory = {"memory states",
                                                  "this rank's part of the two newest states, in "
                                                  "shared memory; copies of another host's",
                                                  memory_state_bytes, false},
                                       .notes = 1,
                                       .create = memory_states_create,
                                       .release = memory_states_release,
                                       .ready = memory_states_ready,
                                       .facts = memory_states_facts,
                                       .put_notes = memory_states_put_notes,
                                       .exchanged = memory_states_exchanged,
                                       .due = memory_states_due,
                                       .after_step = memory_states_after_step,
                                       .phase = BT_MR_CKPT,
                                       .end = memory_states_end_run};
