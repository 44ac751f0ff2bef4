/* http_server.c - reads requests, sends responses with their security headers, and lists connections. */
#include "web/http/http_server.h"

#include "engine/base/system/ascii.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char csp[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
                          "data:; connect-src 'self'; font-src 'self'; "
                          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static const bt_header guards[] = {
    {"Content-Security-Policy", csp},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"X-Frame-Options", "DENY"},
    {NULL, NULL},
};

const bt_header bt_http_events[] = {{"Content-Type", "text/event-stream"},
                                    {"Cache-Control", "no-store"},
                                    {"X-Accel-Buffering", "no"},
                                    {NULL, NULL}};

/* Returns false if out of memory. */
static bool add_headers(struct MHD_Response *r, const bt_header *h) {
    for (; h->name; h++)
        if (h->value && MHD_add_response_header(r, h->name, h->value) != MHD_YES) return false;
    return true;
}

enum MHD_Result bt_http_send(struct MHD_Connection *c, int status, struct MHD_Response *r,
                             const bt_header *more) {
    const char *wait = status == 429 || status == 503 ? "2" : NULL; /* seconds */
    const bt_header own[] = {{"Retry-After", wait}, {NULL, NULL}};
    enum MHD_Result ok = MHD_NO;
    if (add_headers(r, guards) && add_headers(r, more) && add_headers(r, own))
        ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result add_request_argument(void *ctx, enum MHD_ValueKind kind, const char *key,
                                            const char *value) {
    (void)kind;
    bt_req_add_arg(ctx, key, value);
    return MHD_YES;
}

const char *bt_http_header(struct MHD_Connection *c, const char *name) {
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

typedef struct header_counts {
    int host, length, encoding;
} header_counts;

static enum MHD_Result count_framing_header(void *ctx, enum MHD_ValueKind kind, const char *key,
                                            const char *value) {
    header_counts *n = ctx;
    (void)kind, (void)value;
    n->host += bt_ascii_equal(key, "Host");
    n->length += bt_ascii_equal(key, "Content-Length");
    n->encoding += bt_ascii_equal(key, "Transfer-Encoding");
    return MHD_YES;
}

const char *bt_http_ambiguity(struct MHD_Connection *c) {
    header_counts n = {0};
    const bt_link *link = bt_http_link(c);
    MHD_get_connection_values(c, MHD_HEADER_KIND, count_framing_header, &n);
    if (link && link->bad_target) return "the address contains %00";
    if (n.length && n.encoding) return "Content-Length and Transfer-Encoding together";
    if (n.host > 1) return "more than one Host header";
    if (n.length > 1) return "more than one Content-Length header";
    return n.encoding > 1 ? "more than one Transfer-Encoding header" : NULL;
}

/* Accepts "gzip, br" and "gzip;q=0.5", but not "gzip;q=0" and "x-gzipped". */
bool bt_http_takes_gzip(const char *encodings) {
    for (const char *p = encodings; p && *p; p += strcspn(p, ","), p += *p == ',') {
        p += strspn(p, " \t");
        size_t n = strcspn(p, ",; \t");
        if (n != 4 || !bt_ascii_equal_n(p, "gzip", 4)) continue;
        const char *q = p + n + strspn(p + n, " \t;");
        return !bt_ascii_equal_n(q, "q=", 2) || strtod(q + 2, NULL) > 0;
    }
    return false;
}

void bt_http_read(bt_req *q, struct MHD_Connection *c, const char *path, const char *method) {
    memset(q, 0, sizeof *q);
    q->method = method;
    q->path = path;
    q->host = bt_http_header(c, "Host");
    q->origin = bt_http_header(c, "Origin");
    q->fetch_site = bt_http_header(c, "Sec-Fetch-Site");
    q->cookie = bt_http_header(c, "Cookie");
    q->authorization = bt_http_header(c, "Authorization");
    q->last_event_id = bt_http_header(c, "Last-Event-ID");
    q->if_none_match = bt_http_header(c, "If-None-Match");
    q->intent = bt_http_header(c, "X-Bitrain-Control");
    q->gzip_ok = bt_http_takes_gzip(bt_http_header(c, "Accept-Encoding"));
    MHD_get_connection_values(c, MHD_GET_ARGUMENT_KIND, add_request_argument, q);
}

const bt_asset *bt_http_asset(const bt_asset *assets, size_t n, const char *path) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(assets[i].path, path) == 0) return &assets[i];
    }
    return NULL;
}

enum MHD_Result bt_http_send_asset(struct MHD_Connection *c, const bt_req *q, const bt_asset *a) {
    const bt_asset_form *f = q->gzip_ok ? &a->gzip : &a->plain;
    bool same = bt_req_etag_matches(q->if_none_match, f->etag);
    struct MHD_Response *r = MHD_create_response_from_buffer(
        same ? 0 : f->bytes, (void *)(same ? (const unsigned char *)"" : f->data),
        MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    return bt_http_send(
        c, same ? 304 : 200, r,
        (const bt_header[]){{"ETag", f->etag},
                            {"Cache-Control", "no-cache"},
                            {"Vary", "Accept-Encoding"},
                            {"Content-Type", same ? NULL : a->type},
                            {"Content-Encoding", !same && q->gzip_ok ? "gzip" : NULL},
                            {NULL, NULL}});
}

enum MHD_Result bt_http_send_login(struct MHD_Connection *c, int port, const char *token) {
    static const char body[] = "{\"ok\":true}";
    char cookie[256];
    struct MHD_Response *r = MHD_create_response_from_buffer(sizeof body - 1, (void *)(size_t)body,
                                                             MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    snprintf(cookie, sizeof cookie, "bitrain_%d=%s; Path=/; HttpOnly; SameSite=Strict", port,
             token);
    return bt_http_send(c, 200, r,
                        (const bt_header[]){{"Set-Cookie", cookie},
                                            {"Content-Type", "application/json"},
                                            {"Cache-Control", "no-store"},
                                            {NULL, NULL}});
}

bt_code bt_http_make_token(char token[BT_TOKEN_HEX + 1], bt_err *err) {
    unsigned char bytes[BT_TOKEN_HEX / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return bt_fail_errno(err, BT_IO, errno, "cannot get random bytes for the token");
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return BT_OK;
}

bt_link *bt_http_link(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(c,
                                                                MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return i ? i->socket_context : NULL;
}

/* Called with the first line of a request, when its deadline begins. (The deadline of a connection begins when it is
 * accepted.) */
void *bt_http_request_begins(void *links, const char *uri, struct MHD_Connection *c) {
    bt_link *link = bt_http_link(c);
    if (link) link->bad_target = strstr(uri, "%00") != NULL;
    bt_links_begin(links, link);
    return NULL;
}

void bt_http_connection(void *links, struct MHD_Connection *c, void **socket_context,
                        enum MHD_ConnectionNotificationCode what) {
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        *socket_context = bt_links_add(links, fd);
        return;
    }
    bt_links_remove(links, *socket_context);
    *socket_context = NULL;
}
