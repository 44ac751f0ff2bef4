/* exchange_route.c - host groups, their relays, and the nodes of the tree that each rank receives. */
#include "engine/parallel/grad/exchange_route.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/base/small.h"

bt_unit_run bt_unit_run_of(int64_t units, const int64_t *shares, int n, int d) {
    bt_unit_run r = {units * d / n, units * (d + 1) / n - units * d / n};
    if (!shares) return r;
    r = (bt_unit_run){0, shares[d]};
    for (int i = 0; i < d; i++) r.first += shares[i];
    return r;
}

size_t bt_route_part(const bt_route *r, int owner) {
    return (size_t)(owner % r->shards) * (size_t)(r->n / r->shards) + (size_t)(owner / r->shards);
}

bool bt_route_needs(const bt_route *r, int rank, int owner) {
    return rank % r->shards == owner % r->shards;
}

/* The relay of a host group without the owner is a rank that needs the sum, if there is one. */
int bt_route_relay(const bt_route *r, int host_group, int owner) {
    int first = r->first[host_group], size = r->first[host_group + 1] - first;
    if (r->host_group[owner] == host_group) return owner;
    for (int i = 0; i < size; i++) {
        int rank = first + (owner + i) % size;
        if (bt_route_needs(r, rank, owner)) return rank;
    }
    return first + owner % size;
}

static void make_host_groups(bt_route *r, const int *hosts, bool together) {
    bool grouped = together;
    for (int d = 1; d < r->n; d++) grouped |= hosts[d] != hosts[0];
    for (int d = 0; d < r->n; d++) {
        if (d == 0 || !grouped || hosts[d] != hosts[d - 1]) r->first[r->n_host_groups++] = d;
        r->host_group[d] = r->n_host_groups - 1;
    }
    r->first[r->n_host_groups] = r->n;
    r->mine = r->host_group[r->me];
}

static void make_nodes(bt_route *r, const bt_route_cfg *cfg) {
    for (int g = 0; g < r->n_host_groups; g++) {
        int64_t first = bt_unit_run_of(cfg->units, cfg->shares, r->n, r->first[g]).first, count = 0;
        for (int d = r->first[g]; d < r->first[g + 1]; d++) {
            bt_unit_run u = bt_unit_run_of(cfg->units, cfg->shares, r->n, d);
            r->nodes[d] = bt_tree_sum_shape(u.first, u.count);
            count += u.count;
        }
        r->sums[g] = bt_tree_sum_shape(first, count);
    }
}

/* Counts the nodes received from other ranks, and their positions. */
static void count_arrivals(bt_route *r) {
    bt_tree_sum all = {.n = 0};
    for (int d = 0; d < r->n; d++) {
        r->before[d] = r->inside;
        if (r->host_group[d] == r->mine && d != r->me) r->inside += r->nodes[d].n;
        bool relays = bt_route_relay(r, r->mine, d) == r->me;
        r->relayed[d] = relays ? (int)r->n_relayed++ : -1;
    }
    for (int g = 0; g < r->n_host_groups; g++) {
        r->sums_before[g] = r->across;
        if (g != r->mine) r->across += r->sums[g].n;
        for (size_t i = 0; i < r->sums[g].n; i++) {
            bt_tree_sum_push(&all, r->sums[g].at[i], NULL, 0, NULL);
            if (all.n > r->waiting) r->waiting = all.n;
        }
    }
}

bt_code bt_route_init(bt_route *r, const bt_route_cfg *cfg, bt_err *err) {
    size_t n = (size_t)cfg->n;
    assert(cfg->n % cfg->shards == 0);
    *r = (bt_route){.n = cfg->n,
                    .me = cfg->me,
                    .shards = cfg->shards,
                    .host_group = calloc(n, sizeof *r->host_group),
                    .first = calloc(n + 1, sizeof *r->first),
                    .nodes = calloc(n, sizeof *r->nodes),
                    .sums = calloc(n, sizeof *r->sums),
                    .relayed = calloc(n, sizeof *r->relayed),
                    .before = calloc(n, sizeof *r->before),
                    .sums_before = calloc(n, sizeof *r->sums_before)};
    if (!r->host_group || !r->first || !r->nodes || !r->sums || !r->relayed || !r->before ||
        !r->sums_before) {
        bt_route_release(r);
        return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", cfg->n);
    }
    make_host_groups(r, cfg->hosts, cfg->together);
    make_nodes(r, cfg);
    count_arrivals(r);
    return BT_OK;
}

void bt_route_release(bt_route *r) {
    free(r->host_group);
    free(r->first);
    free(r->nodes);
    free(r->sums);
    free(r->relayed);
    free(r->before);
    free(r->sums_before);
    *r = (bt_route){.n = 0};
}

size_t bt_route_places(const bt_route *r) {
    return r->first[r->mine + 1] - r->first[r->mine] > 1 ? bt_max_size(r->inside, 1) : 0;
}
