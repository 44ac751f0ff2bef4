/* test_replica_check.c - interval between comparisons of replicas: at most a four-hundredth of the time, between 1 and
 * 50 steps, and 10 steps while the cost is unknown. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/update/replica_check.h"

static void comparisons_cost_a_share_of_the_time(void **state) {
    (void)state;
    static const struct {
        double cost_ns, step_ns;
        int64_t steps;
    } rows[] = {{1e6, 0, 10},  {1e6, -1, 10}, {0, 1e6, 1},   {1, 1e9, 1},    {1e6, 400e6, 1},
                {1e6, 1e8, 4}, {1e6, 9e7, 5}, {1e6, 8e7, 5}, {1e6, 8e6, 50}, {1e6, 1e6, 50}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(bt_replica_check_every(rows[i].cost_ns, rows[i].step_ns), rows[i].steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(comparisons_cost_a_share_of_the_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
