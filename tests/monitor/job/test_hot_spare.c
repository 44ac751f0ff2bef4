// ctest: timeout=60
/* Whole runs with a hot spare: it takes over when ranks die, ends when the run ends or its layout changes,
 * and is abandoned if it ends itself. */
#include "run_stage.h"

/* The rank's own report is missing, because mpirun is the rank here and its death may be seen first. */

/* The supervisor has reaped all processes that it started. */
static void nobody_is_left(void) { assert_true(waitpid(-1, NULL, WNOHANG) == -1); }

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

static void it_takes_over(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->resume_at = 2;
    s->when = "a hot spare waits";
    s->verb = "checkpoint";
    run(s, PLAYS("steps 3;until checkpoint;leaves;die 9", "steps 2;result {}"), TAKEN_OVER);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
    nobody_is_left();
}

/* A spare that is not ready when the ranks die is abandoned, and they are started as usual. */
static void one_that_is_not_ready(void **state) {
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
    nobody_is_left();
}

/* After a spare has taken over, the next one has the full number of tries. */
static void the_next_one_has_its_own_tries(void **state) {
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
    nobody_is_left();
}

/* It starts after two steps of an attempt, and only on request. */
static void start_of_a_spare(void **state) {
    stage *s = *state;
    s->resume_at = 7;
    s->setup.hot_spare = true;
    s->when = "step 0\n";
    s->verb = "checkpoint";
    run(s, PLAYS("steps 1;until checkpoint;result {}"),
        "attempt 0 from 0\nstep 0\ncontrol -1 checkpoint requested by key\n");
    nobody_is_left();
}

static void it_ends_with_the_run(void **state) {
    stage *s = *state;
    s->setup.hot_spare = true;
    s->when = "a hot spare waits";
    s->verb = "checkpoint";
    run(s, PLAYS("steps 2;until checkpoint;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nspare -1 a hot spare waits: 1 rank, MiB\n"
        "control -1 checkpoint requested by key\n");
    assert_int_equal(s->result.restarts, 0);
    nobody_is_left();
}

/* A spare is started twice at most; the run continues. */
static void one_that_ends_by_itself(void **state) {
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
    nobody_is_left();
}

/* The reason given by a rank of the spare is reported instead of the last line. */
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
    nobody_is_left();
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

/* A spare of one rank is useless for two. */
static void another_layout_has_no_use_for_it(void **state) {
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
    nobody_is_left();
}

#define IN_A_STAGE(test) cmocka_unit_test_setup_teardown(test, open_stage, close_stage)

static int tests_of_spares(void) {
    const struct CMUnitTest tests[] = {
        IN_A_STAGE(it_takes_over),
        IN_A_STAGE(start_of_a_spare),
        IN_A_STAGE(one_that_is_not_ready),
        IN_A_STAGE(the_next_one_has_its_own_tries),
        IN_A_STAGE(it_ends_with_the_run),
        IN_A_STAGE(one_that_ends_by_itself),
        IN_A_STAGE(a_rank_of_a_spare_reports_its_reason),
        IN_A_STAGE(another_layout_has_no_use_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, tests_of_spares); }
