/* clock_sync.h - the monotonic clocks of all ranks on rank 0's scale.
 *
 * Ranks of one host share CLOCK_MONOTONIC: offset 0, error 0. A rank elsewhere measures its offset
 * to rank 0 by ping-pong: the shortest round trip of several bounds the error by half its length.
 * Collective over the communicator.
 * Threads: the training thread. */
#ifndef BT_ENGINE_PARALLEL_MPI_CLOCK_SYNC_H
#define BT_ENGINE_PARALLEL_MPI_CLOCK_SYNC_H

#include "engine/parallel/mpi/comm.h"

typedef struct bt_clock_sync {
    int64_t offset_ns; /* rank 0's clock minus this rank's */
    int64_t error_ns;  /* largest error bound of all ranks */
} bt_clock_sync;

bt_code bt_clock_sync_measure(bt_clock_sync *s, bt_comm *c, bt_err *err) BT_MUST_CHECK;
/* Measures the offset even between ranks of one host. */
bt_code bt_clock_sync_ping(bt_clock_sync *s, bt_comm *c, bt_err *err) BT_MUST_CHECK;
/* Converts a local time to the clock of rank 0. */
int64_t bt_clock_sync_common(const bt_clock_sync *s, int64_t now_ns);

#endif
