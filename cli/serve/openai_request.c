/* openai_request.c - reads the JSON bodies of completions and chat completions. openai_keys.c has the
 * list of keys; unsupported keys are refused by name. */
#include "cli/serve/openai_request.h"

#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/data/chat/content.h"
#include "engine/data/io/json.h"
#include "engine/generate/generator.h"

/* ---- single values --------------------------------------------------------------------------- */
static json_t *get_key_unless_null(json_t *o, const char *key) {
    json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : v;
}

#define REFUSE(r, key, err, ...) bt_openai_refuse_key(&(r)->fault, key, NULL, err, __VA_ARGS__)

static bt_code read_number_key(bt_openai_request *r, json_t *o, const char *key, double lo,
                               double hi, double *out, bt_err *err) {
    json_t *v = get_key_unless_null(o, key);
    if (!v) return BT_OK;
    const double x = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(x >= lo && x <= hi))
        return REFUSE(r, key, err, "'%s' must be a number from %g to %g", key, lo, hi);
    *out = x;
    return BT_OK;
}

static bt_code read_integer_key(bt_openai_request *r, json_t *o, const char *key, int64_t lo,
                                int64_t hi, int64_t *out, bt_err *err) {
    json_t *v = get_key_unless_null(o, key);
    if (!v) return BT_OK;
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        return REFUSE(r, key, err, "'%s' must be a whole number from %lld to %lld", key,
                      (long long)lo, (long long)hi);
    *out = json_integer_value(v);
    return BT_OK;
}

static bt_code read_flag(bt_openai_request *r, json_t *o, const char *key, bool *out, bt_err *err) {
    json_t *v = get_key_unless_null(o, key);
    if (!v) return BT_OK;
    if (!json_is_boolean(v)) return REFUSE(r, key, err, "'%s' must be true or false", key);
    *out = json_is_true(v);
    return BT_OK;
}

/* ---- keys of completions and of chat completions
 * -------------------------------------------------------------------- */
static bt_code check_output_form(bt_openai_request *r, json_t *o, bt_err *err) {
    json_t *format = get_key_unless_null(o, "response_format"),
           *modalities = get_key_unless_null(o, "modalities"), *v;
    const char *form = json_string_value(json_object_get(format, "type"));
    size_t i;
    if (format && (!form || strcmp(form, "text") != 0))
        return REFUSE(r, "response_format", err, "'response_format' can only be of type 'text'");
    json_array_foreach(modalities, i, v) {
        const char *name = json_string_value(v);
        if (!name || strcmp(name, "text") != 0)
            return REFUSE(r, "modalities", err, "'modalities' can only be [\"text\"]");
    }
    return BT_OK;
}

static bt_code read_sampling(bt_openai_request *r, json_t *o, bt_err *err) {
    int64_t top_k = 0, seed = 0;
    r->sampling = (bt_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    BT_TRY(read_number_key(r, o, "temperature", 0, 100, &r->sampling.temperature, err));
    BT_TRY(read_number_key(r, o, "top_p", 0, 1, &r->sampling.top_p, err));
    BT_TRY(read_number_key(r, o, "min_p", 0, 1, &r->sampling.min_p, err));
    BT_TRY(read_number_key(r, o, "repetition_penalty", 0.01, 100, &r->sampling.repetition_penalty,
                           err));
    BT_TRY(
        read_number_key(r, o, "repeat_penalty", 0.01, 100, &r->sampling.repetition_penalty, err));
    BT_TRY(read_integer_key(r, o, "top_k", -1, INT32_MAX, &top_k,
                            err)); /* -1: off, as in other servers */
    BT_TRY(read_integer_key(r, o, "seed", INT64_MIN, INT64_MAX, &seed, err));
    r->sampling.top_k = top_k < 0 ? 0 : (int)top_k;
    r->sampling.seed = (uint64_t)seed;
    r->has_seed = get_key_unless_null(o, "seed") != NULL;
    return BT_OK;
}

/* Reads a string or a list of strings into one block of bytes. */
static bt_code read_stops(bt_openai_request *r, json_t *v, bt_err *err) {
    const bool list = json_is_array(v);
    const size_t n = list ? json_array_size(v) : v != NULL;
    size_t bytes = 1;
    if (n > BT_OPENAI_STOPS)
        return REFUSE(r, "stop", err, "at most %d 'stop' texts", BT_OPENAI_STOPS);
    for (size_t i = 0; i < n; i++) {
        json_t *s = list ? json_array_get(v, i) : v;
        if (!json_is_string(s) || strlen(json_string_value(s)) != json_string_length(s))
            return REFUSE(r, "stop", err, "'stop' must be a text or a list of texts, without NUL");
        bytes += json_string_length(s) + 1;
    }
    char *p = r->stop_bytes = malloc(bytes);
    if (!p) return bt_fail(err, BT_NOMEM, "no memory for stop texts");
    for (size_t i = 0; i < n; i++) {
        json_t *s = list ? json_array_get(v, i) : v;
        memcpy(p, json_string_value(s), json_string_length(s) + 1);
        r->stops[r->n_stops++] = p;
        p += json_string_length(s) + 1;
    }
    return BT_OK;
}

static bt_code read_model_key(bt_openai_request *r, json_t *o, bt_err *err) {
    json_t *v = get_key_unless_null(o, "model");
    if (!v) return BT_OK;
    if (!json_is_string(v)) return REFUSE(r, "model", err, "'model' must be a text");
    r->model = strdup(json_string_value(v));
    return r->model ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for a request");
}

static bt_code read_common_keys(bt_openai_request *r, json_t *o, bt_openai_object kind,
                                bt_err *err) {
    int64_t n = 1, best_of = -1, most = -1;
    r->end = -1;
    BT_TRY(bt_openai_check_keys(o, kind, &r->fault, err));
    BT_TRY(check_output_form(r, o, err));
    BT_TRY(read_model_key(r, o, err));
    BT_TRY(read_sampling(r, o, err));
    BT_TRY(read_stops(r, get_key_unless_null(o, "stop"), err));
    BT_TRY(read_integer_key(r, o, "n", 1, 128, &n, err));
    BT_TRY(read_integer_key(r, o, "best_of", 1, 128, &best_of, err));
    if (best_of >= 0 && best_of != n)
        return REFUSE(r, "best_of", err, "'best_of' other than 'n' is not supported");
    r->n = (size_t)n;
    BT_TRY(read_integer_key(r, o, "max_tokens", 0, INT32_MAX, &most, err));
    BT_TRY(read_integer_key(r, o, "max_completion_tokens", 0, INT32_MAX, &most, err));
    BT_TRY(read_integer_key(r, o, "n_predict", -1, INT32_MAX, &most, err)); /* -1: no limit */
    r->max_tokens = most < 0 ? SIZE_MAX : (size_t)most;
    BT_TRY(read_flag(r, o, "stream", &r->stream, err));
    json_t *options = get_key_unless_null(o, "stream_options");
    if (!options) return BT_OK;
    if (!json_is_object(options))
        return REFUSE(r, "stream_options", err, "'stream_options' must be an object");
    BT_TRY(bt_openai_check_keys(options, BT_KEYS_STREAM, &r->fault, err));
    return read_flag(r, options, "include_usage", &r->include_usage, err);
}

static bt_code check_count(bt_openai_request *r, bt_err *err) {
    if (r->n_prompts * r->n <= BT_OPENAI_CHOICES) return BT_OK;
    return REFUSE(r, "n", err, "at most %d texts a request", BT_OPENAI_CHOICES);
}

/* ---- completions ----------------------------------------------------------------------------- */
static bt_code set_prompt_from_text(bt_openai_ids *out, json_t *v, unsigned how,
                                    const bt_tokenizer *tok, bt_err *err) {
    size_t cap = 0;
    const size_t n = json_string_length(v);
    const int32_t eot = bt_tokenizer_eot(tok);
    if (n > 0)
        return bt_tokenizer_encode_as(tok, how, json_string_value(v), n, &out->at, &out->n, &cap,
                                      err);
    /* An empty prompt becomes the tokens that begin each text, or a newline if there are none. */
    BT_TRY(bt_tokenizer_encode_as(tok, how, "", 0, &out->at, &out->n, &cap, err));
    if (out->n) return BT_OK;
    if (eot < 0) return bt_tokenizer_encode(tok, "\n", 1, &out->at, &out->n, &cap, err);
    free(out->at);
    out->at = malloc(sizeof *out->at);
    if (!out->at) return bt_fail(err, BT_NOMEM, "no memory for a prompt");
    out->at[0] = eot;
    out->n = 1;
    return BT_OK;
}

static bt_code set_prompt_from_ids(bt_openai_request *r, bt_openai_ids *out, json_t *list,
                                   bt_err *err) {
    json_t *v;
    size_t i;
    out->n = json_array_size(list);
    if (out->n == 0) return REFUSE(r, "prompt", err, "a 'prompt' is empty");
    out->at = malloc(out->n * sizeof *out->at);
    if (!out->at) return bt_fail(err, BT_NOMEM, "no memory for a prompt");
    json_array_foreach(list, i, v) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return REFUSE(r, "prompt", err, "token %zu of a 'prompt' is no token id", i);
        out->at[i] = (int32_t)json_integer_value(v);
    }
    return BT_OK;
}

/* Reads a text, a list of texts, a list of ids, or a list of lists of ids. */
static bt_code read_prompt_key(bt_openai_request *r, json_t *v, unsigned how,
                               const bt_tokenizer *tok, bt_err *err) {
    if (!json_is_string(v) && !(json_is_array(v) && json_array_size(v) > 0))
        return REFUSE(r, "prompt", err,
                      "'prompt' must be a text, a list of texts, a list of token ids or a list of "
                      "such lists");
    const bool one = json_is_string(v) || json_is_integer(json_array_get(v, 0));
    r->n_prompts = one ? 1 : json_array_size(v);
    BT_TRY(check_count(r, err));
    r->prompts = calloc(r->n_prompts, sizeof *r->prompts);
    if (!r->prompts) return bt_fail(err, BT_NOMEM, "no memory for %zu prompts", r->n_prompts);
    for (size_t i = 0; i < r->n_prompts; i++) {
        json_t *p = one ? v : json_array_get(v, i);
        if (json_is_string(p))
            BT_TRY(set_prompt_from_text(&r->prompts[i], p, how, tok, err));
        else if (json_is_array(p))
            BT_TRY(set_prompt_from_ids(r, &r->prompts[i], p, err));
        else
            return REFUSE(r, "prompt", err, "prompt %zu is neither a text nor a list of token ids",
                          i);
    }
    return BT_OK;
}

static bt_code read_completion(bt_openai_request *r, json_t *o, const bt_tokenizer *tok,
                               bt_err *err) {
    int64_t top = -1;
    bool special = true, whole_text = true;
    BT_TRY(read_common_keys(r, o, BT_KEYS_COMPLETION, err));
    if (r->max_tokens == SIZE_MAX) r->max_tokens = 16; /* OpenAI's default */
    BT_TRY(read_flag(r, o, "parse_special", &special, err));
    BT_TRY(read_flag(r, o, "add_special_tokens", &whole_text, err));
    BT_TRY(read_flag(r, o, "echo", &r->echo, err));
    BT_TRY(read_integer_key(r, o, "logprobs", 0, BT_TOP_MAX, &top, err));
    r->logprobs = top >= 0;
    r->top = top > 0 ? (size_t)top : 0;
    return read_prompt_key(r, json_object_get(o, "prompt"),
                           (special ? BT_ENCODE_SPECIAL : 0) | (whole_text ? BT_ENCODE_WHOLE : 0),
                           tok, err);
}

bt_code bt_openai_completion(bt_openai_request *out, const char *body, size_t n,
                             const bt_tokenizer *tokenizer, bt_err *err) {
    json_t *o;
    memset(out, 0, sizeof *out);
    BT_TRY(bt_json_parse_nul(&o, body, n, err));
    const bt_code code = read_completion(out, o, tokenizer, err);
    json_decref(o);
    return code;
}

/* ---- chat ------------------------------------------------------------------------------------ */
typedef struct messages {
    bt_chat_message *at;
    bt_text *joined; /* (n) joined texts of contents that have several parts */
    size_t n;
} messages;

static bt_code read_message_role(bt_openai_request *r, const char *name, size_t i,
                                 bt_chat_role *out, bt_err *err) {
    static const struct {
        const char *name;
        bt_chat_role role;
    } roles[] = {{"system", BT_CHAT_SYSTEM},
                 {"developer", BT_CHAT_SYSTEM},
                 {"user", BT_CHAT_USER},
                 {"assistant", BT_CHAT_ASSISTANT}};
    for (size_t k = 0; name && k < sizeof roles / sizeof *roles; k++) {
        if (strcmp(roles[k].name, name) != 0) continue;
        *out = roles[k].role;
        return BT_OK;
    }
    return REFUSE(r, "messages", err, "message %zu: the role must be system, user or assistant",
                  i + 1);
}

static bt_code read_message_content(bt_openai_request *r, const json_t *v, size_t i,
                                    bt_chat_message *out, bt_text *joined, bt_err *err) {
    switch (bt_chat_content(v, joined, &out->text, &out->n)) {
    case BT_CONTENT_OK: return BT_OK;
    case BT_CONTENT_NOMEM: return bt_fail(err, BT_NOMEM, "no memory for a message");
    case BT_CONTENT_NO_TEXT:
        return REFUSE(r, "messages", err, "message %zu: 'content' must be a text", i + 1);
    default:
        return REFUSE(r, "messages", err, "message %zu: only parts of type 'text' are supported",
                      i + 1);
    }
}

static bt_code read_messages(bt_openai_request *r, messages *m, json_t *list, bt_err *err) {
    json_t *v;
    size_t i;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return REFUSE(r, "messages", err, "'messages' must be a list of at least one message");
    m->n = json_array_size(list);
    m->at = calloc(m->n, sizeof *m->at);
    m->joined = calloc(m->n, sizeof *m->joined);
    if (!m->at || !m->joined) return bt_fail(err, BT_NOMEM, "no memory for %zu messages", m->n);
    json_array_foreach(list, i, v) {
        BT_TRY(bt_openai_check_keys(v, BT_KEYS_MESSAGE, &r->fault, err));
        BT_TRY(read_message_role(r, json_string_value(json_object_get(v, "role")), i,
                                 &m->at[i].role, err));
        BT_TRY(read_message_content(r, json_object_get(v, "content"), i, &m->at[i], &m->joined[i],
                                    err));
    }
    return BT_OK;
}

/* Sets *out if the last message is the assistant's: the reply then continues this message, as in vLLM and llama-server.
 * vLLM's keys add_generation_prompt and continue_final_message may only confirm this. */
static bt_code read_continuation(bt_openai_request *r, json_t *o, const messages *m, bool *out,
                                 bt_err *err) {
    const bool last = m->at[m->n - 1].role == BT_CHAT_ASSISTANT;
    bool add = !last, proceed = last;
    BT_TRY(read_flag(r, o, "add_generation_prompt", &add, err));
    BT_TRY(read_flag(r, o, "continue_final_message", &proceed, err));
    if (proceed != last)
        return REFUSE(r, "continue_final_message", err,
                      "'continue_final_message' must be %s: the last message is %s",
                      last ? "true" : "false", last ? "the assistant's" : "not the assistant's");
    if (add == last)
        return REFUSE(r, "add_generation_prompt", err,
                      "'add_generation_prompt' must be %s: the last message is %s",
                      last ? "false" : "true", last ? "the assistant's" : "not the assistant's");
    *out = last;
    return BT_OK;
}

static bt_code encode_messages(bt_openai_request *r, const messages *m, bool proceed,
                               const bt_chat_encoder *e, bt_err *err) {
    bt_chat_ids ids = {0};
    const bt_chat_message *last = &m->at[m->n - 1];
    const size_t n = proceed ? m->n - 1 : m->n;
    if (n == 0)
        return REFUSE(r, "messages", err, "message 1 is the assistant's: a user's must precede it");
    bt_code code = bt_chat_encode(e, m->at, n, true, false, &ids, err);
    if (code == BT_FORMAT || code == BT_UNSUPPORTED || code == BT_ARG)
        snprintf(r->fault.param, sizeof r->fault.param, "messages");
    if (code == BT_OK && proceed)
        code = bt_chat_ids_encode(&ids, e->tokenizer, BT_ENCODE_TEXT, last->text, last->n, false,
                                  err);
    r->prompts = code == BT_OK ? calloc(1, sizeof *r->prompts) : NULL;
    if (r->prompts) {
        r->n_prompts = 1;
        r->prompts[0] = (bt_openai_ids){ids.ids, ids.n};
        ids.ids = NULL;
    } else if (code == BT_OK) {
        code = bt_fail(err, BT_NOMEM, "no memory for a conversation");
    }
    bt_chat_ids_release(&ids);
    return code;
}

static bt_code read_chat_completion(bt_openai_request *r, json_t *o, const bt_chat_encoder *e,
                                    bt_err *err) {
    messages m = {0};
    int64_t top = 0;
    bool proceed = false;
    BT_TRY(read_common_keys(r, o, BT_KEYS_CHAT, err));
    BT_TRY(read_flag(r, o, "logprobs", &r->logprobs, err));
    BT_TRY(read_integer_key(r, o, "top_logprobs", 0, BT_TOP_MAX, &top, err));
    r->top = (size_t)top;
    r->end = bt_chat_end_token(e->t, e->tokenizer);
    r->n_stops += bt_chat_stops(e->t, e->tokenizer, r->stops + r->n_stops);
    bt_code code = read_messages(r, &m, json_object_get(o, "messages"), err);
    if (code == BT_OK) code = read_continuation(r, o, &m, &proceed, err);
    if (code == BT_OK) code = encode_messages(r, &m, proceed, e, err);
    for (size_t i = 0; i < m.n && m.joined; i++) bt_text_release(&m.joined[i]);
    free(m.joined);
    free(m.at);
    return code;
}

bt_code bt_openai_chat(bt_openai_request *out, const char *body, size_t n,
                       const bt_chat_encoder *encoder, bt_err *err) {
    json_t *o;
    memset(out, 0, sizeof *out);
    BT_TRY(bt_json_parse_nul(&o, body, n, err));
    const bt_code code = read_chat_completion(out, o, encoder, err);
    json_decref(o);
    return code;
}

void bt_openai_request_release(bt_openai_request *r) {
    for (size_t i = 0; i < r->n_prompts && r->prompts; i++) free(r->prompts[i].at);
    free(r->prompts);
    free(r->stop_bytes);
    free(r->model);
    memset(r, 0, sizeof *r);
}
