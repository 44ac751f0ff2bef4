/* signal_fd.h - a file descriptor for signals, for poll().
 *
 * The signals must be blocked in all threads, because otherwise their handlers or default actions consume them. The
 * owner releases the descriptor with close(). Threads: one per descriptor. */
#ifndef BT_ENGINE_BASE_OS_SIGNAL_FD_H
#define BT_ENGINE_BASE_OS_SIGNAL_FD_H

#include <signal.h>

/* Returns a close-on-exec descriptor that is readable while a signal of the set is pending; -1: error in errno. */
int bt_signal_fd_create(const sigset_t *set);
/* Removes and returns a pending signal without waiting; 0: none is pending. */
int bt_signal_fd_take(int fd);

#endif
