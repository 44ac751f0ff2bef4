/* test_job_attempt.c - the ranks of one attempt, with other processes in their place: the ranks that are watched, the
 * reaction when one is killed and the cases without a reaction, and files left by an attempt. */
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "job_test.h"
#include "monitor/job/launch/rank_watch.h"

static pid_t start_sleeper(bool session) {
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* kills the processes of a failed test */
        if (session) setsid();
        for (;;) pause();
    }
    return pid;
}

/* two ranks, and the process that launched them, read through a pipe */
typedef struct cast {
    pid_t rank[2];
    int says;
} cast;

static void enter_ranks(desk *d, cast *c) {
    int ends[2];
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    c->says = ends[1];
    d->job.watch.epoll = -1;
    d->job.child.out = ends[0];
    d->job.child.pid = start_sleeper(true);
    d->job.output.log = -1;
    bt_output_reset(&d->job.output, 0);
    d->job.n_ranks = 2;
    for (int k = 0; k < 2; k++) {
        c->rank[k] = start_sleeper(false);
        d->job.ranks[k].rank = 4 + k;
        d->job.ranks[k].pid = (int)c->rank[k];
    }
}

/* Returns whether the child is alive, that is, not reapable. */
static bool is_living_child(pid_t pid) { return waitpid(pid, NULL, WNOHANG) == 0; }

static void leave_ranks(desk *d, const cast *c) {
    for (int k = 0; k < 2; k++) {
        kill(c->rank[k], SIGKILL);
        (void)waitpid(c->rank[k], NULL, 0);
    }
    kill(d->job.child.pid, SIGKILL);
    (void)waitpid(d->job.child.pid, NULL, 0);
    bt_rank_watch_close(&d->job.watch);
    close(d->job.child.out);
    close(c->says);
}

/* All ranks are watched if all are on this host. */
static void ranks_of_this_host_are_watched(void **state) {
    desk *d = *state;
    cast c;
    enter_ranks(d, &c);
    d->job.n_ranks = 1;
    bt_job_watch_ranks(&d->job);
    assert_int_equal(d->job.watch.epoll, -1);
    d->job.n_ranks = 2;
    d->setup.hosts = "hosts";
    bt_job_watch_ranks(&d->job);
    assert_int_equal(d->job.watch.epoll, -1);
    d->setup.hosts = "";
    bt_job_watch_ranks(&d->job);
    assert_true(d->job.watch.epoll >= 0);
    if (d->job.watch.n > 0) { /* the kernel has pidfds */
        assert_int_equal(d->job.watch.n, 2);
        for (int k = 0; k < 2; k++)
            assert_int_equal(bt_rank_watch_pid(&d->job.watch, 4 + k), c.rank[k]);
    }
    leave_ranks(d, &c);
}

/* Waits for the death of the process without reaping it. */
static void kill_and_wait(pid_t pid, int signal) {
    siginfo_t info;
    kill(pid, signal);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
}

/* If another program kills a rank, the other ranks and the launcher are ended at once and the message contains the
 * rank, unless it reported a reason, another signal came first, or the end is already known. */
static void a_killed_rank_ends_the_remaining_ones(void **state) {
    desk *d = *state;
    enum { PLAIN, TOLD, SAID, OTHERWISE, ENDED, HUNG, STOPPED, COMPLETE, WAYS };
    static bt_progress_page places[2];
    for (int way = 0; way < WAYS; way++) {
        cast c;
        char host[BT_HOST_MAX] = "", want[160];
        static const char why[] = "bitrain rank 1: error 4: 'x' is damaged\n";
        enter_ranks(d, &c);
        bt_job_watch_ranks(&d->job);
        if (d->job.watch.n == 0) skip();
        d->job.places = (bt_rank_progress){0};
        if (way == TOLD) d->job.places = (bt_rank_progress){.slot = places, .n = 2};
        d->job.died_otherwise = way == OTHERWISE;
        d->job.ended_by_us = way == ENDED;
        d->job.hung = way == HUNG;
        d->job.stop_now = way == STOPPED;
        d->job.complete = way == COMPLETE;
        if (way == SAID) assert_int_equal(write(c.says, why, sizeof why - 1), sizeof why - 1);
        bt_job_read_deaths(&d->job);
        assert_true(is_living_child(c.rank[0]) && is_living_child(c.rank[1]) &&
                    is_living_child(d->job.child.pid));
        kill_and_wait(c.rank[1], SIGKILL);
        bt_job_read_deaths(&d->job);
        if (way <= TOLD) {
            assert_int_equal(waitpid(c.rank[0], NULL, 0), c.rank[0]);
            assert_int_equal(waitpid(d->job.child.pid, NULL, 0), d->job.child.pid);
            gethostname(host, sizeof host - 1);
            snprintf(want, sizeof want,
                     "bitrain train: process rank 5 with PID %d on node %s exited on signal 9",
                     (int)c.rank[1], host);
            assert_string_equal(d->job.output.last_line, want);
            assert_int_equal(d->job.output.rank, 5);
            assert_int_equal(d->job.output.signal, 9);
        } else {
            assert_true(is_living_child(c.rank[0]) && is_living_child(d->job.child.pid));
            assert_int_equal(d->job.output.signal, 0);
        }
        assert_int_equal(d->job.ended_by_us, way <= TOLD || way == ENDED);
        assert_int_equal(d->job.died_otherwise, way == OTHERWISE);
        if (way == SAID) assert_string_equal(d->job.output.message, "'x' is damaged");
        leave_ranks(d, &c);
    }
    d->job.places = (bt_rank_progress){0};
    d->job.died_otherwise = d->job.ended_by_us = d->job.hung = d->job.stop_now = d->job.complete =
        false;
    /* One rank died by another signal, and mpirun kills the second one, which reports nothing. */
    cast c;
    enter_ranks(d, &c);
    bt_job_watch_ranks(&d->job);
    kill_and_wait(c.rank[0], SIGTERM);
    bt_job_read_deaths(&d->job);
    assert_true(d->job.died_otherwise && !d->job.ended_by_us);
    kill_and_wait(c.rank[1], SIGKILL);
    bt_job_read_deaths(&d->job);
    assert_true(!d->job.ended_by_us && is_living_child(d->job.child.pid));
    leave_ranks(d, &c);
}

/* The folders of an attempt are removed once, together with the processes of its session. */
static void remains_of_an_attempt_are_removed(void **state) {
    desk *d = *state;
    char folder[2][280];
    snprintf(d->job.scratch.tmp, sizeof d->job.scratch.tmp, "%s/tmp", d->dir);
    snprintf(d->job.scratch.shm, sizeof d->job.scratch.shm, "%s/shm", d->dir);
    for (int again = 0; again < 2; again++) {
        const pid_t pid = start_sleeper(true);
        bt_err err = BT_ERR_INIT;
        mkdir(d->job.scratch.tmp, 0700);
        mkdir(d->job.scratch.shm, 0700);
        assert_int_equal(bt_job_dirs_attempt(&d->job.scratch, 2, 3, folder[0], folder[1], &err),
                         BT_OK);
        d->job.folder = 3;
        d->job.child.pid = pid;
        while (getsid(pid) != pid) bt_sleep_ns(100000); /* waits until it has its own session */
        if (!again) {
            bt_job_attempt_over(&d->job);
            assert_int_equal(d->job.child.pid, 0);
            assert_int_equal(d->job.past.session, pid);
            assert_int_equal(d->job.past.folder, 3);
        } else
            d->job.past.session = 0; /* no process of the session remains */
        signal(SIGCHLD, SIG_IGN);    /* reaps it at once */
        bt_job_clear_away(&d->job);
        signal(SIGCHLD, SIG_DFL);
        assert_int_equal(d->job.past.session, 0);
        for (int i = 0; i < 2; i++) assert_int_equal(access(folder[i], F_OK) == 0, again);
        if (again) {
            assert_true(is_living_child(pid));
            kill(pid, SIGKILL);
            (void)waitpid(pid, NULL, 0);
        } else
            assert_int_equal(kill(pid, 0), -1);
    }
    d->job.child.pid = 0;
    desk_shows(d, "");
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, desk_open, desk_close)
    const struct CMUnitTest tests[] = {
        T(ranks_of_this_host_are_watched),
        T(a_killed_rank_ends_the_remaining_ones),
        T(remains_of_an_attempt_are_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
