// ctest: timeout=60
/* Lists of layers, exchanges, events and runs; missing data; escaped characters; a reader that blocks; JSON. */
#include <sqlite3.h>

#include "store/write/manage.h"
#include "view_test.h"

/* Shows the requested tensor or else the first ternary one, its samples up to the chosen instant, and the share of each
 * bin. */
static void distributions_of_a_tensor(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = bt_synth_default("s");
    OK(bt_synth_make(t->db, &s, err));
    bt_db *db = NULL;
    bt_view *v = open_view(t->db, &db);
    bt_view_request ask = ask_all("s");
    ask.parts = BT_VIEW_DISTRIBUTION;
    OK(bt_view_load(v, &ask, err));
    const bt_view_distribution *d = &v->distribution;
    assert_int_equal(d->n, 2);
    assert_int_equal(d->at, 0);
    assert_string_equal(d->tensor[0].tensor, "attn_o");
    assert_true(d->tensor[0].ternary && !d->tensor[1].ternary);
    assert_int_equal(d->samples, 5); /* These are steps 0, 40, 80, 120 and 160. */
    assert_int_equal(d->sampled[0], 0);
    assert_int_equal(d->sampled[4], 160);
    NEAR(d->weights[4][12], 100);
    NEAR(d->weights[4][15], 200);
    NEAR(d->weights[4][11], 0);
    NEAR(d->gradients[0][18], 1200);
    NEAR(d->gradients[4][17], 1200);
    NEAR(d->gradients[4][18], 0);
    NEAR(bt_view_share(d->weights[4], 14, 18), 2.0 / 3);
    assert_true(isnan(bt_view_share((const double[BT_HIST_BINS]){0}, 0, BT_HIST_BINS)));
    /* A second range with the same newest sample is read again. */
    ask.step0 = 100;
    ask.step1 = 199;
    OK(bt_view_load(v, &ask, err));
    assert_int_equal(d->samples, 2);
    ask.step0 = ask.step1 = 0;
    OK(bt_view_load(v, &ask, err));
    assert_int_equal(d->samples, 5);
    ask.layer = 0;
    ask.tensor = "ffn_up";
    OK(bt_view_load(v, &ask, err));
    assert_int_equal(d->at, 1);
    NEAR(d->weights[4][15], 0);
    NEAR(d->gradients[4][17], 1200);
    ask.tensor = "gone";
    ask.at_step = 90;
    OK(bt_view_load(v, &ask, err));
    assert_int_equal(d->at, 0);
    assert_int_equal(d->samples, 3);
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
    bt_view_request a = ask_all("s");
    a.baseline = "older";
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->layers.n, 8);
    assert_int_equal(v->layers.step, 180);
    assert_int_equal(v->layers.samples, 10);
    const bt_view_layer *x = &v->layers.layer[0];
    assert_true(fabs(x->value[BT_ML_BOUNDARY] - 0.059) < 0.02 &&
                fabs(x->value[BT_ML_SIGN_FLIP] * 50 - x->value[BT_ML_FLIP]) < 1e-6 &&
                fabs(x->value[BT_ML_OSCILLATION] * 10 - x->value[BT_ML_FLIP]) < 1e-6);
    NEAR(x->value[BT_ML_ZERO] + x->value[BT_ML_POS] + x->neg_frac, 1);
    /* attn_o is the first tensor. */
    NEAR(x->entropy_bits, -(0.32 * log2(0.32) + 0.34 * log2(0.34) + 0.34 * log2(0.34)));
    NEAR(x->value[BT_ML_UPDATE], 2e-3);
    NEAR(x->history[BT_ML_UPDATE][31], 2e-3);
    NEAR(x->history[BT_ML_FLIP][31], 0.1 / (1 + 180 / 40.0));
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
    /* A second range with the same newest sample is read again. */
    a.step0 = 100;
    a.step1 = 199;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->layers.step, 180);
    assert_int_equal(v->layers.samples, 5);
    a.step0 = a.step1 = 0;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->layers.samples, 10);
    /* No weight has the code 0 or -1. */
    run_sql(t->db, "UPDATE layer_stat SET zero_ppb = 0, pos_ppb = 1000000000");
    bt_view_close(v);
    bt_db_close(db);
    v = open_view(t->db, &db);
    OK(bt_view_load(v, &a, err));
    NEAR(v->layers.layer[0].entropy_bits, 0);
    a.max_events = 2;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n, 2);
    assert_int_equal(v->events.total, 3);
    assert_int_equal(v->events.event[1].step, 199);
    bt_view_close(v);
    bt_db_close(db);
}

static void another_run_of_the_same_name(void **state) {
    const bt_tmp *t = *state;
    const char *name = "s";
    bt_synth s = bt_synth_default(name);
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all(name);
    OK(bt_view_load(v, &a, err));
    double step_ms = v->head.step_p50_ms, busy_ms = v->ranks.busy_median_ms;
    OK(bt_runs_remove(t->db, &name, 1, 1, err));
    s.slow = 2;
    s.start_us += 1000000;
    OK(bt_synth_make(t->db, &s, err));
    OK(bt_view_load(v, &a, err));
    NEAR(v->head.step_p50_ms, 2 * step_ms);
    NEAR(v->ranks.busy_median_ms, 2 * busy_ms);
    /* The second run has as many steps but different values. */
    s.steps = 230;
    s.start_us += 1000000;
    OK(bt_runs_remove(t->db, &name, 1, 1, err));
    a.x = BT_X_ACTIVE;
    OK(bt_synth_make(t->db, &s, err));
    OK(bt_view_load(v, &a, err));
    const double long_ms = v->series[0].x[v->series[0].n - 1];
    s.slow = 1;
    s.steps = 240;
    s.start_us += 1000000;
    OK(bt_runs_remove(t->db, &name, 1, 1, err));
    OK(bt_synth_make(t->db, &s, err));
    OK(bt_view_load(v, &a, err));
    assert_true(v->series[0].x[v->series[0].n - 1] < 0.6 * long_ms);
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

static void shown_texts_have_no_escapes(void **state) {
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
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_WARNING,
                                       .step = -1,
                                       .rank = -1,
                                       .wall_us = bt_wall_us(),
                                       .title = "red\033[31m\nline"});
    OK(bt_writer_flush(w, err));
    run_sql(t->db, "UPDATE event SET kind = 'warn' || char(27) || 'ing'");
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("loud");
    OK(bt_view_load(v, &a, err));
    const char *texts[] = {v->head.host,
                           v->head.note,
                           v->head.params,
                           v->ranks.rank[0].host,
                           v->ranks.rank[0].isa,
                           v->events.event[0].title,
                           v->events.event[0].kind,
                           v->runs.run[0].note,
                           v->runs.run[0].host};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_true(texts[i][0] != 0);
        for (const unsigned char *p = (const unsigned char *)texts[i]; *p; p++)
            assert_true(*p >= 0x20 && *p != 0x7f);
        assert_null(strstr(texts[i], "\xc2\x9b"));
    }
    assert_int_equal(v->head.warnings, 1);
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

/* Returns the rate of the link that follows from these facts of a run. */
static double rate_under(const char *path, const char *run, const char *sql) {
    bt_db *db = NULL;
    sqlite3 *w = NULL;
    bt_synth s = bt_synth_default(run);
    OK(bt_synth_make(path, &s, err));
    assert_int_equal(sqlite3_open(path, &w), SQLITE_OK);
    assert_int_equal(sqlite3_exec(w, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(w);
    bt_view *v = open_view(path, &db);
    bt_view_request a = ask_all(run);
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->comm.n_links, 1);
    assert_string_equal(v->comm.link[0].axis, "dp");
    const double rate = v->comm.link[0].bytes_per_s;
    bt_view_close(v);
    bt_db_close(db);
    return rate;
}

/* If the machine was busy during the measurement, or the rate is implausible, none is shown. */
static void a_link_that_was_not_measured_has_no_rate(void **state) {
    const bt_tmp *t = *state;
    NEAR(rate_under(t->db, "told", "SELECT 1"), 8e7);
    assert_true(isnan(rate_under(t->db, "busy",
                                 "DELETE FROM fact WHERE key LIKE 'link.%'; INSERT INTO fact "
                                 "SELECT id, 'link.dp.measured', 'no: the machine was busy', 0 "
                                 "FROM run")));
    assert_true(isnan(rate_under(t->db, "old",
                                 "UPDATE fact SET value = '4.15e18' WHERE key = "
                                 "'link.dp.bytes_per_s'")));
    /* One fact names no link; the name of the link in the other fact is too long. */
    NEAR(rate_under(
             t->db, "odd",
             "INSERT INTO fact SELECT id, 'link.odd', '1', 0 FROM run WHERE name = 'odd'; "
             "INSERT INTO fact SELECT id, 'link.' || hex(zeroblob(40)) || '.latency_s', '1', 0 "
             "FROM run WHERE name = 'odd'"),
         8e7);
}

static void exchanges_are_means_of_the_ranks(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->comm.n, 3);
    assert_int_equal(v->comm.step1, s.steps / 20 * 20 - (s.steps % 20 == 0 ? 20 : 0));
    assert_int_equal(v->comm.step0, v->comm.step1 - 19);
    const bt_view_op *x = &v->comm.op[0]; /* Gradients are first because they lose the most time. */
    assert_string_equal(x->op, "all_reduce");
    assert_string_equal(x->axis, "dp");
    assert_int_equal(x->ranks, s.ranks);
    assert_true(fabs(x->calls - 4) < 1e-9 && fabs(x->bytes_logical - 3200000) < 1e-6 &&
                fabs(x->bytes_wire - 800000) < 1e-6);
    assert_true(fabs(x->busy_ms - 40) < 1e-9 && fabs(x->exposed_ms - 8) < 1e-9 &&
                fabs(x->wait_ms - (s.ranks - 1) / 2.0) < 1e-9);
    assert_true(fabs(x->overlap - 0.8) < 1e-9 && fabs(x->rate - 800000 / 0.04) < 1e-3);
    assert_int_equal(x->lost_rank, s.ranks - 1);
    assert_true(fabs(x->lost_max_ms - (8 + s.ranks - 1)) < 1e-9);
    assert_string_equal(v->comm.op[1].op, "all_gather");
    assert_true(fabs(v->comm.op[1].overlap) < 1e-9);
    NEAR(x->model_ms, 10);
    NEAR(x->model_frac, 0.25);
    assert_string_equal(v->comm.op[2].axis, "world");
    assert_true(isnan(v->comm.op[2].model_ms) && isnan(v->comm.op[2].model_frac));
    assert_int_equal(v->comm.n_links, 1);
    assert_string_equal(v->comm.link[0].axis, "dp");
    NEAR(v->comm.link[0].latency_us, 20);
    NEAR(v->comm.link[0].bytes_per_s, 8e7);
    assert_int_equal(v->comm.pair_ranks, s.ranks);
    assert_int_equal(v->comm.n_pairs, s.ranks * (s.ranks - 1));
    assert_int_equal(v->comm.pair1, v->comm.step1);
    for (size_t i = 0; i < v->comm.n_pairs; i++) {
        const bt_view_pair *p = &v->comm.pair[i];
        assert_true(p->rank != p->peer);
        NEAR(p->messages, 4);
        NEAR(p->bytes, 1e5);
        NEAR(p->flight_ms, p->peer == s.straggler ? 10 : 2);
    }
    assert_true(isnan(v->comm.op[2].busy_ms) && isnan(v->comm.op[2].rate) &&
                v->comm.op[2].calls > 0.99);
    a.at_step = 0; /* The first sample covers one step. */
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->comm.step0, 0);
    assert_int_equal(v->comm.step1, 0);
    assert_true(fabs(v->comm.op[0].busy_ms - 40) < 1e-9);
    assert_int_equal(v->comm.pair0, 0);
    assert_int_equal(v->comm.pair1, 0);
    a.run = "alone"; /* This run has a single rank. */
    s = bt_synth_default("alone");
    s.ranks = 1;
    OK(bt_synth_make(t->db, &s, err));
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->comm.n_pairs, 0);
    assert_true(isnan(v->ranks.skew_p95_ms) && isnan(v->ranks.rank[0].late_p95_ms));
    bt_view_close(v);
    bt_db_close(db);
}

static void empty_and_missing_runs(void **state) {
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
    bt_view_request a = ask_all("young");
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->head.step, -1);
    assert_true(v->head.live);
    assert_true(isnan(v->head.loss));
    assert_int_equal(v->ranks.steps, 0);
    assert_int_equal(v->layers.n, 0);
    assert_int_equal(v->heat.cols, 0);
    assert_int_equal(v->distribution.samples, 0);
    a.now_us = bt_wall_us() + 3600 * INT64_C(1000000); /* an hour after the newest record */
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->head.state, BT_STATE_STALLED);
    a.run = "nobody";
    assert_int_equal(bt_view_load(v, &a, &why), BT_NOTFOUND);
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

typedef struct standing {
    bt_writer *w;
    int seen;
} standing;

static bool check_snapshot_is_unchanged(void *ctx, const bt_row *row) {
    standing *s = ctx;
    (void)row;
    /* During the read the run continues and commits. */
    if (s->seen++ == 0) {
        bt_fake f;
        for (int64_t step = 100; step < 160; step++)
            bt_writer_sink(s->w)->step(bt_writer_sink(s->w)->ctx, bt_fake_step(&f, step, 2));
        int64_t t0 = bt_now_ns();
        OK(bt_writer_flush(s->w, err));
        assert_int_equal(bt_writer_committed_step(s->w), 159);
        assert_true(bt_now_ns() - t0 < 20 * INT64_C(1000000000));
    }
    return true;
}

static void a_blocked_reader_delays_no_writer(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_run_start start = bt_fake_run("s");
    standing s = {0};
    bt_fake f;
    int attempt;
    OK(bt_writer_open(&s.w, t->db, 1, err));
    OK(bt_writer_begin(s.w, &start, &attempt, err));
    for (int64_t step = 0; step < 100; step++)
        bt_writer_sink(s.w)->step(bt_writer_sink(s.w)->ctx, bt_fake_step(&f, step, 2));
    OK(bt_writer_flush(s.w, err));
    bt_view *v = open_view(t->db, &db);
    OK(bt_vq_rows(v->impl, "SELECT step FROM steps WHERE run = ?1", "s", NULL, 0,
                  check_snapshot_is_unchanged, &s, err));
    assert_int_equal(s.seen, 100); /* The reader sees the data of one instant. */
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(s.w);
}

static double value_of(bt_db *db, const char *sql) {
    double x = NAN;
    OK(bt_db_value(db, sql, "s", &x, err));
    return x;
}

/* Compares each metric of each panel with an SQL query for its newest sample. */
static void a_panel_shows_each_metric(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    size_t known = 0, keys = 0;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    a.parts = BT_VIEW_HEAD | BT_VIEW_PANEL;
    a.panel = BT_PANEL_COUNT;
    OK(bt_view_load(v, &a, err));
    assert_true(v->panel.n > 50);
    for (size_t i = 0; i < v->panel.n; i++) {
        const bt_view_metric *x = &v->panel.metric[i];
        const bt_scope_row *scope = &bt_scopes[x->scope];
        const char *key = scope->metric[x->metric].key;
        static const char *const what[] = {"avg", "min", "max"};
        const double told[] = {x->mean, x->least, x->most};
        char sql[200];
        if (x->step < 0) continue;
        known++;
        for (int k = 0; k < 3; k++) {
            snprintf(sql, sizeof sql, "SELECT %s(\"%s\") FROM %s WHERE run = ?1 AND step = %lld",
                     what[k], key, scope->view, (long long)x->step);
            near(told[k], value_of(db, sql), 1e-9 * fabs(told[k]), sql);
        }
        snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE run = ?1 AND step = %lld",
                 scope->view, (long long)x->step);
        near((double)x->rows, value_of(db, sql), 0, sql);
    }
    assert_true(known > 30);
    bt_text out;
    bt_json j;
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_view_panel_json(&v->panel, &j);
    bt_json_end(&j, '}');
    for (const char *p = bt_text_str(&out); (p = strstr(p, "\"key\":")); p++) keys++;
    assert_int_equal(keys, v->panel.n);
    bt_text_release(&out);
    bt_view_close(v);
    bt_db_close(db);
}

static void a_level_is_that_of_its_kind(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    int seen[BT_EV_LEVELS] = {0};
    OK(bt_synth_make(t->db, &s, err));
    for (int k = 0; k < BT_EVENT_COUNT; k++) {
        char sql[240];
        snprintf(sql, sizeof sql,
                 "INSERT INTO event(run, t_us, kind, level, title) SELECT id, last_us, '%s', %d, "
                 "'told' FROM run",
                 bt_events[k].name, bt_events[k].level);
        run_sql(t->db, sql);
    }
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    a.max_events = BT_EVENT_COUNT;
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->events.n, BT_EVENT_COUNT);
    for (size_t i = 0; i < v->events.n; i++) {
        const bt_view_event *e = &v->events.event[i];
        assert_int_equal(e->level, bt_events[bt_event_find(e->kind)].level);
        seen[e->level]++;
    }
    for (int l = 0; l < BT_EV_LEVELS; l++) assert_true(seen[l] > 0);
    bt_view_close(v);
    bt_db_close(db);
}

/* The stored row of a live run covers the time up to its newest record; the list computes the present values. */
static void every_live_run_is_listed_up_to_now(void **state) {
    const bt_tmp *t = *state;
    static const char *const names[] = {"a", "b", "c"};
    bt_db *db = NULL;
    bt_view_request a = ask_all(names[0]);
    double duration[3], goodput[3];
    for (int i = 0; i < 3; i++) {
        bt_synth s = bt_synth_default(names[i]);
        s.live = true;
        s.start_us += i * INT64_C(1000000);
        a.now_us = s.start_us + INT64_C(100000000);
        OK(bt_synth_make(t->db, &s, err));
    }
    bt_view *v = open_view(t->db, &db);
    OK(bt_view_load(v, &a, err));
    assert_int_equal(v->runs.n, 3);
    for (int i = 0; i < 3; i++) {
        const bt_view_run *x = &v->runs.run[2 - i]; /* The newest run is first. */
        assert_string_equal(x->run, names[i]);
        assert_true(bt_run_states[x->state].live);
        duration[i] = x->duration_s;
        goodput[i] = x->goodput;
    }
    for (int i = 0; i < 3; i++) {
        a.run = names[i];
        OK(bt_view_load(v, &a, err));
        NEAR(duration[i], v->head.elapsed_s);
        NEAR(goodput[i], v->head.goodput);
    }
    bt_view_close(v);
    bt_db_close(db);
}

static void json_equals_the_structs(void **state) {
    const bt_tmp *t = *state;
    bt_synth s = slow_five();
    bt_db *db = NULL;
    OK(bt_synth_make(t->db, &s, err));
    bt_view *v = open_view(t->db, &db);
    bt_view_request a = ask_all("s");
    bt_text out;
    bt_json j;
    OK(bt_view_load(v, &a, err));
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_view_json(v, BT_VIEW_ALL, &j, NULL);
    const char *p = bt_text_str(&out);
    assert_non_null(
        strstr(p, "{\"schema\":\"bitrain.view/1\",\"head\":{\"run\":\"s\",\"state\":\"done\""));
    assert_non_null(strstr(p, "\"stragglers\":[{\"rank\":5,"));
    assert_non_null(strstr(p, "\"phase\":\"data\""));
    assert_non_null(strstr(p, "\"what_if\":{\"step_ms\":113"));
    /* Texts may contain "nan" ("preset nano"), so only values are checked. */
    for (const char *x = strstr(p, "nan"); x; x = strstr(x + 1, "nan"))
        assert_null(memchr(":,[", x[-1], 3));
    for (const char *key = strtok(
             (char[]){"head breakdown system series heatmap layers comm events settings runs"},
             " ");
         key; key = strtok(NULL, " ")) {
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
        T(layers_and_lists),
        T(distributions_of_a_tensor),
        T(another_run_of_the_same_name),
        T(a_link_that_was_not_measured_has_no_rate),
        T(exchanges_are_means_of_the_ranks),
        T(empty_and_missing_runs),
        T(shown_texts_have_no_escapes),
        cmocka_unit_test(statistics_of_small_arrays),
        T(a_blocked_reader_delays_no_writer),
        T(json_equals_the_structs),
        T(a_panel_shows_each_metric),
        T(a_level_is_that_of_its_kind),
        T(every_live_run_is_listed_up_to_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
