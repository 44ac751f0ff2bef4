/* exchange_rounds.c - messages of the rounds of a bucket, and the order of additions.
 *
 * Each rank begins with another peer, which spreads the load. Senders and receivers iterate over owners and nodes in
 * the same order, so that messages with one tag match. */
#include <assert.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/os/memory_pages.h"
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/exchange_internal.h"

/* ---- parts ----------------------------------------------------------------------------------- */

static bt_range part_range(const bt_exchange *x, size_t bucket, size_t part) {
    bt_range b = bt_bucket_at(x->cfg.plan.buckets, bucket);
    size_t begin = b.begin + part * x->part, end = begin + x->part;
    return (bt_range){begin < b.end ? begin : b.end, end < b.end ? end : b.end};
}

bt_range bt_exchange_owned_by(const bt_exchange *x, const bt_exchange_slot *s, int owner) {
    const bt_range p = part_range(x, s->bucket, bt_route_part(&x->route, owner));
    return (bt_range){bt_min_size(p.begin + s->piece * x->piece, p.end),
                      bt_min_size(p.begin + (s->piece + 1) * x->piece, p.end)};
}

static size_t round_range_length(bt_range r) { return r.end - r.begin; }

/* Returns the owner's relay in this rank's host group. */
static int own_relay(const bt_exchange *x, int owner) {
    return bt_route_relay(&x->route, x->route.mine, owner);
}

/* true for an owner of another host group whose messages this rank relays */
static bool relays_for_owner(const bt_exchange *x, int owner) {
    return x->route.host_group[owner] != x->route.mine && x->route.relayed[owner] >= 0;
}

static float *part_at(float *base, const bt_exchange *x, size_t i) { return base + i * x->piece; }

/* ---- sums ------------------------------------------------------------------------------------ */

/* Returns the buffer for node i of another rank of this host group. */
static float *receive_buffer_at(const bt_exchange *x, const bt_exchange_slot *s, int owner,
                                int from, size_t i) {
    const bt_route *r = &x->route;
    return part_at(s->inside, x,
                   (size_t)r->relayed[owner] * bt_route_places(r) + r->before[from] + i);
}

/* Returns this host group's nodes of a part that this rank relays, added as far as the tree allows. */
static bt_tree_sum group_sum(const bt_exchange *x, const bt_exchange_slot *s, int owner) {
    const bt_route *r = &x->route;
    bt_range p = bt_exchange_owned_by(x, s, owner);
    bt_tree_sum f = {.n = 0};
    for (int d = r->first[r->mine]; d < r->first[r->mine + 1]; d++) {
        for (size_t i = 0; i < r->nodes[d].n; i++) {
            bt_node node = r->nodes[d].at[i];
            node.x = d == r->me ? x->mine.at[i].x + p.begin : receive_buffer_at(x, s, owner, d, i);
            bt_tree_sum_push(&f, node, x->cfg.grads + p.begin, round_range_length(p),
                             bt_active_kernels()->add);
        }
    }
    assert(f.n == r->sums[r->mine].n);
    return f;
}

/* Returns an array that no waiting node uses. */
static float *free_scratch(const bt_exchange *x, const bt_tree_sum *f) {
    for (size_t i = 0;; i++) {
        float *at = part_at(x->scratch, x, i);
        bool used = false;
        for (size_t k = 0; k < f->n; k++) used |= f->at[k].x == at;
        if (!used) return at;
        assert(i < x->route.waiting);
    }
}

/* Pushes a node that has arrived. A payload that is a right sibling is added while it is decoded. */
static bt_code push_arrived(const bt_exchange *x, const bt_exchange_slot *s, bt_tree_sum *f,
                            bt_node node, size_t i, bt_range own, bt_err *err) {
    unsigned char *payload = s->in + i * x->place_bytes;
    size_t n = round_range_length(own), bytes = s->payload_bytes[i];
    if (!bt_exchange_encoded(x)) {
        node.x = (float *)(void *)payload;
    } else if (bt_tree_sum_pairs(f, &node)) {
        bt_node left = f->at[--f->n];
        BT_TRY(bt_exchange_check_payload(bt_payload_decode_add(&x->cfg.plan.form, left.x, own,
                                                               payload, bytes),
                                         x, n, bytes, err));
        node = (bt_node){left.index >> 1, left.level + 1, left.x};
    } else {
        node.x = free_scratch(x, f);
        BT_TRY(bt_exchange_check_payload(
            bt_payload_decode(&x->cfg.plan.form, node.x, own, payload, bytes), x, n, bytes, err));
    }
    bt_tree_sum_push(f, node, x->cfg.grads + own.begin, n, bt_active_kernels()->add);
    return BT_OK;
}

/* Adds all host groups' nodes of this rank's part into the gradient array. */
static bt_code add_group_nodes(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    bt_range own = bt_exchange_owned_by(x, s, r->me);
    size_t n = round_range_length(own);
    if (n == 0) return BT_OK;
    float *keep = x->cfg.grads + own.begin;
    bt_tree_sum f = {.n = 0}, here = group_sum(x, s, r->me);
    for (int g = 0; g < r->n_host_groups; g++) {
        for (size_t i = 0; i < r->sums[g].n; i++) {
            if (g == r->mine)
                bt_tree_sum_push(&f, here.at[i], keep, n, bt_active_kernels()->add);
            else
                BT_TRY(push_arrived(x, s, &f, r->sums[g].at[i], r->sums_before[g] + i, own, err));
        }
    }
    float *root = bt_tree_sum_root(&f, keep, n, bt_active_kernels()->add);
    if (root != keep) memcpy(keep, root, n * sizeof(float));
    return BT_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bt_code sum_inside(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    int first = r->first[r->mine], size = r->first[r->mine + 1] - first, at = r->me - first;
    for (int k = 1; k < size; k++) {
        int from = first + (at + k) % size;
        for (int o = 0; o < r->n; o++) {
            size_t n = round_range_length(bt_exchange_owned_by(x, s, o));
            for (size_t i = 0; i < r->nodes[from].n && n > 0 && r->relayed[o] >= 0; i++)
                BT_TRY(bt_exchange_receive_part(x, s, receive_buffer_at(x, s, o, from, i), n, from,
                                                err));
        }
    }
    for (int k = 1; k < size; k++) {
        int to = first + (at - k + size) % size;
        for (int o = 0; o < r->n; o++) {
            bt_range p = bt_exchange_owned_by(x, s, o);
            for (size_t i = 0; i < x->mine.n && round_range_length(p) > 0 && own_relay(x, o) == to;
                 i++)
                BT_TRY(bt_exchange_send_part(x, s, x->mine.at[i].x + p.begin, round_range_length(p),
                                             to, err));
        }
    }
    return BT_OK;
}

/* Sends this host group's nodes of a part whose owner is in another host group; `places` counts the payloads of the
 * round. */
static bt_code send_sums(bt_exchange *x, bt_exchange_slot *s, int to, size_t *places, bt_err *err) {
    bt_range p = bt_exchange_owned_by(x, s, to);
    size_t n = round_range_length(p);
    bt_tree_sum sum = group_sum(x, s, to);
    for (size_t i = 0; i < sum.n; i++) {
        if (!bt_exchange_encoded(x)) {
            BT_TRY(bt_exchange_send_part(x, s, sum.at[i].x, n, to, err));
            continue;
        }
        unsigned char *payload = s->out + (*places)++ * x->place_bytes;
        BT_TRY(bt_exchange_send(x, s, payload, bt_exchange_encode(x, s, payload, sum.at[i].x, p), n,
                                to, err));
    }
    return BT_OK;
}

static bt_code sum_across(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    bt_range own = bt_exchange_owned_by(x, s, r->me);
    size_t places = 0;
    for (int k = 1; k < r->n && round_range_length(own) > 0; k++) {
        int from = (r->me + k) % r->n, g = r->host_group[from];
        if (g == r->mine || bt_route_relay(r, g, r->me) != from) continue;
        for (size_t i = 0; i < r->sums[g].n; i++)
            BT_TRY(bt_exchange_receive_payload(x, s, s->in, r->sums_before[g] + i, own, from, err));
    }
    for (int k = 1; k < r->n; k++) {
        int to = (r->me - k + r->n) % r->n;
        if (relays_for_owner(x, to) && round_range_length(bt_exchange_owned_by(x, s, to)) > 0)
            BT_TRY(send_sums(x, s, to, &places, err));
    }
    return BT_OK;
}

/* True if this rank receives the sum of another host group's part, for itself and the ranks of its host. */
static bool receives_sum(const bt_exchange *x, const bt_exchange_slot *s, int owner) {
    return relays_for_owner(x, owner) && bt_route_needs(&x->route, x->route.me, owner) &&
           round_range_length(bt_exchange_owned_by(x, s, owner)) > 0;
}

/* True if this rank sends the sum of its own part to that rank of another host group. */
static bool sends_sum(const bt_exchange *x, const bt_exchange_slot *s, int to) {
    const bt_route *r = &x->route;
    return r->host_group[to] != r->mine && bt_route_relay(r, r->host_group[to], r->me) == to &&
           bt_route_needs(r, to, r->me) &&
           round_range_length(bt_exchange_owned_by(x, s, r->me)) > 0;
}

/* Sends one payload to all ranks that receive the sum; the owner keeps its decoded values, like the receivers. */
static bt_code send_own_sum(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    bt_range own = bt_exchange_owned_by(x, s, r->me);
    float *sum = x->cfg.grads + own.begin;
    size_t n = round_range_length(own), bytes = 0;
    bool made = !bt_exchange_encoded(x);
    for (int k = 1; k < r->n; k++) {
        int to = (r->me - k + r->n) % r->n;
        if (!sends_sum(x, s, to)) continue;
        if (!made) {
            made = true;
            bytes = bt_exchange_encode(x, s, s->in, sum, own);
            BT_TRY(bt_exchange_check_payload(bt_payload_decode(&x->back, sum, own, s->in, bytes), x,
                                             n, bytes, err));
        }
        BT_TRY(bt_exchange_encoded(x) ? bt_exchange_send(x, s, s->in, bytes, n, to, err)
                                      : bt_exchange_send_part(x, s, sum, n, to, err));
    }
    return BT_OK;
}

static bt_code return_sums_across_hosts(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    size_t places = 0;
    for (int k = 1; k < r->n; k++) {
        int from = (r->me + k) % r->n;
        bt_range p = bt_exchange_owned_by(x, s, from);
        if (!receives_sum(x, s, from)) continue;
        BT_TRY(bt_exchange_encoded(x)
                   ? bt_exchange_receive_payload(x, s, s->out, places++, p, from, err)
                   : bt_exchange_receive_part(x, s, x->cfg.grads + p.begin, round_range_length(p),
                                              from, err));
    }
    return send_own_sum(x, s, err);
}

/* Decodes payloads in the order in which return_sums_across_hosts posted their receives. */
static bt_code decode_returned(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    size_t places = 0;
    for (int k = 1; k < r->n && bt_exchange_encoded(x); k++) {
        int from = (r->me + k) % r->n;
        bt_range p = bt_exchange_owned_by(x, s, from);
        if (!receives_sum(x, s, from)) continue;
        size_t n = round_range_length(p), bytes = s->payload_bytes[places];
        bool ok = bt_payload_decode(&x->back, x->cfg.grads + p.begin, p,
                                    s->out + places * x->place_bytes, bytes);
        BT_TRY(bt_exchange_check_payload(ok, x, n, bytes, err));
        places++;
    }
    return BT_OK;
}

static bt_code back_inside(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    int first = r->first[r->mine], size = r->first[r->mine + 1] - first, at = r->me - first;
    for (int k = 1; k < size; k++) {
        int from = first + (at + k) % size;
        for (int o = 0; o < r->n; o++) {
            bt_range p = bt_exchange_owned_by(x, s, o);
            if (own_relay(x, o) == from && bt_route_needs(r, r->me, o) && round_range_length(p) > 0)
                BT_TRY(bt_exchange_receive_part(x, s, x->cfg.grads + p.begin, round_range_length(p),
                                                from, err));
        }
    }
    for (int k = 1; k < size; k++) {
        int to = first + (at - k + size) % size;
        for (int o = 0; o < r->n; o++) {
            bt_range p = bt_exchange_owned_by(x, s, o);
            if (r->relayed[o] >= 0 && bt_route_needs(r, to, o) && round_range_length(p) > 0)
                BT_TRY(bt_exchange_send_part(x, s, x->cfg.grads + p.begin, round_range_length(p),
                                             to, err));
        }
    }
    return BT_OK;
}

/* Zeroes a range: returns its whole pages to the system and clears the incomplete pages at both ends. */
static void zero_pages(float *from, float *to) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), lo = (uintptr_t)from, hi = (uintptr_t)to;
    uintptr_t a = (lo + page - 1) / page * page, b = hi / page * page;
    if (a >= b || !bt_pages_return((void *)a, b - a)) {
        memset(from, 0, hi - lo);
        return;
    }
    memset(from, 0, a - lo);
    memset((void *)b, 0, hi - b);
}

/* After the last item of a bucket: returns the pages of parts owned by other ranks, which have been sent. */
bt_code bt_exchange_discard_others(bt_exchange *x, bt_exchange_slot *s, bt_err *err) {
    (void)err;
    if (!x->cfg.discard || s->piece + 1 < x->pieces) return BT_OK;
    bt_range b = bt_bucket_at(x->cfg.plan.buckets, s->bucket);
    size_t replicas = (size_t)(x->route.n / x->route.shards),
           first = bt_route_part(&x->route, x->route.me) / replicas * replicas;
    bt_range left = part_range(x, s->bucket, first),
             right = part_range(x, s->bucket, first + replicas - 1);
    zero_pages(x->cfg.grads + b.begin, x->cfg.grads + left.begin);
    zero_pages(x->cfg.grads + right.end, x->cfg.grads + b.end);
    return BT_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

const bt_round_ops bt_rounds[BT_ROUND_COUNT] = {
    [BT_ROUND_SUM_INSIDE] = {sum_inside, NULL, NULL},
    [BT_ROUND_SUM_ACROSS] = {sum_across, add_group_nodes, NULL},
    [BT_ROUND_BACK_ACROSS] = {return_sums_across_hosts, decode_returned, NULL},
    [BT_ROUND_BACK_INSIDE] = {back_inside, bt_exchange_discard_others, NULL},
};
