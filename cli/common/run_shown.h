/* run_shown.h - a job of ranks that this program runs once (monitor/job/launch/run_once.h), with a progress bar of what
 * its rank 0 says; and what such ranks say. */
#ifndef BT_CLI_COMMON_RUN_SHOWN_H
#define BT_CLI_COMMON_RUN_SHOWN_H

#include "monitor/job/launch/run_once.h"

/* what: before the bar; quiet: none. o->heard is set here */
bt_code bt_run_shown(const bt_run_once *o, const char *what, bool quiet, bt_text *result,
                     bt_err *err) BT_MUST_CHECK;

/* The end of a rank that failed: a line by which the program that started it knows why, and the job's end. */
void bt_run_shown_fail(bt_code code, const bt_err *err, int *exit_status);
/* On rank 0: so much of the job is done, 0..1; note is shown behind the bar. Others say nothing */
void bt_run_shown_say(double done, const char *note);

#endif
