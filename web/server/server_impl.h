/* server_impl.h - private to web/server: the server's state, and the functions that its files share. */
#ifndef BT_WEB_SERVER_SERVER_IMPL_H
#define BT_WEB_SERVER_SERVER_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "web/api/api.h"
#include "web/api/cache.h"
#include "web/http/http_server.h"
#include "web/web.h"

typedef struct stream { /* an open event stream */
    bt_web *web;
    struct MHD_Connection *conn;
    char run[BT_NAME_MAX];
    bt_cursor cursor;
    bt_text out; /* bytes not sent yet */
    size_t sent;
    int64_t last_ns; /* time of the last event or heartbeat */
    bool suspended;
    struct stream *next;
} stream;

typedef struct bt_answer_thread
    bt_answer_thread; /* a response that is being computed (answer_thread.c) */

struct bt_web {
    bt_web_cfg cfg;
    char store[1024], host[256], allow[1024], token[BT_TOKEN_HEX + 1], socket[128];
    int port, listen_fd; /* port 0: a Unix socket, which is protected by its mode */
    struct MHD_Daemon *daemon;
    bt_api *api;
    bt_cache *cache;
    pthread_t publisher;
    atomic_bool stop;
    /* counts wake_streams(all): a stream whose data are older than the newest wake must not be suspended */
    atomic_ullong wakes;
    pthread_mutex_t lock; /* protects streams and answer threads */
    stream *streams;
    int n_streams,
        n_answer_threads; /* n_answer_threads: number of threads that compute a response */
    bt_links links;
    pthread_cond_t answer_thread_done;
};

extern const bt_asset bt_assets[]; /* the page, compiled in */
extern const size_t bt_assets_n;

/* responses.c. Calls the handler of the route. A failure also becomes a response, and its code is returned. */
bt_code bt_web_make_answer(bt_web *w, const bt_route *route, const bt_req *q, const char *run,
                           bt_answer *out);
enum MHD_Result bt_web_send_answer(struct MHD_Connection *c, bt_answer *a);
enum MHD_Result bt_web_send_error(struct MHD_Connection *c, int status, const char *code,
                                  const char *message, const char *hint);

/* answer_thread.c. bt_web_answer_in_thread suspends the connection; the caller owns *out, which is NULL if an error was
 * sent. bt_web_send_threaded is called when the connection has been resumed. */
enum MHD_Result bt_web_answer_in_thread(bt_web *w, struct MHD_Connection *c, const bt_route *route,
                                        const bt_req *q, bt_answer_thread **out);
enum MHD_Result bt_web_send_threaded(bt_answer_thread *p);
void bt_web_answer_thread_free(bt_answer_thread *p); /* accepts NULL; joins its thread */
void bt_web_wait_answer_threads(bt_web *w);

/* event_streams.c */
enum MHD_Result bt_web_open_stream(bt_web *w, struct MHD_Connection *c, const char *wanted,
                                   const char *last_id);
void bt_web_wake_streams(
    bt_web *w,
    bool
        all); /* all: there are new events; otherwise resumes only streams whose heartbeat is due */
void *bt_web_publish(void *web); /* body of the publisher thread */

#endif
