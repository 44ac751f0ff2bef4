/* io.c - complete reads and writes, and durable renames. */
#include "engine/base/hash.h"
#include "engine/ckpt/format.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of one system call. */
enum { PIECE = 8 << 20 };

bt_code ckpt_write_all(int fd, const void *data, size_t n, uint64_t offset, const char *path,
                       bt_err *err) {
    const char *p = data;
    while (n > 0) {
        ssize_t k = pwrite(fd, p, n < PIECE ? n : PIECE, (off_t)offset);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0)
            return bt_fail_errno(err, BT_IO, k < 0 ? errno : EIO, "cannot write '%s' at byte %llu",
                                 path, (unsigned long long)offset);
        p += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return BT_OK;
}

bt_code ckpt_read_all(int fd, void *data, size_t n, uint64_t offset, const char *path,
                      bt_err *err) {
    char *p = data;
    while (n > 0) {
        ssize_t k = pread(fd, p, n < PIECE ? n : PIECE, (off_t)offset);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0)
            return bt_fail_errno(err, BT_IO, errno, "cannot read '%s' at byte %llu", path,
                                 (unsigned long long)offset);
        if (k == 0)
            return bt_fail(err, BT_FORMAT, "'%s' ends at byte %llu, so it is truncated", path,
                           (unsigned long long)offset);
        p += k;
        n -= (size_t)k;
        offset += (uint64_t)k;
    }
    return BT_OK;
}

bt_code ckpt_sync_folder(const char *folder, bt_err *err) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open folder '%s'", folder);
    int rc = fsync(fd), e = errno;
    close(fd);
    /* some file systems do not support fsync of a folder */
    if (rc != 0 && e != EINVAL)
        return bt_fail_errno(err, BT_IO, e, "cannot sync folder '%s'", folder);
    return BT_OK;
}

bt_code ckpt_replace_file(const char *folder, const char *name, const void *data, size_t n,
                          bt_code (*before_rename)(void *ctx, bt_err *err), void *ctx,
                          bt_err *err) {
    char tmp[PATH_MAX], path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path - 4)
        return bt_fail(err, BT_ARG, "path '%s/%s' is too long", folder, name);
    snprintf(tmp, sizeof tmp, "%s/%s.tmp", folder, name);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", tmp);
    bt_code code = ckpt_write_all(fd, data, n, 0, tmp, err);
    if (code == BT_OK && fsync(fd) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot sync '%s'", tmp);
    if (close(fd) != 0 && code == BT_OK)
        code = bt_fail_errno(err, BT_IO, errno, "cannot close '%s'", tmp);
    if (code == BT_OK && before_rename) code = before_rename(ctx, err);
    if (code == BT_OK && rename(tmp, path) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot rename '%s'", tmp);
    if (code != BT_OK) {
        unlink(tmp);
        return code;
    }
    return ckpt_sync_folder(folder, err);
}

bt_code ckpt_slurp(const char *path, size_t limit, char **data, size_t *n, bt_err *err) {
    *data = NULL;
    *n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC |
                            O_NONBLOCK); /* does not block on a pipe without a writer */
    if (fd < 0)
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno, "cannot open '%s'",
                             path);
    struct stat st;
    bt_code code = BT_OK;
    char *buf = NULL;
    if (fstat(fd, &st) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot stat '%s'", path);
    else if (!S_ISREG(st.st_mode))
        code = bt_fail(err, BT_FORMAT, "'%s' is not a regular file", path);
    else if ((uint64_t)st.st_size > limit)
        code = bt_fail(err, BT_FORMAT, "'%s' has %lld bytes, more than the limit of %zu", path,
                       (long long)st.st_size, limit);
    else if (!(buf = malloc((size_t)st.st_size + 1)))
        code = bt_fail(err, BT_NOMEM, "cannot allocate %lld bytes for '%s'", (long long)st.st_size,
                       path);
    else
        code = ckpt_read_all(fd, buf, (size_t)st.st_size, 0, path, err);
    close(fd);
    if (code != BT_OK) {
        free(buf);
        return code;
    }
    buf[st.st_size] = '\0';
    *data = buf;
    *n = (size_t)st.st_size;
    return BT_OK;
}

void ckpt_hash_hex(char out[33], const void *data, size_t n) {
    XXH128_hash_t h = XXH3_128bits(data, n);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}
