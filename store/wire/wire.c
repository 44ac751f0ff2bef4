/* wire.c - the rank's end: a sink that fills a queue, and a thread that sends the queue and receives control verbs. */
#include "store/wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/wake_fd.h"
#include "store/record/ring.h"
#include "store/record/wire_frame.h"

enum { QUEUE_BYTES = 32 << 20, SEND_BYTES = 1 << 20 };
static const int64_t CLOSE_NS = 5000000000;

struct bt_wire {
    int fd, wake_fd;
    uint32_t attempt;
    bt_wire_handlers handlers;
    bt_queue q;
    bt_ring *ring; /* NULL: records are not kept */
    bt_sink sink;
    pthread_t thread;
    bool running;
    /* used only by the thread that sends */
    bt_record *batch, *current; /* taken from the queue; being sent */
    bt_frame head;              /* head of `current` */
    size_t sent;                /* bytes of head and payload of `current` */
    unsigned char in[4 * (sizeof(bt_control_frame) + BT_PROMPT_MAX)];
    size_t in_n;
};

bt_code bt_wire_address(struct sockaddr_un *out, const char *socket_path, bt_err *err) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    size_t n = strlen(socket_path);
    if (n == 0 || n >= sizeof out->sun_path)
        return bt_fail(
            err, BT_ARG,
            "socket path '%.120s' has %zu bytes, at most %zu are possible (set a shorter TMPDIR)",
            socket_path, n, sizeof out->sun_path - 1);
    memcpy(out->sun_path, socket_path, n + 1);
    return BT_OK;
}

/* Returns 1: more to send, 0: all was sent, -1: the peer has closed the connection. */
static int send_queued_frames(bt_wire *w) {
    for (;;) {
        if (!w->current) {
            if (!w->batch) w->batch = bt_queue_take(&w->q, SEND_BYTES);
            if (!w->batch) return 0;
            w->current = w->batch;
            w->head = (bt_frame){BT_FRAME_MAGIC, w->attempt, w->current->head};
            w->sent = 0;
        }
        size_t total = sizeof w->head + w->current->head.bytes;
        bool in_head = w->sent < sizeof w->head;
        const unsigned char *from = in_head ? (const unsigned char *)&w->head + w->sent
                                            : w->current->data + (w->sent - sizeof w->head);
        size_t n = in_head ? sizeof w->head - w->sent : total - w->sent;
        /* A record above this size is an error. */
        if (w->current->head.bytes > BT_FRAME_MAX)
            w->sent = total;
        else {
            ssize_t done = send(w->fd, from, n,
                                MSG_DONTWAIT | MSG_NOSIGNAL |
                                    (in_head && w->current->head.bytes ? MSG_MORE : 0));
            if (done < 0 && errno == EINTR) continue;
            if (done < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 1 : -1;
            w->sent += (size_t)done;
        }
        if (w->sent < total) continue;
        bt_record *next = w->current->next;
        free(w->current);
        w->batch = next;
        w->current = NULL;
        if (!next) bt_queue_done(&w->q);
    }
}

static bool is_valid_control_frame(const bt_control_frame *f) {
    return f->frame.magic == BT_FRAME_MAGIC && f->frame.head.kind == BT_FRAME_CONTROL &&
           f->text_bytes <= BT_PROMPT_MAX &&
           f->frame.head.bytes == sizeof *f - sizeof f->frame + f->text_bytes;
}

static void handle_control_frame(bt_wire *w, const bt_control_frame *f, const unsigned char *text) {
    char words[BT_PROMPT_MAX + 1] = "";
    const bool known = f->verb < BT_VERB_COUNT && bt_verbs[f->verb].ranks && isfinite(f->value);
    if (!known || f->frame.attempt != w->attempt || !w->handlers.control) return;
    memcpy(words, text, f->text_bytes);
    w->handlers.control(w->handlers.ctx, &(bt_ctl){(bt_verb)f->verb, f->value, words});
}

/* Returns false if the peer disconnected or violated the protocol. */
static bool receive_control(bt_wire *w) {
    ssize_t n = recv(w->fd, w->in + w->in_n, sizeof w->in - w->in_n, MSG_DONTWAIT);
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (n == 0) return false;
    w->in_n += (size_t)n;
    size_t at = 0;
    while (w->in_n - at >= sizeof(bt_control_frame)) {
        bt_control_frame f;
        memcpy(&f, w->in + at, sizeof f);
        if (!is_valid_control_frame(&f)) return false;
        if (w->in_n - at < sizeof f + f.text_bytes) break;
        handle_control_frame(w, &f, w->in + at + sizeof f);
        at += sizeof f + f.text_bytes;
    }
    memmove(w->in, w->in + at, w->in_n - at);
    w->in_n -= at;
    return true;
}

static void *wire_loop(void *arg) {
    bt_wire *w = arg;
    bool alive = true;
    int64_t give_up = 0;
    while (alive) {
        pthread_mutex_lock(&w->q.mu);
        w->q.sleeping = true; /* a push after this wakes the poll below */
        bool stop = w->q.stop;
        pthread_mutex_unlock(&w->q.mu);
        if (stop && !give_up) give_up = bt_now_ns() + CLOSE_NS;
        int more = send_queued_frames(w);
        if (more < 0) alive = false;
        if (!alive || (stop && (more == 0 || bt_now_ns() > give_up))) break;
        struct pollfd p[2] = {{w->fd, (short)(POLLIN | (more ? POLLOUT : 0)), 0},
                              {w->wake_fd, POLLIN, 0}};
        if (poll(p, 2, stop ? 100 : -1) < 0 && errno != EINTR) break;
        if (p[1].revents & POLLIN && !bt_wake_fd_clear(w->wake_fd)) break;
        if (p[0].revents & (POLLIN | POLLHUP | POLLERR)) alive = receive_control(w);
    }
    if (!alive) {
        bt_queue_close(&w->q);
        if (w->handlers.on_lost) w->handlers.on_lost(w->handlers.ctx);
    }
    return NULL;
}

static bt_code send_hello(bt_wire *w, const char *socket_path, bt_err *err) {
    bt_hello_frame f = {bt_frame_of(BT_FRAME_HELLO, w->attempt, sizeof f - sizeof f.frame),
                        bt_record_mark()};
    if (send(w->fd, &f, sizeof f, MSG_NOSIGNAL) != (ssize_t)sizeof f)
        return bt_fail_errno(err, BT_IO, errno, "cannot greet the supervisor at '%s'", socket_path);
    return BT_OK;
}

static bt_code connect_wire(bt_wire *w, const char *socket_path, bt_err *err) {
    struct sockaddr_un a;
    BT_TRY(bt_wire_address(&a, socket_path, err));
    w->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot make a socket");
    if (connect(w->fd, (const struct sockaddr *)&a, sizeof a) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot reach the supervisor at '%s'", socket_path);
    return send_hello(w, socket_path, err);
}

static bt_code start_wire_thread(bt_wire *w, bt_err *err) {
    sigset_t all, old;
    w->wake_fd = bt_wake_fd_create();
    if (w->wake_fd < 0 || !bt_queue_init(&w->q, QUEUE_BYTES))
        return bt_fail(err, BT_NOMEM, "cannot send metrics: no descriptor or memory left");
    w->q.wake_fd = w->wake_fd;
    bt_queue_sink(&w->q, &w->sink);
    sigfillset(&all); /* only the training thread handles signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&w->thread, NULL, wire_loop, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        return bt_fail_errno(err, BT_NOMEM, rc, "cannot start the thread that sends metrics");
    w->running = true;
    return BT_OK;
}

bt_code bt_wire_connect(bt_wire **out, const char *socket_path, int attempt,
                        const bt_wire_handlers *h, bt_err *err) {
    *out = NULL;
    bt_wire *w = calloc(1, sizeof *w);
    if (!w) return bt_fail(err, BT_NOMEM, "cannot send metrics: out of memory");
    w->fd = w->wake_fd = -1;
    w->attempt = (uint32_t)attempt;
    if (h) w->handlers = *h;
    bt_code code = connect_wire(w, socket_path, err);
    if (code == BT_OK) code = start_wire_thread(w, err);
    if (code != BT_OK) {
        bt_wire_close(w);
        return code;
    }
    *out = w;
    return BT_OK;
}

bt_code bt_wire_keep(bt_wire *w, const char *path, bt_err *err) {
    BT_TRY(bt_ring_create(&w->ring, path, (int)w->attempt, BT_RING_BYTES, err));
    pthread_mutex_lock(&w->q.mu);
    w->q.ring = w->ring;
    pthread_mutex_unlock(&w->q.mu);
    return BT_OK;
}

const bt_sink *bt_wire_sink(bt_wire *w) { return &w->sink; }

void bt_wire_close(bt_wire *w) {
    if (!w) return;
    if (w->running) {
        bt_queue_set(&w->q, &w->q.stop, true);
        pthread_join(w->thread, NULL);
        bt_frame bye = bt_frame_of(BT_FRAME_BYE, w->attempt, 0);
        ssize_t sent = w->current ? 0 : send(w->fd, &bye, sizeof bye, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* not reported: the supervisor detects the end of the connection */
    }
    bt_records_free(w->batch);
    if (w->q.max_bytes) bt_queue_release(&w->q);
    bt_ring_close(w->ring);
    if (w->fd >= 0) close(w->fd);
    if (w->wake_fd >= 0) close(w->wake_fd);
    free(w);
}
