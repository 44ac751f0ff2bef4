/* ops_internal.h - private to engine/kernels/ops: scratch of a thread, and timing of an operation. */
#ifndef BT_ENGINE_KERNELS_OPS_OPS_INTERNAL_H
#define BT_ENGINE_KERNELS_OPS_OPS_INTERNAL_H

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

enum { BT_OPS_MAX_THREADS = 1024 };

void *bt_ops_scratch(int thread); /* what bt_ops_plan took for this thread of the pool */
/* bt_parallel_for, timed under `name` when the profile is on: ops are multiply-adds counted twice,
 * bytes what memory must move */
void bt_ops_timed(const char *name, double ops, double bytes, size_t n, size_t grain,
                  bt_range_fn fn, void *ctx);
static inline double product(size_t a, size_t b, size_t c) {
    return (double)a * (double)b * (double)c;
}

#endif
