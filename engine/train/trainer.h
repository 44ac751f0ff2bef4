/* trainer.h - one training run on this rank: plan, open, run, close.
 *
 * Order:    bt_comm_init and bt_kernels_select first; then create -> run | steps* -> destroy, on every rank alike.
 * Ranks:    every failure before the first step goes through bt_agree: all ranks return the same error.
 * Threads:  the training thread. `requests` may be set from anywhere. */
#ifndef BT_ENGINE_TRAIN_TRAINER_H
#define BT_ENGINE_TRAIN_TRAINER_H

#include "engine/base/progress_page.h"
#include "engine/base/sink.h"
#include "engine/config/job_agreement.h"
#include "engine/config/rank_setup.h"
#include "engine/observe/profile.h"
#include "engine/train/run_request.h"

typedef struct bt_trainer bt_trainer;

/* parts.c: memory of the optional features, for plans of engine/plan (bt_plan_parts) */
size_t bt_parts_memory(const bt_rank_setup *s, bt_arena_row *rows);

/* input of a spare job when it replaces another one */
typedef struct bt_trainer_start {
    const char *resume_dir; /* same as in the setup; borrowed */
    const bt_sink *sink;
    int attempt, number;
} bt_trainer_start;

typedef struct bt_trainer_setup {
    const bt_run_cfg *cfg; /* resolved: no "auto" values left (bt_run_cfg_resolve) */
    /* recorded; NULL if the ranks have no agreement. Borrowed until the run has ended */
    const bt_isa_agreement *isa;
    const bt_sink *sink;      /* used on rank 0; NULL: record nothing */
    bt_request_box *requests; /* may be NULL */
    bt_progress_page *page;   /* black box of this rank; may be NULL */
    const char *resume_dir;   /* checkpoint folder, "" for a fresh start */
    int64_t warmup_steps;     /* first steps excluded from the result's medians */
    /* measure the peak of all cores, for mfu, and the load of the machine meanwhile (under 0.2 s); both are unknown
     * otherwise */
    bool measure_peak;
    /* fences checkpoints: an older attempt cannot commit after a newer one began */
    int attempt;
    int number; /* number of the attempt in the run's record */
    /* Folder on rank 0's host that outlives the attempt and stores measurements for the next one; NULL or "" stores
     * none. */
    const char *kept_dir;
    /* Folder in memory for the state of the newest steps (memory_state.h), equal on all ranks; NULL or "" keeps
     * none. resume_dir equal to it resumes from its newest state. */
    const char *memory_dir;
    /* Blocks a spare job on every rank until it must start; everything before it needs no state. May change `start`,
     * which is taken from this setup. Such a job allocates all its planned memory or fails. NULL starts at once. */
    bt_code (*wait)(void *ctx, bt_trainer_start *start, bt_err *err);
    void *wait_ctx;
} bt_trainer_setup;

typedef struct bt_train_result {
    int64_t steps, tokens; /* done so far, all attempts */
    double loss, val_loss; /* last; NaN when unknown */
    double val_bits_per_byte;
    double tokens_per_s, mfu; /* median over the steps of this attempt; rank 0 only */
    /* median per rank metric (phases), mean of ranks, in the metric's unit; rank 0 only */
    double step_ms[BT_MR_COUNT];
    double step_ms_min, step_ms_max; /* rank 0 only */
    double flop_token, peak_flops;   /* peak 0: not measured */
    double loss_scale;               /* scale of the next step; NaN unless fp16 */
    int64_t skipped;                 /* steps that were not applied, in all attempts */
    double memory_mib;               /* sum of all ranks' peaks; shared memory counts once */
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
/* Runs n >= 1 further steps without events and checkpoints, instead of run. *step_s: seconds of one step on the
 * slowest rank, equal on all ranks. Several trainers of one process may run steps alternately. */
bt_code bt_trainer_steps(bt_trainer *t, int64_t n, double *step_s, bt_err *err) BT_MUST_CHECK;
void bt_trainer_destroy(bt_trainer *t); /* accepts NULL */
/* borrowed, to sample text after training or to inspect it */
struct bt_model *bt_trainer_model(bt_trainer *t);

#endif
