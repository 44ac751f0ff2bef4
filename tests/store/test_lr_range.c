/* A learning-rate range test finds the steepest rate and the point of divergence of curves with known answers. */
#include <math.h>

#include "../golden_json.h"
#include "store/read/lr_range.h"
#include "store_test.h"

static bt_lr_range r;

/* Makes a curve for rates from 1e-6 to 1: the loss falls around `steep`, then is level, and rises from `end` on. */
static void make_curve(size_t n, double steep, double end) {
    r = (bt_lr_range){.n = n};
    for (size_t i = 0; i < n; i++) {
        r.lr[i] = 1e-6 * pow(1e6, (double)i / (double)(n - 1));
        const double x = log10(r.lr[i] / steep), beyond = log10(r.lr[i] / end);
        r.loss[i] = 5 - 2 / (1 + exp(-3 * x)) + (beyond > 0 ? 20 * beyond * beyond : 0);
    }
    bt_lr_range_evaluate(&r);
}

static bool is_within_factor(double value, double wanted, double factor) {
    return value > wanted / factor && value < wanted * factor;
}

static void the_steepest_descent_is_suggested(void **state) {
    (void)state;
    for (size_t n = BT_LR_RANGE_LEAST; n <= BT_LR_RANGE_MOST; n *= 3) {
        make_curve(n, 1e-3, 1e-1);
        assert_null(r.nothing);
        /* The curve falls most steeply at 1e-3. */
        assert_true(is_within_factor(r.steepest, 1e-3, 2));
        assert_true(r.suggested == r.steepest);
        /* The loss has risen by half of its decrease. */
        assert_true(is_within_factor(r.diverged, 0.17, 2));
        assert_true(r.lr[r.step] >= r.suggested && (!r.step || r.lr[r.step - 1] < r.suggested));
    }
}

static void never_less_than_ten_times_below_the_divergence(void **state) {
    (void)state;
    make_curve(200, 1e-3, 2e-3);
    assert_true(is_within_factor(r.diverged, 4e-3, 2));
    assert_true(fabs(r.suggested / (r.diverged / 10) - 1) < 1e-9 && r.suggested < r.steepest);
    r.loss[140] = NAN; /* A loss that is not finite counts as divergence and ends the curve. */
    for (size_t i = 0; i < 200; i++) r.loss[i] = i == 140 ? NAN : 5 - 0.01 * (double)i;
    r.n = 200;
    bt_lr_range_evaluate(&r);
    assert_int_equal(r.n, 140);
    assert_true(r.diverged == r.lr[140]);
    assert_true(r.suggested <= r.diverged / 10);
    /* If the loss does not diverge, the proposed maximum is a tenth of the rate with the lowest loss. */
    make_curve(200, 1e-3, 10);
    assert_true(isnan(r.diverged));
    assert_true(r.suggested <= r.least / 10);
}

static void unsuitable_curves_have_no_suggestion(void **state) {
    (void)state;
    make_curve(BT_LR_RANGE_LEAST - 1, 1e-3, 1e-1);
    assert_string_equal(r.nothing, "too few steps have a loss");
    r = (bt_lr_range){.n = 0};
    bt_lr_range_evaluate(&r);
    assert_non_null(r.nothing);
    make_curve(100, 1e-3, 1e-9); /* The loss rises from the first step on. */
    assert_true(isnan(r.suggested) && r.step == -1);
    assert_non_null(strstr(r.nothing, "begin lower"));
    r.n = 100;
    for (size_t i = 0; i < 100; i++) r.loss[i] = 3;
    bt_lr_range_evaluate(&r);
    assert_non_null(strstr(r.nothing, "falls at no rate"));
}

static void is_golden(const char *name) {
    char file[60];
    bt_text text;
    bt_json j;
    bt_text_init(&text);
    bt_json_begin(&j, &text);
    bt_json_object(&j, NULL);
    bt_lr_range_json(&r, &j);
    bt_json_end(&j, '}');
    snprintf(file, sizeof file, "store/golden/lr_range_%s.txt", name);
    bt_golden_json(file, bt_text_str(&text), "no place", "");
    bt_text_release(&text);
}

/* The golden file contains every figure of some results. A window has five steps, and more from 120 steps on. */
static void results_in_figures(void **state) {
    (void)state;
    make_curve(BT_LR_RANGE_LEAST, 1e-4, 1e-2);
    is_golden("few");
    make_curve(121, 1e-3, 1e-1);
    is_golden("many");
    make_curve(60, 1e-3, 1e-2);
    r.n = 60;
    r.loss[50] = INFINITY;
    bt_lr_range_evaluate(&r);
    is_golden("cut");
    make_curve(40, 1e-2, 1e-5); /* This curve diverges before its loss has fallen. */
    is_golden("late");
}

/* Steps that a run repeated after a restart are used once, and steps of another run are not used. */
static void steps_of_a_run(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bool is = false;
    int attempt;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    for (int k = 0; k < 2; k++) {
        bt_run_start s = bt_fake_run(k ? "plain" : "test");
        s.config_json = k ? "{\"optim.schedule\":\"cosine\"}"
                          : "{\"optim.schedule\":{\"value\":\"range\"}}";
        OK(bt_writer_begin(w, &s, &attempt, err));
        for (int64_t step = 0; step < 40; step++) {
            bt_fake_step(&f, step, 0);
            /* Steps with an unknown rate or a rate that does not rise are omitted. */
            f.values[BT_MS_LR] = step == 5 ? NAN : step == 9 ? 1e-6 : 1e-6 * pow(1.4, (double)step);
            f.values[BT_MS_LOSS] = 5 - 0.1 * (double)step;
            bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &f.r);
        }
        OK(bt_writer_end(w, "done", "finished", 0, err));
    }
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_lr_range(db, "test", &is, &r, err));
    assert_true(is);
    assert_int_equal(r.n, 38);
    assert_true(fabs(r.lr[5] - 1e-6 * pow(1.4, 6)) < 1e-12 && fabs(r.loss[8] - 4) < 1e-12);
    assert_null(r.nothing);
    OK(bt_db_lr_range(db, "plain", &is, &r, err));
    assert_false(is);
    assert_int_equal(r.n, 0);
    OK(bt_db_lr_range(db, "nobody", &is, &r, err));
    assert_false(is);
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_steepest_descent_is_suggested),
        cmocka_unit_test(never_less_than_ten_times_below_the_divergence),
        cmocka_unit_test(unsuitable_curves_have_no_suggestion),
        cmocka_unit_test(results_in_figures),
        cmocka_unit_test_setup_teardown(steps_of_a_run, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
