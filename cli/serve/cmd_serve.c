/* cmd_serve.c - `bitrain serve`: serves a trained model with OpenAI's API and a chat page. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/loopback.h"
#include "cli/common/token_file.h"
#include "cli/model/chat_session.h"
#include "cli/model/classify.h"
#include "cli/model/members.h"
#include "cli/model/model_notes.h"
#include "cli/serve/openai.h"
#include "engine/base/system/hangup.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/decoder.h"
#include "engine/plan/memory.h"
#include "store/store.h"

typedef struct serve_cfg {
    char store[1024], host[128], allow[512], origins[1024], key[256], template[40], name[128];
    int64_t port, parallel, queue;
    bt_trained_opts trained;
    bool open, any_model, json, allow_older;
} serve_cfg;

static const bt_opt serve_opts[] = {
    BT_ROW_INT(serve_cfg, port, "--port", "8159", 0, 65535, NULL, "port (0: any free one)"),
    {"listen", "--listen", BT_OPT_TEXT, BT_FIELD(serve_cfg, host), "127.0.0.1", 0, 0, NULL, NULL,
     "address to listen on"},
    {"allow_host", "--allow-host", BT_OPT_TEXT, BT_FIELD(serve_cfg, allow), "", 0, 0, NULL, NULL,
     "additional host names under which clients may reach the server, separated by commas"},
    {"allow_origin", "--allow-origin", BT_OPT_TEXT, BT_FIELD(serve_cfg, origins), "", 0, 0, NULL,
     NULL,
     "origins of web pages that may use the server, such as http://localhost:3000, "
     "separated by commas (*: all)"},
    {"api_key", "--api-key", BT_OPT_TEXT, BT_FIELD(serve_cfg, key), "", 0, 0, NULL, NULL,
     "access token instead of a random one; process lists show it, so prefer "
     "$BITRAIN_SERVE_TOKEN"},
    BT_ROW_FLAG(serve_cfg, open, "--open", "answer without a token (on this machine only)"),
    BT_ROW_TEXT(serve_cfg, name, "--name", "",
                "name of the model for clients (default: the run's)"),
    BT_ROW_FLAG(serve_cfg, any_model, "--any-model", "answer requests for any model name"),
    BT_ROW_TEXT(serve_cfg, template, "--template", "",
                "chat template (default: as in training, or by the tokenizer's special tokens)"),
    BT_ROW_INT(serve_cfg, parallel, "--parallel", "0", 0, 1024, "texts",
               "maximum number of texts generated at the same time (0: 64, or as many as "
               "fit into a quarter of the memory)"),
    BT_ROW_INT(serve_cfg, queue, "--queue", "1024", 0, 1000000, "texts",
               "maximum number of waiting texts; further requests get status 429"),
    BT_TRAINED_OPTS(serve_cfg),
    BT_ROW_FLAG(serve_cfg, allow_older, "--allow-older",
                "if the newest checkpoint is damaged, serve an older one (default: refuse)"),
    BT_ROW_FLAG(serve_cfg, json, "--json", "print address and token as one JSON object"),
    BT_ROW_STORE(serve_cfg),
};

enum { PARALLEL = 64, REPLIES = 512, BODY_MAX = 16 << 20 };
static const int64_t grace_ns = 5000000000;

/* Returns the number of texts whose caches take a quarter of the available memory. */
static int64_t choose_parallel_texts(const serve_cfg *c, const bt_model *m) {
    if (c->parallel) return c->parallel;
    bt_memory_room room;
    bt_memory_room_of(&room);
    const size_t least = room.host < room.process ? room.host : room.process;
    const int64_t fit = (int64_t)(least / 4 / bt_decoder_slot_bytes(m));
    return fit < 1 ? 1 : fit < PARALLEL ? fit : PARALLEL;
}

static const char *percent_encode(char *out, size_t size, const char *text) {
    size_t n = 0;
    for (; *text && n + 4 <= size; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
                           (c >= 'a' && c <= 'z') || strchr("-._~", c);
        n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "%%%02X", c);
    }
    out[n] = '\0';
    return out;
}

static void print_serve_address(const serve_cfg *c, const bt_serve *s, const char *model,
                                const bt_trained *t, const char *token_file) {
    const bool any = strcmp(c->host, "0.0.0.0") == 0 || strcmp(c->host, "::") == 0;
    const char *shown = any ? "localhost" : c->host;
    const char *open = strchr(shown, ':') ? "[" : "", *close = *open ? "]" : "";
    char base[256], token[3 * BT_SERVE_KEY_MAX + 1], url[sizeof base + sizeof token + 16];
    snprintf(base, sizeof base, "http://%s%s%s:%d", open, shown, close, bt_serve_port(s));
    if (c->open)
        snprintf(url, sizeof url, "%s/", base);
    else
        snprintf(url, sizeof url, "%s/#token=%s", base,
                 percent_encode(token, sizeof token, bt_serve_token(s)));
    if (c->json) {
        bt_text out;
        bt_json j;
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        bt_json_str(&j, "url", url);
        bt_json_int(&j, "port", bt_serve_port(s));
        bt_json_str(&j, "base_url", base);
        bt_json_str(&j, "model", model);
        bt_json_str(&j, "token", c->open ? NULL : bt_serve_token(s));
        bt_json_str(&j, "token_file", c->open ? NULL : token_file);
        bt_json_str(&j, "precision", bt_trained_precision(t));
        bt_trained_put_members(t, &j);
        bt_notes_json(&j, &t->notes);
        bt_json_end(&j, '}');
        printf("%s\n", bt_text_str(&out));
        bt_text_release(&out);
    } else {
        printf("%s\n", url);
        fprintf(stderr, "OpenAI's API at %s/v1, model '%s' in %s%s%s; Ctrl-C ends it\n", base,
                model, bt_trained_precision(t),
                c->open ? ", no token" : ", key: the token, also in ", c->open ? "" : token_file);
    }
    fflush(stdout);
}

typedef struct stopper { /* thread that waits for a signal and then stops the batch */
    bt_generator *batch;
    sigset_t ends;
} stopper;

/* Called before any thread exists, so that all threads inherit the mask. */
static void block_signals(sigset_t *ends) {
    sigemptyset(ends);
    sigaddset(ends, SIGINT);
    sigaddset(ends, SIGTERM);
    bt_hangup_add(ends);
    sigprocmask(SIG_BLOCK, ends, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static void *wait_for_signal(void *ctx) {
    const stopper *s = ctx;
    int got = 0;
    sigwait(&s->ends, &got);
    bt_generator_stop(s->batch, grace_ns);
    sigwait(&s->ends, &got); /* a second signal ends the process at once */
    bt_generator_stop(s->batch, -1);
    return NULL;
}

static void show_load(bt_generator *b) {
    const bt_generator_load l = bt_generator_now(b);
    fprintf(stderr, "%llu texts: %llu tokens read, %llu found in a cache, %llu written",
            (unsigned long long)l.done, (unsigned long long)l.prompt_tokens,
            (unsigned long long)l.reused, (unsigned long long)l.tokens);
    if (l.seconds > 0) fprintf(stderr, "; %.1f s of work", l.seconds);
    fprintf(stderr, "\n");
}

static bt_code serve_until_stopped(const serve_cfg *c, bt_openai *o, bt_generator *b,
                                   const char *model, const bt_trained *t, bt_err *err) {
    stopper stop = {.batch = b};
    pthread_t waiter;
    bt_serve *s = NULL;
    char store[1024], token_file[1024] = "";
    block_signals(&stop.ends);
    const bt_serve_cfg cfg = {.host = c->host,
                              .port = (int)c->port,
                              .allow_hosts = c->allow,
                              .allow_origins = c->origins,
                              .token = c->key[0] ? c->key : getenv("BITRAIN_SERVE_TOKEN"),
                              .open = c->open,
                              .max_replies = REPLIES,
                              .max_body = BODY_MAX,
                              .source = bt_openai_source(o)};
    BT_TRY(bt_store_path(store, sizeof store, c->store, err));
    BT_TRY(bt_serve_start(&s, &cfg, err));
    bt_code code = BT_OK;
    if (!c->open)
        code = bt_token_file_keep(store, "serve", bt_serve_port(s), bt_serve_token(s), token_file,
                                  sizeof token_file, err);
    if (code == BT_OK && pthread_create(&waiter, NULL, wait_for_signal, &stop) != 0)
        code = bt_fail(err, BT_NOMEM, "cannot start the waiting thread");
    if (code == BT_OK) {
        print_serve_address(c, s, model, t, token_file);
        bt_generator_run(b); /* on this thread, which uses the kernels */
        pthread_cancel(waiter);
        pthread_join(waiter, NULL);
        show_load(b);
    } else {
        bt_generator_stop(b, -1);
        bt_generator_run(b);
    }
    bt_serve_stop(s);
    if (token_file[0]) unlink(token_file);
    return code;
}

static bt_code serve_model(const serve_cfg *c, bt_trained *t, bt_err *err) {
    const bt_chat_template *template = NULL;
    const bt_model_cfg *m = bt_model_config(t->model);
    const char *name = c->name[0] ? c->name : t->meta.run[0] ? t->meta.run : "model";
    bt_generator *b = NULL;
    bt_openai *o = NULL;
    char fingerprint[64];
    snprintf(fingerprint, sizeof fingerprint, "bitrain-%s-%s", BITRAIN_VERSION,
             bt_active_kernels()->name);
    BT_TRY(bt_chat_choose(&template, c->template, t, c->json, err));
    if (!c->json) bt_trained_report_affixes(t);
    const bt_generator_cfg batch = {.model = t->model,
                                    .tokenizer = t->tokenizer,
                                    .slots = (int)choose_parallel_texts(c, t->model),
                                    .max_waiting = (size_t)c->queue};
    bt_code code = bt_generator_create(&b, &batch, err);
    if (code == BT_OK)
        code = bt_openai_create(&o,
                                &(bt_openai_cfg){.batch = b,
                                                 .tokenizer = t->tokenizer,
                                                 .template = template,
                                                 .name = name,
                                                 .fingerprint = fingerprint,
                                                 .any_model = c->any_model,
                                                 .context = (size_t)m->T,
                                                 .precision = bt_trained_precision(t),
                                                 .notes = &t->notes},
                                err);
    if (code == BT_OK) code = serve_until_stopped(c, o, b, name, t, err);
    bt_openai_destroy(o);
    bt_generator_destroy(b);
    return code;
}

static bt_code cmd_serve(bt_call *call, bt_err *err) {
    serve_cfg *cfg = call->cfg;
    bt_trained t;
    bt_text which = {0};
    BT_TRY(bt_address_without_port(cfg->host, "--listen", err));
    if (cfg->open && !bt_is_loopback(cfg->host))
        return bt_fail(err, BT_ARG,
                       "--open answers everybody: only with --listen 127.0.0.1, not %s", cfg->host);
    memset(&t, 0, sizeof t);
    sigset_t ends;
    block_signals(&ends);
    bt_members_join(&which, call->words, call->n);
    bt_trained_how how = bt_trained_how_of(&cfg->trained, bt_text_str(&which), cfg->store);
    how.B = 1;
    how.newest = !cfg->allow_older;
    bt_code code = bt_trained_load(&t, &how, err);
    bt_text_release(&which);
    if (code == BT_OK) code = bt_classifier_refuse(&t, err);
    if (code == BT_OK) code = serve_model(cfg, &t, err);
    bt_trained_release(&t);
    bt_ops_release();
    return code;
}

const bt_command bt_cmd_serve = {
    .name = "serve",
    .summary = "a trained model behind OpenAI's API, with a chat page",
    .args = "[RUN|GROUP|DIR...]",
    .examples = "bitrain serve last # prints an address with a token: open it, or send requests\n"
                "curl -H \"Authorization: Bearer TOKEN\" localhost:8159/v1/completions \\\n"
                "    -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 40}'\n"
                "bitrain serve abl-3 --port 0 --parallel 16 --template chatml\n",
    .options = BT_OPTION_SET(serve_opts, serve_cfg),
    .max_words = BT_MEMBERS_MOST,
    .run = cmd_serve,
};
