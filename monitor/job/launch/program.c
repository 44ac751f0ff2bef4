/* program.c - forks, begins a session, executes. */
#include "monitor/job/launch/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <unistd.h>

/* between fork and exec: system calls only */
static void become(const char *const *argv, int out, pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(1);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(127);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

bt_code bt_program_start(const char *const *argv, const char *log, pid_t *pid, bt_err *err) {
    const int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", log);
    const pid_t parent = getpid();
    *pid = fork();
    if (*pid == 0) become(argv, out, parent);
    close(out);
    return *pid < 0 ? bt_fail_errno(err, BT_IO, errno, "cannot start '%s'", argv[0]) : BT_OK;
}
