/* signal_fd.c - signalfd. */
#include "engine/base/os/signal_fd.h"

#include <sys/signalfd.h>
#include <unistd.h>

int bt_signal_fd_create(const sigset_t *set) {
    return signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
}

int bt_signal_fd_take(int fd) {
    struct signalfd_siginfo si;
    return read(fd, &si, sizeof si) == (ssize_t)sizeof si ? (int)si.ssi_signo : 0;
}
