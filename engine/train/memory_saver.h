/* memory_saver.h - when the state of a step goes to shared memory (engine/ckpt/memory_state.h).
 *
 * As often as it may take 2 % of the time (0.5 % where a step takes half a second or more): every k
 * steps, k the largest that a rank asks for. Each rank holds the time of its copy against that of a
 * step; the ranks agree with the step's notes. The state of a step becomes valid on rank 0, and with
 * it for all, when the record of the step has reached the sink: whoever goes on from it finds every
 * step before it recorded.
 * Ranks:    open is collective. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_MEMORY_SAVER_H
#define BT_ENGINE_TRAIN_MEMORY_SAVER_H

#include "engine/ckpt/memory_state.h"

struct bt_trainer;

typedef struct bt_memory_saver {
    bool wanted;         /* asked for, and the plan of the memory has room */
    bt_memory_state *to; /* NULL: no state is kept, or not by this rank */
    bt_comm *here;       /* ranks of this host; NULL: of the world, or there is none */
    int64_t every;       /* steps, agreed by all ranks */
    double copy_s;       /* that a state takes, smoothed */
    int64_t copies;
    bt_ckpt_meta meta; /* its texts are used again */
    char why[200];     /* nothing is kept: the reason, "" when nobody asked for it */
} bt_memory_saver;

/* After the weights are there, where it is wanted. dir: folder in memory. begun_from: the state
 * that was loaded, or NULL. No room is no error: `why` tells it. */
bt_code bt_memory_saver_open(struct bt_trainer *t, const char *dir, const bt_memory_id *begun_from,
                             bt_err *err) BT_MUST_CHECK;
void bt_memory_saver_close(bt_memory_saver *m);

/* steps between two states that this rank wishes for, for the notes of a step */
int64_t bt_memory_saver_wish(const bt_memory_saver *m, double step_s);
bt_code bt_memory_saver_write(struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the record of the step that was written last may have arrived: rank 0 makes its part valid then */
void bt_memory_saver_settle(struct bt_trainer *t);

#endif
