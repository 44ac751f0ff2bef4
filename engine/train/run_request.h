/* run_request.h - what people ask of a running training: set from any thread or signal handler,
 * read once per step by rank 0's training thread, which tells the other ranks; of another rank's box STOP
 * counts, which all then learn. One-way,
 * lock-free. */
#ifndef BT_ENGINE_TRAIN_RUN_REQUEST_H
#define BT_ENGINE_TRAIN_RUN_REQUEST_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/base/tables/verb.h"

/* BT_REQ_PAUSE, ...: a bit a verb. STOP means: checkpoint, then stop */
#define BT_VERB(id, word, argument, who, offered, key, outcome, label, help) \
    BT_REQ_##id = 1 << BT_VERB_##id,
enum {
#include "engine/base/tables/verbs.def"
};
#undef BT_VERB

typedef struct bt_request_box {
    /* or-ed in by askers, taken (exchanged with 0) by the step */
    _Atomic uint32_t bits;
    /* with BT_REQ_SAMPLE: what the sample goes on from, malloc'ed; whoever takes it out frees it */
    _Atomic(char *) prompt;
    /* with BT_REQ_MIXTURE: the new weights, likewise */
    _Atomic(char *) mixture;
    /* double: factor on the schedule's learning rate, valid with BT_REQ_LR */
    _Atomic uint64_t lr_factor_bits;
} bt_request_box;

#endif
