/* serve.c - the daemon of a model's server: guards, routes, and the watcher that cuts late requests. */
#include "web/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "web/http/listen.h"
#include "web/serve/serve_impl.h"

static const int64_t deadline_ns = 10000000000, watch_ns = 50000000, flush_ns = 1000000000;

typedef struct exchange { /* one request in progress */
    bt_text body;
    bool too_large;
    bt_reply *reply; /* NULL: answered by the server itself, or not yet */
} exchange;

/* ---- answers of the server itself ------------------------------------------------------------ */
static enum MHD_Result send_text(struct MHD_Connection *c, int status, const char *type,
                                 const char *text, size_t n) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)(size_t)text,
                                                             MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    return bt_http_send(c, status, r,
                        (const bt_header[]){{"Content-Type", type},
                                            {"Cache-Control", "no-store"},
                                            {"WWW-Authenticate", status == 401 ? "Bearer" : NULL},
                                            {"Allow", status == 405 ? "GET, HEAD, POST" : NULL},
                                            {NULL, NULL}});
}

static enum MHD_Result send_error(struct MHD_Connection *c, int status, const char *type,
                                  const char *message) {
    bt_text body;
    bt_text_init(&body);
    bt_serve_error_text(&body, type, message);
    const enum MHD_Result ok = send_text(c, status, "application/json", bt_text_str(&body),
                                         body.len);
    bt_text_release(&body);
    return ok;
}

/* ---- guards and routes ----------------------------------------------------------------------- */
static bool is_get(const bt_req *q) {
    return strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;
}

/* NULL: let it pass; otherwise what is wrong, and with which status */
static const char *refusal(const bt_serve *s, const bt_req *q, int *status) {
    *status = 403;
    if (!bt_req_host_ok(q->host, s->host, s->allow, s->port))
        return "this Host is not served here: use localhost, or start serve with --allow-host";
    if (!bt_req_origin_ok(q->origin, q->fetch_site, s->host, s->allow, s->port))
        return "requests from other sites are refused";
    *status = 405;
    if (!is_get(q) && strcmp(q->method, "POST") != 0) return "only GET and POST are served";
    return NULL;
}

static enum MHD_Result ask_source(bt_serve *s, struct MHD_Connection *c, const bt_req *q,
                                  exchange *x) {
    if (atomic_load(&s->stopping))
        return send_error(c, 503, "server_error", "the server is stopping");
    x->reply = bt_reply_open(s, c);
    if (!x->reply)
        return send_error(c, 429, "rate_limit_error", "too many requests are being answered");
    bt_links_exempt(&s->links, bt_http_link(c));
    s->cfg.source.ask(s->cfg.source.ctx, x->reply, q->method, q->path, bt_text_str(&x->body),
                      x->body.len);
    return bt_reply_answer(x->reply);
}

static enum MHD_Result dispatch(bt_serve *s, struct MHD_Connection *c, const bt_req *q,
                                exchange *x) {
    int status;
    const char *why = refusal(s, q, &status);
    if (why) return send_error(c, status, "invalid_request_error", why);
    if (is_get(q)) {
        const bt_asset *asset = bt_http_asset(bt_chat_assets, bt_chat_assets_n, q->path);
        if (asset) return bt_http_send_asset(c, q, asset);
        if (strcmp(q->path, "/healthz") == 0) return send_text(c, 200, "text/plain", "ok\n", 3);
    }
    if (!s->cfg.open && !bt_req_token_ok(q->authorization, q->cookie, s->token, s->port))
        return send_error(
            c, 401, "authentication_error",
            "the token is missing or wrong: send the one that `bitrain serve` printed "
            "as 'Authorization: Bearer TOKEN'");
    if (is_get(q) && strcmp(q->path, "/api/v1/login") == 0)
        return bt_http_send_login(c, s->port, s->token);
    return ask_source(s, c, q, x);
}

/* ---- libmicrohttpd's callbacks --------------------------------------------------------------- */
static enum MHD_Result answer(void *ctx, struct MHD_Connection *c, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **state) {
    bt_serve *s = ctx;
    exchange *x = *state;
    (void)version;
    if (!x) {
        x = calloc(1, sizeof *x);
        *state = x;
        return x ? MHD_YES : MHD_NO;
    }
    if (x->reply) return bt_reply_answer(x->reply);
    if (*size) {
        if (x->body.len + *size > s->cfg.max_body)
            x->too_large = true;
        else
            bt_text_putn(&x->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (x->too_large)
        return send_error(c, 413, "invalid_request_error", "the request body is too large");
    if (x->body.failed) return send_error(c, 503, "server_error", "out of memory");
    if (!bt_http_framing_ok(c))
        return send_error(c, 400, "invalid_request_error",
                          "Content-Length and Transfer-Encoding together");
    bt_req q;
    bt_http_read(&q, c, path, method);
    return dispatch(s, c, &q, x);
}

static void completed(void *ctx, struct MHD_Connection *c, void **state,
                      enum MHD_RequestTerminationCode why) {
    bt_serve *s = ctx;
    exchange *x = *state;
    (void)why;
    if (x) {
        if (x->reply) bt_reply_close(x->reply);
        bt_text_release(&x->body);
        free(x);
        *state = NULL;
    }
    bt_links_end(&s->links, bt_http_link(c));
}

static void *watch(void *ctx) {
    bt_serve *s = ctx;
    while (!atomic_load(&s->stop)) {
        bt_links_cut(&s->links, s->cfg.deadline_ns, BT_HTTP_CROWD);
        bt_reply_look_for_gone(s);
        bt_sleep_ns(watch_ns);
    }
    return NULL;
}

/* ---- start and stop -------------------------------------------------------------------------- */
static bt_code take_token(bt_serve *s, const char *token, bt_err *err) {
    if (!token || !*token) return bt_http_make_token(s->token, err);
    snprintf(s->token, sizeof s->token, "%s", token);
    if (strlen(token) == BT_TOKEN_HEX && strspn(token, "0123456789abcdef") == BT_TOKEN_HEX)
        return BT_OK;
    return bt_fail(err, BT_ARG, "the token must be %d hex digits", BT_TOKEN_HEX);
}

static bt_code listen_and_start(bt_serve *s, bt_err *err) {
    BT_TRY(bt_listen_tcp(s->host, s->cfg.port, &s->listen_fd, &s->port, err));
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
                                 NULL, answer, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)BT_HTTP_CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)BT_HTTP_IDLE_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)BT_HTTP_HEADER_BYTES,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
                                 completed, s, MHD_OPTION_URI_LOG_CALLBACK, bt_http_request_begins,
                                 &s->links, MHD_OPTION_NOTIFY_CONNECTION, bt_http_connection,
                                 &s->links, MHD_OPTION_END);
    if (!s->daemon) return bt_fail(err, BT_IO, "cannot start the HTTP server on port %d", s->port);
    if (pthread_create(&s->watcher, NULL, watch, s) != 0)
        return bt_fail(err, BT_NOMEM, "cannot start the watching thread");
    return BT_OK;
}

static void release(bt_serve *s) {
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    else if (s->listen_fd >= 0)
        close(s->listen_fd);
    bt_links_release(&s->links);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

bt_code bt_serve_start(bt_serve **out, const bt_serve_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_serve *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "no memory for the server");
    s->cfg = *cfg;
    if (!s->cfg.deadline_ns) s->cfg.deadline_ns = deadline_ns;
    s->listen_fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    bt_links_init(&s->links);
    snprintf(s->host, sizeof s->host, "%s", cfg->host);
    snprintf(s->allow, sizeof s->allow, "%s", cfg->allow_hosts ? cfg->allow_hosts : "");
    bt_code code = take_token(s, cfg->token, err);
    if (code == BT_OK) code = listen_and_start(s, err);
    if (code == BT_OK)
        *out = s;
    else
        release(s);
    return code;
}

int bt_serve_port(const bt_serve *s) { return s->port; }
const char *bt_serve_token(const bt_serve *s) { return s->token; }

static int unfinished(bt_serve *s) {
    pthread_mutex_lock(&s->lock);
    const int n = s->n_replies;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void bt_serve_stop(bt_serve *s) {
    if (!s) return;
    atomic_store(&s->stopping, true);
    for (const int64_t until = bt_now_ns() + flush_ns; unfinished(s) && bt_now_ns() < until;)
        bt_sleep_ns(5000000);
    atomic_store(&s->stop, true);
    pthread_join(s->watcher, NULL);
    release(s);
}
