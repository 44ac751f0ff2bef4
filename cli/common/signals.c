/* signals.c - signal handlers that set flags for the training and restore the terminal. */
#include "cli/common/signals.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/os/own_process.h"
#include "monitor/job/launch/proc.h"

static bt_request_box *the_box;
static volatile sig_atomic_t seen;
static int is_direct, repeats_notices;
static time_t seen_s; /* time of the first signal */

/* A second signal ends the process at once. Two SIGTERM within a second count as one, and so do all under a batch
 * system (bt_job_signal). */
static void request_stop_on_signal(int sig) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const bool together = sig == SIGTERM && (repeats_notices || now.tv_sec - seen_s < 2);
    if (is_direct && seen && sig != SIGUSR1 && sig != SIGXCPU && !together) _exit(128 + sig);
    if (!seen) seen_s = now.tv_sec;
    seen = sig;
    atomic_fetch_or(&the_box->bits, (uint32_t)BT_REQ_STOP);
}

void bt_signals_rank(bt_request_box *box, int direct) {
    the_box = box;
    is_direct = direct;
    repeats_notices = bt_proc_batch_job();
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = request_stop_on_signal;
    a.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGXCPU, &a, NULL); /* the soft limit of processor time is an advance notice */
    if (direct) sigaction(SIGINT, &a, NULL);
    /* If mpirun is killed or receives two SIGTERM (`timeout` sends two), it exits without notifying its ranks, which
     * MPI then ends within about a second. SIGUSR1 is used because a second SIGTERM would end the process at once. */
    if (direct) bt_signal_at_parent_end(SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ,
           SIG_IGN); /* the file size limit becomes an error of write(), like a full disk */
}

int bt_signals_seen(void) { return seen; }

static struct termios saved;
static int guarded = -1;
static volatile sig_atomic_t full_screen;

void bt_signals_full_screen(bool on) { full_screen = on; }

void bt_signals_restore_terminal(void) {
    if (guarded >= 0) tcsetattr(guarded, TCSANOW, &saved);
}

/* SA_RESETHAND: raising the signal again ends the process as without a handler. */
static void end_after_fatal_signal(int sig) {
    static const char leave[] = /* bracketed paste and colours off, cursor on, primary screen */
        "\033[?2004l\033[0m\033[?25h\033[?1049l";
    bt_signals_restore_terminal();
    if (full_screen && write(STDOUT_FILENO, leave, sizeof leave - 1) < 0) full_screen = 0;
    raise(sig);
}

void bt_signals_guard_terminal(int fd) {
    if (guarded >= 0 || tcgetattr(fd, &saved) != 0) return;
    guarded = fd;
    atexit(bt_signals_restore_terminal);
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = end_after_fatal_signal;
    a.sa_flags = (int)(SA_RESETHAND | SA_NODEFER);
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) sigaction(fatal[i], &a, NULL);
}
