/* Latency and rate of a link from two rounds of messages, and measurements that give no such model. */
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

/* On a busy machine a small round took as long as a large one, or longer. */
static void a_busy_machine_gives_no_model(void **state) {
    static const double rounds[][2] = {{16e-3, 16e-3}, {16e-3, 9e-3}, {16e-3, 16.1e-3}, {0, 1e-7}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        bt_link l = bt_link_of(rounds[i][0], rounds[i][1], 64, 4e6);
        assert_true(l.tried);
        assert_true(!(l.bytes_per_s > 0) && !(l.latency_s > 0));
        assert_true(isnan(bt_link_s(&l, 1, 1e6)));
    }
}

static void implausible_rounds_give_no_model(void **state) {
    static const struct {
        size_t bytes;
        int ranks;
        size_t each;
    } rows[] = {{0, 2, 4096},
                {4095, 2, 4096},
                {4097, 2, 4097},
                {3 * 4097 + 2, 4, 4097},
                {3 * 4095, 4, 4096},
                {(size_t)1 << 28, 2, 1 << 28},
                {((size_t)1 << 28) + 1, 2, 1 << 28},
                {(size_t)5 << 28, 3, 1 << 28}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(bt_link_bytes_each(rows[i].bytes, rows[i].ranks), rows[i].each);
}

/* The rate is at most 1e12 bytes per second, and a large round takes at least two per cent longer. */
static void rates_of_a_model_are_limited(void **state) {
    (void)state;
    assert_true(bt_link_of(0, 1e-6, 0, 1e6).bytes_per_s == 1e6 / 1e-6);
    assert_true(bt_link_of(0, 0.999e-6, 0, 1e6).bytes_per_s == 0);
    assert_true(bt_link_of(1, 1.02, 0, 1e6).bytes_per_s == 0);
    assert_true(bt_link_of(1, 1.03, 0, 1e6).bytes_per_s > 0);
    /* A small round that took no longer than its bytes has a latency of a nanosecond. */
    assert_true(bt_link_of(1e-6, 1, 1e9, 1e6).latency_s == 1e-9);
    bt_link l = {.latency_s = 2, .bytes_per_s = 4};
    assert_true(bt_link_s(&l, 3, 8) == 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_rounds_make_a_model),
        cmocka_unit_test(a_busy_machine_gives_no_model),
        cmocka_unit_test(implausible_rounds_give_no_model),
        cmocka_unit_test(rates_of_a_model_are_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
