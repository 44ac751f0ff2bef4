/* agree.c - makes all ranks fail together with the error of the lowest failing rank. */
#include "engine/parallel/mpi/comm.h"

bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *err) {
    int rank = bt_comm_rank(c), size = bt_comm_size(c);
    if (size == 1) return mine;

    bt_err local = BT_ERR_INIT, said = BT_ERR_INIT;
    int64_t lowest = mine == BT_OK ? size : rank;
    BT_TRY(bt_all_reduce_i64(c, &lowest, 1, BT_MIN, err));
    if (lowest == size) return BT_OK;

    if (lowest == rank) {
        said = err ? *err : local;
        said.code = mine;
        if (said.rank < 0) said.rank = rank;
    }
    BT_TRY(bt_broadcast(c, &said, sizeof said, (int)lowest, err));
    if (err) *err = said;
    return said.code;
}
