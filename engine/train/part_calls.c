/* part_calls.c - calls the points of part.h for every part of a training, in the order of the table. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/train/trainer_impl.h"

/* Loops over the parts u that are used and implement `point`. */
#define EACH(t, u, point) \
    for (bt_part_use *u = (t)->parts.at; u < (t)->parts.at + (t)->parts.n; u++) \
        if (u->self && u->part->point)

bt_code bt_part_new(void **self, size_t bytes, const char *what, bt_err *err) {
    *self = calloc(1, bytes);
    return *self ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for %s", what);
}

bt_code bt_parts_create(bt_trainer *t, const bt_part *const *rows, size_t n,
                        const bt_trainer_setup *s, bt_err *err) {
    for (size_t i = 0; i < n; i++) {
        bt_part_use *u = &t->parts.at[t->parts.n++];
        *u = (bt_part_use){.part = rows[i], .first_note = t->parts.notes};
        t->parts.notes += rows[i]->notes;
        BT_TRY(bt_agree(bt_comm_world(), rows[i]->create(t, s, &u->self, err), err));
    }
    return BT_OK;
}

void bt_parts_release(bt_trainer *t) {
    while (t->parts.n > 0) {
        bt_part_use *u = &t->parts.at[--t->parts.n];
        if (u->self && u->part->release) u->part->release(u->self);
        u->self = NULL;
    }
}

bt_code bt_parts_prepare(bt_trainer *t, bt_err *err) {
    EACH(t, u, prepare)
    BT_TRY(bt_agree(t->mesh.world, u->part->prepare(u->self, t, err), err));
    return BT_OK;
}

void bt_parts_model_setup(bt_trainer *t, bt_model_setup *setup) {
    EACH(t, u, model_setup) u->part->model_setup(u->self, t, setup);
}

bt_code bt_parts_model_made(bt_trainer *t, bt_err *err) {
    EACH(t, u, model_made) BT_TRY(u->part->model_made(u->self, t, err));
    const char *provider = NULL;
    EACH(t, u, weights_for_use) {
        if (provider)
            return bt_fail(err, BT_ARG,
                           "'%s' and '%s' both replace the weights that validations and other "
                           "programs use (leave the settings of one out)",
                           provider, u->part->name);
        provider = u->part->name;
        t->update.for_use = u->part->weights_for_use(u->self, t);
    }
    return BT_OK;
}

bt_code bt_parts_build(bt_trainer *t, bt_err *err) {
    EACH(t, u, build)
    BT_TRY(bt_agree(t->mesh.world, u->part->build(u->self, t, err), err));
    return BT_OK;
}

void bt_parts_reducer_cfg(bt_trainer *t, bt_reducer_cfg *c) {
    EACH(t, u, reducer_cfg) u->part->reducer_cfg(u->self, t, c);
}

void bt_parts_add_state(bt_trainer *t, bt_state *s) {
    EACH(t, u, add_state) u->part->add_state(u->self, t, s);
}

bt_code bt_parts_load(bt_trainer *t, bt_load_stage stage, bt_err *err) {
    EACH(t, u, load)
    BT_TRY(bt_agree(t->mesh.world, u->part->load(u->self, t, stage, err), err));
    return BT_OK;
}

bt_code bt_parts_ready(bt_trainer *t, bt_err *err) {
    EACH(t, u, ready) BT_TRY(u->part->ready(u->self, t, err));
    return BT_OK;
}

void bt_parts_facts(bt_trainer *t, bool goes_on) {
    EACH(t, u, facts) u->part->facts(u->self, t, goes_on);
}

bt_code bt_parts_before_step(bt_trainer *t, bt_err *err) {
    EACH(t, u, before_step) BT_TRY(u->part->before_step(u->self, t, err));
    return BT_OK;
}

bt_code bt_parts_begin_gradients(bt_trainer *t, bt_step_outcome *o, bool again, bt_err *err) {
    EACH(t, u, begin_gradients) BT_TRY(u->part->begin_gradients(u->self, t, o, again, err));
    return BT_OK;
}

void bt_parts_change_batch(void *trainer, bt_batch *b, int64_t first_row) {
    bt_trainer *t = trainer;
    EACH(t, u, change_batch) u->part->change_batch(u->self, t, b, first_row);
}

void bt_parts_before_pass(void *trainer, int64_t first_row) {
    bt_trainer *t = trainer;
    EACH(t, u, before_pass) u->part->before_pass(u->self, t, first_row);
}

void bt_parts_put_notes(bt_trainer *t, int64_t *notes) {
    EACH(t, u, put_notes) u->part->put_notes(u->self, t, notes + u->first_note);
}

bt_code bt_parts_exchanged(bt_trainer *t, bt_step_outcome *o, const bt_reduce_times *took,
                           const int64_t *notes, bt_err *err) {
    EACH(t, u, exchanged)
    BT_TRY(u->part->exchanged(u->self, t, o, took, notes + u->first_note, err));
    return BT_OK;
}

bt_code bt_parts_verdict(bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict, bt_err *err) {
    *verdict = BT_APPLY;
    EACH(t, u, judge) {
        BT_TRY(u->part->judge(u->self, t, o, verdict, err));
        if (*verdict != BT_APPLY) break;
    }
    return BT_OK;
}

bt_code bt_parts_after_update(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    EACH(t, u, after_update) BT_TRY(u->part->after_update(u->self, t, o, err));
    return BT_OK;
}

bt_code bt_parts_after_step(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    EACH(t, u, after_step) {
        if (u->part->due && !u->part->due(u->self, t, o)) continue;
        bt_span_begin(u->part->phase);
        BT_TRY(u->part->after_step(u->self, t, o, err));
        bt_span_end();
    }
    return BT_OK;
}

bt_code bt_parts_act(bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err) {
    EACH(t, u, act) BT_TRY(u->part->act(u->self, t, c, evaluated, err));
    return BT_OK;
}

bt_code bt_parts_evaluated(bt_trainer *t, bt_err *err) {
    EACH(t, u, evaluated) BT_TRY(u->part->evaluated(u->self, t, err));
    return BT_OK;
}

bt_code bt_parts_check_weights(bt_trainer *t, bt_check_reason why, bt_err *err) {
    EACH(t, u, check_weights) BT_TRY(u->part->check_weights(u->self, t, why, err));
    return BT_OK;
}

void bt_parts_new_level(bt_trainer *t) { EACH(t, u, new_level) u->part->new_level(u->self); }

bool bt_parts_partial(const bt_trainer *t) {
    for (size_t i = 0; i < t->parts.n; i++) {
        const bt_part_use *u = &t->parts.at[i];
        if (u->self && u->part->partial && u->part->partial(u->self, t)) return true;
    }
    return false;
}

/* Every part ends, even after a failure of another one. The first failure is returned. */
bt_code bt_parts_end(bt_trainer *t, bt_train_result *out, bt_err *err) {
    bt_code first = BT_OK;
    EACH(t, u, end) {
        const bt_code code = u->part->end(u->self, t, out, first == BT_OK ? err : NULL);
        if (first == BT_OK) first = code;
    }
    return first;
}

void *bt_trainer_part(const bt_trainer *t, const char *name) {
    for (size_t i = 0; i < t->parts.n; i++)
        if (strcmp(t->parts.at[i].part->name, name) == 0) return t->parts.at[i].self;
    return NULL;
}
