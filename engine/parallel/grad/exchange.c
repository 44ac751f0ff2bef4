/* exchange.c - every part of a bucket goes straight to its owner, who adds in a fixed order.
 *
 *     bucket of n parts, rank d owns part o(d)
 *     send      my nodes of part o(e)  -> every other rank e                 at most SLOTS buckets at a time, each with
 *     receive   its nodes of part o(d) <- every other rank e                 staging memory for what comes in
 *     add       all ranks' nodes of part o(d), in the order of tree_sum.h
 *     gather    parts between the ranks that must hold them too: all (plain), the other replicas (sharded)
 *
 * Parts of a sharded bucket: dp_replicate parts make one shard's piece, so part (s, r) is owned by
 * replica r of shard s. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { SLOTS = BT_STRIPES_IN_FLIGHT, TAG_SUM = 1000, TAG_GATHER = 16000, TAGS = 12000 };

typedef enum { SLOT_FREE, SLOT_EXCHANGE, SLOT_GATHER } slot_state;

/* rank of the world; 0 bytes: one that leaves */
typedef struct message {
    int from;
    size_t bytes;
} message;

typedef struct slot {
    slot_state state;
    size_t bucket;
    float *staging; /* (foreign nodes, part) */
    MPI_Request *requests;
    message *messages; /* what each request brings */
    int n_requests, n_left;
    int64_t asked_ns;
} slot;

struct bt_exchange {
    bt_exchange_cfg cfg;
    bt_comm *gather;
    int n, me;           /* data-parallel ranks */
    size_t part;         /* elements */
    bt_tree_sum *shapes; /* (n) nodes of every rank */
    bt_tree_sum mine;    /* with arrays */
    bt_arena arena;
    slot slots[SLOTS];
    int *arrived;               /* requests that came in this poll */
    size_t asked, posted, done; /* buckets: started by the caller, on their way, arrived */
};

/* ---- who owns what --------------------------------------------------------------------------- */

static size_t part_of_rank(const bt_exchange *x, int d) {
    int S = x->cfg.sharded ? x->cfg.mesh->shape.dp_shard : 1, R = x->n / S;
    return (size_t)(d % S) * (size_t)R + (size_t)(d / S);
}

static bt_range part_range(const bt_exchange *x, size_t bucket, size_t part) {
    bt_range b = bt_bucket_at(x->cfg.buckets, bucket);
    size_t begin = b.begin + part * x->part, end = begin + x->part;
    return (bt_range){begin < b.end ? begin : b.end, end < b.end ? end : b.end};
}

static bt_range own_range(const bt_exchange *x, size_t bucket) {
    return part_range(x, bucket, part_of_rank(x, x->me));
}

/* both halves of the exchange are one row of traffic.h; its calls and times are the reducer's to
 * say */
static void count_sent(const bt_exchange *x, uint64_t bytes) {
    bt_comm_count(bytes, bytes);
    bt_traffic_add(
        bt_exchange_kind(x), x->cfg.mesh->dp->axis,
        &(bt_traffic){.rounds = 1, .bytes_logical = (int64_t)bytes, .bytes_wire = (int64_t)bytes});
}

static MPI_Request *next_request(slot *s, int from, size_t bytes) {
    s->messages[s->n_requests] = (message){from, bytes};
    return &s->requests[s->n_requests++];
}

static void begin_round(slot *s, slot_state state) {
    s->state = state;
    s->n_requests = 0;
    s->asked_ns = bt_now_ns();
}

/* ---- one bucket ------------------------------------------------------------------------------ */

static bt_code post(bt_exchange *x, slot *s, size_t bucket, bt_err *err) {
    MPI_Comm mpi = x->cfg.mesh->dp->mpi;
    bt_range own = own_range(x, bucket);
    size_t own_n = own.end - own.begin;
    float *in = s->staging;
    int tag = TAG_SUM + (int)(bucket % TAGS);
    uint64_t sent = 0;
    s->bucket = bucket;
    begin_round(s, SLOT_EXCHANGE);
    /* each rank begins with another peer: no crowd at rank 0 */
    for (int k = 1; k < x->n; k++) {
        int d = (x->me + k) % x->n, from = bt_mesh_peer(x->cfg.mesh, BT_AXIS_DP, d);
        for (size_t i = 0; i < x->shapes[d].n && own_n > 0; i++, in += own_n) {
            MPI_Request *request = next_request(s, from, own_n * sizeof(float));
            BT_TRY(bt_mpi_check(MPI_Irecv(in, (int)own_n, MPI_FLOAT, d, tag, mpi, request),
                                "gradient exchange", err));
        }
    }
    for (int k = 1; k < x->n; k++) {
        int d = (x->me - k + x->n) % x->n;
        bt_range theirs = part_range(x, bucket, part_of_rank(x, d));
        size_t m = theirs.end - theirs.begin;
        for (size_t i = 0; i < x->mine.n && m > 0; i++) {
            BT_TRY(bt_mpi_check(MPI_Isend(x->mine.at[i].x + theirs.begin, (int)m, MPI_FLOAT, d, tag,
                                          mpi, next_request(s, d, 0)),
                                "gradient exchange", err));
            sent += m * sizeof(float);
        }
    }
    count_sent(x, sent);
    s->n_left = s->n_requests;
    return BT_OK;
}

/* All ranks' nodes of my part into the gradient array. The arrays arrive in the order of the peers
 * of `post`. */
static void add_up(bt_exchange *x, slot *s) {
    bt_range own = own_range(x, s->bucket);
    size_t n = own.end - own.begin;
    float *keep = x->cfg.grads + own.begin;
    bt_tree_sum f = {.n = 0};
    for (int d = 0; d < x->n; d++) {
        /* nodes that arrived from peers posted before d */
        size_t before = 0;
        for (int k = 1; (x->me + k) % x->n != d && d != x->me; k++)
            before += x->shapes[(x->me + k) % x->n].n;
        for (size_t i = 0; i < x->shapes[d].n; i++) {
            bt_node node = x->shapes[d].at[i];
            node.x = d == x->me ? x->mine.at[i].x + own.begin : s->staging + (before + i) * n;
            bt_tree_sum_push(&f, node, keep, n, bt_k()->add);
        }
    }
    float *root = bt_tree_sum_root(&f, keep, n, bt_k()->add);
    if (root != keep) memcpy(keep, root, n * sizeof(float));
}

static bt_code gather_parts(bt_exchange *x, slot *s, bt_err *err) {
    int m = bt_comm_size(x->gather), me = bt_comm_rank(x->gather),
        tag = TAG_GATHER + (int)(s->bucket % TAGS);
    size_t first = x->cfg.sharded ? part_of_rank(x, x->me) / (size_t)m * (size_t)m : 0;
    bt_range own = part_range(x, s->bucket, first + (size_t)me);
    bt_axis axis = x->cfg.sharded ? BT_AXIS_REPLICATE : BT_AXIS_DP;
    begin_round(s, SLOT_GATHER);
    for (int k = 1; k < m; k++) {
        int from = (me + k) % m;
        bt_range p = part_range(x, s->bucket, first + (size_t)from);
        if (p.begin == p.end) continue;
        MPI_Request *request = next_request(s, bt_mesh_peer(x->cfg.mesh, axis, from),
                                            (p.end - p.begin) * sizeof(float));
        BT_TRY(bt_mpi_check(MPI_Irecv(x->cfg.grads + p.begin, (int)(p.end - p.begin), MPI_FLOAT,
                                      from, tag, x->gather->mpi, request),
                            "gathering of sums", err));
    }
    for (int k = 1; k < m && own.begin < own.end; k++) {
        int to = (me - k + m) % m;
        BT_TRY(bt_mpi_check(MPI_Isend(x->cfg.grads + own.begin, (int)(own.end - own.begin),
                                      MPI_FLOAT, to, tag, x->gather->mpi, next_request(s, to, 0)),
                            "gathering of sums", err));
    }
    uint64_t sent = (uint64_t)(own.end - own.begin) * sizeof(float) * (uint64_t)(m - 1);
    count_sent(x, sent);
    s->n_left = s->n_requests;
    return BT_OK;
}

/* zeros, by giving whole pages back to the system and clearing what is left of them at both ends */
static void drop(float *from, float *to) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), lo = (uintptr_t)from, hi = (uintptr_t)to;
    uintptr_t a = (lo + page - 1) / page * page, b = hi / page * page;
    if (a >= b || madvise((void *)a, b - a, MADV_DONTNEED) != 0) {
        memset(from, 0, hi - lo);
        return;
    }
    memset(from, 0, a - lo);
    memset((void *)b, 0, hi - b);
}

static void discard_others(bt_exchange *x, size_t bucket) {
    bt_range b = bt_bucket_at(x->cfg.buckets, bucket);
    int R = x->n / x->cfg.mesh->shape.dp_shard;
    size_t first = part_of_rank(x, x->me) / (size_t)R * (size_t)R;
    bt_range left = part_range(x, bucket, first),
             right = part_range(x, bucket, first + (size_t)R - 1);
    drop(x->cfg.grads + b.begin, x->cfg.grads + left.begin);
    drop(x->cfg.grads + right.end, x->cfg.grads + b.end);
}

/* what has come since the last look, and how long it took */
static bt_code take_arrivals(bt_exchange *x, slot *s, bt_err *err) {
    int n = 0;
    BT_TRY(
        bt_mpi_check(MPI_Testsome(s->n_requests, s->requests, &n, x->arrived, MPI_STATUSES_IGNORE),
                     "gradient exchange", err));
    /* MPI_UNDEFINED is below 0: none was active */
    if (n <= 0) return BT_OK;
    int64_t took = bt_now_ns() - s->asked_ns;
    for (int i = 0; i < n; i++) {
        const message *m = &s->messages[x->arrived[i]];
        if (m->bytes > 0)
            bt_pair_add(m->from, &(bt_pair){.messages = 1,
                                            .bytes = (int64_t)m->bytes,
                                            .timed = 1,
                                            .flight_ns = took});
    }
    s->n_left -= n;
    return BT_OK;
}

static bt_code advance(bt_exchange *x, slot *s, bt_err *err) {
    if (s->n_left > 0) BT_TRY(take_arrivals(x, s, err));
    if (s->n_left > 0) return BT_OK;
    if (s->state == SLOT_EXCHANGE) {
        add_up(x, s);
        if (bt_comm_size(x->gather) > 1) return gather_parts(x, s, err);
    }
    if (x->cfg.discard) discard_others(x, s->bucket);
    s->state = SLOT_FREE;
    return BT_OK;
}

/* ---- the interface --------------------------------------------------------------------------- */

static bt_code post_what_fits(bt_exchange *x, bt_err *err) {
    while (x->posted < x->asked && x->slots[x->posted % SLOTS].state == SLOT_FREE &&
           x->posted < x->done + SLOTS) {
        BT_TRY(post(x, &x->slots[x->posted % SLOTS], x->posted, err));
        x->posted++;
    }
    return BT_OK;
}

bt_code bt_exchange_progress(bt_exchange *x, size_t *done, bt_err *err) {
    for (size_t b = x->done; b < x->posted; b++) {
        slot *s = &x->slots[b % SLOTS];
        if (s->state != SLOT_FREE) BT_TRY(advance(x, s, err));
    }
    while (x->done < x->posted && x->slots[x->done % SLOTS].state == SLOT_FREE) x->done++;
    *done = x->done;
    return post_what_fits(x, err);
}

bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *err) {
    x->asked = bucket + 1;
    return post_what_fits(x, err);
}

bt_coll bt_exchange_kind(const bt_exchange *x) {
    return x->cfg.sharded ? BT_COLL_REDUCE_SCATTER : BT_COLL_ALL_REDUCE;
}

void bt_exchange_reset(bt_exchange *x) { x->asked = x->posted = x->done = 0; }

void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes) {
    assert(nodes->n == x->shapes[x->me].n);
    x->mine = *nodes;
}

void bt_exchange_destroy(bt_exchange *x) {
    if (!x) return;
    for (int i = 0; i < SLOTS; i++) {
        free(x->slots[i].requests);
        free(x->slots[i].messages);
    }
    free(x->arrived);
    bt_arena_release(&x->arena);
    free(x->shapes);
    free(x);
}

bt_unit_run bt_unit_run_of(int64_t units, const int64_t *shares, int n, int d) {
    bt_unit_run r = {units * d / n, units * (d + 1) / n - units * d / n};
    if (!shares) return r;
    r = (bt_unit_run){0, shares[d]};
    for (int i = 0; i < d; i++) r.first += shares[i];
    return r;
}

static bt_tree_sum shape_of(int64_t units, const int64_t *shares, int n, int d) {
    bt_unit_run r = bt_unit_run_of(units, shares, n, d);
    return bt_tree_sum_shape(r.first, r.count);
}

static size_t foreign_nodes(int64_t units, const int64_t *shares, int n, int me) {
    size_t nodes = 0;
    for (int d = 0; d < n; d++)
        if (d != me) nodes += shape_of(units, shares, n, d).n;
    return nodes;
}

size_t bt_exchange_staging(const bt_buckets *b, int dp_size, int dp_rank, int64_t units) {
    return SLOTS * foreign_nodes(units, NULL, dp_size, dp_rank) * (b->elems / (size_t)dp_size) *
           sizeof(float);
}

static bt_code take_memory(bt_exchange *x, bt_err *err) {
    size_t foreign = foreign_nodes(x->cfg.units, x->cfg.shares, x->n, x->me), offsets[SLOTS];
    /* of sums; of the gather two for each other rank */
    size_t requests = foreign + (size_t)x->n * (x->shapes[x->me].n + 1);
    if (requests < 2 * (size_t)x->n) requests = 2 * (size_t)x->n;
    x->arrived = calloc(requests, sizeof *x->arrived);
    if (!x->arrived)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", x->n);
    bt_arena_plan(&x->arena, "gradient staging");
    for (int i = 0; i < SLOTS; i++)
        offsets[i] = bt_arena_reserve(&x->arena, foreign * x->part, sizeof(float));
    BT_TRY(bt_arena_commit(&x->arena, err));
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &x->slots[i];
        s->staging = bt_arena_at(&x->arena, offsets[i]);
        s->requests = calloc(requests, sizeof *s->requests);
        s->messages = calloc(requests, sizeof *s->messages);
        if (!s->requests || !s->messages)
            return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", x->n);
    }
    return BT_OK;
}

bt_code bt_exchange_create(bt_exchange **out, const bt_exchange_cfg *cfg, bt_err *err) {
    bt_exchange *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x) return bt_fail(err, BT_NOMEM, "cannot take memory for the gradient exchange");
    x->cfg = *cfg;
    x->n = bt_comm_size(cfg->mesh->dp);
    x->me = bt_comm_rank(cfg->mesh->dp);
    x->gather = cfg->sharded ? cfg->mesh->replicate : cfg->mesh->dp;
    x->part = cfg->buckets->elems / (size_t)x->n;
    assert(x->part * (size_t)x->n == cfg->buckets->elems);
    x->shapes = calloc((size_t)x->n, sizeof *x->shapes);
    bt_code code = x->shapes ? BT_OK
                             : bt_fail(err, BT_NOMEM,
                                       "cannot take memory for the exchange of %d ranks", x->n);
    if (code == BT_OK) {
        for (int d = 0; d < x->n; d++) x->shapes[d] = shape_of(cfg->units, cfg->shares, x->n, d);
        code = take_memory(x, err);
    }
    if (code != BT_OK) {
        bt_exchange_destroy(x);
        return code;
    }
    *out = x;
    return BT_OK;
}
