/* openai_request.h - requests in OpenAI's form, read from JSON and checked. Threads: the caller's. */
#ifndef BT_CLI_SERVE_OPENAI_REQUEST_H
#define BT_CLI_SERVE_OPENAI_REQUEST_H

#include "cli/serve/openai_keys.h"
#include "engine/data/chat/chat.h"
#include "engine/model/net/sampler.h"

enum { BT_OPENAI_STOPS = 16, BT_OPENAI_CHOICES = 1024 };

typedef struct bt_openai_ids {
    int32_t *at; /* the indices within this prompt */
    size_t n;
} bt_openai_ids;

typedef struct bt_openai_request {
    char *model;            /* the name that the client gave; NULL: none */
    bt_openai_ids *prompts; /* (n_prompts) */
    size_t n_prompts, n;    /* n: answers to each */
    bt_sampling sampling;
    bool has_seed;
    size_t max_tokens; /* SIZE_MAX: as far as the context goes */
    char *stop_bytes;
    const char *stops[BT_OPENAI_STOPS + BT_CHAT_STOPS];
    size_t n_stops;
    int32_t end; /* token that ends an answer beside the end of text; -1: none */
    bool stream, include_usage, echo, logprobs;
    size_t top;
    bt_openai_fault fault; /* fault of a refused request */
} bt_openai_request;

/* POST /v1/completions. In a prompt of text, names of special tokens become these tokens
 * (`parse_special`: false refuses this), and the tokenizer's BOS is put in front (`add_special_tokens`:
 * false refuses this). BT_ARG, BT_FORMAT and BT_UNSUPPORTED: the request is wrong; out->fault is set.
 * The caller releases *out in either case. */
bt_code bt_openai_completion(bt_openai_request *out, const char *body, size_t n,
                             const bt_tokenizer *tokenizer, bt_err *err) BT_MUST_CHECK;
/* POST /v1/chat/completions */
bt_code bt_openai_chat(bt_openai_request *out, const char *body, size_t n,
                       const bt_chat_encoder *encoder, bt_err *err) BT_MUST_CHECK;
void bt_openai_request_release(bt_openai_request *r); /* accepts an all-zero struct */

#endif
