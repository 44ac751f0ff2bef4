/* server_guard.c - starts a server in a child process, and starts it again when a signal ends it. */
#include "monitor/job/launch/server_guard.h"
#include "engine/base/os/own_process.h"
#include "engine/base/system/hangup.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_S = 60 };

typedef struct guard {
    bt_guarded *child;
    void (*tell)(const char *line);
    sigset_t taken, before;
    int asked;        /* signal that requested the end; 0: none */
    int64_t in_a_row; /* consecutive processes without progress */
    int64_t progress; /* progress when the newest process began */
} guard;

static void block_guard_signals(guard *g) {
    static const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGUSR1};
    signal(SIGCHLD, SIG_DFL); /* with an ignored SIGCHLD, waitpid would find no child */
    sigemptyset(&g->taken);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sigaddset(&g->taken, all[i]);
    bt_hangup_add(&g->taken);
    sigprocmask(SIG_BLOCK, &g->taken, &g->before);
}

/* The child has its own process group: a key of the terminal reaches only the guard, which forwards it. */
static bool begin_served_child(const guard *g, pid_t parent) {
    setpgid(0, 0);
    bt_signal_at_parent_end(SIGKILL);
    sigprocmask(SIG_SETMASK, &g->before, NULL);
    return getppid() == parent;
}

static int wait_for_server(guard *g, pid_t child) {
    for (int status = 0;;) {
        const int sig = sigwaitinfo(&g->taken, NULL);
        if (waitpid(child, &status, WNOHANG) == child) return status;
        if (sig <= 0 || sig == SIGCHLD) continue;
        g->asked = sig;
        kill(child, sig == SIGHUP ? SIGTERM : sig); /* a server has no terminal */
    }
}

/* Waits; returns true if a signal requested the end meanwhile. */
static bool wait_for_guard_signal(const guard *g, int seconds) {
    struct timespec now, until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    for (;;) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        struct timespec left = {until.tv_sec - now.tv_sec, until.tv_nsec - now.tv_nsec};
        if (left.tv_nsec < 0) left = (struct timespec){left.tv_sec - 1, left.tv_nsec + 1000000000L};
        if (left.tv_sec < 0) return false;
        const int sig = sigtimedwait(&g->taken, NULL, &left);
        if (sig > 0 && sig != SIGCHLD) return true;
    }
}

int bt_guard_delay_s(int64_t in_a_row) {
    const int64_t n = in_a_row - 1;
    if (n <= 0) return 0;
    return n > 6 ? LONGEST_S : 1 << (n - 1);
}

static void report_server_end(const guard *g, int sig, const char *what) {
    char line[240];
    snprintf(line, sizeof line, "its process was ended by signal %d (%s)%s", sig, strsignal(sig),
             what);
    if (g->tell) g->tell(line);
}

/* Returns true to start another process. *status: 0 if an end was requested before. */
static bool decide_restart(guard *g, int sig, int64_t most, int *status) {
    char what[120] = "; it is started again";
    bt_guarded *child = g->child;
    g->in_a_row = child->progress > g->progress ? 1 : g->in_a_row + 1;
    g->progress = child->progress;
    child->signal = sig;
    if (g->asked || !child->serving) {
        report_server_end(g, sig, g->asked ? " on its way out" : "");
        return false;
    }
    if (g->in_a_row > most) {
        snprintf(what, sizeof what,
                 ", %lld times without progress: it is not started again (--restarts)",
                 (long long)g->in_a_row);
        report_server_end(g, sig, what);
        return false;
    }
    const int delay = bt_guard_delay_s(g->in_a_row);
    if (delay) snprintf(what, sizeof what, "; it is started again in %d s", delay);
    report_server_end(g, sig, what);
    child->restarts++;
    const bool asked = wait_for_guard_signal(g, delay);
    if (asked) *status = 0;
    return !asked;
}

bt_code bt_guard_begin(bt_guarded **out, int64_t most, void (*said)(const char *line), int *status,
                       bt_err *err) {
    guard g = {.tell = said};
    *out = NULL;
    *status = -1;
    if (most == 0) return BT_OK;
    g.child = mmap(NULL, sizeof *g.child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0);
    if (g.child == MAP_FAILED)
        return bt_fail_errno(err, BT_NOMEM, errno, "cannot take memory for a second process");
    *out = g.child;
    block_guard_signals(&g);
    for (;;) {
        const pid_t self = getpid();
        fflush(NULL);
        const pid_t child = fork();
        if (child < 0) {
            bt_fail_errno(err, BT_IO, errno, "cannot start a second process");
            munmap(g.child, sizeof *g.child);
            *out = NULL;
            return err ? err->code : BT_IO;
        }
        if (child == 0) {
            *status = -1;
            if (begin_served_child(&g, self)) return BT_OK;
            return bt_fail(err, BT_STOPPED, "the first process is gone");
        }
        const int how = wait_for_server(&g, child);
        *status = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        if (WIFEXITED(how) || !decide_restart(&g, WTERMSIG(how), most, status)) return BT_OK;
    }
}
