/* tokenizer_table.c - queries of a tokenizer: bytes, names and roles of its tokens, its chat template and rules. */
#include <stdlib.h>
#include <string.h>

#include "engine/data/tokenizer/tokenizer_impl.h"

int bt_tokenizer_vocab(const bt_tokenizer *t) { return t->V; }

uint64_t bt_tokenizer_hash(const bt_tokenizer *t) { return t->hash; }

int32_t bt_tokenizer_eot(const bt_tokenizer *t) { return t->eot; }

const char *bt_tokenizer_kind(const bt_tokenizer *t) { return t->kind; }

/* Returns the entry of a token that a name in a text can create; NULL: none. */
static const bt_added *find_added_entry(const bt_tokenizer *t, int32_t id) {
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

bool bt_tokenizer_may_end(const bt_tokenizer *t, int32_t id) {
    const bt_added *a = find_added_entry(t, id);
    return a && a->special;
}

bool bt_tokenizer_is_special(const bt_tokenizer *t, int32_t id) {
    if (id < 0 || id >= t->V) return false;
    const bt_added *a = find_added_entry(t, id);
    return t->special[id] == BT_TOKEN_HOLE || (a && a->special);
}

bool bt_tokenizer_is_added(const bt_tokenizer *t, int32_t id) {
    const bt_added *a = find_added_entry(t, id);
    return a && !a->special;
}

bool bt_tokenizer_has_flags(const bt_tokenizer *t) {
    bool any = false;
    for (size_t i = 0; i < t->n_added; i++)
        any |= t->added[i].lstrip || t->added[i].rstrip || t->added[i].single_word;
    return any;
}

const char *bt_tokenizer_raw(const bt_tokenizer *t, int32_t id, size_t *n) {
    if (id < 0 || id >= t->V) {
        *n = 0;
        return "";
    }
    *n = t->at[id + 1] - t->at[id];
    return t->bytes + t->at[id];
}

const char *bt_tokenizer_bytes(const bt_tokenizer *t, int32_t id, size_t *n) {
    if (!t->shown || id < 0 || id >= t->V) return bt_tokenizer_raw(t, id, n);
    *n = t->shown_at[id + 1] - t->shown_at[id];
    return t->shown + t->shown_at[id];
}

unsigned bt_tokenizer_continues(const bt_tokenizer *t, int32_t last) {
    const bool again = t->marked.how == BT_SPACES_PREPEND || t->marked.how == BT_SPACES_ALWAYS;
    return last < 0 || (again && find_added_entry(t, last)) ? BT_ENCODE_TEXT : BT_ENCODE_MORE;
}

const char *bt_tokenizer_spaces(const bt_tokenizer *t) {
    return bt_tokenizer_marks(t) ? bt_spaces_name(t->marked.how) : NULL;
}

bool bt_tokenizer_is_unigram(const bt_tokenizer *t) { return t->scores != NULL; }

int32_t bt_tokenizer_unknown(const bt_tokenizer *t) {
    return t->scores && !t->byte_fallback ? t->unknown : -1;
}

bool bt_tokenizer_prefixes(const bt_tokenizer *t) { return bt_spaces_prefixes(t->marked.how); }

bool bt_tokenizer_is_merged(const bt_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->V && t->special[id] == BT_TOKEN_PLAIN;
}

bool bt_tokenizer_is_byte(const bt_tokenizer *t, int32_t id) {
    return id >= 0 && id < t->V && t->special[id] == BT_TOKEN_BYTE;
}

int32_t bt_tokenizer_named(const bt_tokenizer *t, const char *name, size_t n) {
    for (size_t i = 0; i < t->n_added; i++) {
        size_t k;
        const char *bytes = bt_tokenizer_raw(t, t->added[i].id, &k);
        if (k == n && memcmp(bytes, name, n) == 0) return t->added[i].id;
    }
    return -1;
}

void bt_tokenizer_summarise(const bt_tokenizer *t, bt_tokenizer_about *out) {
    *out = (bt_tokenizer_about){t->kind,
                                t->is_bytes             ? "none"
                                : bt_tokenizer_marks(t) ? "sentencepiece"
                                                        : bt_pattern_name(t->pattern),
                                bt_tokenizer_marks(t) ? bt_spaces_name(t->marked.how)
                                : t->nfc              ? "nfc"
                                                      : "none",
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
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a chat template");
    free(t->chat_template);
    t->chat_template = copy;
    return BT_OK;
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
        if (!found && bt_tokenizer_may_end(t, id)) t->eot = id, found = true;
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

const int32_t *bt_tokenizer_affix(const bt_tokenizer *t, bool behind, size_t *n) {
    *n = behind ? t->n_suffix : t->n_prefix;
    return behind ? t->suffix : t->prefix;
}

void bt_tokenizer_describe_affixes(const bt_tokenizer *t, bt_text *out) {
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

const char *bt_tokenizer_rules(const bt_tokenizer *t) { return t->rules; }

bt_code bt_tokenizer_set_rules(bt_tokenizer *t, const char *rules, bt_err *err) {
    bt_pretok *p = NULL;
    for (int k = 0; k < BT_PATTERN_COUNT; k++) {
        if (strcmp(rules, bt_pattern_regex((bt_pattern)k)) != 0) continue;
        t->pattern = (bt_pattern)k;
        return BT_OK;
    }
    BT_TRY(bt_pretok_create(&p, BT_PATTERN_RULES, rules, err));
    bt_pretok_destroy(p);
    t->pattern = BT_PATTERN_RULES;
    t->rules = strdup(rules);
    return t->rules ? BT_OK
                    : bt_fail(err, BT_NOMEM, "cannot allocate memory for the word patterns");
}
