/* cluster.h - hosts and data for which a prediction is made. */
#ifndef BT_ENGINE_PLAN_CLUSTER_H
#define BT_ENGINE_PLAN_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

/* Facts about sequences that consist of documents; 0 if unknown, for example for a stream. */
typedef struct bt_data_facts {
    /* share of tokens with a loss; a frozen head is applied to these only */
    double learned_frac;
    /* attended positions, relative to sequences that are one document */
    double attended_frac;
} bt_data_facts;

/* Inputs of a prediction besides settings and rates: placement of the ranks (neighbours share a host) and facts
 * about the data. */
typedef struct bt_cluster {
    int ranks, ranks_per_host; /* ranks_per_host: maximum over hosts */
    int hosts;           /* number of hosts if their ranks differ in number; 0 if all are alike */
    int ranks_together;  /* unequal hosts: each aligned group of this many ranks shares a host */
    int cores;           /* cores of each host; 0 if there are as many as its ranks have threads */
    bool simulated;      /* links between hosts are given by the next two fields, not measured */
    double latency_s;    /* seconds per message */
    double bytes_per_s;  /* link of a host in each direction, shared by its ranks */
    double memory_bytes; /* memory of each host; 0 if unknown */
    double mtbf_s;       /* mean time between failures of a host; 0 if it never fails */
    double straggler_frac; /* ranks are slower by |normal| of this width; 0 if all are alike */
    uint64_t seed;
    bt_data_facts data;
} bt_cluster;

int bt_cluster_hosts(const bt_cluster *c);
int bt_cluster_fullest(const bt_cluster *c); /* largest number of ranks on a host */
/* Largest group of neighbouring ranks that never crosses hosts. */
int bt_cluster_together(const bt_cluster *c);

#endif
