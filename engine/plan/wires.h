/* wires.h - computes the time of messages in a group of ranks, over measured links or over those of a simulated
 * cluster.
 *
 * A group has n ranks with the distance `stride`; all such groups send at once. Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_WIRES_H
#define BT_ENGINE_PLAN_WIRES_H

#include "engine/plan/time_model.h"

typedef struct bt_wire {
    double latency_s, bytes_per_s; /* latency of a round; rate of a rank, 0: nothing is sent */
    bool copies;                   /* link within a host, on which processors copy the bytes */
} bt_wire;

bt_wire bt_wire_of(const bt_rates *r, const bt_cluster *c, int n, int stride);
double bt_wire_s(const bt_wire *w, double rounds, double bytes);

/* Cost of exchanging a step's `elems` gradients in one data-parallel group (exchange_route.h): seconds on the wire;
 * processor seconds (digest, sums, codecs, copies within a host); bytes that a rank sends; latencies of one bucket's
 * rounds. Within a host it is the measured time of the exchange through shared memory, if gradients use that, otherwise
 * the time of messages. */
typedef struct bt_exchange_cost {
    double wire_s, cpu_s, bytes, latency_s;
} bt_exchange_cost;
bt_exchange_cost bt_wire_exchange(const bt_rates *r, const bt_cluster *c, const bt_run_cfg *cfg,
                                  const bt_mesh_shape *shape, double elems);

/* Time of exchanges in a tensor-parallel group: `bytes` of whole matrices; number of synchronisations. */
double bt_wire_rows_s(const bt_rates *r, const bt_cluster *c, int tp, double meetings,
                      double bytes);
/* Time in which all ranks agree after the backward pass of a step. */
double bt_wire_agree_s(const bt_rates *r, const bt_cluster *c);

#endif
