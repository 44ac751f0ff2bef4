/* trainer.h - one training run on this rank: plan, open, run, close.
 *
 * Order:    bt_comm_init and bt_kernels_select first; then create -> run | steps* -> destroy, on every rank alike.
 * Ranks:    every failure before the first step goes through bt_agree: all ranks return the same error.
 * Threads:  the training thread. `requests` may be set from anywhere. */
#ifndef BT_ENGINE_TRAIN_TRAINER_H
#define BT_ENGINE_TRAIN_TRAINER_H

#include "engine/base/place.h"
#include "engine/base/sink.h"
#include "engine/config/job_agreement.h"
#include "engine/config/run_cfg.h"
#include "engine/observe/profile.h"
#include "engine/train/run_request.h"

typedef struct bt_trainer bt_trainer;

/* what a job that waited beside another learns when it goes on */
typedef struct bt_trainer_start {
    const char *resume_dir; /* as in the setup; borrowed */
    const bt_sink *sink;
    int attempt, number;
} bt_trainer_start;

typedef struct bt_trainer_setup {
    const bt_run_cfg *cfg; /* resolved: no "auto" values left (bt_run_cfg_resolve) */
    /* for the record; NULL: the ranks made none. Borrowed until the run is over */
    const bt_isa_agreement *isa;
    const bt_sink *sink;      /* used on rank 0; NULL: record nothing */
    bt_request_box *requests; /* may be NULL */
    bt_place *place;          /* black box of this rank; may be NULL */
    const char *resume_dir;   /* checkpoint folder, "" for a fresh start */
    int64_t warmup_steps;     /* first steps left out of the result's medians */
    /* of all ranks' cores together, for mfu (under 0.15 s); else mfu is unknown */
    bool measure_peak;
    /* fences checkpoints: an older attempt never commits after a newer one began */
    int attempt;
    int number; /* of the attempt in the run's record */
    /* folder of rank 0's host that outlives the attempt; what was measured is kept there for the
     * next one. NULL or "": nothing is kept */
    const char *kept_dir;
    /* folder in memory for the state of the newest steps (memory_state.h), the same for all ranks;
     * NULL or "": no state is kept. As resume_dir it means the newest state in it */
    const char *memory_dir;
    /* Returns when this job is to begin, on every rank: what create does before needs no state. It comes
     * with the setup's start and may change it. Such a job takes all the memory it plans, or fails. NULL:
     * begin at once */
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
    double loss_scale;               /* that the next step would use; NaN unless fp16 */
    int64_t skipped;                 /* steps that were not applied, all attempts */
    double memory_mib; /* sum of all ranks' peaks, memory that they share counted once */
    uint64_t params;
    bool stopped;          /* asked to stop before the end */
    char checkpoint[1024]; /* newest, "" when none */
    bt_profile profile;    /* train.profile: of rank 0; n 0 otherwise */
    /* why the last checkpoint could not be written, "" when it could */
    char trouble[240];
} bt_train_result;

bt_code bt_trainer_create(bt_trainer **out, const bt_trainer_setup *s, bt_err *err) BT_MUST_CHECK;
bt_code bt_trainer_run(bt_trainer *t, bt_train_result *out, bt_err *err) BT_MUST_CHECK;
/* Instead of run: n further steps, of which nothing is announced or saved; *step_s: of one, by the slowest rank's
 * clock, the same on all ranks. Several trainers of one process may make steps in turn. n >= 1 */
bt_code bt_trainer_steps(bt_trainer *t, int64_t n, double *step_s, bt_err *err) BT_MUST_CHECK;
void bt_trainer_destroy(bt_trainer *t); /* accepts NULL */
/* borrowed: to sample text after training, or to look inside */
struct bt_model *bt_trainer_model(bt_trainer *t);

#endif
