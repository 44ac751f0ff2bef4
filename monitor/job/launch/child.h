/* child.h - this program once more as a child, which is asked to stop when we die.
 *
 * The child has a process group of its own: a key of the terminal reaches us alone, and we decide
 * what becomes of it. What it writes goes to a file. Threads: the main thread; the child is told of
 * its end. */
#ifndef BT_MONITOR_JOB_LAUNCH_CHILD_H
#define BT_MONITOR_JOB_LAUNCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/status.h"

typedef struct bt_child_cfg {
    const char *const *words; /* argv after the program's name */
    size_t n_words;
    const char *log; /* appended to */
    /* words in front of this program's path, of which the first is found in PATH: "srun", "-n", "1" */
    const char *const *launcher;
    size_t n_launcher;
    int part, parts; /* of the cores that we may use, the child has this part of so many */
} bt_child_cfg;

bt_code bt_child_start(pid_t *pid, const bt_child_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* true: it has ended; *status as waitpid gives it. Does not wait */
bool bt_child_ended(pid_t pid, int *status);
void bt_child_signal(pid_t pid, int signal);
/* the last line of a file, which may be open, made safe for a terminal; "" where there is none */
void bt_child_last_line(const char *log, char *out, size_t size);
void bt_child_last_line_of(int fd, char *out, size_t size);
/* From now on INT, TERM and HUP are remembered instead of ending us; returns the newest, 0: none */
int bt_child_signals(bool begin);

#endif
