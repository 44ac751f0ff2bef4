/* file_io.c - loops around read and write; a file is replaced by renaming a new one. */
#include "engine/data/io/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/os/own_process.h"

bt_code bt_file_pread(int fd, const char *name, void *buf, size_t n, uint64_t offset, size_t *got,
                      bt_err *err) {
    size_t done = 0;
    while (done < n) {
        ssize_t r = pread(fd, (char *)buf + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR) continue;
        if (r < 0)
            return bt_fail_errno(err, BT_IO, errno, "cannot read '%s' at byte %llu", name,
                                 (unsigned long long)(offset + done));
        if (r == 0) break;
        done += (size_t)r;
    }
    *got = done;
    return BT_OK;
}

bt_code bt_file_pwrite(int fd, const char *name, const void *buf, size_t n, uint64_t offset,
                       bt_err *err) {
    size_t done = 0;
    while (done < n) {
        ssize_t r = pwrite(fd, (const char *)buf + done, n - done, (off_t)(offset + done));
        if (r < 0 && errno == EINTR) continue;
        if (r <= 0)
            return bt_fail_errno(err, BT_IO, r < 0 ? errno : ENOSPC, "cannot write '%s'", name);
        done += (size_t)r;
    }
    return BT_OK;
}

bt_code bt_file_slurp(const char *path, size_t limit, char **data, size_t *n, bt_err *err) {
    *data = NULL;
    *n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC |
                            O_NONBLOCK); /* does not block on a pipe without a writer */
    if (fd < 0)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno, "cannot open '%s'",
                             path);
    bt_code code = BT_OK;
    struct stat st;
    char *buf = NULL;
    size_t got = 0;
    if (fstat(fd, &st) != 0) {
        code = bt_fail_errno(err, BT_IO, errno, "cannot examine '%s'", path);
    } else if (!S_ISREG(st.st_mode)) {
        code = bt_fail(err, BT_ARG, "'%s' is not a file", path);
    } else if ((uint64_t)st.st_size > limit) {
        code = bt_fail(err, BT_FORMAT, "'%s' has %lld bytes; at most %zu are allowed", path,
                       (long long)st.st_size, limit);
    } else if (!(buf = malloc((size_t)st.st_size + 1))) {
        code = bt_fail(err, BT_NOMEM, "cannot allocate %lld bytes for '%s'", (long long)st.st_size,
                       path);
    } else {
        code = bt_file_pread(fd, path, buf, (size_t)st.st_size, 0, &got, err);
    }
    close(fd);
    if (code != BT_OK) {
        free(buf);
        return code;
    }
    buf[got] = '\0';
    *data = buf;
    *n = got;
    return BT_OK;
}

bool bt_file_is_device(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static bt_code write_into(const char *path, const char *data, size_t n, bt_err *err) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
    size_t done = 0;
    for (ssize_t k = 0; done < n && k >= 0; done += k > 0 ? (size_t)k : 0) {
        k = write(fd, data + done, n - done);
        if (k < 0 && errno == EINTR) k = 0;
    }
    const int e = errno;
    close(fd);
    return done == n ? BT_OK : bt_fail_errno(err, BT_IO, e, "cannot write '%s'", path);
}

bt_code bt_file_replace(const char *path, const char *data, size_t n, bt_err *err) {
    char tmp[PATH_MAX];
    if (bt_file_is_device(path)) return write_into(path, data, n, err);
    if (snprintf(tmp, sizeof tmp, "%s.tmp.%ld", path, bt_thread_number()) >= (int)sizeof tmp)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", tmp);
    bt_code code = bt_file_pwrite(fd, tmp, data, n, 0, err);
    if (code == BT_OK && fsync(fd) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", tmp);
    if (close(fd) != 0 && code == BT_OK)
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", tmp);
    if (code == BT_OK && rename(tmp, path) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot rename '%s' to '%s'", tmp, path);
    if (code != BT_OK) {
        unlink(tmp);
        return code;
    }
    bt_file_sync_folder_of(path);
    return BT_OK;
}

void bt_file_sync_folder_of(const char *path) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 0;
    snprintf(folder, sizeof folder, "%.*s", n, path);
    int fd = open(!slash ? "." : n ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    /* some file systems cannot sync a folder; the file itself is safe */
    (void)fsync(fd);
    close(fd);
}
