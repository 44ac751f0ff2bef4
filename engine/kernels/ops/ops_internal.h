/* ops_internal.h - private to engine/kernels/ops: scratch of a thread, timing of an operation, int8 tables as
 * floats. */
#ifndef BT_ENGINE_KERNELS_OPS_OPS_INTERNAL_H
#define BT_ENGINE_KERNELS_OPS_OPS_INTERNAL_H

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

enum { BT_OPS_MAX_THREADS = 1024 };

void *bt_ops_scratch(int thread); /* memory allocated by bt_ops_plan for this thread of the pool */
/* bt_parallel_for, timed under `name` when the profile is on. ops counts two operations per multiply-add; bytes is the
 * minimum that memory has to move. */
void bt_ops_timed(const char *name, double ops, double bytes, size_t n, size_t grain,
                  bt_range_fn fn, void *ctx);
/* Expands `cols` values of each of the first `rows` rows of an int8 table into its array `wide`, as bf16 (half) or
 * fp32. */
void bt_ops_widen(const bt_table *t, size_t rows, size_t cols, bool half);
static inline double product(size_t a, size_t b, size_t c) {
    return (double)a * (double)b * (double)c;
}

#endif
