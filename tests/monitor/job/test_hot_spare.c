// ctest: timeout=60
/* Whole runs with a hot spare (ranks that wait to replace dead ones): it takes over when ranks die, ends when the run
 * ends or its layout changes, and is abandoned if it ends before. */
#include "run_stage.h"

/* The rank's own report is missing, because mpirun and the rank are one process here and its death may be detected
 * first. */

/* Checks that the supervisor has reaped all processes that it started. */
static void check_all_reaped(void) { assert_true(waitpid(-1, NULL, WNOHANG) == -1); }

/* messages when a waiting spare takes over */
#define TAKEN_OVER \
    "attempt 0 from 0\nstep 0\nstep 1\nstep 2\n" \
    "spare -1 a hot spare waits: 1 rank, MiB\n" \
    "control -1 checkpoint requested by key\n" \
    "failure -1 a rank was ended by signal 9 (Killed) after step 3\n" \
    "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n" \
    "spare -1 attempt 1 is that of the hot spare\n" \
    "restarted -1 attempt 1 continues after step 2: a rank was ended by signal 9 (Killed) after " \
    "step 3\n" \
    "attempt 1 from 2\nstep 2\nstep 3\n"

static void a_spare_takes_over(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->resume_at = 2;
    s->when = "a hot spare waits";
    s->verb = "checkpoint";
    run(s, PLAYS("steps 3;until checkpoint;leaves;die 9", "steps 2;result {}"), TAKEN_OVER);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
    check_all_reaped();
}

/* A spare that is not ready when the ranks die is abandoned, and the ranks are started as usual. */
static void a_spare_that_is_not_ready_is_abandoned(void **state) {
    stage *s = *state;
    char silent[96];
    snprintf(silent, sizeof silent, "%s/silent", s->dir);
    setenv("STAGE_SILENT", silent, 1);
    s->setup.hot_spare = true;
    s->resume_at = 2;
    run(s, PLAYS("steps 3;appears;leaves;die 9", "steps 2;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 3\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "restarted -1 attempt 1 continues after step 2: a rank was ended by signal 9 (Killed) "
        "after "
        "step 3\n"
        "attempt 1 from 2\nstep 2\nstep 3\n");
    unsetenv("STAGE_SILENT");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
    check_all_reaped();
}

/* After a spare has taken over, the next spare may be started twice. */
static void the_next_spare_has_its_own_tries(void **state) {
    stage *s = *state;
    char first[96];
    snprintf(first, sizeof first, "%s/first", s->dir);
    s->setup.hot_spare = true;
    s->resume_at = 2;
    setenv("STAGE_SPARE", "it begins|there is no room", 1);
    setenv("STAGE_SPARE_BUT_ONE", first, 1);
    s->when = "a hot spare waits";
    s->verb = "checkpoint";
    s->next_when = "no other is started";
    run(s, PLAYS("steps 3;until checkpoint;leaves;die 9", "steps 2;until checkpoint;result {}"),
        TAKEN_OVER
        "warning -1 the hot spare has ended (mpirun's exit code 5): there is no room\n"
        "warning -1 the hot spare has ended (mpirun's exit code 5): there is no room; no other is "
        "started\n"
        "control -1 checkpoint requested by key\n");
    unsetenv("STAGE_SPARE");
    unsetenv("STAGE_SPARE_BUT_ONE");
    check_all_reaped();
}

/* A spare starts after two steps of an attempt, and only if the user requested it. */
static void a_spare_starts_after_two_steps(void **state) {
    stage *s = *state;
    s->resume_at = 7;
    s->setup.hot_spare = true;
    s->when = "step 0\n";
    s->verb = "checkpoint";
    run(s, PLAYS("steps 1;until checkpoint;result {}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 checkpoint requested by key\n");
    check_all_reaped();
}

static void a_spare_ends_with_the_run(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->when = "a hot spare waits";
    s->verb = "checkpoint";
    run(s, PLAYS("steps 2;until checkpoint;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nspare -1 a hot spare waits: 1 rank, MiB\n"
        "control -1 checkpoint requested by key\n");
    assert_int_equal(s->result.restarts, 0);
    check_all_reaped();
}

/* A spare is started twice at most; the run continues. */
static void a_spare_that_ends_is_started_twice_at_most(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->when = "no other is started";
    s->verb = "checkpoint";
    setenv("STAGE_SPARE", "there is no room", 1);
    run(s, PLAYS("steps 2;until checkpoint;steps 1;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\n"
        "warning -1 the hot spare has ended (mpirun's exit code 5): there is no room\n"
        "warning -1 the hot spare has ended (mpirun's exit code 5): there is no room; no other is "
        "started\n"
        "control -1 checkpoint requested by key\nstep 2\n");
    unsetenv("STAGE_SPARE");
    assert_int_equal(s->result.restarts, 0);
    check_all_reaped();
}

/* The reason that a rank of the spare gives is reported instead of the last line. */
static void a_rank_of_a_spare_reports_its_reason(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->when = "no other is started";
    s->verb = "checkpoint";
    setenv("STAGE_SPARE", "bitrain rank 0: error 2: no memory for it\nand more", 1);
    run(s, PLAYS("steps 2;until checkpoint;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\n"
        "warning -1 the hot spare has ended (mpirun's exit code 5): no memory for it\n"
        "warning -1 the hot spare has ended (mpirun's exit code 5): no memory for it; no other is "
        "started\n"
        "control -1 checkpoint requested by key\n");
    unsetenv("STAGE_SPARE");
    check_all_reaped();
}

static bt_code on_layout(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                         bt_err *err) {
    stage *s = ctx;
    (void)err;
    *out = (bt_job_layout){.ranks = w->most, .settings = s->setup.settings, .same = w->most == 1};
    snprintf(out->told, sizeof out->told, "%d ranks", w->most);
    s->taken += take;
    return BT_OK;
}

/* A spare of one rank cannot replace two ranks. */
static void a_change_of_the_layout_ends_the_spare(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->setup.layout = on_layout;
    s->setup.layout_ctx = s;
    s->when = "a hot spare waits";
    s->verb = "resize";
    s->value = "2";
    s->resume_at = 2;
    run(s, PLAYS("steps 2;until stop;result {\"stopped\":true}", "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nspare -1 a hot spare waits: 1 rank, MiB\n"
        "control -1 resize to 2 ranks requested by key\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "resized -1 continues with 2 ranks (1 before): requested by key\nattempt 1 from 2\nstep "
        "2\n");
    check_all_reaped();
}

#define IN_A_STAGE(test) cmocka_unit_test_setup_teardown(test, open_stage, close_stage)

static int tests_of_spares(void) {
    const struct CMUnitTest tests[] = {
        IN_A_STAGE(a_spare_takes_over),
        IN_A_STAGE(a_spare_starts_after_two_steps),
        IN_A_STAGE(a_spare_that_is_not_ready_is_abandoned),
        IN_A_STAGE(the_next_spare_has_its_own_tries),
        IN_A_STAGE(a_spare_ends_with_the_run),
        IN_A_STAGE(a_spare_that_ends_is_started_twice_at_most),
        IN_A_STAGE(a_rank_of_a_spare_reports_its_reason),
        IN_A_STAGE(a_change_of_the_layout_ends_the_spare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, tests_of_spares); }
