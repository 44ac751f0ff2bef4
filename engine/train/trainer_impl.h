/* trainer_impl.h - the trainer from inside, for trainer.c, step.c, after_step.c and facts.c: the
 * objects of a training, and what only their conductor knows. The objects know nothing of it. */
#ifndef BT_ENGINE_TRAIN_TRAINER_IMPL_H
#define BT_ENGINE_TRAIN_TRAINER_IMPL_H

#include "engine/config/ramp.h"
#include "engine/config/rank_setup.h"
#include "engine/data/shards/followers.h"
#include "engine/islands/island/island.h"
#include "engine/micro/micro_schedule.h"
#include "engine/observe/energy.h"
#include "engine/observe/meter.h"
#include "engine/observe/observer.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/lr_schedule.h"
#include "engine/parallel/mpi/host_memory.h"
#include "engine/train/evaluate.h"
#include "engine/train/parts/bad_steps/guard.h"
#include "engine/train/parts/bad_steps/skipped_data.h"
#include "engine/train/parts/codec/codec_choice.h"
#include "engine/train/parts/memory_states/memory_saver.h"
#include "engine/train/parts/prediction/prediction_check.h"
#include "engine/train/parts/samples/sample_text.h"
#include "engine/train/run_control.h"
#include "engine/train/saver.h"
#include "engine/train/trainer.h"
#include "engine/tune/base_weights.h"
#include "engine/tune/teacher.h"
#include "engine/update/replica_check.h"
#include "engine/update/residual.h"
#include "engine/update/suspect.h"

/* Small integers that travel with the gradients' arrival times: every rank gets the largest of each.
 * Rank 0 alone fills CONTROL and LR; the fingerprint goes as itself and negated, so that two
 * different ones show. LOSS: the bits of the largest mean loss of any rank, which order like the number
 * because it is not negative. CKPT_BUSY: the rank still writes its part of a checkpoint. */
enum {
    NOTE_CONTROL,
    NOTE_LR,
    NOTE_BAD_LOSS,
    NOTE_CKPT_BUSY,
    NOTE_LOSS,
    NOTE_GRAD_FINGERPRINT,
    NOTE_GRAD_FINGERPRINT_NEG,
    NOTE_MEMORY_EVERY, /* steps between two states in memory: the most cautious rank decides */
    NOTE_LEAVE, /* 1 + the highest rank, beside rank 0, that a signal told to leave; 0: none */
    NOTE_COUNT
};
/* beside the bits of run_request.h: rank 0's clock says a checkpoint is due */
enum { REQ_CKPT_DUE = 1 << 16 };

typedef struct bt_step_outcome {
    int64_t counted;    /* tokens that are learned in this step, all ranks */
    double loss;        /* this rank's mean over those of its tokens that are learned */
    double worst_loss;  /* the largest of all ranks' */
    double global_loss; /* of all ranks, added in a fixed order; NaN when not reproducible */
    double grad_norm, lr, weight_decay, loss_scale, lambda;
    bt_score score; /* of all ranks; n 0: nothing is judged */
    bool loss_bad;  /* the loss of some rank is not finite */
    bool applied;
    bool ckpt_busy;                  /* some rank has work left of a checkpoint's stage */
    bool bad;                        /* skipped: by no overflow of fp16 */
    bool again;                      /* the hub did not apply it, and it will be done again */
    bool left;                       /* asked to stop in the middle: the step did not happen */
    bt_control control;              /* agreed by all ranks */
    double seconds_per_micro;        /* that this rank computed, waiting left out */
    double rank_values[BT_MR_COUNT]; /* the meter's, after the step */
    bool evaluated;                  /* val_loss belongs to this step */
    bool best;                       /* and is the least so far */
} bt_step_outcome;

struct bt_trainer {
    bt_run_cfg cfg;
    bt_run_cfg now;      /* as the model computes in this step: dense before train.dense_steps */
    bt_rank_setup setup; /* of this rank */
    const bt_isa_agreement *isa; /* NULL: the ranks made none */
    bt_mesh mesh;
    bt_request_box *requests;
    const char *memory_dir;     /* of the states in memory; NULL or "": none. Borrowed */
    bt_place *place, own_place; /* own_place: when nobody looks */

    bt_tp_group *tp_group; /* NULL: no tensor parallelism */
    bt_host_memory
        base_memory;     /* of a frozen base that several ranks of this host have; none: at NULL */
    bool base_elsewhere; /* another rank writes it */
    bt_model *model;
    bt_loader *loader;
    bt_micro_plan micro_plan;
    bt_micro micro;
    bt_micro_schedule *schedule;
    bt_reducer *reducer;
    bt_residual residual;
    bt_unit_rounding rounding; /* no groups: units are not rounded */
    bt_codec_choice codec;
    bt_update update;
    bt_lr_schedule lr;
    bt_followers followers;       /* counted while the model is a bigram model */
    bt_ramp batch_ramp, seq_ramp; /* n 0: steps, sequences of one size */
    int64_t step_tokens;          /* of all ranks in the step that is computed */
    bt_loss_scale loss_scale;
    bt_guard guard;
    bt_skipped skipped;
    bt_replica_check replica_check;
    int64_t checked_step; /* steps done when replicas were last found equal; -1: not yet */
    int64_t next_check, checked_ns; /* when they are compared again; when they were */
    bt_suspect suspect;             /* from the attempt before */
    bt_evaluator *evaluator;        /* NULL: no validation data */
    bt_sample_text *sample_text;    /* NULL: none is written */
    bt_base_weights base;           /* of adapters; all zero: there are none */
    char mixture_before[512];       /* data.mixture, before people changed it; "": they did not */
    bt_teacher teacher;             /* of distillation; all zero: none, or not on this stage */
    bt_saver saver;
    bt_memory_saver memory;
    bt_meter meter;
    bt_energy energy;
    bt_telemetry telemetry;
    bt_observer *observer;
    bt_prediction_check prediction;
    bt_profile profile;
    bt_island *island;    /* NULL: no hub */
    int64_t island_left;  /* steps until the next exchange with the hub */
    int64_t island_ahead; /* steps since a delta that the hub has not answered; -1: there is none */
    bt_err hub_lost;      /* how the training ends when the hub never came back */
    /* sequences of this step and the next one begin here; those of the loader's step */
    int64_t island_begin, island_next, island_stride;
    int64_t island_stop_ns; /* when an exchange began in a step that was asked to stop; else 0 */

    bt_progress at;
    bool from_memory; /* this attempt began from a state in memory */
    double lambda;    /* the model's, of bt_tune_lambda */
    double step_s;    /* of the step before, 0: none yet */
    int number;       /* of this attempt in the run's record */
    double
        measured_load;   /* tasks of other programs for each processor at that time; NaN: unknown */
    int64_t measured_by; /* number of the attempt that measured the links and the peak */
    int64_t first_step,
        stop_at;              /* of this attempt; stop_at: where stop_after ends it, 0: nowhere */
    int64_t grad_fingerprint; /* of the last step: must be the same on all ranks */
    bool stop, stopped;
    bool ckpt_copy_too_large;  /* ckpt.async was asked for */
    bool ckpt_postponed;       /* a checkpoint was due at a bad step */
    bt_eval_result validation; /* newest; NaN: none yet */
    double memory_peak_mib;    /* before a profile measured the machine; 0: not yet */
};

/* values of train.on_bad_step */
enum { BT_BAD_STEP_SKIP, BT_BAD_STEP_RETRY, BT_BAD_STEP_STOP };

/* what a rank computed itself of a step */
typedef struct bt_own_digest {
    bt_grad_digest grads;
    uint64_t losses; /* of its micro-batches */
} bt_own_digest;

/* step.c: the model's lambda is that of the step to come; where it changes, what steps before had is no
 * measure of those that follow */
void bt_trainer_lambda(bt_trainer *t);
/* step.c: the gradients of the global batch and their norm; nothing is changed but they */
bt_code bt_step_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) BT_MUST_CHECK;
bt_step_facts bt_step_facts_of(const bt_trainer *t, const bt_step_outcome *o);
/* bad_step.c: judges the step; computes a bad one again and decides what follows. *apply: the
 * gradients that are there now are to be applied. Collective */
bt_code bt_bad_step(bt_trainer *t, bt_step_outcome *out, bool *apply, bt_err *err) BT_MUST_CHECK;

/* step.c: one optimizer update over the global batch */
bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) BT_MUST_CHECK;

/* after_step.c: what follows a step, in the order of its table */
bt_code bt_after_step(bt_trainer *t, bt_step_outcome *o, bt_err *err) BT_MUST_CHECK;
/* collective: validation loss and its event */
bt_code bt_trainer_evaluate(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bool bt_trainer_at_end(const bt_trainer *t);
/* collective: the replicas' weights as they are now; a difference is told, and an error */
bt_code bt_trainer_compare_replicas(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* collective: a checkpoint, of weights in which the replicas agree. best: they
 * have the least validation loss so far; wait: until it is committed */
bt_code bt_trainer_save(bt_trainer *t, bool best, bool wait, bt_err *err) BT_MUST_CHECK;

/* ramps_part.c: read the settings; before a step, the first of an attempt or another one: what it has of
 * another size; collective. The number of the step's first sequence */
bt_code bt_trainer_ramp_read(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_trainer_ramp(bt_trainer *t, bool first, bt_err *err) BT_MUST_CHECK;
/* of this rank, from the step that is next */
bt_loader_cfg bt_trainer_loader_cfg(const bt_trainer *t);
/* bigram_part.c: before a step, with or without attention (train.bigram_steps); collective */
bt_code bt_trainer_bigram(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bool bt_trainer_full_size(const bt_trainer *t); /* steps and sequences have all that they grow to */
int64_t bt_trainer_first_sequence(const bt_trainer *t);

/* trainer.c: a model that was made anew learns from the run's teacher too */
void bt_trainer_meet_teacher(bt_trainer *t);

/* dense_start_part.c: before a step, the one after which linear layers are no longer dense; collective */
bt_code bt_trainer_phase(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* trainer.c: model, schedule and update of t->now; release: they and what is made of them */
bt_code bt_trainer_build_compute(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
bt_code bt_trainer_build_observer(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_trainer_release_compute(bt_trainer *t);

/* trainer_codec.c: what the run's codec keeps from step to step. stale: the reducer must be made
 * anew, with what bt_trainer_codec_form then says. begin: a step begins, its gradients are zero; agree:
 * they have been exchanged; collective */
bt_code bt_trainer_codec_create(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_trainer_codec_release(bt_trainer *t);
void bt_trainer_codec_state(bt_trainer *t, bt_state *s);
bool bt_trainer_codec_stale(const bt_trainer *t);
bt_payload_form bt_trainer_codec_form(bt_trainer *t);
void bt_trainer_codec_begin(bt_trainer *t);
bt_code bt_trainer_codec_agree(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

/* trainer.c: the loader anew, from the step to come on */
bt_code bt_trainer_open_data(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* parts/mixture/mixture_part.c: the weights that rank 0 was asked for (collective), and what checkpoints keep of
 * the data */
bt_code bt_trainer_mixture_now(bt_trainer *t, bt_err *err) BT_MUST_CHECK;
void bt_trainer_data_state(bt_trainer *t, bt_state *s);
/* trainer.c: the exchange of gradients for the micro-batch plan as it is; collective */
bt_code bt_trainer_make_reducer(bt_trainer *t, bt_err *err) BT_MUST_CHECK;

/* facts.c: what is true of the whole run, recorded before the first step; collective */
/* goes_on: an attempt was recorded before this one */
bt_code bt_record_facts(bt_trainer *t, bool goes_on, bt_err *err) BT_MUST_CHECK;

#endif
