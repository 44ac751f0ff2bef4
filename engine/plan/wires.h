/* wires.h - time that messages of a group of ranks take, over measured links or over those of a simulated cluster.
 *
 * A group has n ranks, `stride` apart; all such groups send at once. Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_WIRES_H
#define BT_ENGINE_PLAN_WIRES_H

#include "engine/plan/time_model.h"

typedef struct bt_wire {
    double latency_s, bytes_per_s; /* latency of a round; rate of a rank, 0 if nothing is sent */
    bool copies;                   /* link within a host: the processors copy the bytes */
} bt_wire;

bt_wire bt_wire_of(const bt_rates *r, const bt_cluster *c, int n, int stride);
double bt_wire_s(const bt_wire *w, double rounds, double bytes);

/* Exchange of a step's `elems` gradients in one data-parallel group (exchange_route.h): seconds on the wire,
 * processor seconds (digest, sums, codecs, copies within a host), bytes that a rank sends, and latencies of one
 * bucket's rounds. Within a host the time is that of the exchange through shared memory if it was measured and
 * gradients use it, else that of messages. */
typedef struct bt_exchange_cost {
    double wire_s, cpu_s, bytes, latency_s;
} bt_exchange_cost;
bt_exchange_cost bt_wire_exchange(const bt_rates *r, const bt_cluster *c, const bt_run_cfg *cfg,
                                  const bt_mesh_shape *shape, double elems);

/* Exchanges of a tensor-parallel group: `bytes` of whole matrices, of which a rank has 1/tp, and the number of
 * synchronisations. */
double bt_wire_rows_s(const bt_rates *r, const bt_cluster *c, int tp, double meetings,
                      double bytes);
/* Time in which all ranks agree after a step's backward pass. */
double bt_wire_agree_s(const bt_rates *r, const bt_cluster *c);

#endif
