/* viewer_process.h - a viewer beside a run (`train --dash`), in its own session. The viewer ends with the run; if the
 * supervisor dies, the kernel ends the viewer. Its output is shown on the screen; its failure never stops the
 * training. */
#ifndef BT_MONITOR_JOB_LAUNCH_VIEWER_PROCESS_H
#define BT_MONITOR_JOB_LAUNCH_VIEWER_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/status.h"

typedef struct bt_viewer {
    pid_t pid; /* 0: none */
    int out;   /* stdout and stderr of the viewer; -1: none */
    char line[512];
    size_t n;
} bt_viewer;

/* argv[0] is the program's path; the list ends with NULL. */
bt_code bt_viewer_start(bt_viewer *c, const char *const *argv, bt_err *err) BT_MUST_CHECK;
/* Returns the next complete line of the viewer's output, without newline; NULL: none at present. Sets *ended if the
 * viewer has exited, and then closes `out`. */
const char *bt_viewer_line(bt_viewer *c, bool *ended);
void bt_viewer_stop(bt_viewer *c); /* accepts an all-zero struct */

#endif
