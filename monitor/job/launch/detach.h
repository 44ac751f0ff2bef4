/* detach.h - starts work in its own session that outlives this process: this program (a run started from the
 * screens), or a function. */
#ifndef BT_MONITOR_JOB_LAUNCH_DETACH_H
#define BT_MONITOR_JOB_LAUNCH_DETACH_H

#include <stdbool.h>

#include "engine/base/status.h"

/* argv: n words after the program, {"train", "--preset", ...}. Waits up to patience_s: a program that ends within
 * this time has failed, and its last line of output becomes the error. The output is written to an unnamed file, so a
 * closed terminal cannot stop the program. */
bt_code bt_job_detach(int n, const char *const *argv, double patience_s, bt_err *err) BT_MUST_CHECK;
/* Runs fn in a process without this process's terminal, locks and descriptors; returns immediately. The process must
 * have one thread only. Returns false, with nothing done, if that is impossible. */
bool bt_job_aside(void (*fn)(const void *ctx), const void *ctx);

#endif
