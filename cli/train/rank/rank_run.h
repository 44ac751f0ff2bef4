/* rank_run.h - the training of one rank, under our supervisor (`bitrain rank`) or under a foreign mpirun or srun
 * (`bitrain train`). */
#ifndef BT_CLI_TRAIN_RANK_RANK_RUN_H
#define BT_CLI_TRAIN_RANK_RANK_RUN_H

#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/text.h"
#include "engine/config/job_agreement.h"
#include "engine/train/trainer.h"

/* Selects the kernels `isa`, binds this rank to its share of the cores, and starts its threads. Ranks agree on
 * failure. */
bt_code bt_rank_prepare(const bt_run_cfg *cfg, const char *isa, bt_err *err) BT_MUST_CHECK;

typedef struct bt_rank_run {
    const bt_run_cfg *cfg; /* resolved */
    const bt_isa_agreement *isa;
    const bt_sink *sink; /* rank 0's; NULL: record nothing */
    bt_request_box *requests;
    bt_progress_page *page; /* progress page; NULL: none */
    const char *resume_dir; /* "" fresh */
    int attempt;            /* number that fences its checkpoints */
    int number;             /* number of the attempt in the run's record */
    const char *memory_dir; /* for the newest states (trainer.h); NULL: none */
    const char *kept_dir;   /* folder that outlives the attempt; NULL: none */
    /* Start of a hot spare (trainer.h); NULL: training begins at once. */
    bt_code (*wait)(void *ctx, bt_trainer_start *start, bt_err *err);
    void *wait_ctx;
} bt_rank_run;

/* create, run, on rank 0 a sample of text; sample may be NULL. in_step: it failed after the first
 * step began, where the other ranks may wait inside a collective for ever */
bt_code bt_rank_train(const bt_rank_run *r, bt_train_result *out, bt_text *sample, bool *in_step,
                      bt_err *err) BT_MUST_CHECK;
/* Ends the job if a rank failed during a step. A rank without a reason of its own leaves half a second to the rank
 * that has one. Returns at once before the first step, because all ranks fail together there. */
void bt_rank_leave(bool in_step, const bt_err *err, int exit_status);

/* The result of a training as a JSON object, with the sample of text unless it is empty. Commands add `run` and the
 * like. out: initialised; out->failed without memory */
void bt_result_text(bt_text *out, const bt_train_result *r, const bt_text *sample);

#endif
