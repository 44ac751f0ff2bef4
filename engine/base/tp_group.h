/* tp_group.h - interface between a model and the ranks that divide its tensors (tensor parallelism): buffers and four
 * exchanges. engine/parallel implements it, engine/model calls it, tests may replace it.
 *
 * The rows of a matrix are divided among the ranks: rank r of n owns [M r / n, M (r + 1) / n).
 *     all_gather_rows      a rank's rows of up to BT_TP_ARRAYS matrices -> all rows of each on every rank. One of
 *                          the matrices may be `common`.
 *     reduce_scatter_rows  matrix `partial` of every rank -> the rank's rows of the sum, in place; its remaining
 *                          rows become undefined
 *     all_gather           some bytes of every rank -> the bytes of all ranks, in the order of ranks
 *     all_reduce           one array on each of group_size neighbouring ranks (r / group_size) -> the sum, with
 *                          equal bits on each
 * A sum is a binary tree over the ranks in their order: the first 2^k < n ranks are the left side. The sum over two
 * neighbours therefore equals that of one rank with the data of both. All four are collective and blocking: every rank
 * of the group makes the same calls with the same shapes. Other ranks may read `partial` and `common` directly, and a
 * call does not wait until slower ranks have read them. After an exchange a rank may read them only before the next
 * call, and write its own rows only after it. A failure is stored in `failed`, and later calls have no effect, because
 * ranks cannot agree on an error inside a step. The time of an exchange is charged where it occurs (base/span.h):
 * COMM_EXPOSED, and WAIT for ranks that arrive later.
 * Threads: the training thread. */
#ifndef BT_ENGINE_BASE_TP_GROUP_H
#define BT_ENGINE_BASE_TP_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

enum { BT_TP_ARRAYS = 2 };

typedef struct bt_tp_rows {
    void *x;
    size_t row_bytes;
} bt_tp_rows;

typedef struct bt_tp_group bt_tp_group;
struct bt_tp_group {
    int rank, size;
    float *partial, *common; /* matrices of the size passed at creation */
    /* Time spent in exchanges since the last bt_tp_group_take_busy_ns, if possible without waiting for late ranks. */
    int64_t busy_ns;
    bt_code failed; /* the first failure of an exchange, or BT_OK */
    bt_err why;
    void (*all_gather_rows)(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays, size_t rows);
    void (*reduce_scatter_rows)(bt_tp_group *t, size_t rows, size_t cols);
    void (*all_gather)(bt_tp_group *t, const void *mine, void *all, size_t bytes);
    void (*all_reduce)(bt_tp_group *t, float *x, size_t n, int group_size);
    void (*destroy)(bt_tp_group *t);
};

/* Returns the size of the left subtree in a tree of n > 1 ranks. */
static inline int bt_tp_left(int n) {
    int left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

static inline size_t bt_tp_first_row(size_t rows, int rank, int size) {
    return rows * (size_t)rank / (size_t)size;
}

#endif
