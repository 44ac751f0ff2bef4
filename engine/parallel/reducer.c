/* reducer.c - bucketed, overlapped all-reduce of the gradient array. */
#include "engine/parallel/reducer.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/parallel/clock_sync.h"

enum { POLL_NS = 50000 };               /* polling more often only steals time from compute (facts: 20 us is no better than 1 ms) */

struct bt_reducer {
    bt_reducer_cfg cfg;
    bt_buckets buckets;
    bt_request *requests;               /* (buckets.n) */
    size_t started, done;               /* buckets 0 .. started-1 are on their way, 0 .. done-1 have arrived */
    int64_t busy_since, busy_ns, polled_at;
    bt_clock_sync clock;
    bt_err failure;                     /* of a callback, kept for finish */
    bool failed;
};

static bool alone(const bt_reducer *r) { return bt_comm_size(r->cfg.dp) == 1; }

bt_code bt_reducer_create(bt_reducer **out, const bt_reducer_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_reducer *r = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot take memory for the gradient exchange");
    r->cfg = *cfg;
    bt_buckets_init(&r->buckets, cfg->n, cfg->bucket_bytes);
    r->requests = calloc(r->buckets.n + 1, sizeof *r->requests);
    bt_code code = r->requests ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory for %zu gradient buckets", r->buckets.n);
    code = bt_agree(cfg->world, code, err);
    if (code == BT_OK) code = bt_clock_sync_measure(&r->clock, cfg->world, err);
    if (code != BT_OK) {
        bt_reducer_destroy(r);
        return code;
    }
    *out = r;
    return BT_OK;
}

void bt_reducer_destroy(bt_reducer *r) {
    if (!r) return;
    free(r->requests);
    free(r);
}

static void start_bucket(bt_reducer *r, int64_t now) {
    bt_range b = bt_bucket_at(&r->buckets, r->started);
    if (r->done == r->started) r->busy_since = now;
    if (bt_all_reduce_f32_start(r->cfg.dp, r->cfg.grads + b.begin, b.end - b.begin, &r->requests[r->started], &r->failure) != BT_OK) {
        r->failed = true;
    }
    r->started++;
}

/* Buckets are taken off in the order they were started: testing the oldest makes progress on all of them. */
static void take_off(bt_reducer *r, bool until_all) {
    while (!r->failed && r->done < r->started) {
        bool done = false;
        if (bt_request_test(&r->requests[r->done], &done, &r->failure) != BT_OK) {
            r->failed = true;
        } else if (done) {
            r->done++;
            if (r->done == r->started) r->busy_ns += bt_now_ns() - r->busy_since;
        } else if (!until_all) {
            return;
        }
    }
}

static void poll(void *ctx) {
    bt_reducer *r = ctx;
    if (r->done == r->started) return;
    int64_t now = bt_now_ns();
    if (now - r->polled_at < POLL_NS) return;
    take_off(r, false);
    r->polled_at = bt_now_ns();
}

void bt_reducer_begin(bt_reducer *r) {
    bt_buckets_reset(&r->buckets);
    r->started = r->done = 0;
    r->busy_ns = 0;
    r->polled_at = 0;
    r->failed = false;
    if (!alone(r) && r->cfg.overlap) bt_threads_on_idle(poll, r);
}

void bt_reducer_ready(void *reducer, size_t begin, size_t end) {
    bt_reducer *r = reducer;
    if (alone(r) || !r->cfg.overlap || r->failed) return;
    bt_buckets_finished(&r->buckets, begin, end);
    for (size_t ready = bt_buckets_ready(&r->buckets); r->started < ready && !r->failed;) start_bucket(r, bt_now_ns());
    poll(r);
}

bt_code bt_reducer_finish(bt_reducer *r, int64_t *notes, size_t n_notes, bt_reduce_times *times, bt_err *err) {
    *times = (bt_reduce_times){0};
    assert(n_notes <= BT_NOTES_MAX);
    if (bt_comm_size(r->cfg.world) == 1) return BT_OK;

    int64_t arrival = bt_now_ns();
    bt_threads_on_idle(NULL, NULL);
    int64_t said[1 + BT_NOTES_MAX] = {bt_clock_sync_common(&r->clock, arrival)};
    for (size_t i = 0; i < n_notes; i++) said[1 + i] = notes[i];
    bt_request arrivals;
    if (!alone(r)) while (r->started < r->buckets.n && !r->failed) start_bucket(r, bt_now_ns());
    BT_TRY(bt_all_reduce_i64_start(r->cfg.world, said, 1 + n_notes, BT_MAX, &arrivals, err));
    take_off(r, true);
    if (r->failed) {
        if (err) *err = r->failure;
        return r->failure.code;
    }
    BT_TRY(bt_request_wait(&arrivals, err));

    int64_t blocked = bt_now_ns() - arrival, skew = said[0] - bt_clock_sync_common(&r->clock, arrival);
    if (skew < 3 * r->clock.error_ns) skew = 0;
    times->wait_ns = skew < 0 ? 0 : skew > blocked ? blocked : skew;
    times->exposed_ns = blocked - times->wait_ns;
    times->busy_ns = r->busy_ns;
    for (size_t i = 0; i < n_notes; i++) notes[i] = said[1 + i];
    return BT_OK;
}
