/* bpe_import.c - converts Hugging Face's tokenizer.json to a tokenizer.
 *
 * Supported: byte-level BPE with merges as "a b" or ["a", "b"]; the pre-tokeniser steps Split and Digits before
 * ByteLevel, whose regular expressions PCRE2 runs (word_rules.c); the normaliser NFC or none; ignore_merges; added
 * tokens with their flags; tokens that the post-processor adds around a text. Ids without a token become holes. With
 * byte_fallback, and in Unigram models (unigram_import.c), the vocabulary has characters and spaces are marked
 * (marked_json.c). Another model type, step, normaliser or post-processor, dropout and word affixes are refused by
 * name. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"
#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/import_keys.h"
#include "engine/data/tokenizer/marked_json.h"
#include "engine/data/tokenizer/tokenizer_build.h"
#include "engine/data/tokenizer/tokenizer_impl.h"
#include "engine/data/tokenizer/unigram/unigram_import.h"

enum { MAX_FILE = 128 << 20 };

static const char *const byte_level_keys[] = {"type", "add_prefix_space", "trim_offsets",
                                              "use_regex", NULL};

/* Adds a rule. The spelling of GPT-2's pattern without repeated apostrophes is equivalent to the usual one. */
static bt_code add_rule(bt_text *rules, const char *regex, bt_err *err) {
    static const char other_gpt2[] =
        "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
    if (strcmp(regex, other_gpt2) == 0) regex = bt_pattern_regex(BT_PATTERN_GPT2);
    if (!*regex || strchr(regex, '\n'))
        return bt_fail(err, BT_UNSUPPORTED, "the word pattern is empty or contains a line feed");
    bt_text_printf(rules, "%s%s", rules->len ? "\n" : "", regex);
    return rules->failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for the word patterns")
                         : BT_OK;
}

/* Reads the last step, ByteLevel: it writes bytes as characters, and may first cut words by GPT-2's pattern. */
static bt_code read_byte_level(json_t *o, bt_text *rules, bt_err *err) {
    if (strcmp(bt_import_type(o), "ByteLevel") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the pre-tokeniser is '%.40s', but only ByteLevel is supported",
                       bt_import_type(o));
    BT_TRY(bt_import_known_keys(o, "pre_tokenizer", byte_level_keys, err));
    if (bt_import_true(json_object_get(o, "add_prefix_space")))
        return bt_fail(err, BT_UNSUPPORTED,
                       "add_prefix_space, which puts a blank before each text, is not supported");
    if (!json_is_false(json_object_get(o, "use_regex")))
        return add_rule(rules, bt_pattern_regex(BT_PATTERN_GPT2), err);
    return rules->len ? BT_OK
                      : bt_fail(err, BT_UNSUPPORTED,
                                "the tokenizer does not cut text into words (use_regex is false), "
                                "which is not supported");
}

static bt_code read_split(json_t *o, bt_text *rules, bt_err *err) {
    static const char *const keys[] = {"type", "pattern", "behavior", "invert", NULL},
                             *const pattern_keys[] = {"Regex", NULL};
    json_t *pattern = json_object_get(o, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex")),
               *behavior = json_string_value(json_object_get(o, "behavior"));
    if (!regex)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "the step Split has no regular expression, and other splits are not supported");
    if (!behavior || strcmp(behavior, "Isolated") != 0 ||
        bt_import_true(json_object_get(o, "invert")))
        return bt_fail(
            err, BT_UNSUPPORTED,
            "the step Split has another behavior than 'Isolated', which is not supported");
    BT_TRY(bt_import_known_keys(o, "pre_tokenizer", keys, err));
    BT_TRY(bt_import_known_keys(pattern, "pattern", pattern_keys, err));
    return add_rule(rules, regex, err);
}

/* The rule matches single digits or runs of digits. */
static bt_code read_digits(json_t *o, bt_text *rules, bt_err *err) {
    static const char *const keys[] = {"type", "individual_digits", NULL};
    BT_TRY(bt_import_known_keys(o, "pre_tokenizer", keys, err));
    return add_rule(
        rules, bt_import_true(json_object_get(o, "individual_digits")) ? "\\p{N}" : "\\p{N}+", err);
}

static bt_code read_step(json_t *o, bool last, bt_text *rules, bt_err *err) {
    if (last) return read_byte_level(o, rules, err);
    if (strcmp(bt_import_type(o), "Split") == 0) return read_split(o, rules, err);
    if (strcmp(bt_import_type(o), "Digits") == 0) return read_digits(o, rules, err);
    return bt_fail(err, BT_UNSUPPORTED,
                   "the pre-tokeniser has the step '%.40s', which is not supported (Split, Digits, "
                   "and ByteLevel as the last step are)",
                   bt_import_type(o));
}

static bt_code read_pre_tokenizer(json_t *o, bt_tokenizer *t, bt_err *err) {
    static const char *const keys[] = {"type", "pretokenizers", NULL};
    json_t *steps = json_object_get(o, "pretokenizers");
    const bool sequence = strcmp(bt_import_type(o), "Sequence") == 0;
    const size_t n = sequence ? json_array_size(steps) : 1;
    bt_text rules = {0};
    bt_code code = BT_OK;
    if (sequence) BT_TRY(bt_import_known_keys(o, "pre_tokenizer", keys, err));
    if (!n) return bt_fail(err, BT_UNSUPPORTED, "the pre-tokeniser has no steps");
    for (size_t i = 0; i < n && code == BT_OK; i++)
        code = read_step(sequence ? json_array_get(steps, i) : o, i + 1 == n, &rules, err);
    if (code == BT_OK) code = bt_tokenizer_set_rules(t, bt_text_str(&rules), err);
    bt_text_release(&rules);
    return code;
}

static bt_code read_normalizer(json_t *o, bt_tokenizer *t, bt_err *err) {
    if (bt_import_absent(o)) return BT_OK;
    static const char *const keys[] = {"type", "normalizers", NULL};
    json_t *steps = json_object_get(o, "normalizers");
    BT_TRY(bt_import_known_keys(o, "normalizer", keys, err));
    if (strcmp(bt_import_type(o), "Sequence") == 0 && json_array_size(steps) <= 1)
        return read_normalizer(json_array_get(steps, 0), t, err);
    if (strcmp(bt_import_type(o), "NFC") != 0)
        return bt_fail(err, BT_UNSUPPORTED, "the normaliser is '%.40s', but only NFC is supported",
                       bt_import_type(o));
    t->nfc = true;
    return BT_OK;
}

static bt_code read_decoder(json_t *o, bt_err *err) {
    if (bt_import_absent(o)) return BT_OK;
    if (strcmp(bt_import_type(o), "ByteLevel") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the decoder is '%.40s', but only ByteLevel is supported",
                       bt_import_type(o));
    return bt_import_known_keys(o, "decoder", byte_level_keys, err);
}

static bt_code read_model_rules(json_t *model, bt_tokenizer *t, bt_err *err) {
    static const char *const keys[] = {"type",
                                       "dropout",
                                       "unk_token",
                                       "continuing_subword_prefix",
                                       "end_of_word_suffix",
                                       "fuse_unk",
                                       "byte_fallback",
                                       "ignore_merges",
                                       "vocab",
                                       "merges",
                                       NULL};
    json_t *dropout = json_object_get(model, "dropout");
    if (json_object_get(model, "type") && strcmp(bt_import_type(model), "BPE") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the model is '%.40s', but only BPE and Unigram are supported",
                       bt_import_type(model));
    if (!bt_import_absent(dropout) && json_number_value(dropout) != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "dropout, which omits merges at random, is not supported");
    if (!bt_import_absent(json_object_get(model, "continuing_subword_prefix")) ||
        !bt_import_absent(json_object_get(model, "end_of_word_suffix")))
        return bt_fail(err, BT_UNSUPPORTED,
                       "a prefix or suffix of words (continuing_subword_prefix, "
                       "end_of_word_suffix) is not supported");
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    if (t->ignore_merges && bt_import_true(json_object_get(model, "byte_fallback")))
        return bt_fail(err, BT_UNSUPPORTED,
                       "byte_fallback together with ignore_merges is not supported");
    return bt_import_known_keys(model, "model", keys, err);
}

static bt_code add_affix_token(bt_tokenizer *t, bool behind, json_t *id, bt_err *err) {
    int32_t *ids = behind ? t->suffix : t->prefix;
    size_t *n = behind ? &t->n_suffix : &t->n_prefix;
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) >= BT_MAX_VOCAB)
        return bt_fail(err, BT_FORMAT, "the post-processor names a token without an id");
    if (*n == BT_AFFIX_MAX)
        return bt_fail(err, BT_UNSUPPORTED, "the post-processor adds more than %d tokens %s a text",
                       BT_AFFIX_MAX, behind ? "after" : "before");
    ids[(*n)++] = (int32_t)json_integer_value(id);
    return BT_OK;
}

/* Reads {"single": [{"SpecialToken": {"id": ..}}, {"Sequence": {"id": "A"}}, ..], "special_tokens": ..}. */
static bt_code read_template(json_t *o, bt_tokenizer *t, bt_err *err) {
    static const char *const keys[] = {"type", "single", "pair", "special_tokens", NULL};
    json_t *step, *id, *known = json_object_get(o, "special_tokens");
    size_t i, k, texts = 0;
    BT_TRY(bt_import_known_keys(o, "post_processor", keys, err));
    json_array_foreach(json_object_get(o, "single"), i, step) {
        const char *name =
            json_string_value(json_object_get(json_object_get(step, "SpecialToken"), "id"));
        if (!name) {
            texts += json_object_get(step, "Sequence") != NULL;
            continue;
        }
        json_t *ids = json_object_get(json_object_get(known, name), "ids");
        if (json_array_size(ids) == 0)
            return bt_fail(err, BT_FORMAT, "the post-processor names '%.40s', which has no id",
                           name);
        json_array_foreach(ids, k, id) BT_TRY(add_affix_token(t, texts > 0, id, err));
    }
    return texts == 1
               ? BT_OK
               : bt_fail(err, BT_UNSUPPORTED,
                         "the post-processor repeats or omits the text, which is not supported");
}

static bt_code read_post_processor(json_t *o, bt_tokenizer *t, bt_err *err) {
    json_t *step;
    size_t i;
    if (bt_import_absent(o) || strcmp(bt_import_type(o), "ByteLevel") == 0) return BT_OK;
    if (strcmp(bt_import_type(o), "TemplateProcessing") == 0 && !t->n_prefix && !t->n_suffix)
        return read_template(o, t, err);
    if (strcmp(bt_import_type(o), "RobertaProcessing") == 0 ||
        strcmp(bt_import_type(o), "BertProcessing") == 0) {
        BT_TRY(add_affix_token(t, false, json_array_get(json_object_get(o, "cls"), 1), err));
        return add_affix_token(t, true, json_array_get(json_object_get(o, "sep"), 1), err);
    }
    if (strcmp(bt_import_type(o), "Sequence") != 0)
        return bt_fail(err, BT_UNSUPPORTED, "the post-processor '%.40s' is not supported",
                       bt_import_type(o));
    json_array_foreach(json_object_get(o, "processors"), i, step)
        BT_TRY(read_post_processor(step, t, err));
    return BT_OK;
}

typedef struct names { /* indexed by id; the JSON tree owns the texts */
    const char **text;
    json_t **added;          /* entry of `added_tokens`; NULL: none */
    unsigned char *ordinary; /* true for a single byte and for a token that takes part in a merge */
    int32_t V;
} names;

static bt_code record_imported_token(names *all, json_int_t id, const char *text, json_t *added,
                                     bt_err *err) {
    if (id < 0 || id >= BT_MAX_VOCAB)
        return bt_fail(err, BT_FORMAT, "token id %lld is outside 0..%d", (long long)id,
                       BT_MAX_VOCAB - 1);
    if (all->text[id] && !added)
        return bt_fail(err, BT_FORMAT, "two tokens have the id %lld", (long long)id);
    if (all->added[id])
        return bt_fail(err, BT_FORMAT, "two added tokens have the id %lld", (long long)id);
    all->text[id] = text;
    all->added[id] = added;
    if (id >= all->V) all->V = (int32_t)id + 1;
    return BT_OK;
}

static bt_code collect_imported_tokens(names *all, json_t *vocab, json_t *added, bt_err *err) {
    const char *key;
    json_t *id, *token;
    size_t i;
    json_object_foreach(vocab, key, id) {
        if (!json_is_integer(id))
            return bt_fail(err, BT_FORMAT, "the id of token '%.40s' is not a whole number", key);
        BT_TRY(record_imported_token(all, json_integer_value(id), key, NULL, err));
        if (bt_utf8_char(key, strlen(key)) == strlen(key))
            all->ordinary[json_integer_value(id)] = true;
    }
    json_array_foreach(added, i, token) {
        json_t *content = json_object_get(token, "content"), *number = json_object_get(token, "id");
        if (!json_is_string(content) || !json_string_length(content) || !json_is_integer(number))
            return bt_fail(err, BT_FORMAT, "added token %zu has no content or id", i);
        BT_TRY(record_imported_token(all, json_integer_value(number), json_string_value(content),
                                     token, err));
    }
    return all->V ? BT_OK : bt_fail(err, BT_FORMAT, "the vocabulary is empty");
}

static bt_code read_added_flag(json_t *added, const char *key, bool otherwise, bool *out,
                               bt_err *err) {
    json_t *v = json_object_get(added, key);
    *out = v ? json_is_true(v) : otherwise;
    if (!v || json_is_boolean(v)) return BT_OK;
    return bt_fail(err, BT_FORMAT, "'%s' of the added token '%.40s' is not true or false", key,
                   json_string_value(json_object_get(added, "content")));
}

static bt_code draft_added(const names *all, int32_t id, bt_tokenizer_draft *d, bt_text *word,
                           bt_err *err) {
    static const char *const keys[] = {"id",     "content",     "special",    "lstrip",
                                       "rstrip", "single_word", "normalized", NULL};
    const char *text = all->text[id];
    json_t *o = all->added[id];
    const size_t n = strlen(text);
    bt_added a = {.id = id};
    BT_TRY(bt_import_known_keys(o, "added_tokens", keys, err));
    BT_TRY(read_added_flag(o, "special", true, &a.special, err));
    BT_TRY(read_added_flag(o, "lstrip", false, &a.lstrip, err));
    BT_TRY(read_added_flag(o, "rstrip", false, &a.rstrip, err));
    BT_TRY(read_added_flag(o, "single_word", false, &a.single_word, err));
    BT_TRY(read_added_flag(o, "normalized", !a.special, &a.normalized, err));
    const bool marks = bt_tokenizer_marks(d->t),
               ordinary = all->ordinary[id] && (marks || bt_alphabet_decode(text, n, word)),
               same = ordinary &&
                      (marks || (word->len == n && memcmp(bt_text_str(word), text, n) == 0));
    if (ordinary && !same)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the added token '%.40s' is also an ordinary token with other bytes", text);
    BT_TRY(bt_draft_token(d, text, n,
                          same        ? BT_TOKEN_PLAIN
                          : a.special ? BT_TOKEN_SPECIAL
                                      : BT_TOKEN_ADDED,
                          err));
    return bt_draft_name(d, &a, err);
}

static bt_code draft_tokens(const names *all, bt_tokenizer_draft *d, bt_err *err) {
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "<|im_end|>",
                                       "<|eot_id|>", "</s>"};
    size_t best = sizeof ends / sizeof *ends;
    bt_text word = {0};
    bt_code code = BT_OK;
    for (int32_t id = 0; code == BT_OK && id < all->V; id++) {
        bt_text_clear(&word);
        if (!all->text[id]) {
            code = bt_draft_token(d, "", 0, BT_TOKEN_HOLE, err);
        } else if (all->added[id]) {
            code = draft_added(all, id, d, &word, err);
            for (size_t k = 0; k < best && d->t->special[id] == BT_TOKEN_SPECIAL; k++)
                if (strcmp(all->text[id], ends[k]) == 0) {
                    best = k;
                    d->t->eot = id;
                }
        } else if (bt_tokenizer_marks(d->t)) {
            const size_t n = strlen(all->text[id]);
            code = bt_draft_token(
                d, all->text[id], n,
                bt_marked_byte(all->text[id], n) < 0 ? BT_TOKEN_PLAIN : BT_TOKEN_BYTE, err);
        } else if (!bt_alphabet_decode(all->text[id], strlen(all->text[id]), &word)) {
            code = bt_fail(err, BT_UNSUPPORTED,
                           "token %d '%.40s' is not in the byte alphabet, so this is not a "
                           "byte-level vocabulary",
                           id, all->text[id]);
        } else {
            code = bt_draft_token(d, bt_text_str(&word), word.len, BT_TOKEN_PLAIN, err);
        }
    }
    if (code == BT_OK && word.failed)
        code = bt_fail(err, BT_NOMEM, "cannot allocate memory for the tokens");
    bt_text_release(&word);
    return code;
}

static bt_code merge_parts(json_t *merge, size_t i, char *left, char *right, size_t size,
                           bt_err *err) {
    const char *a, *b;
    size_t na;
    if (json_is_string(merge)) {
        a = json_string_value(merge);
        b = strchr(a, ' ');
        na = b ? (size_t)(b - a) : 0;
        b = b ? b + 1 : "";
    } else {
        a = json_string_value(json_array_get(merge, 0));
        b = json_string_value(json_array_get(merge, 1));
        na = a ? strlen(a) : 0;
        if (!a || !b || json_array_size(merge) != 2)
            return bt_fail(err, BT_FORMAT, "merge %zu is not a pair of tokens", i);
    }
    if (!na || !*b || strchr(b, ' '))
        return bt_fail(err, BT_FORMAT, "merge %zu is not a pair of tokens", i);
    if (na >= size || strlen(b) >= size) return bt_fail(err, BT_FORMAT, "merge %zu is too long", i);
    memcpy(left, a, na);
    left[na] = '\0';
    strcpy(right, b);
    return BT_OK;
}

/* Returns the ids of both parts of merge i; *made is the id of the merged token, or NULL. */
static bt_code read_merge(json_t *vocab, json_t *merge, size_t i, json_t *parts[2], json_t **made,
                          bt_err *err) {
    char left[4096], right[4096], both[sizeof left + sizeof right];
    BT_TRY(merge_parts(merge, i, left, right, sizeof left, err));
    parts[0] = json_object_get(vocab, left);
    parts[1] = json_object_get(vocab, right);
    if (!parts[0] || !parts[1])
        return bt_fail(err, BT_FORMAT, "merge %zu names '%.40s', which is not in the vocabulary", i,
                       parts[0] ? right : left);
    snprintf(both, sizeof both, "%s%s", left, right);
    *made = json_object_get(vocab, both);
    return BT_OK;
}

/* Marks the tokens that are a part or the result of a merge. */
static bt_code mark_ordinary(json_t *vocab, json_t *merges, names *all, bt_err *err) {
    json_t *merge, *parts[2], *made;
    size_t i;
    json_array_foreach(merges, i, merge) {
        BT_TRY(read_merge(vocab, merge, i, parts, &made, err));
        for (size_t k = 0; k < 2; k++) all->ordinary[json_integer_value(parts[k])] = true;
        if (made) all->ordinary[json_integer_value(made)] = true;
    }
    return BT_OK;
}

static bt_code draft_merges(json_t *vocab, json_t *merges, bt_tokenizer_draft *d, bt_err *err) {
    json_t *merge, *parts[2], *made;
    size_t i;
    json_array_foreach(merges, i, merge) {
        BT_TRY(read_merge(vocab, merge, i, parts, &made, err));
        BT_TRY(bt_draft_merge(d, (int32_t)json_integer_value(parts[0]),
                              (int32_t)json_integer_value(parts[1]), err));
    }
    return BT_OK;
}

/* Hugging Face's library ignores `id` of an added token: it uses its id in the vocabulary or, if the vocabulary lacks
 * it, the next free one. A different `id` would therefore hide a token. */
static bt_code check_added_ids(json_t *vocab, json_t *added, bt_err *err) {
    json_int_t next = (json_int_t)json_object_size(vocab);
    json_t *token;
    size_t i;
    json_array_foreach(added, i, token) {
        const char *text = json_string_value(json_object_get(token, "content"));
        json_t *there = json_object_get(vocab, text);
        const json_int_t id = json_integer_value(json_object_get(token, "id")),
                         expected = json_is_integer(there) ? json_integer_value(there) : next;
        if (id != expected)
            return bt_fail(err, BT_FORMAT,
                           "the added token '%.40s' has id %lld, but Hugging Face's library would "
                           "use the id %lld",
                           text, (long long)id, (long long)expected);
        if (id >= next) next = id + 1;
    }
    return BT_OK;
}

/* Reads normaliser, pre-tokeniser and decoder. */
static bt_code read_text_rules(json_t *root, bt_tokenizer *t, bt_err *err) {
    if (t->scores) return bt_marked_read(root, "a Unigram model", &t->marked, err);
    if (bt_import_true(json_object_get(json_object_get(root, "model"), "byte_fallback")))
        return bt_marked_read(root, "byte_fallback", &t->marked, err);
    BT_TRY(read_pre_tokenizer(json_object_get(root, "pre_tokenizer"), t, err));
    BT_TRY(read_normalizer(json_object_get(root, "normalizer"), t, err));
    return read_decoder(json_object_get(root, "decoder"), err);
}

static void mark_scored_ordinary(names *all, size_t n) {
    for (size_t id = 0; id < n; id++)
        all->ordinary[id] = !all->added[id] ||
                            json_is_false(json_object_get(all->added[id], "special"));
}

static bt_code draft_imported(bt_tokenizer_draft *d, json_t *root, json_t *vocab, json_t *merges,
                              names *all, bt_err *err) {
    static const char *const keys[] = {
        "version",       "truncation",     "padding", "added_tokens", "normalizer",
        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    json_t *added = json_object_get(root, "added_tokens");
    BT_TRY(collect_imported_tokens(all, vocab, added, err));
    BT_TRY(read_text_rules(root, d->t, err));
    BT_TRY(bt_import_known_keys(root, NULL, keys, err));
    BT_TRY(read_post_processor(json_object_get(root, "post_processor"), d->t, err));
    BT_TRY(mark_ordinary(vocab, merges, all, err));
    mark_scored_ordinary(all, d->t->n_scores);
    BT_TRY(draft_tokens(all, d, err));
    BT_TRY(draft_merges(vocab, merges, d, err));
    return check_added_ids(vocab, added, err);
}

static bt_code read_bpe_model(json_t *model, bt_tokenizer *t, json_t **vocab, bt_err *err) {
    json_t *found = json_object_get(model, "vocab");
    BT_TRY(read_model_rules(model, t, err));
    if (!json_is_object(found) || !json_is_array(json_object_get(model, "merges")))
        return bt_fail(err, BT_UNSUPPORTED,
                       "it has no model with 'vocab' and 'merges', so it is not a byte-level BPE "
                       "tokenizer.json");
    *vocab = json_incref(found);
    return BT_OK;
}

static bt_code build_from_json(bt_tokenizer **out, json_t *root, names *all, bt_err *err) {
    json_t *model = json_object_get(root, "model"), *vocab = NULL;
    const bool unigram = bt_unigram_is_model(model);
    bt_tokenizer_draft d;
    BT_TRY(bt_draft_begin(&d, err));
    bt_code code = unigram ? bt_unigram_read_model(model, d.t, &vocab, err)
                           : read_bpe_model(model, d.t, &vocab, err);
    if (code == BT_OK)
        code = draft_imported(&d, root, vocab, unigram ? NULL : json_object_get(model, "merges"),
                              all, err);
    json_decref(vocab);
    if (code == BT_OK) return bt_draft_seal(&d, out, err);
    bt_draft_release(&d);
    return code;
}

bt_code bt_tokenizer_build(bt_tokenizer **out, json_t *root, bt_err *err) {
    names all = {calloc(BT_MAX_VOCAB, sizeof *all.text), calloc(BT_MAX_VOCAB, sizeof *all.added),
                 calloc(BT_MAX_VOCAB, 1), 0};
    *out = NULL;
    bt_code code = all.text && all.added && all.ordinary
                       ? build_from_json(out, root, &all, err)
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for the tokens");
    free(all.text);
    free(all.added);
    free(all.ordinary);
    return code;
}

bt_code bt_tokenizer_import(bt_tokenizer **out, const char *path, bt_err *err) {
    char *json = NULL;
    size_t n;
    json_t *root = NULL;
    bt_err why = BT_ERR_INIT;
    *out = NULL;
    BT_TRY(bt_file_slurp(path, MAX_FILE, &json, &n, err));
    bt_code code = bt_json_parse(&root, json, n, &why);
    free(json);
    if (code == BT_OK) code = bt_tokenizer_build(out, root, &why);
    json_decref(root);
    return code == BT_OK ? BT_OK : bt_fail(err, code, "'%s' cannot be imported: %s", path, why.msg);
}
