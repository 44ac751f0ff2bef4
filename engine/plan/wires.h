/* wires.h - how long messages of a group of ranks take, by measured links or by those that a
 * simulated cluster is said to have.
 *
 * Groups: n ranks, `stride` apart, all such groups at once. Threads: none shared. */
#ifndef BT_ENGINE_PLAN_WIRES_H
#define BT_ENGINE_PLAN_WIRES_H

#include "engine/plan/time_model.h"

typedef struct bt_wire {
    double latency_s, bytes_per_s; /* of a round; that a rank sends. Rate 0: nothing is sent */
    bool copies;                   /* within a host: the processors move the bytes */
} bt_wire;

bt_wire bt_wire_of(const bt_rates *r, const bt_cluster *c, int n, int stride);
double bt_wire_s(const bt_wire *w, double rounds, double bytes);

/* Gradients of one data-parallel group and step (exchange_route.h), `elems` of them: of each the seconds
 * on the wire, of processor time (digest, sums, codecs, copying within a host) and the bytes that a rank
 * sends; and the latencies of a bucket's rounds. Within a host the time is that of the exchange through
 * memory that ranks share, where that was measured and gradients go that way; else that of messages. */
typedef struct bt_exchange_cost {
    double wire_s, cpu_s, bytes, latency_s;
} bt_exchange_cost;
bt_exchange_cost bt_wire_exchange(const bt_rates *r, const bt_cluster *c, const bt_run_cfg *cfg,
                                  const bt_mesh_shape *shape, double elems);

/* exchanges of a tensor-parallel group: `bytes` of whole matrices, of which a rank has 1/tp */
double bt_wire_rows_s(const bt_rates *r, const bt_cluster *c, int tp, double meetings,
                      double bytes);
/* what all ranks tell each other at the end of a step's backward pass */
double bt_wire_agree_s(const bt_rates *r, const bt_cluster *c);

#endif
