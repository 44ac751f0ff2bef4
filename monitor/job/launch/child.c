/* child.c - starts this program as a child with a log, a share of the cores, and a parent-death signal. */
#include "monitor/job/launch/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/os/processors.h"
#include "engine/base/system/hangup.h"
#include "engine/base/system/start_process.h"
#include "engine/base/text.h"

static volatile sig_atomic_t seen;
static void note_child_signal(int signal) { seen = signal; }

int bt_child_signals(bool begin) {
    if (begin) {
        struct sigaction act = {.sa_handler = note_child_signal};
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

/* Computes the cores of a part; returns false for all cores. */
static bool choose_cores_of_part(int part, int parts, cpu_set_t *mine) {
    cpu_set_t all;
    const int count = parts < 2 ? 0 : bt_processors_allowed(&all);
    if (parts < 2 || count < parts) return false; /* the kernel distributes them */
    CPU_ZERO(mine);
    int at = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all)) continue;
        if (at >= count * part / parts && at < count * (part + 1) / parts) CPU_SET(cpu, mine);
        at++;
    }
    return true;
}

bt_code bt_child_start(pid_t *pid, const bt_child_cfg *cfg, bt_err *err) {
    char exe[1024];
    cpu_set_t cores;
    BT_TRY(bt_own_program(exe, sizeof exe, err));
    const char **argv = calloc(cfg->n_launcher + cfg->n_words + 2, sizeof *argv);
    size_t n = 0;
    if (!argv) return bt_fail(err, BT_NOMEM, "cannot start a run: out of memory");
    for (size_t i = 0; i < cfg->n_launcher; i++) argv[n++] = cfg->launcher[i];
    argv[n++] = exe;
    for (size_t i = 0; i < cfg->n_words; i++) argv[n++] = cfg->words[i];
    const int log = open(cfg->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    bt_code code = BT_OK;
    if (log < 0) {
        code = bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", cfg->log);
    } else {
        const bt_start s = {.argv = argv,
                            .out = log,
                            .err = log,
                            .group = true,
                            .parent_signal = SIGTERM,
                            .cores = choose_cores_of_part(cfg->part, cfg->parts, &cores) ? &cores
                                                                                         : NULL};
        const int e = bt_process_start(pid, &s);
        if (e) code = bt_fail_errno(err, BT_IO, e, "cannot start '%s'", argv[0]);
        close(log);
    }
    free(argv);
    return code;
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
