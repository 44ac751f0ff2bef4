/* rank_run.h - the training of one rank, under the supervisor (`bitrain rank`) or under another mpirun or srun
 * (`bitrain train`). */
#ifndef BT_CLI_TRAIN_RANK_RANK_RUN_H
#define BT_CLI_TRAIN_RANK_RANK_RUN_H

#include "engine/base/sink.h"
#include "engine/base/status.h"
#include "engine/base/text.h"
#include "engine/config/agree/job_agreement.h"
#include "engine/train/trainer.h"

/* Selects the kernels `isa`, binds this rank to its share of the cores, and starts its threads. All ranks return the
 * same code. */
bt_code bt_rank_prepare(const bt_run_cfg *cfg, const char *isa, bt_err *err) BT_MUST_CHECK;

typedef struct bt_rank_run {
    const bt_run_cfg *cfg; /* resolved */
    const bt_isa_agreement *isa;
    const bt_sink *sink; /* of rank 0; NULL: record nothing */
    bt_request_box *requests;
    bt_progress_page *page; /* progress page; NULL: none */
    const char *resume_dir; /* "": fresh start */
    int attempt;            /* number that fences the attempt's checkpoints */
    int number;             /* number of the attempt in the database */
    const char *memory_dir; /* folder of the newest states (trainer.h); NULL: none */
    const char *kept_dir;   /* folder that outlives the attempt; NULL: none */
    /* Blocks the start of a hot spare (trainer.h); NULL: training starts at once. */
    bt_code (*wait)(void *ctx, bt_trainer_start *start, bt_err *err);
    void *wait_ctx;
} bt_rank_run;

/* Creates a trainer and runs it; rank 0 then writes a sample of text unless `sample` is NULL. in_step: the failure
 * occurred after the first step began, so other ranks may be blocked in a collective. */
bt_code bt_rank_train(const bt_rank_run *r, bt_train_result *out, bt_text *sample, bool *in_step,
                      bt_err *err) BT_MUST_CHECK;
/* Ends the job if a rank failed during a step. A rank without its own reason first waits half a second for one that
 * has a reason. Before the first step the function returns at once, because all ranks fail together. */
void bt_rank_leave(bool in_step, const bt_err *err, int exit_status);

/* Writes the result of a training as a JSON object, with the sample unless it is empty. Commands add `run` and other
 * keys. out: initialised; out->failed is set if out of memory. */
void bt_result_text(bt_text *out, const bt_train_result *r, const bt_text *sample);

#endif
