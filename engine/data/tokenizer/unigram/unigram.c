/* unigram.c - finds the division of a word with the highest sum of scores by a prefix tree and dynamic programming. */
#include "engine/data/tokenizer/unigram/unigram.h"

#include <stdlib.h>
#include <string.h>

#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

enum { FIRST_SLOTS = 1 << 12, MAX_BYTES = 1 << 25, PENALTY = 10 };

/* An edge of the tree. key 0: unused (parent and byte are stored + 1). */
typedef struct tree_slot {
    uint64_t key;
    uint32_t child;
} tree_slot;

struct bt_unigram {
    tree_slot *slots;
    size_t mask;
    int32_t *ids; /* by node: the token that ends here, -1: none */
    uint32_t n, cap;
    double unknown_score;
};

static tree_slot *slot_of(const bt_unigram *u, uint32_t node, unsigned char byte) {
    const uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    uint64_t x = key * 0x9E3779B97F4A7C15u;
    for (size_t i = (x ^ x >> 29) & u->mask;; i = (i + 1) & u->mask)
        if (u->slots[i].key == key || !u->slots[i].key) return &u->slots[i];
}

static bt_code grow_tree(bt_unigram *u, bt_err *err) {
    if (2 * (size_t)(u->n + 1) > u->mask) {
        bt_unigram larger = {.mask = 2 * u->mask + 1};
        larger.slots = calloc(larger.mask + 1, sizeof *larger.slots);
        if (!larger.slots) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
        for (size_t i = 0; i <= u->mask; i++) {
            const uint64_t edge = u->slots[i].key - 1;
            if (!u->slots[i].key) continue;
            *slot_of(&larger, (uint32_t)(edge >> 8), (unsigned char)edge) = u->slots[i];
        }
        free(u->slots);
        u->slots = larger.slots;
        u->mask = larger.mask;
    }
    if (u->n < u->cap) return BT_OK;
    const uint32_t cap = u->cap ? 2 * u->cap : FIRST_SLOTS;
    int32_t *ids = realloc(u->ids, cap * sizeof *ids);
    if (!ids) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    u->ids = ids;
    u->cap = cap;
    return BT_OK;
}

static bt_code plant_token(bt_unigram *u, const char *s, size_t n, int32_t id, bt_err *err) {
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        BT_TRY(grow_tree(u, err));
        tree_slot *slot = slot_of(u, node, (unsigned char)s[i]);
        if (!slot->key) {
            u->ids[u->n] = -1;
            *slot = (tree_slot){((uint64_t)node << 8 | (unsigned char)s[i]) + 1, u->n++};
        }
        node = slot->child;
    }
    u->ids[node] = id;
    return BT_OK;
}

static bt_code plant_all(bt_unigram *u, const bt_tokenizer *t, bt_err *err) {
    double lowest = t->n_scores ? t->scores[0] : 0;
    BT_TRY(grow_tree(u, err));
    u->ids[u->n++] = -1; /* the root */
    for (size_t id = 0; id < t->n_scores; id++) {
        if (t->scores[id] < lowest) lowest = t->scores[id];
        if (t->special[id] != BT_TOKEN_PLAIN && t->special[id] != BT_TOKEN_BYTE) continue;
        BT_TRY(plant_token(u, t->bytes + t->at[id], t->at[id + 1] - t->at[id], (int32_t)id, err));
    }
    u->unknown_score = lowest - PENALTY;
    return BT_OK;
}

bt_code bt_unigram_create(bt_unigram **out, const bt_tokenizer *t, bt_err *err) {
    *out = NULL;
    if (t->at[t->V] > MAX_BYTES)
        return bt_fail(err, BT_UNSUPPORTED, "the tokens of a Unigram model hold more than 32 MiB");
    bt_unigram *u = calloc(1, sizeof *u);
    if (!u) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    u->slots = calloc(FIRST_SLOTS, sizeof *u->slots);
    u->mask = FIRST_SLOTS - 1;
    const bt_code code = u->slots ? plant_all(u, t, err)
                                  : bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    if (code == BT_OK)
        *out = u;
    else
        bt_unigram_destroy(u);
    return code;
}

void bt_unigram_destroy(bt_unigram *u) {
    if (!u) return;
    free(u->slots);
    free(u->ids);
    free(u);
}

/* Records a path to position `at` if it is better than the path found before. */
static void offer_path(bt_lattice *l, size_t from, size_t at, double score, int32_t id) {
    bt_path_end *end = &l->ends[at];
    if (end->from >= 0 && !(score > end->score)) return;
    *end = (bt_path_end){score, (int32_t)from, id};
}

static void find_paths(const bt_tokenizer *t, bt_lattice *l, const char *word, size_t n) {
    const bt_unigram *u = t->unigram;
    for (size_t i = 0; i <= n; i++) l->ends[i].from = -1;
    l->ends[0] = (bt_path_end){l->score, 0, -1};
    for (size_t at = 0, k; at < n; at += k) {
        const double score = l->ends[at].score;
        bool single = false;
        k = bt_utf8_char(word + at, n - at);
        if (!k) k = 1;
        uint32_t node = 0;
        for (size_t i = at; i < n; i++) {
            const tree_slot *slot = slot_of(u, node, (unsigned char)word[i]);
            if (!slot->key) break;
            node = slot->child;
            const int32_t id = u->ids[node];
            if (id < 0) continue;
            offer_path(l, at, i + 1, t->scores[id] + score, id);
            single |= i + 1 == at + k;
        }
        if (!single) offer_path(l, at, at + k, u->unknown_score + score, t->unknown);
    }
}

static int32_t find_in_tree(const bt_unigram *u, const char *s, size_t n) {
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        const tree_slot *slot = slot_of(u, node, (unsigned char)s[i]);
        if (!slot->key) return -1;
        node = slot->child;
    }
    return u->ids[node];
}

/* Writes the tokens of characters without one backwards, before ids[at]; returns the new place. */
static size_t put_unknown(const bt_tokenizer *t, const bt_lattice *l, const char *word,
                          size_t begin, size_t n, int32_t *ids, size_t at) {
    const int32_t whole = find_in_tree(t->unigram, word + begin, n);
    if (whole < 0 && t->byte_fallback) {
        while (n--) ids[--at] = t->byte_id[(unsigned char)word[begin + n]];
        return at;
    }
    if (whole >= 0)
        ids[--at] = whole;
    else if (begin || !l->unknown)
        ids[--at] = t->unknown;
    return at;
}

bt_code bt_unigram_word(const bt_tokenizer *t, bt_lattice *l, const char *word, size_t n,
                        int32_t *ids, size_t *count, bt_err *err) {
    if (n > INT32_MAX / 4)
        return bt_fail(err, BT_UNSUPPORTED, "a word of %zu bytes is too long for the tokenizer", n);
    if (n + 1 > l->cap) {
        free(l->ends);
        l->ends = malloc((n + 64) * sizeof *l->ends);
        l->cap = l->ends ? n + 64 : 0;
        if (!l->ends)
            return bt_fail(err, BT_NOMEM, "cannot allocate memory for a word of %zu bytes", n);
    }
    find_paths(t, l, word, n);
    size_t at = n; /* no more tokens than bytes */
    for (size_t end = n; end;) {
        size_t begin = (size_t)l->ends[end].from;
        if (l->ends[end].id != t->unknown) {
            ids[--at] = l->ends[end].id;
        } else {
            while (begin && l->ends[begin].id == t->unknown) begin = (size_t)l->ends[begin].from;
            at = put_unknown(t, l, word, begin, end - begin, ids, at);
        }
        end = begin;
    }
    *count = n - at;
    memmove(ids, ids + at, *count * sizeof *ids);
    l->score = l->ends[n].score;
    l->unknown = l->ends[n].id == t->unknown;
    return BT_OK;
}
