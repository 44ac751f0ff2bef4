/* added.c - finds names of added tokens by a search in a sorted list, one byte at a time. */
#include "engine/data/tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "engine/data/io/documents.h"
#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/tokenizer_impl.h"
#include "engine/data/tokenizer/unicode.h"

typedef struct name {
    char *text;
    size_t n;
    bt_added token;
} name;

struct bt_added_names {
    name *at; /* (n) sorted by their bytes */
    size_t n;
    /* begins[c]: a name begins with byte c; any_plain: a name is not a special token */
    bool begins[256], any_plain;
};

static int compare_added_names(const void *a, const void *b) {
    const name *x = a, *y = b;
    const size_t n = x->n < y->n ? x->n : y->n;
    const int order = memcmp(x->text, y->text, n);
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->token.id < y->token.id ? -1 : 1;
}

void bt_added_names_destroy(bt_added_names *a) {
    if (!a) return;
    for (size_t i = 0; i < a->n; i++) free(a->at[i].text);
    free(a->at);
    free(a);
}

static bt_code add_added_name(bt_added_names *a, const bt_tokenizer *t, const bt_added *token,
                              bt_err *err) {
    size_t n;
    const char *bytes = bt_tokenizer_raw(t, token->id, &n);
    char *text = NULL;
    if (token->normalized && bt_spaces_normalises(t->marked.how))
        BT_TRY(bt_marked_text(&t->marked, bytes, n, false, &text, &n, err));
    else if (token->normalized && t->nfc)
        BT_TRY(bt_unicode_nfc(bytes, n, &text, &n, err));
    if (!text) {
        text = malloc(n + 1);
        if (!text) return bt_fail(err, BT_NOMEM, "cannot allocate memory for added tokens");
        memcpy(text, bytes, n);
    }
    a->at[a->n++] = (name){text, n, *token};
    a->begins[(unsigned char)*text] = true;
    a->any_plain |= !token->special;
    return BT_OK;
}

bt_code bt_added_names_create(bt_added_names **out, const bt_tokenizer *t, bool normalized,
                              bt_err *err) {
    size_t n = 0;
    *out = NULL;
    for (size_t i = 0; i < t->n_added; i++) n += t->added[i].normalized == normalized;
    if (!n) return BT_OK;
    bt_added_names *a = calloc(1, sizeof *a);
    if (a) a->at = calloc(n, sizeof *a->at);
    bt_code code = a && a->at ? BT_OK
                              : bt_fail(err, BT_NOMEM, "cannot allocate memory for added tokens");
    for (size_t i = 0; code == BT_OK && i < t->n_added; i++)
        if (t->added[i].normalized == normalized) code = add_added_name(a, t, &t->added[i], err);
    if (code == BT_OK) {
        qsort(a->at, a->n, sizeof *a->at, compare_added_names);
        *out = a;
    } else {
        bt_added_names_destroy(a);
    }
    return code;
}

/* Returns the longest name at the beginning of text[0..n); NULL: none. Names at[lo..hi) equal `depth` bytes of it. */
static const name *longest_name(const bt_added_names *a, const char *text, size_t n) {
    const name *best = NULL;
    size_t lo = 0, hi = a->n;
    for (size_t depth = 0;; depth++) {
        for (; lo < hi && a->at[lo].n == depth; lo++)
            if (!best || best->n < depth) best = &a->at[lo];
        if (lo == hi || depth == n) return best;
        const unsigned char c = (unsigned char)text[depth];
        size_t from = lo, to = hi;
        while (from < to) { /* the first candidate whose byte is at least c */
            const size_t mid = from + (to - from) / 2;
            if ((unsigned char)a->at[mid].text[depth] < c)
                from = mid + 1;
            else
                to = mid;
        }
        lo = from;
        to = hi;
        while (from < to) { /* the first candidate whose byte is above c */
            const size_t mid = from + (to - from) / 2;
            if ((unsigned char)a->at[mid].text[depth] <= c)
                from = mid + 1;
            else
                to = mid;
        }
        hi = from;
    }
}

/* Returns the length of the last character of text[0..n) in bytes; 0: no character, or not UTF-8. */
static size_t last_char_bytes(const char *text, size_t n) {
    for (size_t k = 1; k <= 4 && k <= n; k++)
        if (bt_utf8_char(text + n - k, k) == k) return k;
    return 0;
}

static bool ends_with_word_character(const char *text, size_t n) {
    const size_t k = last_char_bytes(text, n);
    return k && bt_unicode_is_word(bt_utf8_decode(text + n - k, k));
}

static bool begins_with_word_character(const char *text, size_t n) {
    const size_t k = bt_utf8_char(text, n);
    return k && bt_unicode_is_word(bt_utf8_decode(text, k));
}

static size_t trailing_space_bytes(const char *text, size_t n) {
    size_t at = n, k;
    while ((k = last_char_bytes(text, at)) && bt_unicode_is_space(bt_utf8_decode(text + at - k, k)))
        at -= k;
    return n - at;
}

static size_t leading_space_bytes(const char *text, size_t n) {
    size_t at = 0, k;
    while ((k = bt_utf8_char(text + at, n - at)) &&
           bt_unicode_is_space(bt_utf8_decode(text + at, k)))
        at += k;
    return at;
}

bool bt_added_next(const bt_added_names *a, const char *text, size_t n, bool special,
                   bt_added_hit *hit) {
    if (!a || (!special && !a->any_plain)) return false;
    for (size_t at = hit->scanned; at < n;) {
        const name *found = a->begins[(unsigned char)text[at]] ? longest_name(a, text + at, n - at)
                                                               : NULL;
        if (!found) {
            at++;
            continue;
        }
        const bt_added *token = &found->token;
        const size_t begin = at, end = at + found->n;
        at = end;
        if (token->special && !special) continue;
        if (token->single_word && (ends_with_word_character(text, begin) ||
                                   begins_with_word_character(text + end, n - end)))
            continue;
        const size_t taken = hit->end, left = token->lstrip ? trailing_space_bytes(text, begin) : 0;
        hit->begin = begin - left > taken || !token->lstrip ? begin - left : taken;
        hit->end = end + (token->rstrip ? leading_space_bytes(text + end, n - end) : 0);
        hit->scanned = end;
        hit->id = token->id;
        return true;
    }
    hit->scanned = n;
    return false;
}

static bool name_includes_space(const name *x) {
    if (x->token.special) return false;
    if (x->token.lstrip || x->token.rstrip) return true;
    for (size_t i = 0; i < x->n; i++)
        if (strchr(" \t\n\r\v\f", x->text[i])) return true;
    return false;
}

static bool any_name_includes_space(const bt_added_names *a, size_t *longest) {
    bool any = false;
    for (size_t i = 0; a && i < a->n; i++) {
        any |= name_includes_space(&a->at[i]);
        if (a->at[i].n > *longest) *longest = a->at[i].n;
    }
    return any;
}

bool bt_tokenizer_spans_space(const bt_tokenizer *t) {
    size_t longest = 0;
    /* Such a tokenizer may join words where the fixed patterns cut. */
    if (t->rules || bt_tokenizer_marks(t)) return true;
    return any_name_includes_space(t->names, &longest) ||
           any_name_includes_space(t->names_normalized, &longest);
}

/* Returns true if a name, with the white space that it includes, spans the position. */
static bool name_spans_position(const bt_added_names *a, const char *text, size_t n, size_t place) {
    bt_added_hit hit = {0};
    while (bt_added_next(a, text, n, false, &hit)) {
        if (hit.begin >= place) return false;
        if (hit.end > place) return true;
    }
    return false;
}

size_t bt_tokenizer_cut(const bt_tokenizer *t, const char *text, size_t n) {
    size_t longest = 0;
    if (t->rules || bt_tokenizer_marks(t)) return 0; /* the document is encoded as a whole */
    (void)any_name_includes_space(t->names, &longest);
    (void)any_name_includes_space(t->names_normalized, &longest);
    /* The beginning of an incomplete name is not before this position. */
    size_t limit = n > longest + 1 ? n - longest - 1 : 0;
    while (limit) {
        const size_t cut = bt_text_cut(text, limit);
        if (cut == limit || cut == 0) return 0;
        if (!name_spans_position(t->names, text, n, cut) &&
            !name_spans_position(t->names_normalized, text, n, cut))
            return cut;
        limit = cut;
    }
    return 0;
}
