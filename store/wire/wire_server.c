/* wire_server.c - the supervisor's end: accepts ranks, checks every frame, delivers those of the current attempt.
 * Several attempts may be connected at once; controls are sent to the newest connection of the current attempt. */
#include "store/wire/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/os/poll_set.h"
#include "engine/base/os/process_fd.h"
#include "engine/base/small.h"
#include "store/record/wire_frame.h"

enum { MAX_PEERS = 8, READ_BYTES = 64 << 10, SERVE_BYTES = 4 << 20 };

typedef struct peer {
    int fd; /* -1: unused */
    bool greeted;
    uint32_t attempt;
    bt_frame frame;
    size_t head_n, body_n; /* received bytes of the frame's head, of its payload */
    bt_record *record;     /* incomplete record */
} peer;

struct bt_wire_server {
    int listen_fd, poll_set;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    peer peers[MAX_PEERS];
    int current; /* index of the rank that receives controls, -1: none */
};

static void drop_peer(bt_wire_server *s, int i) {
    peer *p = &s->peers[i];
    if (p->fd >= 0) close(p->fd); /* closing removes a descriptor from the poll set */
    free(p->record);
    *p = (peer){.fd = -1};
    if (s->current == i) s->current = -1;
}

static void accept_peers(bt_wire_server *s) {
    for (;;) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        int at = -1;
        for (int i = 0; i < MAX_PEERS; i++) {
            if (s->peers[i].fd < 0) at = i;
        }
        /* If the table is full, a connection that has not sent HELLO is closed. */
        for (int i = 0; at < 0 && i < MAX_PEERS; i++) {
            if (!s->peers[i].greeted) {
                drop_peer(s, i);
                at = i;
            }
        }
        if (!bt_local_peer_is_ours(fd) || at < 0 || !bt_poll_set_add(s->poll_set, fd, 0))
            close(fd);
        else
            s->peers[at].fd = fd;
    }
}

static bool is_valid_frame(const peer *p, const bt_frame *f) {
    const bt_record_head *h = &f->head;
    if (f->magic != BT_FRAME_MAGIC || h->bytes > BT_FRAME_MAX) return false;
    if (h->kind == BT_FRAME_HELLO)
        return !p->greeted && h->bytes == sizeof(bt_hello_frame) - sizeof(bt_frame);
    if (!p->greeted || f->attempt != p->attempt) return false;
    return h->kind == BT_FRAME_BYE ? h->bytes == 0 : h->kind > 0 && h->kind < BT_REC_COUNT;
}

static bool accept_hello(bt_wire_server *s, int i, int attempt) {
    peer *p = &s->peers[i];
    uint64_t mark;
    memcpy(&mark, p->record->data, sizeof mark);
    if (mark != bt_record_mark()) return false;
    p->greeted = true;
    p->attempt = p->frame.attempt;
    if (p->attempt == (uint32_t)attempt) s->current = i;
    return true;
}

static bool deliver_frame(bt_wire_server *s, int i, int attempt, const bt_wire_into *into) {
    peer *p = &s->peers[i];
    bt_record *r = p->record;
    if (r->head.kind == BT_FRAME_HELLO) return accept_hello(s, i, attempt);
    /* Ignores ranks of an older attempt. */
    if (r->head.kind == BT_FRAME_BYE || p->attempt != (uint32_t)attempt) return true;
    if (!bt_record_deliver(&r->head, r->data, &into->look)) return false;
    if (into->take) {
        p->record = NULL;
        into->take(into->taker, r);
    }
    return true;
}

/* Adds bytes to the peer's incomplete frame; returns false if it violated the protocol. */
static bool feed_peer_bytes(bt_wire_server *s, int i, const unsigned char *data, size_t n,
                            int attempt, const bt_wire_into *into) {
    peer *p = &s->peers[i];
    while (n > 0) {
        if (p->head_n < sizeof p->frame) {
            size_t k = bt_min_size(sizeof p->frame - p->head_n, n);
            memcpy((unsigned char *)&p->frame + p->head_n, data, k);
            p->head_n += k;
            data += k;
            n -= k;
            if (p->head_n < sizeof p->frame) return true;
            if (!is_valid_frame(p, &p->frame)) return false;
            free(p->record);
            p->record = bt_record_empty(&p->frame.head);
            p->body_n = 0;
            if (!p->record) return false;
        }
        size_t k = bt_min_size(p->frame.head.bytes - p->body_n, n);
        memcpy(p->record->data + p->body_n, data, k);
        p->body_n += k;
        data += k;
        n -= k;
        if (p->body_n < p->frame.head.bytes) return true;
        p->head_n = 0;
        if (!deliver_frame(s, i, attempt, into)) return false;
    }
    return true;
}

/* Returns false if the peer disconnected; *broke: it violated the protocol. */
static bool serve_peer(bt_wire_server *s, int i, int attempt, const bt_wire_into *into,
                       bool *broke) {
    unsigned char buf[READ_BYTES];
    for (size_t total = 0; total < SERVE_BYTES;) {
        ssize_t n = recv(s->peers[i].fd, buf, sizeof buf, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
        if (n <= 0) return false;
        if (!feed_peer_bytes(s, i, buf, (size_t)n, attempt, into)) {
            *broke = true;
            return false;
        }
        total += (size_t)n;
    }
    return true;
}

bt_code bt_wire_listen(bt_wire_server **out, const char *socket_path, bt_err *err) {
    struct sockaddr_un a;
    *out = NULL;
    BT_TRY(bt_wire_address(&a, socket_path, err));
    bt_wire_server *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot listen for ranks: out of memory");
    s->current = s->listen_fd = s->poll_set = -1;
    for (int i = 0; i < MAX_PEERS; i++) s->peers[i].fd = -1;
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->poll_set = bt_poll_set_create();
    bool ok = s->listen_fd >= 0 && s->poll_set >= 0 &&
              bind(s->listen_fd, (const struct sockaddr *)&a, sizeof a) == 0;
    if (ok) snprintf(s->path, sizeof s->path, "%s", socket_path);
    /* No client can connect between bind and listen, so the mode is set before the first connection. */
    ok = ok && chmod(socket_path, 0600) == 0 && listen(s->listen_fd, 16) == 0 &&
         bt_poll_set_add(s->poll_set, s->listen_fd, 0);
    if (!ok) {
        int why = errno;
        bt_wire_server_close(s);
        return bt_fail_errno(err, BT_IO, why, "cannot listen for ranks at '%s'", socket_path);
    }
    *out = s;
    return BT_OK;
}

int bt_wire_fd(const bt_wire_server *s) { return s->poll_set; }

bt_code bt_wire_serve(bt_wire_server *s, int attempt, const bt_wire_into *into, bt_err *err) {
    bt_code code = BT_OK;
    accept_peers(s);
    if (s->current >= 0 && s->peers[s->current].attempt != (uint32_t)attempt) s->current = -1;
    for (int i = 0; i < MAX_PEERS; i++) {
        peer *p = &s->peers[i];
        if (p->fd < 0) continue;
        bool broke = false;
        if (p->greeted && p->attempt == (uint32_t)attempt && s->current < 0) s->current = i;
        if (serve_peer(s, i, attempt, into, &broke)) continue;
        if (broke && s->current == i)
            code = bt_fail(
                err, BT_FORMAT,
                "rank 0 of attempt %d sent a frame that makes no sense; its connection was closed",
                attempt);
        drop_peer(s, i);
    }
    return code;
}

bt_code bt_wire_send_control(bt_wire_server *s, const bt_ctl *c, bt_err *err) {
    if (s->current < 0)
        return bt_fail(err, BT_BUSY, "no rank is connected to be told '%s'",
                       bt_verbs[c->verb].word);
    peer *p = &s->peers[s->current];
    const size_t text = c->text ? strnlen(c->text, BT_PROMPT_MAX) : 0;
    const bt_control_frame f = {bt_frame_of(BT_FRAME_CONTROL, p->attempt,
                                            sizeof f - sizeof f.frame + text),
                                (uint32_t)c->verb, (uint32_t)text, c->value};
    unsigned char out[sizeof f + BT_PROMPT_MAX];
    memcpy(out, &f, sizeof f);
    if (text) memcpy(out + sizeof f, c->text, text);
    ssize_t n = send(p->fd, out, sizeof f + text, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n == (ssize_t)(sizeof f + text)) return BT_OK;
    /* disconnects after a partially sent frame, because its rest cannot be sent later */
    if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) drop_peer(s, s->current);
    return bt_fail(err, BT_BUSY, "rank 0 does not listen: '%s' was not delivered",
                   bt_verbs[c->verb].word);
}

bool bt_wire_connected(const bt_wire_server *s) { return s->current >= 0; }

void bt_wire_server_close(bt_wire_server *s) {
    if (!s) return;
    for (int i = 0; i < MAX_PEERS; i++) drop_peer(s, i);
    if (s->listen_fd >= 0) close(s->listen_fd);
    if (s->poll_set >= 0) close(s->poll_set);
    if (s->path[0]) unlink(s->path);
    free(s);
}
