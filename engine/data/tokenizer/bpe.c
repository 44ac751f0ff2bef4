/* bpe.c - cuts a text into words (pretok.h) and caches their ids. A new word is merged pair by pair, lowest rank first,
 * leftmost first, or divided by scores (unigram.h). A linear search finds the best pair of a short word, a heap that of
 * a long word. */
#include "engine/data/tokenizer/bpe.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/tokenizer_impl.h"
#include "engine/data/tokenizer/unicode.h"

enum { SHORT_WORD = 48, CACHE_WORD = 64, CACHE_SLOTS = 1 << 17, NO_RANK = INT32_MAX };

/* Pairs are stored + 1, so pair 0 is an unused slot. */
typedef struct merge_slot {
    uint64_t pair;
    int32_t rank, id;
} merge_slot;

typedef struct cached {
    uint64_t hash;
    uint32_t text, ids;
    uint16_t n_text, n_ids;
} cached;

/* A symbol of a long word; id -1: it was merged into another symbol. */
typedef struct node {
    int32_t id, prev, next;
} node;
typedef struct candidate {
    int32_t rank, at, left, right;
} candidate;

typedef struct encoder {  /* working memory of one encoding call */
    struct encoder *next; /* next encoder in the list of idle encoders */
    bt_pretok *pretok;
    cached *slots;
    size_t used;
    char *text; /* Text of at most CACHE_SLOTS / 2 cached words of at most CACHE_WORD bytes. */
    int32_t *ids;
    size_t n_text, n_ids;
    node *nodes;
    candidate *heap;
    size_t nodes_cap, heap_cap, n_heap;
    bt_lattice lattice;
} encoder;

struct bt_bpe {
    int32_t *tokens; /* hash table of ids; -1: unused */
    size_t tokens_mask;
    merge_slot *merges;
    size_t merges_mask;
    /* Idle encoders with their cached words, one for each caller that ever ran concurrently; guarded by the lock. */
    pthread_mutex_t lock;
    encoder *idle;
};

static size_t hash_table_size(size_t n) {
    size_t size = 64;
    while (size < 2 * n) size *= 2;
    return size;
}

static bool token_has_bytes(const bt_tokenizer *t, int32_t id, const char *bytes, size_t n) {
    return t->at[id + 1] - t->at[id] == n && memcmp(t->bytes + t->at[id], bytes, n) == 0;
}

static int32_t find_token(const bt_tokenizer *t, const bt_bpe *b, const char *bytes, size_t n) {
    for (size_t i = XXH3_64bits(bytes, n) & b->tokens_mask; b->tokens[i] >= 0;
         i = (i + 1) & b->tokens_mask)
        if (token_has_bytes(t, b->tokens[i], bytes, n)) return b->tokens[i];
    return -1;
}

static uint64_t pack_token_pair(int32_t left, int32_t right) {
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}
static uint64_t hash_word(uint64_t x) {
    x *= 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

static const merge_slot *find_merge(const bt_bpe *b, int32_t left, int32_t right) {
    uint64_t pair = pack_token_pair(left, right);
    for (size_t i = hash_word(pair) & b->merges_mask;; i = (i + 1) & b->merges_mask) {
        if (b->merges[i].pair == pair) return &b->merges[i];
        if (!b->merges[i].pair) return NULL;
    }
}

static bt_code add_tokens(bt_bpe *b, const bt_tokenizer *t, bt_err *err) {
    size_t size = hash_table_size((size_t)t->V);
    b->tokens = malloc(size * sizeof *b->tokens);
    if (!b->tokens) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d tokens", t->V);
    memset(b->tokens, -1, size * sizeof *b->tokens);
    b->tokens_mask = size - 1;
    for (int32_t id = 0; id < t->V; id++) {
        if (t->special[id]) continue;
        const char *bytes = t->bytes + t->at[id];
        size_t n = t->at[id + 1] - t->at[id];
        int32_t twin = find_token(t, b, bytes, n);
        if (twin >= 0)
            return bt_fail(err, BT_FORMAT, "tokens %d and %d have the same bytes", twin, id);
        size_t i = XXH3_64bits(bytes, n) & b->tokens_mask;
        while (b->tokens[i] >= 0) i = (i + 1) & b->tokens_mask;
        b->tokens[i] = id;
    }
    return BT_OK;
}

static bt_code index_merges(bt_bpe *b, bt_tokenizer *t, bt_err *err) {
    size_t size = hash_table_size(t->n_merges);
    b->merges = calloc(size, sizeof *b->merges);
    char *joined = malloc(2 * BT_MAX_TOKEN_BYTES);
    bt_code code = b->merges && joined
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu merges",
                                 t->n_merges);
    b->merges_mask = size - 1;
    for (size_t r = 0; code == BT_OK && r < t->n_merges; r++) {
        bt_merge *m = &t->merges[r];
        if (m->left < 0 || m->right < 0 || m->left >= t->V || m->right >= t->V ||
            t->special[m->left] || t->special[m->right]) {
            code = bt_fail(err, BT_FORMAT,
                           "merge %zu joins %d and %d, but one of them is not an ordinary token of "
                           "the vocabulary of %d tokens",
                           r, m->left, m->right, t->V);
            break;
        }
        size_t nl = t->at[m->left + 1] - t->at[m->left], nr = t->at[m->right + 1] - t->at[m->right];
        memcpy(joined, t->bytes + t->at[m->left], nl);
        memcpy(joined + nl, t->bytes + t->at[m->right], nr);
        m->id = find_token(t, b, joined, nl + nr);
        if (m->id < 0) {
            code = bt_fail(err, BT_FORMAT,
                           "merge %zu of %d and %d results in bytes for which there is no token", r,
                           m->left, m->right);
        } else if (find_merge(b, m->left, m->right)) {
            code = bt_fail(err, BT_FORMAT, "merge %zu of %d and %d occurs twice", r, m->left,
                           m->right);
        } else {
            size_t i = hash_word(pack_token_pair(m->left, m->right)) & b->merges_mask;
            while (b->merges[i].pair) i = (i + 1) & b->merges_mask;
            b->merges[i] = (merge_slot){pack_token_pair(m->left, m->right), (int32_t)r, m->id};
        }
    }
    free(joined);
    return code;
}

static void encoder_destroy(encoder *e) {
    if (!e) return;
    bt_pretok_destroy(e->pretok);
    free(e->slots);
    free(e->text);
    free(e->ids);
    free(e->nodes);
    free(e->heap);
    free(e->lattice.ends);
    free(e);
}

static bt_code encoder_create(encoder **out, const bt_tokenizer *t, bt_err *err) {
    encoder *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return bt_fail(err, BT_NOMEM, "cannot allocate memory to encode text");
    bt_code code = bt_tokenizer_marks(t) ? BT_OK
                                         : bt_pretok_create(&e->pretok, t->pattern, t->rules, err);
    e->slots = calloc(CACHE_SLOTS, sizeof *e->slots);
    e->text = malloc((size_t)CACHE_SLOTS / 2 * CACHE_WORD);
    e->ids = malloc((size_t)CACHE_SLOTS / 2 * CACHE_WORD * sizeof *e->ids);
    if (code == BT_OK && (!e->slots || !e->text || !e->ids))
        code = bt_fail(err, BT_NOMEM, "cannot allocate memory to encode text");
    if (code == BT_OK) {
        *out = e;
    } else {
        encoder_destroy(e);
    }
    return code;
}

bt_code bt_bpe_create(bt_bpe **out, bt_tokenizer *t, bt_err *err) {
    bt_bpe *b = calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a tokenizer");
    pthread_mutex_init(&b->lock, NULL);
    bt_code code = add_tokens(b, t, err);
    if (code == BT_OK) code = index_merges(b, t, err);
    if (code != BT_OK) {
        bt_bpe_destroy(b);
        return code;
    }
    *out = b;
    return BT_OK;
}

void bt_bpe_destroy(bt_bpe *b) {
    if (!b) return;
    for (encoder *e; (e = b->idle) != NULL;) {
        b->idle = e->next;
        encoder_destroy(e);
    }
    pthread_mutex_destroy(&b->lock);
    free(b->tokens);
    free(b->merges);
    free(b);
}

int32_t bt_bpe_token(const bt_tokenizer *t, const char *bytes, size_t n) {
    return find_token(t, t->bpe, bytes, n);
}

bool bt_bpe_merges(const bt_tokenizer *t, int32_t left, int32_t right) {
    return find_merge(t->bpe, left, right) != NULL;
}

static void look_up_merge(const bt_bpe *b, const int32_t *ids, size_t i, int32_t *rank,
                          int32_t *made) {
    const merge_slot *m = find_merge(b, ids[i], ids[i + 1]);
    rank[i] = m ? m->rank : NO_RANK;
    made[i] = m ? m->id : -1;
}

/* Sets the ids of the initial symbols of a word, and returns their number. The symbols are bytes; if spaces are marked,
 * they are characters, and the bytes of each character without a token. */
static size_t set_initial_symbols(const bt_tokenizer *t, const char *word, size_t n, int32_t *ids) {
    size_t count = 0;
    for (size_t i = 0, k; i < n; i += k) {
        k = bt_tokenizer_marks(t) ? bt_utf8_char(word + i, n - i) : 0;
        const int32_t whole = k ? find_token(t, t->bpe, word + i, k) : -1;
        if (!k) k = 1;
        if (whole >= 0) ids[count++] = whole;
        for (size_t j = 0; whole < 0 && j < k; j++)
            ids[count++] = t->byte_id[(unsigned char)word[i + j]];
    }
    return count;
}

static size_t merge_short_word(const bt_tokenizer *t, const char *word, size_t n, int32_t *ids) {
    /* rank and resulting token of the pair that begins at symbol i */
    int32_t rank[SHORT_WORD], made[SHORT_WORD];
    n = set_initial_symbols(t, word, n, ids);
    for (size_t i = 0; i + 1 < n; i++) look_up_merge(t->bpe, ids, i, rank, made);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == NO_RANK) break;
        ids[best] = made[best];
        n--;
        for (size_t i = best + 1; i < n; i++) ids[i] = ids[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            made[i] = made[i + 1];
        }
        if (best) look_up_merge(t->bpe, ids, best - 1, rank, made);
        if (best + 1 < n) look_up_merge(t->bpe, ids, best, rank, made);
    }
    return n;
}

static bool has_lower_rank(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(encoder *e, candidate c) {
    size_t i = e->n_heap++;
    for (; i && has_lower_rank(&c, &e->heap[(i - 1) / 2]); i = (i - 1) / 2)
        e->heap[i] = e->heap[(i - 1) / 2];
    e->heap[i] = c;
}

static candidate heap_pop(encoder *e) {
    candidate top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < e->n_heap; i = k) {
        if (k + 1 < e->n_heap && has_lower_rank(&e->heap[k + 1], &e->heap[k])) k++;
        if (!has_lower_rank(&e->heap[k], &last)) break;
        e->heap[i] = e->heap[k];
    }
    e->heap[i] = last;
    return top;
}

static void push_merge_candidate(encoder *e, const bt_bpe *b, int32_t at) {
    if (at < 0 || e->nodes[at].next < 0) return;
    int32_t left = e->nodes[at].id, right = e->nodes[e->nodes[at].next].id;
    const merge_slot *m = find_merge(b, left, right);
    if (m) heap_push(e, (candidate){m->rank, at, left, right});
}

/* The heap has at most 3n candidates: n at the beginning and two for each merge. */
static bt_code merge_long(const bt_tokenizer *t, encoder *e, const char *word, size_t n,
                          int32_t *ids, size_t *count, bt_err *err) {
    if (n > INT32_MAX / 4)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "a word of %zu bytes is too long for the tokenizer: separate the text by spaces", n);
    if (n > e->nodes_cap) {
        free(e->nodes);
        free(e->heap);
        e->nodes = malloc(n * sizeof *e->nodes);
        e->heap = malloc(3 * n * sizeof *e->heap);
        e->nodes_cap = e->nodes && e->heap ? n : 0;
        if (!e->nodes_cap)
            return bt_fail(err, BT_NOMEM, "cannot allocate memory for a word of %zu bytes", n);
    }
    const int32_t last = (int32_t)set_initial_symbols(t, word, n, ids) - 1;
    e->n_heap = 0;
    for (int32_t i = 0; i <= last; i++) e->nodes[i] = (node){ids[i], i - 1, i < last ? i + 1 : -1};
    for (int32_t i = 0; i < last; i++) push_merge_candidate(e, t->bpe, i);
    while (e->n_heap) {
        candidate c = heap_pop(e);
        node *l = &e->nodes[c.at];
        if (l->id != c.left || l->next < 0 || e->nodes[l->next].id != c.right) continue;
        node *r = &e->nodes[l->next];
        l->id = find_merge(t->bpe, c.left, c.right)->id;
        r->id = -1;
        l->next = r->next;
        if (l->next >= 0) e->nodes[l->next].prev = c.at;
        push_merge_candidate(e, t->bpe, l->prev);
        push_merge_candidate(e, t->bpe, c.at);
    }
    *count = 0;
    for (int32_t i = 0; i >= 0; i = e->nodes[i].next) ids[(*count)++] = e->nodes[i].id;
    return BT_OK;
}

static bt_code merge_word(const bt_tokenizer *t, encoder *e, const char *word, size_t n,
                          int32_t *ids, size_t *count, bt_err *err) {
    if (t->scores) return bt_unigram_word(t, &e->lattice, word, n, ids, count, err);
    int32_t whole = t->ignore_merges ? find_token(t, t->bpe, word, n) : -1;
    if (whole >= 0) {
        ids[0] = whole;
        *count = 1;
        return BT_OK;
    }
    if (n > SHORT_WORD) return merge_long(t, e, word, n, ids, count, err);
    *count = merge_short_word(t, word, n, ids);
    return BT_OK;
}

static bt_code encode_word(const bt_tokenizer *t, encoder *e, const char *word, size_t n,
                           int32_t *ids, size_t *count, bt_err *err) {
    const bool continues = t->scores && !t->marked.split; /* ids depend on the previous words */
    if (n > CACHE_WORD || continues) return merge_word(t, e, word, n, ids, count, err);
    uint64_t hash = XXH3_64bits(word, n) | 1; /* 0 marks a free slot */
    size_t i = hash >> 16 & (CACHE_SLOTS - 1);
    for (; e->slots[i].hash; i = (i + 1) & (CACHE_SLOTS - 1)) {
        const cached *c = &e->slots[i];
        if (c->hash != hash || c->n_text != n || memcmp(e->text + c->text, word, n) != 0) continue;
        for (size_t k = 0; k < c->n_ids; k++) ids[k] = e->ids[c->ids + k];
        *count = c->n_ids;
        return BT_OK;
    }
    BT_TRY(merge_word(t, e, word, n, ids, count, err));
    if (e->used == CACHE_SLOTS / 2) {
        memset(e->slots, 0, CACHE_SLOTS * sizeof *e->slots);
        e->used = e->n_text = e->n_ids = 0;
        i = hash >> 16 & (CACHE_SLOTS - 1);
    }
    e->slots[i] = (cached){hash, (uint32_t)e->n_text, (uint32_t)e->n_ids, (uint16_t)n,
                           (uint16_t)*count};
    memcpy(e->text + e->n_text, word, n);
    memcpy(e->ids + e->n_ids, ids, *count * sizeof *ids);
    e->n_text += n;
    e->n_ids += *count;
    e->used++;
    return BT_OK;
}

static bt_code grow_ids(int32_t **ids, size_t *cap, size_t want, bt_err *err) {
    if (want <= *cap) return BT_OK;
    size_t size = want + want / 4 + 256;
    int32_t *p = realloc(*ids, size * sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu token ids", size);
    *ids = p;
    *cap = size;
    return BT_OK;
}

static bt_code encode_words_of_text(const bt_tokenizer *t, encoder *e, const char *text, size_t n,
                                    int32_t **ids, size_t *count, size_t *cap, bt_err *err) {
    size_t done = *count;
    const bool apart = t->scores && t->marked.split; /* words end only at marks of spaces */
    for (size_t at = 0, end; at < n; at = end) {
        size_t k;
        if (apart || at == 0) e->lattice.score = 0, e->lattice.unknown = false;
        if (t->pairs)
            end = bt_marked_word_end(apart ? NULL : t->pairs, t->marked.split, text, n, at);
        else
            BT_TRY(bt_pretok_next(e->pretok, text, n, at, &end, err));
        if (done + (end - at) > *cap)
            BT_TRY(grow_ids(ids, cap, done + (end - at) + (n - at) / 3, err));
        BT_TRY(encode_word(t, e, text + at, end - at, *ids + done, &k, err));
        done += k;
    }
    *count = done;
    return BT_OK;
}

typedef struct encoding { /* one call of bt_bpe_encode */
    const bt_tokenizer *t;
    encoder *e;
    bool special;     /* true: names of special tokens become these tokens */
    bool continues;   /* true: the text continues a previous text */
    const char *text; /* beginning of the text */
    int32_t **ids;
    size_t *count, *cap;
} encoding;

static bt_code add_id(const encoding *c, int32_t id, bt_err *err) {
    BT_TRY(grow_ids(c->ids, c->cap, *c->count + 1, err));
    (*c->ids)[(*c->count)++] = id;
    return BT_OK;
}

/* Returns how spaces are marked in the text between two added tokens. */
static bt_marked stretch_marks(const encoding *c, const char *text) {
    bt_marked m = c->t->marked;
    if (c->continues && text == c->text && bt_spaces_prefixes(m.how))
        m.how = m.how == BT_SPACES_PREPEND ? BT_SPACES_REPLACE : BT_SPACES_NEVER;
    return m;
}

static bt_code mark_and_encode_words(const encoding *c, const char *text, size_t n, bt_err *err) {
    const bt_tokenizer *t = c->t;
    const bt_marked m = stretch_marks(c, text);
    char *marked = NULL;
    if (bt_tokenizer_marks(t) && !bt_spaces_normalises(t->marked.how))
        BT_TRY(bt_marked_text(&m, text, n, text == c->text, &marked, &n, err));
    const bt_code code = encode_words_of_text(t, c->e, marked ? marked : text, n, c->ids, c->count,
                                              c->cap, err);
    free(marked);
    return code;
}

typedef bt_code (*encode_rest_fn)(const encoding *c, const char *text, size_t n, bt_err *err);

/* Encodes the added tokens that `names` finds; `rest` encodes the text between them. */
static bt_code encode_added_and_rest(const encoding *c, const bt_added_names *names,
                                     const char *text, size_t n, encode_rest_fn rest, bt_err *err) {
    bt_added_hit hit = {0};
    size_t done = 0;
    while (bt_added_next(names, text, n, c->special, &hit)) {
        if (hit.begin > done) BT_TRY(rest(c, text + done, hit.begin - done, err));
        BT_TRY(add_id(c, hit.id, err));
        done = hit.end;
    }
    return done < n ? rest(c, text + done, n - done, err) : BT_OK;
}

/* Encodes text between added tokens that are searched before normalisation. */
static bt_code encode_stretch(const encoding *c, const char *text, size_t n, bt_err *err) {
    char *normal = NULL;
    const bt_marked marked = stretch_marks(c, text);
    if (bt_spaces_normalises(marked.how))
        BT_TRY(bt_marked_text(&marked, text, n, false, &normal, &n, err));
    else if (c->t->nfc)
        BT_TRY(bt_unicode_nfc(text, n, &normal, &n, err));
    const bt_code code = encode_added_and_rest(c, c->t->names_normalized, normal ? normal : text, n,
                                               mark_and_encode_words, err);
    free(normal);
    return code;
}

static encoder *take_idle_encoder(bt_bpe *b) {
    pthread_mutex_lock(&b->lock);
    encoder *e = b->idle;
    if (e) b->idle = e->next;
    pthread_mutex_unlock(&b->lock);
    return e;
}

static void put_idle_encoder(bt_bpe *b, encoder *e) {
    pthread_mutex_lock(&b->lock);
    e->next = b->idle;
    b->idle = e;
    pthread_mutex_unlock(&b->lock);
}

bt_code bt_bpe_encode(const bt_tokenizer *t, unsigned how, const char *text, size_t n,
                      int32_t **ids, size_t *count, size_t *cap, bt_err *err) {
    encoder *e = take_idle_encoder(t->bpe);
    if (!e) BT_TRY(encoder_create(&e, t, err));
    const encoding c = {.t = t,
                        .e = e,
                        .special = how & BT_ENCODE_SPECIAL,
                        .continues = how & BT_ENCODE_MORE,
                        .text = text,
                        .ids = ids,
                        .count = count,
                        .cap = cap};
    const bt_code code = encode_added_and_rest(&c, t->names, text, n, encode_stretch, err);
    put_idle_encoder(t->bpe, e);
    return code;
}
