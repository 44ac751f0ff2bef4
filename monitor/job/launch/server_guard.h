/* server_guard.h - restarts a server whose process was ended by a signal.
 *
 *   first process                its child
 *   bt_guard_begin  fork ---->   returns, serves, reports its progress in bt_guarded
 *   waits; forwards signals      exits, or is ended by a signal: then the next child starts
 *
 * It is for a server with its state on disk (bitrain hub), which survives abort() of a library and the kernel's
 * out-of-memory killer. An exit with any code ends both; so do TERM, INT, QUIT, HUP and USR1 to the first process,
 * which forwards them to the child's group (HUP as TERM). A child is killed when the first process dies. To be called
 * before any thread runs, and before starting anything that a fork does not copy. */
#ifndef BT_MONITOR_JOB_LAUNCH_SERVER_GUARD_H
#define BT_MONITOR_JOB_LAUNCH_SERVER_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_guarded { /* state shared by all processes of one server */
    bool serving; /* set by a child that serves; if no child ever served, a restart is useless */
    int64_t progress; /* set by a child: a number that grows with the server's progress */
    char place[128];  /* set by a child: listening address, for the following children */
    int restarts;     /* number of earlier processes */
    int signal;       /* signal that ended the previous process; 0: this is the first process */
} bt_guarded;

/* most: maximum number of consecutive processes without progress; the first starts immediately, the next after 1, 2,
 * 4 ... 60 s; 0: no guard, the caller serves. tell: receives a line for the user. Returns in every process that
 * serves, with *status -1, and in the first one when the server has ended: *status is its exit status. *out is never
 * freed; NULL with most 0. */
bt_code bt_guard_begin(bt_guarded **out, int64_t most, void (*tell)(const char *line), int *status,
                       bt_err *err) BT_MUST_CHECK;

/* Returns the delay before the next process. in_a_row: number of consecutive processes without progress. */
int bt_guard_delay_s(int64_t in_a_row);

#endif
