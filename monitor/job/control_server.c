/* control_server.c - accepts clients, reads one line from each, replies and closes the connection. */
#include "monitor/job/control_server.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/poll_set.h"
#include "engine/base/os/process_fd.h"
#include "store/wire/control_client.h"

enum { MAX_CLIENTS = 16 };
static const int64_t PATIENCE_NS = 5000000000;

typedef struct client_slot {
    int fd;
    int64_t since_ns;
    size_t n;
    char line[BT_CONTROL_LINE];
} client_slot;

struct bt_control_server {
    int listen_fd, poll_set;
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    client_slot slots[MAX_CLIENTS]; /* fd -1: unused */
};

bt_code bt_control_listen(bt_control_server **out, const char *path, bt_err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    *out = NULL;
    if (strlen(path) >= sizeof a.sun_path)
        return bt_fail(err, BT_ARG, "socket path '%s' is too long", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    bt_control_server *s = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate the control socket");
    for (int i = 0; i < MAX_CLIENTS; i++) s->slots[i].fd = -1;
    s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    s->poll_set = bt_poll_set_create();
    if (s->listen_fd < 0 || s->poll_set < 0 ||
        bind(s->listen_fd, (const struct sockaddr *)&a, sizeof a) != 0 || chmod(path, 0600) != 0 ||
        listen(s->listen_fd, MAX_CLIENTS) != 0 || !bt_poll_set_add(s->poll_set, s->listen_fd, 0)) {
        bt_code code = bt_fail_errno(err, BT_IO, errno, "cannot listen at '%s'", path);
        bt_control_close(s);
        return code;
    }
    memcpy(s->path, a.sun_path, sizeof s->path);
    *out = s;
    return BT_OK;
}

int bt_control_fd(const bt_control_server *s) { return s->poll_set; }

static void drop_client(client_slot *a) {
    if (a->fd >= 0) close(a->fd);
    a->fd = -1;
}

static void accept_clients(bt_control_server *s, int64_t now) {
    for (;;) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        client_slot *at = &s->slots[0]; /* if all are busy, the oldest is disconnected */
        for (int i = 0; i < MAX_CLIENTS; i++) {
            client_slot *a = &s->slots[i];
            if (a->fd < 0 || (at->fd >= 0 && a->since_ns < at->since_ns)) at = a;
            if (a->fd < 0) break;
        }
        if (!bt_local_peer_is_ours(fd) || !bt_poll_set_add(s->poll_set, fd, 0)) {
            close(fd);
            continue;
        }
        drop_client(at);
        *at = (client_slot){.fd = fd, .since_ns = now};
    }
}

/* VERB [KEY=VALUE] [#WHO] */
static void answer_client(client_slot *a, bt_control_fn fn, void *ctx) {
    char *rest = NULL, *verb = strtok_r(a->line, " \t\r", &rest), *arg = "", *who = "ctl";
    for (char *w; verb && (w = strtok_r(NULL, " \t\r", &rest));) {
        if (w[0] == '#')
            who = w + 1;
        else
            arg = w;
    }
    bt_text said, line;
    bt_err err = BT_ERR_INIT;
    bt_text_init(&said);
    bt_text_init(&line);
    bt_code code = verb ? fn(ctx, verb, arg, who, &said, &err)
                        : bt_fail(&err, BT_ARG, "an empty request");
    if (code == BT_OK)
        bt_text_printf(&line, "ok %s\n", bt_text_str(&said));
    else
        bt_text_printf(&line, "no %d %s\n", (int)code, err.msg);
    ssize_t n = send(a->fd, bt_text_str(&line), line.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)n; /* a client that does not read loses its reply */
    bt_text_release(&said);
    bt_text_release(&line);
}

/* Returns true when the client is finished, also if a line without an end has filled the buffer. */
static bool read_client_line(client_slot *a, bt_control_fn fn, void *ctx) {
    for (;;) {
        ssize_t k = recv(a->fd, a->line + a->n, sizeof a->line - 1 - a->n, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        if (k <= 0) return true;
        a->n += (size_t)k;
        char *end = memchr(a->line, '\n', a->n);
        if (end) {
            *end = '\0';
            answer_client(a, fn, ctx);
            return true;
        }
    }
}

void bt_control_serve(bt_control_server *s, bt_control_fn fn, void *ctx) {
    const int64_t now = bt_now_ns();
    accept_clients(s, now);
    for (int i = 0; i < MAX_CLIENTS; i++) {
        client_slot *a = &s->slots[i];
        if (a->fd >= 0 && (read_client_line(a, fn, ctx) || now - a->since_ns > PATIENCE_NS))
            drop_client(a);
    }
}

void bt_control_close(bt_control_server *s) {
    if (!s) return;
    for (int i = 0; i < MAX_CLIENTS; i++) drop_client(&s->slots[i]);
    if (s->listen_fd >= 0) close(s->listen_fd);
    if (s->poll_set >= 0) close(s->poll_set);
    if (s->path[0]) unlink(s->path);
    free(s);
}

void bt_control_announce(const char *out_dir, const char *socket_path) {
    char path[PATH_MAX], line[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/control", out_dir) >= (int)sizeof path) return;
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644),
        n = snprintf(line, sizeof line, "%s\n", socket_path);
    if (fd < 0) return;
    /* A full disk disables only remote control. */
    if (write(fd, line, (size_t)n) != n) unlink(path);
    close(fd);
}

void bt_control_withdraw(const char *out_dir) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/control", out_dir) < (int)sizeof path) unlink(path);
}
