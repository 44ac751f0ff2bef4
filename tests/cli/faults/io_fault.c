/* io_fault.c - a library for LD_PRELOAD in which the N-th call of one kind on files below a folder fails once in each
 * process. BITRAIN_TEST_IO=CALL:N:ERRNO:FOLDER, where CALL is open, write, fsync, rename, allocate, truncate, mkdir,
 * unlink or read. A line is added to the file BITRAIN_TEST_IO_HIT when a call fails. Calls inside the C library itself
 * (such as those of stdio) cannot fail. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    char call[16], folder[1024];
    long n;
    int error;
    atomic_long seen;
} fault;

__attribute__((constructor)) static void read_fault(void) {
    const char *text = getenv("BITRAIN_TEST_IO");
    if (!text || sscanf(text, "%15[^:]:%ld:%d:%1023s", fault.call, &fault.n, &fault.error,
                        fault.folder) != 4)
        fault.call[0] = 0;
}

static bool fails(const char *call, const char *path) {
    if (!fault.call[0] || strcmp(call, fault.call) != 0 || !path) return false;
    if (strncmp(path, fault.folder, strlen(fault.folder)) != 0) return false;
    if (atomic_fetch_add(&fault.seen, 1) + 1 != fault.n) return false;
    const char *hit = getenv("BITRAIN_TEST_IO_HIT");
    int fd = hit ? (int)syscall(SYS_openat, AT_FDCWD, hit, O_WRONLY | O_CREAT | O_APPEND, 0644)
                 : -1;
    if (fd >= 0) {
        char line[1200];
        int n = snprintf(line, sizeof line, "%s %ld %s\n", call, fault.n, path);
        syscall(SYS_write, fd, line, (size_t)n);
        syscall(SYS_close, fd);
    }
    errno = fault.error;
    return true;
}

static bool fails_fd(const char *call, int fd) {
    char link[40], path[1024];
    if (!fault.call[0] || strcmp(call, fault.call) != 0) return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlink, link, path, sizeof path - 1);
    if (n <= 0) return false;
    path[n] = 0;
    return fails(call, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = mode_of(flags, rest); \
        va_end(rest); \
        return fails("open", path) ? -1 : NEXT(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = mode_of(flags, rest); \
        va_end(rest); \
        return fails("open", path) ? -1 : NEXT(name)(folder, path, flags, mode); \
    }
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *data, size_t n) {
    return fails_fd("write", fd) ? -1 : NEXT(write)(fd, data, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) {
    return fails_fd("write", fd) ? -1 : NEXT(pwrite)(fd, data, n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at) {
    return fails_fd("write", fd) ? -1 : NEXT(pwrite64)(fd, data, n, at);
}
ssize_t writev(int fd, const struct iovec *v, int n) {
    return fails_fd("write", fd) ? -1 : NEXT(writev)(fd, v, n);
}
ssize_t read(int fd, void *data, size_t n) {
    return fails_fd("read", fd) ? -1 : NEXT(read)(fd, data, n);
}
ssize_t pread(int fd, void *data, size_t n, off_t at) {
    return fails_fd("read", fd) ? -1 : NEXT(pread)(fd, data, n, at);
}
ssize_t pread64(int fd, void *data, size_t n, off64_t at) {
    return fails_fd("read", fd) ? -1 : NEXT(pread64)(fd, data, n, at);
}
int fsync(int fd) { return fails_fd("fsync", fd) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return fails_fd("fsync", fd) ? -1 : NEXT(fdatasync)(fd); }
int rename(const char *from, const char *to) {
    return fails("rename", to) ? -1 : NEXT(rename)(from, to);
}
int posix_fallocate(int fd, off_t at, off_t n) {
    return fails_fd("allocate", fd) ? fault.error : NEXT(posix_fallocate)(fd, at, n);
}
int posix_fallocate64(int fd, off64_t at, off64_t n) {
    return fails_fd("allocate", fd) ? fault.error : NEXT(posix_fallocate64)(fd, at, n);
}
int ftruncate(int fd, off_t n) { return fails_fd("truncate", fd) ? -1 : NEXT(ftruncate)(fd, n); }
int ftruncate64(int fd, off64_t n) {
    return fails_fd("truncate", fd) ? -1 : NEXT(ftruncate64)(fd, n);
}
int mkdir(const char *path, mode_t mode) {
    return fails("mkdir", path) ? -1 : NEXT(mkdir)(path, mode);
}
int unlink(const char *path) { return fails("unlink", path) ? -1 : NEXT(unlink)(path); }
