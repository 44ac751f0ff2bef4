/* memory_saver.h - copies the state of steps to shared memory (engine/ckpt/memory/memory_state.h).
 *
 * Every k-th step is copied. The ranks agree on the smallest k for which copies take at most 2 % of the time on each of
 * them (0.5 % if a step takes half a second or more). A state becomes valid when the record of its step has reached the
 * sink, so a run that resumes from it finds every earlier step recorded.
 * If no host holds all parts, every rank keeps its part and sends a copy to the next host (a spread state). Then k
 * accounts for both times. The first is estimated from the measured link speed, because a trial over a slow link could
 * delay training for minutes.
 * Ranks: open and, for a spread state, write are collective. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_MEMORY_SAVER_H
#define BT_ENGINE_TRAIN_MEMORY_SAVER_H

#include "engine/ckpt/memory/memory_state.h"

struct bt_trainer;

typedef struct bt_memory_saver {
    bt_memory_state *to; /* NULL if this rank keeps no state */
    bt_comm *here;       /* ranks of this host; NULL if the state is kept by all ranks or by none */
    bool spread;         /* every rank keeps its own part and copies of another host's parts */
    bool all_written;    /* spread state: all ranks have written and sent the newest state */
    int64_t every;       /* steps between states, equal on all ranks */
    double copy_s;       /* smoothed duration of a copy; estimated before the first spread state */
    int64_t copies;
    bt_ckpt_meta meta; /* reused buffer */
} bt_memory_saver;

/* Opens the states after the weights were loaded. begun_from: the loaded state, or NULL. Without room for a state it
 * returns BT_OK and sets no_memory_states of the trainer's attempt. */
bt_code bt_memory_saver_open(bt_memory_saver *m, struct bt_trainer *t,
                             const bt_memory_id *begun_from, bt_err *err) BT_MUST_CHECK;
void bt_memory_saver_close(bt_memory_saver *m);

/* Returns the interval in steps that this rank needs, for the notes of a step. */
int64_t bt_memory_saver_interval(const bt_memory_saver *m, double step_s);
bt_code bt_memory_saver_write(bt_memory_saver *m, struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* Makes rank 0's part valid if the sink has received the record of the newest state's step. */
void bt_memory_saver_publish(bt_memory_saver *m, struct bt_trainer *t);
/* Makes a spread state valid after all ranks have synchronised since it was written. */
void bt_memory_saver_synchronised(bt_memory_saver *m, struct bt_trainer *t);
/* Removes spread states on all hosts at the end of a training that has saved its last checkpoint. */
void bt_memory_saver_forget(const bt_memory_saver *m, struct bt_trainer *t);

#endif
