/* tokenizer.c - the byte tokenizer, and what bytes and BPE have in common: building, checking,
 * hashing, decoding. */
#include "engine/data/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/data/io/file_io.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

enum { MAX_FILE = 128 << 20 };

void bt_tokenizer_free(bt_tokenizer *t) {
    if (!t) return;
    bt_bpe_destroy(t->bpe);
    free(t->bytes);
    free(t->at);
    free(t->special);
    free(t->merges);
    free(t->chat_template);
    free(t);
}

int bt_tokenizer_vocab(const bt_tokenizer *t) { return t->V; }
uint64_t bt_tokenizer_hash(const bt_tokenizer *t) { return t->hash; }
int32_t bt_tokenizer_eot(const bt_tokenizer *t) { return t->eot; }
const char *bt_tokenizer_kind(const bt_tokenizer *t) { return t->kind; }
bool bt_tokenizer_is_special(const bt_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->V && t->special[id];
}

void bt_tokenizer_look(const bt_tokenizer *t, bt_tokenizer_about *out) {
    *out = (bt_tokenizer_about){t->kind,
                                t->is_bytes ? "none" : bt_pattern_name(t->pattern),
                                t->nfc ? "nfc" : "none",
                                t->n_merges,
                                0,
                                0};
    for (int i = 0; i < t->V; i++) {
        out->specials += t->special[i] == BT_TOKEN_SPECIAL;
        out->holes += t->special[i] == BT_TOKEN_HOLE;
    }
}

const char *bt_tokenizer_chat_template(const bt_tokenizer *t) { return t->chat_template; }

bt_code bt_tokenizer_set_chat_template(bt_tokenizer *t, const char *text, bt_err *err) {
    char *copy = text && *text ? strdup(text) : NULL;
    if (text && *text && !copy)
        return bt_fail(err, BT_NOMEM, "cannot take memory for a chat template");
    free(t->chat_template);
    t->chat_template = copy;
    return BT_OK;
}

bt_code bt_tokenizer_set_eot(bt_tokenizer *t, int32_t id, bt_err *err) {
    if (id < 0 || id >= t->V || t->special[id] != BT_TOKEN_SPECIAL)
        return bt_fail(err, BT_ARG, "the end-of-text token %d is not a special token", id);
    t->eot = id;
    return BT_OK;
}

const char *bt_tokenizer_bytes(const bt_tokenizer *t, int32_t id, size_t *n) {
    if (id < 0 || id >= t->V) {
        *n = 0;
        return "";
    }
    *n = t->at[id + 1] - t->at[id];
    return t->bytes + t->at[id];
}

void bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_text *out) {
    for (size_t i = 0; i < n; i++) {
        size_t k;
        const char *s = bt_tokenizer_bytes(t, ids[i], &k);
        bt_text_putn(out, s, k);
    }
}

static bt_code encode_bytes(const char *text, size_t n, int32_t **ids, size_t *count, size_t *cap,
                            bt_err *err) {
    if (n > *cap) {
        int32_t *p = realloc(*ids, n * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu token ids", n);
        *ids = p;
        *cap = n;
    }
    for (size_t i = 0; i < n; i++) (*ids)[i] = (unsigned char)text[i];
    *count = n;
    return BT_OK;
}

bt_code bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t n, int32_t **ids,
                            size_t *count, size_t *cap, bt_err *err) {
    *count = 0;
    if (t->is_bytes) return encode_bytes(text, n, ids, count, cap, err);
    return bt_bpe_encode(t, text, n, ids, count, cap, err);
}

/* ---- building ---- */

bt_code bt_draft_begin(bt_tokenizer_draft *d, bt_err *err) {
    *d = (bt_tokenizer_draft){.t = calloc(1, sizeof *d->t)};
    if (!d->t) return bt_fail(err, BT_NOMEM, "cannot take memory for a tokenizer");
    d->t->eot = -1;
    return BT_OK;
}

void bt_draft_release(bt_tokenizer_draft *d) {
    bt_tokenizer_free(d->t);
    d->t = NULL;
}

bt_code bt_draft_token(bt_tokenizer_draft *d, const char *bytes, size_t n, int kind, bt_err *err) {
    bt_tokenizer *t = d->t;
    if (t->V == BT_MAX_VOCAB)
        return bt_fail(err, BT_FORMAT, "a vocabulary has at most %d tokens", BT_MAX_VOCAB);
    if (n > BT_MAX_TOKEN_BYTES)
        return bt_fail(err, BT_FORMAT, "token %d has %zu bytes; at most %d are allowed", t->V, n,
                       BT_MAX_TOKEN_BYTES);
    if (d->bytes_n + n > INT32_MAX)
        return bt_fail(err, BT_FORMAT, "the tokens hold more than 2 GiB");
    if (t->V + 1 >= d->V_cap) {
        int cap = d->V_cap ? 2 * d->V_cap : 1024;
        uint32_t *at = realloc(t->at, ((size_t)cap + 1) * sizeof *at);
        if (at) t->at = at;
        unsigned char *sp = realloc(t->special, (size_t)cap);
        if (sp) t->special = sp;
        if (!at || !sp) return bt_fail(err, BT_NOMEM, "cannot take memory for %d tokens", cap);
        d->V_cap = cap;
    }
    if (d->bytes_n + n + 1 > d->bytes_cap) {
        size_t cap = 2 * (d->bytes_n + n) + 4096;
        char *p = realloc(t->bytes, cap);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot take %zu bytes for tokens", cap);
        t->bytes = p;
        d->bytes_cap = cap;
    }
    if (n) memcpy(t->bytes + d->bytes_n, bytes, n);
    t->at[t->V] = (uint32_t)d->bytes_n;
    t->special[t->V++] = (unsigned char)kind;
    d->bytes_n += n;
    t->at[t->V] = (uint32_t)d->bytes_n;
    return BT_OK;
}

bt_code bt_draft_merge(bt_tokenizer_draft *d, int32_t left, int32_t right, bt_err *err) {
    bt_tokenizer *t = d->t;
    if (t->n_merges == d->merges_cap) {
        size_t cap = d->merges_cap ? 2 * d->merges_cap : 1024;
        bt_merge *p = realloc(t->merges, cap * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu merges", cap);
        t->merges = p;
        d->merges_cap = cap;
    }
    t->merges[t->n_merges++] = (bt_merge){left, right, -1};
    return BT_OK;
}

/* every rule that decides which ids a text gets; not eot, which decides none */
static uint64_t content_hash(const bt_tokenizer *t) {
    uint32_t rules[6] = {(uint32_t)t->is_bytes, t->ignore_merges,     t->nfc, t->pattern,
                         (uint32_t)t->V,        (uint32_t)t->n_merges};
    uint64_t h = XXH3_64bits(rules, sizeof rules);
    h = XXH3_64bits_withSeed(t->at, ((size_t)t->V + 1) * sizeof *t->at, h);
    h = XXH3_64bits_withSeed(t->bytes, t->at[t->V], h);
    h = XXH3_64bits_withSeed(t->special, (size_t)t->V, h);
    return XXH3_64bits_withSeed(t->merges, t->n_merges * sizeof *t->merges, h);
}

static bt_code seal(bt_tokenizer *t, bt_err *err) {
    bool seen[256] = {false};
    if (!t->V) return bt_fail(err, BT_FORMAT, "the vocabulary is empty");
    for (int32_t i = 0; i < t->V; i++) {
        unsigned char c = (unsigned char)t->bytes[t->at[i]];
        if (t->special[i]) continue;
        if (t->at[i] == t->at[i + 1]) return bt_fail(err, BT_FORMAT, "token %d is empty", i);
        if (t->at[i + 1] - t->at[i] != 1) continue;
        seen[c] = true;
        t->byte_id[c] = i;
    }
    for (int i = 0; i < 256; i++)
        if (!seen[i])
            return bt_fail(err, BT_FORMAT,
                           "no token stands for the byte 0x%02x: not a byte-level vocabulary",
                           (unsigned)i);
    if (t->eot >= t->V || (t->eot >= 0 && t->special[t->eot] != BT_TOKEN_SPECIAL))
        return bt_fail(err, BT_FORMAT, "the end-of-text token %d is not a special token", t->eot);
    if (t->is_bytes) {
        snprintf(t->kind, sizeof t->kind, "bytes");
    } else {
        BT_TRY(bt_bpe_create(&t->bpe, t, err)); /* also resolves the merges */
        snprintf(t->kind, sizeof t->kind, "bpe %d", t->V);
    }
    t->hash = content_hash(t);
    return BT_OK;
}

bt_code bt_draft_seal(bt_tokenizer_draft *d, bt_tokenizer **out, bt_err *err) {
    bt_code code = seal(d->t, err);
    *out = NULL;
    if (code == BT_OK) {
        *out = d->t;
        d->t = NULL;
    }
    bt_draft_release(d);
    return code;
}

static bt_code make_bytes(bt_tokenizer **out, bt_err *err) {
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

/* ---- files ---- */

bt_code bt_tokenizer_parse(bt_tokenizer **out, const char *json, size_t n, bt_err *err) {
    return bt_tokenizer_parse_own(out, json, n, "of the checkpoint", err);
}

bt_code bt_tokenizer_load(bt_tokenizer **out, const char *name, bt_err *err) {
    *out = NULL;
    if (strcmp(name, "bytes") == 0) return make_bytes(out, err);
    char *json;
    size_t n;
    bt_code code = bt_file_slurp(name, MAX_FILE, &json, &n, err);
    if (code == BT_NOTFOUND)
        return bt_fail(
            err, BT_NOTFOUND,
            "there is no tokenizer '%s' ('bytes', or a file made by 'bitrain tokenizer train')",
            name);
    BT_TRY(code);
    code = bt_tokenizer_parse_own(out, json, n, name, err);
    free(json);
    return code;
}
