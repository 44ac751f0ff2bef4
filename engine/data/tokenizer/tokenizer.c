/* tokenizer.c - converts text to ids and back, by bytes or BPE; loads tokenizers from files and checkpoints. */
#include "engine/data/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "engine/data/io/file_io.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

enum { MAX_FILE = 128 << 20 };

void bt_tokenizer_decode(const bt_tokenizer *t, const int32_t *ids, size_t n, bt_text *out) {
    for (size_t i = 0; i < n; i++) {
        size_t k;
        const char *s = bt_tokenizer_bytes(t, ids[i], &k);
        const size_t skip = t->marked.strip && i == 0 && out->len == 0 && k && *s == ' ';
        bt_text_putn(out, s + skip, k - skip);
    }
}

static bt_code encode_bytes(const char *text, size_t n, int32_t **ids, size_t *count, size_t *cap,
                            bt_err *err) {
    if (*count + n > *cap) {
        int32_t *p = realloc(*ids, (*count + n) * sizeof *p);
        if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu token ids", n);
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
        if (!p) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu token ids", size);
        *ids = p;
        *cap = size;
    }
    if (n) memcpy(*ids + *count, more, n * sizeof *more);
    *count += n;
    return BT_OK;
}

bt_code bt_tokenizer_encode_as(const bt_tokenizer *t, unsigned how, const char *text, size_t n,
                               int32_t **ids, size_t *count, size_t *cap, bt_err *err) {
    const bool whole = how & BT_ENCODE_WHOLE;
    *count = 0;
    if (whole) BT_TRY(append_ids(t->prefix, t->n_prefix, ids, count, cap, err));
    if (t->is_bytes)
        BT_TRY(encode_bytes(text, n, ids, count, cap, err));
    else
        BT_TRY(bt_bpe_encode(t, how, text, n, ids, count, cap, err));
    return whole ? append_ids(t->suffix, t->n_suffix, ids, count, cap, err) : BT_OK;
}

bt_code bt_tokenizer_encode(const bt_tokenizer *t, const char *text, size_t n, int32_t **ids,
                            size_t *count, size_t *cap, bt_err *err) {
    return bt_tokenizer_encode_as(t, BT_ENCODE_TEXT, text, n, ids, count, cap, err);
}

bt_code bt_tokenizer_parse(bt_tokenizer **out, const char *json, size_t n, bt_err *err) {
    return bt_tokenizer_parse_own(out, json, n, "of the checkpoint", err);
}

bt_code bt_tokenizer_load(bt_tokenizer **out, const char *name, bt_err *err) {
    *out = NULL;
    if (strcmp(name, "bytes") == 0) return bt_tokenizer_make_bytes(out, err);
    char *json;
    size_t n;
    bt_code code = bt_file_slurp(name, MAX_FILE, &json, &n, err);
    if (code == BT_NOTFOUND)
        return bt_fail(err, BT_NOTFOUND,
                       "the tokenizer '%s' does not exist: use 'bytes', a file made by 'bitrain "
                       "tokenizer train', or Hugging Face's tokenizer.json",
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
