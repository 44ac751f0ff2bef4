/* run_shown.h - runs an MPI job once (monitor/job/launch/run_once.h) with a progress bar; and the reports that its
 * ranks send for it. */
#ifndef BT_CLI_COMMON_RUN_SHOWN_H
#define BT_CLI_COMMON_RUN_SHOWN_H

#include "monitor/job/launch/run_once.h"

/* Runs the job. what: label of the bar; quiet: no bar. Sets o->heard. */
bt_code bt_run_shown(const bt_run_once *o, const char *what, bool quiet, bt_text *result,
                     bt_err *err) BT_MUST_CHECK;

/* Ends a failed rank and its job: prints a line from which the starting program extracts the reason. */
void bt_run_shown_fail(bt_code code, const bt_err *err, int *exit_status);
/* On rank 0, reports the finished share of the job, 0..1, and a note to show beside the bar. Does nothing on other
 * ranks. */
void bt_run_shown_progress(double done, const char *note);

#endif
