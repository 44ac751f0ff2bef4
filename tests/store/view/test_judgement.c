// ctest: timeout=60
/* Conclusions that the view model derives from numbers alone: verdicts of ranks, crowded machines, scales of heat maps,
 * usual ranges of series, quantiles and names. Each table tests a rule at its limits, without a database. */
#include "tests/store/view_test.h"

enum { RANKS = 4, BLOCKS = 6 };
#define NONE NAN

static const struct {
    const char *what, *host[RANKS];
    size_t ranks, blocks;
    double median[BLOCKS][RANKS];
    struct {
        bt_verdict verdict;
        int64_t since;
        double own;
    } want[RANKS];
} judged[] = {
    {"nothing was measured",
     {"a", "b"},
     2,
     0,
     {{0}},
     {{BT_VERDICT_OK, -1, NONE}, {BT_VERDICT_OK, -1, NONE}}},
    {"nine tenths of the best are not late",
     {"a", "b"},
     2,
     1,
     {{90, 100}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_OK, -1, 1}}},
    {"one block is enough where there is one",
     {"a", "b"},
     2,
     1,
     {{89, 100}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_STEADY, 0, 1}}},
    {"late in the last of two",
     {"a", "b"},
     2,
     2,
     {{100, 100}, {100, 200}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_BURSTY, -1, 0.5}}},
    {"late in both of two",
     {"a", "b"},
     2,
     2,
     {{100, 150}, {100, 200}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_STEADY, 0, 0.75}}},
    {"late in the last three",
     {"a", "b"},
     2,
     4,
     {{100, 100}, {100, 200}, {100, 200}, {100, 200}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_STEADY, 10, 0.5}}},
    {"late in two, then no more",
     {"a", "b"},
     2,
     4,
     {{100, 200}, {100, 200}, {100, 100}, {100, 100}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_BURSTY, -1, 1}}},
    {"late in three, then no more",
     {"a", "b"},
     2,
     5,
     {{100, 200}, {100, 200}, {100, 200}, {100, 100}, {100, 100}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_RECOVERING, -1, 1}}},
    {"late in three, and again in the last",
     {"a", "b"},
     2,
     5,
     {{100, 200}, {100, 200}, {100, 200}, {100, 100}, {100, 200}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_BURSTY, -1, 0.5}}},
    {"since the block it has been late from",
     {"a", "b"},
     2,
     6,
     {{100, 200}, {100, 100}, {100, 200}, {100, 200}, {100, 200}, {100, 200}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_STEADY, 20, 0.5}}},
    {"a block without a rank's rows says nothing of it",
     {"a", "b", "c"},
     3,
     3,
     {{100, 200, NONE}, {100, NONE, NONE}, {100, 200, NONE}},
     {{BT_VERDICT_OK, -1, 1}, {BT_VERDICT_BURSTY, -1, 1}, {BT_VERDICT_OK, -1, NONE}}},
    {"no time is not the best time",
     {"a", "b"},
     2,
     1,
     {{0, 100}},
     {{BT_VERDICT_OK, -1, NONE}, {BT_VERDICT_OK, -1, 1}}},
    {"every rank of a host",
     {"a", "a", "b", "b"},
     4,
     1,
     {{100, 100, 130, 140}},
     {{BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_NODE_WIDE, 0, 1},
      {BT_VERDICT_NODE_WIDE, 0, 1}}},
    {"one of two ranks of a host",
     {"a", "a", "b", "b"},
     4,
     1,
     {{100, 100, 130, 100}},
     {{BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_STEADY, 0, 1},
      {BT_VERDICT_OK, -1, 1}}},
    {"ranks of no host that is known",
     {"a", "a", "", ""},
     4,
     1,
     {{100, 100, 130, 130}},
     {{BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_STEADY, 0, 1},
      {BT_VERDICT_STEADY, 0, 1}}},
    {"all but one of one host",
     {"a", "a", "a", "a"},
     4,
     1,
     {{130, 100, 130, 130}},
     {{BT_VERDICT_STEADY, 0, 1},
      {BT_VERDICT_OK, -1, 1},
      {BT_VERDICT_STEADY, 0, 1},
      {BT_VERDICT_STEADY, 0, 1}}},
};

static void verdicts_follow_from_the_blocks(void **state) {
    (void)state;
    static const int64_t step[BLOCKS] = {0, 10, 20, 30, 40, 50};
    for (size_t i = 0; i < sizeof judged / sizeof *judged; i++) {
        bt_view_rank rank[RANKS] = {{0}};
        bt_view_ranks r = {.n = judged[i].ranks, .rank = rank};
        double median[BLOCKS * RANKS];
        for (size_t b = 0; b < judged[i].blocks; b++)
            memcpy(median + b * r.n, judged[i].median[b], r.n * sizeof *median);
        for (size_t k = 0; k < r.n; k++) {
            rank[k].since_step = -1;
            strcpy(rank[k].host, judged[i].host[k]);
        }
        bt_view_verdicts(&r, median, step, judged[i].blocks);
        for (size_t k = 0; k < r.n; k++) {
            if (rank[k].verdict != judged[i].want[k].verdict ||
                rank[k].since_step != judged[i].want[k].since)
                fail_msg("%s: rank %zu is %s since %lld", judged[i].what, k,
                         bt_verdict_name(rank[k].verdict), (long long)rank[k].since_step);
            if (isnan(judged[i].want[k].own))
                assert_true(isnan(rank[k].score_own));
            else
                near(rank[k].score_own, judged[i].want[k].own, 1e-12, judged[i].what);
        }
    }
}

#define LATE(load, run) \
    " overloaded (" load \
    " runnable tasks per core: other programs, or too many ranks x threads): its ranks " run \
    " late"

static const struct {
    double load[RANKS];
    const char *host[RANKS];
    bool over;
    bt_verdict verdict[RANKS];
    const char *want;
} crowds[] = {
    {{1.24, 1, NONE, 0}, {"a", "b", "c", "d"}, true, {1, 2, 3, 4}, ""},
    {{1.25, 1.2, NONE, 0},
     {"a", "b", "c", "d"},
     true,
     {5, 2, 3, 4},
     "host a was" LATE("1.2", "ran")},
    {{1.5, 1.5, 3, 2}, {"a", "b", "c", "d"}, false, {5, 5, 5, 4}, "host c is" LATE("3.0", "run")},
    {{2, 2, 2, 2}, {"", "b", "c", "d"}, false, {5, 5, 5, 4}, "the host is" LATE("2.0", "run")},
    {{2, 2, 2, 2}, {"a", "b", "c", "d"}, false, {5, 5, 5, 4}, "host a is" LATE("2.0", "run")},
};

/* If a machine has more busy tasks than processors, its late ranks are attributed to the machine; ranks that recover or
 * are on time keep their verdict. */
static void crowded_machines_by_their_load(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof crowds / sizeof *crowds; i++) {
        bt_view_rank rank[RANKS] = {{0}};
        bt_view_ranks r = {.n = RANKS, .rank = rank, .crowded = "what stood there"};
        for (int k = 0; k < RANKS; k++) {
            rank[k].verdict =
                (bt_verdict)(k + 1); /* the verdicts late, bursty, node-wide, recovering */
            rank[k].mean[BT_MR_LOAD] = crowds[i].load[k];
            strcpy(rank[k].host, crowds[i].host[k]);
        }
        bt_view_crowded(&r, crowds[i].over);
        assert_string_equal(r.crowded, crowds[i].want);
        for (int k = 0; k < RANKS; k++) assert_int_equal(rank[k].verdict, crowds[i].verdict[k]);
    }
    bt_view_rank on_time = {.mean = {[BT_MR_LOAD] = 9}};
    bt_view_crowded(&(bt_view_ranks){.n = 1, .rank = &on_time}, false);
    assert_int_equal(on_time.verdict, BT_VERDICT_OK);
}

static const struct {
    bt_heat_value value;
    bool against;
    size_t rows, cols;
    double cell[8], low, high;
} scales[] = {
    {BT_HEAT_BUSY, false, 0, 3, {0}, NONE, NONE},
    {BT_HEAT_BUSY, false, 2, 1, {NONE, NONE}, NONE, NONE},
    {BT_HEAT_BUSY, false, 2, 2, {1, 1, 1, 1.1}, 0.8, 1.25},
    {BT_HEAT_BUSY, false, 2, 2, {0.5, 1, 1, 2}, 0.5, 2},
    {BT_HEAT_BUSY,
     false,
     2,
     2,
     {2, INFINITY, NONE, 4},
     0.8,
     INFINITY}, /* The mean of a row is not finite. */
    {BT_HEAT_STEP, false, 2, 2, {40, 30, 20, 10}, 10, 40},
    {BT_HEAT_STEP, false, 1, 3, {100, 101, 102}, 101 / 1.25, 101 * 1.25},
    {BT_HEAT_WAIT, false, 1, 2, {0, 0}, 0, 1},
    {BT_HEAT_LOSS, false, 1, 1, {4}, 3.2, 5},
    {BT_HEAT_STEP, true, 1, 4, {1, 1, 1, 1.25}, 0.75, 1.25},
    {BT_HEAT_STEP, true, 1, 4, {1, 1, 1, 1.26}, 0.5, 1.5},
    {BT_HEAT_BUSY, true, 1, 4, {1, 1, 1, 1.5}, 0.5, 1.5},
    {BT_HEAT_STEP, true, 1, 4, {1, 1, 1, 1.51}, 0, 2},
    {BT_HEAT_STEP, true, 1, 4, {0.75, 1, 1, 1}, 0.75, 1.25},
    {BT_HEAT_STEP, true, 1, 4, {0.7, 1, 1, 1}, 0.5, 1.5},
    {BT_HEAT_STEP, true, 1, 4, {0.4, 1, 1, 1.3}, 0, 2},
};

static void check_scale_of_values(bt_view *v, double low, double high, const char *what) {
    OK(bt_view_heat_scale(v, err));
    if (isnan(low)) {
        assert_true(isnan(v->heat.low) && isnan(v->heat.high));
        return;
    }
    near(v->heat.low, low, 1e-12, what);
    if (isinf(high))
        assert_true(isinf(v->heat.high));
    else
        near(v->heat.high, high, 1e-12, what);
}

static void scales_of_heat_maps(void **state) {
    (void)state;
    bt_view *v = NULL;
    OK(bt_view_open(&v, NULL, err));
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        char what[16];
        snprintf(what, sizeof what, "row %zu", i);
        v->heat = (bt_view_heat){.value = scales[i].value,
                                 .against = scales[i].against,
                                 .rows = scales[i].rows,
                                 .cols = scales[i].cols,
                                 .cell = scales[i].cell};
        check_scale_of_values(v, scales[i].low, scales[i].high, what);
    }
    bt_view_close(v);
}

/* Two of a hundred cells on each side may exceed the scale, but a row that is high throughout is within it. */
static void a_few_cells_do_not_stretch_the_scale(void **state) {
    (void)state;
    bt_view *v = NULL;
    double cell[100];
    OK(bt_view_open(&v, NULL, err));
    v->heat = (bt_view_heat){.value = BT_HEAT_STEP, .rows = 10, .cols = 10, .cell = cell};
    for (int i = 0; i < 100; i++) cell[i] = 100;
    cell[7] = cell[57] = 1000;
    cell[21] = cell[83] = 1;
    check_scale_of_values(v, 80, 190, "one of ten cells of a row");
    cell[33] = 1000;
    check_scale_of_values(v, 80, 1000, "three of a hundred");
    cell[33] = 1;
    check_scale_of_values(v, 1, 190, "three at the other end");
    for (int i = 0; i < 100; i++)
        cell[i] = i == 47 ? 1000 : i / 10 == 4 || i / 10 == 9 ? NONE : 100;
    check_scale_of_values(v, 80, 1000, "a row with one value alone");
    v->heat.against = true;
    for (int i = 0; i < 100; i++)
        cell[i] = i == 3 ? 1.4 : i == 9 ? 9 : i == 40 ? 0.6 : i == 45 ? 0 : 1;
    check_scale_of_values(v, 0.75, 1.25, "against a baseline");
    bt_view_close(v);
}

enum { POINTS = 40 };

typedef struct points {
    double min[POINTS], max[POINTS], last[POINTS];
    int64_t step[POINTS], count[POINTS];
} points;

static void check_usual_range(points *p, size_t n, double low, double high, const char *what) {
    double got_low, got_high;
    bt_view_usual_range(&(bt_view_series){.n = n,
                                          .min = p->min,
                                          .max = p->max,
                                          .last = p->last,
                                          .step = p->step,
                                          .count = p->count},
                        &got_low, &got_high);
    near(got_low, low, 1e-12, what);
    near(got_high, high, 1e-12, what);
}

/* Makes points 1 to n with minima ten below and maxima ten above. */
static void make_ascending_points(points *p, int n) {
    for (int i = 0; i < n; i++) {
        p->last[i] = i + 1;
        p->min[i] = i - 9;
        p->max[i] = i + 11;
        p->count[i] = 1;
    }
}

/* The usual range is the 5th to 95th percentile, or three times the interquartile range if that is wider. */
static void usual_ranges(void **state) {
    (void)state;
    static points p;
    make_ascending_points(&p, 20);
    check_usual_range(&p, 20, -9, 30, "all of it");
    p.max[3] = 1000;
    /* The quartiles are 16 and 26. */
    check_usual_range(&p, 20, -9, 56, "without one value that is far above");
    p.max[3] = 50;
    check_usual_range(&p, 20, -9, 50, "no further than the values");
    make_ascending_points(&p, 40);
    p.min[5] = -1000; /* The quartiles are 0 and 20. */
    check_usual_range(&p, 40, -60, 50, "without one value that is far below");
    make_ascending_points(&p, 40);
    p.max[39] = p.last[39] = 500;
    check_usual_range(&p, 40, -9, 100, "without the newest value where it is far above");
    p.max[39] = p.last[39] = 52;
    check_usual_range(&p, 40, -9, 52, "with the newest value where it is one of many");
    make_ascending_points(&p, 40);
    for (int i = 34; i < 40; i++) p.max[i] = pow(10, i - 30);
    check_usual_range(&p, 40, -9, 100, "without the last sixth, which exploded");
    /* The weight of a bucket is its number of steps, and at least one. */
    make_ascending_points(&p, 4);
    p.count[0] = 1000;
    check_usual_range(&p, 4, -9, 11, "of weighed buckets");
    memset(p.count, 0, sizeof p.count);
    check_usual_range(&p, 4, -9, 14, "of buckets of no step");
}

static void steps_of_a_share(void **state) {
    (void)state;
    const int64_t step[] = {15, 31, 40}, count[] = {16, 16, 9};
    NEAR(bt_view_steps_shown(&(bt_view_series){.n = 3, .step = step, .count = count}), 41);
    NEAR(bt_view_steps_shown(&(bt_view_series){.n = 1, .step = step, .count = count}), 16);
    NEAR(bt_view_steps_shown(&(bt_view_series){.n = 0, .step = step, .count = count}), 0);
    near(bt_view_keep(0.02, 100), exp(-0.5), 1e-12, "two steps are a window");
    near(bt_view_keep(0.02, 99), 0, 0, "fewer are none");
    double bins[BT_HIST_BINS] = {0};
    for (int i = 0; i < BT_HIST_BINS; i++) bins[i] = i < 4 ? 1 << i : 0;
    near(bt_view_share(bins, 0, 1), 1 / 15.0, 1e-12, "the first bin");
    near(bt_view_share(bins, 1, 3), 6 / 15.0, 1e-12, "the second and the third");
    near(bt_view_share(bins, 3, BT_HIST_BINS), 8 / 15.0, 1e-12, "the rest");
    near(bt_view_share(bins, 2, 2), 0, 0, "none of them");
}

static void quantiles_are_nearest_ranks(void **state) {
    (void)state;
    double four[] = {1, 2, 3, 4};
    static const struct {
        double q, want;
    } rows[] = {{0, 1},    {0.25, 1}, {0.26, 2}, {0.5, 2}, {0.51, 3},
                {0.75, 3}, {0.76, 4}, {1, 4},    {1.5, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        near(bt_quantile(four, 4, rows[i].q), rows[i].want, 0, "quantile");
    near(bt_quantile(four, 1, 0.99), 1, 0, "of one");
    assert_true(isnan(bt_quantile(four, 0, 0.5)));
    assert_int_equal(bt_whole(NAN, -7), -7);
    assert_int_equal(bt_whole(9e15, 0), INT64_C(9000000000000000));
    assert_int_equal(bt_whole(-9e15, 0), -INT64_C(9000000000000000));
    assert_int_equal(bt_whole(1e16, 3), 3);
    assert_int_equal(bt_whole(-1e16, 3), 3);
}

/* A growing array gets one and a half times the capacity it needs. */
static void arrays_grow_by_half(void **state) {
    (void)state;
    double *v = NULL;
    size_t cap = 0;
    OK(BT_GROW(v, cap, 10, err));
    assert_int_equal(cap, 15);
    for (size_t i = 0; i < cap; i++) v[i] = (double)i;
    const double *before = v;
    OK(BT_GROW(v, cap, 15, err));
    assert_ptr_equal(v, before);
    assert_int_equal(cap, 15);
    OK(BT_GROW(v, cap, 16, err));
    assert_int_equal(cap, 24);
    for (int i = 0; i < 15; i++) near(v[i], i, 0, "kept");
    free(v);
}

static void names_of_all_values(void **state) {
    (void)state;
    static const char *const verdicts[] = {"ok",         "late",    "bursty", "node-wide",
                                           "recovering", "crowded", ""};
    static const char *const heat[] = {"busy", "step", "wait",  "data", "comm", "memory",
                                       "fwd",  "bwd",  "optim", "loss", ""};
    static const struct {
        const char *name, *title;
        bt_unit unit;
    } axes[] = {{"step", "step", BT_UNIT_COUNT},
                {"tokens", "tokens", BT_UNIT_COUNT},
                {"time", "wall time", BT_UNIT_NONE},
                {"active", "active time", BT_UNIT_NONE},
                {"bytes", "bytes on the wire", BT_UNIT_BYTES},
                {"", "", BT_UNIT_NONE}};
    for (int i = 0; i <= BT_VERDICT_CROWDED + 1; i++)
        assert_string_equal(bt_verdict_name((bt_verdict)i), verdicts[i]);
    for (int i = 0; i <= BT_HEAT_VALUES; i++)
        assert_string_equal(bt_heat_value_name((bt_heat_value)i), heat[i]);
    for (int i = 0; i <= BT_X_COUNT; i++) {
        bt_x_axis x = BT_X_COUNT;
        assert_string_equal(bt_x_axis_name((bt_x_axis)i), axes[i].name);
        assert_string_equal(bt_x_axis_title((bt_x_axis)i), axes[i].title);
        assert_int_equal(bt_x_axis_unit((bt_x_axis)i), axes[i].unit);
        assert_int_equal(bt_x_axis_parse(axes[i].name, &x), i < BT_X_COUNT);
        assert_int_equal(x, i);
    }
}

static const struct {
    bt_view_trouble trouble;
    const char *line, *json;
} troubles[] = {
    {{.any = false, .what = "lost", .age_s = NONE}, "lost", "{\"trouble\":null}"},
    {{.any = true,
      .level = BT_EV_INFO,
      .what = "paused after step 1",
      .when_s = 7,
      .age_s = 0,
      .step = 0,
      .why = "asked",
      .advice = "let it go on",
      .command = "bitrain ctl r resume",
      .verb = BT_VERB_RESUME},
     "paused after step 1, 0.0 s ago",
     "{\"trouble\":{\"level\":\"info\",\"what\":\"paused after step "
     "1\",\"when_s\":7,\"age_s\":0,\"step\":0,"
     "\"why\":\"asked\",\"advice\":\"let it go on\",\"command\":\"bitrain ctl r "
     "resume\",\"verb\":\"resume\","
     "\"resumes\":false}}"},
    {{.any = true,
      .level = BT_EV_ERROR,
      .what = "failed before the first step",
      .when_s = NONE,
      .age_s = 190.9,
      .step = -1,
      .verb = BT_VERB_COUNT,
      .resumes = true},
     "failed before the first step, 3m 10s ago",
     "{\"trouble\":{\"level\":\"error\",\"what\":\"failed before the first "
     "step\",\"when_s\":null,\"age_s\":190.9,"
     "\"step\":null,\"why\":\"\",\"advice\":\"\",\"command\":null,\"verb\":null,\"resumes\":true}"
     "}"},
};

static void troubles_as_line_and_as_json(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof troubles / sizeof *troubles; i++) {
        char line[80];
        bt_text out;
        bt_json j;
        assert_string_equal(bt_view_trouble_line(&troubles[i].trouble, line, sizeof line),
                            troubles[i].line);
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        bt_view_trouble_json(&troubles[i].trouble, &j);
        bt_json_end(&j, '}');
        assert_string_equal(bt_text_str(&out), troubles[i].json);
        bt_text_release(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_follow_from_the_blocks),
        cmocka_unit_test(crowded_machines_by_their_load),
        cmocka_unit_test(scales_of_heat_maps),
        cmocka_unit_test(a_few_cells_do_not_stretch_the_scale),
        cmocka_unit_test(usual_ranges),
        cmocka_unit_test(steps_of_a_share),
        cmocka_unit_test(quantiles_are_nearest_ranks),
        cmocka_unit_test(arrays_grow_by_half),
        cmocka_unit_test(names_of_all_values),
        cmocka_unit_test(troubles_as_line_and_as_json),
    };
    return cmocka_run_group_tests_name("judgement", tests, NULL, NULL);
}
