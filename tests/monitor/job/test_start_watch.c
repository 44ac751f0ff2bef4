// ctest: timeout=60
/* Runs whose ranks connect and then hang before their first step: the message contains the rank that all other ranks
 * wait for, the attempt has a deadline, and the first stop request ends it. */
#include "run_stage.h"

static void play_all(stage *s, const char *const *plays) {
    bt_err err = BT_ERR_INIT;
    put_plays(s, plays);
    if (bt_job_run(&s->setup, &s->result, &err) != BT_OK) fail_msg("%s", err.msg);
}

static void assert_shown(const stage *s, const char *text) {
    if (!strstr(s->shown, text)) fail_msg("'%s' is not in:\n%s", text, s->shown);
}

static void a_stopped_rank_is_named_before_the_first_step(void **state) {
    stage *s = *state;
    s->setup.ranks = 2;
    s->setup.hang_s = 60;
    s->setup.launch_s = 2;
    play_all(s, PLAYS("two;stops;waits", "steps 1;result {}"));
    assert_shown(s, "stalled 0 rank 0 (pid) is stopped by a signal; the ranks are started again in "
                    "2 s, unless it continues (kill -CONT)\n");
    assert_shown(s,
                 "failure 0 rank 0 (pid) is stopped by a signal: the ranks are ended after 2 s\n");
    assert_shown(s, "restarted -1 attempt 1 continues after step 0: no progress before the first "
                    "step\nattempt 1 from 0\nstep 0\n");
    assert_int_equal(s->result.end.kind, BT_END_DONE);
    assert_int_equal(s->result.restarts, 1);
}

/* The late one among ranks at the same position has begun the fewest exchanges. */
static void the_rank_that_all_wait_for_is_named_after_two_seconds(void **state) {
    stage *s = *state;
    s->setup.ranks = 2;
    s->setup.hang_s = 3;
    s->setup.max_restarts = 0;
    play_all(s, PLAYS("starts_late;waits"));
    assert_shown(
        s, "slow 1 rank 1 (pid) is at the start, after 7 exchanges; the other ranks wait for it "
           "in exchange 8\n");
    assert_shown(s, "failure 1 the ranks have done nothing for ");
    assert_shown(s, " before the first step (launch.hang_s): they are ended; rank 1 (pid)");
    assert_int_equal(s->result.end.kind, BT_END_HUNG);
    assert_int_equal(s->result.attempts, 1);
}

static void ranks_that_do_nothing_are_ended_and_begin_again(void **state) {
    stage *s = *state;
    s->setup.hang_s = 0.6;
    s->setup.launch_s = 0.3;
    play_all(s, PLAYS("waits", "steps 1;result {}"));
    assert_shown(s, "stalled -1 the ranks have done nothing for ");
    assert_shown(s, "; the ranks are ended after 1 s (launch.hang_s)\n");
    assert_shown(s, "failure -1 the ranks have done nothing for ");
    assert_shown(s, "restarted -1 attempt 1 continues after step 0: no progress before the first "
                    "step\nattempt 1 from 0\nstep 0\n");
    assert_int_equal(s->result.restarts, 1);
}

static void a_stop_before_the_first_step_ends_the_run(void **state) {
    stage *s = *state;
    s->setup.hang_s = 600;
    s->setup.launch_s = 0.3;
    s->when = "stalled -1";
    s->signal = SIGTERM;
    play_all(s, PLAYS("waits", "steps 1"));
    assert_shown(s, "control -1 stop requested by SIGTERM\n"
                    "warning -1 no step is finished: the run stops, there is nothing to save\n");
    assert_true(s->result.stopped);
    assert_int_equal(s->result.attempts, 1);
    assert_int_equal(s->result.end.kind, BT_END_DONE);
}

static int tests(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest all[] = {
        T(a_stopped_rank_is_named_before_the_first_step),
        T(the_rank_that_all_wait_for_is_named_after_two_seconds),
        T(ranks_that_do_nothing_are_ended_and_begin_again),
        T(a_stop_before_the_first_step_ends_the_run),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, tests); }
