/* Plans of unequal numbers of micro-batches per rank are complete, optimal and stable; also the syntax of the
 * setting. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/parallel/schedule/balance.h"

static double draw_number(uint64_t i) {
    return 0.1 + 10 * (double)(bt_rng_u64(7, 1, i) >> 11) * 0x1p-53;
}

static int64_t sum_of_counts(const int64_t *count, size_t n) {
    int64_t s = 0;
    for (size_t i = 0; i < n; i++) s += count[i];
    return s;
}

/* Returns the least possible time by trying all divisions. */
static double best_time(const double *cost, size_t n, int64_t total) {
    if (n == 1) return (double)total * cost[0];
    double best = INFINITY;
    for (int64_t first = 1; first <= total - (int64_t)n + 1; first++)
        best = fmin(best, fmax((double)first * cost[0], best_time(cost + 1, n - 1, total - first)));
    return best;
}

static void plans_are_complete_and_optimal(void **state) {
    (void)state;
    for (uint64_t k = 0; k < 400; k++) {
        size_t n = 1 + k % 4;
        int64_t total = (int64_t)n + (int64_t)(k / 4 % 12), count[4];
        double cost[4];
        for (size_t i = 0; i < n; i++) cost[i] = draw_number(4 * k + i);
        bt_balance_plan(count, cost, n, total);
        assert_int_equal(sum_of_counts(count, n), total);
        for (size_t i = 0; i < n; i++) assert_true(count[i] >= 1);
        assert_true(fabs(bt_balance_time(count, cost, n) - best_time(cost, n, total)) < 1e-12);
    }
}

static void equal_speeds_share_equally(void **state) {
    (void)state;
    for (size_t n = 1; n <= 64; n++) {
        for (int64_t total = (int64_t)n; total <= 4 * (int64_t)n; total += 3) {
            int64_t plan[64], even[64];
            double cost[64];
            for (size_t i = 0; i < n; i++) cost[i] = 0.25;
            bt_balance_plan(plan, cost, n, total);
            bt_balance_even(even, n, total);
            assert_int_equal(sum_of_counts(even, n), total);
            assert_true(bt_balance_time(plan, cost, n) == bt_balance_time(even, cost, n));
            assert_false(bt_balance_worth(even, plan, cost, n));
        }
    }
}

static void slow_ranks_get_less(void **state) {
    (void)state;
    const double cost[] = {1, 3, 1, 2};
    int64_t now[4], next[4];
    bt_balance_even(now, 4, 17);
    bt_balance_plan(next, cost, 4, 17);
    const int64_t want[] = {6, 2, 6, 3};
    assert_memory_equal(next, want, sizeof want);
    assert_true(bt_balance_worth(now, next, cost, 4));
    assert_false(bt_balance_worth(next, next, cost, 4));
}

/* Noise of a few percent does not change the plan. */
static void noise_changes_nothing(void **state) {
    (void)state;
    int64_t now[3], next[3];
    const double speed[] = {1, 2, 1};
    bt_balance_plan(now, speed, 3, 20);
    for (uint64_t k = 0; k < 300; k++) {
        double cost[3];
        for (size_t i = 0; i < 3; i++)
            cost[i] = speed[i] * (1 + 0.01 * (draw_number(3 * k + i) - 5.1) / 5);
        bt_balance_plan(next, cost, 3, 20);
        assert_false(bt_balance_worth(now, next, cost, 3));
    }
}

static void times_are_smoothed_after_settling(void **state) {
    (void)state;
    bt_balance_meter m = {0};
    /* The first steps touch memory for the first time and are not measured. */
    for (int i = 0; i < BT_BALANCE_SETTLE; i++) bt_balance_saw(&m, 100);
    assert_true(m.smoothed == 0);
    bt_balance_saw(&m, 1);
    assert_true(m.smoothed == 1);
    bt_balance_saw(&m, 2);
    assert_true(fabs(m.smoothed - (BT_BALANCE_MEMORY + 2 * (1 - BT_BALANCE_MEMORY))) < 1e-12);
    int due = 0;
    for (int i = 0; i < 3 * BT_BALANCE_EVERY; i++) {
        bt_balance_saw(&m, 1);
        due += bt_balance_due(&m);
    }
    assert_int_equal(due, 3);
    bt_balance_changed(&m);
    assert_false(bt_balance_due(&m));
}

static void the_setting_is_parsed(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_balance_kind kind;
    int64_t shares[3];
    assert_int_equal(bt_balance_parse("even", &kind, shares, 3, &err), BT_OK);
    assert_int_equal(kind, BT_BALANCE_EVEN);
    assert_int_equal(bt_balance_parse("auto", &kind, NULL, 3, &err), BT_OK);
    assert_int_equal(kind, BT_BALANCE_AUTO);
    assert_int_equal(bt_balance_parse("3,1,20", &kind, shares, 3, &err), BT_OK);
    assert_true(kind == BT_BALANCE_SHARES && shares[0] == 3 && shares[1] == 1 && shares[2] == 20);
    static const char *const wrong[] = {"",        "evn",    "3,",      ",3",
                                        "3;1",     "0,1,1",  "-1,1,1",  "1,1",
                                        "1,1,1,1", "1, 1,1", "1e3,1,1", "9999999999999999999,1,1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(bt_balance_parse(wrong[i], &kind, shares, 3, &err), BT_ARG);
    assert_int_equal(bt_balance_parse("1,1", &kind, shares, 3, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "has 2 shares, but there are 3 data-parallel ranks"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_complete_and_optimal),
        cmocka_unit_test(equal_speeds_share_equally),
        cmocka_unit_test(slow_ranks_get_less),
        cmocka_unit_test(noise_changes_nothing),
        cmocka_unit_test(times_are_smoothed_after_settling),
        cmocka_unit_test(the_setting_is_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
