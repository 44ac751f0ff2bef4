/* openai.c - from a request to texts in the batch, and from what these say to its reply. */
#include "cli/serve/openai.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "cli/model/model_notes.h"
#include "cli/serve/openai_answer.h"
#include "cli/serve/openai_request.h"

struct bt_openai {
    bt_openai_cfg cfg;
    char name[128];
    int64_t created;
    bt_chat_encoder encoder;
    atomic_ullong n; /* requests so far */
};

typedef struct request request;

typedef struct writer { /* of one choice: what the batch's callbacks get */
    request *of;
    bt_openai_choice *choice;
} writer;

struct request {
    bt_reply *reply;
    bt_openai_answer answer;
    bool stream, include_usage;
    atomic_bool gone; /* its client */
    size_t left;      /* choices that are not done */
    bool cancelled;   /* one of them was */
    writer *writers;  /* (answer.n) */
    bt_text out;
};

static void request_free(request *r) {
    if (!r) return;
    bt_openai_answer_release(&r->answer);
    bt_text_release(&r->out);
    free(r->writers);
    free(r);
}

/* ---- what the batch says: its thread --------------------------------------------------------- */
static void send_chunk(request *r, bt_openai_choice *c, bool finished) {
    bt_text_clear(&r->out);
    bt_openai_put_chunk(&r->answer, c, finished, &r->out);
    if (r->out.len) bt_reply_put(r->reply, r->out.data, r->out.len);
}

static void on_said(void *ctx, const bt_said *s) {
    const writer *w = ctx;
    request *r = w->of;
    bt_openai_add(&r->answer, w->choice, s);
    if (r->stream) send_chunk(r, w->choice, false);
}

static void end_stream(request *r) {
    bt_text_clear(&r->out);
    if (r->cancelled)
        bt_text_put(&r->out, "data: {\"error\":{\"message\":\"the server is stopping\",\"type\":"
                             "\"server_error\",\"code\":null}}\n\n");
    else if (r->include_usage)
        bt_openai_put_usage_chunk(&r->answer, &r->out);
    bt_text_put(&r->out, "data: [DONE]\n\n");
    bt_reply_put(r->reply, bt_text_str(&r->out), r->out.len);
}

static void end_whole(request *r) {
    if (r->cancelled) {
        bt_reply_error(r->reply, 503, "server_error", "the server is stopping");
        return;
    }
    bt_text_clear(&r->out);
    bt_openai_put(&r->answer, &r->out);
    if (r->out.failed)
        bt_reply_error(r->reply, 503, "server_error", "out of memory");
    else
        bt_reply_send(r->reply, 200, NULL, r->out.data, r->out.len);
}

static void on_done(void *ctx, bt_finish why, const char *text, size_t n) {
    const writer *w = ctx;
    request *r = w->of;
    const bt_said rest = {.text = text, .n_text = n, .echoed = true};
    w->choice->why = why;
    if (why == BT_FINISH_CANCELLED) {
        r->cancelled = true;
    } else {
        const bool logprobs = r->answer.logprobs; /* the rest is of no further token */
        r->answer.logprobs = false;
        bt_openai_add(&r->answer, w->choice, &rest);
        r->answer.logprobs = logprobs;
        if (r->stream) send_chunk(r, w->choice, true);
    }
    if (--r->left) return;
    if (r->stream)
        end_stream(r);
    else
        end_whole(r);
    bt_reply_end(r->reply);
    request_free(r);
}

/* ---- requests: the server's thread ----------------------------------------------------------- */
static void refuse(bt_reply *reply, const bt_err *err) {
    switch (err->code) {
    case BT_BUSY: bt_reply_error(reply, 429, "rate_limit_error", err->msg); break;
    case BT_NOMEM: bt_reply_error(reply, 503, "server_error", err->msg); break;
    default: bt_reply_error(reply, 400, "invalid_request_error", err->msg);
    }
    bt_reply_end(reply);
}

static request *request_of(const bt_openai_request *q) {
    request *r = calloc(1, sizeof *r);
    const size_t n = q->n_prompts * q->n;
    if (!r) return NULL;
    r->left = n;
    r->stream = q->stream;
    r->include_usage = q->include_usage;
    r->answer.logprobs = q->logprobs;
    r->writers = calloc(n, sizeof *r->writers);
    if (r->writers && bt_openai_answer_init(&r->answer, n)) return r;
    request_free(r);
    return NULL;
}

/* without a seed every answer is another one; several answers to a prompt always are */
static uint64_t seed_of(const bt_openai_request *q, size_t answer) {
    uint64_t random = q->sampling.seed;
    if (!q->has_seed && getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)time(NULL);
    return random + answer;
}

static bt_code submit(bt_openai *o, request *r, const bt_openai_request *q, uint64_t group,
                      bt_err *err) {
    const size_t n = r->answer.n;
    bt_ask *asks = calloc(n, sizeof *asks);
    if (!asks) return bt_fail(err, BT_NOMEM, "no memory for %zu texts", n);
    for (size_t i = 0; i < n; i++) {
        const bt_openai_ids *p = &q->prompts[i / q->n];
        r->writers[i] = (writer){r, &r->answer.choices[i]};
        asks[i] = (bt_ask){.prompt = p->at,
                           .n = p->n,
                           .max_tokens = q->max_tokens,
                           .sampling = q->sampling,
                           .end = q->end,
                           .stops = q->stops,
                           .n_stops = q->n_stops,
                           .echo = q->echo,
                           .logprobs = q->logprobs,
                           .top = q->top,
                           .group = group,
                           .cancel = &r->gone,
                           .said = on_said,
                           .done = on_done,
                           .ctx = &r->writers[i]};
        asks[i].sampling.seed = seed_of(q, i % q->n);
        if (i % q->n == 0) r->answer.prompt_tokens += p->n;
    }
    const bt_code code = bt_batch_submit(o->cfg.batch, asks, n, err);
    free(asks);
    return code;
}

static void ask_model(bt_openai *o, bt_reply *reply, bool chat, const char *body, size_t n) {
    bt_openai_request q;
    bt_err err = BT_ERR_INIT;
    request *r = NULL;
    const unsigned long long number = atomic_fetch_add(&o->n, 1) + 1;
    bt_code code = chat ? bt_openai_chat(&q, body, n, &o->encoder, &err)
                        : bt_openai_completion(&q, body, n, o->cfg.tokenizer, &err);
    if (code == BT_OK) {
        r = request_of(&q);
        if (!r) code = bt_fail(&err, BT_NOMEM, "no memory for a request");
    }
    if (code == BT_OK) {
        r->reply = reply;
        r->answer.chat = chat;
        r->answer.tokenizer = o->cfg.tokenizer;
        r->answer.model = o->name;
        r->answer.created = (int64_t)time(NULL);
        snprintf(r->answer.id, sizeof r->answer.id, "%s-%llu", chat ? "chatcmpl" : "cmpl", number);
        bt_reply_set(reply, r);
        /* from here on the request is the batch's; a refusal leaves it here */
        code = submit(o, r, &q, number, &err);
    }
    bt_openai_request_release(&q);
    if (code == BT_OK) return;
    bt_reply_set(reply, NULL);
    request_free(r);
    refuse(reply, &err);
}

static void put_model(const bt_openai *o, bt_json *j) {
    bt_json_object(j, NULL);
    bt_json_str(j, "id", o->name);
    bt_json_str(j, "object", "model");
    bt_json_int(j, "created", o->created);
    bt_json_str(j, "owned_by", "bitrain");
    bt_json_int(j, "max_model_len", (int64_t)o->cfg.context);
    bt_json_str(j, "chat_template", o->cfg.template->name);
    bt_json_str(j, "precision", o->cfg.precision);
    bt_notes_json(j, o->cfg.notes);
    bt_json_end(j, '}');
}

static void tell_models(const bt_openai *o, bt_reply *reply, bool list) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    if (list) {
        bt_json_object(&j, NULL);
        bt_json_str(&j, "object", "list");
        bt_json_array(&j, "data");
    }
    put_model(o, &j);
    if (list) {
        bt_json_end(&j, ']');
        bt_json_end(&j, '}');
    }
    bt_reply_send(reply, 200, NULL, bt_text_str(&out), out.len);
    bt_text_release(&out);
}

static void ask(void *ctx, bt_reply *reply, const char *method, const char *path, const char *body,
                size_t n) {
    static const char models[] = "/v1/models";
    bt_openai *o = ctx;
    const bool post = strcmp(method, "POST") == 0, chat = strcmp(path, "/v1/chat/completions") == 0,
               text = strcmp(path, "/v1/completions") == 0, list = strcmp(path, models) == 0;
    const bool one = strncmp(path, models, sizeof models - 1) == 0 &&
                     path[sizeof models - 1] == '/' && strcmp(path + sizeof models, o->name) == 0;
    if (post && (chat || text)) {
        ask_model(o, reply, chat, body, n);
        return;
    }
    if (!post && (list || one))
        tell_models(o, reply, list);
    else if (chat || text || list || one)
        bt_reply_error(reply, 405, "invalid_request_error", "not with this method");
    else
        bt_reply_error(reply, 404, "invalid_request_error",
                       "no such route: /v1/completions, /v1/chat/completions, /v1/models");
    bt_reply_end(reply);
}

static void gone(void *ctx, void *work) {
    request *r = work;
    (void)ctx;
    atomic_store(&r->gone, true);
}

/* ---- create ---------------------------------------------------------------------------------- */
bt_code bt_openai_create(bt_openai **out, const bt_openai_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_openai *o = calloc(1, sizeof *o);
    if (!o) return bt_fail(err, BT_NOMEM, "no memory for the routes");
    o->cfg = *cfg;
    snprintf(o->name, sizeof o->name, "%s", cfg->name);
    o->created = (int64_t)time(NULL);
    const bt_code code = bt_chat_encoder_init(&o->encoder, cfg->template, cfg->tokenizer, err);
    if (code == BT_OK)
        *out = o;
    else
        free(o);
    return code;
}

void bt_openai_destroy(bt_openai *o) {
    if (!o) return;
    bt_chat_encoder_release(&o->encoder);
    free(o);
}

bt_serve_source bt_openai_source(bt_openai *o) {
    return (bt_serve_source){.ctx = o, .ask = ask, .gone = gone};
}
