/* A server under its guard, which starts it again after it dies: the ends after which it is started again, data passed
 * to the new process, forwarded signals, messages and exit code of the guard. The first process, a child of the test,
 * writes its log to a pipe. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/launch/server_guard.h"

static int story; /* the pipe to which the first process and its children write */

static void write_story_line(const char *line) { dprintf(story, "%s\n", line); }

/* Runs the server as these words describe: s: it serves; p: it made progress; a signal's number: the signal kills it; e
 * and a number: it exits; w: it waits for a signal. */
static void live_one_life(bt_guarded *g, const char *life, pid_t first) {
    int death = 0, number;
    sigset_t blocked;
    prctl(PR_GET_PDEATHSIG, &death);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    dprintf(story, "life %d after signal %d%s%s%s\n", g->restarts, g->signal,
            getpgid(0) == getpid() && getppid() == first ? "" : " in another's group",
            death == SIGKILL ? "" : " outlives its guard",
            sigismember(&blocked, SIGTERM) || sigismember(&blocked, SIGCHLD) ? " deaf" : "");
    for (; *life; life++) {
        if (*life == 's') g->serving = true;
        if (*life == 'p') g->progress++;
        if (*life == 'w') {
            write_story_line("waits");
            for (;;) pause();
        }
        if (*life == 'e') exit(atoi(life + 1));
        if (sscanf(life, "%d", &number) == 1) {
            kill(getpid(), number);
            _exit(99);
        }
    }
    _exit(98);
}

/* Runs the first process: each start of the server follows the next text of `lives`, and the last text is repeated. */
static void first_process(int64_t most, const char *const *lives) {
    bt_guarded *g = NULL;
    bt_err err = BT_ERR_INIT;
    int status = 5;
    const pid_t first = getpid();
    signal(SIGCHLD, SIG_IGN); /* some parents leave SIGCHLD ignored */
    /* Parents such as nohup and a shell's & may leave these signals ignored. */
    static const int heeded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof heeded / sizeof *heeded; i++) signal(heeded[i], SIG_DFL);
    prctl(PR_SET_PDEATHSIG, 0);
    if (bt_guard_begin(&g, most, write_story_line, &status, &err) != BT_OK) _exit(97);
    if (status == -1) live_one_life(g, lives[g->restarts], first);
    dprintf(story, "over: %d\n", status);
    exit(0);
}

/* Starts the first process; if pid is not NULL, it receives its id and the process is not reaped. */
static int begin_guard(int64_t most, const char *const *lives, pid_t *pid) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        close(ends[0]);
        story = ends[1];
        alarm(60);
        first_process(most, lives);
    }
    close(ends[1]);
    return ends[0];
}

static void read_until(int fd, char *out, size_t size, const char *until) {
    size_t n = strlen(out);
    ssize_t k;
    while ((!until || !strstr(out, until)) && (k = read(fd, out + n, size - 1 - n)) > 0)
        out[n += (size_t)k] = '\0';
}

static void assert_output_of_lives(int64_t most, const char *const *lives, const char *want) {
    char got[4096] = "";
    pid_t pid;
    int status, fd = begin_guard(most, lives, &pid);
    read_until(fd, got, sizeof got, NULL);
    close(fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_string_equal(got, want);
}
#define LIVES(...) \
    (const char *const[]) { __VA_ARGS__ }

static void an_exit_ends_both(void **state) {
    (void)state;
    assert_output_of_lives(5, LIVES("se0"), "life 0 after signal 0\nover: 0\n");
    assert_output_of_lives(5, LIVES("se7"), "life 0 after signal 0\nover: 7\n");
}

static void a_signal_is_followed_by_another_process(void **state) {
    (void)state;
    assert_output_of_lives(5, LIVES("sp6", "sp9", "se3"),
                           "life 0 after signal 0\n"
                           "its process was ended by signal 6 (Aborted); it is started again\n"
                           "life 1 after signal 6\n"
                           "its process was ended by signal 9 (Killed); it is started again\n"
                           "life 2 after signal 9\nover: 3\n");
}

static void a_server_that_never_served_is_not_restarted(void **state) {
    (void)state;
    assert_output_of_lives(
        5, LIVES("p9"),
        "life 0 after signal 0\nits process was ended by signal 9 (Killed)\nover: 137\n");
}

/* The first restart is immediate and the second follows after a second; progress resets the count. */
static void restarts_without_progress_end(void **state) {
    (void)state;
    assert_output_of_lives(
        1, LIVES("sp6", "sp6", "s6", "s6"),
        "life 0 after signal 0\nits process was ended by signal 6 (Aborted); it is started again\n"
        "life 1 after signal 6\nits process was ended by signal 6 (Aborted); it is started again\n"
        "life 2 after signal 6\nits process was ended by signal 6 (Aborted), 2 times without "
        "progress: it is "
        "not started again (--restarts)\nover: 134\n");
    assert_output_of_lives(
        2, LIVES("s6", "s6", "s9"),
        "life 0 after signal 0\nits process was ended by signal 6 (Aborted); it is started again\n"
        "life 1 after signal 6\n"
        "its process was ended by signal 6 (Aborted); it is started again in 1 s\n"
        "life 2 after signal 6\nits process was ended by signal 9 (Killed), 3 times without "
        "progress: it is "
        "not started again (--restarts)\nover: 137\n");
}

/* Signals to the first process are forwarded to the server, which has its own process group; HUP is sent as TERM. */
static void signals_are_forwarded_to_the_server(void **state) {
    (void)state;
    static const struct {
        int sent, got;
        const char *name;
    } rows[] = {{SIGTERM, SIGTERM, "Terminated"},
                {SIGINT, SIGINT, "Interrupt"},
                {SIGQUIT, SIGQUIT, "Quit"},
                {SIGUSR1, SIGUSR1, "User defined signal 1"},
                {SIGHUP, SIGTERM, "Terminated"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char got[1024] = "", want[1024];
        pid_t pid;
        const int fd = begin_guard(3, LIVES("sw"), &pid);
        read_until(fd, got, sizeof got, "waits\n");
        assert_int_equal(kill(pid, rows[i].sent), 0);
        read_until(fd, got, sizeof got, NULL);
        close(fd);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        snprintf(want, sizeof want,
                 "life 0 after signal 0\nwaits\nits process was ended by signal %d (%s) on its way "
                 "out\nover: %d\n",
                 rows[i].got, rows[i].name, 128 + rows[i].got);
        assert_string_equal(got, want);
    }
}

/* A stop request during the delay before a restart ends the server without an error. */
static void a_signal_while_it_waits(void **state) {
    (void)state;
    char got[1024] = "";
    pid_t pid;
    const int fd = begin_guard(9, LIVES("s6", "s6", "sw"), &pid);
    read_until(fd, got, sizeof got, " in 1 s\n");
    assert_int_equal(kill(pid, SIGTERM), 0);
    read_until(fd, got, sizeof got, NULL);
    close(fd);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_equal(strstr(got, " in 1 s\n"), " in 1 s\nover: 0\n");
}

/* SIGCHLD does not end the delay. */
static void a_child_that_ends_while_it_waits(void **state) {
    (void)state;
    char got[1024] = "";
    pid_t pid;
    const int fd = begin_guard(9, LIVES("s6", "s6", "se4"), &pid);
    read_until(fd, got, sizeof got, " in 1 s\n");
    assert_int_equal(kill(pid, SIGCHLD), 0);
    read_until(fd, got, sizeof got, NULL);
    close(fd);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_string_equal(strstr(got, " in 1 s\n"), " in 1 s\nlife 2 after signal 6\nover: 4\n");
}

static void waits_grow_up_to_a_minute(void **state) {
    (void)state;
    static const int want[] = {0, 0, 1, 2, 4, 8, 16, 32, 60, 60};
    for (int n = 0; n < 10; n++) assert_int_equal(bt_guard_delay_s(n), want[n]);
    assert_int_equal(bt_guard_delay_s(1000), 60);
}

/* If the guard is killed, the server is killed. */
static void the_server_does_not_outlive_its_guard(void **state) {
    (void)state;
    char got[1024] = "";
    pid_t pid;
    const int fd = begin_guard(9, LIVES("sw"), &pid);
    read_until(fd, got, sizeof got, "waits\n");
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    read_until(fd, got, sizeof got, NULL); /* reads until the server's end of the pipe is closed */
    close(fd);
    assert_string_equal(got, "life 0 after signal 0\nwaits\n");
}

static void without_a_guard_the_caller_serves(void **state) {
    (void)state;
    bt_guarded *g = (bt_guarded *)&g;
    bt_err err = BT_ERR_INIT;
    int status = 5;
    assert_int_equal(bt_guard_begin(&g, 0, write_story_line, &status, &err), BT_OK);
    assert_null(g);
    assert_int_equal(status, -1);
}

int main(void) {
    alarm(30); /* a test that hangs is ended */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_exit_ends_both),
        cmocka_unit_test(a_signal_is_followed_by_another_process),
        cmocka_unit_test(a_server_that_never_served_is_not_restarted),
        cmocka_unit_test(restarts_without_progress_end),
        cmocka_unit_test(signals_are_forwarded_to_the_server),
        cmocka_unit_test(a_signal_while_it_waits),
        cmocka_unit_test(a_child_that_ends_while_it_waits),
        cmocka_unit_test(waits_grow_up_to_a_minute),
        cmocka_unit_test(the_server_does_not_outlive_its_guard),
        cmocka_unit_test(without_a_guard_the_caller_serves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
