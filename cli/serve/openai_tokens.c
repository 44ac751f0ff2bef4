/* openai_tokens.c - encodes and decodes text for clients that count tokens. */
#include "cli/serve/openai_tokens.h"

#include <stdlib.h>

#include "engine/data/io/json.h"
#include "engine/generate/output_text.h"

static json_t *text_to_tokenize(json_t *o) {
    json_t *content = json_object_get(o, "content");
    return content ? content : json_object_get(o, "prompt");
}

/* *set is unchanged if the key is absent. */
static bt_code read_flag_key(json_t *o, const char *key, bool *set, bt_openai_fault *fault,
                             bt_err *err) {
    json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) return BT_OK;
    *set = json_is_true(v);
    return json_is_boolean(v)
               ? BT_OK
               : bt_openai_refuse_key(fault, key, NULL, err, "'%s' must be true or false", key);
}

/* Chooses the defaults of vLLM ('prompt', 'add_special_tokens') or llama-server ('content', 'add_special'). The
 * defaults of vLLM count the tokens that a completion adds around the text. */
static bt_code read_encoding_flags(json_t *o, unsigned *how, bt_openai_fault *fault, bt_err *err) {
    bool special = true, whole = !json_object_get(o, "content");
    BT_TRY(read_flag_key(o, "parse_special", &special, fault, err));
    BT_TRY(read_flag_key(o, "add_special", &whole, fault, err));
    BT_TRY(read_flag_key(o, "add_special_tokens", &whole, fault, err));
    *how = (special ? BT_ENCODE_SPECIAL : 0) | (whole ? BT_ENCODE_WHOLE : 0);
    return BT_OK;
}

static bt_code put_token_ids(json_t *text, unsigned how, const bt_tokenizer *tokenizer,
                             size_t context, bt_text *out, bt_err *err) {
    int32_t *ids = NULL;
    size_t n = 0, cap = 0;
    bt_json j;
    const bt_code code = bt_tokenizer_encode_as(tokenizer, how, json_string_value(text),
                                                json_string_length(text), &ids, &n, &cap, err);
    if (code == BT_OK) {
        bt_json_begin(&j, out);
        bt_json_object(&j, NULL);
        bt_json_array(&j, "tokens");
        for (size_t i = 0; i < n; i++) bt_json_int(&j, NULL, ids[i]);
        bt_json_end(&j, ']');
        bt_json_int(&j, "count", (int64_t)n);
        bt_json_int(&j, "max_model_len", (int64_t)context);
        bt_json_end(&j, '}');
    }
    free(ids);
    return code;
}

bt_code bt_openai_tokenize(const char *body, size_t n, const bt_tokenizer *tokenizer,
                           size_t context, bt_text *out, bt_openai_fault *fault, bt_err *err) {
    json_t *o;
    BT_TRY(bt_json_parse_nul(&o, body, n, err));
    unsigned how = 0;
    bt_code code = bt_openai_check_keys(o, BT_KEYS_TOKENIZE, fault, err);
    json_t *text = text_to_tokenize(o);
    if (code == BT_OK && !json_is_string(text))
        code = bt_openai_refuse_key(fault, "content", NULL, err, "'content' must be a text");
    if (code == BT_OK) code = read_encoding_flags(o, &how, fault, err);
    if (code == BT_OK) code = put_token_ids(text, how, tokenizer, context, out, err);
    json_decref(o);
    return code;
}

static bt_code put_bytes_of_ids(json_t *list, const bt_tokenizer *tokenizer, bt_text *bytes,
                                bt_openai_fault *fault, bt_err *err) {
    const json_int_t V = bt_tokenizer_vocab(tokenizer);
    json_t *v;
    size_t i, n;
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= V)
            return bt_openai_refuse_key(fault, "tokens", NULL, err,
                                        "entry %zu of 'tokens' is not a token id below %lld", i,
                                        (long long)V);
        const char *s = bt_tokenizer_bytes(tokenizer, (int32_t)json_integer_value(v), &n);
        bt_text_putn(bytes, s, n);
    }
    return bytes->failed ? bt_fail(err, BT_NOMEM, "no memory for a text") : BT_OK;
}

bt_code bt_openai_detokenize(const char *body, size_t n, const bt_tokenizer *tokenizer,
                             bt_text *out, bt_openai_fault *fault, bt_err *err) {
    json_t *o, *list;
    bt_text bytes, shown;
    bt_json j;
    BT_TRY(bt_json_parse(&o, body, n, err));
    bt_text_init(&bytes);
    bt_text_init(&shown);
    bt_code code = bt_openai_check_keys(o, BT_KEYS_DETOKENIZE, fault, err);
    list = json_object_get(o, "tokens");
    if (code == BT_OK && !json_is_array(list))
        code = bt_openai_refuse_key(fault, "tokens", NULL, err,
                                    "'tokens' must be a list of token ids");
    if (code == BT_OK) code = put_bytes_of_ids(list, tokenizer, &bytes, fault, err);
    if (code == BT_OK) {
        bt_utf8_mend(&shown, bt_text_str(&bytes), bytes.len, false);
        bt_json_begin(&j, out);
        bt_json_object(&j, NULL);
        bt_json_str(&j, "content", bt_text_str(&shown)); /* llama-server's key */
        bt_json_str(&j, "prompt", bt_text_str(&shown));  /* vLLM's */
        bt_json_end(&j, '}');
    }
    bt_text_release(&shown);
    bt_text_release(&bytes);
    json_decref(o);
    return code;
}
