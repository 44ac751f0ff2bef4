/* rank_watch.h - watches the ranks of this host as processes: deaths, signals, and the end of
 * all.
 *
 * A pidfd of a killed rank is readable after 2 to 9 ms. mpirun notices as soon, but needs 20 to
 * 40 ms more to end the other ranks and itself; the supervisor ends them immediately.
 * Threads:  one. */
#ifndef BT_MONITOR_JOB_LAUNCH_RANK_WATCH_H
#define BT_MONITOR_JOB_LAUNCH_RANK_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { BT_RANK_WATCH_MAX = 256 };

typedef struct bt_rank_watch {
    struct {
        int rank, fd; /* fd: pidfd, -1 after its death was detected */
        pid_t pid;
    } at[BT_RANK_WATCH_MAX];
    size_t n;
    int epoll; /* readable when a rank has died; -1: no rank is watched */
} bt_rank_watch;

/* Makes orphans of mpirun children of this process, so that none remains a zombie if process 1
 * does not reap orphans. Call it once, before the first launch. */
void bt_rank_watch_adopt(void);
/* false: this kernel has no pidfds, and mpirun alone notices */
bool bt_rank_watch_open(bt_rank_watch *w);
void bt_rank_watch_add(bt_rank_watch *w, int rank, pid_t pid);
/* The next rank that has died since the last call, -1: none. signal: the signal that ended it,
 * 0: it exited, or the status is no longer available. */
int bt_rank_watch_next(bt_rank_watch *w, int *signal);
pid_t bt_rank_watch_pid(const bt_rank_watch *w, int rank); /* 0: not watched */
/* to those that live; how many */
int bt_rank_watch_signal(const bt_rank_watch *w, int signal);
/* SIGKILL to those that live */
void bt_rank_watch_kill(const bt_rank_watch *w);
/* waits until none lives, at most wait_s; takes up those that are our children by now. Returns the
 * number that still lives */
size_t bt_rank_watch_wait(bt_rank_watch *w, double wait_s);
void bt_rank_watch_close(bt_rank_watch *w);

#endif
