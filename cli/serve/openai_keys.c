/* openai_keys.c - the table of request keys, and the check of an object against it. */
#include "cli/serve/openai_keys.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/text.h"

typedef enum { READ, HARMLESS, UNSUPPORTED } key_use;

enum {
    COMPLETION = 1 << BT_KEYS_COMPLETION,
    CHAT = 1 << BT_KEYS_CHAT,
    STREAM = 1 << BT_KEYS_STREAM,
    MESSAGE = 1 << BT_KEYS_MESSAGE,
    TOKENIZE = 1 << BT_KEYS_TOKENIZE,
    DETOKENIZE = 1 << BT_KEYS_DETOKENIZE,
    BOTH = COMPLETION | CHAT
};

typedef struct key_row {
    const char *name;
    unsigned where; /* bits of bt_openai_object */
    key_use use;
    double neutral;      /* value of a number that has no effect */
    const char *instead; /* key to use instead, for the message; NULL: none */
} key_row;

static const key_row rows[] = {
    {"model", BOTH | TOKENIZE | DETOKENIZE, READ, 0, NULL},
    {"prompt", COMPLETION | TOKENIZE, READ, 0, NULL},
    {"content", MESSAGE | TOKENIZE, READ, 0, NULL},
    {"tokens", DETOKENIZE, READ, 0, NULL},
    {"messages", CHAT, READ, 0, NULL},
    {"role", MESSAGE, READ, 0, NULL},
    {"max_tokens", BOTH, READ, 0, NULL},
    {"max_completion_tokens", BOTH, READ, 0, NULL},
    {"n_predict", BOTH, READ, 0, NULL},
    {"temperature", BOTH, READ, 0, NULL},
    {"top_p", BOTH, READ, 0, NULL},
    {"top_k", BOTH, READ, 0, NULL},
    {"min_p", BOTH, READ, 0, NULL},
    {"repetition_penalty", BOTH, READ, 0, NULL},
    {"repeat_penalty", BOTH, READ, 0, NULL},
    {"seed", BOTH, READ, 0, NULL},
    {"stop", BOTH, READ, 0, NULL},
    {"n", BOTH, READ, 0, NULL},
    {"best_of", BOTH, READ, 0, NULL},
    {"stream", BOTH, READ, 0, NULL},
    {"stream_options", BOTH, READ, 0, NULL},
    {"include_usage", STREAM, READ, 0, NULL},
    {"echo", COMPLETION, READ, 0, NULL},
    {"parse_special", COMPLETION | TOKENIZE, READ, 0, NULL},
    {"add_special_tokens", COMPLETION | TOKENIZE, READ, 0, NULL},
    {"add_special", TOKENIZE, READ, 0, NULL},
    {"logprobs", BOTH, READ, 0, NULL},
    {"top_logprobs", CHAT, READ, 0, NULL},
    {"response_format", BOTH, READ, 0, NULL},
    {"add_generation_prompt", CHAT, READ, 0, NULL},
    {"continue_final_message", CHAT, READ, 0, NULL},
    {"modalities", CHAT, READ, 0, NULL},
    /* accounting, storage and transport do not change a text */
    {"user", BOTH, HARMLESS, 0, NULL},
    {"metadata", BOTH, HARMLESS, 0, NULL},
    {"store", BOTH, HARMLESS, 0, NULL},
    {"service_tier", BOTH, HARMLESS, 0, NULL},
    {"safety_identifier", BOTH, HARMLESS, 0, NULL},
    {"prompt_cache_key", BOTH, HARMLESS, 0, NULL},
    {"prompt_cache_retention", BOTH, HARMLESS, 0, NULL},
    {"cache_prompt", BOTH, HARMLESS, 0, NULL},
    {"include_obfuscation", STREAM, HARMLESS, 0, NULL},
    {"parallel_tool_calls", CHAT, HARMLESS, 0, NULL}, /* limits tools, which are refused */
    {"name", MESSAGE, HARMLESS, 0, NULL},             /* no supported chat template uses this key */
    /* keys of other servers that would change the text */
    {"suffix", COMPLETION, UNSUPPORTED, 0, NULL},
    {"tools", CHAT, UNSUPPORTED, 0, NULL},
    {"tool_choice", CHAT, UNSUPPORTED, 0, NULL},
    {"functions", CHAT, UNSUPPORTED, 0, NULL},
    {"function_call", CHAT | MESSAGE, UNSUPPORTED, 0, NULL},
    {"tool_calls", MESSAGE, UNSUPPORTED, 0, NULL},
    {"tool_call_id", MESSAGE, UNSUPPORTED, 0, NULL},
    {"reasoning_content", MESSAGE, UNSUPPORTED, 0, NULL},
    {"audio", CHAT | MESSAGE, UNSUPPORTED, 0, NULL},
    {"presence_penalty", BOTH, UNSUPPORTED, 0, "use repetition_penalty"},
    {"frequency_penalty", BOTH, UNSUPPORTED, 0, "use repetition_penalty"},
    {"dry_multiplier", BOTH, UNSUPPORTED, 0, "use repetition_penalty"},
    {"logit_bias", BOTH, UNSUPPORTED, 0, NULL},
    {"grammar", BOTH, UNSUPPORTED, 0, NULL},
    {"json_schema", BOTH, UNSUPPORTED, 0, NULL},
    {"guided_json", BOTH, UNSUPPORTED, 0, NULL},
    {"guided_regex", BOTH, UNSUPPORTED, 0, NULL},
    {"guided_choice", BOTH, UNSUPPORTED, 0, NULL},
    {"guided_grammar", BOTH, UNSUPPORTED, 0, NULL},
    {"structured_outputs", BOTH, UNSUPPORTED, 0, NULL},
    {"min_tokens", BOTH, UNSUPPORTED, 0, NULL},
    {"ignore_eos", BOTH, UNSUPPORTED, 0, NULL},
    {"stop_token_ids", BOTH, UNSUPPORTED, 0, "use stop"},
    {"typical_p", BOTH, UNSUPPORTED, 1, "use top_p or min_p"},
    {"mirostat", BOTH, UNSUPPORTED, 0, "use top_p or min_p"},
    {"prompt_logprobs", BOTH, UNSUPPORTED, 0, "use echo with logprobs"},
    {"n_probs", BOTH, UNSUPPORTED, 0, "use logprobs"},
    {"add_special_tokens", CHAT, UNSUPPORTED, 0, NULL}, /* the template determines them */
    {"chat_template", CHAT, UNSUPPORTED, 0, "start serve with --template"},
    {"chat_template_kwargs", CHAT, UNSUPPORTED, 0, NULL},
    {"reasoning_effort", CHAT, UNSUPPORTED, 0, NULL},
    {"verbosity", CHAT, UNSUPPORTED, 0, NULL},
    {"prediction", CHAT, UNSUPPORTED, 0, NULL},
    {"web_search_options", CHAT, UNSUPPORTED, 0, NULL},
    {"keep_alive", BOTH, UNSUPPORTED, 0, NULL},
    {"options", BOTH, UNSUPPORTED, 0, "write its settings beside the prompt"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

bt_code bt_openai_refuse_key(bt_openai_fault *fault, const char *key, const char *code, bt_err *err,
                             const char *fmt, ...) {
    char message[400];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    fault->code = code ? code : "invalid_value";
    bt_text_plain(fault->param, sizeof fault->param, key);
    return bt_fail(err, BT_ARG, "%s", message);
}

static bool is_neutral_value(json_t *v, double neutral) {
    const char *text = json_string_value(v);
    if (json_is_null(v) || json_is_false(v)) return true;
    if (text) return !*text || strcmp(text, "none") == 0;
    if (json_is_number(v)) return json_number_value(v) == neutral;
    return (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

static const key_row *find_key_row(const char *key, unsigned where) {
    for (size_t i = 0; i < N_ROWS; i++)
        if ((rows[i].where & where) && strcmp(rows[i].name, key) == 0) return &rows[i];
    return NULL;
}

static bt_code refuse_unknown(const char *key, unsigned where, bt_openai_fault *fault,
                              bt_err *err) {
    const char *names[N_ROWS], *near;
    char shown[64];
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        if ((rows[i].where & where) && rows[i].use == READ) names[n++] = rows[i].name;
    near = bt_nearest(key, names, n);
    bt_text_plain(shown, sizeof shown, key);
    return bt_openai_refuse_key(fault, key, "unknown_parameter", err,
                                "unknown parameter '%s'%s%s%s", shown,
                                near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
}

bt_code bt_openai_check_keys(json_t *o, bt_openai_object kind, bt_openai_fault *fault,
                             bt_err *err) {
    const unsigned where = 1U << kind;
    const char *key;
    json_t *v;
    json_object_foreach(o, key, v) {
        const key_row *row = find_key_row(key, where);
        if (row && row->use != UNSUPPORTED) continue;
        if (!row && !json_is_null(v)) return refuse_unknown(key, where, fault, err);
        if (!row || is_neutral_value(v, row->neutral)) continue;
        return bt_openai_refuse_key(fault, key, "unsupported_parameter", err,
                                    "'%s' is not supported%s%s", key, row->instead ? ": " : "",
                                    row->instead ? row->instead : "");
    }
    return BT_OK;
}
