/* event_streams.c - server-sent events: streams that are suspended until a commit, and the publisher thread, which
 * resumes them and closes connections whose requests exceed their deadline. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "web/server/server_impl.h"

enum { MAX_STREAMS = 32, WATCH_MS = 25, TICK_MS = 100 };

static ssize_t read_event_stream(void *ctx, uint64_t pos, char *buf, size_t max) {
    stream *s = ctx;
    bt_web *w = s->web;
    (void)pos;
    if (atomic_load(&w->stop)) return MHD_CONTENT_READER_END_OF_STREAM;
    while (s->sent == s->out.len) {
        bt_err err = BT_ERR_INIT;
        int64_t now = bt_now_ns();
        unsigned long long wakes = atomic_load(&w->wakes);
        bt_text_clear(&s->out);
        s->sent = 0;
        bt_api_refresh(w->api);
        /* a missing file may be about to be replaced, so there is no event */
        if (bt_api_db(w->api, &err) &&
            bt_stream_since(w->api, s->run, &s->cursor, &s->out, &err) != BT_OK)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (s->out.len == 0 && now - s->last_ns >= w->cfg.heartbeat_ns)
            bt_text_put(&s->out, ": hb\n\n");
        if (s->out.len == 0) {
            pthread_mutex_lock(&w->lock);
            s->suspended = wakes == atomic_load(&w->wakes);
            if (s->suspended) MHD_suspend_connection(s->conn);
            pthread_mutex_unlock(&w->lock);
            if (s->suspended) return 0;
            continue;
        }
        s->last_ns = now;
    }
    size_t n = s->out.len - s->sent < max ? s->out.len - s->sent : max;
    memcpy(buf, s->out.data + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

static void free_event_stream(void *ctx) {
    stream *s = ctx;
    bt_web *w = s->web;
    pthread_mutex_lock(&w->lock);
    for (stream **p = &w->streams; *p; p = &(*p)->next) {
        if (*p == s) {
            *p = s->next;
            w->n_streams--;
            break;
        }
    }
    pthread_mutex_unlock(&w->lock);
    bt_text_release(&s->out);
    free(s);
}

enum MHD_Result bt_web_open_stream(bt_web *w, struct MHD_Connection *c, const char *wanted,
                                   const char *last_id) {
    bt_err err = BT_ERR_INIT;
    char run[BT_NAME_MAX];
    bt_api_refresh(w->api);
    bt_db *db = bt_api_db(w->api, &err);
    if (!db || bt_db_run(db, wanted, run, &err) != BT_OK)
        return bt_web_send_error(c, bt_status_of(err.code), "run_not_found", err.msg,
                                 "see the list of all runs");
    if (w->n_streams >= MAX_STREAMS)
        return bt_web_send_error(c, 503, "too_many_streams", "too many event streams are open",
                                 "close a page and try again");
    stream *s = calloc(1, sizeof *s);
    if (!s) return MHD_NO;
    s->web = w;
    s->conn = c;
    s->last_ns = bt_now_ns();
    snprintf(s->run, sizeof s->run, "%s", run);
    bt_cursor_parse(&s->cursor, last_id);
    bt_text_init(&s->out);
    bt_text_put(&s->out, "retry: 2000\n\n");
    struct MHD_Response *r = MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, 16384, read_event_stream, s, free_event_stream);
    if (!r) {
        bt_text_release(&s->out);
        free(s);
        return MHD_NO;
    }
    pthread_mutex_lock(&w->lock);
    s->next = w->streams;
    w->streams = s;
    w->n_streams++;
    pthread_mutex_unlock(&w->lock);
    bt_links_exempt(&w->links, bt_http_link(c));
    return bt_http_send(c, 200, r, bt_http_events);
}

void bt_web_wake_streams(bt_web *w, bool all) {
    int64_t now = bt_now_ns();
    pthread_mutex_lock(&w->lock);
    if (all) atomic_fetch_add(&w->wakes, 1);
    for (stream *s = w->streams; s; s = s->next) {
        if (s->suspended && (all || now - s->last_ns >= w->cfg.heartbeat_ns)) {
            s->suspended = false;
            MHD_resume_connection(s->conn);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

void *bt_web_publish(void *ctx) {
    bt_web *w = ctx;
    bt_db *db = NULL;
    int64_t seen = -1, woken_ns = 0;
    bool pending = false;
    while (!atomic_load(&w->stop)) {
        bt_err err = BT_ERR_INIT;
        const bool changed = db && bt_db_moved(db);
        if (changed) {
            bt_db_close(db);
            db = NULL;
        }
        if (!db && bt_db_open(&db, w->store, &err) != BT_OK) db = NULL;
        int64_t version = db ? bt_db_version(db) : -1, now = bt_now_ns();
        pending |= version != seen || changed;
        seen = version;
        /* limits the rate of events for a run of 1000 steps per second */
        if (pending && now - woken_ns >= (int64_t)TICK_MS * 1000000) {
            bt_web_wake_streams(w, true);
            woken_ns = now;
            pending = false;
        } else {
            bt_web_wake_streams(w, false);
        }
        bt_links_cut(&w->links, w->cfg.deadline_ns, BT_HTTP_CROWD);
        bt_sleep_ns((int64_t)WATCH_MS * 1000000);
    }
    bt_db_close(db);
    return NULL;
}
