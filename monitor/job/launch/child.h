/* child.h - runs this program as a child that is stopped when its parent ends.
 *
 * The child has its own process group: a key of the terminal reaches only the parent, which decides about the child.
 * The output of the child is written to a file. Threads: only the main thread, whose end the kernel reports to the
 * child. */
#ifndef BT_MONITOR_JOB_LAUNCH_CHILD_H
#define BT_MONITOR_JOB_LAUNCH_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/status.h"

typedef struct bt_child_cfg {
    const char *const *words; /* argv after the program's name */
    size_t n_words;
    const char *log; /* file to which the child's output is appended */
    /* words before this program's path; the first is searched for in PATH: "srun", "-n", "1" */
    const char *const *launcher;
    size_t n_launcher;
    int part, parts; /* the child gets part number `part` of `parts` equal parts of the cores */
} bt_child_cfg;

bt_code bt_child_start(pid_t *pid, const bt_child_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Returns true if the child has ended; *status is that of waitpid. Does not block. */
bool bt_child_ended(pid_t pid, int *status);
void bt_child_signal(pid_t pid, int signal);
/* Returns the last line of a file, sanitised for a terminal; "" if there is none. The file may be open for writing. */
void bt_child_last_line(const char *log, char *out, size_t size);
void bt_child_last_line_of(int fd, char *out, size_t size);
/* begin: INT, TERM and HUP are recorded from now on instead of ending this process. Returns the newest signal, 0:
 * none. */
int bt_child_signals(bool begin);

#endif
