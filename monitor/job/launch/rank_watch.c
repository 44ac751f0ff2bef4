/* rank_watch.c - waits for descriptors of processes in one poll set, and reads the end status of a process that was not
 * reaped. */
#include "monitor/job/launch/rank_watch.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/own_process.h"
#include "engine/base/os/poll_set.h"
#include "engine/base/os/process_fd.h"
#include "engine/base/os/process_info.h"

void bt_rank_watch_adopt(void) { bt_adopt_orphans(); }

bool bt_rank_watch_open(bt_rank_watch *w) {
    memset(w, 0, sizeof *w);
    w->epoll = bt_poll_set_create();
    return w->epoll >= 0;
}

void bt_rank_watch_add(bt_rank_watch *w, int rank, pid_t pid) {
    if (w->epoll < 0 || w->n == BT_RANK_WATCH_MAX || pid <= 0) return;
    const int fd = bt_process_fd_open(pid);
    if (fd < 0) return; /* already ended: mpirun reports it */
    if (!bt_poll_set_add(w->epoll, fd, w->n)) {
        close(fd);
        return;
    }
    w->at[w->n].rank = rank;
    w->at[w->n].pid = pid;
    w->at[w->n++].fd = fd;
}

/* Returns the signal that ended a process; 0: none, or it was reaped. */
static int read_end_signal(pid_t pid) {
    bt_process_info info;
    if (!bt_process_info_read(pid, &info) || info.state != 'Z') return 0;
    return WIFSIGNALED(info.end_status) ? WTERMSIG(info.end_status) : 0;
}

/* Removes the descriptor from the poll set before closing it, because a child that inherited it would keep it in the
 * set. */
static void remove_pidfd(bt_rank_watch *w, size_t i) {
    bt_poll_set_remove(w->epoll, w->at[i].fd);
    close(w->at[i].fd);
    w->at[i].fd = -1;
}

int bt_rank_watch_next(bt_rank_watch *w, int *signal) {
    uint64_t i;
    *signal = 0;
    if (w->epoll < 0 || !bt_poll_set_ready(w->epoll, &i)) return -1;
    *signal = read_end_signal(w->at[i].pid);
    remove_pidfd(w, i);
    return w->at[i].rank;
}

pid_t bt_rank_watch_pid(const bt_rank_watch *w, int rank) {
    for (size_t i = 0; i < w->n; i++)
        if (w->at[i].rank == rank) return w->at[i].pid;
    return 0;
}

int bt_rank_watch_signal(const bt_rank_watch *w, int signal) {
    int n = 0;
    for (size_t i = 0; i < w->n; i++)
        n += w->at[i].fd >= 0 && bt_process_fd_signal(w->at[i].fd, signal);
    return n;
}

void bt_rank_watch_kill(const bt_rank_watch *w) { (void)bt_rank_watch_signal(w, SIGKILL); }

size_t bt_rank_watch_wait(bt_rank_watch *w, double wait_s) {
    const int64_t until = bt_now_ns() + (int64_t)(wait_s * 1e9);
    size_t left = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (w->at[i].fd >= 0) {
            struct pollfd p = {w->at[i].fd, POLLIN, 0};
            const int64_t ns = until - bt_now_ns();
            if (poll(&p, 1, ns > 0 ? (int)(ns / 1000000) + 1 : 0) != 1) {
                left++;
                continue;
            }
            remove_pidfd(w, i);
        }
        (void)waitpid(w->at[i].pid, NULL,
                      WNOHANG); /* fails without effect if the process is not a child of this one */
    }
    return left;
}

void bt_rank_watch_close(bt_rank_watch *w) {
    for (size_t i = 0; i < w->n; i++)
        if (w->at[i].fd >= 0) close(w->at[i].fd);
    if (w->epoll >= 0) close(w->epoll);
    w->n = 0;
    w->epoll = -1;
}
