/* restart.h - classifies the end of an attempt and decides on a restart. Pure functions: no
 * clock, no system call. */
#ifndef BT_MONITOR_JOB_HEALTH_RESTART_H
#define BT_MONITOR_JOB_HEALTH_RESTART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef enum {
    BT_END_DONE,        /* rank 0 has sent its result, and mpirun exited 0 */
    BT_END_ERROR,       /* a rank reported an error and left */
    BT_END_SIGNAL,      /* a rank (or mpirun) was ended by a signal */
    BT_END_OOM,         /* ... by the kernel's out-of-memory killer */
    BT_END_NODE_LOST,   /* mpirun lost a remote daemon, or a host does not answer */
    BT_END_HUNG,        /* we ended it: no progress */
    BT_END_LAUNCH,      /* mpirun could not start the ranks */
    BT_END_STOPPED_NOW, /* the user ended it immediately */
    BT_END_OTHER
} bt_end_kind;

typedef struct bt_end {
    bt_end_kind kind;
    int status;        /* mpirun's exit code, or 128 + signal */
    int rank, signal;  /* -1, 0 when unknown */
    bt_code code;      /* code of the reported error */
    int64_t step;      /* last step recorded in this attempt; -1 none */
    bool started;      /* a rank had connected */
    char host[64];     /* lost host, if known */
    char message[480]; /* reported error, or mpirun's message */
} bt_end;

typedef struct bt_end_facts { /* observations of the supervisor */
    int wait_status;          /* of waitpid */
    bool hung, stop_now, started;
    bool finished; /* rank 0 has sent its result: all steps are done, or it stopped on request */
    const char *lost_host; /* the attempt was ended because this host did not answer; NULL */
    const char *lost_node; /* the host whose daemon mpirun reported as lost ("": unnamed); NULL */
    bool oom;              /* the kernel's out-of-memory killer ended a process of this job */
    bool reported;         /* a rank wrote an error line */
    bt_code code;
    int rank, signal; /* taken from the error line or mpirun's notice */
    int64_t step;
    const char *message, *last_line; /* reported message; last line of the output */
} bt_end_facts;

bt_end bt_end_classify(const bt_end_facts *f);
const char *bt_end_name(bt_end_kind kind);
/* "rank 1 was ended by signal 9 (Killed) after step 41" */
const char *bt_end_describe(const bt_end *e, char *buf, size_t size);

/* all zero at first */
typedef struct bt_restart_history {
    int restarts;         /* all of them */
    int without_new_step; /* restarts since the last new step */
    int64_t furthest;     /* newest step that was ever recorded */
    bt_end last;
    bool any;
    bool alive; /* ranks had started before, so a failing launch means that a machine is away */
    bool any_oom;
    int64_t oom_step; /* newest step before the last out-of-memory end */
} bt_restart_history;

typedef struct bt_restart {
    bool again;
    double delay_s;
    char why[160]; /* why not again */
} bt_restart;

/* A run continues as long as it makes progress. max_restarts limits consecutive restarts without
 * a new step if the run itself can be the cause; 0 forbids every restart. Causes outside the run
 * are limited in time instead:
 *     signals of other processes, lost hosts, failed launches       about six minutes
 *     files, memory or connections refused while a run restarts     about an hour
 * The second row applies to a run whose ranks had started before: its state may exist in memory
 * only. Damaged state (BT_DAMAGED) is reread from the newest checkpoint. An error or a crash
 * that repeats at the same step is final. An out-of-memory end restarts after progress; the
 * second one within 100 steps is final. from_step: first step of the ended attempt. Adds the end
 * to the history. */
bt_restart bt_restart_decide(bt_restart_history *h, const bt_end *e, int64_t from_step,
                             int64_t max_restarts);
/* Restarts after the same end without the hosts at fault: immediately, regardless of earlier
 * attempts */
bt_restart bt_restart_elsewhere(bt_restart_history *h);
/* Seconds before try n = 1, 2, ... of something that failed: 1, 2, 4 ... 60. */
double bt_restart_delay_s(int n);
/* tries of about an hour with these delays */
enum { BT_RESTART_HOUR = 65 };
/* public exit code of a run that ends here */
int bt_end_exit_code(const bt_end *e);

#endif
