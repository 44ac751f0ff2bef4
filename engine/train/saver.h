/* saver.h - saves and loads checkpoints of a training and decides when one is due.
 *
 * The state registry (ckpt/state.h) defines the contents: each owner of state adds a row before the first save or load.
 * A periodic checkpoint is written while training continues (ckpt/save_async.h) if there is memory for a copy of the
 * state. The last checkpoint and one before a stop are written before the function returns.
 *
 * Order: init -> (rows are added) -> resume | init_from | neither -> start -> { save -> commit* }* ->
 *  release.
 * Ranks: save, start, commit, resume and init_from are collective over the world.
 * Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_SAVER_H
#define BT_ENGINE_TRAIN_SAVER_H

#include "engine/ckpt/memory/memory_state.h"
#include "engine/ckpt/save_async.h"
#include "engine/ckpt/state.h"
#include "engine/ckpt/verify_idle.h"
#include "engine/config/run_cfg.h"
#include "engine/observe/telemetry.h"
#include "engine/train/ckpt_interval.h"

typedef struct bt_progress { /* progress of a training */
    int64_t step;            /* steps done, applied or skipped; also the data cursor */
    int64_t updates;         /* steps applied: the optimizer's and the schedule's clock */
    int64_t tokens;
    double lr_factor; /* requested by users; 1 otherwise */
} bt_progress;

typedef struct bt_saver {
    bt_state state;
    const bt_run_cfg *cfg; /* borrowed, like the next three */
    bt_comm *world;
    bt_telemetry *telemetry;
    bt_progress *at;
    int attempt;
    uint64_t params_hash, data_hash, vocab_hash;
    uint64_t
        memory_vocab;  /* vocab_hash of the state in memory from which the run resumed; else 0 */
    bt_text tokenizer; /* serialised at the start, because its file may be deleted during the run */
    /* newest checkpoint of this attempt (-1: none); start of the interval */
    int64_t step, saved_ns;
    bt_ckpt_async *async; /* NULL if training waits for every checkpoint */
    /* the pending save: its step, start, and time for which training waited */
    int64_t pending_step, began_ns, stall_ns;
    bool pending_best;
    bt_ckpt_interval interval;  /* used if ckpt.every is 0 */
    double reported_interval_s; /* newest value of the fact; 0 before the first */
    double best;                /* lowest validation loss so far; infinite before the first */
    /* Rank 0 verifies the newest checkpoint when the machine is idle. check_step: being read; checked: read last;
     * damaged: a new checkpoint is due. */
    bt_ckpt_reread *check;
    int64_t check_step, checked_step, next_check_ns;
    bool damaged;
    /* rank 0 could not write the folder when the attempt began (bt_ckpt_job.announce) */
    bool unannounced;
    char path[1024];   /* path of the newest checkpoint, else "" */
    char trouble[240]; /* error of the newest save, else "" */
} bt_saver;

/* Adds the rows "progress", "best" and "failures". */
void bt_saver_init(bt_saver *s);
/* Writes the identity of the current state: step, tokens, attempt, hashes, kernels, compiler. */
void bt_saver_identify(const bt_saver *s, bt_ckpt_meta *m);
void bt_saver_release(bt_saver *s); /* accepts an all-zero struct */
/* Starts the clock of ckpt.minutes, reads the tokenizer and allocates the copy. If one rank cannot allocate it, no
 * rank uses a copy. */
bt_code bt_saver_start(bt_saver *s, bt_err *err) BT_MUST_CHECK;
/* Returns true if a checkpoint is due by time; the result of rank 0 decides. */
bool bt_saver_due(const bt_saver *s);
/* Records the validation loss of the current weights. Returns true if it is the lowest so far and a checkpoint is
 * due (ckpt.keep_best). */
bool bt_saver_validated(bt_saver *s, double loss);
/* Saves a checkpoint after a pending one has finished. best: the weights have the lowest validation loss
 * (bt_saver_validated). wait: return after the commit. If the disk is full, only the checkpoint is lost: returns
 * BT_OK, emits an event and sets `trouble`. Saves nothing if the run has no folder. */
bt_code bt_saver_save(bt_saver *s, bool best, bool wait, bt_err *err) BT_MUST_CHECK;
/* pending: a save is in progress, equal on all ranks; busy: this rank has not finished its stage */
bool bt_saver_pending(const bt_saver *s);
bool bt_saver_busy(const bt_saver *s);
/* Advances the pending save to its next stage, when no rank is busy. Errors as in save. */
bt_code bt_saver_advance(bt_saver *s, bt_err *err) BT_MUST_CHECK;
bt_code bt_saver_finish(bt_saver *s, bt_err *err) BT_MUST_CHECK;
/* Starts to read the newest checkpoint again, or reports the result. Called on rank 0 once a step or while the run
 * waits (idle: reads at once). Damage emits an event and makes a checkpoint due. */
void bt_saver_check(bt_saver *s, bool idle);
/* Loads state and progress from the newest checkpoint below dir that all ranks can read. */
bt_code bt_saver_resume(bt_saver *s, const char *dir, bt_err *err) BT_MUST_CHECK;
/* Loads the newest state in shared memory, which the supervisor found in dir; writes its identity to id. */
bt_code bt_saver_resume_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_err *err)
    BT_MUST_CHECK;
/* Loads only the weights of a checkpoint or of another program's model; missing or extra tensors become warnings
 * (init_from.h). */
bt_code bt_saver_init_from(bt_saver *s, const char *dir, bt_err *err) BT_MUST_CHECK;

#endif
