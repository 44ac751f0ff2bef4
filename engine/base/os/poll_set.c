/* poll_set.c - epoll. */
#include "engine/base/os/poll_set.h"

#include <stddef.h>
#include <sys/epoll.h>

int bt_poll_set_create(void) { return epoll_create1(EPOLL_CLOEXEC); }

bool bt_poll_set_add(int set, int fd, uint64_t tag) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = tag};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0;
}

void bt_poll_set_remove(int set, int fd) { (void)epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL); }

bool bt_poll_set_ready(int set, uint64_t *tag) {
    struct epoll_event e;
    if (epoll_wait(set, &e, 1, 0) != 1) return false;
    *tag = e.data.u64;
    return true;
}
