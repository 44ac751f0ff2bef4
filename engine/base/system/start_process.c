/* start_process.c - the only place where the program calls fork and exec. */
#include "engine/base/system/start_process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/os/own_process.h"
#include "engine/base/os/processors.h"

/* Makes exec close all descriptors from 3 on, except those in `keep`. */
static void keep_only(const int *keep, size_t n) {
    if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0) { /* close_range needs Linux 5.11 */
        const long most = sysconf(_SC_OPEN_MAX);
        for (int fd = 3; fd < (most > 0 && most < 65536 ? most : 65536); fd++)
            fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    for (size_t i = 0; i < n; i++) fcntl(keep[i], F_SETFD, 0);
}

/* Runs in the child after fork, so it may only make system calls. */
static _Noreturn void exec_in_child(const bt_start *s, pid_t parent, int null, int why) {
    const int streams[] = {s->in, s->out, s->err};
    sigset_t none;
    int e = 0;
    sigemptyset(&none);
    for (int sig = 1; sig < NSIG; sig++) signal(sig, SIG_DFL);
    sigprocmask(SIG_SETMASK, s->blocked ? s->blocked : &none, NULL);
    if (s->session) setsid();
    if (s->group) setpgid(0, 0);
    if (s->parent_signal) bt_signal_at_parent_end(s->parent_signal);
    if (s->parent_signal && getppid() != parent)
        _exit(127); /* the parent ended before the signal was requested */
    if (s->cores) (void)bt_processors_bind(s->cores);
    for (int fd = 0; fd < 3 && !e; fd++)
        if (dup2(streams[fd] > 0 ? streams[fd] : null, fd) < 0) e = errno;
    if (!e && s->fn) {
        closefrom(3);
        s->fn(s->ctx);
        _exit(0);
    }
    keep_only(s->keep, s->n_keep);
    if (!e) {
        execvpe(s->argv[0], (char *const *)(uintptr_t)s->argv, s->env ? s->env : environ);
        e = errno;
    }
    _exit(write(why, &e, sizeof e) == sizeof e ? 127 : 126);
}

int bt_process_start(pid_t *pid, const bt_start *s) {
    const pid_t parent = getpid();
    int why[2], e = 0;
    *pid = -1;
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return errno;
    if (pipe2(why, O_CLOEXEC) != 0) {
        e = errno;
        close(null);
        return e;
    }
    const pid_t child = fork();
    if (child == 0) {
        if (s->orphan && fork() != 0) _exit(0);
        exec_in_child(s, parent, null, why[1]);
    }
    if (child < 0) e = errno;
    close(why[1]);
    close(null);
    while (!e && read(why[0], &e, sizeof e) < 0 && errno == EINTR) {}
    close(why[0]);
    if (child > 0 && (e || s->orphan))
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {}
    if (!e) *pid = s->orphan ? 0 : child;
    return e;
}

bt_code bt_own_program(char *out, size_t size, bt_err *err) {
    const ssize_t n = readlink(bt_program_file(), out, size - 1);
    if (n <= 0) return bt_fail_errno(err, BT_IO, errno, "cannot find the path of this program");
    out[n] = '\0';
    return BT_OK;
}
