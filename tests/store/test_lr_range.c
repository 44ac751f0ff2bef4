/* a range test's judgement on curves whose answer is known. */
#include <math.h>

#include "store/read/lr_range.h"
#include "store_test.h"

static bt_lr_range r;

/* rates from 1e-6 to 1; the loss falls around `steep`, is level, and rises from `end` on */
static void make(size_t n, double steep, double end) {
    r = (bt_lr_range){.n = n};
    for (size_t i = 0; i < n; i++) {
        r.lr[i] = 1e-6 * pow(1e6, (double)i / (double)(n - 1));
        const double x = log10(r.lr[i] / steep), beyond = log10(r.lr[i] / end);
        r.loss[i] = 5 - 2 / (1 + exp(-3 * x)) + (beyond > 0 ? 20 * beyond * beyond : 0);
    }
    bt_lr_range_judge(&r);
}

static bool within(double value, double wanted, double factor) {
    return value > wanted / factor && value < wanted * factor;
}

static void the_steepest_descent_is_suggested(void **state) {
    (void)state;
    for (size_t n = BT_LR_RANGE_LEAST; n <= BT_LR_RANGE_MOST; n *= 3) {
        make(n, 1e-3, 1e-1);
        assert_null(r.nothing);
        assert_true(within(r.steepest, 1e-3, 2)); /* the middle of the fall, by a step's width */
        assert_true(r.suggested == r.steepest);
        assert_true(within(r.diverged, 0.17, 2)); /* 20 beyond^2 = 1, half of what was gained */
        assert_true(r.lr[r.step] >= r.suggested && (!r.step || r.lr[r.step - 1] < r.suggested));
    }
}

static void never_less_than_ten_times_below_the_divergence(void **state) {
    (void)state;
    make(200, 1e-3, 2e-3);
    assert_true(within(r.diverged, 4e-3, 2));
    assert_true(fabs(r.suggested / (r.diverged / 10) - 1) < 1e-9 && r.suggested < r.steepest);
    r.loss[140] = NAN; /* a loss that is not finite is the divergence, and the end */
    for (size_t i = 0; i < 200; i++) r.loss[i] = i == 140 ? NAN : 5 - 0.01 * (double)i;
    r.n = 200;
    bt_lr_range_judge(&r);
    assert_int_equal(r.n, 140);
    assert_true(r.diverged == r.lr[140]);
    assert_true(r.suggested <= r.diverged / 10);
    make(200, 1e-3, 10); /* none within the range: a tenth of the least */
    assert_true(isnan(r.diverged));
    assert_true(r.suggested <= r.least / 10);
}

static void nothing_is_suggested_of_nothing(void **state) {
    (void)state;
    make(BT_LR_RANGE_LEAST - 1, 1e-3, 1e-1);
    assert_string_equal(r.nothing, "too few steps have a loss");
    r = (bt_lr_range){.n = 0};
    bt_lr_range_judge(&r);
    assert_non_null(r.nothing);
    make(100, 1e-3, 1e-9); /* it rises from the first step on */
    assert_true(isnan(r.suggested) && r.step == -1);
    assert_non_null(strstr(r.nothing, "begin lower"));
    r.n = 100;
    for (size_t i = 0; i < 100; i++) r.loss[i] = 3;
    bt_lr_range_judge(&r);
    assert_non_null(strstr(r.nothing, "falls at no rate"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steepest_descent_is_suggested),
        cmocka_unit_test(never_less_than_ten_times_below_the_divergence),
        cmocka_unit_test(nothing_is_suggested_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
