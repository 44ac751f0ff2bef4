// ctest: timeout=110
/* Whole runs whose start is refused or hangs: a launch without ranks has a deadline and ends at the first stop request;
 * a restart that the machine refuses is tried again. */
#include <errno.h>
#include <sys/syscall.h>

#include "../run_stage.h"

/* The test replaces the creation of an attempt's folders, which fails this many times. */
static int refusals;
static const char *refused = "";
int mkdir(const char *path, mode_t mode) {
    const char *name = strrchr(path, '/');
    if (refusals > 0 && name && strcmp(name, refused) == 0) {
        refusals--;
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

static void a_launch_that_hangs_is_ended(void **state) {
    stage *s = *state;
    s->setup.launch_s = 0.1;
    run(s, PLAYS("alone;says no more pipes;waits", "steps 1;result {}"),
        "attempt 0 from 0\n"
        "stalled -1 mpirun (pid) has started no rank for 0 s and is ended after 0 s; it printed: "
        "no "
        "more pipes\n"
        "failure -1 mpirun (pid) has started no rank for 0 s: it is ended\n"
        "failure -1 mpirun did not start the ranks in time: no more pipes\n"
        "restarted -1 attempt 1 continues after step 0: mpirun did not start the ranks in time: no "
        "more "
        "pipes\n"
        "attempt 1 from 0\nstep 0\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
}

/* A second hang ends a run that never had a rank. */
static void a_launch_that_always_hangs_ends_the_run(void **state) {
    stage *s = *state;
    s->setup.launch_s = 0.1;
    s->shown[0] = '\0';
    bt_err err = BT_ERR_INIT;
    s->setup.settings = "alone;waits\nalone;waits\nsteps 1\n";
    assert_int_equal(bt_job_run(&s->setup, &s->result, &err), BT_OK);
    assert_int_equal(s->result.end.kind, BT_END_HUNG);
    assert_int_equal(s->result.attempts, 2);
    assert_string_equal(s->result.why_not_again, "the same failure came twice at the same step");
}

/* No rank exists that could save anything, so the first stop request ends the launch. */
static void a_stop_ends_a_launch(void **state) {
    stage *s = *state;
    const int64_t began = bt_now_ns();
    s->when = "attempt 0 from 0\n";
    s->signal = SIGTERM;
    run(s, PLAYS("alone;waits", "steps 1"),
        "attempt 0 from 0\ncontrol -1 stop requested by SIGTERM\n"
        "warning -1 no rank has connected: the run stops, there is nothing to save\n");
    assert_true(bt_now_ns() - began < INT64_C(20000000000));
    assert_true(s->result.stopped);
    assert_int_equal(s->result.signal, SIGTERM);
    assert_int_equal(s->result.attempts, 1);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
}

static void a_start_that_is_refused_is_tried_again(void **state) {
    stage *s = *state;
    bt_err err = BT_ERR_INIT;
    s->setup.settings = "steps 3;leaves;die 9\nsteps 1;result {}\n";
    s->resume_at = 3;
    s->from_memory = true;
    refused = "/1";
    refusals = 1;
    assert_int_equal(bt_job_run(&s->setup, &s->result, &err), BT_OK);
    assert_int_equal(refusals, 0);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.attempts, 2);
    assert_int_equal(s->result.restarts, 1);
    assert_non_null(strstr(s->shown, "warning -1 attempt 1 cannot start: cannot create '"));
    assert_non_null(strstr(s->shown, "No space left on device; next try in 1 s, and the state in "
                                     "memory is kept\n"));
    assert_non_null(strstr(s->shown, "attempt 1 from 3\nstep 3\n"));
}

/* The state in memory is newer than every checkpoint: the ranks start once more and save it. */
static void a_stop_between_attempts_saves_the_state(void **state) {
    stage *s = *state;
    s->when = "before the first step\n";
    s->verb = "stop";
    s->resume_at = 7;
    s->from_memory = true;
    run(s, PLAYS("alone;die 9", "until stop;result {\"stopped\":true}"),
        "attempt 0 from 0\nfailure -1 a rank was ended by signal 9 (Killed) before the first step\n"
        "control -1 stop requested by key\n"
        "restarted -1 attempt 1 continues after step 7: a rank was ended by signal 9 (Killed) "
        "before "
        "the first step\n"
        "attempt 1 from 7\n");
    assert_true(s->result.stopped);
    assert_int_equal(s->result.restarts, 1);
}

static void a_log_that_cannot_be_written_is_reported(void **state) {
    stage *s = *state;
    char path[96], shows[240];
    snprintf(path, sizeof path, "%s/log.txt", s->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(shows, sizeof shows,
             "warning -1 '%s' cannot be written: the output of ranks and mpirun is not kept\n"
             "attempt 0 from 0\nstep 0\n",
             path);
    run(s, PLAYS("says hello;steps 1;result {}"), shows);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
}

static int run_unit_tests_of_launch_watch(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest all[] = {
        T(a_launch_that_hangs_is_ended),
        T(a_launch_that_always_hangs_ends_the_run),
        T(a_stop_ends_a_launch),
        T(a_start_that_is_refused_is_tried_again),
        T(a_stop_between_attempts_saves_the_state),
        T(a_log_that_cannot_be_written_is_reported),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, run_unit_tests_of_launch_watch); }
