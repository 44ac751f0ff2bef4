/* comm_split.c - divides a communicator; all ranks return the same code. */
#include <stdlib.h>

#include "engine/parallel/mpi/comm_internal.h"

bt_code bt_comm_split(bt_comm **out, bt_comm *parent, int color, int key, bt_err *err) {
    *out = NULL;
    bt_comm *c = calloc(1, sizeof *c);
    bt_code code = c ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for a communicator");
    code = bt_agree(parent, code, err);
    if (code != BT_OK) {
        free(c);
        return code;
    }
    *c = (bt_comm){.mpi = MPI_COMM_NULL, .rank = 0, .size = 1};
    if (parent->size > 1) {
        MPI_Comm mpi = MPI_COMM_NULL;
        code = bt_mpi_check(MPI_Comm_split(parent->mpi, color, key, &mpi), "MPI_Comm_split", err);
        if (code == BT_OK) code = bt_comm_describe(c, mpi, err);
        if (code != BT_OK) {
            free(c);
            return code;
        }
        if (c->size == 1) MPI_Comm_free(&c->mpi); /* becomes MPI_COMM_NULL */
    }
    *out = c;
    return BT_OK;
}
