/* test_run_control.c - the box that passes requests to the trainer: each request is taken once, invalid factors are
 * dropped, the newest text replaces earlier ones. tests/cli/run_train_ctl.sh pauses ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/train/run_control.h"

static bt_request_box box;
static void set_factor(double factor) {
    uint64_t bits;
    memcpy(&bits, &factor, sizeof bits);
    atomic_store(&box.lr_factor_bits, bits);
}

static void a_request_is_taken_once(void **state) {
    (void)state;
    static const struct {
        double factor;
        bool good;
    } rows[] = {{0.5, true}, {1e-9, true}, {999999, true},    {1e6, false},
                {0, false},  {-1, false},  {INFINITY, false}, {NAN, false}};
    bt_control c = bt_control_take(NULL);
    assert_true(c.verbs == 0 && c.lr_bits == 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        memset(&box, 0, sizeof box);
        set_factor(rows[i].factor);
        atomic_store(&box.bits, BT_REQ_LR | BT_REQ_EVAL);
        c = bt_control_take(&box);
        assert_int_equal(c.verbs, BT_REQ_EVAL | (rows[i].good ? (int64_t)BT_REQ_LR : 0));
        if (rows[i].good) assert_true(bt_control_lr_factor(&c) == rows[i].factor);
        if (!rows[i].good) assert_int_equal(c.lr_bits, 0);
        c = bt_control_take(&box);
        assert_true(c.verbs == 0 && c.lr_bits == 0);
    }
    memset(&box, 0, sizeof box); /* The factor is set without a request. */
    set_factor(0.5);
    atomic_store(&box.bits, BT_REQ_STOP);
    c = bt_control_take(&box);
    assert_true(c.verbs == BT_REQ_STOP && c.lr_bits == 0);
}

static void the_newest_text_is_taken(void **state) {
    (void)state;
    memset(&box, 0, sizeof box);
    assert_true(!bt_control_take_prompt(NULL) && !bt_control_take_mixture(NULL));
    assert_true(!bt_control_take_prompt(&box) && !bt_control_take_mixture(&box));
    char said_first[] = "first";
    assert_true(bt_control_request_sample(&box, said_first));
    strcpy(said_first, "later"); /* The box copies the text, so that the caller may change it. */
    assert_int_equal(atomic_load(&box.bits), BT_REQ_SAMPLE);
    assert_true(bt_control_request_mixture(&box, "3:1"));
    assert_int_equal(atomic_load(&box.bits), BT_REQ_SAMPLE | BT_REQ_MIXTURE);
    char *prompt = bt_control_take_prompt(&box), *weights;
    assert_string_equal(prompt, "first");
    free(prompt);
    assert_true(bt_control_request_mixture(&box, "1:1"));
    weights = bt_control_take_mixture(&box);
    assert_string_equal(weights, "1:1");
    free(weights);
    assert_true(!bt_control_take_prompt(&box) && !bt_control_take_mixture(&box));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_taken_once),
        cmocka_unit_test(the_newest_text_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
