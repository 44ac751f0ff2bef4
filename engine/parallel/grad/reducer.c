/* reducer.c - starts the exchange of a bucket when its last gradient is written. */
#include "engine/parallel/grad/reducer.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_pages.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/exchange_route.h"
#include "engine/parallel/grad/unit_accumulator.h"
#include "engine/parallel/mpi/clock_sync.h"

/* More frequent polling only takes time from computation: polling every 20 us hides no more time than polling every ms
 * (measured). */
enum { POLL_NS = 50000 };

struct bt_reducer {
    bt_reducer_cfg cfg;
    bool alone; /* the data-parallel group has one rank */
    bt_buckets buckets;
    bt_exchange *exchange;        /* NULL if alone */
    bt_unit_accumulator *partial; /* NULL unless this rank adds several units */
    /* buckets 0 .. started-1 are in flight, 0 .. done-1 are complete */
    size_t started, done;
    int64_t busy_since, busy_ns, polled_at;
    bt_clock_sync clock;
    bt_grad_digest digest; /* digest of the buckets that were sent */
    bt_err failure;        /* error of a callback, returned by finish */
    bool failed;
};

static void poll_reducer(void *ctx);

static bool has_shards(const bt_reducer_cfg *c) { return c->shards && c->shards->n > 1; }

static void cut_buckets(bt_buckets *b, const bt_reducer_cfg *c, int dp_size) {
    bt_buckets_init(b, c->n, has_shards(c) ? c->shards->stripe * sizeof(float) : c->bucket_bytes,
                    dp_size);
    assert(!has_shards(c) || b->elems == c->shards->stripe);
}

/* Plan of the exchange. Without units a rank's gradient is one leaf of the tree. */
static bt_exchange_plan plan_reducer_exchange(const bt_reducer_cfg *c, const bt_mesh_shape *shape,
                                              int rank, const bt_buckets *buckets) {
    bt_payload_form form = c->form;
    if (!form.codec) form.codec = bt_codec_at(BT_CODEC_NONE);
    return (bt_exchange_plan){
        .shape = shape,
        .rank = rank,
        .buckets = buckets,
        .sharded = has_shards(c),
        .form = form,
        .units = c->units > 0 ? c->units : (int64_t)shape->dp_replicate * shape->dp_shard,
        .shares = c->units > 0 ? c->shares : NULL};
}

size_t bt_reducer_staging(const bt_reducer_cfg *c, const bt_mesh_shape *shape, int rank) {
    bt_buckets b;
    int dp_size = shape->dp_replicate * shape->dp_shard;
    if (dp_size == 1) return 0;
    cut_buckets(&b, c, dp_size);
    bt_exchange_plan plan = plan_reducer_exchange(c, shape, rank, &b);
    plan.shares = NULL;
    return bt_exchange_staging(&plan);
}

static bt_code create_exchange(bt_reducer *r, bt_err *err) {
    const bt_reducer_cfg *c = &r->cfg;
    if (c->discard && bt_shards_ragged(c->shards))
        bt_pages_prefer_small(c->grads, c->n * sizeof(float));
    bt_exchange_cfg x = {.plan = plan_reducer_exchange(c, &c->mesh->shape,
                                                       bt_comm_rank(c->mesh->world), &r->buckets),
                         .mesh = c->mesh,
                         .grads = c->grads,
                         .state = c->state,
                         .discard = c->discard};
    return bt_exchange_create(&r->exchange, &x, err);
}

static bt_code build_reducer(bt_reducer *r, bt_err *err) {
    const bt_reducer_cfg *c = &r->cfg;
    int n = bt_comm_size(c->mesh->dp), me = bt_comm_rank(c->mesh->dp);
    r->alone = n == 1;
    cut_buckets(&r->buckets, c, n);
    /* first, because creating the exchange is collective */
    if (!r->alone) BT_TRY(create_exchange(r, err));
    if (c->units > 0) {
        bt_unit_run mine = bt_unit_run_of(c->units, c->shares, n, me);
        const bt_accumulator_cfg units = {c->grads,    c->n,     mine.first, mine.count,
                                          c->rounding, c->lanes, c->n_lanes};
        BT_TRY(bt_accumulator_create(&r->partial, &units, err));
    }
    return BT_OK;
}

bt_code bt_reducer_create(bt_reducer **out, const bt_reducer_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_reducer *r = calloc(1, sizeof *r);
    bt_code code = r ? BT_OK
                     : bt_fail(err, BT_NOMEM, "cannot take memory for the gradient exchange");
    code = bt_agree(cfg->mesh->world, code, err);
    if (code == BT_OK) {
        r->cfg = *cfg;
        code = bt_agree(cfg->mesh->world, build_reducer(r, err), err);
    }
    if (code == BT_OK) code = bt_clock_sync_measure(&r->clock, cfg->mesh->world, err);
    if (code != BT_OK) {
        bt_reducer_destroy(r);
        return code;
    }
    *out = r;
    return BT_OK;
}

void bt_reducer_destroy(bt_reducer *r) {
    if (!r) return;
    bt_threads_off_idle(poll_reducer, r);
    bt_exchange_destroy(r->exchange);
    bt_accumulator_destroy(r->partial);
    free(r);
}

static void keep_failure(bt_reducer *r, bt_code code) {
    if (code != BT_OK) r->failed = true;
}

/* Adds a bucket to the digest before the exchange, while it contains this rank's gradients only. */
static void digest_bucket(bt_reducer *r, bt_range b) {
    if (!r->partial) {
        bt_grad_digest_add(&r->digest, r->cfg.grads + b.begin, b.end - b.begin);
        return;
    }
    const bt_tree_sum nodes = bt_accumulator_nodes(r->partial);
    for (size_t i = 0; i < nodes.n; i++)
        bt_grad_digest_add(&r->digest, nodes.at[i].x + b.begin, b.end - b.begin);
}

/* Adds up this rank's part of the bucket and starts its exchange. */
static void start_bucket(bt_reducer *r) {
    bt_range b = bt_bucket_at(&r->buckets, r->started);
    if (r->partial) bt_accumulator_range(r->partial, b);
    if (r->alone) {
        bt_tree_sum nodes = bt_accumulator_nodes(r->partial);
        for (size_t i = 0; i < nodes.n; i++) nodes.at[i].x += b.begin;
        (void)bt_tree_sum_root(&nodes, r->cfg.grads + b.begin, b.end - b.begin, bt_op_add);
        r->done++;
    } else {
        digest_bucket(r, b);
        if (r->done == r->started) r->busy_since = bt_now_ns();
        keep_failure(r, bt_exchange_start(r->exchange, r->started, &r->failure));
    }
    r->started++;
}

static void progress_exchange(bt_reducer *r) {
    if (r->failed || r->done == r->started) return;
    keep_failure(r, bt_exchange_progress(r->exchange, &r->done, &r->failure));
    if (r->done == r->started) r->busy_ns += bt_now_ns() - r->busy_since;
}

static void poll_reducer(void *ctx) {
    bt_reducer *r = ctx;
    if (r->done == r->started || bt_now_ns() - r->polled_at < POLL_NS) return;
    progress_exchange(r);
    r->polled_at = bt_now_ns();
}

static bool has_nothing_to_reduce(const bt_reducer *r) { return r->alone && !r->partial; }

void bt_reducer_begin(bt_reducer *r) {
    if (r->partial) bt_accumulator_begin(r->partial);
}

float *bt_reducer_unit(bt_reducer *r, int lane) {
    return r->partial ? bt_accumulator_unit(r->partial, lane) : r->cfg.grads;
}

void bt_reducer_unit_done(bt_reducer *r, int lane) { bt_accumulator_unit_done(r->partial, lane); }

void bt_reducer_last(bt_reducer *r) {
    bt_buckets_reset(&r->buckets);
    r->started = r->done = 0;
    r->busy_ns = 0;
    r->polled_at = 0;
    r->failed = false;
    r->digest = (bt_grad_digest){0};
    if (r->alone) return;
    bt_tree_sum one = {.at = {{bt_comm_rank(r->cfg.mesh->dp), 0, r->cfg.grads}}, .n = 1};
    bt_tree_sum nodes = r->partial ? bt_accumulator_nodes(r->partial) : one;
    bt_exchange_reset(r->exchange);
    bt_exchange_nodes(r->exchange, &nodes);
    if (r->cfg.overlap) bt_threads_on_idle(poll_reducer, r);
}

void bt_reducer_ready(void *reducer, size_t begin, size_t end) {
    bt_reducer *r = reducer;
    if (has_nothing_to_reduce(r) || !r->cfg.overlap || r->failed) return;
    bt_buckets_finished(&r->buckets, begin, end);
    for (size_t ready = bt_buckets_ready(&r->buckets); r->started < ready && !r->failed;)
        start_bucket(r);
    poll_reducer(r);
}

bool bt_reducer_shares_memory(const bt_reducer *r) {
    return r->exchange && bt_exchange_shares_memory(r->exchange);
}

bt_grad_digest bt_reducer_digest(const bt_reducer *r) {
    bt_grad_digest d = r->digest;
    if (r->alone) bt_grad_digest_add(&d, r->cfg.grads, r->cfg.n);
    return d;
}

bt_reduce_times bt_reduce_split(int64_t blocked_ns, int64_t skew_ns, int64_t error_ns) {
    int64_t wait = skew_ns < 3 * error_ns || skew_ns < 0 ? 0 : skew_ns;
    if (wait > blocked_ns) wait = blocked_ns;
    return (bt_reduce_times){.wait_ns = wait, .exposed_ns = blocked_ns - wait};
}

/* A bucket is added up and digested just before it is sent, while it is in a cache. */
static void finish_exchanges(bt_reducer *r) {
    while ((r->started < r->buckets.n || r->done < r->started) && !r->failed) {
        if (r->started < r->buckets.n && bt_exchange_has_room(r->exchange))
            start_bucket(r);
        else
            bt_exchange_rest(r->exchange);
        progress_exchange(r);
    }
}

bt_code bt_reducer_finish(bt_reducer *r, int64_t *notes, size_t n_notes, bt_reduce_times *times,
                          bt_err *err) {
    *times = (bt_reduce_times){0};
    assert(n_notes <= BT_NOTES_MAX);
    int64_t arrival = bt_now_ns();
    const int64_t hidden_ns = r->busy_ns + (r->done < r->started ? arrival - r->busy_since : 0);
    bt_threads_off_idle(poll_reducer, r);
    if (r->alone && !has_nothing_to_reduce(r))
        while (r->started < r->buckets.n) start_bucket(r);
    if (bt_comm_size(r->cfg.mesh->world) == 1) return BT_OK;

    int64_t said[1 + BT_NOTES_MAX] = {bt_clock_sync_common(&r->clock, arrival)};
    for (size_t i = 0; i < n_notes; i++) said[1 + i] = notes[i];
    bt_request arrivals;
    BT_TRY(bt_all_reduce_i64_start(r->cfg.mesh->world, said, 1 + n_notes, BT_MAX, &arrivals, err));
    if (!r->alone) finish_exchanges(r);
    if (r->failed) {
        if (err) *err = r->failure;
        return r->failure.code;
    }
    BT_TRY(bt_request_wait(&arrivals, err));

    int64_t blocked = bt_now_ns() - arrival,
            skew = said[0] - bt_clock_sync_common(&r->clock, arrival);
    *times = bt_reduce_split(blocked, skew, r->clock.error_ns);
    times->busy_ns = hidden_ns + times->exposed_ns;
    bt_traffic cost = {.calls = r->alone ? 0 : (int64_t)r->buckets.n,
                       .busy_ns = times->busy_ns,
                       .exposed_ns = times->exposed_ns,
                       .wait_ns = times->wait_ns};
    /* with one rank there are no gradients to exchange, only the arrival times */
    if (r->alone)
        bt_traffic_add(BT_COLL_ALL_REDUCE, BT_AXIS_WORLD, &cost);
    else
        bt_traffic_add(bt_exchange_kind(r->exchange), BT_AXIS_DP, &cost);
    for (size_t i = 0; i < n_notes; i++) notes[i] = said[1 + i];
    return BT_OK;
}
