/* run_control.h - what people ask of a running training, known to all ranks at the same step.
 *
 * Rank 0 takes the request box (run_request.h) once a step; what it finds travels to all ranks with
 * the step's gradient exchange, as two of its notes. Of the other ranks' boxes one bit counts: a signal
 * told that rank to leave. Acting on it is the trainer's.
 * Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_RUN_CONTROL_H
#define BT_ENGINE_TRAIN_RUN_CONTROL_H

#include <stdbool.h>

#include "engine/parallel/mpi/comm.h"
#include "engine/train/run_request.h"

typedef struct bt_control { /* asked for, the same on all ranks once agreed */
    int64_t verbs;          /* bits of run_request.h, and of the asker's own beyond them */
    int64_t lr_bits;        /* with BT_REQ_LR: the factor, as the bits of a double */
} bt_control;

/* takes what is in the box; nothing where there is no box */
bt_control bt_control_take(bt_request_box *box);
/* Puts a copy of the prompt into the box, in place of one that nobody took, and then the bit SAMPLE.
 * Any thread, no signal handler. false: no memory, nothing is asked. */
bool bt_control_ask_sample(bt_request_box *box, const char *prompt);
/* the same with the weights of a mixture, and the bit MIXTURE */
bool bt_control_ask_mixture(bt_request_box *box, const char *weights);
/* rank 0: the newest prompt, or weights, malloc'ed; NULL: none, or no box */
char *bt_control_take_prompt(bt_request_box *box);
char *bt_control_take_mixture(bt_request_box *box);
double bt_control_lr_factor(const bt_control *c);
typedef struct bt_control_idle { /* rank 0's work between two looks */
    void (*work)(void *ctx);
    void *ctx;
} bt_control_idle;
/* while a run is paused: waits until rank 0 is asked for something. All ranks sleep between looks.
 * Collective over world */
bt_code bt_control_wait(bt_comm *world, bt_request_box *box, const bt_control_idle *idle,
                        bt_control *out, bt_err *err) BT_MUST_CHECK;

#endif
