/* the model of a link from two rounds of messages, and what is none. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/parallel/mpi/link.h"

static void two_rounds_make_a_model(void **state) {
    (void)state;
    /* 20 us and 1 GB/s: 64 bytes, then a megabyte more */
    bt_link l = bt_link_of(20e-6 + 64e-9, 20e-6 + 1e-3 + 64e-9, 64, 1e6);
    assert_true(l.tried);
    assert_true(fabs(l.bytes_per_s - 1e9) < 1);
    assert_true(fabs(l.latency_s - 20e-6) < 1e-9);
    assert_true(fabs(bt_link_s(&l, 2, 1e6) - 1.04e-3) < 1e-8);
}

/* other work on the machine: a small round took as long as a large one, or longer */
static void a_busy_machine_gives_none(void **state) {
    static const double rounds[][2] = {{16e-3, 16e-3}, {16e-3, 9e-3}, {16e-3, 16.1e-3}, {0, 1e-7}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bt_link l = bt_link_of(rounds[i][0], rounds[i][1], 64, 4e6);
        assert_true(l.tried);
        assert_true(!(l.bytes_per_s > 0) && !(l.latency_s > 0));
        assert_true(isnan(bt_link_s(&l, 1, 1e6)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_rounds_make_a_model),
        cmocka_unit_test(a_busy_machine_gives_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
