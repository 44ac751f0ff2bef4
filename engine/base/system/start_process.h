/* start_process.h - starts a program, or a function in a process of its own.
 *
 * The child has three standard streams and none of our other descriptors, no blocked signal, and no handler or ignored
 * signal of ours. Threads: any; a function is started by a process with one thread. */
#ifndef BT_BASE_SYSTEM_START_PROCESS_H
#define BT_BASE_SYSTEM_START_PROCESS_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "engine/base/status.h"

typedef struct bt_start {
    const char *const *argv;     /* ends with NULL; a first word without '/' is found in PATH */
    char *const *env;            /* NULL: ours */
    void (*fn)(const void *ctx); /* instead of argv; the child ends with status 0 behind it */
    const void *ctx;
    int in, out, err; /* its standard streams; 0: /dev/null */
    const int *keep;  /* further descriptors that the program receives */
    size_t n_keep;
    const sigset_t *blocked; /* signals that are blocked in the program; NULL: none */
    const cpu_set_t *cores;  /* NULL: ours */
    bool session;            /* a session of its own, without a terminal */
    bool group;              /* a process group of its own: keys of the terminal do not reach it */
    bool orphan;             /* it is not reaped here: it becomes a child of init, and *pid is 0 */
    int parent_signal;       /* sent to it when the thread that started it ends; 0: none */
} bt_start;

/* 0, or the errno of the call that failed, exec included: then there is no child */
int bt_process_start(pid_t *pid, const bt_start *s);
/* the path of this program */
bt_code bt_own_program(char *out, size_t size, bt_err *err) BT_MUST_CHECK;

#endif
