/* memory_saver.h - copies the state of steps to shared memory (engine/ckpt/memory/memory_state.h).
 *
 * Copies may take 2 % of the time (0.5 % if a step takes half a second or more): every k steps, with the largest k of
 * all ranks, which they exchange with the step's notes. A state becomes valid when the record of its step has reached
 * the sink, so a run that resumes from it finds every earlier step recorded.
 * If no host holds all parts, every rank keeps its part and sends a copy to the next host (a spread state). Then the
 * interval counts both times; the first is estimated from the measured speed of the links, because it would delay
 * training for minutes over a slow one.
 * Ranks:    open is collective, and so is write of a spread state. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_MEMORY_SAVER_H
#define BT_ENGINE_TRAIN_MEMORY_SAVER_H

#include "engine/ckpt/memory/memory_state.h"

struct bt_trainer;

typedef struct bt_memory_saver {
    bt_memory_state *to; /* NULL if this rank keeps no state */
    bt_comm *here;       /* ranks of this host; NULL means the world, or no ranks */
    bool spread;         /* every rank keeps its own part, and copies of another host's */
    bool met;            /* spread state: all ranks have written and sent the newest state */
    int64_t every;       /* steps between states, equal on all ranks */
    double copy_s;       /* smoothed time of a state; estimated before the first spread one */
    int64_t copies;
    bt_ckpt_meta meta; /* reused buffer */
} bt_memory_saver;

/* Opens the states after the weights were loaded. begun_from: the loaded state, or NULL. If there is no room,
 * returns BT_OK and sets no_memory_states of the trainer's attempt. */
bt_code bt_memory_saver_open(bt_memory_saver *m, struct bt_trainer *t,
                             const bt_memory_id *begun_from, bt_err *err) BT_MUST_CHECK;
void bt_memory_saver_close(bt_memory_saver *m);

/* Interval in steps that this rank requires, for the notes of a step. */
int64_t bt_memory_saver_interval(const bt_memory_saver *m, double step_s);
bt_code bt_memory_saver_write(bt_memory_saver *m, struct bt_trainer *t, bt_err *err) BT_MUST_CHECK;
/* Rank 0 makes its part valid if the record of the newest state's step has arrived. */
void bt_memory_saver_publish(bt_memory_saver *m, struct bt_trainer *t);
/* Makes a spread state valid too: all ranks have synchronised since it was written. */
void bt_memory_saver_met(bt_memory_saver *m, struct bt_trainer *t);
/* Removes spread states on all hosts after the training has ended and saved. */
void bt_memory_saver_forget(const bt_memory_saver *m, struct bt_trainer *t);

#endif
