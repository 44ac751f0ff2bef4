/* viewer_process.c - starts a viewer as this program in its own session. */
#include "monitor/job/launch/viewer_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/system/start_process.h"

bt_code bt_viewer_start(bt_viewer *c, const char *const *argv, bt_err *err) {
    int out[2];
    memset(c, 0, sizeof *c);
    c->out = -1;
    if (pipe2(out, O_CLOEXEC) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot make a pipe for '%s'", argv[1]);
    const bt_start s = {
        .argv = argv, .out = out[1], .err = out[1], .session = true, .parent_signal = SIGTERM};
    pid_t pid;
    const int e = bt_process_start(&pid, &s);
    close(out[1]);
    if (e) {
        close(out[0]);
        return bt_fail_errno(err, BT_IO, e, "cannot start '%s'", argv[0]);
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    c->pid = pid;
    c->out = out[0];
    return BT_OK;
}

const char *bt_viewer_line(bt_viewer *c, bool *ended) {
    *ended = false;
    while (c->out >= 0) {
        char ch;
        ssize_t k = read(c->out, &ch, 1); /* a run has only a few lines */
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return NULL;
        if (k == 0) {
            close(c->out);
            c->out = -1;
            *ended = true;
            return NULL;
        }
        if (ch != '\n') {
            if (c->n + 1 < sizeof c->line) c->line[c->n++] = ch;
            continue;
        }
        c->line[c->n] = '\0';
        c->n = 0;
        return c->line;
    }
    return NULL;
}

void bt_viewer_stop(bt_viewer *c) {
    if (c->pid <= 0) return;
    const int64_t until = bt_now_ns() + 2000000000;
    kill(c->pid, SIGTERM);
    while (waitpid(c->pid, NULL, WNOHANG) == 0) {
        if (bt_now_ns() > until) kill(c->pid, SIGKILL);
        bt_sleep_ns(5000000);
    }
    if (c->out >= 0) close(c->out);
    memset(c, 0, sizeof *c);
    c->out = -1;
}
