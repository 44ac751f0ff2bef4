/* test_layout_order.c - the order of layouts: measured layouts before predicted ones, and of two equally fast layouts
 * the simpler one first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/plan/layout_search.h"

static bt_layout make_layout(int pp, int tp, int zero, double predicted_s, double trial_s) {
    bt_layout l = {.shape = {.pp = pp, .dp_replicate = 1, .dp_shard = 2, .tp = tp},
                   .zero = zero,
                   .fits = true,
                   .trial_s = trial_s};
    l.time.step.step_s = predicted_s;
    return l;
}

static void measured_layouts_are_first(void **state) {
    (void)state;
    bt_layout at[] = {make_layout(1, 1, 0, 1.0, 0), make_layout(1, 2, 0, 1.05, 1.2),
                      make_layout(2, 1, 0, 1.1, 0.9), make_layout(1, 1, 1, 1.2, 0)};
    bt_layouts l = {.at = at, .n = 4};
    bt_layouts_prefer_tried(&l);
    assert_true(at[0].trial_s == 0.9 && at[1].trial_s == 1.2);
    assert_true(bt_layout_step_s(&at[0]) == 0.9 && bt_layout_step_s(&at[2]) == 1.0);
    assert_true(at[3].time.step.step_s == 1.2);
}

static void the_simpler_of_equal_layouts_is_first(void **state) {
    (void)state;
    /* A tensor-parallel group and shards gain only 1 %: plain data parallelism is first, and the order of the remaining
     * layouts is unchanged. */
    bt_layout at[] = {make_layout(1, 2, 0, 0.99, 1.0), make_layout(1, 1, 3, 1, 1.005),
                      make_layout(1, 1, 0, 1, 1.01), make_layout(1, 1, 0, 1, 1.05)};
    bt_layouts l = {.at = at, .n = 4};
    bt_layouts_prefer_tried(&l);
    assert_true(at[0].trial_s == 1.01);
    assert_true(at[1].trial_s == 1.0 && at[2].trial_s == 1.005 && at[3].trial_s == 1.05);
    /* The faster layout gains more and is first. */
    at[0].trial_s = 1.03;
    bt_layouts_prefer_tried(&l);
    assert_true(at[0].trial_s == 1.005);
    /* A layout that exceeds the memory is last, however simple it is. */
    at[0] = make_layout(1, 2, 0, 1, 0);
    at[1] = make_layout(1, 1, 0, 1.001, 0);
    at[1].fits = false;
    l.n = 2;
    bt_layouts_prefer_tried(&l);
    assert_int_equal(at[0].shape.tp, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_layouts_are_first),
        cmocka_unit_test(the_simpler_of_equal_layouts_is_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
