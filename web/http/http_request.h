/* http_request.h - parses and validates requests: pure functions over text of limited size (a fuzz target), without
 * sockets, database or allocation.
 *
 * Threads:  no shared state. */
#ifndef BT_WEB_HTTP_HTTP_REQUEST_H
#define BT_WEB_HTTP_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/sink.h"

enum { BT_REQ_ARGS = 24, BT_REQ_VALUE = 2048, BT_TOKEN_HEX = 32 };

typedef struct bt_arg {
    char key[24], value[BT_REQ_VALUE];
} bt_arg;

typedef struct bt_req {
    const char *method, *path; /* path as decoded by the server */
    /* headers; NULL: absent */
    const char *host, *origin, *fetch_site, *cookie, *authorization, *last_event_id, *if_none_match,
        *intent;
    bool gzip_ok; /* the client accepts gzip (Accept-Encoding) */
    bt_arg arg[BT_REQ_ARGS];
    int n_args;
    bool args_overflow; /* more or longer arguments than fit, so the request is refused */
    const char *body;   /* body of a POST, NUL-terminated */
} bt_req;

/* Adds one query argument; sets args_overflow if it does not fit. value may be NULL ("?a"). */
void bt_req_add_arg(bt_req *r, const char *key, const char *value);
/* Returns the first value, or NULL. */
const char *bt_req_arg(const bt_req *r, const char *key);
/* Returns true, with *out unchanged, if the argument is absent; false if it is not a number in range. */
bool bt_req_int(const bt_req *r, const char *key, int64_t lo, int64_t hi, int64_t *out);

/* True if If-None-Match ("*", or a list of tags, including weak ones) contains this quoted tag; false if it is NULL. */
bool bt_req_etag_matches(const char *if_none_match, const char *etag);

/* True if the Host header is localhost, 127.0.0.1, [::1], `bound` or in the comma-separated list `extra`. A port, if
 * present, must equal `port` (0: a Unix socket, to which any local port may be forwarded). */
bool bt_req_host_ok(const char *host, const char *bound, const char *extra, int port);
/* True if Origin is absent, or http(s):// + an allowed host, and the request is not a cross-site fetch. */
bool bt_req_origin_ok(const char *origin, const char *fetch_site, const char *bound,
                      const char *extra, int port);
/* True if "Authorization: Bearer T" or the cookie bitrain_PORT=T has the token; the comparison takes constant time. */
bool bt_req_token_ok(const char *authorization, const char *cookie, const char *token, int port);
/* Compares in constant time. */
bool bt_token_equal(const char *given, size_t n, const char *token);

/* Splits "/api/v1/runs/NAME/VERB" into NAME and VERB ("" if absent); false if the path has another form or NAME is not
 * a valid run name. */
bool bt_req_run_path(const char *path, char run[BT_NAME_MAX], char *verb, size_t verb_size);

#endif
