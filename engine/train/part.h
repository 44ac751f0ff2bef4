/* part.h - the interface of a part: one optional feature of training, a folder below engine/train/parts and a
 * row of parts.def.
 *
 * The trainer owns the objects of every training (trainer_impl.h): mesh, model, data, exchange, update,
 * checkpoints, record. A part owns the additional state of its feature, one struct behind `self`, and the trainer
 * calls the functions below at fixed points. The trainer contains no names of parts. Parts do not call each other
 * directly. Without its row and folder, a training runs without the feature.
 *
 *     start   create -> (mesh, memory plan) -> prepare -> (model, data) -> build -> (exchange) -> add_state ->
 *             load(BEFORE) -> weights -> load(RESUMED | FRESH) -> (quantised weights) -> ready -> facts
 *     step    before_step -> { begin_gradients -> gradients (of each micro-batch: change_batch, before_pass twice) ->
 *             put_notes -> exchange -> exchanged -> norm -> judge, repeated while a part returns AGAIN } ->
 *             update -> after_update -> after_step
 *     end     end -> release
 *
 * Settings that a part alone reads are rows of its NAME_settings.def, and so are its rules about them: settings that
 * exclude each other, automatic values, warnings, resume, the recipe, values that commands force, and properties of
 * the run that code outside the part needs (config/settings/each_part_setting.def, config/run_property.h).
 * Every point may be NULL. Parts are called in the order of parts.def, release in the reverse order.
 * Ranks:    all points but put_notes, due, partial and release are called by all ranks alike and may be
 *           collective over the world. During the start, all ranks agree on the code of a point before the next part
 *           is called; during a step a part itself agrees on errors that can occur on one rank alone.
 * Threads:  the training thread. No allocation within a step. */
#ifndef BT_ENGINE_TRAIN_PART_H
#define BT_ENGINE_TRAIN_PART_H

#include "engine/ckpt/state.h"
#include "engine/config/rank_setup.h"
#include "engine/data/shards/loader.h"
#include "engine/model/net/model.h"
#include "engine/optim/optim.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/train/run_control.h"
#include "engine/train/trainer.h"

typedef struct bt_step_outcome bt_step_outcome;

/* Decision about a step after the norm of its gradients is known. The first part that returns another value than APPLY
 * decides. */
typedef enum bt_verdict {
    BT_APPLY,
    BT_SKIP,      /* the weights do not change, but the step counts as done */
    BT_AGAIN,     /* the gradients are computed again, and every part decides again */
    BT_ELSEWHERE, /* the step counts as applied, but a hub applies it */
} bt_verdict;

typedef enum bt_load_stage {
    BT_LOAD_BEFORE,  /* before the weights: read what checkpoints do not contain (base, teacher) */
    BT_LOAD_RESUMED, /* after weights and states were loaded from a checkpoint */
    BT_LOAD_FRESH,   /* after the weights were initialised, or loaded from model.init_from */
} bt_load_stage;

/* reason of a check of the weights */
typedef enum bt_weights_check {
    BT_CHECK_BEFORE_SAVE,
    BT_CHECK_SUSPECTED, /* damaged weights may have caused a bad step */
} bt_check_reason;

enum {
    BT_PARTS_MOST = 32,
    BT_PART_NOTES = 16
}; /* number of rows of parts.def; number of notes of all parts */

typedef struct bt_part {
    const char *name;
    int notes; /* number of small integers for put_notes, exchanged together with the gradients */
    /* Row of the memory plan, for a part that allocates more than 1 % of a rank's memory. `bytes` computes the size
     * for a rank of any layout from the settings alone, and returns 0 if they do not use the part.
     * is_saved: checkpoints contain these bytes. `saved` is their sum over all parts, for a part that copies the
     * state, and 0 for a part whose bytes are saved. */
    struct {
        const char *row, *why;
        size_t (*bytes)(const bt_rank_setup *s, size_t saved);
        bool is_saved;
    } memory;

    /* ---- start */
    /* Allocates *self. Only the settings exist. A part that the settings do not use leaves *self NULL and is not called
     * again. */
    bt_code (*create)(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err);
    void (*release)(void *self);
    /* after the mesh was created, before the model */
    bt_code (*prepare)(void *self, bt_trainer *t, bt_err *err);
    void (*model_setup)(void *self, bt_trainer *t, bt_model_setup *setup);
    /* after a model was created, at the start or again during training (with the same weights) */
    bt_code (*model_made)(void *self, bt_trainer *t, bt_err *err);
    /* Called after model_made: weights that all uses of the model read instead of those of the training, as
     * (update.n_pieces) arrays that the part keeps up to date: validations, samples, and the state "weight" of
     * checkpoints, so that export and other programs read them too. One part at most. */
    float *const *(*weights_for_use)(void *self, const bt_trainer *t);
    /* after model, data and telemetry were created, before the gradient exchange */
    bt_code (*build)(void *self, bt_trainer *t, bt_err *err);
    /* sets codec, rounding and residuals of the gradient exchange before it is created */
    void (*reducer_cfg)(void *self, bt_trainer *t, bt_reducer_cfg *c);
    void (*add_state)(void *self, bt_trainer *t, bt_state *s);
    bt_code (*load)(void *self, bt_trainer *t, bt_load_stage stage, bt_err *err);
    /* after the weights were quantised, before the first step; again after a model was recreated */
    bt_code (*ready)(void *self, bt_trainer *t, bt_err *err);
    void (*facts)(void *self, bt_trainer *t, bool goes_on);

    /* ---- step */
    bt_code (*before_step)(void *self, bt_trainer *t, bt_err *err);
    /* the gradients are zero and will be computed next; again: for the second time in this step */
    bt_code (*begin_gradients)(void *self, bt_trainer *t, bt_step_outcome *o, bool again,
                               bt_err *err);
    /* Changes a micro-batch that was loaded: may replace its inputs by an array that is valid until the next call (-1:
     * no token, its embedding is zero). first_row: number of its first token in the global batch of the step. */
    void (*change_batch)(void *self, bt_trainer *t, bt_batch *b, int64_t first_row);
    /* before each forward and backward pass of a micro-batch in training */
    void (*before_pass)(void *self, bt_trainer *t, int64_t first_row);
    /* sets this rank's notes, which are 0 on entry; every rank then receives the maximum of each note */
    void (*put_notes)(void *self, bt_trainer *t, int64_t *notes);
    /* the gradients were summed over the ranks; notes: the maxima */
    bt_code (*exchanged)(void *self, bt_trainer *t, bt_step_outcome *o, const bt_reduce_times *took,
                         const int64_t *notes, bt_err *err);
    bt_code (*judge)(void *self, bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict,
                     bt_err *err);
    /* after the optimizer; also for steps that were skipped (o->applied) or applied by a hub (o->elsewhere) */
    bt_code (*after_update)(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err);
    /* Called after each step for which `due` is NULL or returns true, which must be equal on all ranks if after_step is
     * collective. Its time is added to the rank metric `phase`, or to no step with BT_SPAN_EXCLUDED. */
    bool (*due)(void *self, const bt_trainer *t, const bt_step_outcome *o);
    bt_code (*after_step)(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err);
    int phase;

    /* ---- requests of other parts, through bt_parts_* */
    /* a user request; evaluated: the current weights have a validation loss already */
    bt_code (*act)(void *self, bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err);
    /* after an evaluation of the current weights */
    bt_code (*evaluated)(void *self, bt_trainer *t, bt_err *err);
    bt_code (*check_weights)(void *self, bt_trainer *t, bt_check_reason why, bt_err *err);
    /* The level of the loss or the gradients changes with this step, so earlier steps are no longer a reference. */
    void (*new_level)(void *self);
    /* true if the previous step was smaller than a full step of the run, or of another kind */
    bool (*partial)(void *self, const bt_trainer *t);

    /* ---- end */
    bt_code (*end)(void *self, bt_trainer *t, bt_train_result *out, bt_err *err);
} bt_part;

/* For `create`: allocates a zeroed struct. `what` names its purpose in the error message. */
bt_code bt_part_new(void **self, size_t bytes, const char *what, bt_err *err) BT_MUST_CHECK;

extern const bt_part *const bt_parts[];
extern const size_t bt_parts_n;

#endif
