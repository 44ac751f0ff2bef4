/* control_client.c - connects, sends, and waits for one line with a time limit. */
#include "store/wire/control_client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/clock.h"

static const int64_t PATIENCE_NS = 5000000000;

bt_code bt_control_find(bt_db *db, const char *run, char *path, size_t size, bt_err *err) {
    char name[BT_NAME_MAX], out[PATH_MAX] = "", file[PATH_MAX + 16];
    BT_TRY(bt_db_run(db, run, name, err));
    BT_TRY(bt_db_run_folder(db, name, out, sizeof out, err));
    snprintf(file, sizeof file, "%s/control", out);
    FILE *f = out[0] ? fopen(file, "re") : NULL;
    char line[PATH_MAX] = "";
    if (f) {
        if (!fgets(line, sizeof line, f)) line[0] = '\0';
        fclose(f);
    }
    line[strcspn(line, "\n")] = '\0';
    if (!line[0])
        return bt_fail(err, BT_BUSY,
                       "run '%s' is not live (nothing controls it now; continue it with 'bitrain "
                       "train --resume %s')",
                       name, name);
    if (strlen(line) >= size)
        return bt_fail(err, BT_FORMAT, "'%s' names a socket that is too long", file);
    memcpy(path, line, strlen(line) + 1);
    return BT_OK;
}

static bt_code wait_for(int fd, short what, int64_t until, const char *path, bt_err *err) {
    for (;;) {
        int64_t left = until - bt_now_ns();
        struct pollfd p = {fd, what, 0};
        int n = left > 0 ? poll(&p, 1, (int)(left / 1000000) + 1) : 0;
        if (n > 0) return BT_OK;
        if (n == 0) return bt_fail(err, BT_BUSY, "the run does not answer at '%s'", path);
        if (errno != EINTR) return bt_fail_errno(err, BT_IO, errno, "cannot wait for '%s'", path);
    }
}

static bt_code exchange(int fd, const char *path, const char *request, char *line, size_t size,
                        bt_err *err) {
    const int64_t until = bt_now_ns() + PATIENCE_NS;
    char out[BT_CONTROL_LINE];
    int n = snprintf(out, sizeof out, "%s\n", request);
    if (n < 0 || n >= (int)sizeof out || strchr(request, '\n'))
        return bt_fail(err, BT_ARG, "the request is too long or has more than one line");
    BT_TRY(wait_for(fd, POLLOUT, until, path, err));
    if (send(fd, out, (size_t)n, MSG_NOSIGNAL) != n)
        return bt_fail_errno(err, BT_IO, errno, "cannot write to '%s'", path);
    for (size_t at = 0; at + 1 < size;) {
        BT_TRY(wait_for(fd, POLLIN, until, path, err));
        ssize_t k = recv(fd, line + at, size - 1 - at, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return bt_fail(err, BT_IO, "the run closed '%s' without an answer", path);
        at += (size_t)k;
        line[at] = '\0';
        char *end = strchr(line, '\n');
        if (!end) continue;
        *end = '\0';
        return BT_OK;
    }
    return bt_fail(err, BT_FORMAT, "the answer from '%s' is too long", path);
}

bt_code bt_control_call(const char *path, const char *request, char *reply, size_t size,
                        bt_err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return bt_fail(err, BT_ARG, "socket path '%s' is too long", path);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create a socket");
    char line[16 * BT_CONTROL_LINE];
    bt_code code;
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) != 0) {
        bool gone = errno == ENOENT || errno == ECONNREFUSED;
        code = gone ? bt_fail(err, BT_BUSY, "the run is not live: nobody listens at '%s'", path)
                    : bt_fail_errno(err, BT_IO, errno, "cannot connect to '%s'", path);
    } else
        code = exchange(fd, path, request, line, sizeof line, err);
    close(fd);
    BT_TRY(code);
    int refused = 0, at = 0;
    if (strncmp(line, "ok", 2) == 0 && (line[2] == ' ' || line[2] == '\0')) {
        snprintf(reply, size, "%s", line[2] ? line + 3 : "");
        return BT_OK;
    }
    if (sscanf(line, "no %d %n", &refused, &at) == 1 && at > 0 && refused > BT_OK &&
        refused < BT_CODE_COUNT)
        return bt_fail(err, (bt_code)refused, "%s", line + at);
    return bt_fail(err, BT_FORMAT, "the run answered something else than 'ok' or 'no'");
}

bt_code bt_control_request(bt_db *db, const char *run, const char *request, char *reply,
                           size_t size, bt_err *err) {
    char path[PATH_MAX];
    BT_TRY(bt_control_find(db, run, path, sizeof path, err));
    return bt_control_call(path, request, reply, size, err);
}
