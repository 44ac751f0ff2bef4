/* listen.c - binds the socket, and names the process that already uses a port. */
#include "web/http/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/os/process_info.h"
#include "engine/base/text.h"

enum { BACKLOG = 1024 };

void bt_listen_holder(int port, char *out, size_t size) {
    char name[64], plain[64];
    const pid_t pid = bt_process_on_port(port, name, sizeof name);
    out[0] = '\0';
    if (pid <= 0) return;
    bt_text_plain(plain, sizeof plain, name);
    snprintf(out, size, "%s (pid %d)", plain, (int)pid);
}

static bt_code fail_port_in_use(const char *host, int port, bt_err *err) {
    char who[128];
    bt_listen_holder(port, who, sizeof who);
    return bt_fail(
        err, BT_BUSY,
        "port %d of %s is in use%s%s (choose one with --port N, or --port 0 for any free one)",
        port, host, who[0] ? " by " : "", who);
}

bt_code bt_listen_tcp(const char *host, int port, int *out, int *port_found, bt_err *err) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    char text[16], service[16] = "0";
    snprintf(text, sizeof text, "%d", port);
    int rc = getaddrinfo(host, text, &hints, &found);
    if (rc) return bt_fail(err, BT_ARG, "cannot listen on '%s': %s", host, gai_strerror(rc));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    bt_code code = BT_OK;
    if (fd < 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot make a socket");
    else
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (code == BT_OK &&
        (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0)) {
        code = errno == EADDRINUSE
                   ? fail_port_in_use(host, port, err)
                   : bt_fail_errno(err, BT_IO, errno, "cannot listen on %s port %d", host, port);
    }
    freeaddrinfo(found);
    if (code != BT_OK) {
        if (fd >= 0) close(fd);
        return code;
    }
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    getsockname(fd, (struct sockaddr *)&at, &len);
    getnameinfo((struct sockaddr *)&at, len, NULL, 0, service, sizeof service, NI_NUMERICSERV);
    *port_found = atoi(service);
    *out = fd;
    return BT_OK;
}

bt_code bt_listen_unix(const char *path, int *out, bt_err *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path)
        return bt_fail(err, BT_ARG, "socket path '%s' is longer than %zu letters", path,
                       sizeof at.sun_path - 1);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot make a socket");
    struct stat st;
    bt_code code = BT_OK;
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            code = bt_fail(err, BT_BUSY, "'%s' exists and is no socket", path);
        else if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            code = bt_fail(err, BT_BUSY, "'%s' is in use by another program", path);
        else if (errno != ECONNREFUSED || unlink(path) != 0)
            code = bt_fail_errno(err, BT_BUSY, errno, "cannot replace the socket '%s'", path);
    }
    /* a socket file created with these permissions is never accessible to other users */
    mode_t before = umask(0177);
    if (code == BT_OK &&
        (bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, BACKLOG) != 0))
        code = bt_fail_errno(err, BT_IO, errno, "cannot listen on '%s'", path);
    umask(before);
    if (code == BT_OK)
        *out = fd;
    else
        close(fd);
    return code;
}
