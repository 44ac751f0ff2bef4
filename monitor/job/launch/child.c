/* child.c - fork and exec of ourselves with a log, a share of the cores and a parent to follow. */
#include "monitor/job/launch/child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/system/hangup.h"
#include "engine/base/text.h"

static volatile sig_atomic_t seen;
static void on_signal(int signal) { seen = signal; }

int bt_child_signals(bool begin) {
    if (begin) {
        struct sigaction act = {.sa_handler = on_signal};
        sigemptyset(&act.sa_mask);
        seen = 0;
        sigaction(SIGINT, &act, NULL);
        sigaction(SIGTERM, &act, NULL);
        if (bt_hangup_heeded()) sigaction(SIGHUP, &act, NULL);
    }
    const int now = seen;
    seen = 0;
    return now;
}

static void take_cores(int part, int parts) {
    cpu_set_t all, mine;
    if (parts < 2 || sched_getaffinity(0, sizeof all, &all) != 0) return;
    const int count = CPU_COUNT(&all);
    if (count < parts) return; /* the kernel shares them out */
    CPU_ZERO(&mine);
    int at = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        if (at >= count * part / parts && at < count * (part + 1) / parts) CPU_SET(cpu, &mine);
        at++;
    }
    sched_setaffinity(0, sizeof mine, &mine);
}

static _Noreturn void become(const char *exe, char *const *argv, const bt_child_cfg *cfg, int log,
                             pid_t parent) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++) signal(sig, SIG_DFL);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127); /* it died before the line above */
    take_cores(cfg->part, cfg->parts);
    const int null = open("/dev/null", O_RDONLY);
    if (null >= 0) dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    closefrom(3);
    if (cfg->n_launcher > 0)
        execvp(argv[0], argv);
    else
        execv(exe, argv);
    _exit(127);
}

bt_code bt_child_start(pid_t *pid, const bt_child_cfg *cfg, bt_err *err) {
    char exe[1024];
    const ssize_t len = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (len < 0) return bt_fail_errno(err, BT_IO, errno, "cannot find this program");
    exe[len] = 0;
    char **argv = calloc(cfg->n_launcher + cfg->n_words + 2, sizeof *argv);
    size_t n = 0;
    if (!argv) return bt_fail(err, BT_NOMEM, "cannot start a run: out of memory");
    for (size_t i = 0; i < cfg->n_launcher; i++) argv[n++] = (char *)(uintptr_t)cfg->launcher[i];
    argv[n++] = exe;
    for (size_t i = 0; i < cfg->n_words; i++) argv[n++] = (char *)(uintptr_t)cfg->words[i];
    const int log = open(cfg->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    const pid_t us = getpid();
    int e = errno;
    *pid = log >= 0 ? fork() : -1;
    if (*pid == 0) become(exe, argv, cfg, log, us);
    if (log >= 0) {
        e = errno;
        close(log);
    }
    free(argv);
    if (log < 0) return bt_fail_errno(err, BT_IO, e, "cannot open '%s'", cfg->log);
    return *pid > 0 ? BT_OK : bt_fail_errno(err, BT_IO, e, "cannot start a run");
}

bool bt_child_ended(pid_t pid, int *status) { return waitpid(pid, status, WNOHANG) == pid; }

void bt_child_signal(pid_t pid, int signal) { kill(pid, signal); }

void bt_child_last_line_of(int fd, char *out, size_t size) {
    char buf[4096], raw[480];
    const off_t end = lseek(fd, 0, SEEK_END),
                from = end > (off_t)sizeof buf - 1 ? end - (off_t)sizeof buf + 1 : 0;
    ssize_t n = pread(fd, buf, sizeof buf - 1, from);
    for (n = n > 0 ? n : 0; n > 0 && buf[n - 1] == '\n'; n--) {}
    buf[n] = 0;
    const char *line = strrchr(buf, '\n');
    snprintf(raw, sizeof raw, "%.479s", line ? line + 1 : buf);
    bt_text_plain(out, size, raw);
}

void bt_child_last_line(const char *log, char *out, size_t size) {
    const int fd = open(log, O_RDONLY | O_CLOEXEC);
    out[0] = 0;
    if (fd < 0) return;
    bt_child_last_line_of(fd, out, size);
    close(fd);
}
