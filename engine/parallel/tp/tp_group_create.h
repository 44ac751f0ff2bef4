/* tp_group_create.h - the exchanges of a tensor-parallel group
 * (engine/base/tp_group.h) over the tp axis of a mesh.
 *
 *     one host      through memory that all ranks map: products are written where the others add
 *                   them, gathered rows of gradients lie there once; a late rank is waited for with
 *                   a futex, so that it gets the core it needs
 *     otherwise     messages between each two ranks
 * Both give the same bits. Bytes count as if sent, by a rank of n:
 *     gather  (n-1) times its own rows       reduce  everybody else's rows: (n-1)/n of the matrix
 *     share   (n-1) times its bytes          sum     2 (n-1)/n of the array, n = the group
 * No allocation after create. The training thread. */
#ifndef BT_ENGINE_PARALLEL_TP_TP_GROUP_CREATE_H
#define BT_ENGINE_PARALLEL_TP_TP_GROUP_CREATE_H

#include "engine/base/tp_group.h"
#include "engine/parallel/mpi/comm.h"

/* rows, cols: the largest matrix exchanged. Borrows tp; collective over it; on one rank alone:
 * NULL */
bt_code bt_tp_group_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols, bt_err *err)
    BT_MUST_CHECK;
/* a tensor-parallel group of one rank, for a model that is cut into parts on one rank already
 * (reproducible training); exchanges nothing */
bt_code bt_tp_group_solo(bt_tp_group **out, size_t rows, size_t cols, bt_err *err) BT_MUST_CHECK;
void bt_tp_group_destroy(bt_tp_group *t); /* accepts NULL */
/* that a rank sees at most; solo: alone it has a tensor-parallel group too */
size_t bt_tp_group_bytes(int size, size_t rows, size_t cols, bool solo);
/* the first failure since create; NULL is fine */
bt_code bt_tp_group_check(const bt_tp_group *t, bt_err *err) BT_MUST_CHECK;

#endif
