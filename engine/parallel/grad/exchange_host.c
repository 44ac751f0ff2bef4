/* exchange_host.c - the rounds inside a host: ranks of a host group exchange through shared memory.
 *
 *     | marks of rank 0: a line per slot | rank 1: ... || boxes of rank 0: slot 0 | slot 1 ... || rank 1: ...
 *
 * The boxes of a rank are its receive buffers (receive_buffer_at of exchange_rounds.c): senders write their nodes
 * directly into them. When a relay has added an owner's boxes, the first of them holds the sum, and the other ranks
 * copy it from there.
 *
 * The marks synchronize access. A mark is the number of the last item (exchange_internal.h) plus one for which a
 * rank has, in this slot,
 *     sent     written its nodes into the boxes of other ranks
 *     back     written its sums into its own boxes, after it has read their content
 *     taken    read all sums: other ranks may write into its boxes, and it may reuse its own
 *
 * A rank that waits for long sleeps on a futex of the mark, so that a late rank gets the core it needs. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_wait.h"
#include "engine/base/small.h"
#include "engine/parallel/grad/exchange_internal.h"

enum { NAP_NS = 1000000 };

typedef struct mark { /* state of one rank and slot, on a cache line of its own */
    _Atomic uint32_t sent, back, taken;
    _Atomic uint32_t sleepers; /* number of ranks asleep on a mark */
    char rest[BT_ALIGN - 4 * sizeof(uint32_t)];
} mark;

static int group_size(const bt_route *r) { return r->first[r->mine + 1] - r->first[r->mine]; }
static int group_first(const bt_route *r) { return r->first[r->mine]; }

/* Returns the k-th other rank of the host group, counted from this rank. */
static int other_rank(const bt_route *r, int k) {
    return group_first(r) + (r->me - group_first(r) + k) % group_size(r);
}

static mark *rank_mark(const bt_exchange *x, int rank, uint64_t item) {
    const size_t at = (size_t)(rank - group_first(&x->route)) * x->n_slots + item % x->n_slots;
    return (mark *)(void *)x->host.memory.at + at;
}

static bool has_reached(const _Atomic uint32_t *at, uint64_t item) {
    return (int32_t)(atomic_load_explicit(at, memory_order_acquire) - (uint32_t)(item + 1)) >= 0;
}

/* A sleeper counts itself before the kernel compares the mark, so it is either counted here, or reads the new mark. */
static void set_mark(mark *m, _Atomic uint32_t *at, uint64_t item) {
    atomic_store(at, (uint32_t)(item + 1));
    if (atomic_load(&m->sleepers)) bt_memory_wake(at, BT_WAIT_SHARED);
}

static void sleep_on(mark *m, _Atomic uint32_t *at, uint64_t item) {
    atomic_fetch_add(&m->sleepers, 1);
    const uint32_t seen = atomic_load(at);
    if ((int32_t)(seen - (uint32_t)(item + 1)) < 0)
        bt_memory_wait(at, seen, NAP_NS, BT_WAIT_SHARED);
    atomic_fetch_sub(&m->sleepers, 1);
}

/* Number of nodes of the other ranks of a rank's host group that it receives for each owner that it relays; at least
 * one, for the sum. */
static size_t received_nodes(const bt_exchange_host *h, const bt_route *r, int rank) {
    return bt_max_size(h->before[group_size(r)] - r->nodes[rank].n, 1);
}

static size_t slot_elems(const bt_exchange *x, int rank) {
    const bt_exchange_host *h = &x->host;
    return h->relayed[rank - group_first(&x->route)] * received_nodes(h, &x->route, rank) *
           x->piece;
}

static float *receive_boxes(const bt_exchange *x, int relay, size_t slot, int owner) {
    const bt_exchange_host *h = &x->host;
    const size_t places = received_nodes(h, &x->route, relay);
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): the exchange has receive_boxes
    return (float *)(void *)(h->memory.at + h->region[relay - group_first(&x->route)]) +
           slot * slot_elems(x, relay) + h->number[owner] * places * x->piece;
}

/* Returns the relay's buffer for node i of this rank. */
static float *box_of_mine(const bt_exchange *x, const bt_exchange_slot *s, int relay, int owner,
                          size_t i) {
    const bt_route *r = &x->route;
    size_t before = x->host.before[r->me - group_first(r)];
    if (relay < r->me) before -= r->nodes[relay].n;
    return receive_boxes(x, relay, s->item % x->n_slots, owner) + (before + i) * x->piece;
}

float *bt_exchange_host_inside(const bt_exchange *x, size_t slot) {
    const bt_route *r = &x->route;
    for (int o = 0; o < r->n; o++)
        if (r->relayed[o] == 0) return receive_boxes(x, r->me, slot, o);
    return NULL;
}

static void copy_shared(bt_exchange *x, float *to, const float *from, size_t n) {
    memcpy(to, from, n * sizeof *to);
    x->moved = true;
}

static void count_arrived(const bt_exchange *x, const bt_exchange_slot *s, int from,
                          int64_t messages, size_t elems) {
    if (messages == 0) return;
    bt_pair_add(bt_mesh_peer(x->cfg.mesh, BT_AXIS_DP, from),
                &(bt_pair){.messages = messages,
                           .bytes = (int64_t)(elems * sizeof(float)),
                           .timed = messages,
                           .flight_ns = messages * (bt_now_ns() - s->asked_ns)});
}

static void count_host_bytes(bt_exchange_slot *s, size_t elems) {
    s->logical += elems * sizeof(float);
    s->wire += elems * sizeof(float);
}

static bt_code send_nodes(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    (void)err;
    for (int k = 1; k < group_size(r); k++) {
        const int to = other_rank(r, group_size(r) - k);
        for (int o = 0; o < r->n; o++) {
            if (bt_route_relay(r, r->mine, o) != to) continue;
            const bt_range p = bt_exchange_owned_by(x, s, o);
            const size_t n = p.end - p.begin;
            for (size_t i = 0; i < x->mine.n && n > 0; i++)
                copy_shared(x, box_of_mine(x, s, to, o, i), x->mine.at[i].x + p.begin, n);
            count_host_bytes(s, x->mine.n * n);
        }
    }
    mark *m = rank_mark(x, r->me, s->item);
    set_mark(m, &m->sent, s->item);
    return BT_OK;
}

static bool all_nodes_came(bt_exchange *x, bt_exchange_slot *s) {
    const bt_route *r = &x->route;
    for (int k = 1; k < group_size(r); k++)
        if (!has_reached(&rank_mark(x, other_rank(r, k), s->item)->sent, s->item)) return false;
    for (int k = 1; k < group_size(r); k++) {
        const int from = other_rank(r, k);
        size_t elems = 0;
        int64_t messages = 0;
        for (int o = 0; o < r->n; o++) {
            const bt_range p = bt_exchange_owned_by(x, s, o);
            if (r->relayed[o] < 0 || p.begin == p.end) continue;
            elems += r->nodes[from].n * (p.end - p.begin);
            messages += (int64_t)r->nodes[from].n;
        }
        count_arrived(x, s, from, messages, elems);
    }
    return true;
}

static bt_code send_sums_back(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    (void)err;
    for (int o = 0; o < r->n; o++) {
        const bt_range p = bt_exchange_owned_by(x, s, o);
        const size_t n = p.end - p.begin;
        size_t readers = 0;
        for (int k = 1; k < group_size(r) && r->relayed[o] >= 0; k++)
            readers += bt_route_needs(r, other_rank(r, k), o);
        if (readers == 0 || n == 0) continue;
        copy_shared(x, receive_boxes(x, r->me, s->item % x->n_slots, o), x->cfg.grads + p.begin, n);
        count_host_bytes(s, readers * n);
    }
    mark *m = rank_mark(x, r->me, s->item);
    set_mark(m, &m->back, s->item);
    s->turn = 1;
    return BT_OK;
}

static void receive_sums(bt_exchange *x, bt_exchange_slot *s, int from) {
    const bt_route *r = &x->route;
    size_t elems = 0;
    int64_t messages = 0;
    for (int o = 0; o < r->n; o++) {
        const bt_range p = bt_exchange_owned_by(x, s, o);
        const size_t n = p.end - p.begin;
        if (n == 0 || bt_route_relay(r, r->mine, o) != from || !bt_route_needs(r, r->me, o))
            continue;
        copy_shared(x, x->cfg.grads + p.begin, receive_boxes(x, from, s->item % x->n_slots, o), n);
        elems += n;
        messages++;
    }
    count_arrived(x, s, from, messages, elems);
}

static bool all_sums_came(bt_exchange *x, bt_exchange_slot *s) {
    const bt_route *r = &x->route;
    for (; s->turn < group_size(r); s->turn++) {
        const int from = other_rank(r, s->turn);
        if (!has_reached(&rank_mark(x, from, s->item)->back, s->item)) return false;
        receive_sums(x, s, from);
    }
    mark *m = rank_mark(x, r->me, s->item);
    set_mark(m, &m->taken, s->item);
    return true;
}

const bt_round_ops bt_host_rounds[BT_ROUND_COUNT] = {
    [BT_ROUND_SUM_INSIDE] = {send_nodes, NULL, all_nodes_came},
    [BT_ROUND_BACK_INSIDE] = {send_sums_back, bt_exchange_discard_others, all_sums_came},
};

/* Returns a rank that still uses the slot for the previous item; -1: none. */
static int busy_rank(const bt_exchange *x, uint64_t item) {
    const bt_route *r = &x->route;
    if (!x->host.memory.at || item < x->n_slots) return -1;
    for (int k = 1; k < group_size(r); k++) {
        const int d = other_rank(r, k);
        if (!has_reached(&rank_mark(x, d, item)->taken, item - x->n_slots)) return d;
    }
    return -1;
}

bool bt_exchange_host_free(const bt_exchange *x, uint64_t item) { return busy_rank(x, item) < 0; }

/* Sleeps on the first rank that delays the oldest item. */
void bt_exchange_host_sleep(const bt_exchange *x) {
    const bt_route *r = &x->route;
    if (x->done == x->posted) {
        const int d = x->posted < x->asked ? busy_rank(x, x->posted) : -1;
        if (d < 0) return;
        mark *m = rank_mark(x, d, x->posted);
        sleep_on(m, &m->taken, x->posted - x->n_slots);
        return;
    }
    const bt_exchange_slot *s = &x->slots[x->done % x->n_slots];
    for (int k = 1; k < group_size(r); k++) {
        mark *m = rank_mark(x, other_rank(r, k), s->item);
        _Atomic uint32_t *at = s->round == BT_ROUND_SUM_INSIDE    ? &m->sent
                               : s->round == BT_ROUND_BACK_INSIDE ? &m->back
                                                                  : NULL;
        if (!at || has_reached(at, s->item)) continue;
        sleep_on(m, at, s->item);
        return;
    }
}

bt_code bt_exchange_host_plan(bt_exchange_host *h, const bt_route *r, bt_err *err) {
    const int size = group_size(r), first = group_first(r);
    *h = (bt_exchange_host){.region = calloc((size_t)size, sizeof *h->region),
                            .relayed = calloc((size_t)size, sizeof *h->relayed),
                            .before = calloc((size_t)size + 1, sizeof *h->before),
                            .number = calloc((size_t)r->n, sizeof *h->number)};
    if (!h->region || !h->relayed || !h->before || !h->number)
        return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", r->n);
    for (int k = 0; k < size; k++) h->before[k + 1] = h->before[k] + r->nodes[first + k].n;
    for (int o = 0; o < r->n; o++)
        h->number[o] = h->relayed[bt_route_relay(r, r->mine, o) - first]++;
    return BT_OK;
}

/* Opens the shared memory. All ranks of the host group get the same result. */
bt_code bt_exchange_host_open(bt_exchange *x, bt_err *err) {
    bt_exchange_host *h = &x->host;
    const bt_route *r = &x->route;
    bt_comm *here = NULL;
    size_t bytes = (size_t)group_size(r) * x->n_slots * sizeof(mark);
    for (int k = 0; k < group_size(r); k++) {
        h->region[k] = bytes;
        bytes += x->n_slots * slot_elems(x, group_first(r) + k) * sizeof(float);
    }
    BT_TRY(bt_comm_split(&here, x->cfg.mesh->dp, r->mine, r->me, err));
    bt_code code = group_size(r) > 1
                       ? bt_host_memory_create(&h->memory, here, bytes, "bitrain-gradients", err)
                       : BT_OK;
    bt_comm_free(here);
    return code;
}

void bt_exchange_host_release(bt_exchange_host *h) {
    bt_host_memory_release(&h->memory);
    free(h->region);
    free(h->relayed);
    free(h->before);
    free(h->number);
    *h = (bt_exchange_host){0};
}
