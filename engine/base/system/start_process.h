/* start_process.h - starts a program, or a function, in a child process.
 *
 * The child receives three standard streams and no other descriptor, no blocked signal, and default signal handling.
 * Threads: any; to start a function, the process must have one thread. */
#ifndef BT_BASE_SYSTEM_START_PROCESS_H
#define BT_BASE_SYSTEM_START_PROCESS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/os/processors.h"
#include "engine/base/status.h"

typedef struct bt_start {
    const char *const *argv; /* ends with NULL; a first word without '/' is searched in PATH */
    char *const *env;        /* NULL: that of this process */
    void (*fn)(
        const void
            *ctx); /* called instead of argv; when it returns, the child exits with status 0 */
    const void *ctx;
    int in, out, err; /* standard streams of the child; 0: /dev/null */
    const int *keep;  /* other descriptors that the child inherits */
    size_t n_keep;
    const sigset_t *blocked; /* signals blocked in the child; NULL: none */
    const cpu_set_t *cores;  /* NULL: those of this process */
    bool session;            /* starts a new session without a terminal */
    bool group;        /* starts a new process group, which the terminal's keys do not signal */
    bool orphan;       /* the child's parent becomes init, which reaps it; *pid is 0 */
    int parent_signal; /* signal sent to the child when the thread that started it ends; 0: none */
} bt_start;

/* Returns 0, or the errno of the call that failed, including exec; then there is no child. */
int bt_process_start(pid_t *pid, const bt_start *s);
/* Returns the path of this program. */
bt_code bt_own_program(char *out, size_t size, bt_err *err) BT_MUST_CHECK;

#endif
