/* server_guard.h - a server whose process is ended by a signal goes on in a new one.
 *
 *     first process                    its child
 *     bt_guard_begin ------ fork ----> returns, serves, says in bt_guarded how far it is
 *     waits; hands signals on          exits, or is ended by a signal: then the next one
 *
 * For a server that keeps what it has promised on the disk (bitrain hub): abort() of a library, or the kernel short of
 * memory, is no end of it. An exit, of whatever code, ends both; so do TERM, INT, QUIT, HUP and USR1 to the first
 * process, which the child gets in its own group (HUP as TERM). A child is killed when the first process dies.
 * Threads: none may run yet, and nothing may have been started that a fork does not copy. */
#ifndef BT_MONITOR_JOB_LAUNCH_SERVER_GUARD_H
#define BT_MONITOR_JOB_LAUNCH_SERVER_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_guarded { /* of all processes of one server, in memory that they share */
    bool serving;           /* set by a child: from now on it is worth starting again */
    int64_t progress;       /* set by a child: any number that grows with what it has done */
    char place[128];        /* set by a child for those after it: where it listens */
    int restarts;           /* processes before this one */
    int signal;             /* that ended the one before; 0: this is the first one */
} bt_guarded;

/* most: so many in a row are started that bring no progress, the first at once, the others after 1, 2, 4 ... 60 s;
 * 0: no guard, the caller serves. tell: a line for whoever started the server.
 * Returns in every process that is to serve, with *status -1, and in the first one when the server is over: *status is
 * its exit status. *out is never freed; NULL with most 0 */
bt_code bt_guard_begin(bt_guarded **out, int64_t most, void (*tell)(const char *line), int *status,
                       bt_err *err) BT_MUST_CHECK;

/* how long is waited before another process, after so many that brought no progress */
int bt_guard_delay_s(int64_t in_a_row);

#endif
