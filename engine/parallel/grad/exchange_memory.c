/* exchange_memory.c - memory of an exchange: its plan, create and destroy. */
#include <assert.h>
#include <stdlib.h>

#include "engine/base/small.h"
#include "engine/base/testing/testing.h"
#include "engine/parallel/grad/exchange_internal.h"

size_t bt_exchange_piece_bytes = 256 << 10;

/* Each function returns a number of buffers in a slot: for ranks of the host group, for received payloads, and for
 * payloads to send. */
static size_t inside_pieces(const bt_route *r) { return r->n_relayed * bt_route_places(r); }
static size_t out_places(const bt_route *r, const bt_codec *codec) {
    return codec->encode ? (r->n_relayed - 1) * r->sums[r->mine].n : 0;
}

/* Returns the size of the largest payload of n gradients, in whole cache lines. */
static size_t place_bytes_of(const bt_exchange_plan *p, size_t n) {
    size_t bytes = n * sizeof(float);
    if (p->form.codec->encode) {
        const bt_payload_form back = bt_payload_form_back(&p->form);
        bytes = 0;
        for (size_t at = 0; at < p->buckets->total; at += n) {
            const bt_range r = {at, bt_min_size(at + n, p->buckets->total)};
            bytes = bt_max_size(bytes, bt_payload_bound(&p->form, r));
            bytes = bt_max_size(bytes, bt_payload_bound(&back, r));
        }
    }
    return (bytes + BT_ALIGN - 1) / BT_ALIGN * BT_ALIGN;
}

/* Returns the number of scratch parts for decoded nodes. */
static size_t scratch_parts(const bt_route *r, const bt_codec *codec) {
    return codec->encode ? r->waiting : 0;
}

static size_t max_round_requests(const bt_route *r) {
    size_t n = (size_t)r->n, size = (size_t)(r->first[r->mine + 1] - r->first[r->mine]),
           sum_in = inside_pieces(r) + n * r->nodes[r->me].n,
           sum_out = r->across + r->n_relayed * r->sums[r->mine].n,
           back_in = n + r->n_relayed * (size - 1);
    return bt_max_size(bt_max_size(sum_in, sum_out), bt_max_size(2 * n, back_in));
}

static bool all_on_one_host(const int *hosts, int n) {
    for (int i = 1; i < n; i++)
        if (hosts[i] != hosts[0]) return false;
    return true;
}

/* cut of buckets into items, and number of items in flight */
typedef struct cut {
    size_t part, piece, pieces, slots;
} cut;

static cut cut_of(const bt_route *r, const bt_exchange_plan *p, bool one_host) {
    enum { LINE_ELEMS = BT_ALIGN / sizeof(float) };
    cut c = {.part = p->buckets->elems / (size_t)r->n, .pieces = 1};
    if (r->n_host_groups == 1)
        c.pieces = (c.part * sizeof(float) + bt_exchange_piece_bytes - 1) / bt_exchange_piece_bytes;
    c.piece = (c.part + c.pieces * LINE_ELEMS - 1) / (c.pieces * LINE_ELEMS) * LINE_ELEMS;
    c.slots = bt_min_size(BT_EXCHANGE_SLOTS,
                          (one_host ? BT_STRIPES_ON_HOST : BT_STRIPES_IN_FLIGHT) * c.pieces);
    return c;
}

/* Gradients that are not encoded use shared memory if available. */
static bool may_share(const bt_exchange_plan *p) { return !p->form.codec->encode; }

/* together: all ranks are on one host and are one host group. */
static bt_code make_route(bt_route *r, cut *c, const bt_exchange_plan *p, bool together,
                          bt_err *err) {
    bt_mesh_coord me = bt_mesh_coord_of(p->shape, p->rank);
    int n = p->shape->dp_replicate * p->shape->dp_shard, *hosts = calloc((size_t)n, sizeof *hosts);
    if (!hosts) return bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks", n);
    bt_mesh_dp_hosts(p->shape, p->rank, hosts);
    const bt_route_cfg cfg = {.n = n,
                              .me = me.dp,
                              .shards = p->sharded ? p->shape->dp_shard : 1,
                              .hosts = hosts,
                              .together = together,
                              .units = p->units,
                              .shares = p->shares};
    bt_code code = bt_route_init(r, &cfg, err);
    if (code == BT_OK) *c = cut_of(r, p, all_on_one_host(hosts, n));
    free(hosts);
    return code;
}

size_t bt_exchange_staging(const bt_exchange_plan *p) {
    bt_route r;
    cut c;
    if (make_route(&r, &c, p, may_share(p), NULL) != BT_OK) return 0;
    size_t payloads = r.across + out_places(&r, p->form.codec),
           slot_bytes = inside_pieces(&r) * c.piece * sizeof(float) +
                        payloads * place_bytes_of(p, c.part),
           bytes = c.slots * slot_bytes +
                   scratch_parts(&r, p->form.codec) * c.part * sizeof(float) +
                   p->buckets->total * p->form.codec->state_bytes;
    bt_route_release(&r);
    return bytes;
}

static bt_code reserve_exchange_arrays(bt_exchange *x, bt_err *err) {
    const bt_route *r = &x->route;
    size_t inside[BT_EXCHANGE_SLOTS], in[BT_EXCHANGE_SLOTS], out[BT_EXCHANGE_SLOTS],
        state_bytes = x->cfg.state ? 0 : x->codec->state_bytes;
    bt_arena_plan(&x->arena, "gradient staging");
    for (size_t i = 0; i < x->n_slots; i++) {
        inside[i] = bt_arena_reserve(&x->arena, x->host.memory.at ? 0 : inside_pieces(r) * x->piece,
                                     sizeof(float));
        in[i] = bt_arena_reserve(&x->arena, r->across, x->place_bytes);
        out[i] = bt_arena_reserve(&x->arena, out_places(r, x->codec), x->place_bytes);
    }
    size_t scratch = bt_arena_reserve(&x->arena, scratch_parts(r, x->codec) * x->part,
                                      sizeof(float)),
           state = bt_arena_reserve(&x->arena, x->cfg.plan.buckets->total, state_bytes);
    BT_TRY(bt_arena_commit(&x->arena, err));
    for (size_t i = 0; i < x->n_slots; i++) {
        x->slots[i].inside = x->host.memory.at ? bt_exchange_host_inside(x, i)
                                               : bt_arena_at(&x->arena, inside[i]);
        x->slots[i].in = bt_arena_at(&x->arena, in[i]);
        x->slots[i].out = bt_arena_at(&x->arena, out[i]);
    }
    x->scratch = bt_arena_at(&x->arena, scratch);
    x->state = state_bytes ? bt_arena_at(&x->arena, state) : x->cfg.state;
    return BT_OK;
}

static bt_code allocate_exchange(bt_exchange *x, bt_err *err) {
    size_t requests = max_round_requests(&x->route),
           payloads = bt_max_size(x->route.across, x->route.n_relayed);
    x->arrived = calloc(requests, sizeof *x->arrived);
    x->statuses = calloc(requests, sizeof *x->statuses);
    bool all = x->arrived && x->statuses;
    for (size_t i = 0; i < x->n_slots; i++) {
        bt_exchange_slot *s = &x->slots[i];
        s->round = BT_ROUND_NONE;
        s->requests = calloc(requests, sizeof *s->requests);
        s->messages = calloc(requests, sizeof *s->messages);
        s->payload_bytes = calloc(payloads, sizeof *s->payload_bytes);
        all &= s->requests && s->messages && s->payload_bytes;
    }
    return all ? reserve_exchange_arrays(x, err)
               : bt_fail(err, BT_NOMEM, "cannot take memory for the exchange of %d ranks",
                         x->route.n);
}

void bt_exchange_destroy(bt_exchange *x) {
    if (!x) return;
    for (int i = 0; i < BT_EXCHANGE_SLOTS; i++) {
        free(x->slots[i].requests);
        free(x->slots[i].messages);
        free(x->slots[i].payload_bytes);
    }
    free(x->arrived);
    free(x->statuses);
    bt_arena_release(&x->arena);
    bt_exchange_host_release(&x->host);
    bt_route_release(&x->route);
    free(x);
}

static bt_code lay_out_exchange(bt_exchange *x, bool together, bt_err *err) {
    cut c;
    bt_exchange_host_release(&x->host);
    bt_route_release(&x->route);
    BT_TRY(make_route(&x->route, &c, &x->cfg.plan, together, err));
    x->part = c.part;
    x->piece = c.piece;
    x->pieces = c.pieces;
    x->n_slots = c.slots;
    assert(x->part * (size_t)x->route.n == x->cfg.plan.buckets->elems);
    x->place_bytes = place_bytes_of(&x->cfg.plan, x->part);
    return bt_exchange_host_plan(&x->host, &x->route, err);
}

/* Collective: all ranks make the same calls. */
static bt_code share_memory(bt_exchange *x, bt_err *err) {
    const bool one_group = x->route.n_host_groups == 1;
    if (x->route.n_host_groups == x->route.n) return BT_OK;
    if (!bt_testing_exchange_messages) BT_TRY(bt_exchange_host_open(x, err));
    return one_group && !x->host.memory.at ? lay_out_exchange(x, false, err) : BT_OK;
}

bt_code bt_exchange_create(bt_exchange **out, const bt_exchange_cfg *cfg, bt_err *err) {
    bt_exchange *x = calloc(1, sizeof *x);
    bt_code code = BT_OK;
    *out = NULL;
    if (x) {
        x->cfg = *cfg;
        x->codec = cfg->plan.form.codec;
        x->back = bt_payload_form_back(&cfg->plan.form);
        code = lay_out_exchange(x, may_share(&cfg->plan), err);
    } else {
        code = bt_fail(err, BT_NOMEM, "cannot take memory for the gradient exchange");
    }
    code = bt_agree(cfg->mesh->world, code, err);
    if (code == BT_OK) code = share_memory(x, err);
    if (code == BT_OK) code = allocate_exchange(x, err);
    if (code != BT_OK) {
        bt_exchange_destroy(x);
        return code;
    }
    *out = x;
    return BT_OK;
}
