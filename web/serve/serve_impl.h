/* serve_impl.h - private to web/serve: the server's state and its replies. */
#ifndef BT_WEB_SERVE_SERVE_IMPL_H
#define BT_WEB_SERVE_SERVE_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine/base/text.h"
#include "web/http/http_server.h"
#include "web/serve/serve.h"

enum { BT_REQUEST_ID_HEX = 16 };

struct bt_reply {
    bt_serve *server;
    struct MHD_Connection *conn; /* NULL: the connection no longer uses the reply */
    void *work;
    int status; /* 0: nothing was sent yet */
    char type[40], id[BT_REQUEST_ID_HEX + 1];
    bool stream, ended, suspended, told_gone;
    bt_text out; /* bytes not sent yet; in a stream, those after `sent` */
    size_t sent;
    bt_reply *next, *prev;
};

struct bt_serve {
    bt_serve_cfg cfg;
    char host[256], allow[1024], origins[1024], token[BT_SERVE_KEY_MAX + 1];
    int port, listen_fd;
    struct MHD_Daemon *daemon;
    bt_links links;
    pthread_t watcher;
    atomic_bool stop;     /* stops the watcher thread */
    atomic_bool stopping; /* new requests are refused */
    pthread_mutex_t lock; /* protects the replies and their fields */
    bt_reply *replies;
    int n_replies;
};

/* reply.c */
bt_reply *bt_reply_open(bt_serve *s,
                        struct MHD_Connection *c); /* NULL: out of memory, or too many replies */
/* Handler of the reply's connection; called again each time the connection is resumed. */
enum MHD_Result bt_reply_answer(bt_reply *r);
void bt_reply_close(bt_reply *r); /* called when the connection of the reply ends */
/* Cancels replies whose client disconnected while the connection was suspended. */
void bt_reply_find_disconnected(bt_serve *s);
/* Writes {"error": ...}. */
void bt_serve_error_text(bt_text *out, const bt_serve_error *e);

/* serve_headers.c. Headers of every response in addition to those of the guards. */
enum { BT_SERVE_HEADERS = 10 };
void bt_serve_request_id(char id[BT_REQUEST_ID_HEX + 1]);
/* Returns the request's Origin if the configuration lists it, otherwise NULL; valid as long as the request. */
const char *bt_serve_allowed_origin(const bt_serve *s, struct MHD_Connection *c);
/* Writes `own` (at most 4 headers), the request id, and headers for a listed web page; terminates the list. */
void bt_serve_headers(const bt_serve *s, struct MHD_Connection *c, const char *id,
                      const bt_header *own, bt_header out[BT_SERVE_HEADERS]);
enum MHD_Result bt_serve_preflight(const bt_serve *s, struct MHD_Connection *c);
/* BT_ARG: an entry is not an origin. */
bt_code bt_serve_take_origins(bt_serve *s, const char *list, bt_err *err) BT_MUST_CHECK;

extern const bt_asset bt_chat_assets[];
extern const size_t bt_chat_assets_n;

#endif
