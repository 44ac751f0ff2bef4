/* test_rank_watch.c - processes in place of ranks: a death and its signal are detected at once, the other ranks are
 * ended, and orphans are reaped. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "monitor/job/launch/rank_watch.h"

/* the kernel refuses to watch this descriptor, because the test replaces the call */
static int refused_fd;
static bool refuses;
int epoll_ctl(int epoll, int op, int fd, struct epoll_event *e) {
    if (!refuses) return (int)syscall(SYS_epoll_ctl, epoll, op, fd, e);
    refused_fd = fd;
    return -1;
}

static pid_t start_sleeping_rank(void) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* kills the processes of a failed test */
        for (;;) pause();
    }
    return pid;
}

/* Returns the next death within 10 s. */
static int next_death(bt_rank_watch *w, int *signal) {
    for (int i = 0; i < 5000; i++) {
        int rank = bt_rank_watch_next(w, signal);
        if (rank >= 0) return rank;
        bt_sleep_ns(2000000);
    }
    return -1;
}

static void test_killed(void **state) {
    (void)state;
    bt_rank_watch w;
    pid_t pids[3];
    int signal = -1;
    if (!bt_rank_watch_open(&w)) skip();
    for (int i = 0; i < 3; i++) {
        pids[i] = start_sleeping_rank();
        bt_rank_watch_add(&w, 10 + i, pids[i]);
    }
    if (w.n == 0) skip(); /* the kernel lacks pidfds */
    assert_int_equal(w.n, 3);
    assert_int_equal(bt_rank_watch_pid(&w, 11), pids[1]);
    assert_int_equal(bt_rank_watch_pid(&w, 99), 0);
    assert_int_equal(bt_rank_watch_next(&w, &signal), -1);
    kill(pids[1], SIGKILL);
    assert_int_equal(next_death(&w, &signal), 11);
    assert_int_equal(signal, SIGKILL);
    assert_int_equal(bt_rank_watch_next(&w, &signal), -1); /* reported once */
    assert_int_equal(bt_rank_watch_wait(&w, 0.05), 2);
    bt_rank_watch_kill(&w);
    assert_int_equal(bt_rank_watch_wait(&w, 10), 0);
    for (int i = 0; i < 3; i++) /* all were reaped */
        assert_int_equal(waitpid(pids[i], NULL, WNOHANG), -1);
    bt_rank_watch_close(&w);
    assert_int_equal(w.epoll, -1);
    bt_rank_watch_close(&w);
}

static void test_other_ends(void **state) {
    (void)state;
    bt_rank_watch w;
    int signal = -1, status;
    if (!bt_rank_watch_open(&w)) skip();
    pid_t ends = fork();
    if (ends == 0) {
        bt_sleep_ns(20000000);
        _exit(3);
    }
    pid_t crashes = start_sleeping_rank();
    bt_rank_watch_add(&w, 0, ends);
    bt_rank_watch_add(&w, 1, crashes);
    if (w.n == 0) skip();
    assert_int_equal(next_death(&w, &signal), 0);
    assert_int_equal(signal, 0); /* exited without a signal */
    kill(crashes, SIGTERM);
    assert_int_equal(next_death(&w, &signal), 1);
    assert_int_equal(signal, SIGTERM);
    assert_int_equal(waitpid(ends, &status, 0), ends);
    assert_int_equal(WEXITSTATUS(status), 3);
    /* The death of a process that can no longer be queried is left to mpirun. */
    bt_rank_watch_add(&w, 2, ends);
    assert_int_equal(bt_rank_watch_next(&w, &signal), -1);
    bt_rank_watch_wait(&w, 1);
    bt_rank_watch_close(&w);
}

/* A process that cannot be watched is ignored, and no descriptor remains open. */
static void test_not_watched(void **state) {
    (void)state;
    bt_rank_watch w;
    if (!bt_rank_watch_open(&w)) skip();
    refuses = true;
    refused_fd = -1;
    bt_rank_watch_add(&w, 3, getpid());
    refuses = false;
    assert_int_equal(w.n, 0);
    assert_int_equal(bt_rank_watch_pid(&w, 3), 0);
    if (refused_fd >= 0) assert_int_equal(fcntl(refused_fd, F_GETFD), -1);
    bt_rank_watch_add(&w, 3, 0);
    bt_rank_watch_add(&w, 3, -1);
    assert_int_equal(w.n, 0);
    bt_rank_watch_close(&w);
    bt_rank_watch_add(&w, 3, getpid()); /* The call is permitted after closing. */
    assert_int_equal(w.n, 0);
}

/* If mpirun is killed, its children become children of this process and do not remain as zombies. */
static void test_orphans(void **state) {
    (void)state;
    int pipes[2];
    pid_t orphan = 0;
    bt_rank_watch w;
    bt_rank_watch_adopt();
    if (!bt_rank_watch_open(&w)) skip();
    assert_int_equal(pipe(pipes), 0);
    pid_t launcher = fork();
    if (launcher == 0) {
        pid_t rank = start_sleeping_rank();
        (void)!write(pipes[1], &rank, sizeof rank);
        for (;;) pause();
    }
    assert_int_equal(read(pipes[0], &orphan, sizeof orphan), sizeof orphan);
    bt_rank_watch_add(&w, 0, orphan);
    if (w.n == 0) skip();
    kill(launcher, SIGKILL);
    assert_int_equal(waitpid(launcher, NULL, 0), launcher);
    bt_rank_watch_kill(&w);
    assert_int_equal(bt_rank_watch_wait(&w, 10), 0);
    assert_int_equal(kill(orphan, 0), -1); /* not even a zombie */
    bt_rank_watch_close(&w);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed),
                                       cmocka_unit_test(test_other_ends),
                                       cmocka_unit_test(test_not_watched),
                                       cmocka_unit_test(test_orphans)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
