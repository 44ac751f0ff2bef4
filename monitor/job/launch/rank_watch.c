/* rank_watch.c - waits for descriptors of processes in one poll set, and reads the exit code of a zombie from /proc. */
#include "monitor/job/launch/rank_watch.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/poll_set.h"
#include "engine/base/os/process_fd.h"

void bt_rank_watch_adopt(void) { (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

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

/* Returns the signal in a zombie's wait status, the last number of its stat line; 0 if it was reaped. */
static int read_end_signal(pid_t pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = '\0';
    const char *after = strrchr(line, ')'), *last = strrchr(line, ' ');
    if (!after || !last || last < after || after[1] != ' ' || after[2] != 'Z') return 0;
    int status = (int)strtol(last, NULL, 10);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* Removes it from the set, because a child that inherited the descriptor would keep it there. */
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
                      WNOHANG); /* an adopted process; fails harmlessly for others */
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
