/* openai_tokens.h - POST /tokenize and POST /detokenize, in the form of llama-server and vLLM. */
#ifndef BT_CLI_SERVE_OPENAI_TOKENS_H
#define BT_CLI_SERVE_OPENAI_TOKENS_H

#include "cli/serve/openai_keys.h"
#include "engine/base/text.h"
#include "engine/data/tokenizer/tokenizer.h"

/* {"content": TEXT} or {"prompt": TEXT} -> {"tokens": [ids], "count": n, "max_model_len": context} */
bt_code bt_openai_tokenize(const char *body, size_t n, const bt_tokenizer *tokenizer,
                           size_t context, bt_text *out, bt_openai_fault *fault, bt_err *err)
    BT_MUST_CHECK;
/* {"tokens": [ids]} -> {"content": TEXT, "prompt": TEXT}; invalid UTF-8 becomes U+FFFD. */
bt_code bt_openai_detokenize(const char *body, size_t n, const bt_tokenizer *tokenizer,
                             bt_text *out, bt_openai_fault *fault, bt_err *err) BT_MUST_CHECK;

#endif
