/* unnamed_file.c - uses memfd, O_TMPFILE and the links in /proc/PID/fd. */
#include "engine/base/os/unnamed_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int bt_memory_file_create(const char *name) { return memfd_create(name, MFD_CLOEXEC); }

int bt_file_of_process(pid_t pid, int fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
    return open(path, O_RDWR | O_CLOEXEC);
}

int bt_file_create_unnamed(const char *folder, mode_t mode) {
    if (access("/proc/self/fd", F_OK) != 0) return -1; /* bt_file_give_name needs it */
    return open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
}

bool bt_file_give_name(int fd, const char *path) {
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0;
}
