/* run_request.h - requests of users to a running training. Any thread or signal handler may set them. Once a step,
 * rank 0's training thread takes its box and distributes the requests; from the box of another rank only STOP is
 * used. Lock-free. */
#ifndef BT_ENGINE_TRAIN_RUN_REQUEST_H
#define BT_ENGINE_TRAIN_RUN_REQUEST_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/base/tables/verb.h"

/* BT_REQ_PAUSE, ...: one bit per verb. STOP saves a checkpoint, then stops. */
#define BT_VERB(id, word, argument, who, offered, key, outcome, label, help) \
    BT_REQ_##id = 1 << BT_VERB_##id,
enum {
#include "engine/base/tables/verbs.def"
};
#undef BT_VERB

typedef struct bt_request_box {
    /* set with atomic or; the step exchanges it with 0 */
    _Atomic uint32_t bits;
    /* prompt of BT_REQ_SAMPLE; the reader frees it */
    _Atomic(char *) prompt;
    /* new weights of BT_REQ_MIXTURE; the reader frees them */
    _Atomic(char *) mixture;
    /* bits of a double: factor on the schedule's learning rate, valid with BT_REQ_LR */
    _Atomic uint64_t lr_factor_bits;
} bt_request_box;

#endif
