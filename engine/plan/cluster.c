/* cluster.c - computes how ranks are distributed over hosts. */
#include "engine/plan/cluster.h"

int bt_cluster_hosts(const bt_cluster *c) {
    return c->hosts > 0 ? c->hosts : (c->ranks + c->ranks_per_host - 1) / c->ranks_per_host;
}

int bt_cluster_fullest(const bt_cluster *c) {
    return c->ranks < c->ranks_per_host ? c->ranks : c->ranks_per_host;
}

int bt_cluster_together(const bt_cluster *c) {
    return c->hosts > 0 ? c->ranks_together : c->ranks_per_host;
}
