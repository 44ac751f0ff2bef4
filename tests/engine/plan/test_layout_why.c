/* test_layout_why.c - the reason given for the first layout: trials are compared with trials and predictions with
 * predictions, and a phase is named only if it explains the difference. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/plan/layout_why.h"

static bt_layout make_measured_layout(int pp, double fwd_s, double wait_s, double trial_s) {
    bt_layout l = {.shape = {.pp = pp, .dp_replicate = 2 / pp, .dp_shard = 1, .tp = 1},
                   .virtual_stages = 1,
                   .micro_batch = 1,
                   .accum = 4,
                   .fits = true,
                   .trial_s = trial_s};
    l.time.step.phase_s[BT_PH_FWD] = fwd_s;
    l.time.step.phase_s[BT_PH_WAIT] = wait_s;
    l.time.step.step_s = fwd_s + wait_s;
    return l;
}

static void assert_reason_text(bt_layout best, bt_layout other, const char *text,
                               const char *not_text) {
    bt_layout at[] = {best, other};
    const bt_layouts l = {.at = at, .n = 2};
    bt_text out;
    bt_text_init(&out);
    bt_layout_why(&l, &out);
    if (!strstr(bt_text_str(&out), text) || (not_text && strstr(bt_text_str(&out), not_text)))
        fail_msg("message: %s", bt_text_str(&out));
    bt_text_release(&out);
}

static void predictions_name_the_phase_that_explains_them(void **state) {
    (void)state;
    assert_reason_text(
        make_measured_layout(1, 0.1, 0, 0), make_measured_layout(2, 0.1, 0.1, 0),
        "100 ms a step less (50.0 %, as predicted) than the next mesh, pp 2 x dp 1 x tp 1, 4 "
        "micro-batches of 1, which spends 100 ms more on wait",
        NULL);
    /* The difference of 30 ms of 100 is spread over several phases, so none is named. */
    bt_layout spread = make_measured_layout(2, 0.13, 0.03, 0);
    spread.time.step.phase_s[BT_PH_OPTIM] = 0.04;
    spread.time.step.step_s = 0.2;
    assert_reason_text(make_measured_layout(1, 0.1, 0, 0), spread,
                       "100 ms a step less (50.0 %, as predicted)", "which spends");
}

static void trials_are_compared_with_trials(void **state) {
    (void)state;
    /* The predicted difference of 1 ms does not explain the measured 100 ms. */
    assert_reason_text(make_measured_layout(1, 0.1, 0, 0.9),
                       make_measured_layout(2, 0.1, 0.001, 1.0),
                       "100 ms a step less (10.0 %, as tried) than the next mesh", "which spends");
}

static void a_trial_is_not_compared_with_a_prediction(void **state) {
    (void)state;
    /* Other programs made the trial nine times as long. */
    assert_reason_text(make_measured_layout(1, 0.1, 0, 0.9), make_measured_layout(2, 0.1, 0.1, 0),
                       "100 ms a step less (50.0 %, as predicted) than the next mesh",
                       "which spends");
    assert_reason_text(
        make_measured_layout(1, 0.2, 0, 0.9), make_measured_layout(2, 0.1, 0, 0),
        "the fastest that was tried; pp 2 x dp 1 x tp 1, 4 micro-batches of 1, which was not, is "
        "predicted to take 100 ms less",
        NULL);
}

static void chunks_are_compared_alike(void **state) {
    (void)state;
    bt_layout one = make_measured_layout(2, 0.1, 0.05, 1.2),
              two = make_measured_layout(2, 0.1, 0.02, 1.0);
    two.virtual_stages = 2;
    assert_reason_text(
        two, one, "with one chunk of layers a stage instead of 2 it takes 200 ms more, as tried",
        "waits");
    one.trial_s = two.trial_s = 0;
    assert_reason_text(two, one, "it takes 30.0 ms more, and waits 50.0 ms, not 20.0 ms", "tried");
}

static void a_trial_far_from_its_prediction_is_marked(void **state) {
    (void)state;
    const struct {
        double trial_s, rates_load, load;
        const char *says;
    } rows[] = {
        {0.110, 0.1, 3, ""},
        {0.560, 0.1, 1.9,
         ", 5.6 times as long: other programs used the processors, load 1.9 before the trial"},
        {0.560, 0.1, 0.1,
         ", 5.6 times as long: the processors were free before the trial, so the rates may be old "
         "(--measure)"},
        {0.560, 0.1, NAN, ", 5.6 times as long"},
        {0.050, 4, 0.1, ", 0.5 of it: the rates were measured beside other programs, load 4"},
        {0.050, 0.1, 0.1, ", 0.5 of it"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_layout l = make_measured_layout(1, 0.1, 0, rows[i].trial_s);
        bt_text out;
        bt_text_init(&out);
        bt_layout_why_parted(&l, rows[i].rates_load, rows[i].load, &out);
        assert_string_equal(bt_text_str(&out), rows[i].says);
        bt_text_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_name_the_phase_that_explains_them),
        cmocka_unit_test(trials_are_compared_with_trials),
        cmocka_unit_test(a_trial_is_not_compared_with_a_prediction),
        cmocka_unit_test(chunks_are_compared_alike),
        cmocka_unit_test(a_trial_far_from_its_prediction_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
