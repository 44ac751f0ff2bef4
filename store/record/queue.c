/* queue.c - the bounded queue between the thread that trains and the thread that writes. */
#include <stdlib.h>
#include <time.h>

#include "engine/base/os/wake_fd.h"
#include "store/record/record.h"
#include "store/record/ring.h"

bool bt_queue_init(bt_queue *q, size_t max_bytes) {
    pthread_condattr_t attr;
    *q = (bt_queue){.max_bytes = max_bytes, .wake_fd = -1};
    if (pthread_mutex_init(&q->mu, NULL) != 0 || pthread_condattr_init(&attr) != 0) return false;
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    bool ok = pthread_cond_init(&q->work, &attr) == 0 && pthread_cond_init(&q->drained, &attr) == 0;
    pthread_condattr_destroy(&attr);
    return ok;
}

void bt_queue_release(bt_queue *q) {
    bt_records_free(q->head);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->drained);
    pthread_mutex_destroy(&q->mu);
    *q = (bt_queue){.wake_fd = -1};
}

// cppcheck-suppress nullPointerRedundantCheck ; callers have a record
static size_t queued_bytes(const bt_record *r) { return sizeof *r + r->head.bytes; }

/* Drops the rank values of a record, but keeps its step values. Returns the number of dropped rows. */
static uint64_t drop_rank_values(bt_record **at) {
    uint64_t lost = bt_record_drop_ranks(*at);
    bt_record *smaller = lost ? realloc(*at, queued_bytes(*at)) : NULL;
    if (smaller) *at = smaller;
    return lost;
}

static void drop_oldest_samples(bt_queue *q) {
    size_t target = q->max_bytes - q->max_bytes / 8;
    bt_record *last = NULL;
    for (bt_record **at = &q->head; *at;) {
        bt_record *r = *at;
        size_t before = queued_bytes(r);
        if (q->bytes > target && r->head.kind == BT_REC_ROWS) {
            q->dropped += r->head.rows;
            q->bytes -= before;
            *at = r->next;
            free(r);
            continue;
        }
        if (q->bytes > target && r->head.kind == BT_REC_STEP) {
            q->dropped += drop_rank_values(at);
            q->bytes -= before - queued_bytes(*at);
        }
        last = *at;
        at = &(*at)->next;
    }
    q->tail = last;
}

static void wake_writer(bt_queue *q) {
    if (q->wake_fd >= 0) {
        (void)bt_wake_fd_notify(q->wake_fd);
    } else
        pthread_cond_signal(&q->work);
}

void bt_queue_push(bt_queue *q, bt_record *r) {
    pthread_mutex_lock(&q->mu);
    bt_ring_append(q->ring, r);
    if (!r)
        q->dropped++;
    else if (q->closed)
        free(r);
    else {
        if (q->tail)
            q->tail->next = r;
        else
            q->head = r;
        q->tail = r;
        q->bytes += queued_bytes(r);
        if (q->bytes > q->max_bytes) drop_oldest_samples(q);
    }
    if (q->sleeping) wake_writer(q);
    pthread_mutex_unlock(&q->mu);
}

bt_record *bt_queue_take(bt_queue *q, size_t max_bytes) {
    pthread_mutex_lock(&q->mu);
    bt_record *list = q->head, *last = NULL;
    size_t taken = 0, n = 0;
    for (bt_record *r = list; r && (taken < max_bytes || !last); r = r->next) {
        taken += queued_bytes(r);
        last = r;
        n++;
    }
    if (last) {
        q->head = last->next;
        last->next = NULL;
        if (!q->head) q->tail = NULL;
        q->bytes -= taken;
        q->in_flight = n;
    }
    pthread_mutex_unlock(&q->mu);
    return list;
}

void bt_queue_done(bt_queue *q) {
    pthread_mutex_lock(&q->mu);
    q->in_flight = 0;
    if (!q->head) pthread_cond_broadcast(&q->drained);
    pthread_mutex_unlock(&q->mu);
}

void bt_queue_requeue(bt_queue *q, bt_record *list) {
    pthread_mutex_lock(&q->mu);
    bt_record *last = list;
    for (bt_record *r = list; r; r = r->next) {
        q->bytes += queued_bytes(r);
        last = r;
    }
    if (last) {
        last->next = q->head;
        q->head = list;
        if (!q->tail) q->tail = last;
    }
    q->in_flight = 0;
    if (q->bytes > q->max_bytes) drop_oldest_samples(q);
    pthread_mutex_unlock(&q->mu);
}

void bt_queue_set(bt_queue *q, bool *flag, bool value) {
    pthread_mutex_lock(&q->mu);
    *flag = value;
    wake_writer(q);
    pthread_mutex_unlock(&q->mu);
}

bool bt_queue_wait_drained(bt_queue *q, int64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += until.tv_nsec;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    pthread_mutex_lock(&q->mu);
    int rc = 0;
    while ((q->head || q->in_flight) && rc == 0)
        rc = pthread_cond_timedwait(&q->drained, &q->mu, &until);
    bool empty = !q->head && !q->in_flight;
    pthread_mutex_unlock(&q->mu);
    return empty;
}

void bt_queue_close(bt_queue *q) {
    pthread_mutex_lock(&q->mu);
    q->closed = true;
    q->sleeping = false;
    bt_records_free(q->head);
    q->head = q->tail = NULL;
    q->bytes = 0;
    pthread_mutex_unlock(&q->mu);
}

uint64_t bt_queue_dropped(bt_queue *q) {
    pthread_mutex_lock(&q->mu);
    uint64_t n = q->dropped;
    pthread_mutex_unlock(&q->mu);
    return n;
}

static void queue_ranks(void *ctx, const bt_rank_info *ranks, size_t n) {
    bt_queue_push(ctx, bt_record_ranks(ranks, n));
}
static void queue_fact(void *ctx, const char *key, const char *value) {
    bt_queue_push(ctx, bt_record_fact(key, value));
}
static void queue_step(void *ctx, const bt_step_record *r) {
    bt_queue_push(ctx, bt_record_step(r));
}
static void queue_rows(void *ctx, const bt_row_record *r) { bt_queue_push(ctx, bt_record_rows(r)); }
static void queue_event(void *ctx, const bt_event *e) { bt_queue_push(ctx, bt_record_event(e)); }
static void queue_ckpt(void *ctx, const bt_ckpt_record *c) {
    bt_queue_push(ctx, bt_record_ckpt(c));
}

static void queue_run_result(void *ctx, const char *json) {
    bt_queue_push(ctx, bt_record_result(json));
}

void bt_queue_sink(bt_queue *q, bt_sink *out) {
    *out = (bt_sink){.ctx = q,
                     .ranks = queue_ranks,
                     .fact = queue_fact,
                     .step = queue_step,
                     .rows = queue_rows,
                     .event = queue_event,
                     .checkpoint = queue_ckpt,
                     .result = queue_run_result};
}
