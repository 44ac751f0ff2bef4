/* rank_watch.h - the ranks of this host as processes: who has died, by which signal, and are all gone?
 *
 * A pidfd of a killed rank is readable after 2 to 9 ms. mpirun notices as soon, but takes 20 to 40 ms
 * more to end the others and itself; who watches by itself ends them at once.
 * Threads: one. */
#ifndef BT_MONITOR_JOB_LAUNCH_RANK_WATCH_H
#define BT_MONITOR_JOB_LAUNCH_RANK_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { BT_RANK_WATCH_MAX = 256 };

typedef struct bt_rank_watch {
    struct {
        int rank, fd; /* fd: pidfd, -1 once it was seen dead */
        pid_t pid;
    } at[BT_RANK_WATCH_MAX];
    size_t n;
    int epoll; /* readable when a rank has died; -1: nothing is watched */
} bt_rank_watch;

/* Orphans of mpirun become children of this process, so that none stays a zombie where process 1 does
 * not wait for orphans. Once, before the first launch. */
void bt_rank_watch_adopt(void);
/* false: this kernel has no pidfds, and mpirun alone notices */
bool bt_rank_watch_open(bt_rank_watch *w);
void bt_rank_watch_add(bt_rank_watch *w, int rank, pid_t pid);
/* The next rank that has died since, -1: none. signal: that ended it, 0: it ended by itself or nobody
 * can say any more. */
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
