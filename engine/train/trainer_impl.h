/* trainer_impl.h - the objects that every training has, for the files of the trainer and for its parts (part.h).
 * What one optional feature needs beyond them belongs to its part. */
#ifndef BT_ENGINE_TRAIN_TRAINER_IMPL_H
#define BT_ENGINE_TRAIN_TRAINER_IMPL_H

#include "engine/config/rank_setup.h"
#include "engine/micro/micro_schedule.h"
#include "engine/observe/meter.h"
#include "engine/observe/observer.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/evaluate.h"
#include "engine/train/part.h"
#include "engine/train/saver.h"
#include "engine/train/trainer.h"

struct bt_step_outcome {
    int computed;       /* how often its gradients were computed */
    int64_t counted;    /* tokens that are learned in this step, all ranks */
    double loss;        /* this rank's mean over those of its tokens that are learned */
    double worst_loss;  /* the largest of all ranks' */
    double global_loss; /* of all ranks, added in a fixed order; NaN when not reproducible */
    double grad_norm, lr, weight_decay, loss_scale;
    bt_score score;     /* of all ranks; n 0: nothing is judged */
    bool loss_bad;      /* the loss of some rank is not finite */
    bool applied;       /* the update changed the weights, or was given to whoever applies it */
    bool elsewhere;     /* another applies it (BT_ELSEWHERE) */
    bool bad;           /* skipped for another reason than an overflow of fp16 */
    bool again;         /* the hub did not apply it, the step will be repeated */
    bool left;          /* a stop was asked for in the middle: the step did not happen */
    bool evaluated;     /* bt_trainer.validation belongs to this step */
    bool best;          /* and is the least so far */
    bt_control control; /* what people ask for, agreed by all ranks */
    double seconds_per_micro;        /* that this rank computed, without waiting */
    double rank_values[BT_MR_COUNT]; /* of the meter, after the step */
    /* for the statistics, (tensors of all stages): the residual over the gradient, bits of a gradient; NULL: none */
    const double *residual_ratio, *grad_bits;
};

typedef struct bt_attempt {      /* this start of the run */
    const bt_isa_agreement *isa; /* NULL: the ranks made none */
    const char *memory_dir;      /* for states in memory; NULL or "": none. Borrowed */
    bool memory_states;          /* states in memory are wanted, and planned for */
    char no_memory_states[200];  /* why not, "" when they were not asked for */
    bool ckpt_copy_too_large;    /* ckpt.async was asked for */
    bt_memory_id from;           /* the state in memory from which it began; all zero: from none */
    bt_place own_place;          /* used when nobody looks */
    int number;                  /* in the run's record */
    int64_t measured_by;         /* number of the attempt that measured the links and the peak */
    double
        measured_load; /* tasks of other programs for each processor at that time; NaN: unknown */
    int64_t first_step, stop_at; /* stop_at: where stop_after ends it, 0: nowhere */
    double memory_peak_mib;      /* before a profile measured the machine; 0: not yet */
    bool stopped;                /* before the end of the run */
} bt_attempt;

typedef struct bt_step_state { /* what one step leaves to the next */
    double loss_scale;         /* factor of losses and gradients */
    int64_t
        held_at; /* updates after which the second moment is held (bt_optim_update); 0: it is not */
    int64_t grad_fingerprint; /* bits of the last norm: must be the same on all ranks */
    double seconds;           /* that a step takes, smoothed; 0: none was timed */
    bool stop;                /* the step was the last of this attempt */
    /* A part deals out the data of each step (in begin_gradients, with o->counted): the reason why nobody
     * else may change them. NULL: the loader goes on step by step */
    const char *data_owner;
} bt_step_state;

typedef struct bt_validation {
    bt_eval_result newest;       /* NaN: none yet */
    const int32_t *first_tokens; /* (n_tokens) of the validation data; NULL: there are none */
    size_t n_tokens;
} bt_validation;

typedef struct bt_part_use { /* a part of this training; self NULL: it is not used */
    const bt_part *part;
    void *self;
    int first_note;
} bt_part_use;

enum { BT_PARTS_MOST = 32 };

typedef struct bt_part_uses {
    bt_part_use at[BT_PARTS_MOST];
    size_t n;
    int notes; /* of all together */
} bt_part_uses;

struct bt_trainer {
    bt_run_cfg cfg;
    bt_run_cfg now;      /* as the model computes in this step: dense before train.dense_steps */
    bt_rank_setup setup; /* of this rank */
    bt_mesh mesh;
    bt_tp_group *tp_group; /* NULL: no tensor parallelism */
    bt_request_box *requests;
    bt_place *place;
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

/* ---- small facts ------------------------------------------------------------------------------- */

static inline bool bt_every(int64_t step, int64_t n) { return n > 0 && step % n == 0; }
static inline bool bt_trainer_at_end(const bt_trainer *t) { return t->at.step >= t->cfg.steps; }
static inline bool bt_trainer_at_stop(const bt_trainer *t) {
    return t->attempt.stop_at > 0 && t->at.step >= t->attempt.stop_at;
}
/* number of the first sequence of the step that is next, counted over all epochs */
static inline int64_t bt_trainer_first_sequence(const bt_trainer *t) {
    return t->at.step * t->micro_plan.sequences;
}
static inline bool bt_trainer_validates(const bt_trainer *t) {
    return t->cfg.val_frac > 0 || t->cfg.val_data[0];
}

/* ---- trainer_objects.c: the objects, made and made anew ----------------------------------------- */

/* mesh to exchange of gradients, and the parts' prepare and build. Collective, all ranks return the same */
bt_code bt_trainer_build(bt_trainer *t, const bt_trainer_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_trainer_release_objects(bt_trainer *t); /* accepts what build left */
/* Model, schedule, update and observer for the settings t->cfg (t->now becomes them). Collective; the weights
 * are the caller's to keep and restore. Then ready */
bt_code bt_trainer_remake_model(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_trainer_ready(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the exchange of gradients for the micro-batch plan as it is; collective */
bt_code bt_trainer_make_reducer(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the loader of this rank, from the step that is next */
bt_loader_cfg bt_trainer_loader_cfg(const bt_trainer *t);
bt_code bt_trainer_open_data(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the loader goes back to the beginning of the step that is next, with the shares of the micro-batch plan */
bt_code bt_trainer_replace_data(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* A checkpoint, of weights that the parts have checked. best: they have the least validation loss so far;
 * wait: until it is committed. Collective */
bt_code bt_trainer_save(bt_trainer *t, bool best, bool wait, bt_err *err) BT_MUST_CHECK;
/* what a forward pass that belongs to no step sent does not count as the next step's */
void bt_trainer_forget_transfers(bt_trainer *t);

/* ---- step.c ---------------------------------------------------------------------------------------- */

/* one optimizer update over the global batch */
bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) BT_MUST_CHECK;

/* ---- facts.c --------------------------------------------------------------------------------------- */

/* What is true of the whole run, recorded before the first step; collective. goes_on: an attempt was recorded
 * before this one */
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
void bt_parts_put_notes(bt_trainer *t, int64_t *notes);
bt_code bt_parts_exchanged(bt_trainer *t, bt_step_outcome *o, const bt_reduce_times *took,
                           const int64_t *notes, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_judge(bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict, bt_err *err)
    BT_MUST_CHECK;
bt_code bt_parts_after_update(bt_trainer *t, bt_step_outcome *o, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_after_step(bt_trainer *t, bt_step_outcome *o, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_act(bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_evaluated(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_parts_check_weights(bt_trainer *t, bt_check_reason why, bt_err *err) BT_MUST_CHECK;
void bt_parts_new_level(bt_trainer *t);
bool bt_parts_partial(const bt_trainer *t);
bt_code bt_parts_end(bt_trainer *t, bt_train_result *out, bt_err *err) BT_MUST_CHECK;
/* what part `name` keeps of this training; NULL: it is not used. For tests */
void *bt_trainer_part(const bt_trainer *t, const char *name);

#endif
