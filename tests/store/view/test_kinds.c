// ctest: timeout=120
/* Requests each part of the view model for a run of each kind, at each instant, axis and value, and compared with each
 * other run. The result is valid JSON with consistent figures: the exposed time is part of the time in flight, the
 * parts of the time add up, and steps are within the run. */
#include "../kinds_of_runs.h"
#include "../view_test.h"

enum { RUNS_MAX = 24 };

typedef struct names {
    char name[RUNS_MAX][BT_NAME_MAX];
    int n;
} names;

static bool on_name(void *ctx, const bt_row *r) {
    names *x = ctx;
    if (r->cells[0] && x->n < RUNS_MAX) snprintf(x->name[x->n++], BT_NAME_MAX, "%s", r->cells[0]);
    return true;
}

/* Records every `every`-th step of `ranks` ranks; the losses after step `finite` are not finite. */
static void record_attempt(bt_writer *w, int ranks, int64_t from, int64_t to, int64_t every,
                           int64_t finite) {
    bt_fake f;
    bt_rank_info info[8];
    memset(info, 0, sizeof info);
    const bt_sink *sink = bt_writer_sink(w);
    for (int r = 0; r < ranks; r++)
        info[r] = (bt_rank_info){.rank = r, .pid = 10 + r, .host = "h", .isa = "x"};
    sink->ranks(sink->ctx, info, (size_t)ranks);
    for (int64_t step = from; step < to; step += every) {
        (void)bt_fake_step(&f, step, ranks);
        if (step >= finite) {
            f.values[BT_MS_LOSS] = step % 2 ? NAN : INFINITY;
            f.values[BT_MS_GRAD_NORM] = INFINITY;
            f.values[BT_MS_SKIPPED] = 1;
        }
        f.r.wall_us = INT64_C(1700000000000000) + 1000000 * (step + 1);
        sink->step(sink->ctx, &f.r);
    }
}

/* Records runs that resumed with another number of ranks, were extended after their end, have a record of every tenth
 * step, or end with losses that are not finite. */
static void record_more_kinds(const char *path) {
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("other-ranks");
    s.started_us = INT64_C(1700000000000000);
    OK(bt_writer_open(&w, path, 10, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record_attempt(w, 2, 0, 30, 1, INT64_MAX);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    s.resume = true;
    s.from_step = 30;
    s.world_size = 4;
    s.started_us += 60 * INT64_C(1000000);
    OK(bt_writer_begin(w, &s, &attempt, err));
    record_attempt(w, 4, 30, 60, 1, INT64_MAX);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    s = bt_fake_run("every-tenth");
    s.started_us = INT64_C(1700000000000000);
    OK(bt_writer_begin(w, &s, &attempt, err));
    record_attempt(w, 2, 0, 400, 10, INT64_MAX);
    OK(bt_writer_end(w, "stopped", "stopped", 0, err));
    s = bt_fake_run("not-finite");
    s.started_us = INT64_C(1700000000000000);
    OK(bt_writer_begin(w, &s, &attempt, err));
    bt_writer_sink(w)->fact(bt_writer_sink(w)->ctx, "measured.load", "8.25");
    record_attempt(w, 1, 0, 44, 1, 41);
    OK(bt_writer_end(w, "failed", "error", 1, err));
    s = bt_fake_run("waits");
    s.started_us = INT64_C(1700000000000000);
    OK(bt_writer_begin(w, &s, &attempt, err)); /* The attempt has no step, no rank and no end. */
    bt_writer_close(w);
}

static sqlite3 *json;

static void is_json(const char *text, const char *what) {
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(json, "SELECT json_valid(?1)", -1, &st, NULL), SQLITE_OK);
    sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    if (!sqlite3_column_int(st, 0)) fail_msg("%s: no JSON: %.400s", what, text);
    sqlite3_finalize(st);
}

static void figures_are_of_a_step(const bt_view *v, const char *what) {
    const bt_view_head *h = &v->head;
    double sum = 0;
    for (int p = 0; p < BT_TIME_PARTS; p++) sum += h->time_s[p];
    near(sum, h->elapsed_s, 1e-3, what);
    assert_true(h->step <= h->newest_step);
    assert_true(isnan(h->goodput) || (h->goodput >= 0 && h->goodput <= 1));
    if (strcmp(h->run, "not-finite") == 0 && h->step >= 41) {
        assert_int_equal(h->n_remarks, 2);
        assert_non_null(strstr(h->remark[0], "has not been finite since step 42"));
        assert_non_null(strstr(h->remark[1], "had 8.2 runnable tasks per processor"));
    } else if (strcmp(h->run, "other-ranks") == 0)
        assert_int_equal(h->n_remarks, 0);
    for (int i = 0; i < v->n_series; i++) {
        const bt_view_series *s = &v->series[i];
        assert_true(isnan(s->low) || s->low <= s->high);
        for (size_t k = 1; k < s->n; k++) assert_true(s->step[k] > s->step[k - 1]);
        if (s->n) assert_true(s->least_step <= s->step[s->n - 1]);
    }
    for (size_t i = 0; i < v->comm.n; i++) {
        const bt_view_op *x = &v->comm.op[i];
        assert_true(isnan(x->exposed_ms) || x->exposed_ms <= x->busy_ms + 1e-9);
    }
    for (size_t i = 0; i < v->ranks.n; i++)
        assert_true(v->ranks.order[i] >= 0 && (size_t)v->ranks.order[i] < v->ranks.n);
}

static void load_and_judge(bt_view *v, const bt_view_request *ask, const char *what) {
    bt_err err = BT_ERR_INIT;
    bt_text text;
    bt_json j;
    char line[256];
    if (bt_view_load(v, ask, &err) != BT_OK) fail_msg("%s: %s", what, err.msg);
    bt_text_init(&text);
    bt_json_begin(&j, &text);
    bt_view_json(v, ask->parts, &j, NULL);
    is_json(bt_text_str(&text), what);
    bt_text_release(&text);
    if (!ask->bare) figures_are_of_a_step(v, what);
    (void)bt_view_trouble_line(&v->head.trouble, line, sizeof line);
    (void)bt_view_what_if(v, v->ranks.order, v->ranks.n);
}

static void request_every_part(bt_view *v, const char *run, const char *baseline) {
    static const int metrics[] = {BT_MS_LOSS, BT_MS_VAL_LOSS, BT_MS_GRAD_NORM, BT_MS_VAL_F1};
    bt_view_request a = ask_all(run);
    bt_err err = BT_ERR_INIT;
    a.baseline = baseline;
    a.ends = true;
    a.max_marks = 5;
    a.panel = BT_PANEL_COUNT;
    a.n_series = 6;
    for (int i = 0; i < 4; i++) a.series[i] = (bt_series_request){-1, metrics[i]};
    a.series[4] = (bt_series_request){0, BT_MR_WAIT};
    a.series[5] = (bt_series_request){7, BT_MR_STEP_TIME};
    a.now_us = INT64_C(1700000000000000) + 400 * INT64_C(1000000);
    load_and_judge(v, &a, run);
    const int64_t newest = v->head.newest_step;
    for (int x = 0; x < BT_X_COUNT; x++) {
        a.x = (bt_x_axis)x;
        a.columns = 1 + 40 * x;
        load_and_judge(v, &a, run);
    }
    for (int h = 0; h < BT_HEAT_VALUES; h++) {
        a.heat = (bt_heat_value)h;
        load_and_judge(v, &a, run);
    }
    for (int64_t at = 0; at <= newest + 1; at += newest / 3 + 1) {
        a.at_step = at;
        load_and_judge(v, &a, run);
    }
    a.at_step = -1;
    a.step0 = 5;
    a.step1 = 11;
    load_and_judge(v, &a, run);
    a.step1 = 0;
    a.span_s = 3;
    load_and_judge(v, &a, run);
    a.bare = true;
    a.parts = BT_VIEW_SERIES;
    load_and_judge(v, &a, run);
    int64_t found;
    for (int dir = -1; dir <= 1; dir += 2)
        if (bt_view_event_step(v, run, 10, dir, &found, &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_view_step_at(v, run, 5, &found, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_true(found <= newest && !(bt_view_time_of(v, run, newest) < 0));
}

static void every_function_over_every_kind(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    names all = {.n = 0};
    assert_int_equal(sqlite3_open(":memory:", &json), SQLITE_OK);
    bt_kinds_of_runs(t->db);
    record_more_kinds(t->db);
    bt_view *v = open_view(t->db, &db);
    OK(bt_db_query(db, &(bt_query){.sql = "SELECT run FROM runs ORDER BY run"}, on_name, &all,
                   err));
    assert_true(all.n >= 15);
    for (int i = 0; i < all.n; i++) {
        request_every_part(v, all.name[i], NULL);
        request_every_part(v, all.name[i], all.name[(i + 1) % all.n]);
        /* Compares with a view that has shown no other run. */
        bt_db *alone = NULL;
        bt_view *fresh = open_view(t->db, &alone);
        request_every_part(fresh, all.name[i], NULL);
        bt_view_close(fresh);
        bt_db_close(alone);
    }
    bt_view_close(v);
    bt_db_close(db);
    sqlite3_close(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_function_over_every_kind, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests_name("kinds", tests, NULL, NULL);
}
