/* serve.h - a model's HTTP server: connections, guards and limits are here; what requests mean and
 * who answers them is the source's, which the program gives (this folder knows no model).
 *
 *     GET  /, /assets/...        the chat page
 *     GET  /healthz, /health     "ok" as text and as JSON, without the token
 *     OPTIONS                    preflights of the web pages in allow_origins
 *     GET  /api/v1/login         the page exchanges the token for a cookie
 *     GET, POST  /v1/...         the source's
 *
 * A request is answered by a bt_reply, from any thread and as late as it takes, at once or as a
 * stream; its connection sleeps meanwhile.
 * Guards are the dashboard's: Host and Origin against a list, a token, deadlines of requests, limits
 * on headers, bodies and connections. Errors have OpenAI's form.
 * Threads: start and stop by one thread; the source's functions are called by the server's. */
#ifndef BT_WEB_SERVE_SERVE_H
#define BT_WEB_SERVE_SERVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_serve bt_serve;
typedef struct bt_reply bt_reply; /* to one request */

typedef struct bt_serve_source {
    void *ctx;
    /* A request with a valid token. Replies now or later, by one bt_reply_send or by any number of
     * bt_reply_put, then in any case one bt_reply_end. body is valid during the call. */
    void (*ask)(void *ctx, bt_reply *r, const char *method, const char *path, const char *body,
                size_t n);
    /* The client of the request with this work (bt_reply_set) has disconnected. Called under a lock, never after
     * bt_reply_end, so it may only record this. bt_reply_end must still be called. */
    void (*gone)(void *ctx, void *work);
} bt_serve_source;

enum { BT_SERVE_KEY_MIN = 16, BT_SERVE_KEY_MAX = 128 };

/* Content of an error response, in OpenAI's form; texts are borrowed during the call. */
typedef struct bt_serve_error {
    const char *type;    /* "invalid_request_error" */
    const char *code;    /* "context_length_exceeded"; NULL: null */
    const char *param;   /* key of the request; NULL or "": null */
    const char *message; /* for people */
} bt_serve_error;

typedef struct bt_serve_cfg { /* texts are copied */
    const char *host;
    int port;                /* 0: any free one */
    const char *allow_hosts; /* further names, separated by commas; NULL: none */
    /* Origins of web pages that may use the server ("http://localhost:3000"), separated by commas, or
     * "*"; NULL: none. */
    const char *allow_origins;
    /* BT_SERVE_KEY_MIN to BT_SERVE_KEY_MAX visible ASCII characters without quotes, commas, semicolons and backslashes;
     * NULL or "": 32 random hex digits */
    const char *token;
    bool open;           /* no token is required */
    int max_replies;     /* maximum number of unfinished replies; further requests receive 429 */
    size_t max_body;     /* bytes of a request */
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
/* the source's own, NULL until set */
void bt_reply_set(bt_reply *r, void *work);
/* the whole answer; bt_reply_end follows. type NULL: JSON */
void bt_reply_send(bt_reply *r, int status, const char *type, const char *body, size_t n);
/* an error in OpenAI's form: {"error": {"message", "type", "param", "code"}} */
void bt_reply_error(bt_reply *r, int status, const bt_serve_error *e);
/* 16 random hex digits, which the client receives as the header x-request-id */
const char *bt_reply_id(const bt_reply *r);
/* a piece of an answer that is a stream of server-sent events, with status 200 */
void bt_reply_put(bt_reply *r, const char *data, size_t n);
/* The last call: the reply no longer belongs to the source. */
void bt_reply_end(bt_reply *r);

#endif
