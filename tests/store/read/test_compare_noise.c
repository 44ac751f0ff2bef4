// ctest: timeout=60
/* The noise that is estimated for a compared figure, and the syntax of gate conditions. */
#include "../store_test.h"
#include "../synth_run.h"
#include "store/read/compare_runs.h"

static void write_noisy(const char *path, const char *name, double shift, double noise,
                        int64_t steps) {
    bt_writer *w = NULL;
    int attempt;
    double values[BT_MS_COUNT];
    OK(bt_writer_open(&w, path, 1, err));
    bt_run_start s = bt_fake_run(name);
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t step = 0; step < steps; step++) {
        for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
        values[BT_MS_TOKENS] = 1000.0 * (double)(step + 1);
        values[BT_MS_LOSS] = 3 - 0.001 * (double)step + shift +
                             noise * bt_synth_noise(step, (int)(shift * 100), 0);
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &(bt_step_record){.step = step,
                                                                          .wall_us = bt_wall_us(),
                                                                          .values = values});
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

static void a_difference_within_the_noise_is_none(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_gate g;
    bt_level base, same, worse;
    bt_at at = {BT_AT_TOKENS, 500000};
    write_noisy(t->db, "base", 0, 0.1, 1000);
    write_noisy(t->db, "same", 0.01, 0.1, 1000);
    write_noisy(t->db, "worse", 0.5, 0.1, 800);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_level(db, "base", "loss", &at, 40, &base, err));
    OK(bt_db_level(db, "same", "loss", &at, 40, &same, err));
    OK(bt_db_level(db, "worse", "loss", &at, 40, &worse, err));
    assert_int_equal(base.n, 40);
    assert_true(base.x == 500000);
    assert_true(fabs(base.value - (3 - 0.001 * 479.5)) < 0.05);
    /* The noise is uniform with 40 values. */
    assert_true(base.noise > 0.1 / sqrt(3) / sqrt(40) / 2 &&
                base.noise < 0.1 / sqrt(3) / sqrt(40) * 2);
    OK(bt_gate_parse("loss > +0.1% @ tokens=500k", &g, err));
    assert_int_equal(bt_gate_check(&g, &worse, &base), BT_GATE_FAILS);
    assert_int_equal(bt_gate_check(&g, &base, &base), BT_GATE_HOLDS);
    bt_level near = base;
    near.value += 1.5 * base.noise;
    assert_int_equal(bt_gate_check(&g, &near, &base), BT_GATE_NOISE);
    near.value = base.value + 4 * base.noise;
    assert_int_equal(bt_gate_check(&g, &near, &base), BT_GATE_FAILS);
    near.value = NAN;
    /* A run without the compared figure fails the gate. */
    assert_int_equal(bt_gate_check(&g, &near, &base), BT_GATE_FAILS);
    double end = 0;
    OK(bt_db_common_end(db, (const char *[]){"base", "worse"}, 2, BT_AT_TOKENS, &end, err));
    assert_true(end == 800000);
    bt_first_difference d;
    OK(bt_db_first_difference(db, "base", "worse", &d, err));
    assert_int_equal(d.step, 0);
    assert_int_equal(d.common, 800);
    OK(bt_db_first_difference(db, "base", "base", &d, err));
    assert_int_equal(d.step, -1);
    bt_db_close(db);
}

static void conditions_are_parsed(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "loss",
                                        "loss >",
                                        "> 3",
                                        "loss = 3",
                                        "loss > x",
                                        "loss > 3 @",
                                        "loss > 3 @ tokens",
                                        "loss > 3 @ mood=2",
                                        "loss > 3 4",
                                        "loss > 3 @ step=x"};
    bt_gate g;
    bt_err why;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(bt_gate_parse(wrong[i], &g, &why), BT_ARG);
    OK(bt_gate_parse("tokens_per_s<-5%", &g, err));
    assert_true(!g.greater && g.relative && g.percent && g.limit == -5 && isnan(g.at.x));
    OK(bt_gate_parse("  best_val  >  2.3  @ step = 2k", &g, err));
    assert_true(g.greater && !g.relative && g.limit == 2.3 && g.at.axis == BT_AT_STEP &&
                g.at.x == 2000);
    assert_string_equal(g.metric, "best_val");
    OK(bt_gate_parse("step_ms > +10", &g, err));
    assert_true(g.relative && !g.percent && g.limit == 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_difference_within_the_noise_is_none, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test(conditions_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
