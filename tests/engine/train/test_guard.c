/* The guard by itself: which updates are skipped, and when the run ends. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/train/guard.h"

static void skips_what_is_not_finite(void **state) {
    (void)state;
    bt_guard g = {0};
    assert_true(bt_guard_step(&g, 1.5, true));
    assert_false(bt_guard_step(&g, NAN, true));
    assert_false(bt_guard_step(&g, INFINITY, true));
    /* a loss of some rank, although every gradient is finite */
    assert_false(bt_guard_step(&g, 1.5, false));
    assert_int_equal(g.skipped, 3);
    assert_int_equal(g.in_row, 3);
    assert_true(bt_guard_step(&g, 0, true));
    assert_int_equal(g.skipped, 3);
    assert_int_equal(g.in_row, 0);
}

static void ends_the_run_after_so_many_in_a_row(void **state) {
    (void)state;
    bt_guard g = {0};
    bt_err err = BT_ERR_INIT;
    for (int i = 1; i < BT_GUARD_PATIENCE; i++) {
        assert_false(bt_guard_step(&g, 1, false));
        assert_int_equal(bt_guard_verdict(&g, i, NULL, &err), BT_OK);
    }
    assert_false(bt_guard_step(&g, 1, false));
    assert_int_equal(bt_guard_verdict(&g, 9, NULL, &err), BT_CHECK);
    assert_non_null(strstr(err.msg, "the loss is not finite"));
    assert_non_null(strstr(err.msg, "(last: 'loss';"));
    assert_int_equal(bt_guard_verdict(&g, 9, "layers.1.gate", &err), BT_CHECK);
    assert_non_null(strstr(err.msg, "the gradient is not finite"));
    assert_non_null(strstr(err.msg, "layers.1.gate"));
    assert_true(bt_guard_step(&g, 1, true));
    assert_int_equal(bt_guard_verdict(&g, 10, NULL, &err), BT_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skips_what_is_not_finite),
        cmocka_unit_test(ends_the_run_after_so_many_in_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
