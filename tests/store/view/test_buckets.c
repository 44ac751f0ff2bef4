// ctest: timeout=60
/* The sizes of columns and buckets of long runs, and the data that are read from summaries. */
#include "tests/store/view/recorded.h"

/* Compares a bucket of a series in which steps a to b have records. */
static void check_bucket(const bt_view_series *s, size_t i, int64_t a, int64_t b, double extra) {
    assert_int_equal(s->step[i], b);
    assert_int_equal(s->count[i], b - a + 1);
    NEAR(s->first[i], (double)a + extra);
    NEAR(s->last[i], (double)b + extra);
    NEAR(s->min[i], (double)a + extra);
    NEAR(s->max[i], (double)b + extra);
    NEAR(s->mean[i], (double)(a + b) / 2 + extra);
}

/* Returns the value of axis x after a step, for the run or for a rank. */
static double x_after(bt_x_axis x, int64_t step, bool rank) {
    const double n = (double)(step + 1);
    switch (x) {
    case BT_X_TOKENS: return 10 * n;
    case BT_X_WALL: return 0.1 * n;
    case BT_X_ACTIVE: return (rank ? 0.05 : 0.1) * n;
    case BT_X_BYTES: return (rank ? 3 : 7) * n;
    default: return (double)step;
    }
}

/* Up to 8192 steps are read row by row, more are read from summaries. The smallest summaries, of 16 steps, contain only
 * means of ranks. Both ways agree where both are exact. */
static void long_series_of_steps_and_ranks(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int64_t steps;
        int columns;
        bool exact;
    } rows[] = {{8192, 256, true}, {8193, 257, false}, {8193, 20, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[120];
        bt_db *db = NULL;
        const plan p = {"s", 1, 0, rows[i].steps, 1};
        const int64_t size = rows[i].columns == 20 ? 512 : 32;
        snprintf(path, sizeof path, "%s/%lld.db", t->dir, (long long)p.steps);
        if (i < 2) record_ended_run(path, &p);
        bt_view *v = open_view(path, &db);
        bt_view_request a = ask_parts(&p, BT_VIEW_SERIES);
        a.columns = rows[i].columns;
        a.n_series = 2;
        a.series[0] = (bt_series_request){-1, BT_MS_LOSS};
        a.series[1] = (bt_series_request){0, BT_MR_FWD};
        for (int x = 0; x < BT_X_COUNT; x++) {
            a.x = (bt_x_axis)x;
            OK(bt_view_load(v, &a, err));
            assert_int_equal(v->n_series, 2);
            for (int k = 0; k < 2; k++) {
                const bt_view_series *s = &v->series[k];
                const bool exact = k == 0 || rows[i].exact;
                assert_int_equal(s->exact, exact);
                assert_int_equal(s->n, (size_t)((p.steps + size - 1) / size));
                for (size_t b = 0; b < s->n; b++) {
                    const int64_t first = (int64_t)b * size,
                                  last = first + size > p.steps ? p.steps - 1 : first + size - 1;
                    if (exact) check_bucket(s, b, first, last, 0);
                    NEAR(s->mean[b], (double)(first + last) / 2);
                    near(s->x[b], x_after((bt_x_axis)x, last, k == 1), 1e-5,
                         bt_x_axis_name((bt_x_axis)x));
                }
            }
        }
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* A metric that at least half of the buckets contain has gaps; a rarer metric becomes a line through its points. */
static void gaps_and_sparse_lines(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int known;
        size_t points;
    } rows[] = {{0, 0}, {1, 1}, {3, 3}, {4, 8}, {5, 8}, {8, 8}};
    const plan p = {"s", 1, 0, 8, 1};
    record_ended_run(t->db, &p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_db *db = NULL;
        char sql[120];
        snprintf(sql, sizeof sql,
                 "UPDATE step SET loss = CASE WHEN step %% 8 < %d THEN step ELSE NULL END",
                 rows[i].known);
        run_sql(t->db, sql);
        bt_view *v = open_view(t->db, &db);
        bt_view_request a = ask_parts(&p, BT_VIEW_SERIES);
        a.n_series = 1;
        a.series[0] = (bt_series_request){-1, BT_MS_LOSS};
        OK(bt_view_load(v, &a, err));
        const bt_view_series *s = &v->series[0];
        assert_int_equal(s->n, rows[i].points);
        for (size_t k = 0; k < s->n; k++) {
            assert_int_equal(s->step[k], k);
            assert_int_equal(s->count[k], (int)k < rows[i].known);
            assert_int_equal(!isnan(s->mean[k]), (int)k < rows[i].known);
        }
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* A series caches the steps that it has read, so that only earlier or later steps are read. */
static void a_series_reads_each_step_once(void **state) {
    const bt_tmp *t = *state;
    const plan p = {"s", 1, 0, 100, 1};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_parts(&p, BT_VIEW_SERIES);
    a.n_series = 1;
    a.series[0] = (bt_series_request){-1, BT_MS_LOSS};
    const struct {
        int64_t step0, step1;
        double first, last;
    } rows[] = {{0, 50, 0, 50},     {0, 50, 0, 50},     {0, 60, 0, 1060},
                {10, 60, 10, 1060}, {10, 70, 10, 1070}, {9, 70, 1009, 1070}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        a.step0 = rows[i].step0;
        a.step1 = rows[i].step1;
        OK(bt_view_load(v, &a, err));
        const bt_view_series *s = &v->series[0];
        NEAR(s->first[0], rows[i].first);
        NEAR(s->last[s->n - 1], rows[i].last);
        if (i == 0) run_sql(t->db, "UPDATE step SET loss = loss + 1000");
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* Series of forty ranks of two runs exceed the cache. Dropped entries are read again with the same result. */
static void series_beyond_the_cache_are_read_again(void **state) {
    const bt_tmp *t = *state;
    static const int first[] = {0, 14, 12, 8, 0, 14};
    const plan p = {"s", 40, 0, 12, 1}, other = {"other", 40, 0, 9, 1};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    record_ended_run(t->db, &other);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_parts(&p, BT_VIEW_SERIES);
    a.n_series = BT_VIEW_SERIES_MAX;
    for (size_t round = 0; round < sizeof first / sizeof *first; round++) {
        a.baseline = round % 3 == 2 ? NULL : "other";
        for (int i = 0; i < a.n_series; i++)
            a.series[i] = (bt_series_request){first[round] + i, BT_MR_FWD};
        OK(bt_view_load(v, &a, err));
        assert_int_equal(v->n_series, a.baseline ? 2 * a.n_series : a.n_series);
        for (int i = 0; i < v->n_series; i++) {
            const bt_view_series *s = &v->series[i];
            const int rank = first[round] + i % a.n_series;
            assert_int_equal(s->ghost, i >= a.n_series);
            assert_int_equal(s->what.rank, rank);
            assert_int_equal(s->n, s->ghost ? 9 : 12);
            assert_string_equal(s->key, "fwd_ms");
            for (size_t k = 0; k < s->n; k++) check_bucket(s, k, (int64_t)k, (int64_t)k, rank);
        }
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* A request for series leaves the other parts of the view unchanged; a missing run gives an empty series. */
static void series_requests_leave_other_parts_unchanged(void **state) {
    const bt_tmp *t = *state;
    const plan p = {"s", 2, 0, 30, 1}, other = {"other", 1, 0, 20, 1};
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    record_ended_run(t->db, &p);
    record_ended_run(t->db, &other);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_parts(&p, BT_VIEW_HEAD | BT_VIEW_SERIES);
    a.n_series = 1;
    a.series[0] = (bt_series_request){-1, BT_MS_LOSS};
    OK(bt_view_load(v, &a, err));
    a.run = "other";
    a.bare = true;
    OK(bt_view_load(v, &a, err));
    assert_string_equal(v->head.run, "other");
    assert_int_equal(v->head.n_attempts, 1);
    assert_int_equal(v->head.step, 29);
    assert_int_equal(v->series[0].n, 20);
    for (size_t k = 0; k < 20; k++) check_bucket(&v->series[0], k, (int64_t)k, (int64_t)k, 0);
    a.run = "nobody";
    assert_int_equal(bt_view_load(v, &a, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "no run 'nobody'");
    a.bare = false;
    assert_int_equal(bt_view_load(v, &a, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "no run 'nobody'");
    bt_view_close(v);
    bt_db_close(db);
}

/* Every column, including the first, begins at a multiple of its size. */
static void columns_of_heat_maps(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int64_t step0, step1;
        int columns;
        size_t cols;
        int64_t first, size;
    } rows[] = {
        {0, 299, 7, 7, 0, 44},    {0, 299, 10, 10, 0, 30},   {5, 299, 10, 10, 0, 30},
        {25, 299, 10, 10, 0, 30}, {31, 299, 10, 10, 28, 28}, {0, 255, 16, 16, 0, 16},
        {0, 254, 17, 17, 0, 15},  {0, 299, 300, 300, 0, 1},  {0, 299, 0, 100, 0, 3},
        {0, 299, 1, 1, 0, 304},   {40, 40, 5, 1, 40, 1},     {0, 9, 400, 10, 0, 1},
    };
    const plan p = {"s", 2, 0, 300, 1};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_view_request a = ask_parts(&p, BT_VIEW_HEAT);
        a.step0 = rows[i].step0;
        a.step1 = rows[i].step1;
        a.heat_columns = rows[i].columns;
        a.heat = BT_HEAT_FWD;
        OK(bt_view_load(v, &a, err));
        const bt_view_heat *h = &v->heat;
        assert_true(h->exact && !h->against);
        assert_int_equal(h->rows, 2);
        if (h->cols != rows[i].cols)
            fail_msg("row %zu: %zu columns, of %lld", i, h->cols, (long long)h->step[0]);
        for (size_t c = 0; c < h->cols; c++) {
            const int64_t begin = rows[i].first + (int64_t)c * rows[i].size,
                          last = begin + rows[i].size - 1,
                          to = last > rows[i].step1 ? rows[i].step1 : last;
            assert_int_equal(h->step[c], begin);
            for (size_t k = 0; k < 2; k++)
                NEAR(h->cell[k * h->cols + c], (double)(begin + to) / 2 + (double)k);
        }
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* One picture reads at most 24576 rows. For more rows, narrow columns use only their first steps and wide columns use
 * the summary at their first step. */
static void heat_maps_of_many_rows(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int columns, size, read; /* steps read per column; 0: summaries of 16 steps */
    } rows[] = {{400, 1, 1}, {40, 10, 9}, {20, 20, 0}, {5, 80, 0}};
    const plan p = {"s", 64, 0, 400, 1};
    bt_db *db = NULL;
    record_ended_run(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_parts(&p, BT_VIEW_HEAT);
    a.heat = BT_HEAT_FWD;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double sum[400] = {0}, n[400] = {0};
        for (int s = 0; s < 400; s++) {
            const int size = rows[i].size, at = rows[i].read ? s : s / 16 * 16;
            if (rows[i].read && s % size >= rows[i].read) continue;
            sum[at / size] += s;
            n[at / size]++;
        }
        a.heat_columns = rows[i].columns;
        OK(bt_view_load(v, &a, err));
        assert_false(v->heat.exact);
        assert_int_equal(v->heat.cols, rows[i].columns);
        for (size_t k = 0; k < 64; k += 21)
            for (size_t c = 0; c < v->heat.cols; c++)
                near(v->heat.cell[k * v->heat.cols + c], sum[c] / n[c] + (double)k, 1e-3, "cell");
    }
    a.step1 = 383; /* These are 24576 rows. */
    OK(bt_view_load(v, &a, err));
    assert_true(v->heat.exact);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(long_series_of_steps_and_ranks),
        T(gaps_and_sparse_lines),
        T(series_beyond_the_cache_are_read_again),
        T(a_series_reads_each_step_once),
        T(series_requests_leave_other_parts_unchanged),
        T(columns_of_heat_maps),
        T(heat_maps_of_many_rows),
    };
    return cmocka_run_group_tests_name("buckets", tests, NULL, NULL);
}
