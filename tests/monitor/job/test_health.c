/* test_health.c - ranks that send nothing raise an alarm, slow steps do not; with simulated time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "monitor/job/health/health.h"

#define S(x) ((int64_t)((x)*1e9))

static void test_before_the_first_step(void **state) {
    (void)state;
    bt_health h;
    bt_health_start(&h);
    /* Preparing data may take long. */
    assert_int_equal(bt_health_check(&h, S(100000), 60), BT_HEALTH_FINE);
    assert_true(bt_health_silence_s(&h, S(5)) == 0);
    h.gaps[0] = 5; /* the event belongs to no step */
    assert_true(bt_health_median_s(&h) == 0 && bt_health_limit_s(&h) == 30);
}

static void test_no_false_alarm(void **state) {
    (void)state;
    bt_health h;
    bt_health_start(&h);
    int64_t now = S(1);
    /* Steps of 20 ms, every 100th with a checkpoint of 25 s. */
    for (int i = 0; i < 10000; i++) {
        now += i % 100 == 99 ? S(25) : S(0.02);
        assert_int_equal(bt_health_check(&h, now, 600), BT_HEALTH_FINE);
        bt_health_step(&h, now);
    }
    /* Slow steps raise the limit. */
    bt_health_start(&h);
    now = S(1);
    for (int i = 0; i < 50; i++) {
        now += S(20);
        bt_health_step(&h, now);
    }
    assert_true(bt_health_limit_s(&h) >= 200);
    assert_int_equal(bt_health_check(&h, now + S(150), 600), BT_HEALTH_FINE);
}

static void test_alarm_once(void **state) {
    (void)state;
    bt_health h;
    bt_health_start(&h);
    int64_t now = S(1);
    for (int i = 0; i < 20; i++) bt_health_step(&h, now += S(0.1));
    assert_true(bt_health_limit_s(&h) == 30);
    assert_int_equal(bt_health_check(&h, now + S(29), 600), BT_HEALTH_FINE);
    assert_int_equal(bt_health_check(&h, now + S(31), 600), BT_HEALTH_LATE);
    assert_int_equal(bt_health_check(&h, now + S(32), 600), BT_HEALTH_FINE);
    bt_health_step(&h, now += S(40));
    assert_int_equal(bt_health_check(&h, now, 600), BT_HEALTH_RECOVERED);
    assert_int_equal(bt_health_check(&h, now + S(1), 600), BT_HEALTH_FINE);
    assert_true(bt_health_limit_s(&h) == 30); /* A single delay does not change the limit. */
    assert_int_equal(bt_health_check(&h, now + S(601), 600), BT_HEALTH_DEAD);
    /* 0: the run is never ended for it */
    assert_int_equal(bt_health_check(&h, now + S(100000), 0), BT_HEALTH_LATE);
}

static void test_short_deadline(void **state) {
    (void)state;
    bt_health h;
    bt_health_start(&h);
    int64_t now = S(1);
    for (int i = 0; i < 20; i++) bt_health_step(&h, now += S(0.1));
    assert_int_equal(bt_health_check(&h, now + S(2.1), 2), BT_HEALTH_DEAD);
    /* After a gap of 1 s, 2 s without a message are no alarm. */
    bt_health_step(&h, now += S(1));
    assert_int_equal(bt_health_check(&h, now + S(2.1), 2), BT_HEALTH_FINE);
    assert_int_equal(bt_health_check(&h, now + S(3.1), 2), BT_HEALTH_DEAD);
}

static void test_pause_and_signs(void **state) {
    (void)state;
    bt_health h;
    bt_health_start(&h);
    int64_t now = S(1);
    for (int i = 0; i < 20; i++) bt_health_step(&h, now += S(0.1));
    bt_health_pause(&h, true, now);
    assert_int_equal(bt_health_check(&h, now + S(10000), 60), BT_HEALTH_FINE);
    now += S(10000);
    bt_health_pause(&h, false, now);
    assert_int_equal(bt_health_check(&h, now + S(29), 60), BT_HEALTH_FINE);
    bt_health_sign(&h, now + S(29)); /* a checkpoint event */
    assert_int_equal(bt_health_check(&h, now + S(50), 60), BT_HEALTH_FINE);
    assert_int_equal(bt_health_check(&h, now + S(91), 60), BT_HEALTH_DEAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_before_the_first_step),
                                       cmocka_unit_test(test_no_false_alarm),
                                       cmocka_unit_test(test_alarm_once),
                                       cmocka_unit_test(test_short_deadline),
                                       cmocka_unit_test(test_pause_and_signs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
