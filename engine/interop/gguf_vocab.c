/* gguf_vocab.c - reads the vocabulary of a GGUF file: byte-level BPE ("gpt2"), or SentencePiece's BPE ("llama"), whose
 * merges are computed from the scores of the tokens. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/utf8.h"
#include "engine/data/tokenizer/tokenizer_build.h"
#include "engine/interop/gguf_keys.h"
#include "engine/interop/gguf_reader.h"

typedef struct vocab {
    json_t *vocab, *added, *merges;
    unsigned char *types;
    uint64_t n_types;
    bool scored; /* SentencePiece: scores instead of merges */
    float *scores;
} vocab;

static bt_code take_type(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                         bt_err *err) {
    vocab *v = ctx;
    (void)text;
    (void)n;
    if (value < BT_GGUF_NORMAL || value > BT_GGUF_BYTE)
        return bt_fail(err, BT_UNSUPPORTED, "token %llu has the unknown type %lld",
                       (unsigned long long)i, (long long)value);
    v->types[i] = (unsigned char)value;
    return BT_OK;
}

static bt_code add_gguf_token(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                              bt_err *err) {
    vocab *v = ctx;
    (void)value;
    const int type = i < v->n_types ? v->types[i] : BT_GGUF_NORMAL;
    if (type == BT_GGUF_UNUSED) return BT_OK; /* an unused id */
    if (json_object_get(v->vocab, text))
        return bt_fail(err, BT_FORMAT, "token %llu, '%.40s', occurs twice", (unsigned long long)i,
                       text);
    json_t *name = json_stringn(text, n);
    if (!name) return bt_fail(err, BT_FORMAT, "token %llu is not UTF-8", (unsigned long long)i);
    json_object_set_new(v->vocab, text, json_integer((json_int_t)i));
    if (type != BT_GGUF_NORMAL && type != BT_GGUF_BYTE)
        json_array_append_new(v->added, json_pack("{s:I, s:O, s:b, s:b}", "id", (json_int_t)i,
                                                  "content", name, "special",
                                                  type != BT_GGUF_USER_DEFINED, "normalized", 0));
    json_decref(name);
    return BT_OK;
}

static bt_code take_merge(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                          bt_err *err) {
    vocab *v = ctx;
    (void)value;
    if (json_array_append_new(v->merges, json_stringn(text, n)) == 0) return BT_OK;
    return bt_fail(err, BT_FORMAT, "merge %llu is not UTF-8", (unsigned long long)i);
}

static const bt_gguf_kv *find_array(const bt_gguf_reader *r, const char *key, bool texts,
                                    bt_err *err) {
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, key);
    if (kv && kv->type == BT_GGUF_ARRAY &&
        (texts ? kv->element == BT_GGUF_TEXT
               : kv->element == BT_GGUF_I32 || kv->element == BT_GGUF_U32) &&
        kv->count <= 4 * 1048576)
        return kv;
    bt_fail(err, BT_FORMAT, "'%s' is missing, or is not an array of %s", key,
            texts ? "texts" : "whole numbers");
    return NULL;
}

typedef struct split { /* a token as two shorter tokens */
    const char *text;
    size_t cut;        /* length of the left part */
    float score;       /* of the token */
    int chars, behind; /* characters of the left and of the right part */
    size_t at;
} split;

/* Compares two splits in the order of transformers' conversion of SentencePiece files. */
static int by_merge_order(const void *a, const void *b) {
    const split *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->chars != y->chars) return y->chars - x->chars;
    if (x->behind != y->behind) return y->behind - x->behind;
    return x->at < y->at ? -1 : 1;
}

static int count_chars(const char *s, size_t n) {
    int count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

static bool is_normal_token(const vocab *v, json_t *id) {
    const json_int_t i = json_integer_value(id);
    return id && ((uint64_t)i >= v->n_types || v->types[i] == BT_GGUF_NORMAL);
}

/* Finds the ways to split a token into two tokens, or counts them if `out` is NULL. */
static size_t find_splits(const vocab *v, const char *text, json_t *id, split *out, bt_text *left) {
    const size_t n = strlen(text);
    size_t found = 0;
    for (size_t cut = 1; cut < n; cut++) {
        if (((unsigned char)text[cut] & 0xc0) == 0x80) continue;
        bt_text_clear(left);
        bt_text_putn(left, text, cut);
        if (!is_normal_token(v, json_object_get(v->vocab, bt_text_str(left))) ||
            !is_normal_token(v, json_object_get(v->vocab, text + cut)))
            continue;
        if (out)
            out[found] = (split){text,
                                 cut,
                                 v->scores[json_integer_value(id)],
                                 count_chars(text, cut),
                                 count_chars(text + cut, n - cut),
                                 0};
        found++;
    }
    return found;
}

static bt_code compute_merges(vocab *v, bt_err *err) {
    const char *text;
    json_t *id;
    size_t n = 0, at = 0;
    bt_text left = {0};
    json_object_foreach(v->vocab, text, id) if (is_normal_token(v, id))
        n += find_splits(v, text, id, NULL, &left);
    split *all = calloc(n + 1, sizeof *all);
    if (all) {
        json_object_foreach(v->vocab, text, id) if (is_normal_token(v, id))
            at += find_splits(v, text, id, all + at, &left);
        for (size_t i = 0; i < n; i++) all[i].at = i;
        qsort(all, n, sizeof *all, by_merge_order);
        for (size_t i = 0; i < n; i++)
            json_array_append_new(v->merges, json_pack("[s%, s]", all[i].text, all[i].cut,
                                                       all[i].text + all[i].cut));
    }
    bt_text_release(&left);
    free(all);
    return all ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for its merges");
}

static bt_code take_scores(bt_gguf_reader *r, vocab *v, uint64_t tokens, bt_err *err) {
    const bt_foreign_file *f = &r->s->stored.files[r->g.file];
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, "tokenizer.ggml.scores");
    if (!kv || kv->type != BT_GGUF_ARRAY || kv->element != BT_GGUF_F32 || kv->count != tokens)
        return bt_fail(
            err, BT_FORMAT,
            "'tokenizer.ggml.scores' is missing, or does not contain %llu numbers of type f32",
            (unsigned long long)tokens);
    v->scores = calloc((size_t)tokens + 1, sizeof *v->scores);
    if (!v->scores) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    BT_TRY(bt_foreign_read(f, v->scores, (size_t)tokens * sizeof *v->scores, kv->at, err));
    for (uint64_t i = 0; i < tokens; i++)
        if (!(v->scores[i] >= -3e38F && v->scores[i] <= 3e38F))
            return bt_fail(err, BT_FORMAT, "the score of token %llu is not a number",
                           (unsigned long long)i);
    return compute_merges(v, err);
}

static bt_code take_lists(bt_gguf_reader *r, vocab *v, bt_err *err) {
    const bt_foreign_file *f = &r->s->stored.files[r->g.file];
    const bt_gguf_kv *tokens = find_array(r, "tokenizer.ggml.tokens", true, err),
                     *merges = v->scored ? NULL : find_array(r, "tokenizer.ggml.merges", true, err),
                     *types = NULL;
    if (!tokens || (!merges && !v->scored)) return BT_FORMAT;
    if (bt_gguf_find(&r->g, "tokenizer.ggml.token_type")) {
        types = find_array(r, "tokenizer.ggml.token_type", false, err);
        if (!types) return BT_FORMAT;
    }
    if (tokens->count != (uint64_t)r->s->cfg.V || (types && types->count != tokens->count))
        return bt_fail(err, BT_FORMAT,
                       "it has %llu tokens, %llu types of tokens and %d rows of the embedding, but "
                       "these numbers must be equal",
                       (unsigned long long)tokens->count,
                       (unsigned long long)(types ? types->count : tokens->count), r->s->cfg.V);
    v->n_types = types ? types->count : 0;
    v->types = calloc(v->n_types + 1, 1);
    if (!v->types) return bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    if (types) BT_TRY(bt_gguf_walk(types, f, take_type, v, err));
    BT_TRY(bt_gguf_walk(tokens, f, add_gguf_token, v, err));
    return v->scored ? take_scores(r, v, tokens->count, err)
                     : bt_gguf_walk(merges, f, take_merge, v, err);
}

/* Finds the word pattern, and whether a word that equals a token is kept whole. */
static bt_code find_gguf_pattern(const bt_gguf_reader *r, const char **pattern, bool *ignore_merges,
                                 bt_err *err) {
    const char *model = bt_gguf_text(&r->g, "tokenizer.ggml.model"),
               *pre = bt_gguf_text(&r->g, "tokenizer.ggml.pre");
    if (!model || strcmp(model, "gpt2") != 0)
        return bt_fail(err, BT_UNSUPPORTED,
                       "its tokenizer is of the kind '%.40s'; byte-level BPE ('gpt2') and "
                       "SentencePiece's BPE ('llama') are supported",
                       model ? model : "none");
    for (size_t i = 0; pre && i < bt_gguf_pres_n; i++) {
        if (strcmp(pre, bt_gguf_pres[i].pre) != 0) continue;
        *pattern = bt_gguf_pres[i].pattern;
        *ignore_merges = bt_gguf_pres[i].ignore_merges;
        return BT_OK;
    }
    return bt_fail(
        err, BT_UNSUPPORTED,
        "its pre-tokeniser '%.40s' is not supported (supported: those of GPT-2, Llama 3 and Qwen)",
        pre ? pre : "none");
}

static int32_t gguf_token_id(const bt_gguf_reader *r, const char *key) {
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, key);
    const bool is = kv && kv->type != BT_GGUF_TEXT && kv->type != BT_GGUF_ARRAY;
    return is && kv->whole >= 0 && kv->whole < r->s->cfg.V ? (int32_t)kv->whole : -1;
}

static bool gguf_flag_or(const bt_gguf_reader *r, const char *key, bool otherwise) {
    const bt_gguf_kv *kv = bt_gguf_find(&r->g, key);
    return kv && kv->type == BT_GGUF_BOOL ? kv->whole != 0 : otherwise;
}

static void read_gguf_roles(bt_gguf_reader *r) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    bt_token_roles *roles = &r->s->roles;
    *roles = (bt_token_roles){.known = true,
                              .bos = gguf_token_id(r, "tokenizer.ggml.bos_token_id"),
                              .pad = gguf_token_id(r, "tokenizer.ggml.padding_token_id")};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const int32_t id = gguf_token_id(r, keys[i]);
        if (id >= 0) (void)bt_token_roles_add_end(roles, id);
    }
}

/* Makes the member "post_processor". Without the key llama.cpp prepends BOS for its 'llama-bpe' and for 'llama'. */
static json_t *gguf_post_processor(const bt_gguf_reader *r, bool add_bos) {
    const bt_token_roles *roles = &r->s->roles;
    const bool bos = gguf_flag_or(r, "tokenizer.ggml.add_bos_token", add_bos) && roles->bos >= 0,
               eos = gguf_flag_or(r, "tokenizer.ggml.add_eos_token", false) && roles->n_ends > 0;
    json_t *single = json_array();
    if (bos) json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", "bos"));
    json_array_append_new(single, json_pack("{s:{s:s}}", "Sequence", "id", "A"));
    if (eos) json_array_append_new(single, json_pack("{s:{s:s}}", "SpecialToken", "id", "eos"));
    return json_pack("{s:s, s:o, s:{s:{s:[i]}, s:{s:[i]}}}", "type", "TemplateProcessing", "single",
                     single, "special_tokens", "bos", "ids", (int)roles->bos, "eos", "ids",
                     (int)(roles->n_ends ? roles->ends[0] : -1));
}

/* Makes tokenizer.json for SentencePiece's BPE. */
static json_t *make_scored_tokenizer(const bt_gguf_reader *r, const vocab *v) {
    static const char mark[] = "\xe2\x96\x81";
    json_t *replace = json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", " ",
                                "content", mark),
           *steps = json_array(), *decode = json_array();
    const bool prefix = gguf_flag_or(r, "tokenizer.ggml.add_space_prefix", true);
    if (prefix)
        json_array_append_new(steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", mark));
    json_array_append_new(steps, replace);
    json_array_append_new(decode, json_pack("{s:s}", "type", "ByteFallback"));
    if (prefix)
        json_array_append_new(decode, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content",
                                                " ", "start", 1, "stop", 0));
    return json_pack("{s:{s:s, s:b, s:O, s:O}, s:O, s:{s:s, s:o}, s:{s:s, s:o}, s:o}", "model",
                     "type", "BPE", "byte_fallback", 1, "vocab", v->vocab, "merges", v->merges,
                     "added_tokens", v->added, "normalizer", "type", "Sequence", "normalizers",
                     steps, "decoder", "type", "Sequence", "decoders", decode, "post_processor",
                     gguf_post_processor(r, true));
}

static json_t *make_byte_level_tokenizer(const bt_gguf_reader *r, const vocab *v,
                                         const char *pattern, bool ignore_merges) {
    const bt_gguf_kv *nfc = bt_gguf_find(&r->g, BT_KEY_NFC);
    return json_pack("{s:{s:s, s:b, s:O, s:O}, s:O, s:o, s:o, s:o}", "model", "type", "BPE",
                     "ignore_merges", (int)ignore_merges, "vocab", v->vocab, "merges", v->merges,
                     "added_tokens", v->added, "pre_tokenizer", bt_tokenizer_pre_tokenizer(pattern),
                     "normalizer",
                     nfc && nfc->whole ? json_pack("{s:s}", "type", "NFC") : json_null(),
                     "post_processor", gguf_post_processor(r, ignore_merges));
}

static bt_code build_gguf_tokenizer(bt_gguf_reader *r, const vocab *v, bt_err *err) {
    const char *pattern = NULL;
    bool ignore_merges = false;
    if (!v->scored) BT_TRY(find_gguf_pattern(r, &pattern, &ignore_merges, err));
    read_gguf_roles(r);
    json_t *root = v->scored ? make_scored_tokenizer(r, v)
                             : make_byte_level_tokenizer(r, v, pattern, ignore_merges);
    bt_code code = root ? bt_tokenizer_build(&r->s->tokenizer, root, err)
                        : bt_fail(err, BT_NOMEM, "cannot allocate memory for its tokens");
    json_decref(root);
    return code;
}

bt_code bt_gguf_tokenizer_read(bt_gguf_reader *r, bt_err *err) {
    vocab v = {.vocab = json_object(), .added = json_array(), .merges = json_array()};
    const char *model = bt_gguf_text(&r->g, "tokenizer.ggml.model");
    v.scored = model && strcmp(model, "llama") == 0;
    bt_code code = take_lists(r, &v, err);
    if (code == BT_OK) code = build_gguf_tokenizer(r, &v, err);
    json_decref(v.vocab);
    json_decref(v.added);
    json_decref(v.merges);
    free(v.types);
    free(v.scores);
    BT_TRY(code);
    bt_model_file_give_roles(r->s);
    return bt_tokenizer_set_chat_template(r->s->tokenizer,
                                          bt_gguf_text(&r->g, "tokenizer.chat_template"), err);
}
