/* hang_watch.h - detects a rank that could continue but does not, as opposed to one that lacks a processor, waits for
 * the disk or computes for a long time.
 *
 * Ten times per second each rank's activity (rank_progress.h) is compared with the previous one. While it is unchanged,
 * the rank's clock runs: for a runnable rank by the time that its threads ran, for a sleeping one by the time that
 * passed, minus the wait of its threads for a processor (both of /proc/PID/schedstat). The share that a hypervisor
 * gave to other machines (steal of /proc/stat over the busy and stolen time) is subtracted, and the delay of the
 * comparison itself (a stopped supervisor). The ranks that are furthest behind block all other ranks: if the clock of
 * each of them exceeds the limit, the run hangs.
 *
 *   activity                               limit, seconds
 *   data, compute, exchange, asleep:       max(2, 5 x median step, 3 x longest activity of this run)
 *    optimizer, records     awake:         the same with 6 instead of 2
 *                           before three steps: 30
 *   the same, blocked on disk              max(30, 10 x longest checkpoint or evaluation)
 *   checkpoint, evaluation                 the same
 *   start, pause, end, hub                 none (hub: islands.patience)
 *
 * A running rank has a larger limit than a sleeping one, because unreported steal time or a busy sibling hardware
 * thread looks like work. Observed disk waits extend the limit. Each detected hang doubles the limits of ordinary
 * activities, so that a false alarm does not repeat. Stopped ranks are not handled here.
 * Order: open -> attempt -> check* -> close. Threads: one. */
#ifndef BT_MONITOR_JOB_HEALTH_HANG_WATCH_H
#define BT_MONITOR_JOB_HEALTH_HANG_WATCH_H

#include "monitor/job/health/rank_progress.h"

typedef struct bt_rank_load { /* scheduling state of a process */
    /* state of the rank's main thread: R S D T ...; R if it sleeps and another thread runs */
    char state;
    /* time in which the rank's threads ran; time of their waits for a processor that have ended */
    int64_t ran_ns, waited_ns;
} bt_rank_load;

/* Reads the state; returns false if the process has ended. bt_rank_load_read reads /proc. */
typedef bool bt_rank_load_fn(void *ctx, int pid, bt_rank_load *out);
bool bt_rank_load_read(void *ctx, int pid, bt_rank_load *out);

typedef struct bt_machine_time { /* processor time of the machine since boot, in any unit */
    int64_t worked, stolen;
} bt_machine_time;

/* Returns false if unknown. bt_machine_time_read reads /proc/stat. */
typedef bool bt_machine_time_fn(void *ctx, bt_machine_time *out);
bool bt_machine_time_read(void *ctx, bt_machine_time *out);

typedef struct bt_hang_watch {
    bt_rank_load_fn *load;
    bt_machine_time_fn *time; /* set by open or by a test */
    void *ctx;
    bt_machine_time before;
    struct bt_hang_rank *rank; /* (n) */
    int n;
    int64_t last_ns;
    /* longest duration of an ordinary activity; of a checkpoint or evaluation */
    double longest_s, longest_io;
    int found;
} bt_hang_watch;

typedef struct bt_hang {
    int rank; /* -1: one of several ranks */
    double stuck_s, limit_s;
    char what[300]; /* activity of the rank and its duration */
} bt_hang;

/* load: bt_rank_load_read or a test's replacement */
bt_code bt_hang_open(bt_hang_watch *h, int ranks, bt_rank_load_fn *load, void *ctx, bt_err *err)
    BT_MUST_CHECK;
void bt_hang_close(bt_hang_watch *h); /* accepts all-zero */
/* Restarts the clocks for other ranks, or after the supervisor was stopped. */
void bt_hang_anew(bt_hang_watch *h);
/* Returns true once when the run hangs; the caller then ends the ranks. median_s: median step time, 0: too few
 * steps. */
bool bt_hang_check(bt_hang_watch *h, const bt_rank_progress *p, int64_t now_ns, double median_s,
                   bt_hang *out);

#endif
