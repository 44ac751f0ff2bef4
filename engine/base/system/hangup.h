/* hangup.h - decides whether SIGHUP, sent when a terminal closes, should end this process. */
#ifndef BT_BASE_SYSTEM_HANGUP_H
#define BT_BASE_SYSTEM_HANGUP_H

#include <signal.h>
#include <stdbool.h>

/* Restores the disposition of SIGHUP that the parent process set. UCX, which Open MPI 5 loads, installs its own handler
 * before main begins, so that nohup would have no effect. main calls this function first. */
void bt_hangup_restore(void);

/* Returns false if this process ignores SIGHUP because its parent did, as with nohup. A signal that is ignored and
 * blocked is still queued, and sigwait and signalfd return it, so code that waits for signals checks this first.
 * Threads: any. */
bool bt_hangup_heeded(void);

/* Adds SIGHUP to a set of signals to wait for, unless the process ignores it. */
void bt_hangup_add(sigset_t *set);

#endif
