/* progress_page.h - the current activity of a rank's training thread, which another process can read even after kill
 * -9. Each rank has a slot of 64 bytes in a file that the ranks of a host and their supervisor map. A rank without such
 * a file uses private memory. Order in a step: data and compute alternate, once per micro-batch; then exchange to
 * record. Cost: two stores and one reading of the clock (CLOCK_MONOTONIC, the same for all processes of a host) per
 * change of
 *    activity. */
#ifndef BT_ENGINE_BASE_PROGRESS_PAGE_H
#define BT_ENGINE_BASE_PROGRESS_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

#include "engine/base/clock.h"

typedef enum {
    BT_AT_NOWHERE, /* the rank has not started */
    BT_AT_START,
    BT_AT_DATA,
    BT_AT_COMPUTE,
    BT_AT_EXCHANGE,
    BT_AT_OPTIMIZER,
    BT_AT_CHECKPOINT,
    BT_AT_EVALUATION,
    BT_AT_RECORD,
    BT_AT_PAUSE,
    BT_AT_END,
    BT_AT_HUB, /* an island waits for its hub */
    BT_AT_COUNT
} bt_activity;

typedef struct bt_progress_page {
    _Atomic int32_t at; /* bt_activity */
    _Atomic int32_t pid;
    _Atomic int64_t step, since_ns;
    _Atomic int32_t failed;    /* 1: the rank is about to end with an error */
    _Atomic int64_t exchanges; /* number of exchanges of all kinds that the rank has started */
    char unused[24];
} bt_progress_page;
_Static_assert(sizeof(bt_progress_page) == 64, "slots of two ranks share no cache line");

static inline void bt_progress_enter(bt_progress_page *p, bt_activity at, int64_t step) {
    atomic_store_explicit(&p->since_ns, bt_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&p->step, step, memory_order_relaxed);
    atomic_store_explicit(&p->at, (int32_t)at, memory_order_release);
}

#endif
