/* saver.h - checkpoints of a training: when one is due, out, and in.
 *
 * What a checkpoint holds is the state registry (ckpt/state.h): whoever owns state that must survive
 * adds a row before the first save or load. The saver itself adds nothing.
 *
 * A periodic checkpoint is written beside training (ckpt/save_async.h), where memory for a copy of the
 * state was to be had; the last one, and one before a stop, is waited for.
 *
 * Order:    init -> (rows are added) -> resume | init_from | neither -> start -> { save -> commit* }* ->
 *           release.
 * Ranks:    save, start, commit, resume and init_from are collective over the world.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_TRAIN_SAVER_H
#define BT_ENGINE_TRAIN_SAVER_H

#include "engine/ckpt/memory_state.h"
#include "engine/ckpt/save_async.h"
#include "engine/ckpt/state.h"
#include "engine/ckpt/verify_idle.h"
#include "engine/config/run_cfg.h"
#include "engine/observe/telemetry.h"
#include "engine/train/ckpt_interval.h"

typedef struct bt_progress { /* how far a training is */
    int64_t step;            /* steps done, applied or skipped; also the data cursor */
    int64_t updates;         /* steps applied: the optimizer's and the schedule's clock */
    int64_t tokens;
    double lr_factor; /* asked for by people; 1 otherwise */
} bt_progress;

typedef struct bt_saver {
    bt_state state;
    const bt_run_cfg *cfg; /* borrowed, as the next three */
    bt_comm *world;
    bt_telemetry *telemetry;
    bt_progress *at;
    int attempt;
    uint64_t params_hash, data_hash, vocab_hash;
    uint64_t memory_vocab; /* vocab_hash of the state in memory that was resumed; 0: none was */
    bt_text tokenizer; /* serialised, as it was at the start: its file may go while the run lives */
    int64_t step, saved_ns; /* newest checkpoint of this attempt (-1: none); when the clock began */
    bt_ckpt_async *async;   /* NULL: training waits for every checkpoint */
    /* of the save that is under way: its step, when it began, how long training stood still for it */
    int64_t pending_step, began_ns, stall_ns;
    bool pending_best;
    bt_ckpt_interval interval; /* where ckpt.every is 0 */
    double told_interval_s;    /* as the fact has it; 0: not yet */
    double best;               /* least validation loss so far; infinite: none */
    /* the newest checkpoint is read again when the machine is idle (rank 0): the one that is read, of
     * which step, which was read last, when the next may be; damaged: another is wanted */
    bt_ckpt_reread *check;
    int64_t check_step, checked_step, next_check_ns;
    bool damaged;
    bool
        unannounced; /* rank 0: the folder could not be written when the attempt began (bt_ckpt_job.announce) */
    char path[1024];   /* newest, "" when none */
    char trouble[240]; /* why the newest save failed, "" when it did not */
} bt_saver;

/* adds the rows "progress", "best" and "failures" */
void bt_saver_init(bt_saver *s);
/* what identifies the state as it is now: step, tokens, attempt, hashes, kernels, compiler */
void bt_saver_identify(const bt_saver *s, bt_ckpt_meta *m);
void bt_saver_release(bt_saver *s); /* accepts an all-zero struct */
/* the clock of ckpt.minutes begins now; the tokenizer is read; memory for the copy is taken, if any rank
 * has none by none */
bt_code bt_saver_start(bt_saver *s, bt_err *err) BT_MUST_CHECK;
/* by the clock, where steps do not decide; rank 0's answer counts for all */
bool bt_saver_due(const bt_saver *s);
/* the validation loss of the weights as they are now; true: it is the least so far, and a checkpoint of
 * them is wanted (ckpt.keep_best) */
bool bt_saver_validated(bt_saver *s, double loss);
/* best: of the weights that bt_saver_validated said so of. wait: until it is committed. One that is
 * still under way is waited for before.
 * A full disk costs this checkpoint, not the run: BT_OK, an event, and `trouble` says why. Nothing
 * is saved where the run has no folder. */
bt_code bt_saver_save(bt_saver *s, bool best, bool wait, bt_err *err) BT_MUST_CHECK;
/* a save is under way: the same on all ranks; this rank has work left of its stage */
bool bt_saver_pending(const bt_saver *s);
bool bt_saver_busy(const bt_saver *s);
/* The save that is under way goes on to its next stage: when no rank is busy. Failures as of save */
bt_code bt_saver_advance(bt_saver *s, bt_err *err) BT_MUST_CHECK;
/* until it is committed or has failed */
bt_code bt_saver_finish(bt_saver *s, bt_err *err) BT_MUST_CHECK;
/* Begins to read the newest checkpoint again, or tells what was found of it; rank 0, once a step or while
 * the run waits (idle: at once). Damage is an event, and makes a checkpoint due */
void bt_saver_check(bt_saver *s, bool idle);
/* newest checkpoint below dir that all ranks can read: state and progress */
bt_code bt_saver_resume(bt_saver *s, const char *dir, bt_err *err) BT_MUST_CHECK;
/* the newest state in shared memory, which the supervisor found in dir; id receives which it was */
bt_code bt_saver_resume_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_err *err)
    BT_MUST_CHECK;
/* the weights only of such a checkpoint or of a model of another program; what is missing or too much
 * becomes warnings (init_from.h) */
bt_code bt_saver_init_from(bt_saver *s, const char *dir, bt_err *err) BT_MUST_CHECK;

#endif
