/* tokenizer_draft.c - builds a tokenizer from tokens in the order of ids and from merges, checks and hashes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/data/tokenizer/tokenizer_impl.h"

void bt_tokenizer_free(bt_tokenizer *t) {
    if (!t) return;
    bt_bpe_destroy(t->bpe);
    bt_unigram_destroy(t->unigram);
    free(t->scores);
    free(t->bytes);
    free(t->at);
    free(t->shown);
    free(t->shown_at);
    free(t->pairs);
    free(t->special);
    bt_added_names_destroy(t->names);
    bt_added_names_destroy(t->names_normalized);
    free(t->added);
    free(t->merges);
    free(t->chat_template);
    free(t->rules);
    for (size_t i = 0; i < BT_KEPT_FILES; i++) free(t->kept[i]);
    free(t);
}

bt_code bt_draft_begin(bt_tokenizer_draft *d, bt_err *err) {
    *d = (bt_tokenizer_draft){.t = calloc(1, sizeof *d->t)};
    if (!d->t) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a tokenizer");
    d->t->eot = -1;
    return BT_OK;
}

void bt_draft_release(bt_tokenizer_draft *d) {
    bt_tokenizer_free(d->t);
    d->t = NULL;
}

bt_code bt_draft_name(bt_tokenizer_draft *d, const bt_added *how, bt_err *err) {
    bt_tokenizer *t = d->t;
    const int32_t id = t->V - 1;
    if (t->n_added && t->added[t->n_added - 1].id == id) t->n_added--;
    if (t->n_added == d->added_cap) {
        const size_t cap = d->added_cap ? 2 * d->added_cap : 64;
        bt_added *p = realloc(t->added, cap * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu added tokens", cap);
        t->added = p;
        d->added_cap = cap;
    }
    t->added[t->n_added] = *how;
    t->added[t->n_added++].id = id;
    return BT_OK;
}

bt_code bt_draft_token(bt_tokenizer_draft *d, const char *bytes, size_t n, int kind, bt_err *err) {
    bt_tokenizer *t = d->t;
    if (t->V == BT_MAX_VOCAB)
        return bt_fail(err, BT_FORMAT, "a vocabulary has at most %d tokens", BT_MAX_VOCAB);
    if (n > BT_MAX_TOKEN_BYTES)
        return bt_fail(err, BT_FORMAT, "token %d has %zu bytes; at most %d are allowed", t->V, n,
                       BT_MAX_TOKEN_BYTES);
    if (d->bytes_n + n > INT32_MAX)
        return bt_fail(err, BT_FORMAT, "the tokens have more than 2 GiB of text");
    if (t->V + 1 >= d->V_cap) {
        int cap = d->V_cap ? 2 * d->V_cap : 1024;
        uint32_t *at = realloc(t->at, ((size_t)cap + 1) * sizeof *at);
        if (at) t->at = at;
        unsigned char *sp = realloc(t->special, (size_t)cap);
        if (sp) t->special = sp;
        if (!at || !sp) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d tokens", cap);
        d->V_cap = cap;
    }
    if (d->bytes_n + n + 1 > d->bytes_cap) {
        size_t cap = 2 * (d->bytes_n + n) + 4096;
        char *p = realloc(t->bytes, cap);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for tokens", cap);
        t->bytes = p;
        d->bytes_cap = cap;
    }
    if (n) memcpy(t->bytes + d->bytes_n, bytes, n);
    t->at[t->V] = (uint32_t)d->bytes_n;
    t->special[t->V++] = (unsigned char)kind;
    d->bytes_n += n;
    t->at[t->V] = (uint32_t)d->bytes_n;
    if (kind != BT_TOKEN_SPECIAL && kind != BT_TOKEN_ADDED) return BT_OK;
    return bt_draft_name(d, &(bt_added){.special = kind == BT_TOKEN_SPECIAL}, err);
}

bt_code bt_draft_merge(bt_tokenizer_draft *d, int32_t left, int32_t right, bt_err *err) {
    bt_tokenizer *t = d->t;
    if (t->n_merges == d->merges_cap) {
        size_t cap = d->merges_cap ? 2 * d->merges_cap : 1024;
        bt_merge *p = realloc(t->merges, cap * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu merges", cap);
        t->merges = p;
        d->merges_cap = cap;
    }
    t->merges[t->n_merges++] = (bt_merge){left, right, -1};
    return BT_OK;
}

/* Hashes everything that affects the ids of a text; the end-of-text token does not. */
static uint64_t content_hash(const bt_tokenizer *t) {
    uint32_t rules[6] = {(uint32_t)t->is_bytes, t->ignore_merges,     t->nfc, t->pattern,
                         (uint32_t)t->V,        (uint32_t)t->n_merges};
    uint64_t h = XXH3_64bits(rules, sizeof rules);
    h = XXH3_64bits_withSeed(t->at, ((size_t)t->V + 1) * sizeof *t->at, h);
    h = XXH3_64bits_withSeed(t->bytes, t->at[t->V], h);
    h = XXH3_64bits_withSeed(t->special, (size_t)t->V, h);
    h = XXH3_64bits_withSeed(t->merges, t->n_merges * sizeof *t->merges, h);
    /* A tokenizer without features of version 2 has the same hash as in version 1. */
    for (size_t i = 0; i < t->n_added; i++) {
        const bt_added *a = &t->added[i];
        const int32_t facts[3] = {a->id, t->special[a->id],
                                  a->special | a->lstrip << 1 | a->rstrip << 2 |
                                      a->single_word << 3 | a->normalized << 4};
        if (facts[1] != BT_TOKEN_SPECIAL || facts[2] != 1)
            h = XXH3_64bits_withSeed(facts, sizeof facts, h);
    }
    if (bt_tokenizer_marks(t)) {
        const uint32_t marks[2] = {t->marked.how, t->marked.split};
        h = XXH3_64bits_withSeed(marks, sizeof marks, h ^ 4);
    }
    if (t->scores) {
        const uint32_t unknown[2] = {(uint32_t)t->unknown, t->byte_fallback};
        h = XXH3_64bits_withSeed(unknown, sizeof unknown, h ^ 5);
        h = XXH3_64bits_withSeed(t->scores, t->n_scores * sizeof *t->scores, h);
    }
    if (t->rules) h = XXH3_64bits_withSeed(t->rules, strlen(t->rules), h ^ 3);
    if (t->n_prefix) h = XXH3_64bits_withSeed(t->prefix, t->n_prefix * sizeof *t->prefix, h ^ 1);
    if (t->n_suffix) h = XXH3_64bits_withSeed(t->suffix, t->n_suffix * sizeof *t->suffix, h ^ 2);
    return h;
}

static bt_code check_affix(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->V || t->special[ids[i]] == BT_TOKEN_HOLE)
            return bt_fail(
                err, BT_FORMAT,
                "token %d, which is added before or after a text, is not in the vocabulary",
                ids[i]);
    return BT_OK;
}

static bt_code add_marked_tables(bt_tokenizer *t, bt_err *err) {
    t->shown = malloc((size_t)t->at[t->V] + 1);
    t->shown_at = calloc((size_t)t->V + 1, sizeof *t->shown_at);
    t->pairs = calloc(1, sizeof *t->pairs);
    if (!t->shown || !t->shown_at || !t->pairs)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d tokens", t->V);
    uint32_t at = 0;
    for (int32_t i = 0; i < t->V; i++) {
        size_t n;
        const char *raw = bt_tokenizer_raw(t, i, &n);
        t->shown_at[i] = at;
        if (t->special[i] == BT_TOKEN_BYTE) {
            if (t->scores) bt_byte_pairs_add(t->pairs, raw, n);
            t->shown[at++] = (char)bt_marked_byte(raw, n);
            continue;
        }
        if (!t->special[i]) bt_byte_pairs_add(t->pairs, raw, n);
        if (n) memcpy(t->shown + at, raw, n);
        at += (uint32_t)bt_marked_shown(t->shown + at, n);
    }
    t->shown_at[t->V] = at;
    return BT_OK;
}

static int byte_of_token(const bt_tokenizer *t, int32_t i) {
    size_t n;
    const char *raw = bt_tokenizer_raw(t, i, &n);
    if (bt_tokenizer_marks(t)) return t->special[i] == BT_TOKEN_BYTE ? bt_marked_byte(raw, n) : -1;
    return !t->special[i] && n == 1 ? (unsigned char)*raw : -1;
}

/* Checks that every token that a text can contain has a score, and that unused ids have none. */
static bt_code check_scores(const bt_tokenizer *t, bt_err *err) {
    if (!bt_tokenizer_marks(t) || t->n_scores > (size_t)t->V || t->unknown < 0 ||
        (size_t)t->unknown >= t->n_scores)
        return bt_fail(err, BT_FORMAT,
                       "a Unigram model must mark spaces, and its unknown token and its %zu scores "
                       "must be within its %d tokens",
                       t->n_scores, t->V);
    for (int32_t i = 0; i < t->V; i++) {
        const bool scored = (size_t)i < t->n_scores, hole = t->special[i] == BT_TOKEN_HOLE;
        if (scored ? hole
                   : t->special[i] == BT_TOKEN_PLAIN || t->special[i] == BT_TOKEN_BYTE || hole)
            return bt_fail(err, BT_FORMAT, "token %d has %s", i,
                           scored ? "a score, but no text" : "no score");
    }
    return BT_OK;
}

static bool unknown_token_covers_bytes(const bt_tokenizer *t) {
    return t->scores && !t->byte_fallback;
}

static bt_code seal_tokenizer(bt_tokenizer *t, bt_err *err) {
    bool seen[256] = {false};
    if (!t->V) return bt_fail(err, BT_FORMAT, "the vocabulary is empty");
    for (int32_t i = 0; i < t->V; i++) {
        if (!t->special[i] && t->at[i] == t->at[i + 1])
            return bt_fail(err, BT_FORMAT, "token %d is empty", i);
        const int c = byte_of_token(t, i);
        if (t->special[i] == BT_TOKEN_BYTE && (c < 0 || seen[c]))
            return bt_fail(err, BT_FORMAT,
                           "token %d is not a byte token, or another token has the same byte", i);
        if (c < 0) continue;
        seen[c] = true;
        t->byte_id[c] = i;
    }
    for (int i = 0; i < 256; i++)
        if (!seen[i] && !unknown_token_covers_bytes(t))
            return bt_fail(
                err, BT_FORMAT,
                "no token represents the byte 0x%02x, so this is not a byte-level vocabulary",
                (unsigned)i);
    if (t->scores) BT_TRY(check_scores(t, err));
    if (bt_tokenizer_marks(t)) BT_TRY(add_marked_tables(t, err));
    BT_TRY(check_affix(t, t->prefix, t->n_prefix, err));
    BT_TRY(check_affix(t, t->suffix, t->n_suffix, err));
    if (t->eot >= 0 && !bt_tokenizer_may_end(t, t->eot))
        return bt_fail(err, BT_FORMAT, "the end-of-text token %d is not a special token", t->eot);
    if (t->is_bytes) {
        snprintf(t->kind, sizeof t->kind, "bytes");
    } else {
        BT_TRY(bt_bpe_create(&t->bpe, t, err)); /* also sets the resulting token of each merge */
        BT_TRY(bt_added_names_create(&t->names, t, false, err));
        BT_TRY(bt_added_names_create(&t->names_normalized, t, true, err));
        if (t->scores) BT_TRY(bt_unigram_create(&t->unigram, t, err));
        snprintf(t->kind, sizeof t->kind, "%s %d", t->scores ? "unigram" : "bpe", t->V);
    }
    t->hash = content_hash(t);
    return BT_OK;
}

bt_code bt_draft_seal(bt_tokenizer_draft *d, bt_tokenizer **out, bt_err *err) {
    bt_code code = seal_tokenizer(d->t, err);
    *out = NULL;
    if (code == BT_OK) {
        *out = d->t;
        d->t = NULL;
    }
    bt_draft_release(d);
    return code;
}

bt_code bt_tokenizer_make_bytes(bt_tokenizer **out, bt_err *err) {
    bt_tokenizer_draft d;
    *out = NULL;
    BT_TRY(bt_draft_begin(&d, err));
    d.t->is_bytes = true;
    bt_code code = BT_OK;
    for (int i = 0; i < 256 && code == BT_OK; i++)
        code = bt_draft_token(&d, &(char){(char)i}, 1, BT_TOKEN_PLAIN, err);
    if (code == BT_OK) return bt_draft_seal(&d, out, err);
    bt_draft_release(&d);
    return code;
}
