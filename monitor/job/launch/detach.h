/* detach.h - work in a session of its own that outlives us: this program once more (how the screens
 * start a run), or a function. */
#ifndef BT_MONITOR_JOB_LAUNCH_DETACH_H
#define BT_MONITOR_JOB_LAUNCH_DETACH_H

#include <stdbool.h>

#include "engine/base/status.h"

/* argv without the program: {"train", "--preset", ...}, n words. Waits up to patience_s: a program
 * that ends so soon has failed, and the last line it wrote becomes the error. What it writes goes
 * to an unnamed file: a terminal that goes away cannot stop it. */
bt_code bt_job_detach(int n, const char *const *argv, double patience_s, bt_err *err) BT_MUST_CHECK;
/* fn in a process without terminal, locks and descriptors of ours; returns at once. Call with one
 * thread only. False: it was not possible, and nothing was done */
bool bt_job_aside(void (*fn)(const void *ctx), const void *ctx);

#endif
