/* openai.h - a model behind OpenAI's routes: the source of a web server's answers (web/serve/serve.h),
 * with a batch (engine/generate/generator.h) that writes them.
 *
 *     POST /v1/completions  /v1/chat/completions  /tokenize  /detokenize
 *     GET  /v1/models  /v1/models/NAME  /metrics
 *
 * Threads: the source's functions are called by the server's thread, the batch's callbacks by the
 * one that runs it; a request belongs to the latter once its texts are submitted. */
#ifndef BT_CLI_SERVE_OPENAI_H
#define BT_CLI_SERVE_OPENAI_H

#include "engine/data/chat/chat.h"
#include "engine/generate/generator.h"
#include "web/serve/serve.h"

typedef struct bt_openai bt_openai;

typedef struct bt_openai_cfg { /* borrowed; name is copied */
    bt_generator *batch;
    const bt_tokenizer *tokenizer;
    const bt_chat_template *template;
    const char *name; /* name of the model */
    /* hash of program and kernels: "system_fingerprint" of every response */
    const char *fingerprint;
    size_t context; /* tokens */
    bool any_model; /* requests may name any model */
    const char *precision;
    const bt_text *notes; /* about the model's files, one line each */
} bt_openai_cfg;

bt_code bt_openai_create(bt_openai **out, const bt_openai_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_openai_destroy(bt_openai *o); /* accepts NULL; after server and batch have ended */
bt_serve_source bt_openai_source(bt_openai *o);

#endif
