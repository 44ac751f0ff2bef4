/* replica_check.c - compares hashes of the weights and identifies the ranks that differ. */
#include "engine/update/replica_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/small.h"
#include "engine/base/testing/testing.h"
#include "engine/base/threads.h"
#include "engine/parallel/grad/grad_digest.h"

/* RANGE: elements of one hash, computed by one thread (1 MiB of fp32). BLOCK: elements that fit the L1 cache. */
enum { RANGE = 1 << 18, BLOCK = 4096 };

/* first and largest interval in steps */
enum { EVERY_FIRST = 10, EVERY_MOST = 50 };
static const double COST_FRAC = 0.0025;

/* ---- hashed ranges ------------------------------------------------------------------------------------ */

/* Adds [begin, end) of tensor k in ranges of at most RANGE elements; with ranges NULL it only counts them. */
static void add_hashed_range(bt_hashed_range *ranges, size_t *n, size_t k, size_t begin,
                             size_t end) {
    for (; begin < end; begin += bt_min_size(RANGE, end - begin), (*n)++)
        if (ranges)
            ranges[*n] = (bt_hashed_range){k, begin, begin + bt_min_size(RANGE, end - begin)};
}

static size_t list_ranges(const bt_update *u, bt_hashed_range *ranges) {
    const bt_params *p = bt_model_params(u->model);
    size_t n = 0;
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        const size_t end = x->offset + x->count;
        if (bt_weights_holds(u->weights, x))
            add_hashed_range(ranges, &n, k, x->offset, end);
        else
            for (size_t i = 0; i < u->n_pieces; i++)
                add_hashed_range(ranges, &n, k, bt_max_size(u->pieces[i].begin, x->offset),
                                 bt_min_size(u->pieces[i].end, end));
    }
    return n;
}

bt_code bt_replica_check_init(bt_replica_check *c, const bt_update *u, bt_err *err) {
    *c = (bt_replica_check){.update = u, .n_ranges = list_ranges(u, NULL)};
    c->ranges = calloc(c->n_ranges, sizeof *c->ranges);
    c->hashes = calloc(c->n_ranges, sizeof *c->hashes);
    c->pairs = calloc(2 * bt_model_params(u->model)->n, sizeof *c->pairs);
    if (!c->ranges || !c->hashes || !c->pairs)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the hashes of the weights");
    list_ranges(u, c->ranges);
    return BT_OK;
}

void bt_replica_check_release(bt_replica_check *c) {
    free(c->ranges);
    free(c->hashes);
    free(c->pairs);
    memset(c, 0, sizeof *c);
}

static bt_latent latent_of(const bt_replica_check *c, const bt_hashed_range *r) {
    return bt_model_latent(c->update->model, r->tensor);
}

/* Returns the index of a range's first element in its tensor. */
static size_t first_element(const bt_replica_check *c, const bt_hashed_range *r) {
    return r->begin - bt_model_params(c->update->model)->tensors[r->tensor].offset;
}

static void *weights_at(const bt_replica_check *c, const bt_hashed_range *r) {
    return bt_latent_at(latent_of(c, r), first_element(c, r));
}

static void hash_ranges(void *ctx, int thread, size_t begin, size_t end) {
    const bt_replica_check *c = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const bt_hashed_range *r = &c->ranges[i];
        c->hashes[i] = XXH3_64bits(weights_at(c, r),
                                   (r->end - r->begin) * bt_moment_bytes(latent_of(c, r).form));
    }
}

/* Returns the hash of this rank's part of tensor k; 0 if it has none. */
static int64_t tensor_hash(const bt_replica_check *c, size_t k) {
    uint64_t hash = 0;
    for (size_t i = 0; i < c->n_ranges; i++)
        if (c->ranges[i].tensor == k)
            hash = XXH3_64bits_withSeed(&c->hashes[i], sizeof c->hashes[i], hash);
    return (int64_t)(hash >> 1);
}

/* Stores each hash and its negative. The maximum over all ranks of the hashes, and of their negatives, is the same
 * number exactly if all hashes are equal. */
static void fill_pairs(bt_replica_check *c) {
    const bt_params *p = bt_model_params(c->update->model);
    bt_parallel_for(c->n_ranges, 1, hash_ranges, c);
    memset(c->pairs, 0, 2 * p->n * sizeof *c->pairs);
    for (size_t k = 0; k < p->n; k++) {
        const bool all = bt_weights_holds(c->update->weights, &p->tensors[k]);
        int64_t *pair = c->pairs[all ? k : p->n + k];
        pair[0] = tensor_hash(c, k);
        pair[1] = -pair[0];
    }
}

/* ---- the ranks that differ --------------------------------------------------------------------------- */

typedef struct holder { /* a rank of the group, and its hash */
    int64_t hash;
    char host[BT_HOST_MAX];
} holder;

/* Returns the number of ranks with the same hash as rank r. */
static int count_equal_hashes(const holder *all, int n, int r) {
    int same = 0;
    for (int q = 0; q < n; q++) same += all[q].hash == all[r].hash;
    return same;
}

/* Determines which ranks to report: the rank that differs from a majority, or else the first two that differ. */
static bt_replica_blame blame_ranks(const bt_replica_check *c, const holder *all, int n,
                                    bt_axis axis, const char *tensor) {
    int good = 0, bad = 0;
    bt_replica_blame b = {.found = true};
    for (int r = 1; r < n; r++)
        if (count_equal_hashes(all, n, r) > count_equal_hashes(all, n, good)) good = r;
    while (bad < n && all[bad].hash == all[good].hash) bad++;
    if (bad == n) bad = good; /* unreachable: the caller found a difference */
    b.majority = 2 * count_equal_hashes(all, n, good) > n;
    const int who[2] = {b.majority ? bad : good, b.majority ? good : bad};
    for (int i = 0; i < 2; i++) {
        b.rank[i] = bt_mesh_peer(c->update->mesh, axis, who[i]);
        b.hash[i] = all[who[i]].hash;
        memcpy(b.host[i], all[who[i]].host, sizeof b.host[i]);
    }
    snprintf(b.tensor, sizeof b.tensor, "%s", tensor);
    return b;
}

static bt_code difference_error(const bt_replica_blame *b, int more, int64_t step, bt_err *err) {
    static const char advice[] =
        "a fault of memory or processor, or a bug (the newest checkpoint was "
        "compared before it was written: resume from it)";
    if (!b->majority)
        return bt_fail(err, BT_DAMAGED,
                       "the replicas' weights differ after step %lld: '%s' is not the same on rank "
                       "%d (host '%s') and rank %d (host '%s'): %s",
                       (long long)step, b->tensor, b->rank[0], b->host[0], b->rank[1], b->host[1],
                       advice);
    return bt_fail(
        err, BT_DAMAGED,
        "the replicas' weights differ after step %lld: '%s' on rank %d (host '%s') is not "
        "what rank %d and %d more hold: %s",
        (long long)step, b->tensor, b->rank[0], b->host[0], b->rank[1], more, advice);
}

/* Collective over the group: sends the values of rank[0], range by range. */
static bt_code first_difference(const bt_replica_check *c, bt_comm *comm, bt_axis axis,
                                size_t tensor, bt_replica_blame *b, bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    int from = 0, to = 0;
    for (int r = 0; r < bt_comm_size(comm); r++) {
        if (bt_mesh_peer(mesh, axis, r) == b->rank[0]) from = r;
        if (bt_mesh_peer(mesh, axis, r) == b->rank[1]) to = r;
    }
    float *theirs = malloc(2 * RANGE * sizeof *theirs);
    bt_code code = theirs ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory to compare weights");
    code = bt_agree(comm, code, err);
    b->element = -1;
    for (size_t i = 0; code == BT_OK && i < c->n_ranges; i++) {
        const bt_hashed_range *r = &c->ranges[i];
        const size_t n = r->end - r->begin;
        if (r->tensor != tensor) continue;
        const float *w = bt_latent_read(latent_of(c, r), first_element(c, r), n, theirs + RANGE);
        memcpy(theirs, w, n * sizeof *w);
        code = bt_broadcast(comm, theirs, n * sizeof *w, from, err);
        for (size_t e = 0; b->element < 0 && e < n; e++) {
            if (memcmp(&theirs[e], &w[e], sizeof *w) == 0) continue;
            b->element = (int64_t)(r->begin + e);
            b->value[0] = (double)theirs[e];
            b->value[1] = (double)w[e];
        }
    }
    free(theirs);
    if (code == BT_OK) code = bt_broadcast(comm, b, sizeof *b, to, err);
    return code;
}

/* Collective over the group whose ranks differ in the tensor. */
static bt_code report_unequal_weights(const bt_replica_check *c, bt_axis axis, size_t tensor,
                                      int64_t step, bt_replica_blame *blame, bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    bt_comm *comm = axis == BT_AXIS_DP ? mesh->dp : mesh->replicate;
    const int n = bt_comm_size(comm);
    holder mine = {.hash = tensor_hash(c, tensor)}, *all = calloc((size_t)n, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    bt_code code = all ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for the ranks' hashes");
    code = bt_agree(comm, code, err);
    if (code == BT_OK) code = bt_all_gather(comm, &mine, sizeof mine, all, err);
    if (code == BT_OK) {
        *blame = blame_ranks(c, all, n, axis,
                             bt_model_params(c->update->model)->tensors[tensor].name);
        int more = -1;
        for (int r = 0; r < n; r++) more += all[r].hash == blame->hash[1];
        if (!blame->majority) code = first_difference(c, comm, axis, tensor, blame, err);
        if (code == BT_OK) code = difference_error(blame, more, step, err);
    }
    free(all);
    return code;
}

static bt_code compare_weight_hashes(bt_replica_check *c, int64_t step, bt_replica_blame *blame,
                                     bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    const size_t n = bt_model_params(c->update->model)->n;
    fill_pairs(c);
    BT_TRY(bt_all_reduce_i64(mesh->dp, c->pairs[0], 2 * n, BT_MAX, err));
    BT_TRY(bt_all_reduce_i64(mesh->replicate, c->pairs[n], 2 * n, BT_MAX, err));
    for (size_t i = 0; i < 2 * n; i++)
        if (c->pairs[i][0] != -c->pairs[i][1])
            return report_unequal_weights(c, i < n ? BT_AXIS_DP : BT_AXIS_REPLICATE, i % n, step,
                                          blame, err);
    return BT_OK;
}

bt_code bt_replica_check_run(bt_replica_check *c, int64_t step, bt_replica_blame *blame,
                             bt_err *err) {
    bt_comm *world = c->update->mesh->world;
    bt_replica_blame found = {0};
    const int me = bt_comm_rank(world);
    const bt_code code = bt_agree(world, compare_weight_hashes(c, step, &found, err), err);
    if (code != BT_DAMAGED || !blame) return code;
    /* if several groups differ, the one with the lowest rank reports, as in bt_agree */
    int64_t lowest = found.found ? -me : -(int64_t)bt_comm_size(world);
    bt_err ignored;
    if (bt_all_reduce_i64(world, &lowest, 1, BT_MAX, &ignored) == BT_OK &&
        bt_broadcast(world, &found, sizeof found, (int)-lowest, &ignored) == BT_OK)
        *blame = found;
    return code;
}

/* ---- finite weights ---------------------------------------------------------------------------------- */

static bool finite_range(const bt_replica_check *c, const bt_hashed_range *r) {
    const bt_latent w = latent_of(c, r);
    const size_t n = r->end - r->begin, first = first_element(c, r);
    float spare[BLOCK];
    bt_grad_digest d = {0};
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t some = bt_min_size(BLOCK, n - at);
        bt_grad_digest_add(&d, bt_latent_read(w, first + at, some, spare), some);
    }
    return bt_grad_digest_finite(&d);
}

int64_t bt_replica_check_every(double cost_ns, double step_ns) {
    if (!(step_ns > 0)) return EVERY_FIRST;
    const double every = ceil(cost_ns / (COST_FRAC * step_ns));
    return every > EVERY_MOST ? EVERY_MOST : every < 1 ? 1 : (int64_t)every;
}

bt_code bt_replica_check_finite(const bt_replica_check *c, int64_t step, bt_err *err) {
    const bt_params *p = bt_model_params(c->update->model);
    const bt_mesh *mesh = c->update->mesh;
    const int64_t above = bt_comm_size(mesh->world) - bt_comm_rank(mesh->world);
    /* number, from 1, of a tensor with a value that is not finite, on the lowest rank that found one; 0: none */
    int64_t worst = 0;
    for (size_t i = 0; i < c->n_ranges && !worst; i++) {
        const bt_hashed_range *r = &c->ranges[i];
        if (!finite_range(c, r)) worst = above << 32 | (int64_t)(p->tensors[r->tensor].number + 1);
    }
    BT_TRY(bt_all_reduce_i64(mesh->world, &worst, 1, BT_MAX, err));
    if (!worst) return BT_OK;
    return bt_fail(
        err, BT_DAMAGED,
        "a weight of '%s' on rank %" PRId64
        " is not finite after step %lld: a fault of memory or processor, or an update that "
        "was too large (continue from the newest checkpoint)",
        c->update->table.tensors[(worst & 0xffffffff) - 1].name,
        bt_comm_size(mesh->world) - (worst >> 32), (long long)step);
}

/* ---- test hook ------------------------------------------------------------------------------- */

void bt_replica_check_test_flip(const bt_replica_check *c, int64_t step) {
    uint32_t bit, bits;
    char name[64];
    if (!bt_testing_flip(bt_comm_rank(c->update->mesh->world), step, name, &bit)) return;
    const bt_params *p = bt_model_params(c->update->model);
    for (size_t i = 0; i < c->n_ranges; i++) {
        if (strcmp(p->tensors[c->ranges[i].tensor].name, name) != 0) continue;
        /* bf16 weights are the upper half of fp32 ones */
        const bool half = latent_of(c, &c->ranges[i]).form == BT_MOMENT_BF16;
        unsigned char *w = weights_at(c, &c->ranges[i]);
        bits = 0;
        memcpy((unsigned char *)&bits + (half ? 2 : 0), w, half ? 2 : 4);
        bits ^= 1u << (half ? 16 + bit % 16 : bit);
        memcpy(w, (unsigned char *)&bits + (half ? 2 : 0), half ? 2 : 4);
        return;
    }
}
