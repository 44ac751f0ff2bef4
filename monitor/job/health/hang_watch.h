/* hang_watch.h - detects a rank that could continue but does not, as opposed to one that is
 * starved, waits for the disk or does a long piece of work.
 *
 * Ten times per second each rank's activity (rank_progress.h) is compared with the previous one.
 * While a rank remains in the same activity its clock runs, minus the time in which its threads
 * were ready but had no processor (run-queue wait of /proc/PID/schedstat), minus the share that
 * a hypervisor gave to other machines (steal of /proc/stat over the processors' busy and stolen
 * time), and minus the delay of the comparison itself (a stopped or starved supervisor). The ranks
 * that are furthest behind hold up all other ranks: if the clock of each of them exceeds the
 * limit, the run hangs.
 *
 *     activity                    limit, seconds
 *     data, compute, exchange,    asleep: max(2, 5 x median step, 3 x longest activity of this run)
 *     optimizer, records          awake: the same with 6 instead of 2
 *                                 before three steps: 30
 *     the same, blocked on disk   max(30, 10 x longest checkpoint or evaluation)
 *     checkpoint, evaluation      the same
 *     start, pause, end, hub      none (hub: islands.patience)
 *
 * A running rank has a larger limit than a sleeping one, because a processor that its hypervisor
 * took away unreported, or that a neighbouring hardware thread slows down, looks like work. Disk
 * waits observed by the comparisons are added to the limit.
 *
 * Each detected hang doubles the limits of ordinary activities, so that a false alarm does not
 * repeat for ever. Stopped ranks are not handled here.
 * Order:    open -> attempt -> look* -> close.
 * Threads:  one. */
#ifndef BT_MONITOR_JOB_HEALTH_HANG_WATCH_H
#define BT_MONITOR_JOB_HEALTH_HANG_WATCH_H

#include "monitor/job/health/rank_progress.h"

typedef struct bt_rank_load { /* scheduling state of a process */
    /* state of its main thread: R S D T ...; also R if that sleeps and another one runs */
    char state;
    int64_t waited_ns; /* time in which its threads were ready but not running */
} bt_rank_load;

/* reads the state; false: the process has ended. The implementation for /proc is
 * bt_rank_load_read */
typedef bool bt_rank_load_fn(void *ctx, int pid, bt_rank_load *out);
bool bt_rank_load_read(void *ctx, int pid, bt_rank_load *out);

typedef struct bt_machine_time { /* processor time of the machine since boot, in any unit */
    int64_t worked, stolen;
} bt_machine_time;

/* false: unknown. The implementation for /proc/stat is bt_machine_time_read */
typedef bool bt_machine_time_fn(void *ctx, bt_machine_time *out);
bool bt_machine_time_read(void *ctx, bt_machine_time *out);

typedef struct bt_hang_watch {
    bt_rank_load_fn *load;
    bt_machine_time_fn *time; /* set by open, or by a test */
    void *ctx;
    bt_machine_time before;    /* at the newest comparison */
    struct bt_hang_rank *rank; /* (n) */
    int n;
    int64_t last_ns; /* time of the newest comparison */
    /* longest duration of an ordinary activity; of a checkpoint or evaluation */
    double longest_s, longest_io;
    int found; /* hangs so far */
} bt_hang_watch;

typedef struct bt_hang {
    int rank; /* -1: one of several, unknown which */
    double stuck_s, limit_s;
    char what[300]; /* activity of the rank and its duration */
} bt_hang;

/* load: bt_rank_load_read, or a test's replacement */
bt_code bt_hang_open(bt_hang_watch *h, int ranks, bt_rank_load_fn *load, void *ctx, bt_err *err)
    BT_MUST_CHECK;
void bt_hang_close(bt_hang_watch *h); /* accepts all-zero */
/* restarts the clocks: other ranks, or the supervisor was stopped */
void bt_hang_anew(bt_hang_watch *h);
/* median_s: median step time, 0: too few steps. true: the run hangs; reported once, the caller
 * ends the ranks */
bool bt_hang_check(bt_hang_watch *h, const bt_rank_progress *p, int64_t now_ns, double median_s,
                   bt_hang *out);

#endif
