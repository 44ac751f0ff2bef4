/* comm_internal.h - internals of engine/parallel: the communicator's fields, MPI error texts. Included by
 * engine/parallel only, because it exposes MPI types. */
#ifndef BT_ENGINE_PARALLEL_MPI_COMM_INTERNAL_H
#define BT_ENGINE_PARALLEL_MPI_COMM_INTERNAL_H

#include <mpi.h>

#include "engine/parallel/mpi/comm.h"
#include "engine/parallel/mpi/traffic.h"

struct bt_comm {
    /* MPI_COMM_NULL when size == 1: such a communicator never calls MPI */
    MPI_Comm mpi;
    int rank, size;
    bt_axis axis; /* axis of the mesh: selects the row in traffic.h */
};

/* Returns BT_MPI with MPI's error text unless rc is MPI_SUCCESS. */
bt_code bt_mpi_check(int rc, const char *what, bt_err *err) BT_MUST_CHECK;
/* Takes ownership of `mpi`: reads rank and size, and makes its errors return codes. */
bt_code bt_comm_describe(bt_comm *c, MPI_Comm mpi, bt_err *err) BT_MUST_CHECK;
/* maximum element count of one MPI call: INT_MAX; smaller in tests of the chunking */
extern size_t bt_comm_chunk_elems;

#endif
