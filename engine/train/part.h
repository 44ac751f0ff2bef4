/* part.h - the interface of a part: one optional feature of training, a folder below engine/train/parts and a
 * row of parts.def.
 *
 * The trainer owns the objects that every training has (trainer_impl.h): mesh, model, data, exchange, update,
 * checkpoints, record. A part owns everything that its feature needs beyond them, as one struct behind `self`,
 * and acts at the points below. The trainer knows no part by name; parts do not call each other, except through
 * these points. A training without a feature runs as if its row and folder did not exist.
 *
 *     start   create -> (mesh, memory plan) -> prepare -> (model, data) -> build -> (exchange) -> add_state ->
 *             load(BEFORE) -> weights -> load(RESUMED | FRESH) -> (quantised weights) -> ready -> facts
 *     step    before_step -> { begin_gradients -> gradients -> put_notes -> exchange -> exchanged -> norm -> judge,
 *             again while a part answers AGAIN } -> update -> after_update -> after_step
 *     end     end -> release
 *
 * Settings that a part alone reads are rows of its NAME_options.def (columns: config/options.def).
 * Every point may be NULL. Parts are called in the order of parts.def, release in the reverse order.
 * Ranks:    all points but put_notes, due, partial and release are called by all ranks alike and may be
 *           collective over the world. Where a point returns a code during the start, all ranks agree on it before
 *           the next part is called; during a step a part agrees by itself on what can fail on one rank alone.
 * Threads:  the training thread. No allocation within a step. */
#ifndef BT_ENGINE_TRAIN_PART_H
#define BT_ENGINE_TRAIN_PART_H

#include "engine/ckpt/state.h"
#include "engine/model/net/model.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/train/run_control.h"
#include "engine/train/trainer.h"

typedef struct bt_step_outcome bt_step_outcome;

/* What becomes of a step whose gradients and norm are known. The first part that does not answer APPLY decides. */
typedef enum bt_verdict {
    BT_APPLY, /* the optimizer applies the gradients */
    BT_SKIP,  /* the weights stay as they are, the step counts as done */
    BT_AGAIN, /* the gradients are computed once more, then the parts are asked again */
    BT_ELSEWHERE, /* the step counts as applied, but not by this trainer's optimizer (a hub applies it) */
} bt_verdict;

typedef enum bt_load_stage {
    BT_LOAD_BEFORE, /* no weights are there yet: what checkpoints do not hold (base, teacher) is read now */
    BT_LOAD_RESUMED, /* weights and states come from a checkpoint */
    BT_LOAD_FRESH,   /* weights are initial ones, or those of model.init_from */
} bt_load_stage;

/* why weights are checked */
typedef enum bt_weights_check {
    BT_CHECK_BEFORE_SAVE, /* a checkpoint is made of them */
    BT_CHECK_SUSPECTED,   /* a step was bad: they may be damaged */
} bt_check_reason;

enum { BT_PART_NOTES = 16 }; /* notes of all parts together */

typedef struct bt_part {
    const char *name;
    int notes; /* how many small integers travel with the gradients of each step, for put_notes */

    /* ---- start */
    /* Allocates *self. Settings are known, nothing else is. A part that this run does not use leaves *self NULL
     * and is not called again. */
    bt_code (*create)(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err);
    void (*release)(void *self);
    /* the mesh is known, the model is not */
    bt_code (*prepare)(void *self, bt_trainer *t, bt_err *err);
    /* the model is about to be made: the part may change its setup */
    void (*model_setup)(void *self, bt_trainer *t, bt_model_setup *setup);
    /* a model was made, at the start or anew around the same weights */
    bt_code (*model_made)(void *self, bt_trainer *t, bt_err *err);
    /* model, data and telemetry are there; the exchange of gradients is not */
    bt_code (*build)(void *self, bt_trainer *t, bt_err *err);
    /* the exchange of gradients is about to be made: codec, rounding, residuals */
    void (*reducer_cfg)(void *self, bt_trainer *t, bt_reducer_cfg *c);
    void (*add_state)(void *self, bt_trainer *t, bt_state *s);
    bt_code (*load)(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err);
    /* weights are quantised, the first step is next. Called again after a model was made anew */
    bt_code (*ready)(void *self, bt_trainer *t, bt_err *err);
    /* facts of the run for the record, before the first step: bt_trainer_fact; rank 0 only */
    void (*facts)(void *self, bt_trainer *t, bool goes_on);

    /* ---- step */
    bt_code (*before_step)(void *self, bt_trainer *t, bt_err *err);
    /* gradients are zero and are computed next; again: a second time for the same step */
    bt_code (*begin_gradients)(void *self, bt_trainer *t, bt_step_outcome *o, bool again,
                               bt_err *err);
    /* this rank's notes, not negative unless the part expects that; every rank then gets the largest of each */
    void (*put_notes)(void *self, bt_trainer *t, int64_t *notes);
    /* the sums of all ranks are there */
    bt_code (*exchanged)(void *self, bt_trainer *t, bt_step_outcome *o, const bt_reduce_times *took,
                         const int64_t *notes, bt_err *err);
    bt_code (*judge)(void *self, bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict,
                     bt_err *err);
    /* the optimizer has applied the step, or o->applied is false, or o->elsewhere is true */
    bt_code (*after_update)(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err);
    /* due: the same on all ranks; NULL: after every step. phase: the metric of rank that its time is charged to,
     * or BT_SPAN_EXCLUDED */
    bool (*due)(void *self, const bt_trainer *t, const bt_step_outcome *o);
    bt_code (*after_step)(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err);
    int phase;

    /* ---- asked by other parts, through the trainer */
    /* a person asked for something; done: the validation loss of these weights is known already */
    bt_code (*act)(void *self, bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err);
    /* the weights were evaluated */
    bt_code (*evaluated)(void *self, bt_trainer *t, bt_err *err);
    bt_code (*check_weights)(void *self, bt_trainer *t, bt_check_reason why, bt_err *err);
    /* losses and gradients of earlier steps are no measure of those to come */
    void (*new_level)(void *self);
    /* the step that was just done was smaller than, or of another kind than, the run's full step */
    bool (*partial)(void *self, const bt_trainer *t);

    /* ---- end */
    /* the last step is done and saved */
    bt_code (*end)(void *self, bt_trainer *t, bt_train_result *out, bt_err *err);
} bt_part;

/* the rows of parts.def, in their order */
extern const bt_part *const bt_parts[];
extern const size_t bt_parts_n;

#endif
