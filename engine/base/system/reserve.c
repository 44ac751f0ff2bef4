/* reserve.c - calls posix_fallocate with signals blocked: Linux before 6.18 aborts it for a file in memory (tmpfs) at
 * any signal, frees its pages, and starts again from the beginning. */
#include "engine/base/system/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

int bt_file_reserve(int fd, uint64_t bytes) {
    sigset_t all, before;
    int e;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do {
        e = posix_fallocate(fd, 0, (off_t)bytes);
    } while (e == EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}
