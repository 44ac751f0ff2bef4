/* tp_group.h - the ranks that hold one model's tensors between them (tensor parallelism), as the
 * code that computes sees them: buffers and four exchanges. engine/parallel implements it,
 * engine/model calls it, tests may fake it.
 *
 * The rows of a matrix are divided among the ranks: rank r of n owns [M r / n, M (r + 1) / n).
 *     all_gather_rows      own rows of up to BT_TP_ARRAYS matrices -> all their rows, on every rank.
 *                          One of the matrices may be `common`.
 *     reduce_scatter_rows  the matrix `partial` of every rank -> own rows of the sum, in place; the
 *                          other rows are undefined afterwards
 *     all_gather           some bytes of every rank -> those of all ranks, in the order of the ranks
 *     all_reduce           one array on each of group_size neighbouring ranks (r / group_size) -> its
 *                          sum, with the same bits on each
 * A sum is added as a tree over the ranks in their order: of n ranks, the first 2^k < n make one
 * side, the rest the other. So the sum over two neighbours is that of one rank which holds what both
 * hold. All four are collective and blocking: every rank of the group makes the same calls with the
 * same shapes. `partial` and `common` may be memory that other ranks read, and no call waits until
 * slower ranks have read it: what an exchange left there may be written again (by its own rank, own
 * rows) only after the next call, and be read only before it. A failure is kept in `failed`, and
 * later calls do nothing: there is no meeting point inside a step. The time of an exchange is charged
 * where it happens (base/span.h): COMM_EXPOSED, and WAIT for ranks that arrive later.
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
    float *partial, *common; /* matrices of the size that was given to create */
    /* time in exchanges since it was last read (bt_tp_group_take_busy_ns), without waits for ranks that arrived
     * later (if the implementation measures them) */
    int64_t busy_ns;
    bt_code failed; /* BT_OK until an exchange fails */
    bt_err why;
    void (*all_gather_rows)(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays, size_t rows);
    void (*reduce_scatter_rows)(bt_tp_group *t, size_t rows, size_t cols);
    void (*all_gather)(bt_tp_group *t, const void *mine, void *all, size_t bytes);
    void (*all_reduce)(bt_tp_group *t, float *x, size_t n, int group_size);
    void (*destroy)(bt_tp_group *t);
};

/* size of the left subtree of a tree of n ranks; n > 1 */
static inline int bt_tp_left(int n) {
    int left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

static inline size_t bt_tp_first_row(size_t rows, int rank, int size) {
    return rows * (size_t)rank / (size_t)size;
}

#endif
