/* exchange_route.h - the route of every part of a bucket between the ranks of one data-parallel group.
 *
 * Every rank owns one part of a bucket and computes the sum of this part. In a job on several hosts the neighbouring
 * ranks of one host are a host group: they add their gradients before anything leaves the host, so that a part crosses
 * the network once per host instead of once per rank. A host group has a relay for every owner outside it; different
 * owners have different relays.
 *
 *  ranks 0 1 | 2 3 on two hosts, the part of rank 3 -> within a host => between hosts
 *  inside 0 -> 1 (the relay), 2 -> 3
 *  across 1 => 3, which now has the sum
 *  back 3 => 1
 *  inside again 1 -> 0, 3 -> 2
 *
 * The order of the sum is that of tree_sum.h: a host group combines the subtrees that are complete within it and
 * sends the remainder as several nodes. On one host, unless its ranks are grouped, and if no two neighbouring
 * ranks share a host, every rank is a host group of its own, and all messages go directly to the owner and back.
 * Pure arithmetic; all ranks of the data-parallel group must pass the same numbers. Private to
 * engine/parallel/grad. */
#ifndef BT_ENGINE_PARALLEL_GRAD_EXCHANGE_ROUTE_H
#define BT_ENGINE_PARALLEL_GRAD_EXCHANGE_ROUTE_H

#include <stdbool.h>

#include "engine/base/status.h"
#include "engine/parallel/grad/tree_sum.h"

typedef struct bt_unit_run {
    int64_t first, count;
} bt_unit_run;
/* Returns the units of rank d of n. shares: (n) number per rank; NULL: [units d / n, units (d+1) / n). */
bt_unit_run bt_unit_run_of(int64_t units, const int64_t *shares, int n, int d);

typedef struct bt_route_cfg {
    int n, me;  /* number of data-parallel ranks, index of this one */
    int shards; /* number of shards; sums are sent to the ranks of the owner's shard, 1: to all */
    const int *hosts; /* (n) host of each rank. Read by init only, like the shares */
    bool together;    /* all ranks are on one host: they are one host group */
    int64_t
        units; /* number of leaves of the tree; rank d has bt_unit_run_of(units, shares, n, d) */
    const int64_t *shares;
} bt_route_cfg;

typedef struct bt_route {
    int n, me, shards;
    int n_host_groups, mine; /* number of host groups, index of this rank's */
    int *host_group;
    int *first;         /* (n_host_groups + 1) first rank of each host group */
    bt_tree_sum *nodes; /* (n) nodes of each rank in the tree; shapes without arrays */
    bt_tree_sum *sums;  /* (n_host_groups) remaining nodes after a host group has added its own */
    int *relayed;       /* (n) index of each owner that this rank relays; -1: not relayed */
    size_t n_relayed;   /* includes itself: an owner adds for its own host group */
    size_t *before; /* (n) nodes of the ranks before d in this host group, without this rank's */
    size_t inside;  /* number of nodes of the other ranks of this host group */
    size_t *sums_before; /* (n_host_groups) nodes of host groups before g, without this one */
    size_t across;       /* number of nodes of the other host groups */
    size_t waiting;      /* maximum number of nodes that wait for a sibling at the same time */
} bt_route;

bt_code bt_route_init(bt_route *r, const bt_route_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_route_release(bt_route *r); /* accepts an all-zero struct */
/* Returns the index of the part that an owner owns, of the n parts of a bucket. */
size_t bt_route_part(const bt_route *r, int owner);
/* Returns the rank of a host group that sends its nodes of an owner's part to the owner, and receives the sum if
 * the host group needs it. An owner is the relay of its own host group. */
int bt_route_relay(const bt_route *r, int host_group, int owner);
/* Returns the number of buffers of a rank of this host group for the nodes of other ranks, per owner that it relays. */
size_t bt_route_places(const bt_route *r);
/* Returns true if the rank needs the sum of the owner's part. */
bool bt_route_needs(const bt_route *r, int rank, int owner);

#endif
