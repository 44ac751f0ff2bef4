/* spare_socket.c - packets over a Unix socket: a message is received completely or not at all. */
#include "monitor/job/spare_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/os/process_fd.h"

static const uint32_t MAGIC = 0x42545350; /* BTSP */

static bool fill_socket_address(struct sockaddr_un *a, const char *path) {
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a->sun_path) return false;
    memcpy(a->sun_path, path, strlen(path));
    return true;
}

bt_code bt_spare_listen(bt_spare_socket *s, const char *path, bt_err *err) {
    struct sockaddr_un a;
    s->n = 0;
    s->listen = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listen >= 0 && fill_socket_address(&a, path) &&
        bind(s->listen, (const struct sockaddr *)&a, sizeof a) == 0 &&
        listen(s->listen, BT_SPARE_RANKS) == 0)
        return BT_OK;
    bt_fail_errno(err, BT_IO, errno, "cannot listen at '%.200s'", path);
    bt_spare_close(s);
    return BT_IO;
}

bool bt_spare_accept(bt_spare_socket *s) {
    for (int fd; s->n < BT_SPARE_RANKS && (fd = accept4(s->listen, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
        s->rank[s->n++] = fd;
    for (int i = 0; i < s->n; i++) {
        struct pollfd p = {s->rank[i], POLLIN, 0};
        if (poll(&p, 1, 0) != 0) return false;
    }
    return true;
}

pid_t bt_spare_pid(const bt_spare_socket *s, int i) { return bt_local_peer_pid(s->rank[i]); }

bool bt_spare_send(bt_spare_socket *s, const bt_spare_go *go) {
    bt_spare_go to = *go;
    to.magic = MAGIC;
    bool all = true;
    for (int i = 0; i < s->n; i++)
        all &= send(s->rank[i], &to, sizeof to, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof to;
    return all;
}

void bt_spare_close(bt_spare_socket *s) {
    for (int i = 0; i < s->n; i++) close(s->rank[i]);
    if (s->listen >= 0) close(s->listen);
    s->listen = -1;
    s->n = 0;
}

bt_code bt_spare_wait(const char *path, bt_spare_go *go, bt_err *err) {
    struct sockaddr_un a;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ssize_t n = -1;
    if (fd < 0 || !fill_socket_address(&a, path) ||
        connect(fd, (const struct sockaddr *)&a, sizeof a) != 0) {
        bt_code code = bt_fail_errno(err, BT_IO, errno, "cannot reach the supervisor at '%.200s'",
                                     path);
        if (fd >= 0) close(fd);
        return code;
    }
    do n = recv(fd, go, sizeof *go, 0);
    while (n < 0 && errno == EINTR);
    close(fd);
    if (n <= 0) return bt_fail(err, BT_STOPPED, "not needed any more");
    if (n != (ssize_t)sizeof *go || go->magic != MAGIC)
        return bt_fail(err, BT_FORMAT, "the supervisor sent %zd bytes of another kind", n);
    go->resume_from[sizeof go->resume_from - 1] = '\0';
    return BT_OK;
}
