/* unigram_import.c - converts between the Unigram model of Hugging Face's tokenizer.json and our tables. */
#include "engine/data/tokenizer/unigram/unigram_import.h"

#include <stdlib.h>
#include <string.h>

#include "engine/data/tokenizer/import_keys.h"

bool bt_unigram_is_model(json_t *model) { return strcmp(bt_import_type(model), "Unigram") == 0; }

/* ["text", score] */
static bt_code read_scored(json_t *v, size_t i, bt_tokenizer *t, json_t *vocab, bt_err *err) {
    json_t *text = json_array_get(v, 0), *score = json_array_get(v, 1);
    if (!json_is_string(text) || !json_is_number(score) || json_array_size(v) != 2)
        return bt_fail(err, BT_FORMAT, "entry %zu of its vocabulary is no token with a score", i);
    const char *s = json_string_value(text);
    if (strlen(s) != json_string_length(text))
        return bt_fail(err, BT_UNSUPPORTED, "token %zu has a byte 0", i);
    if (!*s) return bt_fail(err, BT_FORMAT, "token %zu is empty", i);
    if (json_object_get(vocab, s))
        return bt_fail(err, BT_FORMAT, "the tokens %lld and %zu are both '%.40s'",
                       (long long)json_integer_value(json_object_get(vocab, s)), i, s);
    t->scores[i] = json_number_value(score);
    if (json_object_set_new(vocab, s, json_integer((json_int_t)i)) == 0) return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
}

static bt_code check_byte_tokens(json_t *vocab, bt_err *err) {
    char name[8];
    for (unsigned byte = 0; byte < 256; byte++) {
        (void)snprintf(name, sizeof name, "<0x%02X>", byte);
        if (!json_object_get(vocab, name))
            return bt_fail(err, BT_UNSUPPORTED, "it has byte_fallback without the token %s", name);
    }
    return BT_OK;
}

bt_code bt_unigram_read_model(json_t *model, bt_tokenizer *t, json_t **vocab, bt_err *err) {
    static const char *const keys[] = {"type", "unk_id", "vocab", "byte_fallback", NULL};
    json_t *list = json_object_get(model, "vocab"), *unknown = json_object_get(model, "unk_id"), *v;
    const size_t n = json_array_size(list);
    size_t i;
    *vocab = NULL;
    BT_TRY(bt_import_known_keys(model, "model", keys, err));
    if (!n || n > BT_MAX_VOCAB)
        return bt_fail(err, BT_FORMAT,
                       "the vocabulary of its Unigram model is no list of 1 to %d tokens with "
                       "scores",
                       BT_MAX_VOCAB);
    if (!json_is_integer(unknown))
        return bt_fail(err, BT_UNSUPPORTED,
                       "its Unigram model has no unk_id: it cannot encode unknown characters");
    if (json_integer_value(unknown) < 0 || json_integer_value(unknown) >= (json_int_t)n)
        return bt_fail(err, BT_FORMAT, "its unk_id %lld is no token of the %zu in its vocabulary",
                       (long long)json_integer_value(unknown), n);
    t->unknown = (int32_t)json_integer_value(unknown);
    t->byte_fallback = bt_import_true(json_object_get(model, "byte_fallback"));
    t->scores = calloc(n, sizeof *t->scores);
    t->n_scores = n;
    *vocab = json_object();
    if (!t->scores || !*vocab)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu tokens", n);
    json_array_foreach(list, i, v) BT_TRY(read_scored(v, i, t, *vocab, err));
    return t->byte_fallback ? check_byte_tokens(*vocab, err) : BT_OK;
}

json_t *bt_unigram_model(const bt_tokenizer *t) {
    json_t *vocab = json_array();
    for (size_t i = 0; i < t->n_scores; i++) {
        size_t n;
        const char *text = bt_tokenizer_raw(t, (int32_t)i, &n);
        if (json_array_append_new(vocab, json_pack("[s%, f]", text, n, t->scores[i])) == 0)
            continue;
        json_decref(vocab);
        return NULL;
    }
    return json_pack("{s:s, s:i, s:o, s:b}", "type", "Unigram", "unk_id", (int)t->unknown, "vocab",
                     vocab, "byte_fallback", (int)t->byte_fallback);
}
