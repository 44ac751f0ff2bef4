/* serve_headers.c - request ids, and the CORS headers for web pages that the configuration lists. */
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "engine/base/clock.h"
#include "web/serve/serve_impl.h"

void bt_serve_request_id(char id[BT_REQUEST_ID_HEX + 1]) {
    uint64_t bits = 0;
    if (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) bits = (uint64_t)bt_now_ns();
    snprintf(id, BT_REQUEST_ID_HEX + 1, "%016llx", (unsigned long long)bits);
}

const char *bt_serve_allowed_origin(const bt_serve *s, struct MHD_Connection *c) {
    const char *origin = bt_http_header(c, "Origin");
    if (!origin || !*origin) return NULL;
    for (const char *p = s->origins; *p;) {
        const size_t n = strcspn(p, ",");
        if ((n == 1 && *p == '*') || (strlen(origin) == n && strncmp(origin, p, n) == 0))
            return origin;
        p += n + (p[n] == ',');
    }
    return NULL;
}

void bt_serve_headers(const bt_serve *s, struct MHD_Connection *c, const char *id,
                      const bt_header *own, bt_header out[BT_SERVE_HEADERS]) {
    const char *origin = bt_serve_allowed_origin(s, c);
    size_t n = 0;
    for (; own->name; own++) out[n++] = *own;
    out[n++] = (bt_header){"x-request-id", id};
    out[n++] = (bt_header){"Access-Control-Allow-Origin", origin};
    out[n++] = (bt_header){"Access-Control-Expose-Headers", origin ? "x-request-id" : NULL};
    out[n++] = (bt_header){"Vary", origin ? "Origin" : NULL};
    out[n] = (bt_header){NULL, NULL};
}

enum MHD_Result bt_serve_preflight(const bt_serve *s, struct MHD_Connection *c) {
    const char *asked = bt_http_header(c, "Access-Control-Request-Headers");
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(size_t) "",
                                                             MHD_RESPMEM_PERSISTENT);
    if (!r) return MHD_NO;
    return bt_http_send(
        c, 204, r,
        (const bt_header[]){{"Access-Control-Allow-Origin", bt_serve_allowed_origin(s, c)},
                            {"Access-Control-Allow-Methods", "GET, HEAD, POST"},
                            {"Access-Control-Allow-Headers", asked},
                            {"Access-Control-Max-Age", "600"},
                            {"Vary", "Origin, Access-Control-Request-Headers"},
                            {NULL, NULL}});
}

/* Accepts "http://host" and "https://host:port". */
static bool is_origin(const char *p, size_t n) {
    const size_t scheme = n > 7 && strncmp(p, "http://", 7) == 0    ? 7
                          : n > 8 && strncmp(p, "https://", 8) == 0 ? 8
                                                                    : 0;
    if (!scheme) return n == 1 && *p == '*';
    for (size_t i = scheme; i < n; i++)
        if (p[i] <= ' ' || p[i] > '~' || strchr("/?#@", p[i])) return false;
    return true;
}

bt_code bt_serve_take_origins(bt_serve *s, const char *list, bt_err *err) {
    if (!list) return BT_OK;
    if (strlen(list) >= sizeof s->origins)
        return bt_fail(err, BT_ARG, "the list of allowed origins has more than %zu characters",
                       sizeof s->origins - 1);
    strcpy(s->origins, list);
    for (const char *p = list; *p;) {
        const size_t n = strcspn(p, ",");
        if (!is_origin(p, n))
            return bt_fail(
                err, BT_ARG,
                "'%.*s' is not an origin: write scheme, host and port without a path, as "
                "http://localhost:3000",
                (int)n, p);
        p += n + (p[n] == ',');
    }
    return BT_OK;
}
