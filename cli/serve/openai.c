/* openai.c - converts HTTP requests to texts of the batch, and generated texts to responses. */
#include "cli/serve/openai.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "cli/model/model_notes.h"
#include "cli/serve/openai_answer.h"
#include "cli/serve/openai_request.h"
#include "cli/serve/openai_tokens.h"
#include "cli/serve/serve_metrics.h"
#include "engine/base/clock.h"

struct bt_openai {
    bt_openai_cfg cfg;
    char name[128];
    int64_t created;
    bt_chat_encoder encoder;
    atomic_ullong n; /* number of requests so far */
    bt_serve_metrics metrics;
};

typedef struct request request;

typedef struct writer { /* one choice; context of the generator's callbacks */
    request *of;
    bt_openai_choice *choice;
} writer;

struct request {
    bt_openai *server;
    bt_reply *reply;
    int64_t arrived_ns;
    bool has_token; /* the first generated token has been counted */
    bt_openai_answer answer;
    bool stream, include_usage;
    atomic_bool gone; /* the client has disconnected */
    size_t left;      /* number of unfinished choices */
    bool cancelled;   /* a choice was cancelled */
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

/* ---- events of the generator, on its thread --------------------------------------------------------- */
static void send_openai_chunk(request *r, bt_openai_choice *c, bool finished) {
    bt_text_clear(&r->out);
    bt_openai_put_chunk(&r->answer, c, finished, &r->out);
    if (r->out.len) bt_reply_put(r->reply, r->out.data, r->out.len);
}

static double request_seconds_since(int64_t ns) { return (double)(bt_now_ns() - ns) * 1e-9; }

static void take_generated_token(void *ctx, const bt_token_event *s) {
    const writer *w = ctx;
    request *r = w->of;
    if (!s->echoed && !r->has_token) {
        r->has_token = true;
        bt_serve_metrics_first_token(&r->server->metrics, request_seconds_since(r->arrived_ns));
    }
    bt_openai_add(&r->answer, w->choice, s);
    if (r->stream) send_openai_chunk(r, w->choice, false);
}

static void send_end_of_stream(request *r) {
    bt_text_clear(&r->out);
    if (r->cancelled)
        bt_text_put(&r->out, "data: {\"error\":{\"message\":\"the server is stopping\",\"type\":"
                             "\"server_error\",\"code\":null}}\n\n");
    else if (r->include_usage)
        bt_openai_put_usage_chunk(&r->answer, &r->out);
    bt_text_put(&r->out, "data: [DONE]\n\n");
    bt_reply_put(r->reply, bt_text_str(&r->out), r->out.len);
}

/* Returns the HTTP status. */
static int reply_unavailable(bt_reply *reply, const char *message) {
    bt_reply_error(reply, 503, &(bt_serve_error){.type = "server_error", .message = message});
    return 503;
}

static int send_whole_completion(request *r) {
    if (r->cancelled) return reply_unavailable(r->reply, "the server is stopping");
    bt_text_clear(&r->out);
    bt_openai_put(&r->answer, &r->out);
    if (r->out.failed) return reply_unavailable(r->reply, "out of memory");
    bt_reply_send(r->reply, 200, NULL, r->out.data, r->out.len);
    return 200;
}

static void finish_generated_text(void *ctx, bt_finish why, const char *text, size_t n) {
    const writer *w = ctx;
    request *r = w->of;
    const bt_token_event rest = {.text = text, .n_text = n, .echoed = true};
    w->choice->why = why;
    if (why == BT_FINISH_CANCELLED) {
        r->cancelled = true;
    } else {
        const bool logprobs = r->answer.logprobs; /* the last text belongs to no further token */
        r->answer.logprobs = false;
        bt_openai_add(&r->answer, w->choice, &rest);
        r->answer.logprobs = logprobs;
        if (r->stream) send_openai_chunk(r, w->choice, true);
    }
    if (--r->left) return;
    int status = 200; /* a stream has already sent its status */
    if (r->stream)
        send_end_of_stream(r);
    else
        status = send_whole_completion(r);
    bt_serve_metrics_request(&r->server->metrics, status, request_seconds_since(r->arrived_ns));
    bt_reply_end(r->reply);
    request_free(r);
}

/* ---- requests, on the server's thread ----------------------------------------------------------- */
static void send_openai_fault(bt_openai *o, bt_reply *reply, const bt_openai_fault *fault,
                              const bt_err *err) {
    int status = 400;
    bt_serve_error e = {.type = "invalid_request_error",
                        .code = fault->code,
                        .param = fault->param,
                        .message = err->msg};
    switch (err->code) {
    case BT_BUSY:
        status = 429;
        e.type = "rate_limit_error";
        e.code = "rate_limit_exceeded";
        break;
    case BT_NOMEM:
        status = 503;
        e.type = "server_error";
        break;
    case BT_NOTFOUND: status = 404; break;
    default: break;
    }
    bt_reply_error(reply, status, &e);
    bt_serve_metrics_request(&o->metrics, status, -1);
    bt_reply_end(reply);
}

static request *create_completion(const bt_openai_request *q) {
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

/* Without a seed, and for each further choice of a prompt, the random numbers differ. */
static uint64_t choose_seed(const bt_openai_request *q, size_t answer) {
    uint64_t random = q->sampling.seed;
    if (!q->has_seed && getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        random = (uint64_t)bt_wall_us();
    return random + answer;
}

static bt_code submit_texts(bt_openai *o, request *r, const bt_openai_request *q, uint64_t group,
                            bt_err *err) {
    const size_t n = r->answer.n;
    bt_generate_request *requests = calloc(n, sizeof *requests);
    if (!requests) return bt_fail(err, BT_NOMEM, "no memory for %zu texts", n);
    for (size_t i = 0; i < n; i++) {
        const bt_openai_ids *p = &q->prompts[i / q->n];
        r->writers[i] = (writer){r, &r->answer.choices[i]};
        requests[i] = (bt_generate_request){.prompt = p->at,
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
                                            .on_token = take_generated_token,
                                            .done = finish_generated_text,
                                            .ctx = &r->writers[i]};
        requests[i].sampling.seed = choose_seed(q, i % q->n);
        if (i % q->n == 0) r->answer.prompt_tokens += p->n;
    }
    const bt_code code = bt_generator_submit(o->cfg.batch, requests, n, err);
    free(requests);
    return code;
}

static bt_code check_requested_model(const bt_openai *o, bt_openai_request *q, bt_err *err) {
    char shown[128];
    if (!q->model || o->cfg.any_model || strcmp(q->model, o->name) == 0) return BT_OK;
    bt_text_plain(shown, sizeof shown, q->model);
    (void)bt_openai_refuse_key(&q->fault, "model", "model_not_found", err,
                               "there is no model '%s': this server has '%s' (serve --any-model "
                               "answers every name)",
                               shown, o->name);
    return err->code = BT_NOTFOUND;
}

/* The phrase of OpenAI's message is kept: clients recognise an excessive prompt by it. */
static bt_code check_length(const bt_openai *o, bt_openai_request *q, bool chat, bt_err *err) {
    for (size_t i = 0; i < q->n_prompts; i++)
        if (q->prompts[i].n > o->cfg.context)
            return bt_openai_refuse_key(&q->fault, chat ? "messages" : "prompt",
                                        "context_length_exceeded", err,
                                        "this model's maximum context length is %zu tokens, but "
                                        "the prompt has %zu: shorten "
                                        "it",
                                        o->cfg.context, q->prompts[i].n);
    return BT_OK;
}

static void prepare_request(bt_openai *o, request *r, bool chat) {
    r->server = o;
    r->arrived_ns = bt_now_ns();
    r->answer.chat = chat;
    r->answer.tokenizer = o->cfg.tokenizer;
    r->answer.model = o->name;
    r->answer.fingerprint = o->cfg.fingerprint;
    r->answer.created = bt_wall_us() / 1000000;
    snprintf(r->answer.id, sizeof r->answer.id, "%s-%s", chat ? "chatcmpl" : "cmpl",
             bt_reply_id(r->reply));
}

static void start_text_request(bt_openai *o, bt_reply *reply, bool chat, const char *body,
                               size_t n) {
    bt_openai_request q;
    bt_err err = BT_ERR_INIT;
    request *r = NULL;
    const unsigned long long number = atomic_fetch_add(&o->n, 1) + 1;
    bt_code code = chat ? bt_openai_chat(&q, body, n, &o->encoder, &err)
                        : bt_openai_completion(&q, body, n, o->cfg.tokenizer, &err);
    if (code == BT_OK) code = check_requested_model(o, &q, &err);
    if (code == BT_OK) code = check_length(o, &q, chat, &err);
    if (code == BT_OK) {
        r = create_completion(&q);
        if (!r) code = bt_fail(&err, BT_NOMEM, "no memory for a request");
    }
    if (code == BT_OK) {
        r->reply = reply;
        prepare_request(o, r, chat);
        bt_reply_set(reply, r);
        /* The generator owns the request from here on; a refused one remains here. */
        code = submit_texts(o, r, &q, number, &err);
    }
    if (code != BT_OK) {
        bt_reply_set(reply, NULL);
        request_free(r);
        send_openai_fault(o, reply, &q.fault, &err);
    }
    bt_openai_request_release(&q);
}

static void count_tokens(bt_openai *o, bt_reply *reply, bool detokenize, const char *body,
                         size_t n) {
    bt_err err = BT_ERR_INIT;
    bt_openai_fault fault = {0};
    bt_text out;
    bt_text_init(&out);
    bt_code code = detokenize ? bt_openai_detokenize(body, n, o->cfg.tokenizer, &out, &fault, &err)
                              : bt_openai_tokenize(body, n, o->cfg.tokenizer, o->cfg.context, &out,
                                                   &fault, &err);
    if (code == BT_OK && out.failed) code = bt_fail(&err, BT_NOMEM, "out of memory");
    if (code == BT_OK) {
        bt_reply_send(reply, 200, NULL, bt_text_str(&out), out.len);
        bt_serve_metrics_request(&o->metrics, 200, -1);
        bt_reply_end(reply);
    } else {
        send_openai_fault(o, reply, &fault, &err);
    }
    bt_text_release(&out);
}

static void put_model_object(const bt_openai *o, bt_json *j) {
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

static void send_models(bt_openai *o, bt_reply *reply, bool list) {
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    if (list) {
        bt_json_object(&j, NULL);
        bt_json_str(&j, "object", "list");
        bt_json_array(&j, "data");
    }
    put_model_object(o, &j);
    if (list) {
        bt_json_end(&j, ']');
        bt_json_end(&j, '}');
    }
    bt_reply_send(reply, 200, NULL, bt_text_str(&out), out.len);
    bt_reply_end(reply);
    bt_text_release(&out);
}

static void send_metrics(bt_openai *o, bt_reply *reply) {
    const bt_generator_load load = bt_generator_now(o->cfg.batch);
    bt_text out;
    bt_text_init(&out);
    bt_serve_metrics_put(&o->metrics, &load, &out);
    if (out.failed)
        reply_unavailable(reply, "out of memory");
    else
        bt_reply_send(reply, 200, "text/plain; version=0.0.4", bt_text_str(&out), out.len);
    bt_reply_end(reply);
    bt_text_release(&out);
}

/* ---- routes ---------------------------------------------------------------------------------- */
typedef enum {
    ROUTE_COMPLETIONS,
    ROUTE_CHAT,
    ROUTE_TOKENIZE,
    ROUTE_DETOKENIZE,
    ROUTE_MODELS,
    ROUTE_MODEL,
    ROUTE_METRICS,
    ROUTE_NONE
} route_id;

static const char models_path[] = "/v1/models";

static const struct {
    const char *path;
    route_id id;
    bool post;
} routes[] = {
    {"/v1/completions", ROUTE_COMPLETIONS, true}, {"/v1/chat/completions", ROUTE_CHAT, true},
    {"/tokenize", ROUTE_TOKENIZE, true},          {"/detokenize", ROUTE_DETOKENIZE, true},
    {models_path, ROUTE_MODELS, false},           {"/metrics", ROUTE_METRICS, false},
};

/* A slash at the end of the path is ignored. */
static route_id find_route(const char *path, bool *post) {
    size_t n = strlen(path);
    *post = false;
    if (n > 1 && path[n - 1] == '/') n--;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strlen(routes[i].path) != n || memcmp(routes[i].path, path, n) != 0) continue;
        *post = routes[i].post;
        return routes[i].id;
    }
    const size_t prefix = sizeof models_path - 1;
    return n > prefix + 1 && strncmp(path, models_path, prefix) == 0 && path[prefix] == '/'
               ? ROUTE_MODEL
               : ROUTE_NONE;
}

static void refuse_route(bt_reply *reply, int status, const char *code, const char *message) {
    bt_reply_error(
        reply, status,
        &(bt_serve_error){.type = "invalid_request_error", .code = code, .message = message});
    bt_reply_end(reply);
}

static void send_model(bt_openai *o, bt_reply *reply, const char *name) {
    char message[300];
    if (o->cfg.any_model || strcmp(name, o->name) == 0) {
        send_models(o, reply, false);
        return;
    }
    snprintf(message, sizeof message, "there is no model of this name: this server has '%s'",
             o->name);
    refuse_route(reply, 404, "model_not_found", message);
}

static void on_openai_request(void *ctx, bt_reply *reply, const char *method, const char *path,
                              const char *body, size_t n) {
    bt_openai *o = ctx;
    bool post;
    const route_id id = find_route(path, &post);
    if (id != ROUTE_NONE && post != (strcmp(method, "POST") == 0)) {
        refuse_route(reply, 405, "method_not_allowed",
                     post ? "this route takes POST" : "this route takes GET");
        return;
    }
    switch (id) {
    case ROUTE_COMPLETIONS: start_text_request(o, reply, false, body, n); break;
    case ROUTE_CHAT: start_text_request(o, reply, true, body, n); break;
    case ROUTE_TOKENIZE: count_tokens(o, reply, false, body, n); break;
    case ROUTE_DETOKENIZE: count_tokens(o, reply, true, body, n); break;
    case ROUTE_MODELS: send_models(o, reply, true); break;
    case ROUTE_MODEL: send_model(o, reply, path + sizeof models_path); break;
    case ROUTE_METRICS: send_metrics(o, reply); break;
    case ROUTE_NONE:
        refuse_route(reply, 404, "unknown_url",
                     "no such route: /v1/completions, /v1/chat/completions, /v1/models, /tokenize, "
                     "/detokenize, /metrics, /health");
        break;
    }
}

static void on_client_gone(void *ctx, void *work) {
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
    o->created = bt_wall_us() / 1000000;
    bt_serve_metrics_init(&o->metrics);
    o->encoder = (bt_chat_encoder){cfg->template, cfg->tokenizer};
    *out = o;
    return BT_OK;
}

void bt_openai_destroy(bt_openai *o) {
    if (!o) return;
    bt_serve_metrics_release(&o->metrics);
    free(o);
}

bt_serve_source bt_openai_source(bt_openai *o) {
    return (bt_serve_source){.ctx = o, .ask = on_openai_request, .gone = on_client_gone};
}
