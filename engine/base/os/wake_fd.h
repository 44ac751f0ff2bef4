/* wake_fd.h - a descriptor through which one thread wakes another that waits in poll().
 *
 * The descriptor is readable from the first bt_wake_fd_notify until bt_wake_fd_clear. The owner releases it with
 * close(). Threads: any. */
#ifndef BT_ENGINE_BASE_OS_WAKE_FD_H
#define BT_ENGINE_BASE_OS_WAKE_FD_H

#include <stdbool.h>

/* Returns a descriptor, which exec closes and which is not readable; -1: error in errno. */
int bt_wake_fd_create(void);
/* Does not wait. Returns false if the descriptor is invalid. */
bool bt_wake_fd_notify(int fd);
/* Makes the descriptor unreadable without waiting. Returns false if the descriptor is invalid. */
bool bt_wake_fd_clear(int fd);

#endif
