/* The guard against bad steps: which updates it skips, and when it ends the run. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/train/parts/bad_steps/guard.h"

/* Evaluates one step and adds it to the history, as the trainer does; returns true if the step is applied. */
static bool guard_step(bt_guard *g, double grad_norm, bool loss_finite) {
    const bt_step_facts f = {.loss = 1, .grad_norm = grad_norm, .loss_finite = loss_finite};
    const bool good = bt_guard_classify(g, &f, NULL) == BT_STEP_GOOD;
    if (good)
        bt_guard_good(g, &f);
    else
        bt_guard_bad(g);
    return good;
}

static void skips_what_is_not_finite(void **state) {
    (void)state;
    bt_guard g = {.patience = BT_GUARD_PATIENCE};
    assert_true(guard_step(&g, 1.5, true));
    assert_false(guard_step(&g, NAN, true));
    assert_false(guard_step(&g, INFINITY, true));
    /* One rank has an infinite loss although every gradient is finite. */
    assert_false(guard_step(&g, 1.5, false));
    assert_int_equal(g.skipped, 3);
    assert_int_equal(g.in_row, 3);
    assert_true(guard_step(&g, 0, true));
    assert_int_equal(g.skipped, 3);
    assert_int_equal(g.in_row, 0);
}

static void ends_the_run_after_consecutive_bad_steps(void **state) {
    (void)state;
    bt_guard g = {.patience = BT_GUARD_PATIENCE};
    bt_err err = BT_ERR_INIT;
    for (int i = 1; i < BT_GUARD_PATIENCE; i++) {
        assert_false(guard_step(&g, 1, false));
        assert_int_equal(bt_guard_verdict(&g, i, NULL, &err), BT_OK);
    }
    assert_false(guard_step(&g, 1, false));
    assert_int_equal(bt_guard_verdict(&g, 9, NULL, &err), BT_CHECK);
    assert_non_null(strstr(err.msg, "the loss was not finite"));
    assert_non_null(strstr(err.msg, "(last: 'loss';"));
    assert_int_equal(bt_guard_verdict(&g, 9, "layers.1.gate", &err), BT_CHECK);
    assert_non_null(strstr(err.msg, "the gradient was not finite"));
    assert_non_null(strstr(err.msg, "layers.1.gate"));
    assert_true(guard_step(&g, 1, true));
    assert_int_equal(bt_guard_verdict(&g, 10, NULL, &err), BT_OK);
}

enum { WINDOW = 32 };

/* Returns a loss that falls and varies, and a gradient norm that varies by a factor of two. */
static bt_step_facts ordinary_step(int i) {
    const double noise = (i * 7 % 11 - 5) / 5.0;
    return (bt_step_facts){.loss = 2 + 3 * exp(-i / 20.0) + 0.05 * noise,
                           .grad_norm = exp(0.7 * noise),
                           .loss_finite = true};
}

static bt_guard guard_after(int steps) {
    bt_guard g = {.patience = BT_GUARD_PATIENCE, .spike_limit = 12, .window = WINDOW};
    for (int i = 0; i < steps; i++) {
        const bt_step_facts f = ordinary_step(i);
        assert_int_equal(bt_guard_classify(&g, &f, NULL), BT_STEP_GOOD);
        bt_guard_good(&g, &f);
    }
    return g;
}

static bt_step_verdict classify_loss(bt_guard *g, double loss, double norm, bt_spike *spike) {
    const bt_step_facts f = {.loss = loss, .grad_norm = norm, .loss_finite = true};
    return bt_guard_classify(g, &f, spike);
}

static void a_spike_stands_out_from_the_median(void **state) {
    (void)state;
    bt_spike s;
    bt_guard g = guard_after(200);
    assert_int_equal(classify_loss(&g, 2.3, 1, &s), BT_STEP_GOOD);
    assert_true(isnan(s.z));
    assert_int_equal(classify_loss(&g, 4, 1, &s), BT_STEP_LOSS_SPIKE);
    assert_true(s.z > 12 && fabs(s.median - 2) < 0.05 && s.value == 4);
    /* A falling loss is never a spike, and the gradient norm may grow tenfold. */
    assert_int_equal(classify_loss(&g, 0.1, 1e-9, NULL), BT_STEP_GOOD);
    assert_int_equal(classify_loss(&g, 2, 10, NULL), BT_STEP_GOOD);
    assert_int_equal(classify_loss(&g, 2, 1e6, &s), BT_STEP_NORM_SPIKE);
    assert_true(s.value > 0.99e6 && s.value < 1.01e6 && s.median > 0.3 && s.median < 3);
    /* An unknown loss is never a spike. */
    assert_int_equal(classify_loss(&g, NAN, 1, NULL), BT_STEP_GOOD);
    /* Outliers in less than half of the history change the limit little. */
    for (int i = 0; i < WINDOW / 4; i++)
        bt_guard_good(&g, &(bt_step_facts){.loss = 50, .grad_norm = 1e9, .loss_finite = true});
    assert_int_equal(classify_loss(&g, 4, 1, NULL), BT_STEP_LOSS_SPIKE);
    assert_int_equal(classify_loss(&g, 2, 1e6, NULL), BT_STEP_NORM_SPIKE);
    g.spike_limit = 0;
    assert_int_equal(classify_loss(&g, 4, 1e6, NULL), BT_STEP_GOOD);
}

/* The median of an even number of steps is the mean of the two in the middle. */
static void the_median_is_in_the_middle(void **state) {
    (void)state;
    static const double losses[] = {1, 4, 2, 7, 3, 40};
    for (int n = 4; n <= 6; n++) {
        bt_spike s;
        bt_guard g = {.patience = 5, .spike_limit = 12, .window = n};
        for (int i = 0; i < n; i++)
            bt_guard_good(&g,
                          &(bt_step_facts){.loss = losses[i], .grad_norm = 1, .loss_finite = true});
        assert_int_equal(classify_loss(&g, 1000, 1, &s), BT_STEP_LOSS_SPIKE);
        assert_true(s.median == (n == 4 ? 3 : n == 5 ? 3 : 3.5));
    }
}

static void nothing_is_a_spike_without_a_history(void **state) {
    (void)state;
    bt_guard g = guard_after(WINDOW / 2 - 1);
    assert_int_equal(classify_loss(&g, 100, 1e9, NULL), BT_STEP_GOOD);
    g = guard_after(WINDOW / 2);
    assert_int_equal(classify_loss(&g, 100, 1, NULL), BT_STEP_LOSS_SPIKE);
    bt_guard_forget(&g);
    assert_int_equal(classify_loss(&g, 100, 1e9, NULL), BT_STEP_GOOD);
    /* A history without variance uses the minimum sigma of guard.h. */
    bt_guard_forget(&g);
    for (int i = 0; i < WINDOW; i++)
        bt_guard_good(&g, &(bt_step_facts){.loss = 2, .grad_norm = 1, .loss_finite = true});
    assert_int_equal(classify_loss(&g, 2 * 1.23, 1, NULL), BT_STEP_GOOD);
    assert_int_equal(classify_loss(&g, 2 * 1.25, 1, NULL), BT_STEP_LOSS_SPIKE);
    assert_int_equal(classify_loss(&g, 2, 19, NULL), BT_STEP_GOOD);
    assert_int_equal(classify_loss(&g, 2, 21, NULL), BT_STEP_NORM_SPIKE);
}

/* The restored history has the same bits at every length; a window of another length takes the newest entries. */
static void the_history_survives_a_checkpoint(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_text text;
    bt_text_init(&text);
    for (int steps = 0; steps < 80; steps += 7) {
        bt_guard a = guard_after(steps), b = guard_after(3), c = {.patience = 5, .window = 8};
        bt_state from = {0}, to = {0}, other = {0};
        bt_guard_bad(&a);
        bt_guard_add_state(&a, &from);
        bt_guard_add_state(&b, &to);
        bt_guard_add_state(&c, &other);
        bt_text_clear(&text);
        assert_int_equal(bt_state_save_values(&from, &text, &err), BT_OK);
        assert_int_equal(bt_state_load_values(&to, &text, &err), BT_OK);
        assert_int_equal(bt_state_load_values(&other, &text, &err), BT_OK);
        assert_int_equal(b.in_row, 1);
        for (int i = steps; i < steps + 40; i++) {
            const bt_step_facts f = ordinary_step(i);
            bt_spike x, y;
            assert_int_equal(classify_loss(&a, 3, 5, &x), classify_loss(&b, 3, 5, &y));
            assert_memory_equal(&x.z, &y.z, sizeof x.z);
            bt_guard_good(&a, &f);
            bt_guard_good(&b, &f);
        }
        assert_int_equal(c.n, steps < 8 ? steps : 8);
        if (steps > 0) assert_true(c.loss[c.n - 1] == ordinary_step(steps - 1).loss);
    }
    bt_text_release(&text);
}

/* Malformed histories and counts above the permitted number of bad steps are rejected. */
static void malformed_histories_are_rejected(void **state) {
    (void)state;
#define ONE "3ff0000000000000"
    static const struct {
        const char *loss, *norm;
        int64_t n, bad, in_row;
    } rows[] = {{ONE ONE, ONE ONE, 2, 2, 2},
                {"", "", 0, 0, 0},
                {ONE ONE, ONE, 0, BT_GUARD_PATIENCE, BT_GUARD_PATIENCE},
                {ONE "3", ONE "3", 0, BT_GUARD_PATIENCE + 1, 0},
                {"3", ONE, 0, -1, 0},
                {ONE "3ff000000000000g", ONE ONE, 0, 1, 1},
                {ONE "7ff0000000000000", ONE ONE, 0, 1, 1}, /* infinite */
                {ONE, ONE ONE ONE, 0, 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_guard g = {.patience = BT_GUARD_PATIENCE, .spike_limit = 12, .window = 8, .n = 5};
        bt_state all = {.n = 0};
        bt_err err = BT_ERR_INIT;
        bt_text text;
        bt_text_init(&text);
        bt_text_printf(&text,
                       "{\"guard\":{\"bad_in_a_row\":%d,\"loss\":\"%s\",\"ln_grad_norm\":\"%s\"}}",
                       (int)rows[i].bad, rows[i].loss, rows[i].norm);
        bt_guard_add_state(&g, &all);
        assert_int_equal(bt_state_load_values(&all, &text, &err), BT_OK);
        if (g.n != rows[i].n || g.in_row != rows[i].in_row)
            fail_msg("row %zu: %d values, %d in a row", i, (int)g.n, (int)g.in_row);
        bt_text_release(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(skips_what_is_not_finite),
        cmocka_unit_test(ends_the_run_after_consecutive_bad_steps),
        cmocka_unit_test(a_spike_stands_out_from_the_median),
        cmocka_unit_test(the_median_is_in_the_middle),
        cmocka_unit_test(nothing_is_a_spike_without_a_history),
        cmocka_unit_test(the_history_survives_a_checkpoint),
        cmocka_unit_test(malformed_histories_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
