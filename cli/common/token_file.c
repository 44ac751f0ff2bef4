/* token_file.c - creates a file for each server that only its owner can read. */
#include "cli/common/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bt_code bt_token_file_keep(const char *store, const char *server, int port, const char *token,
                           char *path, size_t size, bt_err *err) {
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    char dir[900];
    if (runtime && *runtime)
        snprintf(dir, sizeof dir, "%.800s/bitrain", runtime);
    else {
        snprintf(dir, sizeof dir, "%.880s", store);
        char *slash = strrchr(dir, '/');
        if (slash)
            *slash = '\0';
        else
            snprintf(dir, sizeof dir, ".");
    }
    if (mkdir(dir, 0700) != 0 && errno != EEXIST)
        return bt_fail_errno(err, BT_IO, errno, "cannot create folder '%s'", dir);
    snprintf(path, size, "%s/%s-%d.token", dir, server, port);
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", path);
    bool ok = dprintf(fd, "%s\n", token) > 0;
    close(fd);
    return ok ? BT_OK : bt_fail(err, BT_IO, "cannot write '%s'", path);
}
