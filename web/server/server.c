/* server.c - the only file that knows libmicrohttpd: connections, deadlines, guards, headers, event streams.
 *
 *     epoll thread    answer() -> guards -> route or asset -> response;  stream_read() feeds event streams
 *     publisher       watches PRAGMA data_version, wakes sleeping streams; cuts requests that outlive their deadline
 *
 * A stream with nothing to say is suspended; its 15 s heartbeat and every commit resume it. All are resumed before the stop.
 * libmicrohttpd's own timeout is per inactivity, so a client sending a byte a second would stay: the reaper shuts its socket, also
 * when it is the first line of a second request that never ends. */
#include "web/web.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "web/api/api.h"
#include "web/server/assets.h"
#include "web/api/cache.h"
#include "web/http/listen.h"

enum { MAX_CONNECTIONS = 512, CROWD = 384, MAX_STREAMS = 32, HEADER_BYTES = 16384, BODY_MAX = 65536, IDLE_S = 10, WATCH_MS = 25, TICK_MS = 100 };
static const int64_t deadline_ns = 5000000000, heartbeat_ns = 15000000000;

typedef struct stream {                 /* an open event stream */
    bt_web *web;
    struct MHD_Connection *conn;
    char run[BT_NAME_MAX];
    bt_cursor cursor;
    bt_text out;                        /* what is not yet sent */
    size_t sent;
    int64_t last_ns;                    /* when something was last put */
    bool suspended;
    struct stream *next;
} stream;

typedef struct link {                   /* an accepted connection */
    int fd;
    int64_t since_ns;                   /* when it was accepted, its request began or the one before ended */
    bool idle, stream;                  /* idle: has not sent the first line of its next request */
    struct link *next, *prev;
} link_t;

struct bt_web {
    bt_web_cfg cfg;
    char store[1024], host[256], allow[1024], token[BT_TOKEN_HEX + 1], socket[128];
    int port, listen_fd;                /* port 0: a Unix socket, whose mode is the guard */
    struct MHD_Daemon *daemon;
    bt_api *api;
    bt_cache *cache;
    pthread_t publisher;
    atomic_bool stop;
    atomic_ullong wakes;                /* counts wake_streams(all): a stream that read before one must not sleep after it */
    pthread_mutex_t lock;               /* streams and links */
    stream *streams;
    link_t *links;                      /* newest first */
    int n_streams, n_links;
};

typedef struct exchange {               /* one request in progress */
    bt_text body;
    bool too_large;
} exchange;

/* ---- responses --------------------------------------------------------------------------------------------------------- */
static const char csp[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
                          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void safe_headers(struct MHD_Response *r) {
    static const char *const headers[][2] = {
        {"Content-Security-Policy", csp}, {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"}, {"Cross-Origin-Resource-Policy", "same-origin"}, {"X-Frame-Options", "DENY"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) MHD_add_response_header(r, headers[i][0], headers[i][1]);
}

static enum MHD_Result send_response(struct MHD_Connection *c, int status, struct MHD_Response *r) {
    safe_headers(r);
    enum MHD_Result ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result send_answer(struct MHD_Connection *c, bt_answer *a) {
    if (a->body.failed) bt_answer_error(a, 503, "memory", "out of memory", "try again");
    struct MHD_Response *r = MHD_create_response_from_buffer(a->body.len, a->body.data, MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", a->type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    if (a->status == 429 || a->status == 503) MHD_add_response_header(r, "Retry-After", "2");
    return send_response(c, a->status, r);
}

static enum MHD_Result send_error(struct MHD_Connection *c, int status, const char *code, const char *message, const char *hint) {
    bt_answer a = {.status = status};
    bt_text_init(&a.body);
    bt_answer_error(&a, status, code, message, hint);
    enum MHD_Result ok = send_answer(c, &a);
    bt_text_release(&a.body);
    return ok;
}

static enum MHD_Result send_asset(struct MHD_Connection *c, const bt_req *q, const bt_asset *a) {
    const bt_asset_form *f = q->gzip_ok ? &a->gzip : &a->plain;
    bool same = q->if_none_match && strcmp(q->if_none_match, f->etag) == 0;
    struct MHD_Response *r = MHD_create_response_from_buffer(same ? 0 : f->bytes, (void *)(same ? (const unsigned char *)"" : f->data), MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "ETag", f->etag);
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "Vary", "Accept-Encoding");
    if (!same) MHD_add_response_header(r, "Content-Type", a->type);
    if (!same && q->gzip_ok) MHD_add_response_header(r, "Content-Encoding", "gzip");
    return send_response(c, same ? 304 : 200, r);
}

/* "gzip, br" and "gzip;q=0.5" do, "gzip;q=0" and "x-gzipped" do not */
static bool takes_gzip(const char *encodings) {
    for (const char *p = encodings; p && *p; p += strcspn(p, ","), p += *p == ',') {
        p += strspn(p, " \t");
        size_t n = strcspn(p, ",; \t");
        if (n != 4 || strncasecmp(p, "gzip", 4) != 0) continue;
        const char *q = p + n + strspn(p + n, " \t;");
        return strncasecmp(q, "q=", 2) != 0 || strtod(q + 2, NULL) > 0;
    }
    return false;
}

/* the token came in the Authorization header; a cookie carries it from now on (an EventSource cannot set headers) */
static enum MHD_Result send_login(const bt_web *w, struct MHD_Connection *c) {
    static const char body[] = "{\"ok\":true}";
    char cookie[128];
    struct MHD_Response *r = MHD_create_response_from_buffer(sizeof body - 1, (void *)(size_t)body, MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    snprintf(cookie, sizeof cookie, "bitrain_%d=%s; Path=/; HttpOnly; SameSite=Strict", w->port, w->token);
    MHD_add_response_header(r, "Set-Cookie", cookie);
    MHD_add_response_header(r, "Content-Type", "application/json");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    return send_response(c, 200, r);
}

/* ---- event streams ------------------------------------------------------------------------------------------------------ */
static ssize_t stream_read(void *ctx, uint64_t pos, char *buf, size_t max) {
    stream *s = ctx;
    bt_web *w = s->web;
    (void)pos;
    if (atomic_load(&w->stop)) return MHD_CONTENT_READER_END_OF_STREAM;
    while (s->sent == s->out.len) {
        bt_err err = BT_ERR_INIT;
        int64_t now = bt_now_ns();
        unsigned long long wakes = atomic_load(&w->wakes);
        bt_text_clear(&s->out);
        s->sent = 0;
        if (bt_stream_since(w->api, s->run, &s->cursor, &s->out, &err) != BT_OK) return MHD_CONTENT_READER_END_WITH_ERROR;
        if (s->out.len == 0 && now - s->last_ns >= w->cfg.heartbeat_ns) bt_text_put(&s->out, ": hb\n\n");
        if (s->out.len == 0) {
            pthread_mutex_lock(&w->lock);
            s->suspended = wakes == atomic_load(&w->wakes);
            if (s->suspended) MHD_suspend_connection(s->conn);
            pthread_mutex_unlock(&w->lock);
            if (s->suspended) return 0;
            continue;
        }
        s->last_ns = now;
    }
    size_t n = s->out.len - s->sent < max ? s->out.len - s->sent : max;
    memcpy(buf, s->out.data + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

static void stream_free(void *ctx) {
    stream *s = ctx;
    bt_web *w = s->web;
    pthread_mutex_lock(&w->lock);
    for (stream **p = &w->streams; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            w->n_streams--;
            break;
        }
    }
    pthread_mutex_unlock(&w->lock);
    bt_text_release(&s->out);
    free(s);
}

static link_t *link_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

static enum MHD_Result open_stream(bt_web *w, struct MHD_Connection *c, const char *wanted, const char *last_id) {
    bt_err err = BT_ERR_INIT;
    char run[BT_NAME_MAX];
    bt_db *db = bt_api_db(w->api, &err);
    if (!db || bt_db_run(db, wanted, run, &err) != BT_OK) return send_error(c, bt_status_of(err.code), "run_not_found", err.msg, "GET /api/v1/runs lists them");
    if (w->n_streams >= MAX_STREAMS) return send_error(c, 503, "too_many_streams", "too many event streams are open", "close a page and try again");
    stream *s = calloc(1, sizeof *s);
    if (!s) return MHD_NO;
    s->web = w;
    s->conn = c;
    s->last_ns = bt_now_ns();
    snprintf(s->run, sizeof s->run, "%s", run);
    bt_cursor_parse(&s->cursor, last_id);
    bt_text_init(&s->out);
    bt_text_put(&s->out, "retry: 2000\n\n");
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, stream_read, s, stream_free);
    if (!r) {
        bt_text_release(&s->out);
        free(s);
        return MHD_NO;
    }
    pthread_mutex_lock(&w->lock);
    s->next = w->streams;
    w->streams = s;
    w->n_streams++;
    link_t *l = link_of(c);
    if (l) {
        l->stream = true;                               /* which has no deadline */
    }
    pthread_mutex_unlock(&w->lock);
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    return send_response(c, 200, r);
}

/* ---- the publisher ------------------------------------------------------------------------------------------------------ */
static void wake_streams(bt_web *w, bool all) {
    int64_t now = bt_now_ns();
    pthread_mutex_lock(&w->lock);
    if (all) atomic_fetch_add(&w->wakes, 1);
    for (stream *s = w->streams; s; s = s->next) {
        if (s->suspended && (all || now - s->last_ns >= w->cfg.heartbeat_ns)) {
            s->suspended = false;
            MHD_resume_connection(s->conn);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

/* Requests that outlive their deadline go. In a crowd the oldest connections that are not streams go at once: whoever opens
 * hundreds and says nothing makes room for who comes after. */
static void cut_late_requests(bt_web *w) {
    int64_t now = bt_now_ns();
    int kept = 0;
    pthread_mutex_lock(&w->lock);
    for (link_t *l = w->links; l; l = l->next) {
        if (l->stream || (now - l->since_ns <= w->cfg.deadline_ns * (l->idle ? 2 : 1) && ++kept <= CROWD)) continue;
        shutdown(l->fd, SHUT_RDWR);
        l->since_ns = now;
    }
    pthread_mutex_unlock(&w->lock);
}

static void *publish(void *ctx) {
    bt_web *w = ctx;
    bt_db *db = NULL;
    int64_t seen = -1, woken_ns = 0;
    bool pending = false;
    while (!atomic_load(&w->stop)) {
        bt_err err = BT_ERR_INIT;
        if (!db && bt_db_open(&db, w->store, &err) != BT_OK) db = NULL;
        int64_t version = db ? bt_db_version(db) : -1, now = bt_now_ns();
        pending |= version != seen;
        seen = version;
        if (pending && now - woken_ns >= (int64_t)TICK_MS * 1000000) {      /* a run of 1000 steps a second still ticks calmly */
            wake_streams(w, true);
            woken_ns = now;
            pending = false;
        } else {
            wake_streams(w, false);
        }
        cut_late_requests(w);
        bt_sleep_ns((int64_t)WATCH_MS * 1000000);
    }
    bt_db_close(db);
    return NULL;
}

/* ---- requests ----------------------------------------------------------------------------------------------------------- */
static enum MHD_Result add_arg(void *ctx, enum MHD_ValueKind kind, const char *key, const char *value) {
    (void)kind;
    bt_req_add_arg(ctx, key, value);
    return MHD_YES;
}

static const char *header(struct MHD_Connection *c, const char *name) { return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name); }

static void read_request(bt_req *q, struct MHD_Connection *c, const char *path, const char *method) {
    memset(q, 0, sizeof *q);
    q->method = method;
    q->path = path;
    q->host = header(c, "Host");
    q->origin = header(c, "Origin");
    q->fetch_site = header(c, "Sec-Fetch-Site");
    q->cookie = header(c, "Cookie");
    q->authorization = header(c, "Authorization");
    q->last_event_id = header(c, "Last-Event-ID");
    q->if_none_match = header(c, "If-None-Match");
    q->intent = header(c, "X-Bitrain-Control");
    q->gzip_ok = takes_gzip(header(c, "Accept-Encoding"));
    MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, add_arg, q);
}

static const bt_asset *asset_at(const char *path) {
    for (size_t i = 0; i < bt_assets_n; i++) {
        if (strcmp(bt_assets[i].path, path) == 0) return &bt_assets[i];
    }
    return NULL;
}

/* "not found" as a word that programs compare: not_found */
static const char *code_word(char *out, size_t size, bt_code code) {
    snprintf(out, size, "%s", bt_code_name(code));
    for (char *p = out; *p; p++)
        if (*p == ' ') *p = '_';
    return out;
}

static enum MHD_Result send_answer_again(struct MHD_Connection *c, const bt_answer *a) {
    bt_answer copy = *a;                                /* its body stays the cache's */
    return send_answer(c, &copy);
}

static enum MHD_Result run_route(bt_web *w, struct MHD_Connection *c, const bt_route *route, const bt_req *q, const char *run) {
    bt_err err = BT_ERR_INIT;
    const bool keeps = route->guard == BT_ROUTE_TOKEN;
    bt_db *db = keeps ? bt_api_db(w->api, &err) : NULL;
    const int64_t now = bt_now_ns(), version = db ? bt_db_version(db) : -1;
    const bt_answer *known = db ? bt_cache_find(w->cache, q, version, now) : NULL;
    if (known) return send_answer_again(c, known);
    bt_answer a = {.status = 200, .type = "application/json"};
    char word[32];
    bt_text_init(&a.body);
    bt_code code = route->fn(w->api, q, run, &a, &err);
    if (code != BT_OK) bt_answer_error(&a, bt_status_of(code), code_word(word, sizeof word, code), err.msg, "GET /api/v1/runs lists the runs, /api/v1/metrics the metrics");
    else if (db) bt_cache_keep(w->cache, q, version, now, &a);
    enum MHD_Result ok = send_answer(c, &a);
    bt_text_release(&a.body);
    return ok;
}

static enum MHD_Result dispatch(bt_web *w, struct MHD_Connection *c, bt_req *q) {
    const bt_web_cfg *cfg = &w->cfg;
    bool get = strcmp(q->method, "GET") == 0 || strcmp(q->method, "HEAD") == 0, post = strcmp(q->method, "POST") == 0;
    if (!bt_req_host_ok(q->host, w->host, w->allow, w->port)) return send_error(c, 403, "host_refused", "this Host is not served here", "use localhost, or start dash with --allow-host");
    if (!bt_req_origin_ok(q->origin, q->fetch_site, w->host, w->allow, w->port)) return send_error(c, 403, "origin_refused", "requests from other sites are refused", "open the dashboard's own page");
    if (!get && !(post && cfg->control)) return send_error(c, 405, "method_refused", "this dashboard is read-only", "start it with --control to allow control verbs");
    if (q->args_overflow) return send_error(c, 400, "argument", "too many or too long query arguments", "at most 24 of 511 bytes");
    if (get) {
        const bt_asset *asset = asset_at(q->path);
        if (asset) return send_asset(c, q, asset);
    }
    char run[BT_NAME_MAX], verb[32];
    bool known = false, token = w->socket[0] || bt_req_token_ok(q->authorization, q->cookie, w->token, w->port);
    const bt_route *route = bt_route_find(q, run, &known);
    if (route && route->guard == BT_ROUTE_OPEN) return run_route(w, c, route, q, run);
    if (!token) return send_error(c, 401, "token", "the token is missing or wrong", "open the URL that `bitrain dash` printed");
    if (get && strcmp(q->path, "/api/v1/login") == 0) return send_login(w, c);
    if (get && bt_req_run_path(q->path, run, verb, sizeof verb) && strcmp(verb, "stream") == 0) return open_stream(w, c, run, q->last_event_id);
    if (!route) return known ? send_error(c, 405, "method_refused", "not with this method", "see web/README.md for the routes")
                             : send_error(c, 404, "not_found", "no such page or route", "see web/README.md for the routes");
    if (route->guard == BT_ROUTE_CONTROL && (!cfg->control || !q->intent || !q->origin)) {
        return send_error(c, 403, "control_refused", "control needs --control, the page's own origin and its X-Bitrain-Control header", "use the buttons of the page");
    }
    return run_route(w, c, route, q, run);
}

static enum MHD_Result answer(void *ctx, struct MHD_Connection *c, const char *path, const char *method, const char *version, const char *data,
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
    if (*size) {                                        /* a body: kept only where one may be */
        if (!w->cfg.control || x->body.len + *size > BODY_MAX) x->too_large = true;
        else bt_text_putn(&x->body, data, *size);
        *size = 0;
        return MHD_YES;
    }
    if (x->too_large) return send_error(c, 413, "body_refused", "no request body of that size is taken here", "send less than 64 KiB, and only with --control");
    if (header(c, "Transfer-Encoding") && header(c, "Content-Length")) return send_error(c, 400, "framing", "Content-Length and Transfer-Encoding together", "send one");
    bt_req q;
    read_request(&q, c, path, method);
    q.body = bt_text_str(&x->body);
    return dispatch(w, c, &q);
}

static void completed(void *ctx, struct MHD_Connection *c, void **state, enum MHD_RequestTerminationCode why) {
    bt_web *w = ctx;
    (void)why;
    exchange *x = *state;
    if (x) {
        bt_text_release(&x->body);
        free(x);
        *state = NULL;
    }
    link_t *l = link_of(c);
    pthread_mutex_lock(&w->lock);
    if (l) {
        l->since_ns = bt_now_ns();
        l->idle = true;
        l->stream = false;
    }
    pthread_mutex_unlock(&w->lock);
}

/* called with the first line of a request: its deadline begins (a connection's own begins when it is accepted) */
static void *request_begins(void *ctx, const char *uri, struct MHD_Connection *c) {
    bt_web *w = ctx;
    (void)uri;
    link_t *l = link_of(c);
    pthread_mutex_lock(&w->lock);
    if (l && l->idle) {
        l->since_ns = bt_now_ns();
        l->idle = false;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void connection_changed(void *ctx, struct MHD_Connection *c, void **socket_context, enum MHD_ConnectionNotificationCode what) {
    bt_web *w = ctx;
    pthread_mutex_lock(&w->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        link_t *l = calloc(1, sizeof *l);
        if (l) {
            l->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
            l->since_ns = bt_now_ns();
            l->next = w->links;
            if (w->links) w->links->prev = l;
            w->links = l;
            w->n_links++;
        }
        *socket_context = l;
    } else {
        link_t *l = *socket_context;
        if (l) {
            if (l->prev) l->prev->next = l->next;
            else w->links = l->next;
            if (l->next) l->next->prev = l->prev;
            w->n_links--;
            free(l);
        }
        *socket_context = NULL;
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- start and stop ----------------------------------------------------------------------------------------------------- */
static bt_code make_token(char token[BT_TOKEN_HEX + 1], bt_err *err) {
    unsigned char bytes[BT_TOKEN_HEX / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return bt_fail_errno(err, BT_IO, errno, "cannot get random bytes for the token");
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return BT_OK;
}

bt_code bt_web_start(bt_web **out, const bt_web_cfg *cfg, bt_err *err) {
    bt_web *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "no memory for the dashboard");
    w->cfg = *cfg;
    if (!w->cfg.heartbeat_ns) w->cfg.heartbeat_ns = heartbeat_ns;
    if (!w->cfg.deadline_ns) w->cfg.deadline_ns = deadline_ns;
    w->listen_fd = -1;
    pthread_mutex_init(&w->lock, NULL);
    snprintf(w->store, sizeof w->store, "%s", cfg->store);
    snprintf(w->host, sizeof w->host, "%s", cfg->host);
    snprintf(w->allow, sizeof w->allow, "%s", cfg->allow_hosts ? cfg->allow_hosts : "");
    bt_code code = BT_OK;
    if (cfg->token && *cfg->token) snprintf(w->token, sizeof w->token, "%s", cfg->token);
    else code = make_token(w->token, err);
    if (code == BT_OK && strlen(w->token) != BT_TOKEN_HEX) code = bt_fail(err, BT_ARG, "the token must be %d hex digits", BT_TOKEN_HEX);
    const bool local = cfg->socket && *cfg->socket;
    if (local) snprintf(w->socket, sizeof w->socket, "%s", cfg->socket);
    if (code == BT_OK) code = bt_api_open(&w->api, w->store, &(bt_api_allows){.control = cfg->control, .query = cfg->query}, err);
    w->cache = bt_cache_open();
    if (code == BT_OK) code = local ? bt_listen_unix(cfg->socket, &w->listen_fd, err) : bt_listen_tcp(w->host, cfg->port, &w->listen_fd, &w->port, err);
    if (code == BT_OK) {
        w->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, answer, w,
                                     MHD_OPTION_LISTEN_SOCKET, w->listen_fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
                                     MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEADER_BYTES,
                                     MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_COMPLETED, completed, w, MHD_OPTION_URI_LOG_CALLBACK, request_begins, w,
                                     MHD_OPTION_NOTIFY_CONNECTION, connection_changed, w, MHD_OPTION_END);
        if (!w->daemon) code = bt_fail(err, BT_IO, "cannot start the HTTP server on port %d", w->port);
    }
    if (code == BT_OK && pthread_create(&w->publisher, NULL, publish, w) != 0) code = bt_fail(err, BT_NOMEM, "cannot start the publisher thread");
    if (code != BT_OK) {
        if (w->daemon) MHD_stop_daemon(w->daemon);
        else if (w->listen_fd >= 0) close(w->listen_fd);
        bt_api_close(w->api);
        bt_cache_close(w->cache);
        pthread_mutex_destroy(&w->lock);
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
    wake_streams(w, true);                              /* a suspended connection would hold the daemon for ever */
    MHD_stop_daemon(w->daemon);
    if (w->socket[0]) unlink(w->socket);
    bt_api_close(w->api);
    bt_cache_close(w->cache);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
