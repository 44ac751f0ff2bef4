/* answer_thread.c - computes slow responses in separate threads; their connections are suspended, and the server's
 * thread serves other connections meanwhile. */
#include <stdlib.h>
#include <string.h>

#include "web/server/server_impl.h"

enum { MAX_ANSWER_THREADS = 4 };

struct bt_answer_thread {
    bt_web *web;
    struct MHD_Connection *conn;
    const bt_route *route;
    bt_req req; /* only the arguments of the request; its other fields belong to the connection */
    bt_answer answer;
    pthread_t thread;
    bool done; /* requires the server's lock */
};

static void *compute_answer(void *ctx) {
    bt_answer_thread *p = ctx;
    bt_web *w = p->web;
    bt_web_make_answer(w, p->route, &p->req, "", &p->answer);
    pthread_mutex_lock(&w->lock);
    p->done = true;
    w->n_answer_threads--;
    MHD_resume_connection(p->conn);
    pthread_cond_broadcast(&w->answer_thread_done);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static enum MHD_Result refuse_busy(struct MHD_Connection *c) {
    return bt_web_send_error(c, 503, "busy", "four such questions are being answered already",
                             "try again in two seconds");
}

enum MHD_Result bt_web_answer_in_thread(bt_web *w, struct MHD_Connection *c, const bt_route *route,
                                        const bt_req *q, bt_answer_thread **out) {
    pthread_mutex_lock(&w->lock);
    bool room = w->n_answer_threads < MAX_ANSWER_THREADS && !atomic_load(&w->stop);
    pthread_mutex_unlock(&w->lock);
    if (!room) return refuse_busy(c);
    bt_answer_thread *p = calloc(1, sizeof *p);
    if (!p) return MHD_NO;
    p->web = w;
    p->conn = c;
    p->route = route;
    p->req.n_args = q->n_args;
    memcpy(p->req.arg, q->arg, sizeof p->req.arg);
    bt_text_init(&p->answer.body);
    pthread_mutex_lock(&w->lock);
    MHD_suspend_connection(c);
    w->n_answer_threads++;
    bool started = pthread_create(&p->thread, NULL, compute_answer, p) == 0;
    if (!started) {
        w->n_answer_threads--;
        MHD_resume_connection(c);
    }
    pthread_mutex_unlock(&w->lock);
    if (!started) {
        free(p);
        return MHD_NO;
    }
    *out = p;
    return MHD_YES;
}

/* Called again when the connection has been resumed. */
enum MHD_Result bt_web_send_threaded(bt_answer_thread *p) {
    pthread_mutex_lock(&p->web->lock);
    bool done = p->done;
    pthread_mutex_unlock(&p->web->lock);
    return done ? bt_web_send_answer(p->conn, &p->answer) : MHD_YES;
}

void bt_web_answer_thread_free(bt_answer_thread *p) {
    if (!p) return;
    pthread_join(p->thread, NULL);
    bt_text_release(&p->answer.body);
    free(p);
}

void bt_web_wait_answer_threads(bt_web *w) {
    pthread_mutex_lock(&w->lock);
    while (w->n_answer_threads > 0) pthread_cond_wait(&w->answer_thread_done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
