/* process_fd.c - pidfds. The calls are made by number, because glibc has functions for them from 2.36 on only. */
#include "engine/base/os/process_fd.h"

#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

int bt_process_fd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

bool bt_process_fd_signal(int fd, int signal) {
    return syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) == 0;
}
