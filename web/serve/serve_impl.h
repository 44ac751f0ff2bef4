/* serve_impl.h - private to web/serve: the server's state and its replies. */
#ifndef BT_WEB_SERVE_SERVE_IMPL_H
#define BT_WEB_SERVE_SERVE_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "engine/base/text.h"
#include "web/http/http_server.h"
#include "web/serve/serve.h"

struct bt_reply {
    bt_serve *server;
    struct MHD_Connection *conn; /* NULL: the connection is done with it */
    void *work;
    int status; /* 0: nothing was said yet */
    char type[40];
    bool stream, ended, suspended, told_gone;
    bt_text out; /* not yet sent: of a stream, what is behind `sent` */
    size_t sent;
    bt_reply *next, *prev;
};

struct bt_serve {
    bt_serve_cfg cfg;
    char host[256], allow[1024], token[BT_TOKEN_HEX + 1];
    int port, listen_fd;
    struct MHD_Daemon *daemon;
    bt_links links;
    pthread_t watcher;
    atomic_bool stop;     /* the watcher */
    atomic_bool stopping; /* nothing new */
    pthread_mutex_t lock; /* replies, and all of each */
    bt_reply *replies;
    int n_replies;
};

/* reply.c */
bt_reply *bt_reply_open(bt_serve *s, struct MHD_Connection *c); /* NULL: memory, or too many */
/* the handler of its connection, again after each time it was resumed */
enum MHD_Result bt_reply_answer(bt_reply *r);
void bt_reply_close(bt_reply *r); /* its connection is done with it */
/* tells the source of replies whose client hung up while the connection slept */
void bt_reply_look_for_gone(bt_serve *s);
/* {"error": ...} */
void bt_serve_error_text(bt_text *out, const char *type, const char *message);

extern const bt_asset bt_chat_assets[];
extern const size_t bt_chat_assets_n;

#endif
