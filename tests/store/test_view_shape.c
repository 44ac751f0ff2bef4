// ctest: timeout=60
/* Computed defaults of charts: the usual range of a series, smoothing by a share of the steps, scales of heat maps, and
 * whether a machine or a rank is named. */
#include "view_test.h"

enum { N = 400 };

typedef struct made {
    double y[N];
    int64_t step[N], count[N];
    bt_view_series s;
} made;

static bt_view_series *series_of(made *m, double (*value)(int)) {
    for (int i = 0; i < N; i++) m->y[i] = value(i), m->step[i] = i, m->count[i] = 1;
    m->s = (bt_view_series){.n = N,
                            .first = m->y,
                            .last = m->y,
                            .min = m->y,
                            .max = m->y,
                            .mean = m->y,
                            .step = m->step,
                            .count = m->count};
    return &m->s;
}

static double losses_falling_steeply(int i) { return 3 + 8 * exp(-i / 4.0) + 0.1 * cos(i); }
static double losses_on_a_line(int i) { return 5 - i / 100.0; }
static double constant_losses(int i) { return i < N ? 2 : 0; }
static double losses_with_a_spike(int i) { return i == 200 ? 90 : 1 + 0.01 * cos(i); }
static double late_jump(int i) { return i == N - 1 ? 9 : 1 + 0.01 * cos(i); }
static double losses_diverging(int i) { return i < N - 40 ? 5 - i / 100.0 : exp(i - N + 45); }
static double losses_unknown(int i) { return i < 0 ? 0 : NAN; }

static void the_usual_range_is_that_of_the_run(void **state) {
    static made m;
    double low, high;
    (void)state;
    /* The usual range excludes only the first minute. */
    bt_view_usual_range(series_of(&m, losses_falling_steeply), &low, &high);
    assert_true(high < 5 && high > 3.1);
    NEAR(low, 2.9);
    int out = 0;
    for (int i = 0; i < N; i++) out += m.y[i] > high;
    assert_in_range(out, 1, N / 20);
    /* A series without outliers is shown completely. */
    bt_view_usual_range(series_of(&m, losses_on_a_line), &low, &high);
    NEAR(high, 5);
    NEAR(low, 5 - (N - 1) / 100.0);
    bt_view_usual_range(series_of(&m, constant_losses), &low, &high);
    NEAR(low, 2);
    NEAR(high, 2);
    bt_view_usual_range(series_of(&m, losses_with_a_spike), &low, &high);
    assert_true(high < 1.2);
    bt_view_usual_range(series_of(&m, late_jump), &low, &high);
    assert_true(high < 1.2);
    bt_view_usual_range(series_of(&m, losses_diverging), &low, &high);
    assert_true(high < 20 && low > 1);
    bt_view_usual_range(series_of(&m, losses_unknown), &low, &high);
    assert_true(isnan(low) && isnan(high));
}

static void a_bucket_counts_its_steps(void **state) {
    static made m;
    double low, high;
    (void)state;
    bt_view_series *s = series_of(&m, losses_on_a_line);
    s->n = 20;
    for (int i = 0; i < 20; i++)
        m.y[i] = i < 4 ? 10 : 1 + i / 1000.0, m.count[i] = i < 4 ? 1 : 1000;
    bt_view_usual_range(s, &low, &high);
    assert_true(high < 2);
    for (int i = 0; i < 20; i++) m.count[i] = 1;
    bt_view_usual_range(s, &low, &high);
    NEAR(high, 10);
}

static void smoothing_is_a_share_of_what_is_shown(void **state) {
    (void)state;
    NEAR(bt_view_keep(0.02, 1000), exp(-1 / 20.0));
    NEAR(bt_view_keep(0.02, 100000), exp(-1 / 2000.0));
    NEAR(bt_view_keep(0.02, 40), 0); /* A window below one step averages nothing. */
    NEAR(bt_view_keep(0, 1000), 0);
}

/* One diverged run among many does not flatten the curves of the other runs. */
static void lines_share_the_range_of_the_typical_line(void **state) {
    (void)state;
    static const struct {
        double range[4][2], low, high;
        size_t n;
    } rows[] = {{{{2, 5}, {1, 4}}, 1, 5, 2},
                {{{2, 5}, {1.5, 3.7e10}}, 1.5, 5, 2},
                {{{-4e9, 3.7e10}, {2, 5}, {NAN, NAN}, {2, 6}}, 2, 6, 4},
                {{{1e6, 2e6}}, 1e6, 2e6, 1},
                {{{0, 0}, {0, 3e6}}, 0, 3e6, 2},
                {{{0.1, 0.2}, {0.5, 3}}, 0.1, 3, 2},
                {{{NAN, NAN}}, NAN, NAN, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double low, high;
        bt_view_join_ranges(rows[i].range, rows[i].n, &low, &high);
        if (isnan(rows[i].low)) {
            assert_true(isnan(low) && isnan(high));
            continue;
        }
        NEAR(low, rows[i].low);
        NEAR(high, rows[i].high);
    }
}

/* Smoothing is centred: it does not change a slope at any bucket width, and it remains within the neighbouring
 * values. */
static void smoothing_does_not_lag(void **state) {
    static made m;
    static double out[N], low[N], high[N];
    (void)state;
    const double keep = exp(-1 / 20.0);
    bt_view_smooth(series_of(&m, losses_on_a_line), keep, out);
    for (int i = 100; i < N - 100; i++) assert_true(fabs(out[i] - m.y[i]) < 5e-3);
    bt_view_smooth(series_of(&m, losses_falling_steeply), keep, out);
    for (int i = 0; i < N; i++) {
        double least = INFINITY, most = -INFINITY;
        for (int k = i - 15; k <= i + 15; k++)
            if (k >= 0 && k < N) least = fmin(least, m.y[k]), most = fmax(most, m.y[k]);
        assert_true(out[i] >= least && out[i] <= most);
    }
    /* In buckets of 16 rows, a sudden drop remains within the range of each bucket. */
    bt_view_series *s = series_of(&m, losses_on_a_line);
    for (int i = 0; i < N; i++) {
        m.y[i] = i < 200 ? 5 : 3;
        low[i] = m.y[i] - 0.1;
        high[i] = m.y[i] + 0.1;
        m.step[i] = 16 * i + 15;
        m.count[i] = 16;
    }
    s->min = low;
    s->max = high;
    bt_view_smooth(s, exp(-1 / 128.0), out);
    for (int i = 0; i < N; i++) assert_true(out[i] >= low[i] && out[i] <= high[i]);
}

static void load_of_host(const bt_tmp *t, const bt_synth *s, bt_heat_value value, bt_view **v,
                         bt_db **db) {
    OK(bt_synth_make(t->db, s, err));
    *v = open_view(t->db, db);
    bt_view_request a = ask_all(s->name);
    a.heat = value;
    OK(bt_view_load(*v, &a, err));
}

/* Noise of 5 % uses less than half of the colour scale; a slow rank uses the whole scale. */
static void noise_is_not_drawn_as_a_difference(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("even");
    bt_view *v;
    bt_db *db = NULL;
    s.jitter = 0.05;
    load_of_host(t, &s, BT_HEAT_BUSY, &v, &db);
    NEAR(v->heat.low, 1 / BT_HEAT_EVEN);
    NEAR(v->heat.high, BT_HEAT_EVEN);
    bt_view_request a = ask_all(s.name);
    a.heat = BT_HEAT_STEP;
    OK(bt_view_load(v, &a, err));
    assert_true(v->heat.high / v->heat.low >= BT_HEAT_EVEN * BT_HEAT_EVEN - 1e-9);
    bt_view_close(v);
    bt_db_close(db);
}

static void a_slow_rank_of_many_reaches_the_end_of_the_scale(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("slow");
    bt_view *v;
    bt_db *db = NULL;
    s.ranks = 64;
    s.steps = 40;
    s.straggler = 5;
    s.phase = BT_MR_BWD;
    s.excess = 1;
    load_of_host(t, &s, BT_HEAT_BUSY, &v, &db);
    NEAR(v->heat.high, 173.0 / 113);
    bt_view_close(v);
    bt_db_close(db);
}

/* In a comparison with another run, one late rank of 64 does not widen the scale. */
static void a_comparison_has_a_round_scale(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("slow"), b = bt_synth_default("even");
    bt_view *v;
    bt_db *db = NULL;
    s.ranks = b.ranks = 64;
    s.steps = b.steps = 80;
    s.straggler = 5;
    s.phase = BT_MR_BWD;
    s.excess = 1;
    OK(bt_synth_make(t->db, &b, err));
    load_of_host(t, &s, BT_HEAT_STEP, &v, &db);
    const double longest = v->heat.high;
    assert_true(longest > 100);
    bt_view_request a = ask_all("slow");
    a.baseline = "even";
    a.heat = BT_HEAT_BUSY;
    a.step0 = 0;
    a.step1 = 39; /* The range has fewer values than before. */
    OK(bt_view_load(v, &a, err));
    assert_true(v->heat.against);
    NEAR(v->heat.low, 2 - BT_HEAT_EVEN);
    NEAR(v->heat.high, BT_HEAT_EVEN);
    bt_view_close(v);
    bt_db_close(db);
}

static void a_crowded_machine_is_named_before_a_rank(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_view *v;
    bt_db *db = NULL;
    s.excess = 3;
    s.load = 3;
    load_of_host(t, &s, BT_HEAT_BUSY, &v, &db);
    assert_non_null(
        strstr(v->ranks.crowded, "host node0 was overloaded (3.0 runnable tasks per core"));
    const bt_view_rank *worst = &v->ranks.rank[v->ranks.order[0]];
    assert_int_equal(worst->rank, 5);
    assert_int_equal(worst->verdict, BT_VERDICT_CROWDED);
    assert_non_null(strstr(worst->says, "; its host is overloaded"));
    bt_view_close(v);
    bt_db_close(db);
}

/* Ranks of one host share its load, so the excess of one rank is attributed to that rank. */
static void a_slow_rank_is_named_on_a_crowded_machine(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_view *v;
    bt_db *db = NULL;
    s.excess = 10;
    s.load = 3;
    load_of_host(t, &s, BT_HEAT_BUSY, &v, &db);
    assert_int_equal(v->ranks.rank[v->ranks.order[0]].rank, 5);
    assert_int_equal(v->ranks.rank[5].verdict, BT_VERDICT_STEADY);
    assert_non_null(strstr(v->ranks.crowded, "runnable tasks per core"));
    /* The heat map and the table show the same ratio. */
    const double table = v->ranks.rank[5].busy_p50_ms / v->ranks.busy_median_ms,
                 map = v->heat.cell[5 * v->heat.cols + v->heat.cols / 2];
    near(map, table, 0.05 * table, "ratio to the median rank");
    bt_view_close(v);
    bt_db_close(db);
}

static void an_idle_machine_is_not_named(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_view *v;
    bt_db *db = NULL;
    s.excess = 3;
    s.load = 1;
    load_of_host(t, &s, BT_HEAT_BUSY, &v, &db);
    assert_string_equal(v->ranks.crowded, "");
    assert_int_equal(v->ranks.rank[5].verdict, BT_VERDICT_STEADY);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_range_is_that_of_the_run),
        cmocka_unit_test(a_bucket_counts_its_steps),
        cmocka_unit_test(smoothing_is_a_share_of_what_is_shown),
        cmocka_unit_test(lines_share_the_range_of_the_typical_line),
        cmocka_unit_test(smoothing_does_not_lag),
        TEST(noise_is_not_drawn_as_a_difference),
        TEST(a_slow_rank_of_many_reaches_the_end_of_the_scale),
        TEST(a_comparison_has_a_round_scale),
        TEST(a_crowded_machine_is_named_before_a_rank),
        TEST(a_slow_rank_is_named_on_a_crowded_machine),
        TEST(an_idle_machine_is_not_named),
    };
    return cmocka_run_group_tests_name("view_shape", tests, NULL, NULL);
}
