/* restart.h - classifies the end of an attempt and decides on a restart. Pure functions without clock or system
 * calls. */
#ifndef BT_MONITOR_JOB_HEALTH_RESTART_H
#define BT_MONITOR_JOB_HEALTH_RESTART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef enum {
    BT_END_DONE,      /* rank 0 has sent its result, and mpirun exited 0 */
    BT_END_ERROR,     /* a rank reported an error and exited */
    BT_END_SIGNAL,    /* a rank (or mpirun) was ended by a signal */
    BT_END_OOM,       /* the kernel's out-of-memory killer ended a rank */
    BT_END_NODE_LOST, /* mpirun lost a remote daemon, or a host does not answer */
    BT_END_HUNG,      /* the supervisor ended the attempt for lack of progress */
    BT_END_LAUNCH,
    BT_END_STOPPED_NOW, /* the user ended the run immediately */
    BT_END_OTHER
} bt_end_kind;

typedef struct bt_end {
    bt_end_kind kind;
    int status;       /* mpirun's exit code, or 128 + signal */
    int rank, signal; /* -1 or 0 when unknown */
    bt_code code;
    int64_t step;      /* last recorded step of this attempt; -1: none */
    bool started;      /* a rank had connected */
    char host[64];     /* lost host, if known */
    char message[480]; /* reported error, or message of mpirun */
} bt_end;

typedef struct bt_end_facts { /* observations of the supervisor */
    int wait_status;          /* result of waitpid */
    bool hung, stop_now, started;
    bool finished; /* rank 0 has sent its result: the run is done, or was stopped on request */
    const char *lost_host; /* host without a response, for which the attempt was ended; or NULL */
    const char *lost_node; /* the host whose daemon mpirun reported as lost ("": unnamed); NULL */
    bool oom;              /* the kernel's out-of-memory killer ended a process of this job */
    bool reported;         /* a rank printed an error line */
    bt_code code;
    int rank, signal; /* from the error line or mpirun's message */
    int64_t step;
    const char *message, *last_line; /* reported message; last line of the output */
} bt_end_facts;

bt_end bt_end_classify(const bt_end_facts *f);
const char *bt_end_name(bt_end_kind kind);
/* Writes for example "rank 1 was ended by signal 9 (Killed) after step 41". */
const char *bt_end_describe(const bt_end *e, char *buf, size_t size);

/* Initialise with zeros. */
typedef struct bt_restart_history {
    int restarts;         /* all restarts of the run */
    int without_new_step; /* restarts since the last new step */
    int64_t furthest;     /* newest step that was ever recorded */
    bt_end last;
    bool any;
    bool
        alive; /* ranks have started before, so a failing launch means that a machine is unavailable */
    bool any_oom;
    int64_t oom_step; /* newest step before the last out-of-memory end */
} bt_restart_history;

typedef struct bt_restart {
    bool again;
    double delay_s;
    char why[160]; /* reason for not restarting */
} bt_restart;

/* Decides on a restart and adds the end to the history. from_step: first step of the ended attempt.
 *
 * A run continues as long as it makes progress. max_restarts limits consecutive restarts without a new step if the run
 * itself can be the cause; 0 forbids every restart. Other causes are limited in time:
 *   signals of other processes, lost hosts, failed launches              about six minutes
 *   files, memory or connections refused while a run restarts            about an hour
 * The second row applies to a run whose ranks had started before, because its state may exist in memory only. Damaged
 * state (BT_DAMAGED) is read again from the newest checkpoint. An error or a crash that repeats at the same step is
 * final. An out-of-memory end restarts after progress; the second one within 100 steps is final. */
bt_restart bt_restart_decide(bt_restart_history *h, const bt_end *e, int64_t from_step,
                             int64_t max_restarts);
/* Allows an immediate restart without the hosts at fault, however often the run was restarted before. */
bt_restart bt_restart_elsewhere(bt_restart_history *h);
/* Returns the delay in seconds before try n = 1, 2, ...: 1, 2, 4 ... 60. */
double bt_restart_delay_s(int n);
/* number of tries in about an hour with these delays */
enum { BT_RESTART_HOUR = 65 };
/* Returns the public exit code of a run that ends here. */
int bt_end_exit_code(const bt_end *e);

#endif
