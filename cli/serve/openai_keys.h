/* openai_keys.h - the keys of a request in OpenAI's form.
 *
 * A key is read, harmless (it does not change the generated text), unsupported, or unknown. Unknown keys are
 * refused unless they are null. Unsupported ones are refused unless their value requests nothing: null, false, "",
 * "none", an empty list, an empty object, or the number that the table lists as neutral (a penalty of 0). */
#ifndef BT_CLI_SERVE_OPENAI_KEYS_H
#define BT_CLI_SERVE_OPENAI_KEYS_H

#include <jansson.h>

#include "engine/base/status.h"

typedef enum {
    BT_KEYS_COMPLETION, /* body of POST /v1/completions */
    BT_KEYS_CHAT,       /* body of POST /v1/chat/completions */
    BT_KEYS_STREAM,     /* its "stream_options" */
    BT_KEYS_MESSAGE,    /* one of its "messages" */
    BT_KEYS_TOKENIZE,   /* body of POST /tokenize */
    BT_KEYS_DETOKENIZE  /* body of POST /detokenize */
} bt_openai_object;

/* Fields of the error object of a refused request, in addition to the message. */
typedef struct bt_openai_fault {
    const char *code; /* in OpenAI's spelling, "unknown_parameter"; NULL: none */
    char param[64];   /* the key at fault; "": none */
} bt_openai_fault;

/* Sets *fault and *err; always returns BT_ARG. code: NULL for "invalid_value". */
bt_code bt_openai_refuse_key(bt_openai_fault *fault, const char *key, const char *code, bt_err *err,
                             const char *fmt, ...) BT_PRINTF(5, 6);

/* BT_ARG: a key of `o` is unsupported or unknown; the message contains the nearest known key */
bt_code bt_openai_check_keys(json_t *o, bt_openai_object kind, bt_openai_fault *fault, bt_err *err)
    BT_MUST_CHECK;

#endif
