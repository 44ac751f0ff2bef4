/* test_reduce_split.c - the time that gradients delay a step is divided into waiting for late ranks and the exchange
 * itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/parallel/grad/reducer.h"

static void blocked_time_is_split(void **state) {
    (void)state;
    static const struct {
        int64_t blocked, skew, error, wait;
    } rows[] = {{100, 30, 0, 30}, {100, 0, 0, 0},    {100, -5, 0, 0},     {100, 30, 10, 30},
                {100, 29, 10, 0}, {100, 31, 10, 31}, {100, 300, 10, 100}, {100, -50, -10, 0},
                {0, 30, 0, 0},    {100, 100, 0, 100}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_reduce_times t = bt_reduce_split(rows[i].blocked, rows[i].skew, rows[i].error);
        assert_true(t.wait_ns == rows[i].wait && t.exposed_ns == rows[i].blocked - rows[i].wait &&
                    t.busy_ns == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(blocked_time_is_split)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
