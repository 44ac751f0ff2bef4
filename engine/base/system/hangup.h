/* hangup.h - decides if SIGHUP, sent when a terminal closes, should end this process. */
#ifndef BT_BASE_SYSTEM_HANGUP_H
#define BT_BASE_SYSTEM_HANGUP_H

#include <signal.h>
#include <stdbool.h>

/* False if the parent made this process ignore SIGHUP, as nohup does. A blocked signal is queued even if it is
 * ignored, so that sigwait and signalfd would return it anyway: code that waits for signals checks this first.
 * Threads: any. */
bool bt_hangup_heeded(void);

/* Adds SIGHUP to a set of signals to wait for, unless the process ignores it. */
void bt_hangup_add(sigset_t *set);

#endif
