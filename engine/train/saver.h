/* saver.h - checkpoints of a training: when one is due, out, and in.
 *
 * What a checkpoint holds is the state registry (ckpt/state.h): whoever owns state that must survive
 * adds a row before the first save or load. The saver itself adds nothing.
 *
 * Order:    init -> (rows are added) -> resume | init_from | neither -> save* .
 * Ranks:    save, resume and init_from are collective over the world.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_TRAIN_SAVER_H
#define BT_ENGINE_TRAIN_SAVER_H

#include "engine/ckpt/memory_state.h"
#include "engine/ckpt/state.h"
#include "engine/config/run_cfg.h"
#include "engine/observe/telemetry.h"

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
    uint64_t params_hash, data_hash;
    int64_t step, saved_ns; /* newest checkpoint of this attempt (-1: none); when the clock began */
    char path[1024];        /* newest, "" when none */
    char trouble[240];      /* why the newest save failed, "" when it did not */
} bt_saver;

/* adds the row "progress" */
void bt_saver_init(bt_saver *s);
/* what identifies the state as it is now: step, tokens, attempt, hashes, kernels, compiler */
void bt_saver_identify(const bt_saver *s, bt_ckpt_meta *m);
/* the clock of train.ckpt_minutes begins now */
void bt_saver_start(bt_saver *s);
/* by the clock, where steps do not decide; rank 0's answer counts for all */
bool bt_saver_due(const bt_saver *s);
/* A full disk costs this checkpoint, not the run: BT_OK, an event, and `trouble` says why. Nothing
 * is saved where the run has no folder. */
bt_code bt_saver_save(bt_saver *s, bt_err *err) BT_MUST_CHECK;
/* newest checkpoint below dir that all ranks can read: state and progress */
bt_code bt_saver_resume(bt_saver *s, const char *dir, bt_err *err) BT_MUST_CHECK;
/* the newest state in shared memory, which the supervisor found in dir; id receives which it was */
bt_code bt_saver_resume_memory(bt_saver *s, const char *dir, bt_memory_id *id, bt_err *err)
    BT_MUST_CHECK;
/* the weights only of such a checkpoint or of a model of another program; what is missing or too much
 * becomes warnings (init_from.h) */
bt_code bt_saver_init_from(bt_saver *s, const char *dir, bt_err *err) BT_MUST_CHECK;

#endif
