/* hang_watch.h - a rank that does not go on although it could: named and told from one that is starved,
 * waits for the disk or is in a long piece of work.
 *
 * A look, ten times a second, compares each rank's place (rank_progress.h) with the one before. The clock of
 * a rank that stays where it is runs, less the time that its threads were ready and got no processor (the
 * run-queue wait of /proc/PID/schedstat), less the share of it that a hypervisor gave to other machines
 * (steal of /proc/stat, over what the processors worked and were denied), and less the time that the looker
 * itself came late (a stopped or starved supervisor). The ranks that are furthest behind hold up all others:
 * when the clock of every one of them is beyond the limit, the run hangs.
 *
 *     place                       limit, seconds
 *     data, compute, exchange,    asleep: max(2, 5 x median step, 3 x longest stay of this run)
 *     optimizer, records          none asleep: the same with 6 in the place of 2
 *                                 before three steps: 30
 *     the same, blocked on disk   max(30, 10 x longest stay in a checkpoint or an evaluation)
 *     checkpoint, evaluation      the same
 *     start, pause, end, hub      none (of a hub: islands.patience)
 *
 * A rank that runs has longer than one that sleeps: a processor that its hypervisor does not say it took away, or
 * that a neighbour on the other hardware thread slows down, looks like work. What a rank waited for the disk on
 * the way, as the looks saw it, is added to its limit.
 *
 * Each hang that was found doubles the limits of ordinary places: what only seems to hang is not ended
 * for ever. A stopped rank is not looked at here.
 * Order:    open -> attempt -> look* -> close. Threads: one. */
#ifndef BT_MONITOR_JOB_HEALTH_HANG_WATCH_H
#define BT_MONITOR_JOB_HEALTH_HANG_WATCH_H

#include "monitor/job/health/rank_progress.h"

typedef struct bt_rank_load { /* of a process */
    char state; /* of its main thread: R S D T ...; R as well where that sleeps and another runs */
    int64_t waited_ns; /* that its threads were ready to run and did not */
} bt_rank_load;

/* reads it; false: no such process any more. Of /proc: bt_rank_load_read */
typedef bool bt_rank_load_fn(void *ctx, int pid, bt_rank_load *out);
bool bt_rank_load_read(void *ctx, int pid, bt_rank_load *out);

typedef struct bt_machine_time { /* of all processors since the system started, any unit */
    int64_t worked, stolen;
} bt_machine_time;

/* false: not known. Of /proc/stat: bt_machine_time_read */
typedef bool bt_machine_time_fn(void *ctx, bt_machine_time *out);
bool bt_machine_time_read(void *ctx, bt_machine_time *out);

typedef struct bt_hang_watch {
    bt_rank_load_fn *load;
    bt_machine_time_fn *time; /* as open sets it, or a test's own */
    void *ctx;
    bt_machine_time before;    /* at the newest look */
    struct bt_hang_rank *rank; /* (n) */
    int n;
    int64_t last_ns;              /* of the newest look */
    double longest_s, longest_io; /* stays in ordinary places; in checkpoints and evaluations */
    int found;                    /* hangs so far */
} bt_hang_watch;

typedef struct bt_hang {
    int rank; /* -1: several, and nobody can say which */
    double stuck_s, limit_s;
    char what[300]; /* who is where, since when */
} bt_hang;

/* load: bt_rank_load_read, or a test's own */
bt_code bt_hang_open(bt_hang_watch *h, int ranks, bt_rank_load_fn *load, void *ctx, bt_err *err)
    BT_MUST_CHECK;
void bt_hang_close(bt_hang_watch *h); /* accepts all-zero */
/* clocks begin anew: other ranks, or the supervisor was stopped */
void bt_hang_anew(bt_hang_watch *h);
/* median_s of a step, 0: too few. true: the run hangs; told once, the caller ends the ranks */
bool bt_hang_look(bt_hang_watch *h, const bt_rank_progress *p, int64_t now_ns, double median_s,
                  bt_hang *out);

#endif
