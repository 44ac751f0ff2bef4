/* record.c - encodes records in host byte order, because both ends share a machine; every item is padded to 8 bytes. */
#include "store/record/record.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"

/* ---- encoding: one pass that measures, one that writes ------------------------------------------ */

typedef struct out {
    unsigned char *at; /* NULL: only measure the size */
    size_t n;
} out;

static void put_item_bytes(out *o, const void *p, size_t n) {
    if (o->at) {
        memcpy(o->at + o->n, p, n);
        memset(o->at + o->n + n, 0, -n & 7);
    }
    o->n += n + (-n & 7);
}

static void put_i64(out *o, int64_t v) { put_item_bytes(o, &v, sizeof v); }

static void put_str(out *o, const char *s) { /* length + 1, bytes, NUL; 0 for NULL */
    size_t n = s ? strlen(s) + 1 : 0;
    put_i64(o, (int64_t)n);
    if (n) put_item_bytes(o, s, n);
}

typedef void (*encode_fn)(out *o, const void *item);

bt_record *bt_record_empty(const bt_record_head *head) {
    bt_record *r = malloc(sizeof *r + head->bytes);
    if (r) *r = (bt_record){NULL, *head};
    return r;
}

static bt_record *build_record(bt_record_head head, encode_fn encode, const void *item) {
    out o = {NULL, 0};
    encode(&o, item);
    if (o.n > UINT32_MAX) return NULL;
    head.bytes = (uint32_t)o.n;
    bt_record *r = bt_record_empty(&head);
    if (!r) return NULL;
    o = (out){r->data, 0};
    encode(&o, item);
    return r;
}

typedef struct rank_list {
    const bt_rank_info *ranks;
    size_t n;
} rank_list;

static void encode_rank_infos(out *o, const void *item) {
    const rank_list *l = item;
    for (size_t i = 0; i < l->n; i++) put_item_bytes(o, &l->ranks[i], sizeof l->ranks[i]);
}

static void encode_fact(out *o, const void *item) {
    const char *const *kv = item;
    put_str(o, kv[0]);
    put_str(o, kv[1]);
}

static void encode_step(out *o, const void *item) {
    const bt_step_record *r = item;
    put_i64(o, r->wall_us);
    put_item_bytes(o, r->values, sizeof(double) * BT_MS_COUNT);
    if (r->rank_values && r->n_ranks > 0)
        put_item_bytes(o, r->rank_values, sizeof(double) * (size_t)r->n_ranks * BT_MR_COUNT);
}

/* Format: scope, all values, then the keys row by row. */
static void encode_row_record(out *o, const void *item) {
    const bt_row_record *r = item;
    const bt_scope_row *scope = &bt_scopes[r->scope];
    const bt_key *key = r->keys;
    put_i64(o, r->scope);
    put_item_bytes(o, r->values, sizeof(double) * r->n * (size_t)scope->n);
    for (size_t i = 0; i < r->n; i++) {
        for (int k = 0; k < scope->n_keys; k++, key++) {
            if (scope->key[k].text)
                put_str(o, key->s ? key->s : "");
            else
                put_i64(o, key->i);
        }
    }
}

static void encode_event(out *o, const void *item) {
    const bt_event *e = item;
    put_i64(o, e->kind);
    put_i64(o, e->rank);
    put_i64(o, e->wall_us);
    put_str(o, e->title ? e->title : "");
    put_str(o, e->body);
}

static void encode_ckpt(out *o, const void *item) {
    const bt_ckpt_record *c = item;
    put_i64(o, c->wall_us);
    put_i64(o, c->bytes);
    put_i64(o, c->took_us);
    put_str(o, c->path ? c->path : "");
    put_str(o, c->hash);
}

static void encode_result(out *o, const void *item) { put_str(o, item); }

bt_record *bt_record_ranks(const bt_rank_info *ranks, size_t n) {
    const bt_record_head head = {.kind = BT_REC_RANKS, .step = -1, .rows = (uint32_t)n};
    return build_record(head, encode_rank_infos, &(rank_list){ranks, n});
}
bt_record *bt_record_fact(const char *key, const char *value) {
    const bt_record_head head = {.kind = BT_REC_FACT, .step = -1};
    return build_record(head, encode_fact, (const char *[]){key, value});
}
bt_record *bt_record_step(const bt_step_record *r) {
    const bt_record_head head = {.kind = BT_REC_STEP,
                                 .step = r->step,
                                 .rank_rows =
                                     r->rank_values && r->n_ranks > 0 ? (uint32_t)r->n_ranks : 0};
    return build_record(head, encode_step, r);
}
bt_record *bt_record_rows(const bt_row_record *r) {
    const bt_record_head head = {.kind = BT_REC_ROWS, .step = r->step, .rows = (uint32_t)r->n};
    return build_record(head, encode_row_record, r);
}
bt_record *bt_record_event(const bt_event *e) {
    const bt_record_head head = {.kind = BT_REC_EVENT, .step = e->step < 0 ? -1 : e->step};
    return build_record(head, encode_event, e);
}
bt_record *bt_record_ckpt(const bt_ckpt_record *c) {
    const bt_record_head head = {.kind = BT_REC_CKPT, .step = c->step};
    return build_record(head, encode_ckpt, c);
}
bt_record *bt_record_result(const char *json) {
    const bt_record_head head = {.kind = BT_REC_RESULT, .step = -1};
    return build_record(head, encode_result, json);
}

uint32_t bt_record_drop_ranks(bt_record *r) {
    uint32_t ranks = r->head.rank_rows;
    r->head.bytes -= ranks * (uint32_t)sizeof(double) * BT_MR_COUNT;
    r->head.rank_rows = 0;
    return ranks;
}

/* ---- decoding -------------------------------------------------------------------------------- */

typedef struct in {
    const unsigned char *at;
    size_t left;
    bool bad;
} in;

static const void *get_padded_bytes(in *i, size_t n) {
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
    const void *p = get_padded_bytes(i, 8);
    int64_t v = 0;
    if (p) memcpy(&v, p, sizeof v);
    return v;
}

static const char *get_str(in *i) {
    int64_t n = get_i64(i);
    if (n == 0) return NULL;
    if (n < 0 || (uint64_t)n > i->left) i->bad = true;
    const char *s = get_padded_bytes(i, (size_t)n);
    if (s && s[n - 1] != 0) i->bad = true;
    return i->bad ? NULL : s;
}

static const char *get_required_text(in *i) { /* the string must not be NULL */
    const char *s = get_str(i);
    if (!s) i->bad = true;
    return s;
}

static bool is_fully_read(const in *i) { return !i->bad && i->left == 0; }
static bool is_int32_from(int64_t v, int64_t least) { return v >= least && v <= INT32_MAX; }

static bool deliver_ranks(in *i, const bt_record_head *h, const bt_sink *s) {
    enum { A_RANK = (sizeof(bt_rank_info) + 7) & ~(size_t)7 };
    if (i->left != (size_t)h->rows * A_RANK) return false;
    bt_rank_info *copy = s->ranks ? malloc(i->left + 1) : NULL;
    if (!copy) return true;
    for (uint32_t k = 0; k < h->rows; k++) {
        memcpy(&copy[k], get_padded_bytes(i, sizeof *copy), sizeof *copy);
        copy[k].host[sizeof copy[k].host - 1] = 0;
        copy[k].isa[sizeof copy[k].isa - 1] = 0;
    }
    s->ranks(s->ctx, copy, h->rows);
    free(copy);
    return true;
}

static bool deliver_fact(in *i, const bt_record_head *h, const bt_sink *s) {
    (void)h;
    const char *key = get_required_text(i), *value = get_str(i);
    if (!is_fully_read(i)) return false;
    if (s->fact) s->fact(s->ctx, key, value ? value : "");
    return true;
}

static bool deliver_step(in *i, const bt_record_head *h, const bt_sink *s) {
    bt_step_record r = {.step = h->step, .wall_us = get_i64(i), .n_ranks = (int)h->rank_rows};
    r.values = get_padded_bytes(i, sizeof(double) * BT_MS_COUNT);
    if (h->rank_rows > INT32_MAX || i->left != (size_t)h->rank_rows * sizeof(double) * BT_MR_COUNT)
        return false;
    r.rank_values = h->rank_rows ? get_padded_bytes(i, i->left) : NULL;
    if (!is_fully_read(i) || r.step < 0) return false;
    if (s->step) s->step(s->ctx, &r);
    return true;
}

/* keys: NULL, or room for the keys of all rows. The smallest key is -1: not applicable. */
static bool read_keys(in *i, const bt_scope_row *scope, uint32_t rows, bt_key *keys) {
    for (uint32_t k = 0; k < rows * (uint32_t)scope->n_keys && !i->bad; k++) {
        bt_key key;
        if (scope->key[k % (uint32_t)scope->n_keys].text) {
            key.s = get_required_text(i);
        } else {
            key.i = get_i64(i);
            if (!is_int32_from(key.i, -1)) i->bad = true;
        }
        if (keys) keys[k] = key;
    }
    return is_fully_read(i);
}

static bool deliver_rows(in *i, const bt_record_head *h, const bt_sink *s) {
    int64_t id = get_i64(i);
    if (i->bad || id < 0 || id >= BT_SCOPE_COUNT || h->step < 0) return false;
    const bt_scope_row *scope = &bt_scopes[id];
    if (scope->kept != BT_KEPT_SAMPLED) return false;
    bt_row_record r = {.scope = (bt_scope)id, .step = h->step, .n = h->rows};
    r.values = get_padded_bytes(i, sizeof(double) * (size_t)scope->n * h->rows);
    in look = *i;
    if (!read_keys(&look, scope, h->rows, NULL)) return false;
    bt_key *keys = s->rows ? malloc(sizeof *keys * ((size_t)h->rows * (size_t)scope->n_keys + 1))
                           : NULL;
    if (!keys) return true;
    r.keys = keys;
    if (read_keys(i, scope, h->rows, keys)) s->rows(s->ctx, &r);
    free(keys);
    return true;
}

static bool deliver_event(in *i, const bt_record_head *h, const bt_sink *s) {
    int64_t kind = get_i64(i), rank = get_i64(i), wall = get_i64(i);
    bt_event e = {.kind = (bt_event_kind)kind, .step = h->step, .rank = (int)rank, .wall_us = wall};
    e.title = get_required_text(i);
    e.body = get_str(i);
    if (!is_fully_read(i) || kind < 0 || kind >= BT_EVENT_COUNT || !is_int32_from(rank, INT32_MIN))
        return false;
    if (s->event) s->event(s->ctx, &e);
    return true;
}

static bool deliver_ckpt(in *i, const bt_record_head *h, const bt_sink *s) {
    bt_ckpt_record c = {.step = h->step, .wall_us = get_i64(i)};
    c.bytes = get_i64(i);
    c.took_us = get_i64(i);
    c.path = get_required_text(i);
    c.hash = get_str(i);
    if (!is_fully_read(i)) return false;
    if (s->checkpoint) s->checkpoint(s->ctx, &c);
    return true;
}

static bool deliver_result(in *i, const bt_record_head *h, const bt_sink *s) {
    (void)h;
    const char *json = get_required_text(i);
    if (!is_fully_read(i)) return false;
    if (s->result) s->result(s->ctx, json);
    return true;
}

bool bt_record_deliver(const bt_record_head *head, const void *data, const bt_sink *into) {
    static bool (*const deliver[BT_REC_COUNT])(in *, const bt_record_head *, const bt_sink *) = {
        [BT_REC_RANKS] = deliver_ranks,  [BT_REC_FACT] = deliver_fact,
        [BT_REC_STEP] = deliver_step,    [BT_REC_ROWS] = deliver_rows,
        [BT_REC_EVENT] = deliver_event,  [BT_REC_CKPT] = deliver_ckpt,
        [BT_REC_RESULT] = deliver_result};
    in i = {data, head->bytes, false};
    return head->kind > 0 && head->kind < BT_REC_COUNT && deliver[head->kind](&i, head, into);
}

void bt_records_free(bt_record *list) {
    while (list) {
        bt_record *next = list->next;
        free(list);
        list = next;
    }
}

/* ---- hash of the tables ---------------------------------------------------------------------- */

/* To be incremented with every change of the encoding that is not in a table. Version 2 added times of checkpoints. */
enum { LAYOUT = 2 };

static uint64_t add_word_to_hash(uint64_t h, const char *word) {
    return h * 31 + bt_hash_name(word);
}

uint64_t bt_record_mark(void) {
    uint64_t h = sizeof(bt_rank_info) + ((uint64_t)LAYOUT << 32);
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        const bt_scope_row *scope = &bt_scopes[s];
        h = add_word_to_hash(h, scope->name);
        for (int k = 0; k < scope->n_keys; k++)
            h = add_word_to_hash(h, scope->key[k].name) + scope->key[k].text;
        for (int i = 0; i < scope->n; i++)
            h = add_word_to_hash(h, scope->metric[i].key) + (uint64_t)scope->metric[i].unit;
    }
    for (int k = 0; k < BT_EVENT_COUNT; k++) h = add_word_to_hash(h, bt_events[k].name);
    return h;
}
