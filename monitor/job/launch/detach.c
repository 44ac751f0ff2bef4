/* detach.c - fork, setsid, and exec of ourselves or a function. */
#include "monitor/job/launch/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/child.h"

static int unnamed_file(void) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    /* a file system without O_TMPFILE */
    char path[] = "/tmp/bitrain_XXXXXX";
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

/* out -1: nowhere */
static void leave(int out) {
    int null = open("/dev/null", O_RDWR);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* a handler of the screens means nothing there */
    for (int sig = 1; sig < NSIG; sig++) signal(sig, SIG_DFL);
    setsid();
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(out >= 0 ? out : null, STDOUT_FILENO);
    dup2(out >= 0 ? out : null, STDERR_FILENO);
    closefrom(3);
}

static _Noreturn void become(const char *exe, char *const *argv, int out) {
    leave(out);
    execv(exe, argv);
    _exit(127);
}

bt_code bt_job_detach(int n, const char *const *argv, double patience_s, bt_err *err) {
    char exe[1024];
    ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len < 0) return bt_fail_errno(err, BT_IO, errno, "cannot find this program");
    exe[len] = 0;
    char **words = calloc((size_t)n + 2, sizeof *words);
    if (!words) return bt_fail(err, BT_NOMEM, "cannot start a run: out of memory");
    words[0] = exe;
    for (int i = 0; i < n; i++) words[i + 1] = (char *)argv[i];
    /* runs started before that have ended */
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    int out = unnamed_file();
    pid_t pid = out >= 0 ? fork() : -1;
    if (pid == 0) become(exe, words, out);
    free(words);
    if (pid < 0) {
        int e = errno;
        if (out >= 0) close(out);
        return bt_fail_errno(err, BT_IO, e, "cannot start a run");
    }
    bt_code code = BT_OK;
    int64_t until = bt_now_ns() + (int64_t)(patience_s * 1e9);
    for (int status = 0; bt_now_ns() < until; bt_sleep_ns(20000000)) {
        if (waitpid(pid, &status, WNOHANG) != pid) continue;
        char line[400];
        bt_child_last_line_of(out, line, sizeof line);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            code = bt_fail(err, BT_ARG, "%s", line[0] ? line : "the run ended at once");
        break;
    }
    close(out);
    return code;
}

bool bt_job_aside(void (*fn)(const void *ctx), const void *ctx) {
    pid_t pid = fork();
    if (pid != 0) return pid > 0;
    leave(-1);
    fn(ctx);
    _exit(0);
}
