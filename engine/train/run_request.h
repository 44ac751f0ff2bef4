/* run_request.h - what people ask of a running training: set from any thread or signal handler,
 * read once per step by rank 0's training thread, which tells the other ranks. One-way,
 * lock-free. */
#ifndef BT_ENGINE_TRAIN_RUN_REQUEST_H
#define BT_ENGINE_TRAIN_RUN_REQUEST_H

#include <stdatomic.h>
#include <stdint.h>

enum {
    BT_REQ_CHECKPOINT = 1,
    BT_REQ_STOP = 2,
    BT_REQ_PAUSE = 4,
    BT_REQ_RESUME = 8,
    BT_REQ_LR = 16,
    BT_REQ_EVAL = 32
};
/* STOP means: checkpoint, then stop */

typedef struct bt_request_box {
    /* or-ed in by askers, taken (exchanged with 0) by the step */
    _Atomic uint32_t bits;
    /* double: factor on the schedule's learning rate, valid with BT_REQ_LR */
    _Atomic uint64_t lr_factor_bits;
} bt_request_box;

#endif
