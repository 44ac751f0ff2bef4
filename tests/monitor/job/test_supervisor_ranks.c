// ctest: timeout=60
/* Runs of two ranks: the messages contain the right rank, and a rank counts as late after two seconds. */
#include "run_stage.h"

static void the_stopped_one_of_two_is_named(void **state) {
    stage *s = *state;
    s->setup.ranks = 2;
    s->setup.hang_s = 60;
    s->when = "step 4\n";
    s->verb = "checkpoint";
    run(s, PLAYS("two;steps 5;until checkpoint;stops;waits", "result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\nstep 3\nstep 4\n"
        "control -1 checkpoint requested by key\n"
        "stalled 0 rank 0 (pid) is stopped by a signal; the ranks are started again in 2 s, unless "
        "it continues (kill -CONT)\n"
        "failure 0 rank 0 (pid) is stopped by a signal: the ranks are ended after 2 s\n"
        "failure -1 no progress after step 5\n"
        "restarted -1 attempt 1 continues after step 0: no progress after step 5\nattempt 1 from "
        "0\n");
    assert_int_equal(s->result.restarts, 1);
}

/* However short steps are, a delay of half a second is not reported, and one of two seconds is. */
static void a_late_rank_is_reported_after_two_seconds(void **state) {
    stage *s = *state;
    s->setup.ranks = 2;
    run(s, PLAYS("steps 5;late 500;steps 1;late 2600;steps 1;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\nstep 3\nstep 4\nstep 5\n"
        "slow 1 rank 1 is in forward and backward of step 7, the other ranks wait for it\nstep "
        "6\n");
}

static int tests(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest all[] = {
        T(the_stopped_one_of_two_is_named),
        T(a_late_rank_is_reported_after_two_seconds),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, tests); }
