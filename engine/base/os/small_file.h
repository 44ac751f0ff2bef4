/* small_file.h - reads a whole file of the kernel; private to this folder. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_SMALL_FILE_H
#define BT_ENGINE_BASE_OS_SMALL_FILE_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

/* Reads at most size - 1 bytes and terminates them with NUL. false: nothing could be read. Does not allocate. */
static inline bool bt_read_small_file(const char *path, char *out, size_t size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, out, size - 1) : -1;
    if (fd >= 0) close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0;
}

#endif
