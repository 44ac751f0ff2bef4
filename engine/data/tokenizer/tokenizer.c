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
    bt_added_names_destroy(t->names);
    bt_added_names_destroy(t->names_normalized);
    free(t->added);
    free(t->merges);
    free(t->chat_template);
    for (size_t i = 0; i < BT_KEPT_FILES; i++) free(t->kept[i]);
    free(t);
}

int bt_tokenizer_vocab(const bt_tokenizer *t) { return t->V; }
uint64_t bt_tokenizer_hash(const bt_tokenizer *t) { return t->hash; }
int32_t bt_tokenizer_eot(const bt_tokenizer *t) { return t->eot; }
const char *bt_tokenizer_kind(const bt_tokenizer *t) { return t->kind; }

/* NULL: no text names this token */
static const bt_added *added_of(const bt_tokenizer *t, int32_t id) {
    size_t lo = 0, hi = t->n_added;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (t->added[mid].id == id) return &t->added[mid];
        if (t->added[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

bool bt_tokenizer_is_special(const bt_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->V) return false;
    const bt_added *a = added_of(t, id);
    return t->special[id] == BT_TOKEN_HOLE || (a && a->special);
}

bool bt_tokenizer_is_added(const bt_tokenizer *t, int32_t id) {
    const bt_added *a = added_of(t, id);
    return a && !a->special;
}

bool bt_tokenizer_has_flags(const bt_tokenizer *t) {
    bool any = false;
    for (size_t i = 0; i < t->n_added; i++)
        any |= t->added[i].lstrip || t->added[i].rstrip || t->added[i].single_word;
    return any;
}

int32_t bt_tokenizer_named(const bt_tokenizer *t, const char *name, size_t n) {
    for (size_t i = 0; i < t->n_added; i++) {
        size_t k;
        const char *bytes = bt_tokenizer_bytes(t, t->added[i].id, &k);
        if (k == n && memcmp(bytes, name, n) == 0) return t->added[i].id;
    }
    return -1;
}

void bt_tokenizer_look(const bt_tokenizer *t, bt_tokenizer_about *out) {
    *out = (bt_tokenizer_about){t->kind,
                                t->is_bytes ? "none" : bt_pattern_name(t->pattern),
                                t->nfc ? "nfc" : "none",
                                t->n_merges,
                                0,
                                0,
                                0};
    for (int i = 0; i < t->V; i++) out->holes += t->special[i] == BT_TOKEN_HOLE;
    for (size_t i = 0; i < t->n_added; i++) {
        out->specials += t->added[i].special;
        out->added += !t->added[i].special;
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

static bool may_end_text(const bt_tokenizer *t, int32_t id) {
    const bt_added *a = added_of(t, id);
    return a && a->special;
}

const bt_token_roles *bt_tokenizer_roles(const bt_tokenizer *t) { return &t->roles; }

bool bt_token_roles_add_end(bt_token_roles *roles, int32_t id) {
    for (size_t i = 0; i < roles->n_ends; i++)
        if (roles->ends[i] == id) return true;
    if (roles->n_ends == BT_ENDS_MAX) return false;
    roles->ends[roles->n_ends++] = id;
    return true;
}

size_t bt_tokenizer_set_roles(bt_tokenizer *t, const bt_token_roles *roles) {
    bt_token_roles *r = &t->roles;
    size_t left_out = 0;
    bool found = false;
    *r = (bt_token_roles){.known = roles->known, .bos = roles->bos, .pad = roles->pad};
    if (r->bos >= t->V) r->bos = -1, left_out++;
    if (r->pad >= t->V) r->pad = -1, left_out++;
    for (size_t i = 0; i < roles->n_ends; i++) {
        const int32_t id = roles->ends[i];
        if (id < 0 || id >= t->V) {
            left_out++;
            continue;
        }
        r->ends[r->n_ends++] = id;
        if (!found && may_end_text(t, id)) t->eot = id, found = true;
    }
    return left_out;
}

bool bt_tokenizer_is_end(const bt_tokenizer *t, int32_t id) {
    if (id == t->eot) return true;
    for (size_t i = 0; i < t->roles.n_ends; i++)
        if (t->roles.ends[i] == id) return true;
    return false;
}

size_t bt_tokenizer_ends(const bt_tokenizer *t, int32_t ends[BT_ENDS_MAX]) {
    if (!t->roles.known) {
        ends[0] = t->eot;
        return t->eot >= 0;
    }
    memcpy(ends, t->roles.ends, sizeof t->roles.ends);
    return t->roles.n_ends;
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
    if (*count + n > *cap) {
        int32_t *p = realloc(*ids, (*count + n) * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu token ids", n);
        *ids = p;
        *cap = *count + n;
    }
    for (size_t i = 0; i < n; i++) (*ids)[*count + i] = (unsigned char)text[i];
    *count += n;
    return BT_OK;
}

static bt_code append_ids(const int32_t *more, size_t n, int32_t **ids, size_t *count, size_t *cap,
                          bt_err *err) {
    if (*count + n > *cap) {
        const size_t size = *count + n + 64;
        int32_t *p = realloc(*ids, size * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu token ids", size);
        *ids = p;
        *cap = size;
    }
    if (n) memcpy(*ids + *count, more, n * sizeof *more);
    *count += n;
    return BT_OK;
}

const int32_t *bt_tokenizer_affix(const bt_tokenizer *t, bool behind, size_t *n) {
    *n = behind ? t->n_suffix : t->n_prefix;
    return behind ? t->suffix : t->prefix;
}

void bt_tokenizer_tell_affixes(const bt_tokenizer *t, bt_text *out) {
    for (int behind = 0; behind < 2; behind++) {
        size_t n, k;
        const int32_t *ids = bt_tokenizer_affix(t, behind, &n);
        for (size_t i = 0; i < n; i++) {
            const char *name = bt_tokenizer_bytes(t, ids[i], &k);
            bt_text_put(out, i        ? ", "
                             : behind ? out->len ? ", ends with " : "ends with "
                                      : "begins with ");
            bt_text_printf(out, "'%.*s' (token %d)", (int)k, name, ids[i]);
        }
    }
}

bool bt_tokenizer_ends_texts(const bt_tokenizer *t) {
    return t->n_suffix && t->eot >= 0 && t->suffix[t->n_suffix - 1] == t->eot;
}

bt_code bt_tokenizer_encode_as(const bt_tokenizer *t, unsigned how, const char *text, size_t n,
                               int32_t **ids, size_t *count, size_t *cap, bt_err *err) {
    const bool whole = how & BT_ENCODE_WHOLE;
    *count = 0;
    if (whole) BT_TRY(append_ids(t->prefix, t->n_prefix, ids, count, cap, err));
    if (t->is_bytes)
        BT_TRY(encode_bytes(text, n, ids, count, cap, err));
    else
        BT_TRY(bt_bpe_encode(t, how & BT_ENCODE_SPECIAL, text, n, ids, count, cap, err));
    return whole ? append_ids(t->suffix, t->n_suffix, ids, count, cap, err) : BT_OK;
}

bt_code bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t n, int32_t **ids,
                            size_t *count, size_t *cap, bt_err *err) {
    return bt_tokenizer_encode_as(t, BT_ENCODE_TEXT, text, n, ids, count, cap, err);
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
    if (kind != BT_TOKEN_SPECIAL && kind != BT_TOKEN_ADDED) return BT_OK;
    return bt_draft_name(d, &(bt_added){.special = kind == BT_TOKEN_SPECIAL}, err);
}

bt_code bt_draft_name(bt_tokenizer_draft *d, const bt_added *how, bt_err *err) {
    bt_tokenizer *t = d->t;
    const int32_t id = t->V - 1;
    if (t->n_added && t->added[t->n_added - 1].id == id) t->n_added--;
    if (t->n_added == d->added_cap) {
        const size_t cap = d->added_cap ? 2 * d->added_cap : 64;
        bt_added *p = realloc(t->added, cap * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu added tokens", cap);
        t->added = p;
        d->added_cap = cap;
    }
    t->added[t->n_added] = *how;
    t->added[t->n_added++].id = id;
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

/* every rule that decides which ids a text gets; eot decides none and is not part of it */
static uint64_t content_hash(const bt_tokenizer *t) {
    uint32_t rules[6] = {(uint32_t)t->is_bytes, t->ignore_merges,     t->nfc, t->pattern,
                         (uint32_t)t->V,        (uint32_t)t->n_merges};
    uint64_t h = XXH3_64bits(rules, sizeof rules);
    h = XXH3_64bits_withSeed(t->at, ((size_t)t->V + 1) * sizeof *t->at, h);
    h = XXH3_64bits_withSeed(t->bytes, t->at[t->V], h);
    h = XXH3_64bits_withSeed(t->special, (size_t)t->V, h);
    h = XXH3_64bits_withSeed(t->merges, t->n_merges * sizeof *t->merges, h);
    /* what tokenizers of earlier versions do not have must leave their hash as it is */
    for (size_t i = 0; i < t->n_added; i++) {
        const bt_added *a = &t->added[i];
        const int32_t facts[3] = {a->id, t->special[a->id],
                                  a->special | a->lstrip << 1 | a->rstrip << 2 |
                                      a->single_word << 3 | a->normalized << 4};
        if (facts[1] != BT_TOKEN_SPECIAL || facts[2] != 1)
            h = XXH3_64bits_withSeed(facts, sizeof facts, h);
    }
    if (t->n_prefix) h = XXH3_64bits_withSeed(t->prefix, t->n_prefix * sizeof *t->prefix, h ^ 1);
    if (t->n_suffix) h = XXH3_64bits_withSeed(t->suffix, t->n_suffix * sizeof *t->suffix, h ^ 2);
    return h;
}

static bt_code check_affix(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_err *err) {
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->V || t->special[ids[i]] == BT_TOKEN_HOLE)
            return bt_fail(err, BT_FORMAT, "the token %d around a text is not in the vocabulary",
                           ids[i]);
    return BT_OK;
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
    BT_TRY(check_affix(t, t->prefix, t->n_prefix, err));
    BT_TRY(check_affix(t, t->suffix, t->n_suffix, err));
    if (t->eot >= 0 && !may_end_text(t, t->eot))
        return bt_fail(err, BT_FORMAT, "the end-of-text token %d is not a special token", t->eot);
    if (t->is_bytes) {
        snprintf(t->kind, sizeof t->kind, "bytes");
    } else {
        BT_TRY(bt_bpe_create(&t->bpe, t, err)); /* also resolves the merges */
        BT_TRY(bt_added_names_create(&t->names, t, false, err));
        BT_TRY(bt_added_names_create(&t->names_normalized, t, true, err));
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

bt_code bt_tokenizer_compare(const char *name, const char *json, size_t n, bool *same,
                             bt_err *err) {
    bt_tokenizer *now = NULL, *then = NULL;
    bt_code code = bt_tokenizer_load(&now, name, err);
    if (code == BT_OK) code = bt_tokenizer_parse(&then, json, n, err);
    *same = code == BT_OK && now->hash == then->hash;
    bt_tokenizer_free(now);
    bt_tokenizer_free(then);
    return code;
}
