/* The predicted step time of a run is recorded before the first step and compared with steps of full size. */
#include "tests/tiny_run.h"

#include <unistd.h>

#include "engine/train/parts/prediction/prediction_check.h"

static fake_sink sink;
static bt_run_cfg cfg;

/* Counts the prediction events of a run with this number of steps and these settings. */
static int count_prediction_events(const char *steps, const char *predicted, const char *more) {
    int n = 0;
    TINY(&cfg, "--steps", steps, "--set", "ckpt.memory=off", "--batch-tokens", "128",
         "--micro-batch", "1", "--set", predicted, "--set", more);
    tiny_run(&cfg, &sink, NULL, "");
    for (size_t i = 0; i < sink.n_events; i++) {
        if (strcmp(sink.events[i].kind, "prediction") != 0) continue;
        n++;
        assert_int_equal(sink.events[i].step, BT_PREDICTION_EVERY - 1);
        assert_non_null(strstr(sink.events[i].title, "longer than the 0.0001 ms predicted: "));
    }
    return n;
}

static void steps_are_compared_with_the_prediction(void **state) {
    (void)state;
    char every[16], fewer[16];
    snprintf(every, sizeof every, "%d", BT_PREDICTION_EVERY);
    snprintf(fewer, sizeof fewer, "%d", BT_PREDICTION_EVERY - 1);
    assert_int_equal(
        count_prediction_events(every, "launch.predicted_ms=0.0001", "train.log_every=1"), 1);
    assert_int_equal(
        count_prediction_events(fewer, "launch.predicted_ms=0.0001", "train.log_every=1"), 0);
    assert_int_equal(count_prediction_events(every, "launch.predicted_ms=0", "train.log_every=1"),
                     0); /* the run has no prediction */
    /* Steps with shorter sequences are not compared. */
    assert_int_equal(
        count_prediction_events(every, "launch.predicted_ms=0.0001", "train.seq_ramp=0.9"), 0);
}

static void parts_are_facts(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "1", "--set",
         "launch.predicted_parts=step_ms=150 tried_ms=160.5 fwd_ms=40");
    tiny_run(&cfg, &sink, NULL, "");
    assert_string_equal(fake_fact(&sink, "plan.step_ms"), "150");
    assert_string_equal(fake_fact(&sink, "plan.tried_ms"), "160.5");
    assert_string_equal(fake_fact(&sink, "plan.fwd_ms"), "40");
    TINY(&cfg, "--steps", "1");
    tiny_run(&cfg, &sink, NULL, "");
    for (size_t i = 0; i < sink.n_facts; i++)
        assert_int_not_equal(strncmp(sink.facts[i].key, "plan.", 5), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_compared_with_the_prediction),
        cmocka_unit_test(parts_are_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
