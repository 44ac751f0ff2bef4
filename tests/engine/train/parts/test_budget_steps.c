/* test_budget_steps.c - the number of steps that fit into a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/train/parts/time_budget/budget_steps.h"

static void steps_fit_into_the_time(void **state) {
    (void)state;
    static const struct {
        double budget_s;
        bt_time_use before, now;
        int64_t planned, most, want;
    } rows[] = {
        {100, {0, 0}, {10, 10}, 100, 150, 100},   /* as planned */
        {100, {0, 0}, {10, 10.1}, 100, 150, 100}, /* 99 is within 2 % */
        {100, {0, 0}, {10, 20}, 100, 150, 50},    /* half as fast */
        {100, {0, 0}, {10, 8}, 100, 150, 125},    /* faster */
        {100, {0, 0}, {10, 1}, 100, 150, 150},    /* limited */
        {100, {20, 30}, {30, 50}, 100, 150, 55},  /* the newest steps count: 50 s are left */
        {100, {0, 0}, {40, 100}, 100, 150, 40},   /* nothing is left */
        {100, {0, 0}, {40, 130}, 100, 150, 40},
        {100, {10, 20}, {10, 20}, 100, 150, 100}, /* nothing was measured */
        {100, {0, 20}, {10, 20}, 100, 150, 100},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(bt_budget_steps(rows[i].budget_s, rows[i].before, rows[i].now,
                                         rows[i].planned, rows[i].most),
                         rows[i].want);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_fit_into_the_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
