/* memory_saver.h - when the state of a step goes to shared memory (engine/ckpt/memory_state.h).
 *
 * As often as it may take 2 % of the time (0.5 % where a step takes half a second or more): every k
 * steps, k the largest that a rank asks for. Each rank holds the time of its copy against that of a
 * step; the ranks agree with the step's notes. The state of a step becomes valid on rank 0, and with
 * it for all, when the record of the step has reached the sink: whoever goes on from it finds every
 * step before it recorded.
 * Where the ranks of several hosts each hold a part that no other host has, every rank keeps its part and
 * sends a copy to the next host (a spread state): the time of both is what the pace counts, that of the
 * first by the measured speed of the links: over a slow one it would hold up training for minutes.
 * Ranks:    open is collective, and write of a spread state. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_MEMORY_SAVER_H
#define BT_ENGINE_TRAIN_MEMORY_SAVER_H

#include "engine/ckpt/memory_state.h"

struct bt_trainer;

typedef struct bt_memory_saver {
    bt_memory_state *to; /* NULL: no state is kept, or not by this rank */
    bt_comm *here;       /* ranks of this host; NULL: of the world, or there is none */
    bool spread;         /* every rank keeps its own part, and copies of another host's */
    bool met;            /* of a spread state: all ranks have written and sent the newest */
    int64_t every;       /* steps, agreed by all ranks */
    double copy_s; /* that a state takes, smoothed; before the first of a spread one foretold */
    int64_t copies;
    bt_ckpt_meta meta; /* its texts are used again */
} bt_memory_saver;

/* After the weights are there. begun_from: the state that was loaded, or NULL. No room is no error:
 * the trainer's attempt then has the reason (no_memory_states). */
bt_code bt_memory_saver_open(bt_memory_saver *m, struct bt_trainer *t,
                             const bt_memory_id *begun_from, bt_err *err) BT_MUST_CHECK;
void bt_memory_saver_close(bt_memory_saver *m);

/* steps between two states that this rank wishes for, for the notes of a step */
int64_t bt_memory_saver_wish(const bt_memory_saver *m, double step_s);
bt_code bt_memory_saver_write(bt_memory_saver *m, struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* the record of the step that was written last may have arrived: rank 0 makes its part valid then */
void bt_memory_saver_settle(bt_memory_saver *m, struct bt_trainer *t);
/* all ranks have met since the newest state was written: the same, of a spread one too */
void bt_memory_saver_met(bt_memory_saver *m, struct bt_trainer *t);
/* the training has ended in order and saved: of a spread state nothing is left on any host */
void bt_memory_saver_forget(const bt_memory_saver *m, struct bt_trainer *t);

#endif
