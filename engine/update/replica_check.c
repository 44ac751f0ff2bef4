/* replica_check.c - hashes of the weights, and who disagrees. */
#include "engine/update/replica_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "engine/base/sink.h"
#include "engine/base/small.h"
#include "engine/base/testing/testing.h"
#include "engine/base/threads.h"
#include "engine/parallel/grad/grad_digest.h"

enum { RANGE = 1 << 18 }; /* elements: 1 MiB, one thread's at a time */

/* ---- what is hashed -------------------------------------------------------------------------- */

/* adds [begin, end) of tensor k in ranges of at most RANGE; with ranges NULL it only counts */
static void add_range(bt_hashed_range *ranges, size_t *n, size_t k, size_t begin, size_t end) {
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
            add_range(ranges, &n, k, x->offset, end);
        else
            for (size_t i = 0; i < u->n_pieces; i++)
                add_range(ranges, &n, k, bt_max_size(u->pieces[i].begin, x->offset),
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

static void hash_ranges(void *ctx, int thread, size_t begin, size_t end) {
    const bt_replica_check *c = ctx;
    const float *w = bt_model_weights(c->update->model);
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        const bt_hashed_range *r = &c->ranges[i];
        c->hashes[i] = XXH3_64bits(w + r->begin, (r->end - r->begin) * sizeof *w);
    }
}

/* of what this rank holds of tensor k; 0 where that is nothing */
static int64_t tensor_hash(const bt_replica_check *c, size_t k) {
    uint64_t hash = 0;
    for (size_t i = 0; i < c->n_ranges; i++)
        if (c->ranges[i].tensor == k)
            hash = XXH3_64bits_withSeed(&c->hashes[i], sizeof c->hashes[i], hash);
    return (int64_t)(hash >> 1);
}

/* The largest of all ranks' hashes and of all ranks' negated hashes are the same number where all
 * hashes are equal. */
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

/* ---- who disagrees --------------------------------------------------------------------------- */

typedef struct holder { /* a rank of the group and its hash */
    int64_t hash;
    char host[BT_HOST_MAX];
} holder;

/* how many ranks hold what rank r holds */
static int holders(const holder *all, int n, int r) {
    int same = 0;
    for (int q = 0; q < n; q++) same += all[q].hash == all[r].hash;
    return same;
}

static bt_code name_ranks(const bt_replica_check *c, const holder *all, int n, bt_axis axis,
                          const char *tensor, int64_t step, bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    int good = 0, bad = 0;
    for (int r = 1; r < n; r++)
        if (holders(all, n, r) > holders(all, n, good)) good = r;
    while (bad < n && all[bad].hash == all[good].hash) bad++;
    if (bad == n) bad = good; /* cannot be */
    const int bad_rank = bt_mesh_peer(mesh, axis, bad), good_rank = bt_mesh_peer(mesh, axis, good);
    static const char advice[] =
        "a fault of memory or processor, or a bug (the newest checkpoint was "
        "compared before it was written: resume from it)";
    if (2 * holders(all, n, good) <= n)
        return bt_fail(err, BT_DAMAGED,
                       "the replicas' weights differ after step %lld: '%s' is not the same on rank "
                       "%d (host '%s') and rank %d (host '%s'): %s",
                       (long long)step, tensor, good_rank, all[good].host, bad_rank, all[bad].host,
                       advice);
    return bt_fail(
        err, BT_DAMAGED,
        "the replicas' weights differ after step %lld: '%s' on rank %d (host '%s') is not "
        "what rank %d and %d more hold: %s",
        (long long)step, tensor, bad_rank, all[bad].host, good_rank, holders(all, n, good) - 1,
        advice);
}

/* collective over the group that differs in the tensor */
static bt_code report(const bt_replica_check *c, bt_axis axis, size_t tensor, int64_t step,
                      bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    bt_comm *comm = axis == BT_AXIS_DP ? mesh->dp : mesh->replicate;
    const int n = bt_comm_size(comm);
    holder mine = {.hash = tensor_hash(c, tensor)}, *all = calloc((size_t)n, sizeof *all);
    gethostname(mine.host, sizeof mine.host - 1);
    bt_code code = all ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for the ranks' hashes");
    code = bt_agree(comm, code, err);
    if (code == BT_OK) code = bt_all_gather(comm, &mine, sizeof mine, all, err);
    if (code == BT_OK)
        code = name_ranks(c, all, n, axis, bt_model_params(c->update->model)->tensors[tensor].name,
                          step, err);
    free(all);
    return code;
}

static bt_code compare(bt_replica_check *c, int64_t step, bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    const size_t n = bt_model_params(c->update->model)->n;
    fill_pairs(c);
    BT_TRY(bt_all_reduce_i64(mesh->dp, c->pairs[0], 2 * n, BT_MAX, err));
    BT_TRY(bt_all_reduce_i64(mesh->replicate, c->pairs[n], 2 * n, BT_MAX, err));
    for (size_t i = 0; i < 2 * n; i++)
        if (c->pairs[i][0] != -c->pairs[i][1])
            return report(c, i < n ? BT_AXIS_DP : BT_AXIS_REPLICATE, i % n, step, err);
    return BT_OK;
}

bt_code bt_replica_check_run(bt_replica_check *c, int64_t step, bt_err *err) {
    return bt_agree(c->update->mesh->world, compare(c, step, err), err);
}

/* ---- finite ---------------------------------------------------------------------------------- */

bt_code bt_replica_check_finite(const bt_replica_check *c, int64_t step, bt_err *err) {
    const bt_params *p = bt_model_params(c->update->model);
    const bt_mesh *mesh = c->update->mesh;
    const int64_t above = bt_comm_size(mesh->world) - bt_comm_rank(mesh->world);
    int64_t worst = 0; /* of the lowest rank: the number of its tensor in the whole model, from 1 */
    for (size_t i = 0; i < c->n_ranges && !worst; i++) {
        const bt_hashed_range *r = &c->ranges[i];
        bt_grad_digest d = {0};
        bt_grad_digest_add(&d, bt_model_weights(c->update->model) + r->begin, r->end - r->begin);
        if (!bt_grad_digest_finite(&d)) worst = above << 32 | (int64_t)(p->before + r->tensor + 1);
    }
    BT_TRY(bt_all_reduce_i64(mesh->world, &worst, 1, BT_MAX, err));
    if (!worst) return BT_OK;
    return bt_fail(
        err, BT_DAMAGED,
        "a weight of '%s' on rank %" PRId64
        " is not finite after step %lld: a fault of memory or processor, or an update that "
        "was too large (go on from the newest checkpoint)",
        c->update->table.tensors[(worst & 0xffffffff) - 1].name,
        bt_comm_size(mesh->world) - (worst >> 32), (long long)step);
}

/* ---- test hook ------------------------------------------------------------------------------- */

void bt_replica_check_test_flip(const bt_replica_check *c, int64_t step) {
    const char *name = bt_testing_flip(bt_comm_rank(c->update->mesh->world), step);
    uint32_t bits;
    if (!name) return;
    const bt_params *p = bt_model_params(c->update->model);
    for (size_t i = 0; i < c->n_ranges; i++) {
        if (strcmp(p->tensors[c->ranges[i].tensor].name, name) != 0) continue;
        float *w = bt_model_weights(c->update->model) + c->ranges[i].begin;
        memcpy(&bits, w, sizeof bits);
        bits ^= 1;
        memcpy(w, &bits, sizeof bits);
        return;
    }
}
