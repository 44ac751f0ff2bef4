/* detach.c - starts this program or a function in its own session. */
#include "monitor/job/launch/detach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/unnamed_file.h"
#include "engine/base/system/start_process.h"
#include "monitor/job/launch/child.h"

static int open_unnamed_file(void) {
    int fd = bt_file_create_unnamed("/tmp", 0600);
    if (fd >= 0) return fd;
    /* Some file systems have no unnamed files, so the name of a new file is removed. */
    char path[] = "/tmp/bitrain_XXXXXX";
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

bt_code bt_job_detach(int n, const char *const *argv, double patience_s, bt_err *err) {
    char exe[1024];
    BT_TRY(bt_own_program(exe, sizeof exe, err));
    const char **words = calloc((size_t)n + 2, sizeof *words);
    if (!words) return bt_fail(err, BT_NOMEM, "cannot start a run: out of memory");
    words[0] = exe;
    for (int i = 0; i < n; i++) words[i + 1] = argv[i];
    /* Reaps ended runs that were started before. */
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    int out = open_unnamed_file();
    int e = out < 0 ? errno : 0;
    pid_t pid;
    const bt_start s = {.argv = words, .out = out, .err = out, .session = true};
    if (!e) e = bt_process_start(&pid, &s);
    free(words);
    if (e) {
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
    pid_t pid;
    return bt_process_start(&pid, &(bt_start){.fn = fn, .ctx = ctx, .session = true}) == 0;
}
