/* Comparison of two runs: the level and noise of a figure, runs of different lengths, the first step that differs, and
 * the results of gate conditions. */
#include "../store_test.h"
#include "store/read/compare_runs.h"
#include "tests/message.h"

/* Records a run in which step i has the loss loss[i]. */
static void record_losses(const char *path, const char *name, const double *loss, int n) {
    bt_run_start start = bt_fake_run(name);
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    start.started_us = 1700000000000000;
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    for (int step = 0; step < n; step++) {
        bt_fake_step(&f, step, 2);
        f.r.wall_us = start.started_us + 2000000 * (step + 1);
        f.values[BT_MS_LOSS] = loss[step];
        f.values[BT_MS_TOKENS] = 100 * (step + 1);
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &f.r);
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

static const double falling[] = {9, 8, 7, 6, 5, 4, 3, 2}, uneven[] = {9, 8, 7, 6, 5, 4, 4, 1, 2, 3};

static bt_level level_of_figure(bt_db *db, const char *run, const char *metric, bt_at_axis axis,
                                double x, int window) {
    bt_level l;
    OK(bt_db_level(db, run, metric, &(bt_at){axis, x}, window, &l, err));
    return l;
}

static void is_level(bt_level l, int n, double value, double x) {
    assert_int_equal(l.n, n);
    assert_true(fabs(l.value - value) < 1e-6);
    assert_true(fabs(l.x - x) < 1e-6);
}

static void levels_of_a_window(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_losses(t->db, "a", falling, 8);
    record_losses(t->db, "b", uneven, 10);
    OK(bt_db_open(&db, t->db, err));
    bt_level l = level_of_figure(db, "a", "loss", BT_AT_STEP, NAN, 3);
    is_level(l, 3, 3, 8);
    assert_true(isnan(l.noise)); /* Three values are too few for an estimate. */
    l = level_of_figure(db, "a", "loss", BT_AT_STEP, NAN, 4);
    is_level(l, 4, 3.5, 8);
    assert_true(fabs(l.noise) < 1e-6); /* A straight line has no noise. */
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, 5, 2), 2, 5.5, 5);
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, 5.9, 1), 1, 5, 5);
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, 5, 0), 1, 5, 5);
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, INFINITY, 5000), 8, 5.5, 8);
    is_level(level_of_figure(db, "a", "loss", BT_AT_TIME, 6, 1), 1, 7, 6);
    is_level(level_of_figure(db, "a", "loss", BT_AT_TOKENS, 399, 1), 1, 7, 300);
    l = level_of_figure(db, "a", "loss", BT_AT_STEP, 0.5, 4);
    assert_true(l.n == 0 && isnan(l.value) && isnan(l.noise));
    is_level(level_of_figure(db, "a", "steps", BT_AT_STEP, NAN, 4), 1, 8, 8);
    is_level(level_of_figure(db, "a", "steps", BT_AT_TOKENS, 1, 4), 1, 8, 800);
    /* 4, 1, 2, 3: squared deviations of 4.8 around their line, 2 degrees of freedom, mean over 4 */
    l = level_of_figure(db, "b", "loss", BT_AT_STEP, NAN, 4);
    is_level(l, 4, 2.5, 10);
    assert_true(fabs(l.noise - sqrt(4.8 / 2 / 4)) < 1e-6);
    bt_err why = BT_ERR_INIT;
    assert_int_equal(bt_db_level(db, "a", "mood", &(bt_at){BT_AT_STEP, NAN}, 4, &l, &why), BT_ARG);
    message_has(why.msg, "no metric 'mood' (see");

    static const char *const both[] = {"b", "a"}, *const none[] = {"b", "nobody"};
    static const double ends[] = {[BT_AT_TOKENS] = 800, [BT_AT_STEP] = 8, [BT_AT_TIME] = 16};
    for (int axis = BT_AT_TOKENS; axis <= BT_AT_TIME; axis++) {
        double end;
        OK(bt_db_common_end(db, both, 2, (bt_at_axis)axis, &end, err));
        assert_true(fabs(end - ends[axis]) < 1e-6);
        OK(bt_db_common_end(db, none, 2, (bt_at_axis)axis, &end, err));
        assert_true(end == 0);
    }
    bt_first_difference d;
    OK(bt_db_first_difference(db, "a", "b", &d, err));
    assert_int_equal(d.common, 8);
    assert_int_equal(d.step, 6);
    assert_true(d.a == 3 && d.b == 4);
    OK(bt_db_first_difference(db, "a", "a", &d, err));
    assert_true(d.common == 8 && d.step == -1 && isnan(d.a) && isnan(d.b));
    OK(bt_db_first_difference(db, "a", "nobody", &d, err));
    assert_true(d.common == 0 && d.step == -1);
    bt_db_close(db);
}

/* A level uses at most the newest thousand values. */
static void windows_are_bounded(void **state) {
    enum { N = 1003 };
    static double loss[N];
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    for (int i = 0; i < N; i++) loss[i] = i;
    record_losses(t->db, "a", loss, N);
    OK(bt_db_open(&db, t->db, err));
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, NAN, 999), 999, 503, N);
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, NAN, 1000), 1000, 502.5, N);
    is_level(level_of_figure(db, "a", "loss", BT_AT_STEP, NAN, 1001), 1000, 502.5, N);
    is_level(level_of_figure(db, "a", "steps", BT_AT_TIME, NAN, 1), 1, N, 2 * N);
    bt_db_close(db);
}

static void conditions_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *metric;
        bool greater, relative, percent;
        double limit;
        bt_at_axis axis;
        double x;
    } rows[] = {{"loss > +0.5% @ tokens=2M", "loss", true, true, true, 0.5, BT_AT_TOKENS, 2e6},
                {" tokens_per_s<-5 % ", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {" tokens_per_s<-5% ", "tokens_per_s", false, true, true, -5, BT_AT_TOKENS, NAN},
                {"best_val>2.3", "best_val", true, false, false, 2.3, BT_AT_TOKENS, NAN},
                {"step_ms > +10", "step_ms", true, true, false, 10, BT_AT_TOKENS, NAN},
                {"loss > 5%", "loss", true, true, true, 5, BT_AT_TOKENS, NAN},
                {"loss>1k@step = 10k", "loss", true, false, false, 1000, BT_AT_STEP, 10000},
                {"loss > 1G @ time=1.5e1 ", "loss", true, false, false, 1e9, BT_AT_TIME, 15},
                {"loss > 1 @ hours=3", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"loss > 1 @ step", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"loss > 1 @ step=", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"loss > 1 @", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"loss > 1 x", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"loss >", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"loss = 1", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"> 1", NULL, false, false, false, 0, BT_AT_TOKENS, 0},
                {"", NULL, false, false, false, 0, BT_AT_TOKENS, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_gate g;
        bt_err why = BT_ERR_INIT;
        const bt_code code = bt_gate_parse(rows[i].text, &g, &why);
        if (code != (rows[i].metric ? BT_OK : BT_ARG)) fail_msg("'%s': %s", rows[i].text, why.msg);
        if (!rows[i].metric) continue;
        assert_string_equal(g.metric, rows[i].metric);
        if (g.greater != rows[i].greater || g.relative != rows[i].relative ||
            g.percent != rows[i].percent || g.limit != rows[i].limit || g.at.axis != rows[i].axis ||
            (isnan(rows[i].x) ? !isnan(g.at.x) : g.at.x != rows[i].x))
            fail_msg("'%s' is read otherwise", rows[i].text);
    }
    bt_gate g;
    bt_err why = BT_ERR_INIT;
    char longest[sizeof g.metric + 8];
    memset(longest, 'm', sizeof longest);
    /* the longest permitted name, then one character more */
    for (size_t more = 0; more < 2; more++) {
        strcpy(longest + sizeof g.metric - 1 + more, ">1");
        assert_int_equal(bt_gate_parse(longest, &g, &why), more ? BT_ARG : BT_OK);
        if (!more) assert_int_equal(strlen(g.metric), sizeof g.metric - 1);
        memset(longest, 'm', sizeof longest);
    }
    assert_int_equal(bt_gate_parse("loss > 1 @ hours=3", &g, &why), BT_ARG);
    message_has(why.msg, "condition 'loss > 1 @ hours=3' is not");
}

static void conditions_are_evaluated(void **state) {
    (void)state;
    static const bt_level none = {NAN, NAN, 0, 0};
    static const struct {
        const char *text;
        double run, noise, base, base_noise;
        bt_gate_result want;
    } rows[] = {{"loss > 2", 2, NAN, 9, NAN, BT_GATE_HOLDS},
                {"loss > 2", 2.1, 5, 9, 5,
                 BT_GATE_FAILS}, /* An absolute limit ignores the noise. */
                {"loss < 2", 2, NAN, 9, NAN, BT_GATE_HOLDS},
                {"loss < 2", 1.9, NAN, 9, NAN, BT_GATE_FAILS},
                {"loss > 2", NAN, NAN, 9, NAN, BT_GATE_FAILS},
                {"loss > +1", 5, NAN, 4, NAN, BT_GATE_HOLDS},
                {"loss > +1", 5.1, NAN, 4, NAN, BT_GATE_FAILS},
                {"loss > +1", 6, 0, 4, 1, BT_GATE_NOISE}, /* The noise is twice this limit. */
                {"loss > +1", 6.1, 0, 4, 1, BT_GATE_FAILS},
                {"loss > +1", 6, 1, 4, NAN, BT_GATE_NOISE},
                {"loss > +1", 14, 3, 4, 4, BT_GATE_NOISE},
                {"loss > +1", 14.1, 3, 4, 4, BT_GATE_FAILS},
                {"loss < -1", 2, 0, 4, 1, BT_GATE_NOISE},
                {"loss < -1", 1.9, 0, 4, 1, BT_GATE_FAILS},
                {"loss > +50%", 6, 0, 4, 0, BT_GATE_HOLDS},
                {"loss > +50%", 6.1, 0, 4, 0, BT_GATE_FAILS},
                /* A relative limit applies to the absolute value of the baseline. */
                {"loss > +50%", -2, 0, -4, 0, BT_GATE_HOLDS},
                {"loss > +50%", -1.9, 0, -4, 0, BT_GATE_FAILS},
                {"loss > +1", NAN, NAN, 4, NAN, BT_GATE_FAILS},
                {"loss > +1", 4, NAN, NAN, NAN, BT_GATE_FAILS}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bt_level run = {rows[i].run, rows[i].noise, 1, 1},
                       base = {rows[i].base, rows[i].base_noise, 1, 1};
        bt_gate g;
        OK(bt_gate_parse(rows[i].text, &g, err));
        if (bt_gate_check(&g, &run, &base) != rows[i].want)
            fail_msg("row %zu: %s", i, rows[i].text);
        const bt_gate_result alone = bt_gate_check(&g, &run, NULL);
        /* Conditions relative to a baseline fail without one. */
        assert_int_equal(alone, g.relative ? BT_GATE_FAILS : rows[i].want);
        assert_int_equal(bt_gate_check(&g, &none, &base), BT_GATE_FAILS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(levels_of_a_window, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(windows_are_bounded, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test(conditions_are_read), cmocka_unit_test(conditions_are_evaluated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
