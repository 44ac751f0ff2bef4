/* tp_group.h - the ranks that hold one model's tensors between them (tensor parallelism), as code
 * that computes sees them: places and four exchanges. engine/parallel implements it, engine/model
 * calls it, tests may fake it.
 *
 * Rows of a matrix are shared out: rank r of n owns the rows [M r / n, M (r + 1) / n).
 *     gather    own rows of up to BT_TP_ARRAYS matrices -> all their rows, on every rank. One of them may be `common`
 *     reduce    the matrix `partial` of every rank -> its sum's own rows, in place; the rest of it is rubbish then
 *     share     some bytes of every rank -> all of them, side by side in the order of the ranks, on every rank
 *     sum       one array on each of group_size neighbouring ranks (r / group_size) -> its sum, the same bits on each
 * Sums are added as a tree over the ranks in their order: of n, the first 2^k < n make one side,
 * the rest the other. So two neighbours' sums are a rank's that holds what both hold. All are
 * collective and blocking: every rank of the tensor-parallel group makes the same calls with the
 * same shapes. `partial` and `common` may be memory that the others see, and no call waits for
 * slower ranks to leave it: what an exchange left there is written again (by its own rank, own
 * rows) only after the next call, and read only before it. A failure is kept in `failed`, and later
 * calls do nothing: there is no meeting point inside a step. */
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
    float *partial, *common; /* matrices of the size that create was told */
    /* spent in exchanges since the tensor-parallel group began; for ranks that came later, where
     * known */
    int64_t comm_ns, wait_ns;
    bt_code failed; /* BT_OK until an exchange fails */
    bt_err why;
    void (*gather)(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays, size_t rows);
    void (*reduce)(bt_tp_group *t, size_t rows, size_t cols);
    void (*share)(bt_tp_group *t, const void *mine, void *all, size_t bytes);
    void (*sum)(bt_tp_group *t, float *x, size_t n, int group_size);
    void (*destroy)(bt_tp_group *t);
};

/* of n ranks in a tree those on its left side; n > 1 */
static inline int bt_tp_left(int n) {
    int left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

static inline size_t bt_tp_first_row(size_t rows, int rank, int size) {
    return rows * (size_t)rank / (size_t)size;
}

#endif
