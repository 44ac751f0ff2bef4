/* server.c - the dashboard: guards and routes, on the connections of web/http/http_server.h. event_streams.c implements
 * event streams, responses.c responses.
 *
 *     epoll thread    on_page_request() -> guards -> route or asset -> response; stream_read() fills event streams
 *     publisher       polls PRAGMA data_version and resumes suspended streams; closes connections of late requests
 *
 * A stream without new events is suspended. The heartbeat of the stream, every 15 s, and every commit resume the
 * stream. All streams are resumed before the server stops. */
#include "web/web.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "web/http/listen.h"
#include "web/server/server_impl.h"

enum { BODY_MAX = 65536 };
static const int64_t deadline_ns = 5000000000, heartbeat_ns = 15000000000;

typedef struct exchange { /* one request in progress */
    bt_text body;
    bool too_large;
    bt_answer_thread *thread; /* NULL: the response is computed on the server's thread */
} exchange;

static enum MHD_Result send_answer_again(struct MHD_Connection *c, const bt_answer *a) {
    bt_answer copy = *a; /* a copy, because the cache keeps the body */
    return bt_web_send_answer(c, &copy);
}

static enum MHD_Result answer_on_server_thread(bt_web *w, struct MHD_Connection *c,
                                               const bt_route *route, const bt_req *q,
                                               const char *run) {
    const bool keeps = route->guard == BT_ROUTE_TOKEN;
    bt_api_refresh(w->api);
    const int64_t now = bt_now_ns(), version = keeps ? bt_api_version(w->api) : -1;
    const bt_answer *known = version >= 0 ? bt_cache_find(w->cache, q, version, now) : NULL;
    if (known) return send_answer_again(c, known);
    bt_answer a;
    bt_text_init(&a.body);
    if (bt_web_make_answer(w, route, q, run, &a) == BT_OK && version >= 0)
        bt_cache_keep(w->cache, q, version, now, &a);
    enum MHD_Result ok = bt_web_send_answer(c, &a);
    bt_text_release(&a.body);
    return ok;
}

static const char most_args[] = "at most 24 of 2047 bytes";
_Static_assert(BT_REQ_ARGS == 24 && BT_REQ_VALUE == 2048, "as most_args says");

static bool is_get_method(const char *method) {
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

static enum MHD_Result dispatch_route(bt_web *w, struct MHD_Connection *c, bt_req *q, exchange *x) {
    const bt_web_cfg *cfg = &w->cfg;
    bool get = is_get_method(q->method), post = strcmp(q->method, "POST") == 0;
    if (!bt_req_host_ok(q->host, w->host, w->allow, w->port))
        return bt_web_send_error(c, 403, "host_refused", "this Host is not served here",
                                 "use localhost, or start dash with --allow-host");
    if (!bt_req_origin_ok(q->origin, q->fetch_site, w->host, w->allow, w->port))
        return bt_web_send_error(c, 403, "origin_refused", "requests from other sites are refused",
                                 "open the dashboard's own page");
    if (!get && !(post && cfg->control))
        return bt_web_send_error(c, 405, "method_refused", "this dashboard is read-only",
                                 "start it with --control to allow control verbs");
    if (q->args_overflow)
        return bt_web_send_error(c, 400, "argument", "too many or too long query arguments",
                                 most_args);
    if (get) {
        const bt_asset *asset = bt_http_asset(bt_assets, bt_assets_n, q->path);
        if (asset) return bt_http_send_asset(c, q, asset);
    }
    char run[BT_NAME_MAX], verb[32];
    bool known = false,
         token = w->socket[0] || bt_req_token_ok(q->authorization, q->cookie, w->token, w->port);
    const bt_route *route = bt_route_find(q, run, &known);
    if (route && route->guard == BT_ROUTE_OPEN) return answer_on_server_thread(w, c, route, q, run);
    if (!token)
        return bt_web_send_error(c, 401, "token", "the token is missing or wrong",
                                 "open the URL that `bitrain dash` printed");
    if (get && strcmp(q->path, "/api/v1/login") == 0)
        return bt_http_send_login(c, w->port, w->token);
    if (get && bt_req_run_path(q->path, run, verb, sizeof verb) && strcmp(verb, "stream") == 0)
        return bt_web_open_stream(w, c, run, q->last_event_id);
    if (!route)
        return known ? bt_web_send_error(c, 405, "method_refused", "not with this method",
                                         "see web/README.md for the routes")
                     : bt_web_send_error(c, 404, "not_found", "no such page or route",
                                         "see web/README.md for the routes");
    if (route->guard == BT_ROUTE_CONTROL && (!cfg->control || !q->intent || !q->origin)) {
        return bt_web_send_error(
            c, 403, "control_refused",
            "control needs --control, the page's own origin and its X-Bitrain-Control header",
            "use the buttons of the page");
    }
    if (route->guard == BT_ROUTE_THREAD) return bt_web_answer_in_thread(w, c, route, q, &x->thread);
    return answer_on_server_thread(w, c, route, q, run);
}

static enum MHD_Result on_page_request(void *ctx, struct MHD_Connection *c, const char *path,
                                       const char *method, const char *version, const char *data,
                                       size_t *size, void **state) {
    bt_web *w = ctx;
    (void)version;
    exchange *x = *state;
    if (!x) {
        x = calloc(1, sizeof *x);
        if (!x) return MHD_NO;
        *state = x;
        return MHD_YES;
    }
    if (x->thread) return bt_web_send_threaded(x->thread);
    if (*size) { /* stores a body only if the request may have one */
        if (!w->cfg.control || x->body.len + *size > BODY_MAX)
            x->too_large = true;
        else
            bt_text_putn(&x->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    const char *ambiguity = bt_http_ambiguity(c);
    if (ambiguity)
        return bt_web_send_error(c, 400, "framing", ambiguity, "send one request in one form");
    /* every method that has a body receives 405, unless --control is set */
    if (x->too_large && (w->cfg.control || is_get_method(method)))
        return bt_web_send_error(c, 413, "body_refused",
                                 "no request body of that size is taken here",
                                 "send less than 64 KiB, and only with --control");
    bt_req q;
    bt_http_read(&q, c, path, method);
    q.body = bt_text_str(&x->body);
    return dispatch_route(w, c, &q, x);
}

static void on_page_completed(void *ctx, struct MHD_Connection *c, void **state,
                              enum MHD_RequestTerminationCode why) {
    bt_web *w = ctx;
    (void)why;
    exchange *x = *state;
    if (x) {
        bt_web_answer_thread_free(x->thread);
        bt_text_release(&x->body);
        free(x);
        *state = NULL;
    }
    bt_links_end(&w->links, bt_http_link(c));
}

bt_code bt_web_start(bt_web **out, const bt_web_cfg *cfg, bt_err *err) {
    bt_web *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "no memory for the dashboard");
    w->cfg = *cfg;
    if (!w->cfg.heartbeat_ns) w->cfg.heartbeat_ns = heartbeat_ns;
    if (!w->cfg.deadline_ns) w->cfg.deadline_ns = deadline_ns;
    w->listen_fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    bt_links_init(&w->links);
    pthread_cond_init(&w->answer_thread_done, NULL);
    snprintf(w->store, sizeof w->store, "%s", cfg->store);
    snprintf(w->host, sizeof w->host, "%s", cfg->host);
    snprintf(w->allow, sizeof w->allow, "%s", cfg->allow_hosts ? cfg->allow_hosts : "");
    bt_code code = BT_OK;
    if (cfg->token && *cfg->token)
        snprintf(w->token, sizeof w->token, "%s", cfg->token);
    else
        code = bt_http_make_token(w->token, err);
    if (code == BT_OK && strlen(w->token) != BT_TOKEN_HEX)
        code = bt_fail(err, BT_ARG, "the token must be %d hex digits", BT_TOKEN_HEX);
    const bool local = cfg->socket && *cfg->socket;
    if (local) snprintf(w->socket, sizeof w->socket, "%s", cfg->socket);
    if (code == BT_OK)
        code = bt_api_open(&w->api, w->store,
                           &(bt_api_allows){.control = cfg->control,
                                            .query = cfg->query_program != NULL,
                                            .program = cfg->query_program,
                                            .resume = cfg->control ? cfg->resume : NULL,
                                            .resume_ctx = cfg->resume_ctx,
                                            .remove = cfg->control ? cfg->remove : NULL,
                                            .start = cfg->control ? cfg->start : NULL},
                           err);
    w->cache = bt_cache_open();
    if (code == BT_OK)
        code = local ? bt_listen_unix(cfg->socket, &w->listen_fd, err)
                     : bt_listen_tcp(w->host, cfg->port, &w->listen_fd, &w->port, err);
    if (code == BT_OK) {
        w->daemon = MHD_start_daemon(
            MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
            on_page_request, w, MHD_OPTION_LISTEN_SOCKET, w->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
            (unsigned)BT_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)BT_HTTP_IDLE_S,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)BT_HTTP_HEADER_BYTES,
            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED, on_page_completed, w,
            MHD_OPTION_URI_LOG_CALLBACK, bt_http_request_begins, &w->links,
            MHD_OPTION_NOTIFY_CONNECTION, bt_http_connection, &w->links, MHD_OPTION_END);
        if (!w->daemon)
            code = bt_fail(err, BT_IO, "cannot start the HTTP server on port %d", w->port);
    }
    if (code == BT_OK && pthread_create(&w->publisher, NULL, bt_web_publish, w) != 0)
        code = bt_fail(err, BT_NOMEM, "cannot start the publisher thread");
    if (code != BT_OK) {
        if (w->daemon)
            MHD_stop_daemon(w->daemon);
        else if (w->listen_fd >= 0)
            close(w->listen_fd);
        bt_api_close(w->api);
        bt_cache_close(w->cache);
        pthread_cond_destroy(&w->answer_thread_done);
        pthread_mutex_destroy(&w->lock);
        bt_links_release(&w->links);
        free(w);
        return code;
    }
    *out = w;
    return BT_OK;
}

int bt_web_port(const bt_web *w) { return w->port; }
const char *bt_web_token(const bt_web *w) { return w->token; }

void bt_web_stop(bt_web *w) {
    if (!w) return;
    atomic_store(&w->stop, true);
    pthread_join(w->publisher, NULL);
    /* the daemon cannot stop while a connection is suspended */
    bt_web_wake_streams(w, true);
    bt_web_wait_answer_threads(w);
    MHD_stop_daemon(w->daemon);
    if (w->socket[0]) unlink(w->socket);
    bt_api_close(w->api);
    bt_cache_close(w->cache);
    pthread_cond_destroy(&w->answer_thread_done);
    pthread_mutex_destroy(&w->lock);
    bt_links_release(&w->links);
    free(w);
}
