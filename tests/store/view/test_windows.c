// ctest: timeout=60
/* The steps that each part of the view model uses: the newest steps, however rarely they were recorded, and the
 * requested range. */
#include "tests/store/view/recorded.h"

/* Each recorded step includes one skipped step, so the header's number of skipped steps equals the number of steps it
 * uses. */
static void the_head_uses_the_newest_256_recorded_steps(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        plan p;
        int64_t at, skipped;
    } rows[] = {
        {{"few", 1, 0, 100, 1}, -1, 100},
        {{"one", 1, 0, 1, 1}, -1, 1},
        {{"many", 1, 0, 600, 1}, -1, 256},
        {{"many", 1, 0, 600, 1}, 255, 256},
        {{"many", 1, 0, 600, 1}, 256, 256},
        {{"many", 1, 0, 600, 1}, 254, 255},
        {{"many", 1, 0, 600, 1}, 10, 11},
        {{"some", 1, 0, 4500, 8}, -1, 32}, /* 32 records in 256 steps suffice */
        {{"rare", 1, 0, 6300, 9}, -1, 256},
        {{"rare", 1, 0, 6300, 9}, 3000, 256},
        {{"rarest", 1, 0, 9000, 50}, -1, 82}, /* records in 4096 steps */
    };
    bt_db *db = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (i == 0 || strcmp(rows[i].p.name, rows[i - 1].p.name) != 0)
            record_ended_run(t->db, &rows[i].p);
        bt_view *v = open_view(t->db, &db);
        bt_view_request a = ask_parts(&rows[i].p, BT_VIEW_HEAD);
        a.at_step = rows[i].at;
        OK(bt_view_load(v, &a, err));
        if (v->head.skipped != rows[i].skipped)
            fail_msg("%s at %lld: %lld steps", rows[i].p.name, (long long)rows[i].at,
                     (long long)v->head.skipped);
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* New steps are appended to a series that was read from summaries. */
static void a_long_series_is_continued(void **state) {
    const bt_tmp *t = *state;
    const plan p = {"long", 1, 0, 12000, 1};
    bt_db *db[2] = {NULL};
    bt_view *v[2];
    record_ended_run(t->db, &p);
    bt_view_request a = ask_parts(&p, BT_VIEW_SERIES);
    a.columns = 64;
    a.n_series = 1;
    a.series[0] = (bt_series_request){.rank = -1, .metric = BT_MS_LOSS};
    for (int i = 0; i < 2; i++) v[i] = open_view(t->db, &db[i]);
    a.at_step = 8999;
    OK(bt_view_load(v[0], &a, err));
    a.at_step = -1;
    for (int i = 0; i < 2; i++) OK(bt_view_load(v[i], &a, err));
    const bt_view_series *x = &v[0]->series[0], *y = &v[1]->series[0];
    assert_int_equal(x->n, y->n);
    for (size_t i = 0; i < x->n; i++) {
        assert_int_equal(x->step[i], y->step[i]);
        assert_int_equal(x->count[i], y->count[i]);
        NEAR(x->mean[i], y->mean[i]);
    }
    for (int i = 0; i < 2; i++) {
        bt_view_close(v[i]);
        bt_db_close(db[i]);
    }
}

/* A view that follows a run forwards and backwards in steps of any size uses the same steps as a new view. */
static void the_head_of_a_followed_run_equals_a_new_one(void **state) {
    const bt_tmp *t = *state;
    static const int64_t at[] = {10,   11,   200,  255,  256, 511, 512,  768,
                                 1024, 1030, 1285, 1286, 300, 301, 1400, 1399};
    const plan p = {"s", 2, 0, 1500, 1};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_parts(&p, BT_VIEW_HEAD | BT_VIEW_RANKS);
    a.window = 64;
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        a.at_step = at[i];
        OK(bt_view_load(v, &a, err));
        const int64_t steps = at[i] < 255 ? at[i] + 1 : 256, window = at[i] < 63 ? at[i] + 1 : 64;
        assert_int_equal(v->head.step, at[i]);
        assert_int_equal(v->head.skipped, steps);
        NEAR(v->head.loss, (double)at[i]);
        assert_int_equal(v->ranks.steps, window);
        assert_int_equal(v->ranks.step0, at[i] - window + 1);
        assert_int_equal(v->ranks.step1, at[i]);
        NEAR(v->ranks.rank[1].mean[BT_MR_FWD], (double)at[i] - (double)(window - 1) / 2 + 1);
    }
    bt_view_close(v);
    bt_db_close(db);
}

static void windows_of_ranks(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        plan p;
        int window;
        int64_t at, steps, first, last;
    } rows[] = {
        {{"all", 2, 0, 300, 1}, 0, -1, 128, 172, 299},
        {{"all", 2, 0, 300, 1}, 16, -1, 16, 284, 299},
        {{"all", 2, 0, 300, 1}, 16, 7, 8, 0, 7},
        {{"seldom", 2, 0, 3000, 50},
         0,
         -1,
         21,
         1999,
         2999}, /* 128 of the newest 1024 steps contain three records. */
        /* 128 steps, because 16 contain only one record */
        {{"seldom", 2, 0, 3000, 50}, 16, -1, 3, 2899, 2999},
        {{"seldom", 2, 0, 3000, 50}, 0, 60, 1, 49, 49},
        {{"wide", 2, 1024, 200, 1},
         0,
         -1,
         128,
         72,
         199}, /* The number of rows that are read is limited. */
        {{"wider", 2, 1025, 200, 1}, 0, -1, 127, 73, 199},
        {{"crowd", 2, 20000, 200, 1}, 0, -1, 8, 192, 199},
        {{"host", 2, 14563, 200, 1}, 0, -1, 9, 191, 199},
    };
    bt_db *db = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (i == 0 || strcmp(rows[i].p.name, rows[i - 1].p.name) != 0)
            record_ended_run(t->db, &rows[i].p);
        bt_view *v = open_view(t->db, &db);
        bt_view_request a = ask_parts(&rows[i].p, BT_VIEW_RANKS);
        a.window = rows[i].window;
        a.at_step = rows[i].at;
        OK(bt_view_load(v, &a, err));
        if (v->ranks.steps != (size_t)rows[i].steps || v->ranks.step0 != rows[i].first ||
            v->ranks.step1 != rows[i].last)
            fail_msg("row %zu: %zu steps, %lld to %lld", i, v->ranks.steps,
                     (long long)v->ranks.step0, (long long)v->ranks.step1);
        assert_int_equal(v->head.ranks_reporting, 2);
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* The remaining time follows from the newest 256 steps, its error from the means of eight parts of these steps. */
static void remaining_time(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int64_t steps, total;
        double left_s, error_s; /* NaN: unknown */
    } rows[] = {{3, 100, NAN, NAN}, {4, 100, 9.6, NAN}, {31, 100, 6.9, NAN}, {32, 100, 6.8, 0},
                {40, 41, 0.1, 0},   {40, 40, 0, 0},     {40, 39, NAN, NAN},  {40, 0, NAN, NAN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[8], sql[120];
        bt_db *db = NULL;
        const plan p = {name, 1, 0, rows[i].steps, 1};
        snprintf(name, sizeof name, "s%zu", i);
        record_run_to(t->db, &p, false);
        snprintf(sql, sizeof sql,
                 "UPDATE run_doc SET config = '{\"train.steps\":{\"value\":%lld}}'",
                 (long long)rows[i].total);
        run_sql(t->db, sql);
        bt_view *v = open_view(t->db, &db);
        bt_view_request a = ask_parts(&p, BT_VIEW_HEAD);
        OK(bt_view_load(v, &a, err));
        assert_int_equal(isnan(v->head.eta_s), isnan(rows[i].left_s));
        assert_int_equal(isnan(v->head.eta_err_s), isnan(rows[i].error_s));
        if (!isnan(rows[i].left_s)) NEAR(v->head.eta_s, rows[i].left_s);
        if (!isnan(rows[i].error_s)) near(v->head.eta_err_s, rows[i].error_s, 1e-4, "error");
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* Steps in one of two parts took twice as long: 100 and 200 ms, in 64 of 127 intervals. */
static void error_of_the_remaining_time(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    const plan p = {"s", 1, 0, 65, 1};
    record_run_to(t->db, &p, false);
    run_sql(t->db, "UPDATE step SET wall_us = wall_us + 100000 * (step - 32) WHERE step > 32");
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_parts(&p, BT_VIEW_HEAD);
    a.now_us += 3300000;
    OK(bt_view_load(v, &a, err));
    const double left = 10000 - 65;
    NEAR(v->head.eta_s, left * 0.15);
    /* Four of the eight means are 0.1 s and four are 0.2 s. Their deviation is 0.05 s, and the deviation of their mean
     * is smaller by sqrt(8). */
    near(v->head.eta_err_s, left * 0.05 / sqrt(8), 1e-3, "error");
    bt_view_close(v);
    bt_db_close(db);
}

/* The total number of steps is a fact, or follows from the settings: a number of steps, or a number of tokens divided
 * by the tokens of a step. */
static void number_of_steps_of_a_run(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        const char *config, *fact;
        int64_t total;
    } rows[] = {
        {"'{}'", NULL, 0},
        {"'{\"train.steps\":{\"value\":200}}'", NULL, 200},
        {"'{\"train.steps\":{\"value\":200}}'", "321", 321},
        {"'{\"train.steps\":{\"value\":\"201\"}}'", "0", 201},
        {"'{\"train.tokens\":{\"value\":1000},\"train.batch_tokens\":{\"value\":300}}'", NULL, 4},
        {"'{\"train.tokens\":{\"value\":900},\"train.batch_tokens\":{\"value\":300}}'", NULL, 3},
        {"'{\"train.tokens\":{\"value\":900},\"train.batch_tokens\":{\"value\":300},"
         "\"train.steps\":{\"value\":2}}'",
         NULL, 2},
        {"'{\"train.tokens\":{\"value\":1000}}'", NULL, 0},
        {"'{\"train.batch_tokens\":{\"value\":300}}'", NULL, 0}};
    const plan p = {"s", 1, 0, 2, 1};
    record_ended_run(t->db, &p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char sql[300];
        bt_db *db = NULL;
        snprintf(sql, sizeof sql, "DELETE FROM fact; UPDATE run_doc SET config = %s",
                 rows[i].config);
        run_sql(t->db, sql);
        if (rows[i].fact) {
            snprintf(sql, sizeof sql, "INSERT INTO fact VALUES (1, 'steps_total', '%s', 0)",
                     rows[i].fact);
            run_sql(t->db, sql);
        }
        bt_view *v = open_view(t->db, &db);
        bt_view_request a = ask_parts(&p, BT_VIEW_HEAD);
        OK(bt_view_load(v, &a, err));
        if (v->head.steps_total != rows[i].total)
            fail_msg("%s: %lld", rows[i].config, (long long)v->head.steps_total);
        bt_view_close(v);
        bt_db_close(db);
    }
}

static void requested_ranges(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        double span_s;
        int64_t step0, step1, at, from, to;
    } rows[] = {
        {0, 0, 0, -1, 0, 199},     {0, -3, 50, -1, 0, 50},     {0, 10, 50, -1, 10, 50},
        {0, 10, 500, -1, 10, 199}, {0, 10, 0, -1, 0, 199},     {0, 1, 1, -1, 1, 1},
        {9, 10, 50, -1, 10, 50},   {0, 10, 199, 120, 10, 120}, {1.25, 0, 0, -1, 187, 199},
        {1.25, 0, 0, 99, 87, 99},  {19.95, 0, 0, -1, 0, 199},  {20, 0, 0, -1, 0, 199},
        {500, 0, 0, -1, 0, 199},   {0.05, 0, 0, -1, 199, 199}, {-1, 0, 0, -1, 0, 199},
    };
    const plan p = {"s", 1, 0, 200, 1};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t from = -5, to = -5;
        bt_view_request a = ask_parts(&p, BT_VIEW_HEAD);
        a.at_step = rows[i].at;
        a.span_s = rows[i].span_s;
        a.step0 = rows[i].step0;
        a.step1 = rows[i].step1;
        OK(bt_view_load(v, &a, err));
        OK(bt_view_range(v, &a, &from, &to, err));
        if (from != rows[i].from || to != rows[i].to)
            fail_msg("row %zu: %lld to %lld", i, (long long)from, (long long)to);
        const bt_requested_range x = bt_view_requested_range(&a);
        for (int k = 0; k < 4; k++) {
            bt_requested_range y = x;
            if (k == 1) y.span_s += 1;
            if (k == 2) y.step0 += 1;
            if (k == 3) y.step1 += 1;
            assert_int_equal(bt_view_range_same(&x, &y), k == 0);
        }
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* Every seventh step was recorded; the steps between two records have the time of the later record. */
static void times_between_recorded_steps(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int64_t step;
        double time_s;
    } times[] = {{-1, NAN}, {0, 0.7},      {6, 0.7},    {7, 1.4},    {13, 1.4},
                 {14, 2.1}, {2092, 209.3}, {2093, 210}, {2099, 210}, {2100, NAN}};
    static const struct {
        double time_s;
        int64_t step;
    } steps[] = {{0.69, -1},    {0.7, 6},    {1.39, 6},  {1.4, 13},
                 {209.9, 2092}, {210, 2099}, {1e9, 2099}};
    const plan p = {"s", 1, 0, 2100, 7};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        const double got = bt_view_time_of(v, "s", times[i].step);
        assert_int_equal(isnan(got), isnan(times[i].time_s));
        if (!isnan(got)) NEAR(got, times[i].time_s);
    }
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int64_t step = -9;
        OK(bt_view_step_at(v, "s", steps[i].time_s, &step, err));
        assert_int_equal(step, steps[i].step);
    }
    int64_t step = -9;
    OK(bt_view_step_at(v, "nobody", 1, &step, err));
    assert_int_equal(step, -1);
    bt_view_close(v);
    bt_db_close(db);
    const plan far = {"far", 1, 0, 10000, 5000}; /* A gap is filled only up to a limited length. */
    record_ended_run(t->db, &far);
    v = open_view(t->db, &db);
    NEAR(bt_view_time_of(v, "far", 5000 - 1), 500);
    NEAR(bt_view_time_of(v, "far", 950), 500);
    assert_true(isnan(bt_view_time_of(v, "far", 1)));
    bt_view_close(v);
    bt_db_close(db);
}

/* The result does not depend on the range that was shown before. */
static void a_range_behind_the_last_step_is_empty(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    a.parts = BT_VIEW_DISTRIBUTION | BT_VIEW_LAYERS;
    for (int behind = 0; behind < 3; behind++) {
        a.step0 = behind == 1 ? 1000000 : 0;
        a.step1 = behind == 1 ? 1000001 : 0;
        OK(bt_view_load(v, &a, err));
        assert_int_equal(v->distribution.n > 0, behind != 1);
        assert_int_equal(v->distribution.samples, behind == 1 ? 0 : 5);
        assert_int_equal(v->layers.n > 0, behind != 1);
        assert_int_equal(v->layers.samples > 0, behind != 1);
        assert_int_equal(v->layers.step, behind == 1 ? -1 : 180);
    }
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(the_head_uses_the_newest_256_recorded_steps),
        T(a_long_series_is_continued),
        T(the_head_of_a_followed_run_equals_a_new_one),
        T(windows_of_ranks),
        T(remaining_time),
        T(error_of_the_remaining_time),
        T(number_of_steps_of_a_run),
        T(requested_ranges),
        T(times_between_recorded_steps),
        T(a_range_behind_the_last_step_is_empty),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
