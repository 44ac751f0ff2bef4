/* serve.c - the daemon of a model's server: guards, routes, and the thread that closes connections with late requests.
 * */
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
    bt_reply *reply; /* NULL: the server itself responds, or has not responded yet */
    char path[256];  /* path of the request without a trailing slash */
} exchange;

static enum MHD_Result send_text_response(const bt_serve *s, struct MHD_Connection *c, int status,
                                          const char *type, const char *text, size_t n) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, (void *)(size_t)text,
                                                             MHD_RESPMEM_MUST_COPY);
    bt_header headers[BT_SERVE_HEADERS];
    char id[BT_REQUEST_ID_HEX + 1];
    if (!r) return MHD_NO;
    bt_serve_request_id(id);
    bt_serve_headers(s, c, id,
                     (const bt_header[]){{"Content-Type", type},
                                         {"Cache-Control", "no-store"},
                                         {"WWW-Authenticate", status == 401 ? "Bearer" : NULL},
                                         {"Allow", status == 405 ? "GET, HEAD, POST" : NULL},
                                         {NULL, NULL}},
                     headers);
    return bt_http_send(c, status, r, headers);
}

static enum MHD_Result send_error(const bt_serve *s, struct MHD_Connection *c, int status,
                                  const bt_serve_error *e) {
    bt_text body;
    bt_text_init(&body);
    bt_serve_error_text(&body, e);
    const enum MHD_Result ok = send_text_response(s, c, status, "application/json",
                                                  bt_text_str(&body), body.len);
    bt_text_release(&body);
    return ok;
}

static enum MHD_Result send_invalid(const bt_serve *s, struct MHD_Connection *c, int status,
                                    const char *code, const char *message) {
    return send_error(
        s, c, status,
        &(bt_serve_error){.type = "invalid_request_error", .code = code, .message = message});
}

static enum MHD_Result send_unavailable(const bt_serve *s, struct MHD_Connection *c,
                                        const char *message) {
    return send_error(s, c, 503, &(bt_serve_error){.type = "server_error", .message = message});
}

static bool is_get_request(const bt_req *q) {
    return strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0;
}

/* Accepts the key in the headers of OpenAI's, Azure's and Anthropic's clients, or in the page's cookie. */
static bool has_access_key(const bt_serve *s, struct MHD_Connection *c, const bt_req *q) {
    static const char *const names[] = {"api-key", "x-api-key"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *key = bt_http_header(c, names[i]);
        if (key && bt_token_equal(key, strlen(key), s->token)) return true;
    }
    return bt_req_token_ok(q->authorization, q->cookie, s->token, s->port);
}

static enum MHD_Result pass_to_source(bt_serve *s, struct MHD_Connection *c, const bt_req *q,
                                      exchange *x) {
    if (atomic_load(&s->stopping)) return send_unavailable(s, c, "the server is stopping");
    x->reply = bt_reply_open(s, c);
    if (!x->reply)
        return send_error(s, c, 429,
                          &(bt_serve_error){.type = "rate_limit_error",
                                            .code = "rate_limit_exceeded",
                                            .message = "too many requests are being answered"});
    bt_links_exempt(&s->links, bt_http_link(c));
    s->cfg.source.ask(s->cfg.source.ctx, x->reply, q->method, q->path, bt_text_str(&x->body),
                      x->body.len);
    return bt_reply_answer(x->reply);
}

static enum MHD_Result dispatch_model_route(bt_serve *s, struct MHD_Connection *c, const bt_req *q,
                                            exchange *x) {
    const bool listed = bt_serve_allowed_origin(s, c) != NULL;
    if (!bt_req_host_ok(q->host, s->host, s->allow, s->port))
        return send_invalid(s, c, 403, "host_not_allowed",
                            "this Host is not served here: use localhost, or start serve with "
                            "--allow-host");
    if (!listed && !bt_req_origin_ok(q->origin, q->fetch_site, s->host, s->allow, s->port))
        return send_invalid(s, c, 403, "origin_not_allowed",
                            "requests from other sites are refused: start serve with "
                            "--allow-origin and the site's address");
    if (listed && strcmp(q->method, "OPTIONS") == 0) return bt_serve_preflight(s, c);
    if (!is_get_request(q) && strcmp(q->method, "POST") != 0)
        return send_invalid(s, c, 405, "method_not_allowed", "only GET, HEAD and POST are served");
    if (is_get_request(q)) {
        static const char healthy[] = "{\"status\":\"ok\"}";
        const bt_asset *asset = bt_http_asset(bt_chat_assets, bt_chat_assets_n, q->path);
        if (asset) return bt_http_send_asset(c, q, asset);
        if (strcmp(q->path, "/healthz") == 0)
            return send_text_response(s, c, 200, "text/plain", "ok\n", 3);
        if (strcmp(q->path, "/health") == 0)
            return send_text_response(s, c, 200, "application/json", healthy, sizeof healthy - 1);
    }
    if (!s->cfg.open && !has_access_key(s, c, q))
        return send_error(
            s, c, 401,
            &(bt_serve_error){
                .type = "authentication_error",
                .code = "invalid_api_key",
                .message =
                    "the token is missing or wrong: send the one that `bitrain serve` printed "
                    "as 'Authorization: Bearer TOKEN'"});
    if (is_get_request(q) && strcmp(q->path, "/api/v1/login") == 0)
        return bt_http_send_login(c, s->port, s->token);
    return pass_to_source(s, c, q, x);
}

/* Removes a trailing slash, which clients produce when they join a base address and a path. */
static const char *strip_trailing_slash(exchange *x, const char *path) {
    const size_t n = strlen(path);
    if (n < 2 || n > sizeof x->path || path[n - 1] != '/') return path;
    snprintf(x->path, sizeof x->path, "%.*s", (int)n - 1, path);
    return x->path;
}

static enum MHD_Result on_model_request(void *ctx, struct MHD_Connection *c, const char *path,
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
    const char *ambiguity = bt_http_ambiguity(c);
    if (ambiguity) return send_invalid(s, c, 400, NULL, ambiguity);
    if (x->too_large)
        return send_invalid(s, c, 413, "request_too_large", "the request body is too large");
    if (x->body.failed) return send_unavailable(s, c, "out of memory");
    bt_req q;
    bt_http_read(&q, c, strip_trailing_slash(x, path), method);
    return dispatch_model_route(s, c, &q, x);
}

static void on_model_completed(void *ctx, struct MHD_Connection *c, void **state,
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

static void *watch_request_deadlines(void *ctx) {
    bt_serve *s = ctx;
    while (!atomic_load(&s->stop)) {
        bt_links_cut(&s->links, s->cfg.deadline_ns, BT_HTTP_CROWD);
        bt_reply_find_disconnected(s);
        bt_sleep_ns(watch_ns);
    }
    return NULL;
}

static bt_code set_access_token(bt_serve *s, const char *token, bt_err *err) {
    if (!token || !*token) return bt_http_make_token(s->token, err);
    const size_t n = strlen(token);
    size_t good = 0;
    while (good < n && token[good] > ' ' && token[good] <= '~' && !strchr("\"',;\\", token[good]))
        good++;
    if (good < n || n < BT_SERVE_KEY_MIN || n > BT_SERVE_KEY_MAX)
        return bt_fail(err, BT_ARG,
                       "an API key has %d to %d visible ASCII characters without quotes, commas, "
                       "semicolons and backslashes (--api-key or BITRAIN_SERVE_TOKEN)",
                       BT_SERVE_KEY_MIN, BT_SERVE_KEY_MAX);
    memcpy(s->token, token, n + 1);
    return BT_OK;
}

static bt_code listen_and_start(bt_serve *s, bt_err *err) {
    BT_TRY(bt_listen_tcp(s->host, s->cfg.port, &s->listen_fd, &s->port, err));
    s->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL,
                                 NULL, on_model_request, s, MHD_OPTION_LISTEN_SOCKET, s->listen_fd,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)BT_HTTP_CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)BT_HTTP_IDLE_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)BT_HTTP_HEADER_BYTES,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED,
                                 on_model_completed, s, MHD_OPTION_URI_LOG_CALLBACK,
                                 bt_http_request_begins, &s->links, MHD_OPTION_NOTIFY_CONNECTION,
                                 bt_http_connection, &s->links, MHD_OPTION_END);
    if (!s->daemon) return bt_fail(err, BT_IO, "cannot start the HTTP server on port %d", s->port);
    if (pthread_create(&s->watcher, NULL, watch_request_deadlines, s) != 0)
        return bt_fail(err, BT_NOMEM, "cannot start the watching thread");
    return BT_OK;
}

static void release_serve(bt_serve *s) {
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
    bt_code code = set_access_token(s, cfg->token, err);
    if (code == BT_OK) code = bt_serve_take_origins(s, cfg->allow_origins, err);
    if (code == BT_OK) code = listen_and_start(s, err);
    if (code == BT_OK)
        *out = s;
    else
        release_serve(s);
    return code;
}

int bt_serve_port(const bt_serve *s) { return s->port; }
const char *bt_serve_token(const bt_serve *s) { return s->token; }

static int count_unfinished_replies(bt_serve *s) {
    pthread_mutex_lock(&s->lock);
    const int n = s->n_replies;
    pthread_mutex_unlock(&s->lock);
    return n;
}

void bt_serve_stop(bt_serve *s) {
    if (!s) return;
    atomic_store(&s->stopping, true);
    for (const int64_t until = bt_now_ns() + flush_ns;
         count_unfinished_replies(s) && bt_now_ns() < until;)
        bt_sleep_ns(5000000);
    atomic_store(&s->stop, true);
    pthread_join(s->watcher, NULL);
    release_serve(s);
}
