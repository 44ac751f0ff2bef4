/* program.h - runs a program in the background with its output in a file; it ends with this
 * process.
 *
 * Threads:  one caller, which waits for the process itself (waitpid). */
#ifndef BT_MONITOR_JOB_LAUNCH_PROGRAM_H
#define BT_MONITOR_JOB_LAUNCH_PROGRAM_H

#include <sys/types.h>

#include "engine/base/status.h"

/* argv is NULL-terminated; argv[0] is an absolute path. The program runs in a session of its
 * own, without a terminal, and receives TERM when this process ends. Its output is appended to
 * the file. */
bt_code bt_program_start(const char *const *argv, const char *log, pid_t *pid, bt_err *err)
    BT_MUST_CHECK;

#endif
