/* reply.c - responses produced by another thread; the connection is suspended while there is nothing to send. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "web/serve/serve_impl.h"

/* maximum number of bytes buffered for a slow client; beyond it the source is notified to stop */
enum { UNREAD_MAX = 4 << 20 };

static void lock_reply(const bt_reply *r) { pthread_mutex_lock(&r->server->lock); }
static void unlock_reply(const bt_reply *r) { pthread_mutex_unlock(&r->server->lock); }

bt_reply *bt_reply_open(bt_serve *s, struct MHD_Connection *c) {
    bt_reply *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->server = s;
    r->conn = c;
    bt_serve_request_id(r->id);
    bt_text_init(&r->out);
    pthread_mutex_lock(&s->lock);
    const bool room = s->n_replies < s->cfg.max_replies;
    if (room) {
        r->next = s->replies;
        if (s->replies) s->replies->prev = r;
        s->replies = r;
        s->n_replies++;
    }
    pthread_mutex_unlock(&s->lock);
    if (room) return r;
    free(r);
    return NULL;
}

/* Requires the lock; frees the reply when neither side uses it any longer. */
static bool release_reply_side(bt_reply *r) {
    if (r->conn || !r->ended) return false;
    bt_serve *s = r->server;
    if (r->prev)
        r->prev->next = r->next;
    else
        s->replies = r->next;
    if (r->next) r->next->prev = r->prev;
    s->n_replies--;
    return true;
}

static void destroy_reply(bt_reply *r) {
    bt_text_release(&r->out);
    free(r);
}

/* Requires the lock. */
static void resume_connection(bt_reply *r) {
    if (!r->suspended) return;
    r->suspended = false;
    MHD_resume_connection(r->conn);
}

void bt_reply_set(bt_reply *r, void *work) {
    lock_reply(r);
    r->work = work;
    unlock_reply(r);
}

void bt_reply_send(bt_reply *r, int status, const char *type, const char *body, size_t n) {
    lock_reply(r);
    if (r->status == 0) {
        r->status = status;
        snprintf(r->type, sizeof r->type, "%s", type ? type : "application/json");
        bt_text_putn(&r->out, body, n);
    }
    unlock_reply(r);
}

static void put_text_or_null(bt_json *j, const char *key, const char *text) {
    bt_json_str(j, key, text && *text ? text : NULL);
}

void bt_serve_error_text(bt_text *out, const bt_serve_error *e) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_object(&j, "error");
    bt_json_str(&j, "message", e->message);
    bt_json_str(&j, "type", e->type);
    put_text_or_null(&j, "param", e->param);
    put_text_or_null(&j, "code", e->code);
    bt_json_end(&j, '}');
    bt_json_end(&j, '}');
}

void bt_reply_error(bt_reply *r, int status, const bt_serve_error *e) {
    bt_text body;
    bt_text_init(&body);
    bt_serve_error_text(&body, e);
    bt_reply_send(r, status, NULL, bt_text_str(&body), body.len);
    bt_text_release(&body);
}

const char *bt_reply_id(const bt_reply *r) { return r->id; }

void bt_reply_put(bt_reply *r, const char *data, size_t n) {
    lock_reply(r);
    if (r->status == 0) {
        r->status = 200;
        r->stream = true;
    }
    if (r->conn && r->stream) {
        bt_text_putn(&r->out, data, n);
        resume_connection(r);
    }
    unlock_reply(r);
}

void bt_reply_end(bt_reply *r) {
    lock_reply(r);
    r->ended = true;
    resume_connection(r);
    const bool last = release_reply_side(r);
    unlock_reply(r);
    if (last) destroy_reply(r);
}

static ssize_t read_reply_stream(void *ctx, uint64_t pos, char *buf, size_t max) {
    bt_reply *r = ctx;
    (void)pos;
    lock_reply(r);
    size_t n = r->out.len - r->sent;
    if (n > max) n = max;
    if (n) memcpy(buf, r->out.data + r->sent, n);
    r->sent += n;
    if (r->sent == r->out.len) {
        bt_text_clear(&r->out);
        r->sent = 0;
    }
    ssize_t said = (ssize_t)n;
    if (r->out.failed)
        said = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (n == 0 && r->ended)
        said = MHD_CONTENT_READER_END_OF_STREAM;
    else if (n == 0) {
        r->suspended = true;
        MHD_suspend_connection(r->conn);
    }
    unlock_reply(r);
    return said;
}

static enum MHD_Result send_whole_reply(bt_reply *r) {
    struct MHD_Response *response = MHD_create_response_from_buffer(
        r->out.len, (void *)(size_t)bt_text_str(&r->out), MHD_RESPMEM_MUST_COPY);
    if (!response) return MHD_NO;
    bt_header headers[BT_SERVE_HEADERS];
    bt_serve_headers(
        r->server, r->conn, r->id,
        (const bt_header[]){{"Content-Type", r->type}, {"Cache-Control", "no-store"}, {NULL, NULL}},
        headers);
    return bt_http_send(r->conn, r->status, response, headers);
}

static enum MHD_Result send_reply_stream(bt_reply *r) {
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384,
                                                                      read_reply_stream, r, NULL);
    if (!response) return MHD_NO;
    bt_header headers[BT_SERVE_HEADERS];
    bt_serve_headers(r->server, r->conn, r->id, bt_http_events, headers);
    return bt_http_send(r->conn, 200, response, headers);
}

enum MHD_Result bt_reply_answer(bt_reply *r) {
    lock_reply(r);
    const bool whole = r->ended && !r->stream, stream = r->stream;
    if (!whole && !stream) {
        r->suspended = true;
        MHD_suspend_connection(r->conn);
    }
    unlock_reply(r);
    if (whole) return send_whole_reply(r);
    return stream ? send_reply_stream(r) : MHD_YES;
}

/* Called with the lock held, so that the source cannot end the reply at the same time. */
static void notify_source_of_disconnect(bt_reply *r) {
    if (r->ended || r->told_gone || !r->work) return;
    r->told_gone = true;
    r->server->cfg.source.gone(r->server->cfg.source.ctx, r->work);
}

void bt_reply_close(bt_reply *r) {
    lock_reply(r);
    notify_source_of_disconnect(r);
    r->conn = NULL;
    const bool last = release_reply_side(r);
    unlock_reply(r);
    if (last) destroy_reply(r);
}

static bool client_stopped_reading(const bt_reply *r) {
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(r->conn,
                                                                MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd p = {.fd = i ? i->connect_fd : -1, .events = POLLRDHUP}; /* poll ignores -1 */
    if (r->out.len - r->sent > UNREAD_MAX) return true;
    return poll(&p, 1, 0) > 0; /* poll reports only hang-ups and errors */
}

void bt_reply_find_disconnected(bt_serve *s) {
    pthread_mutex_lock(&s->lock);
    for (bt_reply *r = s->replies; r; r = r->next)
        if (r->conn && !r->ended && !r->told_gone && client_stopped_reading(r))
            notify_source_of_disconnect(r);
    pthread_mutex_unlock(&s->lock);
}
