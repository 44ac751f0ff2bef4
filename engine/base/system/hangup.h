/* hangup.h - whether SIGHUP, which the end of a terminal sends, is to end this process. */
#ifndef BT_BASE_SYSTEM_HANGUP_H
#define BT_BASE_SYSTEM_HANGUP_H

#include <signal.h>
#include <stdbool.h>

/* False when the parent made this process ignore SIGHUP, as nohup does. A blocked signal is queued even where it is
 * ignored, so sigwait and signalfd would hand it out all the same: who waits for signals asks here first. Threads:
 * any. */
bool bt_hangup_heeded(void);

/* Adds SIGHUP to a set of signals to wait for, unless the process ignores it. */
void bt_hangup_add(sigset_t *set);

#endif
