/* process_fd.h - a descriptor of a process, which refers to the same process even if its number is used again.
 *
 * The process need not be a child. The descriptor is readable when the process has ended, also before it is reaped. Its
 * owner releases it with close(). Also the process at the other end of a Unix socket. Threads: any. */
#ifndef BT_ENGINE_BASE_OS_PROCESS_FD_H
#define BT_ENGINE_BASE_OS_PROCESS_FD_H

#include <stdbool.h>
#include <sys/types.h>

/* Returns a descriptor that exec closes. -1: the process has been reaped, or the system has no such descriptors (Linux
 * before 5.3); errno tells which. */
int bt_process_fd_open(pid_t pid);
/* Returns false if the process has been reaped, or may not be signalled. */
bool bt_process_fd_signal(int fd, int signal);

/* True if the process at the other end of a Unix socket connected as the effective user of this process or as root. */
bool bt_local_peer_is_ours(int fd);
/* Returns the number of that process in the namespace of this process; 0: unknown. */
pid_t bt_local_peer_pid(int fd);

#endif
