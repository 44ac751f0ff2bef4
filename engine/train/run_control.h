/* run_control.h - distributes user requests to all ranks at the same step.
 *
 * Rank 0 takes the request box (run_request.h) once a step and sends its contents as two notes of the step's exchange.
 * Another rank sends one bit, when a signal has requested that it leaves. Threads: the training thread. */
#ifndef BT_ENGINE_TRAIN_RUN_CONTROL_H
#define BT_ENGINE_TRAIN_RUN_CONTROL_H

#include <stdbool.h>

#include "engine/parallel/mpi/comm.h"
#include "engine/train/run_request.h"

typedef struct bt_control {
    int64_t verbs;   /* bits of run_request.h, and further bits of the requester */
    int64_t lr_bits; /* factor of BT_REQ_LR, as the bits of a double */
} bt_control;

/* Takes the contents of the box; the result is empty if box is NULL. */
bt_control bt_control_take(bt_request_box *box);
/* Stores a copy of the prompt in the box, replacing an unread one, then sets SAMPLE. Any thread may call it, but no
 * signal handler. Returns false, without a request, if out of memory. */
bool bt_control_request_sample(bt_request_box *box, const char *prompt);
/* Stores the weights of a mixture in the same way, then sets MIXTURE. */
bool bt_control_request_mixture(bt_request_box *box, const char *weights);
/* Rank 0: returns the newest prompt or weights, which the caller frees; NULL if none. */
char *bt_control_take_prompt(bt_request_box *box);
char *bt_control_take_mixture(bt_request_box *box);
double bt_control_lr_factor(const bt_control *c);
typedef struct bt_control_idle { /* called by rank 0 between two checks */
    void (*work)(void *ctx);
    void *ctx;
} bt_control_idle;
/* Waits during a pause until rank 0 has a request. All ranks sleep between checks. Collective over world. */
bt_code bt_control_wait(bt_comm *world, bt_request_box *box, const bt_control_idle *idle,
                        bt_control *out, bt_err *err) BT_MUST_CHECK;

#endif
