/* traffic.h - cost of each kind of exchange along each axis for this rank since the last reset.
 *
 * bytes   as counted by comm.h
 * rounds  messages between every two ranks of the axis, the unit of link.h
 * busy    time in flight. For a blocking exchange: the duration of the call without wait, all of it exposed
 * exposed time without computation; does not include wait
 * wait    time until the last rank arrived, if arrival times are measured (gradients, tensor-parallel groups in
 *         shared memory, pipelines): the time that base/span.h charges as WAIT
 * The same times are comm_busy_ms, comm_exposed_ms and wait_ms of a rank's step. Exchanges of an evaluation or a
 * pause (BT_SPAN_EXCLUDED) are not counted.
 * For small exchanges that run beside a larger one (arrival times, measurements) bytes are counted, but no time.
 * Threads: the training thread. Cost: two readings of the clock per exchange. */
#ifndef BT_ENGINE_PARALLEL_MPI_TRAFFIC_H
#define BT_ENGINE_PARALLEL_MPI_TRAFFIC_H

#include <stdatomic.h>
#include <stdint.h>

#define BT_COLL(id, name) BT_COLL_##id,
#define BT_AXIS(id, name)
typedef enum bt_coll {
#include "engine/parallel/mpi/coll.def"
    BT_COLL_COUNT
} bt_coll;
#undef BT_COLL
#undef BT_AXIS
#define BT_COLL(id, name)
#define BT_AXIS(id, name) BT_AXIS_##id,
typedef enum bt_axis {
#include "engine/parallel/mpi/coll.def"
    BT_AXIS_COUNT
} bt_axis;
#undef BT_COLL
#undef BT_AXIS

typedef struct bt_traffic {
    int64_t calls, rounds, bytes_logical, bytes_wire, busy_ns, exposed_ns, wait_ns;
} bt_traffic;

const char *bt_coll_name(bt_coll c); /* "all_reduce" */
const char *bt_axis_name(bt_axis a); /* "dp" */

void bt_traffic_add(bt_coll c, bt_axis a, const bt_traffic *more);
const bt_traffic *bt_traffic_get(bt_coll c, bt_axis a);
void bt_traffic_reset(void);

/* Messages that this rank received from each other rank of the world in exchanges between pairs of ranks: gradients,
 * gathered weights, tensor-parallel groups over MPI. flight: time from posting the receive to detecting its
 * completion, over the `timed` messages (gradients). */
/* larger worlds count no pairs, because n^2 numbers cannot be displayed */
enum { BT_PAIRS_MAX = 32 };
typedef struct bt_pair {
    int64_t messages, bytes, timed, flight_ns;
} bt_pair;
void bt_pair_add(int from, const bt_pair *more); /* `from`: rank of the world */
const bt_pair *bt_pair_get(int from);            /* below BT_PAIRS_MAX */
void bt_pairs_reset(void);

/* Sets a counter *at that other processes may read: the number of exchanges of all kinds that this rank has begun.
 * NULL: none. Ranks at the same position of a data-parallel job have equal counts. */
void bt_traffic_count_in(_Atomic int64_t *at);
/* Counts the beginning of an exchange; bt_traffic_begin calls it, too. */
void bt_traffic_next(void);

/* Counts bytes sent by this rank; bt_comm_bytes_logical and bt_comm_bytes_wire (comm.h) return the sums */
void bt_comm_count(uint64_t logical_bytes, uint64_t wire_bytes);

/* measures a blocking exchange: its time, and the bytes that comm.h counts meanwhile */
typedef struct bt_traffic_mark {
    int64_t begin_ns, wait_ns; /* wait: time charged as WAIT before the exchange (base/span.h) */
    uint64_t bytes_logical, bytes_wire;
} bt_traffic_mark;
bt_traffic_mark bt_traffic_begin(void);
void bt_traffic_end(const bt_traffic_mark *m, bt_coll c, bt_axis a);

#endif
