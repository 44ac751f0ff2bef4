/* program.h - a program in the background, its output in a file; it ends when we do.
 *
 * Threads: one caller, which waits for the process itself (waitpid). */
#ifndef BT_MONITOR_JOB_LAUNCH_PROGRAM_H
#define BT_MONITOR_JOB_LAUNCH_PROGRAM_H

#include <sys/types.h>

#include "engine/base/status.h"

/* argv[0] is its absolute path, NULL-terminated. In a session of its own, without a terminal; TERM when
 * this process ends. What it writes is appended to the file. */
bt_code bt_program_start(const char *const *argv, const char *log, pid_t *pid, bt_err *err)
    BT_MUST_CHECK;

#endif
