/* cluster.h - hosts and data for which a prediction is made. */
#ifndef BT_ENGINE_PLAN_CLUSTER_H
#define BT_ENGINE_PLAN_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

/* Facts about documents in a sequence; 0 if unknown, for example for a stream. */
typedef struct bt_data_facts {
    /* share of tokens that the loss includes; a frozen head is applied only to these */
    double learned_frac;
    double attended_frac; /* attended positions, relative to a sequence that is a single document */
} bt_data_facts;

/* Further inputs of a prediction: placement of the ranks (neighbours share a host), facts about the data. */
typedef struct bt_cluster {
    int ranks, ranks_per_host; /* ranks_per_host: maximum over all hosts */
    int hosts; /* number of hosts if their numbers of ranks differ; 0 if all hosts have equally many */
    int ranks_together; /* unequal hosts: each aligned group of this many ranks is on one host */
    int cores;          /* cores of each host; 0: as many as its ranks have threads */
    /* true: the next two fields describe links between hosts; false: links were measured */
    bool simulated;
    double latency_s;    /* seconds per message */
    double bytes_per_s;  /* link of a host in each direction, shared by its ranks */
    double memory_bytes; /* memory of each host; 0 if unknown */
    double mtbf_s;       /* mean time between failures of a host; 0 if it never fails */
    /* width of the normal distribution of ranks' slow-down factors - 1; 0: all ranks are equally fast */
    double straggler_frac;
    uint64_t seed;
    bt_data_facts data;
} bt_cluster;

int bt_cluster_hosts(const bt_cluster *c);
int bt_cluster_fullest(const bt_cluster *c); /* largest number of ranks on a host */
/* Returns the size of the largest group of neighbouring ranks that is always on one host. */
int bt_cluster_together(const bt_cluster *c);

#endif
