/* Charts of a long run from summaries: evaluations and extremes are drawn at their own steps, both ends are independent
 * of the number of points, and any number of events is reduced to the events that explain a curve. */
#include "../view_test.h"

enum { STEPS = 20000, EVERY = 500, LEAST_VAL = 13500, PEAK = 4321, LOST = 19990 };
static const int64_t begin_us = INT64_C(1700000000000000);

static double loss_at(int64_t step) { return 2 + 8 * exp(-(double)step / 2000); }
static double val_at(int64_t step) { return 2.5 + fabs((double)(step - LEAST_VAL)) / 1e4; }

static void put_event(const bt_sink *to, bt_event_kind kind, int64_t step) {
    to->event(to->ctx, &(bt_event){.kind = kind,
                                   .step = step,
                                   .wall_us = begin_us + step * 1000,
                                   .title = bt_events[kind].name});
}

static void record_long_run(const bt_tmp *t) {
    bt_writer *w = NULL;
    int attempt;
    double values[BT_MS_COUNT];
    bt_run_start s = bt_fake_run("a");
    s.started_us = begin_us;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *to = bt_writer_sink(w);
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    for (int64_t step = 0; step < STEPS; step++) {
        const bool evaluated = step % EVERY == 0;
        values[BT_MS_TOKENS] = 64 * (double)(step + 1);
        values[BT_MS_LOSS] = loss_at(step);
        values[BT_MS_VAL_LOSS] = evaluated ? val_at(step) : NAN;
        values[BT_MS_LR] = 0.004 - fabs((double)(step - PEAK)) * 1e-7;
        values[BT_MS_GRAD_NORM] = step < LOST ? 1 : NAN;
        if (evaluated) put_event(to, BT_EVENT_EVALUATION, step);
        if (step % 20 == 0) put_event(to, BT_EVENT_CHECKPOINT, step);
        if (step % 100 == 50) put_event(to, BT_EVENT_SLOW, step);
        if (step == 3000 || step == 9000) put_event(to, BT_EVENT_RESTARTED, step);
        if (step == 3500) put_event(to, BT_EVENT_CONTROL, step);
        if (step == 10) put_event(to, BT_EVENT_ANNOTATION, step);
        to->step(to->ctx, &(bt_step_record){
                              .step = step, .wall_us = begin_us + step * 1000, .values = values});
    }
    OK(bt_writer_end(w, "done", "done", 0, err));
    bt_writer_close(w);
}

static size_t marks_of(const bt_view_events *e, const char *kind) {
    size_t n = 0;
    for (size_t i = 0; i < e->n_marks; i++) n += strcmp(e->mark[i].kind, kind) == 0;
    return n;
}

static void curves_of_a_long_run(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_long_run(t);
    static const bt_step_metric metrics[] = {BT_MS_LOSS, BT_MS_VAL_LOSS, BT_MS_LR, BT_MS_GRAD_NORM};
    double start = NAN, end = NAN;
    for (int columns = 100; columns <= 1000; columns *= 3) {
        bt_view *v = open_view(t->db, &db);
        bt_view_request ask = ask_all("a");
        ask.columns = columns;
        ask.ends = true;
        ask.n_series = 4;
        for (int i = 0; i < 4; i++) ask.series[i] = (bt_series_request){-1, metrics[i]};
        OK(bt_view_load(v, &ask, err));
        const bt_view_series *loss = &v->series[0], *val = &v->series[1];
        for (size_t i = 0; i < val->n; i++) {
            if (isnan(val->last[i])) continue;
            assert_int_equal(val->step[i] % EVERY, 0);
            near(val->last[i], val_at(val->step[i]), 1e-6, "validation");
            near(val->x[i], (double)val->step[i], 1e-9, "place of a validation");
        }
        assert_int_equal(val->least_step, LEAST_VAL);
        assert_int_equal(val->lost_step, -1);
        assert_int_equal(v->series[2].most_step, PEAK);
        assert_int_equal(v->series[3].lost_step >= LOST - STEPS / columns, true);
        assert_int_equal(loss->least_step, STEPS - 1);
        assert_int_equal(loss->most_step, 0);
        assert_int_equal(loss->lost_step, -1);
        if (columns == 100) start = loss->start, end = loss->end;
        near(loss->start, start, 0, "start with another number of points");
        near(loss->end, end, 0, "end with another number of points");
        assert_true(start < loss_at(0) && start > loss_at(400) && end < loss_at(19600));
        bt_view_close(v);
        bt_db_close(db);
    }
}

static void marks_explain_first(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    record_long_run(t);
    bt_view *v = open_view(t->db, &db);
    const bt_view_events *e = &v->events;
    bt_view_request ask = ask_all("a");
    OK(bt_view_load(v, &ask, err));
    assert_int_equal(e->n_marks, 0);
    for (int max = 40; max <= 5000; max *= 5) {
        ask.max_marks = max;
        OK(bt_view_load(v, &ask, err));
        assert_int_equal(e->markable, 1000 + 200 + 4);
        assert_true(e->n_marks <= (size_t)max + 2);
        if (max >= e->markable) assert_int_equal(e->n_marks, e->markable);
        assert_int_equal(marks_of(e, "restarted"), 2);
        assert_int_equal(marks_of(e, "control"), 1);
        assert_int_equal(marks_of(e, "annotation"), 1);
        assert_int_equal(marks_of(e, "evaluation"), 0);
        /* The kept marks are spread over the whole run. */
        assert_true(marks_of(e, "slow") > 1);
        for (size_t i = 0; i < e->n_marks; i++) {
            if (strcmp(e->mark[i].kind, "slow") != 0) continue;
            assert_true(e->mark[i].step < STEPS / 4);
            break;
        }
        for (size_t i = 1; i < e->n_marks; i++) assert_true(e->mark[i].seq > e->mark[i - 1].seq);
    }
    bt_view_close(v);
    bt_db_close(db);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        TEST(curves_of_a_long_run),
        TEST(marks_explain_first),
    };
    return cmocka_run_group_tests_name("long_run", tests, NULL, NULL);
}
