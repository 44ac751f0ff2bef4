/* tp_group_create.h - the exchanges of a tensor-parallel group (engine/base/tp_group.h) over the tp axis of a
 * mesh.
 *
 *     one host      shared memory: products are written where the other ranks add them, and gathered rows of
 *                   gradients are stored once; a rank waits for a late one with a futex, so that the late one
 *                   gets the core it needs
 *     otherwise     messages between each pair of ranks
 *
 * Both give the same bits. Both count bytes as if they were sent, for a rank of n:
 *     all_gather_rows  (n-1) times own rows     reduce_scatter_rows  (n-1)/n of the matrix
 *     all_gather       (n-1) times own bytes    all_reduce           2 (n-1)/n of the array
 *
 * No allocation after create. Called by the training thread. */
#ifndef BT_ENGINE_PARALLEL_TP_TP_GROUP_CREATE_H
#define BT_ENGINE_PARALLEL_TP_TP_GROUP_CREATE_H

#include "engine/base/tp_group.h"
#include "engine/parallel/mpi/comm.h"

/* Creates the group. rows, cols: the largest matrix exchanged. Borrows tp; collective over it. *out is NULL for a
 * single rank. */
bt_code bt_tp_group_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err)
    BT_MUST_CHECK;
/* Creates a group of one rank without exchanges, for reproducible training: the model is summed by leaves, all of
 * which this rank may hold. */
bt_code bt_tp_group_solo(bt_tp_group **out, size_t rows, size_t cols, bt_err *err) BT_MUST_CHECK;
void bt_tp_group_destroy(bt_tp_group *t); /* accepts NULL */
/* Returns the maximum number of bytes that a rank maps; solo: a single rank has a group, too. */
size_t bt_tp_group_bytes(int size, size_t rows, size_t cols, bool solo);
/* Returns the time of exchanges in flight since the last call, without waits; 0 for NULL. */
int64_t bt_tp_group_take_busy_ns(bt_tp_group *t);
/* Returns the first failure since create; accepts NULL. */
bt_code bt_tp_group_check(const bt_tp_group *t, bt_err *err) BT_MUST_CHECK;

#endif
