/* link.h - what the links along an axis can do while nothing else runs: the model that exchanges
 * are held against.
 *
 * Every rank sends to every other at once, as exchange.h and shard_all_gather.h do. A round in
 * which a rank sends `bytes` to the others together takes latency + bytes / rate; two sizes are
 * measured, of several rounds the shortest, of the ranks the slowest. Collective over the
 * communicator; takes about ten rounds, and twice `bytes` of memory while it lasts. */
#ifndef BT_ENGINE_PARALLEL_MPI_LINK_H
#define BT_ENGINE_PARALLEL_MPI_LINK_H

#include <stdbool.h>

#include "engine/parallel/mpi/comm.h"

typedef struct bt_link {
    double latency_s, bytes_per_s;
    bool tried;
} bt_link; /* rates zero: not known */

/* Of a round that took small_s and one that took large_s with `more` bytes more. Where the larger
 * round took no longer than other work on the machine makes two rounds differ, or the rate is one
 * that no link has, nothing is known. */
bt_link bt_link_of(double small_s, double large_s, double small_bytes, double more);

/* what a rank sends each other one in a large round of `bytes`: 4 KiB to 256 MiB; ranks: 2 at least */
size_t bt_link_bytes_each(size_t bytes, int ranks);

/* a rank that is alone has no links */
bt_code bt_link_measure(bt_link *out, bt_comm *c, size_t bytes, bt_err *err) BT_MUST_CHECK;
/* The same of more rounds, each of which sends other memory than the one before, out of `memory` bytes
 * (a multiple of `bytes`): links of a host, which copy, by what is not in a cache; and on a busy
 * machine among more rounds there is one that nobody disturbed. */
typedef struct bt_link_work {
    size_t bytes, memory;
    int rounds;
    /* by the processor time of a rank: for links of a host whose ranks take turns on its cores */
    bool processor;
} bt_link_work;
bt_code bt_link_measure_long(bt_link *out, bt_comm *c, const bt_link_work *work, bt_err *err)
    BT_MUST_CHECK;
double bt_link_s(const bt_link *l, double rounds, double bytes); /* NaN when not known */

#endif
