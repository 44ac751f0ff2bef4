/* openai_answer.c - writes the JSON of completions and chat completions. */
#include "cli/serve/openai_answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "engine/generate/output_text.h"

static void begin_openai_list(bt_openai_list *l) {
    bt_text_clear(&l->text);
    bt_json_begin(&l->json, &l->text);
    bt_json_array(&l->json, NULL);
}

/* Writes the complete list; the next entry begins a new list. */
static void put_openai_list(bt_openai_list *l, bt_json *j, const char *key) {
    bt_json_end(&l->json, ']');
    bt_json_raw(j, key, bt_text_str(&l->text));
    begin_openai_list(l);
}

static bt_openai_list *choice_logprob_list(bt_openai_choice *c, size_t i) {
    bt_openai_list *const lists[] = {&c->tokens, &c->token_logprobs, &c->top_logprobs,
                                     &c->text_offset};
    return lists[i];
}

bool bt_openai_answer_init(bt_openai_answer *a, size_t n) {
    a->choices = calloc(n, sizeof *a->choices);
    a->n = a->choices ? n : 0;
    for (size_t i = 0; i < a->n; i++) {
        a->choices[i].index = i;
        for (size_t k = 0; k < 4; k++) begin_openai_list(choice_logprob_list(&a->choices[i], k));
    }
    return a->choices != NULL;
}

void bt_openai_answer_release(bt_openai_answer *a) {
    for (size_t i = 0; i < a->n; i++) {
        bt_text_release(&a->choices[i].text);
        for (size_t k = 0; k < 4; k++)
            bt_text_release(&choice_logprob_list(&a->choices[i], k)->text);
    }
    free(a->choices);
    a->choices = NULL;
    a->n = 0;
}

/* Appends the name of a special token, or the text of any other; invalid UTF-8 is written as "bytes:\xNN...". */
static void put_token_name(const bt_tokenizer *t, int32_t id, bt_text *out) {
    size_t n;
    const char *s = bt_tokenizer_bytes(t, id, &n);
    bt_text mended;
    bt_text_init(&mended);
    bt_utf8_mend(&mended, s, n, false);
    if (mended.len == n && (n == 0 || memcmp(mended.data, s, n) == 0)) {
        bt_text_putn(out, s, n);
    } else {
        bt_text_put(out, "bytes:");
        for (size_t i = 0; i < n; i++) bt_text_printf(out, "\\x%02x", (unsigned char)s[i]);
    }
    bt_text_release(&mended);
}

/* Appends the bytes of a token to the text of a choice and counts the characters that are now complete. Clients divide
 * the text by these offsets, so invalid bytes count as the U+FFFD that the text contains for them. */
static void count_characters(bt_openai_choice *c, const char *bytes, size_t n) {
    bt_text text, shown;
    bt_text_init(&text);
    bt_text_init(&shown);
    bt_text_putn(&text, c->part, c->n_part);
    bt_text_putn(&text, bytes, n);
    c->n_part = bt_utf8_unfinished(bt_text_str(&text), text.len);
    if (!text.failed) {
        bt_utf8_mend(&shown, text.data, text.len - c->n_part, false);
        memcpy(c->part, text.data + text.len - c->n_part, c->n_part);
    }
    for (size_t i = 0; i < shown.len; i++)
        c->n_chars += ((unsigned char)shown.data[i] & 0xc0) != 0x80;
    bt_text_release(&shown);
    bt_text_release(&text);
}

static void put_token_bytes(bt_json *j, const bt_tokenizer *t, int32_t id) {
    size_t n;
    const char *s = bt_tokenizer_bytes(t, id, &n);
    bt_json_array(j, "bytes");
    for (size_t i = 0; i < n; i++) bt_json_int(j, NULL, (unsigned char)s[i]);
    bt_json_end(j, ']');
}

static void put_chat_token(bt_json *j, const bt_tokenizer *t, int32_t id, double logprob) {
    bt_text word;
    bt_text_init(&word);
    put_token_name(t, id, &word);
    bt_json_str(j, "token", bt_text_str(&word));
    bt_json_num(j, "logprob", logprob);
    put_token_bytes(j, t, id);
    bt_text_release(&word);
}

static void add_chat_logprob(const bt_openai_answer *a, bt_openai_choice *c,
                             const bt_token_event *s) {
    bt_json *j = &c->tokens.json;
    bt_json_object(j, NULL);
    put_chat_token(j, a->tokenizer, s->token, s->logprob);
    bt_json_array(j, "top_logprobs");
    for (size_t i = 0; i < s->n_top; i++) {
        bt_json_object(j, NULL);
        put_chat_token(j, a->tokenizer, s->top[i], s->top_logprob[i]);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

/* Adds the most probable tokens and, as OpenAI does, the token itself if it is not among them. */
static void add_top_tokens(const bt_openai_answer *a, bt_json *j, const bt_token_event *s,
                           const char *token) {
    bt_text word;
    bool there = false;
    if (isnan(s->logprob)) {
        bt_json_null(j, NULL);
        return;
    }
    bt_text_init(&word);
    bt_json_object(j, NULL);
    for (size_t i = 0; i < s->n_top; i++) {
        there |= s->top[i] == s->token;
        bt_text_clear(&word);
        put_token_name(a->tokenizer, s->top[i], &word);
        bt_json_num(j, bt_text_str(&word), s->top_logprob[i]);
    }
    if (!there) bt_json_num(j, token, s->logprob);
    bt_json_end(j, '}');
    bt_text_release(&word);
}

static void add_logprob(const bt_openai_answer *a, bt_openai_choice *c, const bt_token_event *s) {
    bt_text word;
    bt_text_init(&word);
    put_token_name(a->tokenizer, s->token, &word);
    bt_json_str(&c->tokens.json, NULL, bt_text_str(&word));
    bt_json_num(&c->token_logprobs.json, NULL, s->logprob); /* NaN is written as null */
    add_top_tokens(a, &c->top_logprobs.json, s, bt_text_str(&word));
    bt_json_int(&c->text_offset.json, NULL, (int64_t)c->n_chars);
    bt_text_release(&word);
    if (!s->echoed && bt_tokenizer_is_special(a->tokenizer, s->token))
        return; /* the text does not contain special tokens */
    size_t n;
    const char *bytes = bt_tokenizer_bytes(a->tokenizer, s->token, &n);
    count_characters(c, bytes, n);
}

void bt_openai_add(bt_openai_answer *a, bt_openai_choice *c, const bt_token_event *s) {
    bt_utf8_mend(&c->text, s->text, s->n_text, false);
    if (!s->echoed) a->completion_tokens++;
    if (!a->logprobs) return;
    if (a->chat)
        add_chat_logprob(a, c, s);
    else
        add_logprob(a, c, s);
}

static const char *openai_finish_reason(bt_finish why) {
    return why == BT_FINISH_STOP ? "stop" : "length";
}

static void put_completion_head(const bt_openai_answer *a, bt_json *j, const char *object) {
    bt_json_object(j, NULL);
    bt_json_str(j, "id", a->id);
    bt_json_str(j, "object", object);
    BT_JSON_FIELDS(j, a, F(created), F(model), F_AS("system_fingerprint", fingerprint));
}

static void put_usage(const bt_openai_answer *a, bt_json *j) {
    bt_json_object(j, "usage");
    bt_json_int(j, "prompt_tokens", (int64_t)a->prompt_tokens);
    bt_json_int(j, "completion_tokens", (int64_t)a->completion_tokens);
    bt_json_int(j, "total_tokens", (int64_t)(a->prompt_tokens + a->completion_tokens));
    bt_json_end(j, '}');
}

static void put_logprobs(const bt_openai_answer *a, bt_openai_choice *c, bt_json *j) {
    if (!a->logprobs) {
        bt_json_null(j, "logprobs");
        return;
    }
    bt_json_object(j, "logprobs");
    put_openai_list(&c->tokens, j, a->chat ? "content" : "tokens");
    if (!a->chat) {
        put_openai_list(&c->token_logprobs, j, "token_logprobs");
        put_openai_list(&c->top_logprobs, j, "top_logprobs");
        put_openai_list(&c->text_offset, j, "text_offset");
    }
    bt_json_end(j, '}');
}

void bt_openai_put(bt_openai_answer *a, bt_text *out) {
    bt_json j;
    bt_json_begin(&j, out);
    put_completion_head(a, &j, a->chat ? "chat.completion" : "text_completion");
    bt_json_array(&j, "choices");
    for (size_t i = 0; i < a->n; i++) {
        bt_openai_choice *c = &a->choices[i];
        bt_json_object(&j, NULL);
        bt_json_int(&j, "index", (int64_t)c->index);
        if (a->chat) {
            bt_json_object(&j, "message");
            bt_json_str(&j, "role", "assistant");
            bt_json_str(&j, "content", bt_text_str(&c->text));
            bt_json_end(&j, '}');
        } else {
            bt_json_str(&j, "text", bt_text_str(&c->text));
        }
        put_logprobs(a, c, &j);
        bt_json_str(&j, "finish_reason", openai_finish_reason(c->why));
        bt_json_end(&j, '}');
    }
    bt_json_end(&j, ']');
    put_usage(a, &j);
    bt_json_end(&j, '}');
}

static const char *chunk_object_name(const bt_openai_answer *a) {
    return a->chat ? "chat.completion.chunk" : "text_completion";
}

static void put_delta(bt_openai_choice *c, bt_json *j, bool finished) {
    bt_json_object(j, "delta");
    if (!c->has_role) bt_json_str(j, "role", "assistant");
    if (!c->has_role || c->text.len || !finished) bt_json_str(j, "content", bt_text_str(&c->text));
    c->has_role = true;
    bt_json_end(j, '}');
}

void bt_openai_put_chunk(bt_openai_answer *a, bt_openai_choice *c, bool finished, bt_text *out) {
    const bool said = c->text.len || (a->logprobs && c->tokens.text.len > 1);
    bt_json j;
    if (!said && !finished) return;
    bt_text_put(out, "data: ");
    bt_json_begin(&j, out);
    put_completion_head(a, &j, chunk_object_name(a));
    bt_json_array(&j, "choices");
    bt_json_object(&j, NULL);
    bt_json_int(&j, "index", (int64_t)c->index);
    if (a->chat)
        put_delta(c, &j, finished);
    else
        bt_json_str(&j, "text", bt_text_str(&c->text));
    put_logprobs(a, c, &j);
    if (finished)
        bt_json_str(&j, "finish_reason", openai_finish_reason(c->why));
    else
        bt_json_null(&j, "finish_reason");
    bt_json_end(&j, '}');
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    bt_text_put(out, "\n\n");
    bt_text_clear(&c->text);
}

void bt_openai_put_usage_chunk(const bt_openai_answer *a, bt_text *out) {
    bt_json j;
    bt_text_put(out, "data: ");
    bt_json_begin(&j, out);
    put_completion_head(a, &j, chunk_object_name(a));
    bt_json_array(&j, "choices");
    bt_json_end(&j, ']');
    put_usage(a, &j);
    bt_json_end(&j, '}');
    bt_text_put(out, "\n\n");
}
