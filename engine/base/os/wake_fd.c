/* wake_fd.c - eventfd. */
#include "engine/base/os/wake_fd.h"

#include <errno.h>
#include <sys/eventfd.h>

int bt_wake_fd_create(void) { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }

/* EAGAIN: the counter is at its limit, so the descriptor is already readable. */
bool bt_wake_fd_notify(int fd) { return eventfd_write(fd, 1) == 0 || errno == EAGAIN; }

/* EAGAIN: the descriptor was not readable. */
bool bt_wake_fd_clear(int fd) {
    eventfd_t ignored;
    return eventfd_read(fd, &ignored) == 0 || errno == EAGAIN;
}
