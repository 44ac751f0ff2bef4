/* trainer.h - one training run on this rank: plan, open, run, close.
 *
 * Order:    bt_comm_init and bt_kernels_select first; then create -> run | steps* -> destroy, on every rank alike.
 * Ranks:    every failure before the first step goes through bt_agree: all ranks return the same error.
 * Threads:  the training thread. `requests` may be set from anywhere. */
#ifndef BT_ENGINE_TRAIN_TRAINER_H
#define BT_ENGINE_TRAIN_TRAINER_H

#include "engine/base/progress_page.h"
#include "engine/base/sink.h"
#include "engine/config/agree/job_agreement.h"
#include "engine/config/rank_setup.h"
#include "engine/observe/profile.h"
#include "engine/train/run_request.h"

typedef struct bt_trainer bt_trainer;

/* Returns the memory of the optional features, for plans of engine/plan (bt_plan_parts). In parts.c. */
size_t bt_parts_memory(const bt_rank_setup *s, bt_arena_row *rows);

/* start arguments of a spare job, set when it replaces another one */
typedef struct bt_trainer_start {
    const char *resume_dir; /* checkpoint folder, as in the setup; borrowed */
    const bt_sink *sink;
    int attempt, number;
} bt_trainer_start;

typedef struct bt_trainer_setup {
    const bt_run_cfg *cfg; /* resolved: no "auto" values left (bt_run_cfg_resolve) */
    /* recorded; NULL if the ranks have not agreed on kernels; borrowed until the run has ended */
    const bt_isa_agreement *isa;
    const bt_sink *sink;      /* used on rank 0; NULL records nothing */
    bt_request_box *requests; /* may be NULL */
    bt_progress_page *page;   /* progress page of this rank, which outlives a crash; may be NULL */
    const char *resume_dir;   /* checkpoint folder, "" for a fresh start */
    int64_t warmup_steps;     /* first steps excluded from the result's medians */
    /* Measures the peak of all cores, for mfu, and the machine's load (under 0.2 s). Otherwise both are unknown. */
    bool measure_peak;
    /* Fences checkpoints: an older attempt cannot commit after a newer one has begun. */
    int attempt;
    int number; /* number of the attempt in the database */
    /* folder on rank 0's host that outlives the attempt and stores its measurements for the next one; NULL or ""
     * stores none */
    const char *kept_dir;
    /* Shared-memory folder for the state of the newest steps (memory_state.h), equal on all ranks; NULL or "" keeps
     * none. If resume_dir equals it, the run resumes from its newest state. */
    const char *memory_dir;
    /* Blocks a spare job on every rank until it must start; NULL starts at once. Everything before this call needs
     * no state. May change `start`, which is taken from this setup. Such a job allocates all its planned memory or
     * fails. */
    bt_code (*wait)(void *ctx, bt_trainer_start *start, bt_err *err);
    void *wait_ctx;
} bt_trainer_setup;

typedef struct bt_train_result {
    int64_t steps, tokens; /* done so far, in all attempts */
    double loss, val_loss; /* last values; NaN when unknown */
    double val_bits_per_byte;
    double tokens_per_s, mfu; /* median over the steps of this attempt; rank 0 only */
    /* median over steps of each rank metric (mean of ranks), in the metric's unit; rank 0 only */
    double step_ms[BT_MR_COUNT];
    double step_ms_min, step_ms_max;
    double flop_token, peak_flops; /* peak 0: not measured */
    double loss_scale;             /* scale of the next step; NaN unless fp16 */
    int64_t skipped;               /* steps that were not applied, in all attempts */
    double memory_mib;             /* sum of all ranks' peaks; shared memory counts once */
    uint64_t params;
    bool stopped;          /* a request stopped it before the end */
    char early[120];       /* reason for which the run is complete before its last step, else "" */
    char checkpoint[1024]; /* newest, "" when none */
    bt_profile profile;    /* train.profile: operations of rank 0; n is 0 otherwise */
    /* error of the last checkpoint, else "" */
    char trouble[240];
} bt_train_result;

bt_code bt_trainer_create(bt_trainer **out, const bt_trainer_setup *s, bt_err *err) BT_MUST_CHECK;
bt_code bt_trainer_run(bt_trainer *t, bt_train_result *out, bt_err *err) BT_MUST_CHECK;
/* Runs n >= 1 further steps without events and checkpoints, as an alternative to run. *step_s: seconds of one step
 * on the slowest rank, equal on all ranks. Trainers of one process may alternate their steps. */
bt_code bt_trainer_steps(bt_trainer *t, int64_t n, double *step_s, bt_err *err) BT_MUST_CHECK;
void bt_trainer_destroy(bt_trainer *t); /* accepts NULL */
/* Returns the model, to sample text after training or to inspect it; borrowed. */
struct bt_model *bt_trainer_model(bt_trainer *t);

#endif
