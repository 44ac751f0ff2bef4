/* hangup.h - decides whether SIGHUP, sent when a terminal closes, should end this process. */
#ifndef BT_BASE_SYSTEM_HANGUP_H
#define BT_BASE_SYSTEM_HANGUP_H

#include <signal.h>
#include <stdbool.h>

/* Gives SIGHUP the disposition again that the parent left. UCX, which Open MPI 5 loads, takes SIGHUP for its debugger
 * before main begins: nohup would have no effect. main calls this function before all others. */
void bt_hangup_restore(void);

/* False if this process ignores SIGHUP because its parent did, as with nohup. An ignored signal that is blocked is
 * queued anyway, and sigwait and signalfd return it; code that waits for signals therefore checks this first. Threads:
 * any. */
bool bt_hangup_heeded(void);

/* Adds SIGHUP to a set of signals to wait for, unless the process ignores it. */
void bt_hangup_add(sigset_t *set);

#endif
