// ctest: timeout=60
/* Series in buckets and figures of the whole run: goodput, axes, past instants, a growing run, and long runs read from
 * summaries. */
#include "view_test.h"

static void goodput_adds_up(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    const bt_view_head *h = &v->head;
    double step_s = 0.115, elapsed = 220 * step_s + 5;
    assert_int_equal(h->state, BT_STATE_DONE);
    assert_int_equal(h->n_attempts, 2);
    assert_int_equal(h->attempt, 1);
    assert_int_equal(h->step, 199);
    assert_int_equal(h->steps_total, 200);
    /* Two steps end with a checkpoint of 40 ms. */
    NEAR(h->time_s[BT_TIME_PRODUCTIVE], 200 * step_s - 0.08);
    NEAR(h->time_s[BT_TIME_CHECKPOINT], 0.08);
    NEAR(h->time_s[BT_TIME_REDONE], 20 * step_s);
    NEAR(h->time_s[BT_TIME_LOST], 5);
    NEAR(h->elapsed_s, elapsed);
    NEAR(h->goodput, (200 * step_s - 0.08) / elapsed);
    double sum = 0;
    for (int p = 0; p < BT_TIME_PARTS; p++) sum += h->time_s[p];
    NEAR(sum, h->elapsed_s);
    NEAR(h->tokens, 200 * 4096);
    NEAR(h->loss, bt_synth_loss(199));
    assert_true(h->loss_trend < 0);
    assert_true(isnan(h->eta_s));
    bt_view_close(v);
    bt_db_close(db);
}

/* A pause adds a validation loss to a step that the viewer has already read. */
static void an_evaluation_during_a_pause_is_seen(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    int attempt;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start start = bt_fake_run("s");
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 20; step++) {
        bt_fake_step(&f, step, 2);
        f.values[BT_MS_VAL_LOSS] = NAN;
        sink->step(sink->ctx, &f.r);
    }
    OK(bt_writer_flush(w, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    assert_true(isnan(v->head.val_loss));
    assert_true(isnan(v->series[1].last[v->series[1].n - 1]) || v->series[1].n == 0);
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                       .step = 19,
                                       .rank = -1,
                                       .wall_us = bt_wall_us(),
                                       .title = "validation",
                                       .body = "{\"val_loss\":2.75,\"took_ms\":1}"});
    OK(bt_writer_flush(w, err));
    OK(bt_view_load(v, &a, err));
    NEAR(v->head.val_loss, 2.75);
    NEAR(v->head.best_val, 2.75);
    assert_true(v->series[1].n > 0);
    NEAR(v->series[1].last[v->series[1].n - 1], 2.75);
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

static void a_series_holds_every_step_once(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    a.columns = 16;
    a.x = BT_X_TOKENS;
    OK(bt_view_load(v, &a, err));
    const bt_view_series *l = &v->series[0], *val = &v->series[1], *wait = &v->series[2];
    int64_t rows = 0;
    assert_int_equal(v->n_series, 3);
    assert_int_equal(l->n, 13); /* 200 steps in buckets of 16 */
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
    assert_int_equal(val->n, 4); /* The metric is sparse, so the line has no gaps. */
    NEAR(val->last[3], bt_synth_loss(199) + 0.05);
    assert_int_equal(wait->what.rank, 2);
    for (size_t i = 0; i < wait->n; i++) NEAR(wait->mean[i], 2);
    bt_view_close(v);
    bt_db_close(db);
}

static void values_on_every_axis(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    const double last[BT_X_COUNT] = {[BT_X_STEP] = 199,
                                     [BT_X_TOKENS] = 200 * 4096,
                                     [BT_X_WALL] = 200 * 0.113,
                                     [BT_X_ACTIVE] = 200 * 0.113,
                                     [BT_X_BYTES] = 200 * 4e6};
    for (int x = 0; x < BT_X_COUNT; x++) {
        bt_view_request a = ask_all("s");
        a.x = (bt_x_axis)x;
        OK(bt_view_load(v, &a, err));
        near(v->series[0].x[v->series[0].n - 1], last[x], 1e-4, bt_x_axis_name(a.x));
    }
    bt_view_close(v);
    bt_db_close(db);
}

static void past_instants_are_unchanged(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    int64_t step;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    a.at_step = 60;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->head.step, 60);
    assert_int_equal(v->head.newest_step, 199);
    NEAR(v->head.loss, bt_synth_loss(60));
    assert_int_equal(v->ranks.step1, 60);
    assert_int_equal(v->series[0].step[v->series[0].n - 1], 60);
    for (size_t i = 0; i < v->events.n; i++)
        assert_true(v->events.event[i].time_s <= 61 * 0.115 + 0.01);
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
    a.span_s = 4.6; /* This is the time of 40 steps. */
    OK(bt_view_load(v, &a, err));
    assert_in_range(v->series[0].step[0], 158, 161);
    assert_int_equal(v->series[0].step[v->series[0].n - 1], 199);
    bt_view_close(v);
    bt_db_close(db);
}

static void same_numbers(const bt_view *v, const bt_view *fresh) {
    bt_text a, b;
    bt_json j;
    bt_text_init(&a);
    bt_text_init(&b);
    bt_json_begin(&j, &a);
    bt_view_json(v, BT_VIEW_ALL & ~(unsigned)BT_VIEW_RUNS, &j, NULL);
    bt_json_begin(&j, &b);
    bt_view_json(fresh, BT_VIEW_ALL & ~(unsigned)BT_VIEW_RUNS, &j, NULL);
    assert_false(a.failed || b.failed);
    const char *x = bt_text_str(&a), *y = bt_text_str(&b);
    /* Sums in another order differ in their last digits. */
    while (*x && *y) {
        if ((*x >= '0' && *x <= '9') && (*y >= '0' && *y <= '9')) {
            char *xe, *ye;
            double p = strtod(x, &xe), q = strtod(y, &ye);
            if (fabs(p - q) > 1e-9 * (1 + fabs(p)))
                fail_msg("%.60s\n instead of\n %.60s", x - 40, y - 40);
            x = xe, y = ye;
        } else if (*x++ != *y++) {
            fail_msg("%.100s\n instead of\n %.100s", x - 60, y - 60);
        }
    }
    assert_true(*x == *y);
    bt_text_release(&a);
    bt_text_release(&b);
}

static void following_equals_a_new_view(void **state) {
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
    bt_view_request a = ask_all("s");
    a.columns = 32;
    a.window = 24; /* a window that moves with the newest step */
    for (int part = 0; part < 24; part++) {
        a.x = (bt_x_axis)(part / 2 % BT_X_COUNT);
        /* A run may be compared with itself. */
        a.baseline = part % 5 >= 3 ? "s" : NULL;
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
        same_numbers(v, fresh);
        bt_view_close(fresh);
        bt_db_close(db2);
    }
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
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
        sink->step(sink->ctx,
                   &(bt_step_record){.step = s, .wall_us = 1000000 + s * 1000, .values = values});
        if (s % 4096 == 0) OK(bt_writer_flush(w, err));
    }
    OK(bt_writer_end(w, "done", "test", 0, err));
    bt_writer_close(w);
    bt_view *v = open_view(t->db, &db);
    bt_view_request a;
    bt_view_request_init(&a);
    a.run = "long";
    a.parts = BT_VIEW_HEAD | BT_VIEW_SERIES;
    a.n_series = 1;
    a.series[0] = (bt_series_request){.rank = -1, .metric = BT_MS_LOSS};
    OK(bt_view_load(v, &a, err));
    /* All rows were read, so minima, maxima and counts are exact. */
    assert_true(v->series[0].exact);
    assert_true(v->series[0].n > 100);
    int64_t rows = 0;
    for (size_t i = 0; i < v->series[0].n; i++) rows += v->series[0].count[i];
    assert_int_equal(rows, STEPS);
    NEAR(v->series[0].min[0], 0);
    NEAR(v->series[0].max[v->series[0].n - 1], STEPS - 1);
    for (size_t i = 1; i < v->series[0].n; i++)
        assert_true(v->series[0].mean[i] > v->series[0].mean[i - 1]);
    a.step0 = 1000; /* A short range is read row by row. */
    a.step1 = 1099;
    OK(bt_view_load(v, &a, err));
    assert_true(v->series[0].exact);
    assert_int_equal(v->series[0].n, 100);
    NEAR(v->series[0].mean[0], 1000);
    bt_view_close(v);
    /* The range has too many narrow buckets, so the view reads 6 of each 8 steps and marks the series as sampled. */
    OK(bt_view_open(&v, db, err));
    a.step0 = a.step1 = 0;
    a.columns = 16384;
    OK(bt_view_load(v, &a, err));
    const bt_view_series *narrow = &v->series[0];
    assert_false(narrow->exact);
    assert_int_equal(narrow->n, STEPS / 8);
    for (size_t i = 0; i < narrow->n; i++) {
        NEAR(narrow->first[i], 8 * (double)i);
        assert_int_equal(narrow->count[i], 6);
        NEAR(narrow->mean[i], 8 * (double)i + 2.5);
    }
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        T(goodput_adds_up),
        T(an_evaluation_during_a_pause_is_seen),
        T(a_series_holds_every_step_once),
        T(values_on_every_axis),
        T(past_instants_are_unchanged),
        T(following_equals_a_new_view),
        T(long_runs_are_read_from_summaries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
