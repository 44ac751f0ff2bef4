/* rank_watch.h - watches the ranks of this host as processes: deaths, signals, and the end of all.
 *
 * A killed rank's pidfd is readable after 2 to 9 ms. mpirun detects the death as soon, but needs 20 to 40 ms more to
 * end the other ranks and itself; the supervisor ends them immediately.
 * Threads: one. */
#ifndef BT_MONITOR_JOB_LAUNCH_RANK_WATCH_H
#define BT_MONITOR_JOB_LAUNCH_RANK_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { BT_RANK_WATCH_MAX = 256 };

typedef struct bt_rank_watch {
    struct {
        int rank, fd; /* fd: pidfd, -1 after the rank's death was detected */
        pid_t pid;
    } at[BT_RANK_WATCH_MAX];
    size_t n;
    int epoll; /* readable when a rank has died; -1: no rank is watched */
} bt_rank_watch;

/* Makes orphans of mpirun children of this process, because process 1 of a container may not reap them. To be called
 * once, before the first launch. */
void bt_rank_watch_adopt(void);
/* Returns false if this kernel has no pidfds; then only mpirun detects deaths. */
bool bt_rank_watch_open(bt_rank_watch *w);
void bt_rank_watch_add(bt_rank_watch *w, int rank, pid_t pid);
/* Returns a rank that has died since the last call, -1: none. signal: the signal that ended it; 0: it exited, or the
 * status is no longer available. */
int bt_rank_watch_next(bt_rank_watch *w, int *signal);
pid_t bt_rank_watch_pid(const bt_rank_watch *w, int rank); /* 0: not watched */
/* Sends a signal to the live ranks and returns their number. */
int bt_rank_watch_signal(const bt_rank_watch *w, int signal);
/* Sends SIGKILL to the live ranks. */
void bt_rank_watch_kill(const bt_rank_watch *w);
/* Waits at most wait_s until no rank is alive, and reaps adopted ranks. Returns the number still alive. */
size_t bt_rank_watch_wait(bt_rank_watch *w, double wait_s);
void bt_rank_watch_close(bt_rank_watch *w);

#endif
