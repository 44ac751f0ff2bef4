/* openai.h - serves a model with OpenAI's API: a source of responses for a web server (web/serve/serve.h), and the
 * batch that generates them (engine/generate/generator.h).
 *
 *     POST /v1/completions  /v1/chat/completions  /tokenize  /detokenize
 *     GET  /v1/models  /v1/models/NAME  /metrics
 *
 * Threads: the server's thread calls the source's functions; the thread that runs the batch calls its callbacks, and
 * owns a request once its texts are submitted. */
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
    size_t context; /* maximum number of tokens */
    bool any_model; /* true: requests may name any model */
    const char *precision;
    const bt_text *notes; /* about the model's files, one line each */
} bt_openai_cfg;

bt_code bt_openai_create(bt_openai **out, const bt_openai_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_openai_destroy(bt_openai *o); /* accepts NULL; after server and batch have ended */
bt_serve_source bt_openai_source(bt_openai *o);

#endif
