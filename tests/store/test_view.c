/* timeout: 60
 * the view model against runs whose truth is known: who is slow, why, what it costs, what was lost; series and time. */
#include "store/view.h"
#include "store_test.h"
#include "store/view_impl.h"
#include "synth_run.h"

static void near(double got, double want, double tolerance, const char *what) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.12g instead of %.12g", what, got, want);
}
#define NEAR(got, want) near(got, want, 1e-6, #got)

static bt_view *open_view(const char *path, bt_db **db) {
    bt_view *v = NULL;
    OK(bt_db_open(db, path, err));
    OK(bt_view_open(&v, *db, err));
    return v;
}

static bt_view_ask ask_all(const char *run) {
    bt_view_ask a;
    bt_view_ask_init(&a);
    a.run = run;
    a.parts = BT_VIEW_ALL;
    a.n_series = 3;
    a.series[0] = (bt_series_ask){.rank = -1, .metric = BT_MS_LOSS};
    a.series[1] = (bt_series_ask){.rank = -1, .metric = BT_MS_VAL_LOSS};
    a.series[2] = (bt_series_ask){.rank = 2, .metric = BT_MR_WAIT};
    return a;
}

/* 8 ranks, rank 5 loads data 20 % longer: 2 of 10 ms; a failure after 120 steps, 20 steps done again, 5 s down */
static bt_synth slow_five(void) {
    bt_synth s = bt_synth_default("s");
    s.ranks = 8;
    s.straggler = 5;
    s.excess = 0.2;
    s.fail_at = 120;
    s.resume_from = 100;
    s.down_s = 5;
    return s;
}

static void the_slow_rank_is_named_with_its_phase(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    const bt_view_ranks *r = &v->ranks;
    assert_int_equal(r->n, 8);
    assert_int_equal(r->steps, BT_VIEW_WINDOW);
    assert_int_equal(r->order[0], 5);
    const bt_view_rank *x = &r->rank[5];
    NEAR(x->busy_p50_ms, 115);
    NEAR(r->rank[0].busy_p50_ms, 113);
    NEAR(r->busy_median_ms, 113);
    NEAR(x->excess_ms, 2);
    NEAR(x->score, 113.0 / 115);
    NEAR(x->blame_frac, 1);
    NEAR(x->lost_s, 2e-3 * BT_VIEW_WINDOW);
    assert_int_equal(x->fault, BT_PH_DATA);
    NEAR(x->fault_frac, 1);
    NEAR(r->step_ms, 115);
    NEAR(x->what_if_ms, 113);
    NEAR(r->rank[0].what_if_ms, 115);
    NEAR(v->head.wait_frac, 7 * 2 / (8 * 115.0));
    NEAR(v->head.overlap, 0.5);
    NEAR(v->head.step_p50_ms, 115);
    const int two[] = {5, 0}, none[] = {0, 1};
    NEAR(bt_view_what_if(v, two, 2), 113);
    NEAR(bt_view_what_if(v, none, 2), 115);
    for (int k = 0; k < 8; k++) {
        double sum = 0;
        for (int p = 0; p < BT_PHASE_COUNT; p++) sum += r->rank[k].mean[bt_phases[p].metric];
        NEAR(sum, r->rank[k].mean[BT_MR_STEP_TIME]);            /* the conservation law */
    }
    bt_view_close(v);
    bt_db_close(db);
}

static void goodput_adds_up(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    const bt_view_head *h = &v->head;
    double step_s = 0.115, elapsed = 220 * step_s + 5;
    assert_int_equal(h->state, BT_STATE_DONE);
    assert_int_equal(h->n_attempts, 2);
    assert_int_equal(h->attempt, 1);
    assert_int_equal(h->step, 199);
    assert_int_equal(h->steps_total, 200);
    NEAR(h->productive_s, 200 * step_s);
    NEAR(h->redone_s, 20 * step_s);
    NEAR(h->down_s, 5);
    NEAR(h->elapsed_s, elapsed);
    NEAR(h->goodput, 200 * step_s / elapsed);
    NEAR(h->productive_s + h->redone_s + h->down_s + h->other_s, h->elapsed_s);
    NEAR(h->tokens, 200 * 4096);
    NEAR(h->loss, bt_synth_loss(199));
    assert_true(h->loss_trend < 0);
    assert_true(isnan(h->eta_s));
    bt_view_close(v);
    bt_db_close(db);
}

static void a_series_holds_every_step_once(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    a.columns = 16;
    a.x = BT_X_TOKENS;
    OK(bt_view_load(v, &a, err));
    const bt_view_series *l = &v->series[0], *val = &v->series[1], *wait = &v->series[2];
    int64_t rows = 0;
    assert_int_equal(v->n_series, 3);
    assert_int_equal(l->n, 13);         /* 200 steps in buckets of 16 */
    assert_true(l->exact);
    for (size_t i = 0; i < l->n; i++) {
        int64_t first = (int64_t)i * 16, last = first + 15 > 199 ? 199 : first + 15;
        assert_int_equal(l->step[i], last);
        NEAR(l->x[i], (double)(last + 1) * 4096);
        NEAR(l->first[i], bt_synth_loss(first));
        NEAR(l->max[i], bt_synth_loss(first));
        NEAR(l->last[i], bt_synth_loss(last));
        NEAR(l->min[i], bt_synth_loss(last));
        rows += l->count[i];
    }
    assert_int_equal(rows, 200);
    assert_int_equal(val->n, 4);        /* sparse: points, no holes */
    NEAR(val->last[3], bt_synth_loss(199) + 0.05);
    assert_int_equal(wait->what.rank, 2);
    for (size_t i = 0; i < wait->n; i++) NEAR(wait->mean[i], 2);
    bt_view_close(v);
    bt_db_close(db);
}

static void every_axis_is_right(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    const double last[BT_X_COUNT] = {[BT_X_STEP] = 199, [BT_X_TOKENS] = 200 * 4096, [BT_X_WALL] = 200 * 0.113, [BT_X_ACTIVE] = 200 * 0.113, [BT_X_BYTES] = 200 * 4e6};
    for (int x = 0; x < BT_X_COUNT; x++) {
        bt_view_ask a = ask_all("s");
        a.x = (bt_x_axis)x;
        OK(bt_view_load(v, &a, err));
        near(v->series[0].x[v->series[0].n - 1], last[x], 1e-4, bt_x_axis_name(a.x));
    }
    bt_view_close(v);
    bt_db_close(db);
}

static void the_past_is_what_it_was(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    int64_t step;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    a.at_step = 60;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->head.step, 60);
    assert_int_equal(v->head.newest_step, 199);
    NEAR(v->head.loss, bt_synth_loss(60));
    assert_int_equal(v->ranks.step1, 60);
    assert_int_equal(v->series[0].step[v->series[0].n - 1], 60);
    for (size_t i = 0; i < v->events.n; i++) assert_true(v->events.event[i].time_s <= 61 * 0.115 + 0.01);
    a.at_step = -1;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->series[0].step[v->series[0].n - 1], 199);
    NEAR(bt_view_time_of(v, "s", 60), 61 * 0.115);
    OK(bt_view_step_at(v, "s", 61 * 0.115 + 0.01, &step, err));
    assert_int_equal(step, 60);
    OK(bt_view_step_at(v, "s", 1e9, &step, err));
    assert_int_equal(step, 199);
    OK(bt_view_step_at(v, "s", -1, &step, err));
    assert_int_equal(step, -1);
    OK(bt_view_event_step(v, "s", 60, 1, &step, err));
    assert_int_equal(step, 99);
    OK(bt_view_event_step(v, "s", 60, -1, &step, err));
    assert_int_equal(step, -1);
    a.span_s = 4.6;                     /* 40 steps */
    OK(bt_view_load(v, &a, err));
    assert_in_range(v->series[0].step[0], 158, 161);
    assert_int_equal(v->series[0].step[v->series[0].n - 1], 199);
    bt_view_close(v);
    bt_db_close(db);
}

/* a view that follows a growing run, across a restart, shows what a fresh one shows */
static void following_equals_looking_afresh(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_writer *w = NULL;
    bt_db *db = NULL, *db2 = NULL;
    bt_run_start start = bt_fake_run("s");
    int attempt;
    int64_t at = 0, clock_us = bt_wall_us();
    start.world_size = s.ranks;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    a.columns = 32;
    for (int part = 0; part < 12; part++) {
        if (part == 8) {
            OK(bt_writer_end(w, "failed", "test", 1, err));
            start.resume = true;
            at = start.from_step = 70;
            OK(bt_writer_begin(w, &start, &attempt, err));
        }
        int64_t to = at + 5 + 3 * part;
        clock_us = bt_synth_attempt(&s, w, at, to, clock_us);
        at = to;
        OK(bt_writer_flush(w, err));
        a.now_us = clock_us;
        OK(bt_view_load(v, &a, err));
        bt_view *fresh = open_view(t->db, &db2);
        OK(bt_view_load(fresh, &a, err));
        assert_int_equal(v->head.step, to - 1);
        for (int k = 0; k < v->n_series; k++) {
            const bt_view_series *x = &v->series[k], *y = &fresh->series[k];
            assert_int_equal(x->n, y->n);
            for (size_t i = 0; i < x->n; i++) {
                assert_int_equal(x->step[i], y->step[i]);
                assert_int_equal(x->count[i], y->count[i]);
                NEAR(x->mean[i], y->mean[i]);
                NEAR(x->min[i], y->min[i]);
                NEAR(x->last[i], y->last[i]);
            }
        }
        assert_int_equal(v->ranks.steps, fresh->ranks.steps);
        for (size_t k = 0; k < v->ranks.n; k++) NEAR(v->ranks.rank[k].lost_s, fresh->ranks.rank[k].lost_s);
        assert_int_equal(v->layers.n, fresh->layers.n);
        bt_view_close(fresh);
        bt_db_close(db2);
    }
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

/* ---- verdicts ------------------------------------------------------------------------------------------------------------------- */

typedef double (*busy_fn)(int64_t step, int rank);     /* milliseconds of forward; the rest is zero */

static void write_busy(const char *path, const char *name, int ranks, int per_host, int64_t steps, busy_fn busy) {
    bt_writer *w = NULL;
    bt_run_start start = bt_fake_run(name);
    int attempt;
    double values[BT_MS_COUNT], *rv = calloc((size_t)ranks * BT_MR_COUNT, sizeof *rv);
    bt_rank_info *info = calloc((size_t)ranks, sizeof *info);
    start.world_size = ranks;
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int r = 0; r < ranks; r++) {
        info[r] = (bt_rank_info){.rank = r, .threads = 1};
        snprintf(info[r].host, sizeof info[r].host, "node%d", r / per_host);
    }
    sink->ranks(sink->ctx, info, (size_t)ranks);
    int64_t clock_us = bt_wall_us();
    for (int64_t s = 0; s < steps; s++) {
        double most = 0;
        for (int r = 0; r < ranks; r++) most = fmax(most, busy(s, r));
        for (int r = 0; r < ranks; r++) {
            double *v = rv + r * BT_MR_COUNT;
            v[BT_MR_FWD] = busy(s, r);
            v[BT_MR_STEP_TIME] = most;
            v[BT_MR_WAIT] = most - busy(s, r);
        }
        for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
        values[BT_MS_STEP_TIME] = most;
        values[BT_MS_LOSS] = 1;
        clock_us += (int64_t)(most * 1e3);
        sink->step(sink->ctx, &(bt_step_record){.step = s, .wall_us = clock_us, .values = values, .n_ranks = ranks, .rank_values = rv});
    }
    OK(bt_writer_end(w, "done", "test", 0, err));
    bt_writer_close(w);
    free(rv);
    free(info);
}

static double busy_steady(int64_t s, int r) { return r == 1 && s >= 160 ? 150 : 100; }
static double busy_bursty(int64_t s, int r) { return r == 2 && s >= 176 && s < 188 ? 180 : 100; }
static double busy_recovering(int64_t s, int r) { return r == 0 && s < 176 ? 140 : 100; }
static double busy_node(int64_t s, int r) { return r >= 4 && s >= 100 ? 130 : 100; }
static double busy_two(int64_t s, int r) { return r == 1 ? 150 + (double)(s % 2) : 100; }

static bt_view_rank verdict_of(const char *path, const char *run, int rank) {
    bt_db *db = NULL;
    bt_view *v = open_view(path, &db);
    bt_view_ask a = ask_all(run);
    OK(bt_view_load(v, &a, err));
    bt_view_rank x = v->ranks.rank[rank];
    for (size_t k = 0; k < v->ranks.n && strcmp(run, "node") != 0; k++)
        if ((int)k != rank) assert_int_equal(v->ranks.rank[k].verdict, BT_VERDICT_OK);
    bt_view_close(v);
    bt_db_close(db);
    return x;
}

static void verdicts_tell_patterns_apart(void **state) {
    const bt_tmp *t = *state;
    write_busy(t->db, "steady", 4, 4, 240, busy_steady);
    write_busy(t->db, "bursty", 4, 4, 240, busy_bursty);
    write_busy(t->db, "recovering", 4, 4, 240, busy_recovering);
    write_busy(t->db, "node", 8, 4, 240, busy_node);
    write_busy(t->db, "two", 2, 2, 240, busy_two);
    bt_view_rank x = verdict_of(t->db, "steady", 1);
    assert_int_equal(x.verdict, BT_VERDICT_STEADY);
    assert_in_range(x.since_step, 150, 170);
    assert_int_equal(x.fault, BT_PH_FWD);
    NEAR(x.score_own, 100.0 / 150);
    assert_non_null(strstr(x.says, "rank 1 is late because of fwd, 100 % of the time, since step 1"));
    assert_int_equal(verdict_of(t->db, "bursty", 2).verdict, BT_VERDICT_BURSTY);
    assert_int_equal(verdict_of(t->db, "recovering", 0).verdict, BT_VERDICT_RECOVERING);
    x = verdict_of(t->db, "node", 6);
    assert_int_equal(x.verdict, BT_VERDICT_NODE_WIDE);
    assert_non_null(strstr(x.says, "every rank of node1 is late"));
    x = verdict_of(t->db, "two", 1);                            /* of two ranks the median is the better one */
    NEAR(x.excess_ms, 50);
    NEAR(x.what_if_ms, 100);
}

/* ---- the rest --------------------------------------------------------------------------------------------------------------------- */

static void heat_map_shows_who_and_when(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    write_busy(t->db, "steady", 4, 4, 240, busy_steady);
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("steady");
    a.heat_columns = 24;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->heat.rows, 4);
    assert_int_equal(v->heat.cols, 24);
    assert_true(v->heat.exact);
    for (size_t k = 0; k < 4; k++)
        for (size_t c = 0; c < 24; c++) NEAR(v->heat.cell[k * 24 + c], k == 1 && c >= 16 ? 1.5 : 1);
    a.heat = BT_HEAT_WAIT;
    OK(bt_view_load(v, &a, err));
    NEAR(v->heat.cell[0 * 24 + 20], 50);
    NEAR(v->heat.cell[1 * 24 + 20], 0);
    bt_view_close(v);
    bt_db_close(db);
}

static void long_runs_are_read_from_summaries(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_run_start start = bt_fake_run("long");
    int attempt;
    double values[BT_MS_COUNT];
    enum { STEPS = 80000 };
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    for (int64_t s = 0; s < STEPS; s++) {
        values[BT_MS_LOSS] = (double)s;
        values[BT_MS_STEP_TIME] = 1;
        sink->step(sink->ctx, &(bt_step_record){.step = s, .wall_us = 1000000 + s * 1000, .values = values});
        if (s % 4096 == 0) OK(bt_writer_flush(w, err));
    }
    OK(bt_writer_end(w, "done", "test", 0, err));
    bt_writer_close(w);
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a;
    bt_view_ask_init(&a);
    a.run = "long";
    a.parts = BT_VIEW_HEAD | BT_VIEW_SERIES;
    a.n_series = 1;
    a.series[0] = (bt_series_ask){.rank = -1, .metric = BT_MS_LOSS};
    OK(bt_view_load(v, &a, err));
    assert_true(v->series[0].exact);    /* nothing is sampled: minima, maxima and counts are those of all rows */
    assert_true(v->series[0].n > 100);
    int64_t rows = 0;
    for (size_t i = 0; i < v->series[0].n; i++) rows += v->series[0].count[i];
    assert_int_equal(rows, STEPS);
    NEAR(v->series[0].min[0], 0);
    NEAR(v->series[0].max[v->series[0].n - 1], STEPS - 1);
    for (size_t i = 1; i < v->series[0].n; i++) assert_true(v->series[0].mean[i] > v->series[0].mean[i - 1]);
    a.step0 = 1000;                     /* zoomed in, every row is read */
    a.step1 = 1099;
    OK(bt_view_load(v, &a, err));
    assert_true(v->series[0].exact);
    assert_int_equal(v->series[0].n, 100);
    NEAR(v->series[0].mean[0], 1000);
    bt_view_close(v);
    bt_db_close(db);
}

static void layers_and_lists(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s"), b = bt_synth_default("older");
    bt_db *db = NULL;
    b.start_us -= 3600 * INT64_C(1000000);
    OK(bt_synth_make(t->db, &b, err));
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    a.baseline = "older";
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->layers.n, 8);
    assert_int_equal(v->layers.step, 180);
    assert_int_equal(v->layers.samples, 10);
    const bt_view_layer *x = &v->layers.layer[0];
    assert_true(fabs(x->value[BT_ML_BOUNDARY] - 0.059) < 0.02 && fabs(x->value[BT_ML_SIGN_FLIP] * 50 - x->value[BT_ML_FLIP]) < 1e-6 && fabs(x->value[BT_ML_OSCILLATION] * 10 - x->value[BT_ML_FLIP]) < 1e-6);
    NEAR(x->value[BT_ML_ZERO] + x->value[BT_ML_POS] + x->neg_frac, 1);
    NEAR(x->entropy_bits, -(0.32 * log2(0.32) + 0.34 * log2(0.34) + 0.34 * log2(0.34)));       /* attn_o comes first */
    NEAR(x->flip_history[31], 0.1 / (1 + 180 / 40.0));
    assert_int_equal(v->events.n, 3);
    assert_int_equal(v->events.total, 3);
    assert_string_equal(v->events.event[0].kind, "started");
    assert_int_equal(v->runs.n, 2);
    assert_string_equal(v->runs.run[0].run, "s");
    assert_int_equal(v->runs.run[0].steps, 200);
    assert_true(v->runs.run[0].n_spark > 20);
    assert_int_equal(v->n_series, 6);
    assert_true(v->series[3].ghost);
    NEAR(v->series[3].last[v->series[3].n - 1], bt_synth_loss(199));
    a.max_events = 2;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n, 2);
    assert_int_equal(v->events.total, 3);
    assert_int_equal(v->events.event[1].step, 199);
    bt_view_close(v);
    bt_db_close(db);
}

static void statistics_of_small_arrays(void **state) {
    (void)state;
    double a[700], b[700];
    uint32_t dice = 7;
    for (int round = 0; round < 3000; round++) {
        size_t n = 1 + (size_t)round % (round % 100 == 0 ? 700 : 40);
        for (size_t i = 0; i < n; i++) {
            dice = dice * 1664525u + 1013904223u;
            a[i] = b[i] = (double)(dice >> 16 & (round % 2 ? 7 : 0xffff)) - 3;
        }
        bt_sort_doubles(b, n);
        for (size_t i = 1; i < n; i++) assert_true(b[i - 1] <= b[i]);
        double m = bt_lower_median(a, n);
        assert_true(m >= b[(n - 1) / 2] && m <= b[(n - 1) / 2]);
    }
    assert_true(isnan(bt_lower_median(a, 0)));
    const double five[] = {1, 2, 3, 4, 5};
    memcpy(a, five, sizeof five);
    assert_true(bt_quantile(a, 5, 0.5) > 2.9 && bt_quantile(a, 5, 0.5) < 3.1);
    assert_true(bt_quantile(a, 5, 0.95) > 4.9);
    assert_true(bt_quantile(a, 5, 0) < 1.1);
}

static void what_is_shown_has_no_escapes(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_run_start start = bt_fake_run("loud");
    int attempt;
    start.host = "n\033[31m0";
    start.note = "note\033]0;x\007 \xc2\x9b";
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    bt_rank_info info = {.rank = 0, .isa = "a\033vx"};
    strcpy(info.host, "h\033[2J");
    sink->ranks(sink->ctx, &info, 1);
    sink->fact(sink->ctx, "params", "1\0332");
    sink->event(sink->ctx, &(bt_event){.kind = "warn\033ing", .level = BT_EV_WARN, .step = -1, .rank = -1, .wall_us = bt_wall_us(), .title = "red\033[31m\nline"});
    OK(bt_writer_flush(w, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("loud");
    OK(bt_view_load(v, &a, err));
    const char *texts[] = {v->head.host, v->head.note, v->head.params, v->ranks.rank[0].host, v->ranks.rank[0].isa, v->events.event[0].title, v->events.event[0].kind,
                           v->runs.run[0].note, v->runs.run[0].host};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_true(texts[i][0] != 0);
        for (const unsigned char *p = (const unsigned char *)texts[i]; *p; p++) assert_true(*p >= 0x20 && *p != 0x7f);
        assert_null(strstr(texts[i], "\xc2\x9b"));
    }
    assert_int_equal(v->head.warnings, 1);
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

static void exchanges_are_means_of_the_ranks(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->comm.n, 3);
    assert_int_equal(v->comm.step1, s.steps / 20 * 20 - (s.steps % 20 == 0 ? 20 : 0));
    assert_int_equal(v->comm.step0, v->comm.step1 - 19);
    const bt_view_op *x = &v->comm.op[0];           /* most lost time first: the gradients */
    assert_string_equal(x->op, "all_reduce");
    assert_string_equal(x->axis, "dp");
    assert_int_equal(x->ranks, s.ranks);
    assert_true(fabs(x->calls - 4) < 1e-9 && fabs(x->bytes_logical - 3200000) < 1e-6 && fabs(x->bytes_wire - 800000) < 1e-6);
    assert_true(fabs(x->busy_ms - 40) < 1e-9 && fabs(x->exposed_ms - 8) < 1e-9 && fabs(x->wait_ms - (s.ranks - 1) / 2.0) < 1e-9);
    assert_true(fabs(x->overlap - 0.8) < 1e-9 && fabs(x->rate - 800000 / 0.04) < 1e-3);
    assert_int_equal(x->lost_rank, s.ranks - 1);
    assert_true(fabs(x->lost_max_ms - (8 + s.ranks - 1)) < 1e-9);
    assert_string_equal(v->comm.op[1].op, "all_gather");
    assert_true(fabs(v->comm.op[1].overlap) < 1e-9);
    assert_string_equal(v->comm.op[2].axis, "world");
    assert_true(isnan(v->comm.op[2].busy_ms) && isnan(v->comm.op[2].rate) && v->comm.op[2].calls > 0.99);
    a.at_step = 0;                                  /* the first sample has one step */
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->comm.step0, 0);
    assert_int_equal(v->comm.step1, 0);
    assert_true(fabs(v->comm.op[0].busy_ms - 40) < 1e-9);
    bt_view_close(v);
    bt_db_close(db);
}

static void nothing_yet_and_nobody_there(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_run_start start = bt_fake_run("young");
    int attempt;
    bt_err why = BT_ERR_INIT;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    OK(bt_writer_flush(w, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("young");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->head.step, -1);
    assert_true(v->head.live);
    assert_true(isnan(v->head.loss));
    assert_int_equal(v->ranks.steps, 0);
    assert_int_equal(v->layers.n, 0);
    assert_int_equal(v->heat.cols, 0);
    a.now_us = bt_wall_us() + 3600 * INT64_C(1000000);          /* an hour without a record */
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->head.state, BT_STATE_STALLED);
    a.run = "nobody";
    assert_int_equal(bt_view_load(v, &a, &why), BT_NOTFOUND);
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

typedef struct standing { bt_writer *w; int seen; } standing;

static bool stands_still(void *ctx, const bt_row *row) {
    standing *s = ctx;
    (void)row;
    if (s->seen++ == 0) {                                       /* in the middle of a read: the run goes on and is safe on disk */
        bt_fake f;
        for (int64_t step = 100; step < 160; step++) bt_writer_sink(s->w)->step(bt_writer_sink(s->w)->ctx, bt_fake_step(&f, step, 2));
        int64_t t0 = bt_now_ns();
        OK(bt_writer_flush(s->w, err));
        assert_int_equal(bt_writer_committed_step(s->w), 159);
        assert_true(bt_now_ns() - t0 < 20 * INT64_C(1000000000));
    }
    return true;
}

static void a_reader_that_stands_still_holds_nobody_up(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_run_start start = bt_fake_run("s");
    standing s = {0};
    bt_fake f;
    int attempt;
    OK(bt_writer_open(&s.w, t->db, 1, err));
    OK(bt_writer_begin(s.w, &start, &attempt, err));
    for (int64_t step = 0; step < 100; step++) bt_writer_sink(s.w)->step(bt_writer_sink(s.w)->ctx, bt_fake_step(&f, step, 2));
    OK(bt_writer_flush(s.w, err));
    bt_view *v = open_view(t->db, &db);
    OK(bt_vq_rows(v->impl, "SELECT step FROM steps WHERE run = ?1", "s", NULL, 0, stands_still, &s, err));
    assert_int_equal(s.seen, 100);                              /* what it sees is of one instant */
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(s.w);
}

static void json_says_what_the_structs_say(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_ask a = ask_all("s");
    bt_text out;
    bt_json j;
    OK(bt_view_load(v, &a, err));
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_view_json(v, BT_VIEW_ALL, &j, NULL);
    const char *p = bt_text_str(&out);
    assert_non_null(strstr(p, "{\"schema\":\"bitrain.view/1\",\"head\":{\"run\":\"s\",\"state\":\"done\""));
    assert_non_null(strstr(p, "\"stragglers\":[{\"rank\":5,"));
    assert_non_null(strstr(p, "\"phase\":\"data\""));
    assert_non_null(strstr(p, "\"what_if\":{\"step_ms\":113"));
    assert_null(strstr(p, "nan"));
    for (const char *key = strtok((char[]){"head breakdown system series heatmap layers comm events runs"}, " "); key; key = strtok(NULL, " ")) {
        char quoted[32];
        snprintf(quoted, sizeof quoted, ",\"%s\":", key);
        if (!strstr(p, quoted)) fail_msg("no %s in the JSON", key);
    }
    bt_text_release(&out);
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(the_slow_rank_is_named_with_its_phase), T(goodput_adds_up),      T(a_series_holds_every_step_once), T(every_axis_is_right),
        T(the_past_is_what_it_was),               T(following_equals_looking_afresh), T(verdicts_tell_patterns_apart), T(heat_map_shows_who_and_when),
        T(long_runs_are_read_from_summaries),      T(layers_and_lists), T(exchanges_are_means_of_the_ranks),    T(nothing_yet_and_nobody_there),   T(what_is_shown_has_no_escapes), cmocka_unit_test(statistics_of_small_arrays), T(a_reader_that_stands_still_holds_nobody_up), T(json_says_what_the_structs_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
