/* The loss scale of fp16: when it is halved and doubled, and its limits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/optim/loss_scale.h"

static void powers_of_two_only(void **state) {
    (void)state;
    for (int i = 0; i <= 40; i++) assert_true(bt_loss_scale_is(ldexp(1, i)));
    const double wrong[] = {0, 0.5, 3, 65535, 65537, -2, 0x1p41, INFINITY, NAN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(bt_loss_scale_is(wrong[i]));
}

static void the_scale_is_one_when_off(void **state) {
    (void)state;
    bt_loss_scale s;
    bt_loss_scale_init(&s, false, 65536, 1);
    for (int i = 0; i < 5; i++) assert_false(bt_loss_scale_good(&s) || bt_loss_scale_overflow(&s));
    assert_true(s.value == 1);
}

static void grows_after_good_steps_in_a_row(void **state) {
    (void)state;
    bt_loss_scale s;
    bt_loss_scale_init(&s, true, 8, 3);
    assert_false(bt_loss_scale_good(&s) || bt_loss_scale_good(&s));
    assert_true(bt_loss_scale_good(&s));
    assert_true(s.value == 16);
    assert_false(bt_loss_scale_good(&s) || bt_loss_scale_good(&s));
    assert_true(bt_loss_scale_overflow(&s)); /* The count of good steps begins again. */
    assert_true(s.value == 8);
    assert_false(bt_loss_scale_good(&s) || bt_loss_scale_good(&s));
    assert_true(bt_loss_scale_good(&s));
}

static void has_a_floor_and_a_ceiling(void **state) {
    (void)state;
    bt_loss_scale s;
    bt_loss_scale_init(&s, true, 4, 1);
    assert_true(bt_loss_scale_overflow(&s) && bt_loss_scale_overflow(&s));
    assert_true(s.value == 1);
    /* The scale cannot be halved further, so the overflow has another cause. */
    assert_false(bt_loss_scale_overflow(&s));
    assert_true(s.value == 1);
    for (int i = 0; i < 100; i++) (void)bt_loss_scale_good(&s);
    assert_true(s.value == BT_LOSS_SCALE_MOST);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_only),
        cmocka_unit_test(the_scale_is_one_when_off),
        cmocka_unit_test(grows_after_good_steps_in_a_row),
        cmocka_unit_test(has_a_floor_and_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
