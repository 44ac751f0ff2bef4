/* signal_fd.h - signals as a descriptor that poll() accepts.
 *
 * The signals must be blocked in all threads; otherwise their handlers or default actions take them. Its owner releases
 * the descriptor with close(). Threads: one for each descriptor. */
#ifndef BT_ENGINE_BASE_OS_SIGNAL_FD_H
#define BT_ENGINE_BASE_OS_SIGNAL_FD_H

#include <signal.h>

/* Returns a descriptor that is readable while a signal of the set is pending, and that exec closes; -1: error in
 * errno. */
int bt_signal_fd_create(const sigset_t *set);
/* Takes a pending signal without waiting; 0: there is none. */
int bt_signal_fd_take(int fd);

#endif
