/* timeout: 60
 * Of which steps each part of the view is made: the newest ones, however seldom they were recorded; the range that was
 * asked for; columns and buckets of a size; and what of a long run comes from its summaries. */
#include "tests/store/view_test.h"

enum { BEGAN_S = 1700000000 };

/* a run whose steps take 100 ms each, of which every `every`-th is recorded, and its ranks with it */
typedef struct plan {
    const char *name;
    int ranks, world; /* world 0: as many as ranks */
    int64_t steps, every;
} plan;

/* loss: the step; the ranks' forward pass: the step and the rank's number more */
static void record_to(const char *path, const plan *p, bool ended) {
    bt_writer *w = NULL;
    bt_run_start start = bt_fake_run(p->name);
    int attempt;
    double values[BT_MS_COUNT], *ranks = calloc((size_t)p->ranks * BT_MR_COUNT + 1, sizeof *ranks);
    start.world_size = p->world ? p->world : p->ranks;
    start.started_us = INT64_C(1000000) * BEGAN_S;
    start.config_json = "{\"train.steps\":{\"value\":10000,\"origin\":\"flag\"}}";
    OK(bt_writer_open(&w, path, 5, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    values[BT_MS_STEP_TIME] = 100;
    values[BT_MS_BYTES_WIRE] = 7;
    values[BT_MS_SKIPPED] = 1;
    for (int64_t step = p->every - 1; step < p->steps; step += p->every) {
        values[BT_MS_TOKENS] = 10 * (double)(step + 1);
        values[BT_MS_LOSS] = (double)step;
        for (int r = 0; r < p->ranks; r++) {
            double *v = ranks + (size_t)r * BT_MR_COUNT;
            v[BT_MR_FWD] = (double)step + r;
            v[BT_MR_STEP_TIME] = 50;
            v[BT_MR_BYTES_WIRE] = 3;
        }
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx,
                                &(bt_step_record){.step = step,
                                                  .wall_us = start.started_us + 100000 * (step + 1),
                                                  .values = values,
                                                  .n_ranks = p->ranks,
                                                  .rank_values = ranks});
        if (step % 4096 == 4095) OK(bt_writer_flush(w, err));
    }
    if (ended)
        OK(bt_writer_end(w, "done", "finished", 0, err));
    else
        OK(bt_writer_flush(w, err));
    bt_writer_close(w);
    free(ranks);
}

static void record(const char *path, const plan *p) { record_to(path, p, true); }

/* a view of a run that was just recorded, at the end of it */
static bt_view_ask ask_parts(const plan *p, unsigned parts) {
    bt_view_ask a;
    bt_view_ask_init(&a);
    a.run = p->name;
    a.parts = parts;
    a.now_us = INT64_C(1000000) * BEGAN_S + 100000 * (p->steps + 5);
    return a;
}

/* ---- the newest steps ------------------------------------------------------------------------ */

/* a step was skipped each time: the number of those tells how many steps the head looks at */
static void the_head_looks_at_256_steps_that_were_recorded(void **state) {
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
        {{"some", 1, 0, 4500, 8}, -1, 32}, /* 32 of 256 are enough */
        {{"rare", 1, 0, 6300, 9}, -1, 256},
        {{"rare", 1, 0, 6300, 9}, 3000, 256},
        {{"rarest", 1, 0, 9000, 50}, -1, 82}, /* those of 4096 */
    };
    bt_db *db = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (i == 0 || strcmp(rows[i].p.name, rows[i - 1].p.name) != 0) record(t->db, &rows[i].p);
        bt_view *v = open_view(t->db, &db);
        bt_view_ask a = ask_parts(&rows[i].p, BT_VIEW_HEAD);
        a.at_step = rows[i].at;
        OK(bt_view_load(v, &a, err));
        if (v->head.skipped != rows[i].skipped)
            fail_msg("%s at %lld: %lld steps", rows[i].p.name, (long long)rows[i].at,
                     (long long)v->head.skipped);
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* a view that goes on, in steps of any size and back, looks at the same steps as one that begins there */
static void the_head_follows(void **state) {
    const bt_tmp *t = *state;
    static const int64_t at[] = {10,   11,   200,  255,  256, 511, 512,  768,
                                 1024, 1030, 1285, 1286, 300, 301, 1400, 1399};
    const plan p = {"s", 2, 0, 1500, 1};
    bt_db *db = NULL;
    record(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_parts(&p, BT_VIEW_HEAD | BT_VIEW_RANKS);
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
         2999}, /* those of 1024 steps: 128 hold three */
        {{"seldom", 2, 0, 3000, 50}, 16, -1, 3, 2899, 2999}, /* of 128, where 16 hold one alone */
        {{"seldom", 2, 0, 3000, 50}, 0, 60, 1, 49, 49},
        {{"wide", 2, 1024, 200, 1}, 0, -1, 128, 72, 199}, /* so many rows are read and no more */
        {{"wider", 2, 1025, 200, 1}, 0, -1, 127, 73, 199},
        {{"crowd", 2, 20000, 200, 1}, 0, -1, 8, 192, 199},
        {{"host", 2, 14563, 200, 1}, 0, -1, 9, 191, 199},
    };
    bt_db *db = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (i == 0 || strcmp(rows[i].p.name, rows[i - 1].p.name) != 0) record(t->db, &rows[i].p);
        bt_view *v = open_view(t->db, &db);
        bt_view_ask a = ask_parts(&rows[i].p, BT_VIEW_RANKS);
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

/* ---- time that is left ----------------------------------------------------------------------- */

/* the steps of the newest 256 say it, its error the means of eight parts of them */
static void time_that_is_left(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int64_t steps, total;
        double left_s, error_s; /* NaN: not known */
    } rows[] = {{3, 100, NAN, NAN}, {4, 100, 9.6, NAN}, {31, 100, 6.9, NAN}, {32, 100, 6.8, 0},
                {40, 41, 0.1, 0},   {40, 40, 0, 0},     {40, 39, NAN, NAN},  {40, 0, NAN, NAN}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[8], sql[120];
        bt_db *db = NULL;
        const plan p = {name, 1, 0, rows[i].steps, 1};
        snprintf(name, sizeof name, "s%zu", i);
        record_to(t->db, &p, false);
        snprintf(sql, sizeof sql,
                 "UPDATE run_doc SET config = '{\"train.steps\":{\"value\":%lld}}'",
                 (long long)rows[i].total);
        run_sql(t->db, sql);
        bt_view *v = open_view(t->db, &db);
        bt_view_ask a = ask_parts(&p, BT_VIEW_HEAD);
        OK(bt_view_load(v, &a, err));
        assert_int_equal(isnan(v->head.eta_s), isnan(rows[i].left_s));
        assert_int_equal(isnan(v->head.eta_err_s), isnan(rows[i].error_s));
        if (!isnan(rows[i].left_s)) NEAR(v->head.eta_s, rows[i].left_s);
        if (!isnan(rows[i].error_s)) near(v->head.eta_err_s, rows[i].error_s, 1e-4, "error");
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* one of two parts took twice as long a step: 100 and 200 ms, in 64 of 127 intervals */
static void the_error_of_the_time_that_is_left(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    const plan p = {"s", 1, 0, 65, 1};
    record_to(t->db, &p, false);
    run_sql(t->db, "UPDATE step SET wall_us = wall_us + 100000 * (step - 32) WHERE step > 32");
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_parts(&p, BT_VIEW_HEAD);
    a.now_us += 3300000;
    OK(bt_view_load(v, &a, err));
    const double left = 10000 - 65;
    NEAR(v->head.eta_s, left * 0.15);
    /* eight means, four of 0.1 s and four of 0.2 s: their deviation is 0.05 s, that of their mean less by sqrt(8) */
    near(v->head.eta_err_s, left * 0.05 / sqrt(8), 1e-3, "error");
    bt_view_close(v);
    bt_db_close(db);
}

/* as a fact says, else the settings: steps, or tokens over those of a step */
static void how_many_steps_it_will_be(void **state) {
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
    record(t->db, &p);
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
        bt_view_ask a = ask_parts(&p, BT_VIEW_HEAD);
        OK(bt_view_load(v, &a, err));
        if (v->head.steps_total != rows[i].total)
            fail_msg("%s: %lld", rows[i].config, (long long)v->head.steps_total);
        bt_view_close(v);
        bt_db_close(db);
    }
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void ranges_that_are_asked_for(void **state) {
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
    record(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t from = -5, to = -5;
        bt_view_ask a = ask_parts(&p, BT_VIEW_HEAD);
        a.at_step = rows[i].at;
        a.span_s = rows[i].span_s;
        a.step0 = rows[i].step0;
        a.step1 = rows[i].step1;
        OK(bt_view_load(v, &a, err));
        OK(bt_view_range(v, &a, &from, &to, err));
        if (from != rows[i].from || to != rows[i].to)
            fail_msg("row %zu: %lld to %lld", i, (long long)from, (long long)to);
        const bt_range_asked x = bt_view_range_asked(&a);
        for (int k = 0; k < 4; k++) {
            bt_range_asked y = x;
            if (k == 1) y.span_s += 1;
            if (k == 2) y.step0 += 1;
            if (k == 3) y.step1 += 1;
            assert_int_equal(bt_view_range_same(&x, &y), k == 0);
        }
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* every seventh step was recorded; one that was not has the time of the next one that was */
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
    record(t->db, &p);
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
    const plan far = {"far", 1, 0, 10000, 5000}; /* a gap is looked over, of so many steps */
    record(t->db, &far);
    v = open_view(t->db, &db);
    NEAR(bt_view_time_of(v, "far", 5000 - 1), 500);
    NEAR(bt_view_time_of(v, "far", 950), 500);
    assert_true(isnan(bt_view_time_of(v, "far", 1)));
    bt_view_close(v);
    bt_db_close(db);
}

/* ---- series ---------------------------------------------------------------------------------- */

/* what a bucket of a series says, of steps a .. b that were all recorded */
static void bucket_is(const bt_view_series *s, size_t i, int64_t a, int64_t b, double extra) {
    assert_int_equal(s->step[i], b);
    assert_int_equal(s->count[i], b - a + 1);
    NEAR(s->first[i], (double)a + extra);
    NEAR(s->last[i], (double)b + extra);
    NEAR(s->min[i], (double)a + extra);
    NEAR(s->max[i], (double)b + extra);
    NEAR(s->mean[i], (double)(a + b) / 2 + extra);
}

/* x at the end of a step, of the run or of one rank */
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

/* Up to 8192 steps are read row by row, more than that from summaries: the smallest ones, of 16 steps, hold the means
 * of ranks alone. Both say the same where both are exact. */
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
        if (i < 2) record(path, &p);
        bt_view *v = open_view(path, &db);
        bt_view_ask a = ask_parts(&p, BT_VIEW_SERIES);
        a.columns = rows[i].columns;
        a.n_series = 2;
        a.series[0] = (bt_series_ask){-1, BT_MS_LOSS};
        a.series[1] = (bt_series_ask){0, BT_MR_FWD};
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
                    if (exact) bucket_is(s, b, first, last, 0);
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

/* a metric that half of the buckets have has holes, one that fewer have is a line of its points */
static void holes_and_sparse_lines(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int known;
        size_t points;
    } rows[] = {{0, 0}, {1, 1}, {3, 3}, {4, 8}, {5, 8}, {8, 8}};
    const plan p = {"s", 1, 0, 8, 1};
    record(t->db, &p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_db *db = NULL;
        char sql[120];
        snprintf(sql, sizeof sql,
                 "UPDATE step SET loss = CASE WHEN step %% 8 < %d THEN step ELSE NULL END",
                 rows[i].known);
        run_sql(t->db, sql);
        bt_view *v = open_view(t->db, &db);
        bt_view_ask a = ask_parts(&p, BT_VIEW_SERIES);
        a.n_series = 1;
        a.series[0] = (bt_series_ask){-1, BT_MS_LOSS};
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

/* forty ranks of two runs in turn: what is kept of them makes room, and what is shown stays right */
static void many_series_take_turns(void **state) {
    const bt_tmp *t = *state;
    static const int first[] = {0, 16, 24, 8, 0, 16};
    const plan p = {"s", 40, 0, 12, 1}, other = {"other", 40, 0, 9, 1};
    bt_db *db = NULL;
    record(t->db, &p);
    record(t->db, &other);
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_parts(&p, BT_VIEW_SERIES);
    a.n_series = BT_VIEW_SERIES_MAX;
    for (size_t round = 0; round < sizeof first / sizeof *first; round++) {
        a.baseline = round % 3 == 2 ? NULL : "other";
        for (int i = 0; i < a.n_series; i++)
            a.series[i] = (bt_series_ask){first[round] + i, BT_MR_FWD};
        OK(bt_view_load(v, &a, err));
        assert_int_equal(v->n_series, a.baseline ? 2 * a.n_series : a.n_series);
        for (int i = 0; i < v->n_series; i++) {
            const bt_view_series *s = &v->series[i];
            const int rank = first[round] + i % a.n_series;
            assert_int_equal(s->ghost, i >= a.n_series);
            assert_int_equal(s->what.rank, rank);
            assert_int_equal(s->n, s->ghost ? 9 : 12);
            assert_string_equal(s->key, "fwd_ms");
            for (size_t k = 0; k < s->n; k++) bucket_is(s, k, (int64_t)k, (int64_t)k, rank);
        }
    }
    bt_view_close(v);
    bt_db_close(db);
}

/* series alone leave the rest as it was; of a run that is not there nothing is said */
static void series_alone(void **state) {
    const bt_tmp *t = *state;
    const plan p = {"s", 2, 0, 30, 1}, other = {"other", 1, 0, 20, 1};
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    record(t->db, &p);
    record(t->db, &other);
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_parts(&p, BT_VIEW_HEAD | BT_VIEW_SERIES);
    a.n_series = 1;
    a.series[0] = (bt_series_ask){-1, BT_MS_LOSS};
    OK(bt_view_load(v, &a, err));
    a.run = "other";
    a.bare = true;
    OK(bt_view_load(v, &a, err));
    assert_string_equal(v->head.run, "other");
    assert_int_equal(v->head.n_attempts, 1);
    assert_int_equal(v->head.step, 29); /* as it was */
    assert_int_equal(v->series[0].n, 20);
    for (size_t k = 0; k < 20; k++) bucket_is(&v->series[0], k, (int64_t)k, (int64_t)k, 0);
    a.run = "nobody";
    assert_int_equal(bt_view_load(v, &a, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "no run 'nobody'");
    a.bare = false;
    assert_int_equal(bt_view_load(v, &a, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "no run 'nobody'");
    bt_view_close(v);
    bt_db_close(db);
}

/* ---- heat maps ------------------------------------------------------------------------------- */

/* columns begin at multiples of their size, also the first one, wherever the range begins */
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
    record(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_view_ask a = ask_parts(&p, BT_VIEW_HEAT);
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

/* More rows than are read for one picture, 24576: of narrow columns the first steps are read, wide ones are made of
 * summaries, which are counted where they begin */
static void heat_maps_of_many_rows(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int columns, size, read; /* steps of each column that are read; 0: summaries of 16 steps */
    } rows[] = {{400, 1, 1}, {40, 10, 9}, {20, 20, 0}, {5, 80, 0}};
    const plan p = {"s", 64, 0, 400, 1};
    bt_db *db = NULL;
    record(t->db, &p);
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_parts(&p, BT_VIEW_HEAT);
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
    a.step1 = 383; /* 24576 rows */
    OK(bt_view_load(v, &a, err));
    assert_true(v->heat.exact);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(the_head_looks_at_256_steps_that_were_recorded),
        T(the_head_follows),
        T(windows_of_ranks),
        T(time_that_is_left),
        T(the_error_of_the_time_that_is_left),
        T(how_many_steps_it_will_be),
        T(ranges_that_are_asked_for),
        T(times_between_recorded_steps),
        T(long_series_of_steps_and_ranks),
        T(holes_and_sparse_lines),
        T(many_series_take_turns),
        T(series_alone),
        T(columns_of_heat_maps),
        T(heat_maps_of_many_rows),
    };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
