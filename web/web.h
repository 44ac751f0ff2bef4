/* web.h - the browser dashboard's server: a read-only viewer of the metrics database on loopback.
 *
 * Order:    start -> wait for a stop request of the caller -> stop.
 * Safe by default: loopback only; always a random token (in the URL fragment, exchanged at /api/v1/login for a cookie);
 *           allow-lists of Host and Origin; strict content policy; GET and HEAD only unless `control`; assets from a
 *           compiled-in table, so that no client text becomes a path; a deadline for every request; a limit on
 *           connections.
 * Threads:  start and stop from one thread. Internally an epoll thread handles requests and owns the database
 *           connection; a publisher thread watches the database and resumes event streams.
 * Errors:   BT_BUSY if the port is in use (the message contains the remedy). */
#ifndef BT_WEB_WEB_H
#define BT_WEB_WEB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_web bt_web;

typedef struct bt_web_cfg {
    const char *store; /* database file */
    const char *host;  /* address to bind, "127.0.0.1" */
    int port;          /* 0: any free port */
    /* path of a Unix socket (mode 0600, no token required) instead of host and port, or "" */
    const char *socket;
    bool control; /* permits POST /api/v1/control */
    /* permits GET /api/v1/query: read-only SQL, executed by this program (bitrain) in a separate process with limits of
     * time and memory. NULL: refused */
    const char *query_program;
    /* restarts an ended run, detached (requires control); NULL: not available */
    bt_code (*resume)(void *ctx, const char *run, bt_err *err);
    void *resume_ctx;
    /* removes an ended run's records, and its checkpoints if requested (requires control). reply receives a summary;
     * ctx is resume_ctx. NULL: not available */
    bt_code (*remove)(void *ctx, const char *run, bool checkpoints, char *reply, size_t size,
                      bt_err *err);
    /* starts a run, detached, with n arguments of `bitrain train` (requires control). name (BT_NAME_MAX bytes): the
     * requested name, or "", which is replaced by a generated one; ctx is resume_ctx. NULL: not available */
    bt_code (*start)(void *ctx, int n, const char *const *words, char *name, bt_err *err);
    const char *allow_hosts; /* additional Host names, separated by ',', or "" */
    const char *token;       /* 32 hexadecimal digits, or "" to generate one */
    int64_t heartbeat_ns;    /* interval of keep-alives in an idle event stream; 0: 15 s */
    int64_t deadline_ns;     /* time from the first byte of a request to its end; 0: 5 s */
} bt_web_cfg;

bt_code bt_web_start(bt_web **out, const bt_web_cfg *cfg, bt_err *err) BT_MUST_CHECK;
int bt_web_port(const bt_web *w);
const char *bt_web_token(const bt_web *w); /* 32 hexadecimal digits */
void bt_web_stop(bt_web *w);               /* accepts NULL */

#endif
