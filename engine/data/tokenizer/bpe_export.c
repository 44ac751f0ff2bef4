/* bpe_export.c - writes a tokenizer as Hugging Face's tokenizer.json.
 *
 * An added token is written both to the vocabulary and to the list of added tokens. If it were only in that list,
 * Hugging Face's library would assign another id, which would hide another token. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/tokenizer/marked_json.h"
#include "engine/data/tokenizer/tokenizer_build.h"
#include "engine/data/tokenizer/tokenizer_impl.h"
#include "engine/data/tokenizer/unigram/unigram_import.h"

bool bt_tokenizer_is_hole(const bt_tokenizer *t, int32_t id) {
    return id < 0 || id >= t->V || t->special[id] == BT_TOKEN_HOLE;
}

void bt_tokenizer_token_text(const bt_tokenizer *t, int32_t id, bt_text *out) {
    size_t n;
    const char *bytes = bt_tokenizer_raw(t, id, &n);
    if (id >= 0 && id < t->V && (t->special[id] || bt_tokenizer_marks(t)))
        bt_text_putn(out, bytes, n);
    else
        bt_alphabet_encode(bytes, n, out);
}

void bt_tokenizer_merge(const bt_tokenizer *t, size_t i, int32_t *left, int32_t *right) {
    *left = t->merges[i].left;
    *right = t->merges[i].right;
}

bool bt_tokenizer_ignores_merges(const bt_tokenizer *t) { return t->ignore_merges; }

json_t *bt_tokenizer_pre_tokenizer(const char *pattern) {
    int p = 0;
    while (p < BT_PATTERN_COUNT && strcmp(bt_pattern_name((bt_pattern)p), pattern) != 0) p++;
    const int words = p == BT_PATTERN_GPT2;
    const char *rules = p < BT_PATTERN_COUNT ? bt_pattern_regex((bt_pattern)p) : pattern;
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", words),
           *steps = json_array();
    if (words) {
        json_decref(steps);
        return bytes;
    }
    for (size_t n; *rules; rules += n + (rules[n] == '\n')) {
        n = strcspn(rules, "\n");
        json_array_append_new(steps,
                              json_pack("{s:s, s:{s:s%}, s:s, s:b}", "type", "Split", "pattern",
                                        "Regex", rules, n, "behavior", "Isolated", "invert", 0));
    }
    json_array_append_new(steps, bytes);
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
}

/* Adds the text of every token. BT_UNSUPPORTED: two tokens have the same text. */
static bt_code put_vocab(const bt_tokenizer *t, json_t *vocab, bt_text *word, bt_err *err) {
    for (int32_t id = 0; id < t->V; id++) {
        if (bt_tokenizer_is_hole(t, id)) continue;
        bt_text_clear(word);
        bt_tokenizer_token_text(t, id, word);
        if (json_object_get(vocab, bt_text_str(word)))
            return bt_fail(err, BT_UNSUPPORTED,
                           "the tokens %lld and %d would both be written as '%.40s', so "
                           "tokenizer.json cannot represent this tokenizer",
                           (long long)json_integer_value(json_object_get(vocab, bt_text_str(word))),
                           id, bt_text_str(word));
        if (word->failed || json_object_set_new(vocab, bt_text_str(word), json_integer(id)) != 0)
            return bt_fail(err, BT_NOMEM, "cannot allocate memory for token %d", id);
    }
    return BT_OK;
}

static json_t *export_added_tokens(const bt_tokenizer *t) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_added; i++) {
        const bt_added *a = &t->added[i];
        size_t n;
        const char *bytes = bt_tokenizer_raw(t, a->id, &n);
        json_array_append_new(list, json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id",
                                              (int)a->id, "content", bytes, n, "single_word",
                                              (int)a->single_word, "lstrip", (int)a->lstrip,
                                              "rstrip", (int)a->rstrip, "normalized",
                                              (int)a->normalized, "special", (int)a->special));
    }
    return list;
}

/* Returns the member "post_processor", a template with the tokens around a text; null if there are none. */
static json_t *export_post_processor(const bt_tokenizer *t) {
    if (!t->n_prefix && !t->n_suffix) return json_null();
    json_t *single = json_array(), *pair = json_array(), *tokens = json_object();
    for (int part = 0; part < 3; part++) { /* prefix, text, suffix */
        const int32_t *ids = part == 0 ? t->prefix : t->suffix;
        const size_t count = part == 0 ? t->n_prefix : part == 1 ? 1 : t->n_suffix;
        for (size_t i = 0; i < count; i++) {
            size_t n = 0;
            const char *bytes = part == 1 ? "" : bt_tokenizer_raw(t, ids[i], &n);
            json_t *step = part == 1
                               ? json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0)
                               : json_pack("{s:{s:s%, s:i}}", "SpecialToken", "id", bytes, n,
                                           "type_id", 0);
            json_array_append(single, step);
            json_array_append_new(pair, step);
            if (part == 1) continue;
            json_t *name = json_stringn(bytes, n);
            if (name)
                json_object_set_new(tokens, json_string_value(name),
                                    json_pack("{s:O, s:[i], s:[O]}", "id", name, "ids", (int)ids[i],
                                              "tokens", name));
            json_decref(name);
        }
        if (part == 1)
            json_array_append_new(pair,
                                  json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B", "type_id", 1));
    }
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair",
                     pair, "special_tokens", tokens);
}

static json_t *export_merges(const bt_tokenizer *t, bt_text *word) {
    json_t *list = json_array();
    for (size_t i = 0; i < t->n_merges; i++) {
        json_t *pair = json_array();
        const int32_t parts[2] = {t->merges[i].left, t->merges[i].right};
        for (size_t k = 0; k < 2; k++) {
            bt_text_clear(word);
            bt_tokenizer_token_text(t, parts[k], word);
            json_array_append_new(pair, json_string(bt_text_str(word)));
        }
        json_array_append_new(list, pair);
    }
    return list;
}

static json_t *export_byte_level_decoder(void) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1,
                     "trim_offsets", 1, "use_regex", 1);
}

static json_t *export_bpe_model(const bt_tokenizer *t, json_t *vocab, bt_text *word) {
    const int marks = bt_tokenizer_marks(t);
    return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:O, s:o}", "type", "BPE", "dropout",
                     "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                     marks, "byte_fallback", marks, "ignore_merges", (int)t->ignore_merges, "vocab",
                     vocab, "merges", export_merges(t, word));
}

static json_t *export_json_tree(const bt_tokenizer *t, json_t *vocab, bt_text *word) {
    const bool marks = bt_tokenizer_marks(t);
    json_t *normalizer = marks    ? bt_marked_normalizer(&t->marked)
                         : t->nfc ? json_pack("{s:s}", "type", "NFC")
                                  : json_null(),
           *pre = marks
                      ? bt_marked_pre_tokenizer(&t->marked)
                      : bt_tokenizer_pre_tokenizer(t->rules      ? t->rules
                                                   : t->is_bytes ? bt_pattern_name(BT_PATTERN_GPT2)
                                                                 : bt_pattern_name(t->pattern));
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", export_added_tokens(t), "normalizer",
                     normalizer, "pre_tokenizer", pre, "post_processor", export_post_processor(t),
                     "decoder", marks ? bt_marked_decoder(&t->marked) : export_byte_level_decoder(),
                     "model", t->scores ? bt_unigram_model(t) : export_bpe_model(t, vocab, word));
}

bt_code bt_tokenizer_export(const bt_tokenizer *t, bt_text *out, bt_err *err) {
    bt_text word = {0};
    json_t *vocab = json_object(), *root = NULL;
    bt_code code = put_vocab(t, vocab, &word, err);
    if (code == BT_OK) root = export_json_tree(t, vocab, &word);
    char *text = root ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    if (code == BT_OK && (!text || word.failed))
        code = bt_fail(err, BT_NOMEM,
                       "cannot write tokenizer.json: a special token is not UTF-8, or there is not "
                       "enough memory");
    if (code == BT_OK) {
        bt_text_put(out, text);
        bt_text_put(out, "\n");
    }
    free(text);
    json_decref(root);
    json_decref(vocab);
    bt_text_release(&word);
    return code;
}
