/* exchange.c - the rounds of a bucket: parts go to their owners, who add in a fixed order; sums go
 * back to the ranks that need them. exchange_route.h says who sends what to whom.
 *
 *     SUM_INSIDE     a group's ranks -> its relay for every owner: their nodes of the owner's part
 *     SUM_ACROSS     relays -> owners: the group's nodes; the owner adds all groups', in tree order
 *     BACK_ACROSS    owners -> relays: the sum
 *     BACK_INSIDE    owners and relays -> their group: the sum
 *
 * At most SLOTS buckets are on their way, each with staging memory for what it receives. A round begins
 * when this rank's messages of the round before it have come and gone; a round without messages
 * takes no time, so that ranks that are groups by themselves know two rounds, or (sharded, without
 * replicas) one. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/exchange_route.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { SLOTS = BT_STRIPES_IN_FLIGHT, FIRST_TAG = 1000, TAGS = 6000 };

typedef enum { SUM_INSIDE, SUM_ACROSS, BACK_ACROSS, BACK_INSIDE, IDLE } round_id;

/* rank of the world; 0 bytes: one that leaves */
typedef struct message {
    int from;
    size_t bytes;
} message;

typedef struct slot {
    round_id round;
    size_t bucket;
    float *inside; /* (owners relayed, nodes of this group's other ranks) parts */
    float *across; /* (nodes of the other groups) parts */
    MPI_Request *requests;
    message *messages; /* what each request brings */
    int n_requests, n_left;
    uint64_t sent; /* bytes of this round */
    int64_t asked_ns;
} slot;

struct bt_exchange {
    bt_exchange_cfg cfg;
    bt_route route;
    size_t part;      /* elements */
    bt_tree_sum mine; /* this rank's nodes, with arrays */
    bt_arena arena;
    slot slots[SLOTS];
    int *arrived;               /* requests that came in this poll */
    size_t asked, posted, done; /* buckets: started by the caller, on their way, arrived */
};

/* ---- parts ----------------------------------------------------------------------------------- */

static bt_range part_range(const bt_exchange *x, size_t bucket, size_t part) {
    bt_range b = bt_bucket_at(x->cfg.plan.buckets, bucket);
    size_t begin = b.begin + part * x->part, end = begin + x->part;
    return (bt_range){begin < b.end ? begin : b.end, end < b.end ? end : b.end};
}

/* what an owner owns of the slot's bucket; empty in a short bucket's last parts */
static bt_range owned_by(const bt_exchange *x, const slot *s, int owner) {
    return part_range(x, s->bucket, bt_route_part(&x->route, owner));
}

static size_t length(bt_range r) { return r.end - r.begin; }

/* the owner's relay in this rank's group */
static int relay_here(const bt_exchange *x, int owner) {
    return bt_route_relay(&x->route, x->route.mine, owner);
}

/* an owner of another group whose messages come and go through this rank */
static bool relays(const bt_exchange *x, int owner) {
    return x->route.group[owner] != x->route.mine && x->route.relayed[owner] >= 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int tag_of(const slot *s) {
    return FIRST_TAG + (int)s->round * TAGS + (int)(s->bucket % TAGS);
}

static bt_code receive(bt_exchange *x, slot *s, float *to, size_t n, int from, bt_err *err) {
    size_t bytes = n * sizeof *to;
    s->messages[s->n_requests] = (message){bt_mesh_peer(x->cfg.mesh, BT_AXIS_DP, from), bytes};
    return bt_mpi_check(MPI_Irecv(to, (int)bytes, MPI_BYTE, from, tag_of(s), x->cfg.mesh->dp->mpi,
                                  &s->requests[s->n_requests++]),
                        "gradient exchange", err);
}

static bt_code send(bt_exchange *x, slot *s, const float *from, size_t n, int to, bt_err *err) {
    size_t bytes = n * sizeof *from;
    s->messages[s->n_requests] = (message){to, 0};
    s->sent += bytes;
    return bt_mpi_check(MPI_Isend(from, (int)bytes, MPI_BYTE, to, tag_of(s), x->cfg.mesh->dp->mpi,
                                  &s->requests[s->n_requests++]),
                        "gradient exchange", err);
}

/* all rounds of the exchange are one row of traffic.h; the reducer counts its calls and times */
static void count_sent(const bt_exchange *x, const slot *s) {
    if (s->n_requests == 0) return;
    bt_comm_count(s->sent, s->sent);
    bt_traffic_add(bt_exchange_kind(x), x->cfg.mesh->dp->axis,
                   &(bt_traffic){.rounds = 1,
                                 .bytes_logical = (int64_t)s->sent,
                                 .bytes_wire = (int64_t)s->sent});
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* where node i of another rank of this group arrives */
static float *inside_at(const bt_exchange *x, const slot *s, int owner, int from, size_t i) {
    const bt_route *r = &x->route;
    return s->inside + ((size_t)r->relayed[owner] * r->inside + r->before[from] + i) * x->part;
}

/* The nodes of this rank's group of a part that it relays, added up as far as the tree allows. */
static bt_tree_sum group_sum(const bt_exchange *x, const slot *s, int owner) {
    const bt_route *r = &x->route;
    bt_range p = owned_by(x, s, owner);
    bt_tree_sum f = {.n = 0};
    for (int d = r->first[r->mine]; d < r->first[r->mine + 1]; d++) {
        for (size_t i = 0; i < r->nodes[d].n; i++) {
            bt_node node = r->nodes[d].at[i];
            node.x = d == r->me ? x->mine.at[i].x + p.begin : inside_at(x, s, owner, d, i);
            bt_tree_sum_push(&f, node, x->cfg.grads + p.begin, length(p), bt_k()->add);
        }
    }
    assert(f.n == r->sums[r->mine].n);
    return f;
}

/* All groups' nodes of this rank's part into the gradient array. */
static bt_code add_up(bt_exchange *x, slot *s, bt_err *err) {
    (void)err;
    const bt_route *r = &x->route;
    bt_range own = owned_by(x, s, r->me);
    size_t n = length(own);
    if (n == 0) return BT_OK;
    float *keep = x->cfg.grads + own.begin;
    bt_tree_sum f = {.n = 0}, here = group_sum(x, s, r->me);
    for (int g = 0; g < r->n_groups; g++) {
        for (size_t i = 0; i < r->sums[g].n; i++) {
            bt_node node = g == r->mine ? here.at[i] : r->sums[g].at[i];
            if (g != r->mine) node.x = s->across + (r->sums_before[g] + i) * x->part;
            bt_tree_sum_push(&f, node, keep, n, bt_k()->add);
        }
    }
    float *root = bt_tree_sum_root(&f, keep, n, bt_k()->add);
    if (root != keep) memcpy(keep, root, n * sizeof(float));
    return BT_OK;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

/* Each rank begins with another peer, so that no rank is crowded. Receivers and senders go through
 * owners and nodes in the same order, so messages with one tag match. */
static bt_code sum_inside(bt_exchange *x, slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    int first = r->first[r->mine], size = r->first[r->mine + 1] - first, at = r->me - first;
    for (int k = 1; k < size; k++) {
        int from = first + (at + k) % size;
        for (int o = 0; o < r->n; o++) {
            size_t n = length(owned_by(x, s, o));
            for (size_t i = 0; i < r->nodes[from].n && n > 0 && r->relayed[o] >= 0; i++)
                BT_TRY(receive(x, s, inside_at(x, s, o, from, i), n, from, err));
        }
    }
    for (int k = 1; k < size; k++) {
        int to = first + (at - k + size) % size;
        for (int o = 0; o < r->n; o++) {
            bt_range p = owned_by(x, s, o);
            for (size_t i = 0; i < x->mine.n && length(p) > 0 && relay_here(x, o) == to; i++)
                BT_TRY(send(x, s, x->mine.at[i].x + p.begin, length(p), to, err));
        }
    }
    return BT_OK;
}

static bt_code sum_across(bt_exchange *x, slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    size_t own = length(owned_by(x, s, r->me));
    for (int k = 1; k < r->n && own > 0; k++) {
        int from = (r->me + k) % r->n, g = r->group[from];
        if (g == r->mine || bt_route_relay(r, g, r->me) != from) continue;
        for (size_t i = 0; i < r->sums[g].n; i++)
            BT_TRY(receive(x, s, s->across + (r->sums_before[g] + i) * x->part, own, from, err));
    }
    for (int k = 1; k < r->n; k++) {
        int to = (r->me - k + r->n) % r->n;
        size_t n = length(owned_by(x, s, to));
        if (!relays(x, to) || n == 0) continue;
        bt_tree_sum sum = group_sum(x, s, to);
        for (size_t i = 0; i < sum.n; i++) BT_TRY(send(x, s, sum.at[i].x, n, to, err));
    }
    return BT_OK;
}

static bt_code back_across(bt_exchange *x, slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    bt_range own = owned_by(x, s, r->me);
    for (int k = 1; k < r->n; k++) {
        int from = (r->me + k) % r->n;
        bt_range p = owned_by(x, s, from);
        if (relays(x, from) && bt_route_needs(r, r->me, from) && length(p) > 0)
            BT_TRY(receive(x, s, x->cfg.grads + p.begin, length(p), from, err));
    }
    for (int k = 1; k < r->n && length(own) > 0; k++) {
        int to = (r->me - k + r->n) % r->n, g = r->group[to];
        if (g != r->mine && bt_route_relay(r, g, r->me) == to && bt_route_needs(r, to, r->me))
            BT_TRY(send(x, s, x->cfg.grads + own.begin, length(own), to, err));
    }
    return BT_OK;
}

static bt_code back_inside(bt_exchange *x, slot *s, bt_err *err) {
    const bt_route *r = &x->route;
    int first = r->first[r->mine], size = r->first[r->mine + 1] - first, at = r->me - first;
    for (int k = 1; k < size; k++) {
        int from = first + (at + k) % size;
        for (int o = 0; o < r->n; o++) {
            bt_range p = owned_by(x, s, o);
            if (relay_here(x, o) == from && bt_route_needs(r, r->me, o) && length(p) > 0)
                BT_TRY(receive(x, s, x->cfg.grads + p.begin, length(p), from, err));
        }
    }
    for (int k = 1; k < size; k++) {
        int to = first + (at - k + size) % size;
        for (int o = 0; o < r->n; o++) {
            bt_range p = owned_by(x, s, o);
            if (r->relayed[o] >= 0 && bt_route_needs(r, to, o) && length(p) > 0)
                BT_TRY(send(x, s, x->cfg.grads + p.begin, length(p), to, err));
        }
    }
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

static bt_code discard_others(bt_exchange *x, slot *s, bt_err *err) {
    (void)err;
    if (!x->cfg.discard) return BT_OK;
    bt_range b = bt_bucket_at(x->cfg.plan.buckets, s->bucket);
    size_t replicas = (size_t)(x->route.n / x->route.shards),
           first = bt_route_part(&x->route, x->route.me) / replicas * replicas;
    bt_range left = part_range(x, s->bucket, first),
             right = part_range(x, s->bucket, first + replicas - 1);
    drop(x->cfg.grads + b.begin, x->cfg.grads + left.begin);
    drop(x->cfg.grads + right.end, x->cfg.grads + b.end);
    return BT_OK;
}

/* post sends and asks for the messages of a round; when they have come and gone, finish (NULL:
 * nothing) */
static const struct {
    bt_code (*post)(bt_exchange *x, slot *s, bt_err *err),
        (*finish)(bt_exchange *x, slot *s, bt_err *err);
} rounds[] = {
    [SUM_INSIDE] = {sum_inside, NULL},
    [SUM_ACROSS] = {sum_across, add_up},
    [BACK_ACROSS] = {back_across, NULL},
    [BACK_INSIDE] = {back_inside, discard_others},
};

static bt_code begin_round(bt_exchange *x, slot *s, round_id round, bt_err *err) {
    s->round = round;
    if (round == IDLE) return BT_OK;
    s->n_requests = 0;
    s->sent = 0;
    s->asked_ns = bt_now_ns();
    BT_TRY(rounds[round].post(x, s, err));
    count_sent(x, s);
    s->n_left = s->n_requests;
    return BT_OK;
}

/* Finishes rounds whose messages have come and gone, and begins the next ones. */
static bt_code next_rounds(bt_exchange *x, slot *s, bt_err *err) {
    while (s->round != IDLE && s->n_left == 0) {
        if (rounds[s->round].finish) BT_TRY(rounds[s->round].finish(x, s, err));
        BT_TRY(begin_round(x, s, s->round + 1, err));
    }
    return BT_OK;
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
    return next_rounds(x, s, err);
}

static bt_code start(bt_exchange *x, slot *s, size_t bucket, bt_err *err) {
    s->bucket = bucket;
    BT_TRY(begin_round(x, s, SUM_INSIDE, err));
    return next_rounds(x, s, err);
}

/* ---- the interface --------------------------------------------------------------------------- */

static bt_code post_what_fits(bt_exchange *x, bt_err *err) {
    while (x->posted < x->asked && x->slots[x->posted % SLOTS].round == IDLE &&
           x->posted < x->done + SLOTS) {
        BT_TRY(start(x, &x->slots[x->posted % SLOTS], x->posted, err));
        x->posted++;
    }
    return BT_OK;
}

bt_code bt_exchange_progress(bt_exchange *x, size_t *done, bt_err *err) {
    for (size_t b = x->done; b < x->posted; b++) {
        slot *s = &x->slots[b % SLOTS];
        if (s->round != IDLE) BT_TRY(advance(x, s, err));
    }
    while (x->done < x->posted && x->slots[x->done % SLOTS].round == IDLE) x->done++;
    *done = x->done;
    return post_what_fits(x, err);
}

bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *err) {
    x->asked = bucket + 1;
    return post_what_fits(x, err);
}

bt_coll bt_exchange_kind(const bt_exchange *x) {
    return x->cfg.plan.sharded ? BT_COLL_REDUCE_SCATTER : BT_COLL_ALL_REDUCE;
}

void bt_exchange_reset(bt_exchange *x) { x->asked = x->posted = x->done = 0; }

void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes) {
    assert(nodes->n == x->route.nodes[x->route.me].n);
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
    bt_route_release(&x->route);
    free(x);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* what a slot receives: in parts */
static size_t inside_parts(const bt_route *r) { return r->n_relayed * r->inside; }

/* messages of the round that has most */
static size_t most_requests(const bt_route *r) {
    size_t n = (size_t)r->n, size = (size_t)(r->first[r->mine + 1] - r->first[r->mine]),
           sum_in = inside_parts(r) + n * r->nodes[r->me].n,
           sum_out = r->across + r->n_relayed * r->sums[r->mine].n,
           back_in = n + r->n_relayed * (size - 1);
    return bt_max_size(bt_max_size(sum_in, sum_out), bt_max_size(2 * n, back_in));
}

static bt_code make_route(bt_route *r, const bt_exchange_plan *p, bt_err *err) {
    bt_mesh_coord me = bt_mesh_coord_of(p->shape, p->rank);
    int n = p->shape->dp_replicate * p->shape->dp_shard, *hosts = calloc((size_t)n, sizeof *hosts);
    if (!hosts) return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", n);
    bt_mesh_dp_hosts(p->shape, p->rank, hosts);
    const bt_route_cfg cfg = {.n = n,
                              .me = me.dp,
                              .shards = p->sharded ? p->shape->dp_shard : 1,
                              .hosts = hosts,
                              .units = p->units,
                              .shares = p->shares};
    bt_code code = bt_route_init(r, &cfg, err);
    free(hosts);
    return code;
}

size_t bt_exchange_staging(const bt_exchange_plan *p) {
    bt_route r;
    if (make_route(&r, p, NULL) != BT_OK) return 0;
    size_t parts = inside_parts(&r) + r.across;
    size_t bytes = SLOTS * parts * (p->buckets->elems / (size_t)r.n) * sizeof(float);
    bt_route_release(&r);
    return bytes;
}

static bt_code take_memory(bt_exchange *x, bt_err *err) {
    const bt_route *r = &x->route;
    size_t requests = most_requests(r), inside[SLOTS], across[SLOTS];
    x->arrived = calloc(requests, sizeof *x->arrived);
    bool all = x->arrived != NULL;
    bt_arena_plan(&x->arena, "gradient staging");
    for (int i = 0; i < SLOTS; i++) {
        inside[i] = bt_arena_reserve(&x->arena, inside_parts(r) * x->part, sizeof(float));
        across[i] = bt_arena_reserve(&x->arena, r->across * x->part, sizeof(float));
    }
    BT_TRY(bt_arena_commit(&x->arena, err));
    for (int i = 0; i < SLOTS; i++) {
        x->slots[i] = (slot){.round = IDLE,
                             .inside = bt_arena_at(&x->arena, inside[i]),
                             .across = bt_arena_at(&x->arena, across[i]),
                             .requests = calloc(requests, sizeof *x->slots[i].requests),
                             .messages = calloc(requests, sizeof *x->slots[i].messages)};
        all &= x->slots[i].requests && x->slots[i].messages;
    }
    return all ? BT_OK
               : bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", r->n);
}

bt_code bt_exchange_create(bt_exchange **out, const bt_exchange_cfg *cfg, bt_err *err) {
    bt_exchange *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x) return bt_fail(err, BT_NOMEM, "cannot take memory for the gradient exchange");
    x->cfg = *cfg;
    bt_code code = make_route(&x->route, &cfg->plan, err);
    if (code == BT_OK) {
        x->part = cfg->plan.buckets->elems / (size_t)x->route.n;
        assert(x->part * (size_t)x->route.n == cfg->plan.buckets->elems);
        code = take_memory(x, err);
    }
    if (code != BT_OK) {
        bt_exchange_destroy(x);
        return code;
    }
    *out = x;
    return BT_OK;
}
