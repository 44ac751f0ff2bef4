/* web.h - the browser dashboard's server: a read-only viewer of the metrics database on loopback.
 *
 * Order:    start -> wait for a stop request of the caller -> stop.
 * Safe by default: loopback; a random token always (URL fragment, exchanged at /api/v1/login for a
 *                  cookie); allow-lists of Host
 *           and Origin; strict content policy; GET and HEAD only unless `control`; assets are in
 *           a compiled-in table, no client text ever becomes a path; every request has a
 *           deadline; connections are capped.
 * Threads:  start and stop from one thread. Inside: one epoll thread answers everything and owns
 *           the database connection; one publisher thread watches the database and wakes the event
 *           streams.
 * Errors:   BT_BUSY when the port is taken (the message contains the remedy). */
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
    int port;          /* 0: any free one */
    /* path of a Unix socket (mode 0600, no token needed) instead of host and port, or "" */
    const char *socket;
    bool control; /* allow POST /api/v1/control */
    /* allow GET /api/v1/query: SQL, read-only, by this program (bitrain) in a process of its own
     * with limits of time and memory. NULL: refused */
    const char *query_program;
    /* restarts an ended run, detached (with control); NULL: not available */
    bt_code (*resume)(void *ctx, const char *run, bt_err *err);
    void *resume_ctx;
    /* removes an ended run's records, and its checkpoints if requested (with control); ctx is
     * resume_ctx, reply receives a summary. NULL: not available */
    bt_code (*remove)(void *ctx, const char *run, bool checkpoints, char *reply, size_t size,
                      bt_err *err);
    /* starts a run, detached, with n arguments of `bitrain train` (with control); name
     * (BT_NAME_MAX bytes): the requested name, or "", which then receives a generated one; ctx
     * is resume_ctx. NULL: not available */
    bt_code (*start)(void *ctx, int n, const char *const *words, char *name, bt_err *err);
    const char *allow_hosts; /* further Host names, separated by ',', or "" */
    const char *token;       /* 32 hex digits, or "" to make one */
    int64_t heartbeat_ns;    /* interval of keep-alives in an idle event stream; 0: 15 s */
    int64_t deadline_ns;     /* time from the first byte of a request to its end; 0: 5 s */
} bt_web_cfg;

bt_code bt_web_start(bt_web **out, const bt_web_cfg *cfg, bt_err *err) BT_MUST_CHECK;
int bt_web_port(const bt_web *w);
const char *bt_web_token(const bt_web *w); /* 32 hex digits */
void bt_web_stop(bt_web *w);               /* accepts NULL */

#endif
