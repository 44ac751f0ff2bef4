/* openai_answer.h - writes responses in OpenAI's form, as one object or as chunks of a stream.
 *
 * Threads: one owner at a time. */
#ifndef BT_CLI_SERVE_OPENAI_ANSWER_H
#define BT_CLI_SERVE_OPENAI_ANSWER_H

#include "engine/base/text.h"
#include "engine/generate/generator.h"

typedef struct bt_openai_list { /* a JSON array that is being written */
    bt_text text;
    bt_json json;
} bt_openai_list;

typedef struct bt_openai_choice {
    size_t index;
    bt_text text; /* text so far */
    /* log probabilities; completions use four lists, chat only the first */
    bt_openai_list tokens, token_logprobs, top_logprobs, text_offset;
    size_t n_chars; /* number of complete characters in the tokens so far */
    char part[4];   /* bytes of the last, incomplete character */
    size_t n_part;
    bool has_role; /* the stream of a chat has sent the role */
    bt_finish why;
} bt_openai_choice;

typedef struct bt_openai_answer {
    bool chat, logprobs;
    const bt_tokenizer *tokenizer;
    const char *model;
    const char *fingerprint; /* changes with program and kernels; borrowed */
    char id[40];
    int64_t created;
    size_t prompt_tokens, completion_tokens;
    bt_openai_choice *choices; /* (n) */
    size_t n;
} bt_openai_answer;

/* Initialises n choices; false: out of memory. */
bool bt_openai_answer_init(bt_openai_answer *a, size_t n);
void bt_openai_answer_release(bt_openai_answer *a);

/* Adds a token with its text and log probabilities to a choice. */
void bt_openai_add(bt_openai_answer *a, bt_openai_choice *c, const bt_token_event *s);
/* Writes the whole response. */
void bt_openai_put(bt_openai_answer *a, bt_text *out);
/* Writes "data: {...}\n\n" with the text since the last chunk and, if finished, the finish reason. Writes nothing if
 * there is neither. */
void bt_openai_put_chunk(bt_openai_answer *a, bt_openai_choice *c, bool finished, bt_text *out);
void bt_openai_put_usage_chunk(const bt_openai_answer *a, bt_text *out);

#endif
