/* record.c - bytes of records: host byte order (both ends share a machine), every item padded to
 * 8. */
#include "store/record/record.h"

#include <stdlib.h>
#include <string.h>

/* ---- encoding: one pass that measures (r NULL), one that writes ------------------------------ */

typedef struct out {
    unsigned char *at;
    size_t n;
} out;

static void put(out *o, const void *p, size_t n) {
    if (o->at) {
        memcpy(o->at + o->n, p, n);
        memset(o->at + o->n + n, 0, -n & 7);
    }
    o->n += n + (-n & 7);
}

static void put_i64(out *o, int64_t v) { put(o, &v, sizeof v); }

static void put_str(out *o, const char *s) { /* length + 1, bytes, NUL; 0 for NULL */
    size_t n = s ? strlen(s) + 1 : 0;
    put_i64(o, (int64_t)n);
    if (n) put(o, s, n);
}

typedef void (*encode_fn)(out *o, const void *items, size_t n);

static bt_record *build(bt_rec_kind kind, encode_fn encode, const void *items, size_t n) {
    out o = {NULL, 0};
    encode(&o, items, n);
    if (o.n > UINT32_MAX) return NULL;
    bt_record *r = malloc(sizeof *r + o.n);
    if (!r) return NULL;
    *r = (bt_record){NULL, (uint32_t)kind, (uint32_t)o.n};
    o = (out){r->data, 0};
    encode(&o, items, n);
    return r;
}

static void encode_ranks(out *o, const void *items, size_t n) {
    const bt_rank_info *r = items;
    put_i64(o, (int64_t)n);
    for (size_t i = 0; i < n; i++) put(o, &r[i], sizeof r[i]);
}

static void encode_fact(out *o, const void *items, size_t n) {
    const char *const *kv = items;
    for (size_t i = 0; i < n; i++) put_str(o, kv[i]);
}

static void encode_step(out *o, const void *items, size_t n) {
    const bt_step_record *r = items;
    int64_t ranks = r->rank_values && r->n_ranks > 0 ? r->n_ranks : 0;
    (void)n;
    put_i64(o, r->step);
    put_i64(o, r->wall_us);
    put_i64(o, ranks); /* third word: cut_ranks() relies on it */
    put(o, r->values, sizeof(double) * BT_MS_COUNT);
    if (ranks) put(o, r->rank_values, sizeof(double) * (size_t)ranks * BT_MR_COUNT);
}

static void encode_layers(out *o, const void *items, size_t n) {
    const bt_layer_record *r = items;
    put_i64(o, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        put_i64(o, r[i].step);
        put_i64(o, r[i].layer);
        put_str(o, r[i].tensor ? r[i].tensor : "");
        put(o, r[i].values, sizeof(double) * BT_ML_COUNT);
    }
}

static void encode_comm(out *o, const void *items, size_t n) {
    const bt_comm_record *r = items;
    /* first word: make_room() relies on it, as in encode_layers */
    put_i64(o, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        put_i64(o, r[i].step);
        put_i64(o, r[i].rank);
        put_str(o, r[i].op);
        put_str(o, r[i].axis);
        put(o, r[i].values, sizeof(double) * BT_MC_COUNT);
    }
}

static void encode_pairs(out *o, const void *items, size_t n) {
    const bt_pair_record *r = items;
    put_i64(o, (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        put_i64(o, r[i].step);
        put_i64(o, r[i].rank);
        put_i64(o, r[i].peer);
        put(o, r[i].values, sizeof(double) * BT_MP_COUNT);
    }
}

static void encode_event(out *o, const void *items, size_t n) {
    const bt_event *e = items;
    (void)n;
    put_i64(o, e->level);
    put_i64(o, e->step);
    put_i64(o, e->rank);
    put_i64(o, e->wall_us);
    put_str(o, e->kind ? e->kind : "");
    put_str(o, e->title ? e->title : "");
    put_str(o, e->body);
}

static void encode_ckpt(out *o, const void *items, size_t n) {
    const bt_ckpt_record *c = items;
    (void)n;
    put_i64(o, c->step);
    put_i64(o, c->bytes);
    put_i64(o, c->took_us);
    put_str(o, c->path ? c->path : "");
    put_str(o, c->hash);
}

bt_record *bt_record_ranks(const bt_rank_info *ranks, size_t n) {
    return build(BT_REC_RANKS, encode_ranks, ranks, n);
}
bt_record *bt_record_fact(const char *key, const char *value) {
    return build(BT_REC_FACT, encode_fact, (const char *[]){key, value}, 2);
}
bt_record *bt_record_step(const bt_step_record *r) { return build(BT_REC_STEP, encode_step, r, 1); }
bt_record *bt_record_layers(const bt_layer_record *r, size_t n) {
    return build(BT_REC_LAYERS, encode_layers, r, n);
}
bt_record *bt_record_comm(const bt_comm_record *r, size_t n) {
    return build(BT_REC_COMM, encode_comm, r, n);
}
bt_record *bt_record_pairs(const bt_pair_record *r, size_t n) {
    return build(BT_REC_PAIRS, encode_pairs, r, n);
}
bt_record *bt_record_event(const bt_event *e) { return build(BT_REC_EVENT, encode_event, e, 1); }
bt_record *bt_record_ckpt(const bt_ckpt_record *c) { return build(BT_REC_CKPT, encode_ckpt, c, 1); }

/* ---- decoding ---- */

typedef struct in {
    const unsigned char *at;
    size_t left;
    bool bad;
} in;

static const void *get(in *i, size_t n) {
    size_t padded = n + (-n & 7);
    if (i->bad || padded < n || padded > i->left) {
        i->bad = true;
        return NULL;
    }
    const void *p = i->at;
    i->at += padded;
    i->left -= padded;
    return p;
}

static int64_t get_i64(in *i) {
    const void *p = get(i, 8);
    int64_t v = 0;
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

static const char *get_str(in *i) {
    int64_t n = get_i64(i);
    if (n == 0) return NULL;
    if (n < 0 || (uint64_t)n > i->left) i->bad = true;
    const char *s = get(i, (size_t)n);
    if (s && s[n - 1] != 0) i->bad = true;
    return i->bad ? NULL : s;
}

static const char *get_text(in *i) { /* a string that may not be NULL */
    const char *s = get_str(i);
    if (!s) i->bad = true;
    return s;
}

static bool small(int64_t v) { return v >= INT32_MIN && v <= INT32_MAX; }

static bool deliver_ranks(in *i, const bt_sink *s) {
    int64_t n = get_i64(i);
    if (i->bad || n < 0 || (uint64_t)n > i->left / sizeof(bt_rank_info)) return false;
    bt_rank_info *copy = malloc(sizeof *copy * (size_t)(n ? n : 1));
    if (!copy) return true;
    for (int64_t k = 0; k < n; k++) {
        const void *p = get(i, sizeof *copy);
        if (!p) break;
        memcpy(&copy[k], p, sizeof *copy);
        copy[k].host[sizeof copy[k].host - 1] = 0;
        copy[k].isa[sizeof copy[k].isa - 1] = 0;
    }
    bool ok = !i->bad && i->left == 0;
    if (ok && s->ranks) s->ranks(s->ctx, copy, (size_t)n);
    free(copy);
    return ok;
}

static bool deliver_fact(in *i, const bt_sink *s) {
    const char *key = get_text(i), *value = get_str(i);
    if (i->bad || i->left) return false;
    if (s->fact) s->fact(s->ctx, key, value ? value : "");
    return true;
}

static bool deliver_step(in *i, const bt_sink *s) {
    bt_step_record r = {.step = get_i64(i)};
    r.wall_us = get_i64(i);
    int64_t ranks = get_i64(i);
    r.values = get(i, sizeof(double) * BT_MS_COUNT);
    if (i->bad || ranks < 0 || ranks > INT32_MAX ||
        (uint64_t)ranks > i->left / (sizeof(double) * BT_MR_COUNT))
        return false;
    r.n_ranks = (int)ranks;
    r.rank_values = ranks ? get(i, sizeof(double) * (size_t)ranks * BT_MR_COUNT) : NULL;
    if (i->bad || i->left || r.step < 0) return false;
    if (s->step) s->step(s->ctx, &r);
    return true;
}

static bool deliver_layers(in *i, const bt_sink *s) {
    int64_t n = get_i64(i);
    /* step, layer, length, one padded string, values */
    size_t least = 4 * 8 + sizeof(double) * BT_ML_COUNT;
    if (i->bad || n < 0 || (uint64_t)n > i->left / least) return false;
    bt_layer_record *list = malloc(sizeof *list * (size_t)(n ? n : 1));
    if (!list) return true;
    bool ok = true;
    for (int64_t k = 0; k < n && ok; k++) {
        int64_t step = get_i64(i);
        int64_t layer = get_i64(i);
        list[k] = (bt_layer_record){.step = step, .layer = (int)layer, .tensor = get_text(i)};
        list[k].values = get(i, sizeof(double) * BT_ML_COUNT);
        ok = !i->bad && small(layer) && step >= 0;
    }
    ok = ok && i->left == 0;
    if (ok && s->layers) s->layers(s->ctx, list, (size_t)n);
    free(list);
    return ok;
}

static bool deliver_comm(in *i, const bt_sink *s) {
    int64_t n = get_i64(i);
    /* step, rank, two lengths, two padded strings, values */
    size_t least = 6 * 8 + sizeof(double) * BT_MC_COUNT;
    if (i->bad || n < 0 || (uint64_t)n > i->left / least) return false;
    bt_comm_record *list = malloc(sizeof *list * (size_t)(n ? n : 1));
    if (!list) return true;
    bool ok = true;
    for (int64_t k = 0; k < n && ok; k++) {
        int64_t step = get_i64(i), rank = get_i64(i);
        list[k] = (bt_comm_record){.step = step, .rank = (int)rank};
        list[k].op = get_text(i);
        list[k].axis = get_text(i);
        list[k].values = get(i, sizeof(double) * BT_MC_COUNT);
        ok = !i->bad && step >= 0 && rank >= 0 && small(rank);
    }
    ok = ok && i->left == 0;
    if (ok && s->comm) s->comm(s->ctx, list, (size_t)n);
    free(list);
    return ok;
}

static bool deliver_pairs(in *i, const bt_sink *s) {
    int64_t n = get_i64(i);
    if (i->bad || n < 0 || (uint64_t)n > i->left / (3 * 8 + sizeof(double) * BT_MP_COUNT))
        return false;
    bt_pair_record *list = malloc(sizeof *list * (size_t)(n ? n : 1));
    if (!list) return true;
    bool ok = true;
    for (int64_t k = 0; k < n && ok; k++) {
        int64_t step = get_i64(i), rank = get_i64(i), peer = get_i64(i);
        list[k] = (bt_pair_record){.step = step,
                                   .rank = (int)rank,
                                   .peer = (int)peer,
                                   .values = get(i, sizeof(double) * BT_MP_COUNT)};
        ok = !i->bad && step >= 0 && rank >= 0 && small(rank) && peer >= 0 && small(peer);
    }
    ok = ok && i->left == 0;
    if (ok && s->pairs) s->pairs(s->ctx, list, (size_t)n);
    free(list);
    return ok;
}

static bool deliver_event(in *i, const bt_sink *s) {
    int64_t level = get_i64(i), step = get_i64(i), rank = get_i64(i), wall = get_i64(i);
    bt_event e = {.level = (bt_event_level)level, .step = step, .rank = (int)rank, .wall_us = wall};
    e.kind = get_text(i);
    e.title = get_text(i);
    e.body = get_str(i);
    if (i->bad || i->left || level < BT_EV_INFO || level > BT_EV_ERROR || !small(rank))
        return false;
    if (s->event) s->event(s->ctx, &e);
    return true;
}

static bool deliver_ckpt(in *i, const bt_sink *s) {
    bt_ckpt_record c = {.step = get_i64(i)};
    c.bytes = get_i64(i);
    c.took_us = get_i64(i);
    c.path = get_text(i);
    c.hash = get_str(i);
    if (i->bad || i->left) return false;
    if (s->checkpoint) s->checkpoint(s->ctx, &c);
    return true;
}

bool bt_record_deliver(uint32_t kind, const void *data, size_t bytes, const bt_sink *into) {
    in i = {data, bytes, false};
    switch (kind) {
    case BT_REC_RANKS: return deliver_ranks(&i, into);
    case BT_REC_FACT: return deliver_fact(&i, into);
    case BT_REC_STEP: return deliver_step(&i, into);
    case BT_REC_LAYERS: return deliver_layers(&i, into);
    case BT_REC_COMM: return deliver_comm(&i, into);
    case BT_REC_PAIRS: return deliver_pairs(&i, into);
    case BT_REC_EVENT: return deliver_event(&i, into);
    case BT_REC_CKPT: return deliver_ckpt(&i, into);
    default: return false;
    }
}

void bt_records_free(bt_record *list) {
    while (list) {
        bt_record *next = list->next;
        free(list);
        list = next;
    }
}
