/* process_fd.h - a file descriptor that identifies a process even if its number is used again.
 *
 * The process need not be a child. The descriptor is readable when the process has ended, even before it is reaped. The
 * owner releases it with close(). Two further functions identify the process at the other end of a Unix socket.
 * Threads: any. */
#ifndef BT_ENGINE_BASE_OS_PROCESS_FD_H
#define BT_ENGINE_BASE_OS_PROCESS_FD_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns a descriptor that exec closes. -1: the process was reaped, or the system has no such descriptors (Linux
 * before 5.3); errno distinguishes the two. */
int bt_process_fd_open(pid_t pid);
/* Returns false if the process was reaped or this process may not signal it. */
bool bt_process_fd_signal(int fd, int signal);

/* Returns true if the process at the other end of a Unix socket belongs to this effective user or to root. */
bool bt_local_peer_is_ours(int fd);
/* Returns the number of the process at the other end in the namespace of this process; 0: unknown. */
pid_t bt_local_peer_pid(int fd);

#endif
