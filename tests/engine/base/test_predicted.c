/* test_predicted.c - a prediction is formatted and parsed again; other texts are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/numbers/predicted.h"

static void a_formatted_prediction_is_parsed(void **state) {
    (void)state;
    double phase_s[BT_PHASE_COUNT] = {0};
    phase_s[BT_PH_FWD] = 0.04;
    phase_s[BT_PH_WAIT] = 0.0125;
    bt_predicted p = bt_predicted_of(0.153, phase_s, 0), back;
    bt_text text;
    bt_text_init(&text);
    bt_predicted_put(&p, &text);
    assert_null(strstr(bt_text_str(&text), "tried_ms"));
    assert_true(bt_predicted_read(bt_text_str(&text), &back));
    assert_true(back.step_ms == 153 && isnan(back.tried_ms));
    assert_true(back.phase_ms[BT_PH_FWD] == 40 && back.phase_ms[BT_PH_WAIT] == 12.5);
    assert_true(back.phase_ms[BT_PH_CKPT] == 0);
    p = bt_predicted_of(0.153, phase_s, 0.862);
    bt_text_clear(&text);
    bt_predicted_put(&p, &text);
    assert_true(bt_predicted_read(bt_text_str(&text), &back) && back.tried_ms == 862);
    bt_text_release(&text);
}

static void other_text_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "153",         "step_ms",   "step_ms=", "step_ms=x", "step_ms=1fwd_ms=2",
        "step_ms=nan", "fwd_ms=-1", "walk_ms=1"};
    bt_predicted p;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (bt_predicted_read(texts[i], &p)) fail_msg("'%s' was read", texts[i]);
        assert_true(isnan(p.step_ms) && isnan(p.phase_ms[BT_PH_FWD]));
    }
    assert_true(bt_predicted_read("", &p) && isnan(p.step_ms));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_formatted_prediction_is_parsed),
        cmocka_unit_test(other_text_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
