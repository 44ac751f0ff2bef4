/* link.h - latency and rate of the links along an axis while nothing else runs: the model with which exchanges are
 * compared.
 *
 * Every rank sends to every other at once, as in exchange.h and shard_all_gather.h. A round in which a rank sends
 * `bytes` in total takes latency + bytes / rate. Two sizes are measured; the time of a size is the minimum over
 * several rounds of the maximum over the ranks. Collective over the communicator; takes about ten rounds, and
 * temporarily twice `bytes` of memory.
 * Threads: the training thread. */
#ifndef BT_ENGINE_PARALLEL_MPI_LINK_H
#define BT_ENGINE_PARALLEL_MPI_LINK_H

#include <stdbool.h>

#include "engine/parallel/mpi/comm.h"

typedef struct bt_link {
    double latency_s, bytes_per_s;
    bool tried;
} bt_link; /* rates of zero: unknown */

/* Computes latency and rate from a round that took small_s and a round with `more` additional bytes that took
 * large_s. The result is unknown if the difference is within the noise of a busy machine or the rate is
 * implausible. */
bt_link bt_link_of(double small_s, double large_s, double small_bytes, double more);

/* Returns the bytes that a rank sends to each other rank in a large round of `bytes`: 4 KiB to 256 MiB; ranks: at
 * least 2 */
size_t bt_link_bytes_each(size_t bytes, int ranks);

/* a single rank has no links */
bt_code bt_link_measure(bt_link *out, bt_comm *c, size_t bytes, bt_err *err) BT_MUST_CHECK;
/* Measures with more rounds, each of which sends other memory than the previous one, from a buffer of `memory`
 * bytes (a multiple of `bytes`). So links within a host, which copy memory, are measured without cache hits; and
 * on a busy machine one of the rounds is likely undisturbed. */
typedef struct bt_link_work {
    size_t bytes, memory;
    int rounds;
    /* measure the processor time of a rank, for links of a host whose ranks share cores */
    bool processor;
} bt_link_work;
bt_code bt_link_measure_long(bt_link *out, bt_comm *c, const bt_link_work *work, bt_err *err)
    BT_MUST_CHECK;
double bt_link_s(const bt_link *l, double rounds, double bytes); /* NaN when not known */

#endif
