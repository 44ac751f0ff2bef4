/* openai_answer.h - answers in OpenAI's form: a whole object, or chunks of a stream.
 *
 * Threads: one owner at a time. */
#ifndef BT_CLI_SERVE_OPENAI_ANSWER_H
#define BT_CLI_SERVE_OPENAI_ANSWER_H

#include "engine/base/text.h"
#include "engine/generate/generator.h"

typedef struct bt_openai_list { /* a JSON array in the making */
    bt_text text;
    bt_json json;
} bt_openai_list;

typedef struct bt_openai_choice {
    size_t index;
    bt_text text; /* so far */
    /* log probabilities: completions have four lists, chat has the first alone */
    bt_openai_list tokens, token_logprobs, top_logprobs, text_offset;
    size_t n_chars; /* complete characters of the tokens so far */
    char part[4];   /* bytes of the character that is not complete yet */
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

/* n choices; false: no memory */
bool bt_openai_answer_init(bt_openai_answer *a, size_t n);
void bt_openai_answer_release(bt_openai_answer *a);

/* a token of a choice: its text, its log probabilities */
void bt_openai_add(bt_openai_answer *a, bt_openai_choice *c, const bt_token_event *s);
/* the whole answer */
void bt_openai_put(bt_openai_answer *a, bt_text *out);
/* Writes "data: {...}\n\n" with the text since the last chunk; finished: with the reason of the end as well. Writes
 * nothing if there is neither. */
void bt_openai_put_chunk(bt_openai_answer *a, bt_openai_choice *c, bool finished, bt_text *out);
void bt_openai_put_usage_chunk(const bt_openai_answer *a, bt_text *out);

#endif
