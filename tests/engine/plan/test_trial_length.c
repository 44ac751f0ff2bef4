/* test_trial_length.c - number of steps in the trial runs of layouts that fit into the given seconds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/trial_length.h"

/* A step takes a second for each micro-batch and one more second; half of each second is spent in layers. */
static bool a_second_each(void *ctx, size_t i, bt_trial_length *x) {
    (void)ctx;
    (void)i;
    x->run_s = ((double)x->micros + 1) * (x->chunks > 0 ? 0.5 + 0.5 * (double)x->layers / 32 : 1);
    return true;
}

static size_t plan_trials(bt_trial_length all[3], double seconds) {
    const bt_trial_length of[] = {
        {.fewest = 1, .multiple = 1, .micros = 8, .run_s = 9},
        {.fewest = 2, .multiple = 2, .micros = 8, .run_s = 9},
        {.fewest = 1, .multiple = 1, .micros = 1, .run_s = 2},
    };
    for (int i = 0; i < 3; i++) all[i] = of[i];
    return bt_trial_lengths(all, 3, &(bt_trial_time){.seconds = seconds, .predict = a_second_each});
}

static void steps_are_as_long_as_time_allows(void **state) {
    (void)state;
    bt_trial_length x[3];
    /* one warm-up step and two counted steps of each layout */
    assert_int_equal(plan_trials(x, 3 * (9 + 9 + 2)), 3);
    assert_int_equal(x[0].micros, 8);
    assert_int_equal(x[1].micros, 8);
    assert_int_equal(plan_trials(x, 3 * (9 + 9)), 2); /* whole steps of fewer layouts */
    assert_int_equal(x[0].micros, 8);
    assert_int_equal(plan_trials(x, 3 * (9 + 9) - 1), 3); /* all layouts with half a step */
    assert_int_equal(x[0].micros, 4);
    assert_int_equal(x[1].micros, 4);
    assert_int_equal(x[2].micros, 1);
    assert_true(x[0].run_s == 5 && x[2].run_s == 2);
}

static void a_step_has_its_fewest_micro_batches(void **state) {
    (void)state;
    bt_trial_length x[3];
    assert_int_equal(plan_trials(x, 3 * (2 + 3)), 2);
    assert_int_equal(x[0].micros, 1);
    assert_int_equal(x[1].micros, 2);                 /* a pipeline of two stages */
    assert_int_equal(plan_trials(x, 2 * (2 + 3)), 2); /* one run is better than none */
    assert_int_equal(x[0].micros, 1);
    assert_int_equal(plan_trials(x, 2 * (2 + 3) - 1), 0); /* a single layout gives no comparison */
    assert_int_equal(bt_trial_lengths(x, 1, &(bt_trial_time){.seconds = 1e9}), 0);
}

/* If one micro-batch takes seconds, the trial uses half of the layers, in as many equal chunks. */
static void a_long_micro_batch_has_fewer_layers(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        bt_trial_length x[] = {
            {.fewest = 1, .multiple = 1, .chunks = 1, .micros = 2, .layers = 32, .run_s = 3},
            {.fewest = 1, .multiple = 1, .chunks = 12, .micros = 1, .layers = 32, .run_s = 2}};
        /* Steps are halved first, then the model as often as needed. */
        const double both = (0.5 + 0.25) * 2 + (0.5 + 0.5 * 12 / 32) * 2, wanted = 3 * both;
        const bt_trial_time t = {.seconds = k ? wanted : 3 * (2 + 2), .predict = a_second_each};
        assert_int_equal(bt_trial_lengths(x, 2, &t), 2);
        assert_int_equal(x[0].micros, 1);
        assert_int_equal(x[0].layers, k ? 16 : 32);
        assert_int_equal(x[1].layers, k ? 12 : 32);
        assert_true(x[0].run_s == (k ? 1.5 : 2));
    }
}

static void short_steps_make_longer_runs(void **state) {
    (void)state;
    assert_int_equal(bt_trial_steps(&(bt_trial_length){.run_s = 0.125}), 2);
    assert_int_equal(bt_trial_steps(&(bt_trial_length){.run_s = 1e-6}), 16);
    assert_int_equal(bt_trial_steps(&(bt_trial_length){.run_s = 10}), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_as_long_as_time_allows),
        cmocka_unit_test(a_step_has_its_fewest_micro_batches),
        cmocka_unit_test(a_long_micro_batch_has_fewer_layers),
        cmocka_unit_test(short_steps_make_longer_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
