/* openai_request.h - parses and validates requests in OpenAI's form. Threads: the caller's. */
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
    size_t n_prompts, n;    /* n: number of choices for each prompt */
    bt_sampling sampling;
    bool has_seed;
    size_t max_tokens; /* SIZE_MAX: up to the end of the context */
    char *stop_bytes;
    const char *stops[BT_OPENAI_STOPS + BT_CHAT_STOPS];
    size_t n_stops;
    int32_t end; /* token that ends the text, in addition to the end of text; -1: none */
    bool stream, include_usage, echo, logprobs;
    size_t top;
    bt_openai_fault fault; /* fault of a refused request */
} bt_openai_request;

/* POST /v1/completions. Names of special tokens in the prompt become these tokens (unless "parse_special" is false),
 * and the tokenizer's BOS is added at the beginning (unless "add_special_tokens" is false). BT_ARG, BT_FORMAT and
 * BT_UNSUPPORTED: the request is invalid; out->fault is set. The caller releases *out in any case. */
bt_code bt_openai_completion(bt_openai_request *out, const char *body, size_t n,
                             const bt_tokenizer *tokenizer, bt_err *err) BT_MUST_CHECK;
/* POST /v1/chat/completions */
bt_code bt_openai_chat(bt_openai_request *out, const char *body, size_t n,
                       const bt_chat_encoder *encoder, bt_err *err) BT_MUST_CHECK;
void bt_openai_request_release(bt_openai_request *r); /* accepts an all-zero struct */

#endif
