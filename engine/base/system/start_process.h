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
    /* terminated by NULL; the first word is searched in PATH if it contains no '/' */
    const char *const *argv;
    char *const *env; /* NULL: the environment of this process */
    /* called in the child instead of argv; when it returns, the child exits with status 0 */
    void (*fn)(const void *ctx);
    const void *ctx;
    int in, out, err; /* standard streams of the child; 0: /dev/null */
    const int *keep;  /* further descriptors that the child inherits */
    size_t n_keep;
    const sigset_t *blocked; /* signals blocked in the child; NULL: none */
    const cpu_set_t *cores;  /* processors of the child; NULL: those of this process */
    bool session;            /* starts a new session without a terminal */
    bool group;        /* starts a new process group, which keys of the terminal do not signal */
    bool orphan;       /* init becomes the parent of the child and reaps it; *pid is 0 */
    int parent_signal; /* signal sent to the child when the thread that started it ends; 0: none */
} bt_start;

/* Returns 0, or the errno of the failed call, including exec; then no child exists. */
int bt_process_start(pid_t *pid, const bt_start *s);
bt_code bt_own_program(char *out, size_t size, bt_err *err) BT_MUST_CHECK;

#endif
