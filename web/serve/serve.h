/* serve.h - a model's HTTP server: connections, guards and limits. The program supplies a source that interprets and
 * answers requests; this folder does not depend on models.
 *
 *     GET  /, /assets/...           the chat page
 *     GET  /healthz, /health        "ok" as text and as JSON, without the token
 *     OPTIONS                       preflight requests of the web pages in allow_origins
 *     GET  /api/v1/login            the page exchanges the token for a cookie
 *     GET, POST  /v1/...            passed to the source
 *
 * A bt_reply is the response to one request. Any thread may complete it at any later time, at once or as a stream; its
 * connection is suspended meanwhile.
 * The guards are those of the dashboard: allow-lists for Host and Origin, a token, deadlines of requests, limits of
 * headers, bodies and connections. Errors have OpenAI's form.
 * Threads: start and stop by one thread; the server's thread calls the source's functions. */
#ifndef BT_WEB_SERVE_SERVE_H
#define BT_WEB_SERVE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_serve bt_serve;
typedef struct bt_reply bt_reply; /* response to one request */

typedef struct bt_serve_source {
    void *ctx;
    /* Receives a request with a valid token. The source replies now or later, by one bt_reply_send or any number of
     * bt_reply_put, and then one bt_reply_end. body is valid during the call. */
    void (*ask)(void *ctx, bt_reply *r, const char *method, const char *path, const char *body,
                size_t n);
    /* The client of the request with this work (bt_reply_set) has disconnected. This function runs with a lock held and
     * never after bt_reply_end, so it may only record the disconnect; the source must still call bt_reply_end. */
    void (*gone)(void *ctx, void *work);
} bt_serve_source;

enum { BT_SERVE_KEY_MIN = 16, BT_SERVE_KEY_MAX = 128 };

/* Content of an error response in OpenAI's form; the texts are borrowed during the call. */
typedef struct bt_serve_error {
    const char *type;    /* "invalid_request_error" */
    const char *code;    /* "context_length_exceeded"; NULL: null */
    const char *param;   /* key of the request; NULL or "": null */
    const char *message; /* for people */
} bt_serve_error;

typedef struct bt_serve_cfg { /* texts are copied */
    const char *host;
    int port;                /* 0: any free port */
    const char *allow_hosts; /* additional host names, separated by commas; NULL: none */
    /* Origins of web pages that may use the server ("http://localhost:3000"), separated by commas, or
     * "*"; NULL: none. */
    const char *allow_origins;
    /* BT_SERVE_KEY_MIN to BT_SERVE_KEY_MAX visible ASCII characters without quotes, commas, semicolons and backslashes;
     * NULL or "": 32 random hex digits */
    const char *token;
    bool open;           /* true: no token is required */
    int max_replies;     /* maximum number of unfinished replies; further requests receive 429 */
    size_t max_body;     /* maximum size of a request */
    int64_t deadline_ns; /* time for a request to arrive; 0: 10 s */
    bt_serve_source source;
} bt_serve_cfg;

bt_code bt_serve_start(bt_serve **out, const bt_serve_cfg *cfg, bt_err *err) BT_MUST_CHECK;
int bt_serve_port(const bt_serve *s);
const char *bt_serve_token(const bt_serve *s);
/* New requests receive 503; replies in progress are sent until the source ends them, for up to a second. The source
 * must end all replies before this returns. Accepts NULL. */
void bt_serve_stop(bt_serve *s);

/* ---- replies: any thread ---- */
/* Attaches the source's own data to the reply, or detaches it (NULL). */
void bt_reply_set(bt_reply *r, void *work);
/* Sends the whole response; bt_reply_end must follow. type NULL: JSON. */
void bt_reply_send(bt_reply *r, int status, const char *type, const char *body, size_t n);
/* Sends an error in OpenAI's form: {"error": {"message", "type", "param", "code"}}. */
void bt_reply_error(bt_reply *r, int status, const bt_serve_error *e);
/* Returns 16 random hexadecimal digits, which the client receives in the header x-request-id. */
const char *bt_reply_id(const bt_reply *r);
/* Appends to a response that is a stream of server-sent events, with status 200. */
void bt_reply_put(bt_reply *r, const char *data, size_t n);
/* The last call: the source may not use the reply afterwards. */
void bt_reply_end(bt_reply *r);

#endif
