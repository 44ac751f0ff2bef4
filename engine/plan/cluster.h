/* cluster.h - the hosts and data that a prediction is for. */
#ifndef BT_ENGINE_PLAN_CLUSTER_H
#define BT_ENGINE_PLAN_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

/* Of sequences that are made of documents; 0: not known, as of a stream */
typedef struct bt_data_facts {
    /* of the tokens of all sequences those that are learned: a frozen head is applied to these alone */
    double learned_frac;
    /* of what attention looks at where a sequence is one document, what it looks at in these */
    double attended_frac;
} bt_data_facts;

/* What a prediction knows besides settings and rates: where the ranks of a job are (neighbours share a
 * host), and what its data are. */
typedef struct bt_cluster {
    int ranks, ranks_per_host; /* ranks_per_host: of the host that has most */
    int hosts;                 /* that have unequal numbers of ranks; 0: they are alike */
    int ranks_together;  /* unequal hosts: so many ranks from any multiple of it on share a host */
    int cores;           /* of a host; 0: as many as its ranks have threads */
    bool binds;          /* cores have one hardware thread: ranks beyond them can be bound evenly */
    bool simulated;      /* links between hosts are these, not measured ones: */
    double latency_s;    /* of a message */
    double bytes_per_s;  /* of a host, each way, shared by its ranks */
    double memory_bytes; /* of a host; 0: not known */
    double mtbf_s;       /* of a host; 0: it never fails */
    double straggler_frac; /* ranks are slower by |normal| of this width; 0: all alike */
    uint64_t seed;
    bt_data_facts data;
} bt_cluster;

int bt_cluster_hosts(const bt_cluster *c);
int bt_cluster_fullest(const bt_cluster *c); /* ranks of the host that has most */
/* the largest group of neighbouring ranks that never crosses hosts */
int bt_cluster_together(const bt_cluster *c);

#endif
