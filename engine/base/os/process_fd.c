/* process_fd.c - uses pidfds and SO_PEERCRED. The system calls are made by number, because glibc has functions for them
 * only from version 2.36. */
#include "engine/base/os/process_fd.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

int bt_process_fd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

bool bt_process_fd_signal(int fd, int signal) {
    return syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) == 0;
}

static bool read_credentials(int fd, struct ucred *who) {
    socklen_t size = sizeof *who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, who, &size) == 0;
}

bool bt_local_peer_is_ours(int fd) {
    struct ucred who;
    return read_credentials(fd, &who) && (who.uid == geteuid() || who.uid == 0);
}

pid_t bt_local_peer_pid(int fd) {
    struct ucred who;
    return read_credentials(fd, &who) ? who.pid : 0;
}
