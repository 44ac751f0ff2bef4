/* trainer_impl.h - the objects of every training, for the trainer's files and its parts (part.h). State of an
 * optional feature belongs to its part. */
#ifndef BT_ENGINE_TRAIN_TRAINER_IMPL_H
#define BT_ENGINE_TRAIN_TRAINER_IMPL_H

#include "engine/config/rank_setup.h"
#include "engine/micro/micro_schedule.h"
#include "engine/observe/meter.h"
#include "engine/observe/observer.h"
#include "engine/optim/lr_schedule.h"
#include "engine/plan/plan.h"
#include "engine/train/evaluate.h"
#include "engine/train/part.h"
#include "engine/train/saver.h"
#include "engine/train/trainer.h"

struct bt_step_outcome {
    int computed;      /* number of times that this step's gradients were computed */
    int64_t counted;   /* learned tokens of this step on all ranks */
    double loss;       /* mean over this rank's learned tokens */
    double worst_loss; /* maximum of `loss` over the ranks */
    double
        global_loss; /* mean over all ranks, summed in a fixed order; NaN unless training is reproducible */
    double grad_norm, lr, weight_decay, loss_scale;
    bt_score score; /* sum over all ranks; n is 0 if the task has no score */
    bool loss_bad;
    bool applied;                    /* the optimizer or a hub applied the update */
    bool elsewhere;                  /* a hub applies the update (BT_ELSEWHERE) */
    bool bad;                        /* skipped, but not because of an fp16 overflow */
    bool again;                      /* the hub rejected the update, so the step is repeated */
    bool left;                       /* a stop request interrupted the step, which does not count */
    bool evaluated;                  /* bt_trainer.validation was computed after this step */
    bool best;                       /* this validation has the lowest loss so far */
    bt_control control;              /* user requests, equal on all ranks */
    double seconds_per_micro;        /* computing time of one micro-batch on this rank */
    double rank_values[BT_MR_COUNT]; /* values of the meter for this step */
    /* For the statistics, one value for each tensor of all stages: ratio of residual to gradient, and bits per
     * encoded gradient element. NULL when the step has no statistics. */
    const double *residual_ratio, *grad_bits;
};

typedef struct bt_attempt {      /* one start of the run */
    const bt_isa_agreement *isa; /* NULL if the ranks have not agreed on kernels */
    const char *memory_dir;      /* folder of states in memory, NULL or "" if none; borrowed */
    bool memory_states;          /* states are kept in memory, and the memory plan includes them */
    char no_memory_states
        [200]; /* reason why states are not kept; "" when the settings exclude them */
    bool ckpt_copy_too_large;  /* ckpt.async is set, but its copy does not fit */
    bt_memory_id from;         /* resumed state in memory; all zero if none */
    bt_progress_page own_page; /* used if the supervisor provides no progress page */
    int number;                /* number of this attempt in the database */
    int64_t measured_by;       /* attempt that measured the links and the peak */
    double measured_load; /* tasks of other programs per processor at that time; NaN: unknown */
    int64_t first_step, stop_at; /* stop_at: last step of this attempt by train.stop_after, or 0 */
    double memory_peak_mib;      /* before the machine was measured; 0 if it was not */
    bool stopped;                /* the attempt ended before the run's last step */
} bt_attempt;

typedef struct bt_step_state { /* values that one step passes to the next */
    double loss_scale;         /* factor of losses and gradients */
    int64_t held_at;           /* bt_optim_update.held_at; 0: the second moment is not frozen */
    int64_t
        grad_fingerprint; /* bits of the last gradient norm; equal on all ranks unless hardware failed */
    double seconds;
    int64_t
        planned_steps; /* train.steps at the start of the run, if it has changed since; otherwise 0 */
    bool stop;         /* this attempt ends after the current step */
    bool ends_early;   /* the run is complete after the current step, before train.steps */
    /* Set if a part assigns the sequences of each step in begin_gradients, where it also sets o->counted. The text
     * is the reason for refusing other changes of the data. NULL: the loader advances on its own. */
    const char *data_owner;
} bt_step_state;

typedef struct bt_validation {
    bt_eval_result newest;       /* NaN before the first validation */
    const int32_t *first_tokens; /* (n_tokens) first validation tokens; NULL if none */
    size_t n_tokens;
} bt_validation;

typedef struct bt_part_use { /* one part; self is NULL if this training does not use it */
    const bt_part *part;
    void *self;
    int first_note;
} bt_part_use;

typedef struct bt_part_uses {
    bt_part_use at[BT_PARTS_MOST];
    size_t n;
    int notes;             /* sum over the parts */
    bt_plan_parts *memory; /* rows of the memory plan of all parts */
} bt_part_uses;

struct bt_trainer {
    bt_run_cfg cfg;
    bt_run_cfg now; /* settings of the current model: dense during train.dense_steps */
    bt_rank_setup setup;
    bt_mesh mesh;
    bt_tp_group *tp_group; /* NULL: no tensor parallelism */
    bt_request_box *requests;
    bt_progress_page *page;
    bt_model *model;
    bt_loader *loader;
    bt_micro_plan micro_plan;
    bt_micro micro;
    bt_micro_schedule *schedule;
    bt_reducer *reducer;
    bt_update update;
    bt_lr_schedule lr;
    bt_saver saver;
    bt_meter meter;
    bt_telemetry telemetry;
    bt_observer *observer;
    bt_validation validation;
    bt_progress at;
    bt_step_state step;
    bt_attempt attempt;
    bt_part_uses parts;
};

static inline bool bt_every(int64_t step, int64_t n) { return n > 0 && step % n == 0; }
static inline bool bt_trainer_at_end(const bt_trainer *t) {
    return t->step.ends_early || t->at.step >= t->cfg.train.steps;
}
static inline bool bt_trainer_at_stop(const bt_trainer *t) {
    return t->attempt.stop_at > 0 && t->at.step >= t->attempt.stop_at;
}
/* number of the next step's first sequence, counted over all epochs */
static inline int64_t bt_trainer_first_sequence(const bt_trainer *t) {
    return t->at.step * t->micro_plan.sequences;
}
static inline bool bt_trainer_validates(const bt_trainer *t) {
    return t->cfg.data.val_frac > 0 || t->cfg.data.val_path[0];
}

/* ---- trainer_objects.c: the objects, created and recreated ----------------------------------------- */

/* Creates everything from the mesh to the gradient exchange, and calls the parts' prepare and build. Collective; all
 * ranks return the same code. */
bt_code bt_trainer_build(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_trainer_release_objects(bt_trainer *t); /* also after a failed build */
/* Recreates model, schedule, update and observer for t->cfg, and sets t->now. The caller saves and restores the
 * weights, and calls bt_trainer_ready. Collective. */
bt_code bt_trainer_remake_model(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_trainer_ready(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* Recreates the gradient exchange for the current micro-batch plan. Collective. */
bt_code bt_trainer_make_reducer(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* configuration of this rank's loader, starting at the next step */
bt_loader_cfg bt_trainer_loader_cfg(const bt_trainer *t);
bt_code bt_trainer_open_data(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* Moves the loader to the beginning of the next step, with this rank's share of the micro-batch plan. */
bt_code bt_trainer_replace_data(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* Saves a checkpoint after the parts have checked the weights. best: the weights have the lowest validation loss so
 * far; wait: return after the commit. Collective. */
bt_code bt_trainer_save(bt_trainer *t, bool best, bool wait, bt_err *err) BT_MUST_CHECK;
/* Exchanges the model's weights with those that a part provides (bt_part.weights_for_use), before validations and
 * samples and again after them. Does nothing without such a part. Collective. */
bt_code bt_trainer_swap_for_use(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* Discards transfer times of a forward pass outside of steps. */
void bt_trainer_forget_transfers(bt_trainer *t);

/* ---- step.c ---------------------------------------------------------------------------------------- */

bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) BT_MUST_CHECK;

/* ---- facts.c --------------------------------------------------------------------------------------- */

/* Records the facts of the run before the first step; collective. goes_on: the run has earlier attempts. */
bt_code bt_record_facts(bt_trainer *t, bool goes_on, bt_err *err) BT_MUST_CHECK;
void bt_trainer_fact(bt_trainer *t, const char *key, const char *fmt, ...) BT_PRINTF(3, 4);

/* ---- part_calls.c: the points of part.h, called for every part that is used --------------------- */

bt_code bt_parts_create(bt_trainer *t, const bt_part *const *rows, size_t n,
                        const bt_trainer_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_parts_release(bt_trainer *t);
bt_code bt_parts_prepare(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_parts_model_setup(bt_trainer *t, bt_model_setup *setup);
bt_code bt_parts_model_made(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_build(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_parts_reducer_cfg(bt_trainer *t, bt_reducer_cfg *c);
void bt_parts_add_state(bt_trainer *t, bt_state *s);
bt_code bt_parts_load(bt_trainer *t, bt_load_stage stage, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_ready(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_parts_facts(bt_trainer *t, bool goes_on);
bt_code bt_parts_before_step(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_begin_gradients(bt_trainer *t, bt_step_outcome *o, bool again, bt_err *err)
    BT_MUST_CHECK;
/* as bt_micro.loaded and .before_pass */
void bt_parts_change_batch(void *trainer, bt_batch *b, int64_t first_row);
void bt_parts_before_pass(void *trainer, int64_t first_row);
void bt_parts_put_notes(bt_trainer *t, int64_t *notes);
bt_code bt_parts_exchanged(bt_trainer *t, bt_step_outcome *o, const bt_reduce_times *took,
                           const int64_t *notes, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_verdict(bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_parts_after_update(bt_trainer *t, bt_step_outcome *o, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_after_step(bt_trainer *t, bt_step_outcome *o, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_act(bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_evaluated(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_check_weights(bt_trainer *t, bt_check_reason why, bt_err *err) BT_MUST_CHECK;
void bt_parts_new_level(bt_trainer *t);
bool bt_parts_partial(const bt_trainer *t);
bt_code bt_parts_end(bt_trainer *t, bt_train_result *out, bt_err *err) BT_MUST_CHECK;
/* Returns the state of the part with this name, NULL when unused. For tests. */
void *bt_trainer_part(const bt_trainer *t, const char *name);

#endif
