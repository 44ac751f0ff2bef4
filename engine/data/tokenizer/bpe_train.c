/* bpe_train.c - learns merges: counts the words of a text, then repeatedly joins the most frequent pair.
 *
 * Ids: 0 to 255 are bytes, 256 is the end of text, 257 and above are merges in the order learned. Of equally frequent
 * pairs the smaller (left, right) is joined first, so the result depends only on the text. Each pair has a list of the
 * words in which it occurs; a merge changes only those. The heap has pairs with their counts when they were pushed; a
 * popped pair whose count has changed is pushed again with the new count. Cost: one pass over the text and memory for
 * its distinct words; then about log(number of pairs) steps for each changed count. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/data/io/documents.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

enum { EOT = 256, FIRST_MERGE = 257, MAX_WORD = 256 };

/* Symbols symbols[at .. at + n) of the trainer. */
typedef struct word {
    uint64_t hash;
    uint64_t count;
    uint32_t at, n;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    /* Indices of words that contained the pair when added; a word may occur twice, or no longer contain it. */
    uint32_t *words;
    uint32_t n_words, cap;
} pair;

typedef struct entry {
    int64_t count;
    uint32_t pair;
} entry;

typedef struct trainer {
    const bt_tok_train_cfg *cfg;
    bt_pretok *pretok;
    word *words; /* hash table while words are counted, then a list without gaps */
    size_t words_size, n_words;
    int32_t *symbols;
    size_t n_symbols, symbols_cap;
    pair *pairs;
    size_t n_pairs, pairs_cap;
    uint32_t *index; /* hash table: pair number + 1 */
    size_t index_size;
    entry *heap;
    size_t n_heap, heap_cap;
} trainer;

static bt_code fail_bpe_memory(bt_err *err) {
    return bt_fail(err, BT_NOMEM,
                   "cannot allocate memory to train a tokenizer: train it on less text");
}

/* Enlarges an array to at least `want` rows. NULL: out of memory; the old array is unchanged. */
static void *grow_rows(void *rows, size_t *cap, size_t want, size_t row_bytes) {
    if (want <= *cap) return rows;
    size_t size = want + want / 2 + 8;
    void *p = realloc(rows, size * row_bytes);
    if (p) *cap = size;
    return p;
}

static bool same_word(const trainer *t, const word *w, const char *s, size_t n) {
    if (w->n != n) return false;
    for (size_t i = 0; i < n; i++)
        if (t->symbols[w->at + i] != (unsigned char)s[i]) return false;
    return true;
}

static bool grow_word_table(trainer *t) {
    size_t size = t->words_size ? 2 * t->words_size : 1 << 14;
    word *table = calloc(size, sizeof *table);
    if (!table) return false;
    for (size_t i = 0; i < t->words_size; i++) {
        if (!t->words[i].n) continue;
        size_t k = t->words[i].hash & (size - 1);
        while (table[k].n) k = (k + 1) & (size - 1);
        table[k] = t->words[i];
    }
    free(t->words);
    t->words = table;
    t->words_size = size;
    return true;
}

static bt_code count_word(trainer *t, const char *s, size_t n, bt_err *err) {
    if (2 * t->n_words >= t->words_size && !grow_word_table(t)) return fail_bpe_memory(err);
    uint64_t hash = XXH3_64bits(s, n);
    size_t k = hash & (t->words_size - 1);
    for (; t->words[k].n; k = (k + 1) & (t->words_size - 1)) {
        if (t->words[k].hash != hash || !same_word(t, &t->words[k], s, n)) continue;
        t->words[k].count++;
        return BT_OK;
    }
    int32_t *symbols = t->n_symbols + n > UINT32_MAX ? NULL
                                                     : grow_rows(t->symbols, &t->symbols_cap,
                                                                 t->n_symbols + n, sizeof *symbols);
    if (!symbols) return fail_bpe_memory(err);
    t->symbols = symbols;
    for (size_t i = 0; i < n; i++) t->symbols[t->n_symbols + i] = (unsigned char)s[i];
    t->words[k] = (word){hash, 1, (uint32_t)t->n_symbols, (uint32_t)n};
    t->n_symbols += n;
    t->n_words++;
    return BT_OK;
}

static bt_code count_text(trainer *t, const char *s, size_t n, bt_err *err) {
    for (size_t at = 0, end; at < n; at = end) {
        BT_TRY(bt_pretok_next(t->pretok, s, n, at, &end, err));
        /* Long runs of dashes are split, because they need not become one token. */
        for (size_t i = at; i < end; i += MAX_WORD)
            BT_TRY(count_word(t, s + i, end - i < MAX_WORD ? end - i : MAX_WORD, err));
    }
    return BT_OK;
}

/* Determines the number of text bytes in every file; compressed and JSON files must be read for that. */
static bt_code measure_files(const trainer *t, const bt_sources *sources, uint64_t *bytes,
                             bt_err *err) {
    bt_documents *docs;
    bt_code code;
    bt_piece p;
    size_t file = 0;
    BT_TRY(bt_documents_open(&docs, sources->items, sources->n, t->cfg->field, err));
    bt_documents_rows(docs, NULL, t->cfg->skip_bad_rows);
    while ((code = bt_documents_next(docs, &p, err)) == BT_OK && p.text) {
        bytes[file] += p.n;
        file += p.file_ends;
    }
    bt_documents_close(docs);
    return code;
}

/* Counts the words in the bytes [first, end) of a file, as far as they are in the piece that begins at byte `at`. */
static bt_code count_piece(trainer *t, const bt_piece *p, uint64_t at, uint64_t first, uint64_t end,
                           bt_err *err) {
    const uint64_t from = first > at ? first - at : 0, to = end > at ? end - at : 0,
                   last = to < p->n ? to : p->n;
    return from < last ? count_text(t, p->text + from, (size_t)(last - from), err) : BT_OK;
}

/* bytes: number of text bytes of every file; NULL: no part is held out. */
static bt_code count_files(trainer *t, const bt_sources *sources, const uint64_t *bytes,
                           bt_err *err) {
    const bt_held_out *held = &t->cfg->held_out;
    bt_documents *docs;
    bt_code code;
    bt_piece p;
    size_t file = 0;
    uint64_t at = 0;
    BT_TRY(bt_documents_open(&docs, sources->items, sources->n, t->cfg->field, err));
    bt_documents_rows(docs, NULL, t->cfg->skip_bad_rows);
    while ((code = bt_documents_next(docs, &p, err)) == BT_OK && p.text) {
        const double all = bytes ? (double)bytes[file] : 0;
        const uint64_t before = bytes ? (uint64_t)(all * held->from) : UINT64_MAX,
                       behind = bytes ? (uint64_t)(all * held->to) : UINT64_MAX;
        code = count_piece(t, &p, at, 0, before, err);
        if (code == BT_OK) code = count_piece(t, &p, at, behind, UINT64_MAX, err);
        if (code != BT_OK) break;
        at += p.n;
        if (p.file_ends) file++, at = 0;
        if (t->cfg->progress)
            t->cfg->progress(t->cfg->ctx, bt_documents_done(docs) * 0.5, "counting words");
    }
    if (code == BT_OK && t->cfg->notes) bt_documents_notes(docs, t->cfg->notes);
    bt_documents_close(docs);
    return code;
}

static bt_code count_sources(trainer *t, const bt_sources *sources, bt_err *err) {
    for (size_t i = 0; i < sources->n; i++)
        if (sources->items[i].kind != BT_SOURCE_TEXT && sources->items[i].kind != BT_SOURCE_JSONL)
            return bt_fail(err, BT_ARG, "a tokenizer can be trained only on text, not on '%s'",
                           sources->items[i].path);
    if (t->cfg->held_out.from >= t->cfg->held_out.to) return count_files(t, sources, NULL, err);
    uint64_t *bytes = calloc(sources->n, sizeof *bytes);
    if (!bytes) return fail_bpe_memory(err);
    bt_code code = measure_files(t, sources, bytes, err);
    if (code == BT_OK) code = count_files(t, sources, bytes, err);
    free(bytes);
    return code;
}

static int compare_word_positions(const void *a, const void *b) {
    const word *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Converts the table to a list in the order of first occurrence. */
static void compact_words(trainer *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->words_size; i++)
        if (t->words[i].n) t->words[n++] = t->words[i];
    if (n) qsort(t->words, n, sizeof *t->words, compare_word_positions);
}

static uint64_t hash_pair(int32_t left, int32_t right) {
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return x ^ x >> 31;
}

static bool grow_pair_index(trainer *t) {
    size_t size = t->index_size ? 2 * t->index_size : 1 << 14;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index) return false;
    for (size_t i = 0; i < t->n_pairs; i++) {
        size_t k = hash_pair(t->pairs[i].left, t->pairs[i].right) & (size - 1);
        while (index[k]) k = (k + 1) & (size - 1);
        index[k] = (uint32_t)i + 1;
    }
    free(t->index);
    t->index = index;
    t->index_size = size;
    return true;
}

static pair *find_pair(trainer *t, int32_t left, int32_t right, bool add) {
    if (add && 2 * t->n_pairs >= t->index_size && !grow_pair_index(t)) return NULL;
    size_t k = hash_pair(left, right) & (t->index_size - 1);
    for (; t->index[k]; k = (k + 1) & (t->index_size - 1)) {
        pair *p = &t->pairs[t->index[k] - 1];
        if (p->left == left && p->right == right) return p;
    }
    pair *pairs = add ? grow_rows(t->pairs, &t->pairs_cap, t->n_pairs + 1, sizeof *pairs) : NULL;
    if (!pairs) return NULL;
    t->pairs = pairs;
    t->pairs[t->n_pairs] = (pair){.left = left, .right = right};
    t->index[k] = (uint32_t)++t->n_pairs;
    return &t->pairs[t->n_pairs - 1];
}

static bool add_occurrence(trainer *t, pair *p, uint32_t w) {
    p->count += (int64_t)t->words[w].count;
    if (p->n_words && p->words[p->n_words - 1] == w) return true;
    size_t cap = p->cap;
    uint32_t *words = grow_rows(p->words, &cap, (size_t)p->n_words + 1, sizeof *words);
    if (!words) return false;
    p->words = words;
    p->cap = (uint32_t)cap;
    p->words[p->n_words++] = w;
    return true;
}

static bool has_higher_count(const trainer *t, const entry *a, const entry *b) {
    if (a->count != b->count) return a->count > b->count;
    const pair *p = &t->pairs[a->pair], *q = &t->pairs[b->pair];
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static bool push_heap(trainer *t, entry e) {
    entry *heap = grow_rows(t->heap, &t->heap_cap, t->n_heap + 1, sizeof *heap);
    if (!heap) return false;
    t->heap = heap;
    size_t i = t->n_heap++;
    for (; i && has_higher_count(t, &e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = e;
    return true;
}

static entry pop_heap(trainer *t) {
    entry top = t->heap[0], last = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < t->n_heap; i = k) {
        if (k + 1 < t->n_heap && has_higher_count(t, &t->heap[k + 1], &t->heap[k])) k++;
        if (!has_higher_count(t, &t->heap[k], &last)) break;
        t->heap[i] = t->heap[k];
    }
    t->heap[i] = last;
    return top;
}

/* Joins left and right everywhere in word w. The word's count is subtracted from all its pairs before the merge and
 * added to all its pairs after it; only pairs with the joined symbol can be new. */
static bool merge_in_word(trainer *t, uint32_t w, int32_t left, int32_t right, int32_t made) {
    int32_t *s = t->symbols + t->words[w].at;
    int64_t count = (int64_t)t->words[w].count;
    uint32_t n = 0, old = t->words[w].n;
    for (uint32_t i = 0; i + 1 < old; i++) find_pair(t, s[i], s[i + 1], false)->count -= count;
    for (uint32_t i = 0; i < old; i++) {
        bool join = i + 1 < old && s[i] == left && s[i + 1] == right;
        s[n++] = join ? made : s[i];
        i += join;
    }
    t->words[w].n = n;
    for (uint32_t i = 0; i + 1 < n; i++) {
        bool fresh = s[i] == made || s[i + 1] == made;
        pair *p = find_pair(t, s[i], s[i + 1], fresh);
        if (!p) return false;
        if (!fresh)
            p->count += count;
        else if (!add_occurrence(t, p, w))
            return false;
    }
    return true;
}

static bool count_pairs(trainer *t) {
    for (uint32_t w = 0; w < t->n_words; w++) {
        const int32_t *s = t->symbols + t->words[w].at;
        for (uint32_t i = 0; i + 1 < t->words[w].n; i++) {
            pair *p = find_pair(t, s[i], s[i + 1], true);
            if (!p || !add_occurrence(t, p, w)) return false;
        }
    }
    for (uint32_t i = 0; i < t->n_pairs; i++)
        if (!push_heap(t, (entry){t->pairs[i].count, i})) return false;
    return true;
}

/* The count of the pair is 0 if no pair is left. */
static bool find_most_frequent(trainer *t, uint32_t *best) {
    while (t->n_heap) {
        entry e = pop_heap(t);
        int64_t now = t->pairs[e.pair].count;
        if (now == e.count && now > 0) {
            *best = e.pair;
            return true;
        }
        if (now > 0) push_heap(t, (entry){now, e.pair}); /* the pop has just made room */
    }
    return false;
}

static bool merge_everywhere(trainer *t, uint32_t best, int32_t made) {
    pair p = t->pairs[best]; /* its row may move */
    size_t before = t->n_pairs;
    bool ok = true;
    for (uint32_t i = 0; ok && i < p.n_words; i++)
        ok = merge_in_word(t, p.words[i], p.left, p.right, made);
    free(p.words);
    t->pairs[best].words = NULL;
    t->pairs[best].n_words = t->pairs[best].cap = 0;
    for (size_t i = before; ok && i < t->n_pairs; i++)
        ok = push_heap(t, (entry){t->pairs[i].count, (uint32_t)i});
    return ok;
}

static bt_code learn_merges(trainer *t, bt_tokenizer_draft *d, bt_err *err) {
    int32_t vocab = t->cfg->vocab;
    bt_text joined = {0};
    bt_code code = count_pairs(t) ? BT_OK : fail_bpe_memory(err);
    uint32_t best;
    for (int32_t made = FIRST_MERGE; code == BT_OK && made < vocab && find_most_frequent(t, &best);
         made++) {
        int32_t left = t->pairs[best].left, right = t->pairs[best].right;
        size_t n;
        const char *s = bt_tokenizer_bytes(d->t, left, &n);
        bt_text_clear(&joined);
        bt_text_putn(&joined, s, n);
        s = bt_tokenizer_bytes(d->t, right, &n);
        bt_text_putn(&joined, s, n);
        if (joined.failed || !merge_everywhere(t, best, made)) code = fail_bpe_memory(err);
        if (code == BT_OK)
            code = bt_draft_token(d, bt_text_str(&joined), joined.len, BT_TOKEN_PLAIN, err);
        if (code == BT_OK) code = bt_draft_merge(d, left, right, err);
        if (t->cfg->progress && made % 64 == 0)
            t->cfg->progress(t->cfg->ctx, 0.5 + 0.5 * made / vocab, "merging");
    }
    bt_text_release(&joined);
    return code;
}

static void release_bpe_trainer(trainer *t) {
    bt_pretok_destroy(t->pretok);
    for (size_t i = 0; i < t->n_pairs; i++) free(t->pairs[i].words);
    free(t->pairs);
    free(t->words);
    free(t->symbols);
    free(t->index);
    free(t->heap);
}

static bt_code train_tokenizer(trainer *t, const bt_sources *sources, bt_tokenizer **out,
                               bt_err *err) {
    bt_tokenizer_draft d;
    BT_TRY(bt_pretok_create(&t->pretok, BT_PATTERN_GPT2, NULL, err));
    BT_TRY(count_sources(t, sources, err));
    if (!t->n_words)
        return bt_fail(err, BT_ARG, "the data contain no text to train a tokenizer on");
    compact_words(t);
    BT_TRY(bt_draft_begin(&d, err));
    d.t->pattern = BT_PATTERN_GPT2;
    d.t->eot = EOT;
    bt_code code = BT_OK;
    for (int i = 0; code == BT_OK && i < 256; i++)
        code = bt_draft_token(&d, &(char){(char)i}, 1, BT_TOKEN_PLAIN, err);
    if (code == BT_OK) code = bt_draft_token(&d, "<|endoftext|>", 13, BT_TOKEN_SPECIAL, err);
    if (code == BT_OK) code = learn_merges(t, &d, err);
    if (code == BT_OK && d.t->V < t->cfg->vocab)
        code = bt_fail(err, BT_ARG,
                       "the text results in only %d tokens, but %d are requested: request fewer, "
                       "or use more text",
                       d.t->V, t->cfg->vocab);
    if (code == BT_OK) return bt_draft_seal(&d, out, err);
    bt_draft_release(&d);
    return code;
}

bt_code bt_tokenizer_train(bt_tokenizer **out, const bt_tok_train_cfg *cfg, bt_err *err) {
    trainer t = {.cfg = cfg};
    bt_sources sources;
    *out = NULL;
    if (cfg->vocab < FIRST_MERGE || cfg->vocab > BT_MAX_VOCAB)
        return bt_fail(err, BT_ARG, "a BPE vocabulary must have %d to %d tokens, not %d",
                       FIRST_MERGE, BT_MAX_VOCAB, cfg->vocab);
    BT_TRY(bt_sources_list_glob(&sources, cfg->paths, cfg->glob,
                                cfg->cache_dir ? cfg->cache_dir : "", err));
    bt_code code = train_tokenizer(&t, &sources, out, err);
    release_bpe_trainer(&t);
    bt_sources_release(&sources);
    return code;
}
