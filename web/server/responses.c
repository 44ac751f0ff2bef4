/* responses.c - what the server sends: answers, errors, assets, the login cookie. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "web/server/server_impl.h"

static const char csp[] = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' "
                          "data:; connect-src 'self'; font-src 'self'; "
                          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void safe_headers(struct MHD_Response *r) {
    static const char *const headers[][2] = {
        {"Content-Security-Policy", csp},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"X-Frame-Options", "DENY"},
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        MHD_add_response_header(r, headers[i][0], headers[i][1]);
}

enum MHD_Result bt_web_send_response(struct MHD_Connection *c, int status, struct MHD_Response *r) {
    safe_headers(r);
    enum MHD_Result ok = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return ok;
}

enum MHD_Result bt_web_send_answer(struct MHD_Connection *c, bt_answer *a) {
    if (a->body.failed) bt_answer_error(a, 503, "memory", "out of memory", "try again");
    struct MHD_Response *r = MHD_create_response_from_buffer(a->body.len, a->body.data,
                                                             MHD_RESPMEM_MUST_COPY);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", a->type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    if (a->status == 429 || a->status == 503) MHD_add_response_header(r, "Retry-After", "2");
    return bt_web_send_response(c, a->status, r);
}

enum MHD_Result bt_web_send_error(struct MHD_Connection *c, int status, const char *code,
                                  const char *message, const char *hint) {
    bt_answer a = {.status = status};
    bt_text_init(&a.body);
    bt_answer_error(&a, status, code, message, hint);
    enum MHD_Result ok = bt_web_send_answer(c, &a);
    bt_text_release(&a.body);
    return ok;
}

enum MHD_Result bt_web_send_asset(struct MHD_Connection *c, const bt_req *q, const bt_asset *a) {
    const bt_asset_form *f = q->gzip_ok ? &a->gzip : &a->plain;
    bool same = q->if_none_match && strcmp(q->if_none_match, f->etag) == 0;
    struct MHD_Response *r = MHD_create_response_from_buffer(
        same ? 0 : f->bytes, (void *)(same ? (const unsigned char *)"" : f->data),
        MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    MHD_add_response_header(r, "ETag", f->etag);
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    MHD_add_response_header(r, "Vary", "Accept-Encoding");
    if (!same) MHD_add_response_header(r, "Content-Type", a->type);
    if (!same && q->gzip_ok) MHD_add_response_header(r, "Content-Encoding", "gzip");
    return bt_web_send_response(c, same ? 304 : 200, r);
}

/* "gzip, br" and "gzip;q=0.5" do, "gzip;q=0" and "x-gzipped" do not */
bool bt_web_takes_gzip(const char *encodings) {
    for (const char *p = encodings; p && *p; p += strcspn(p, ","), p += *p == ',') {
        p += strspn(p, " \t");
        size_t n = strcspn(p, ",; \t");
        if (n != 4 || strncasecmp(p, "gzip", 4) != 0) continue;
        const char *q = p + n + strspn(p + n, " \t;");
        return strncasecmp(q, "q=", 2) != 0 || strtod(q + 2, NULL) > 0;
    }
    return false;
}

/* the token came in the Authorization header; a cookie carries it from now on (an EventSource
 * cannot set headers) */
enum MHD_Result bt_web_send_login(const bt_web *w, struct MHD_Connection *c) {
    static const char body[] = "{\"ok\":true}";
    char cookie[128];
    struct MHD_Response *r = MHD_create_response_from_buffer(sizeof body - 1, (void *)(size_t)body,
                                                             MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    snprintf(cookie, sizeof cookie, "bitrain_%d=%s; Path=/; HttpOnly; SameSite=Strict", w->port,
             w->token);
    MHD_add_response_header(r, "Set-Cookie", cookie);
    MHD_add_response_header(r, "Content-Type", "application/json");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    return bt_web_send_response(c, 200, r);
}
