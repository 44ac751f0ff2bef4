/* test_memorising.c - the verdict that a run memorises its text, from the gap between validation and training loss and
 * the number of passes over the data; in the view and in SQL. */
#include "../view_test.h"

enum { STEPS = 600, EVERY = 100, PASS_TOKENS = 10000, STEP_TOKENS = 100 };

static void verdicts(void **state) {
    (void)state;
    static const struct {
        const char *what;
        size_t n;
        double val[6], train[6];
        size_t since; /* 99: no verdict */
    } rows[] = {
        {"no evaluation", 0, {0}, {0}, 99},
        {"one evaluation", 1, {4}, {4}, 99},
        {"improves", 4, {4, 3.5, 3.2, 3.1}, {4, 3.4, 3.0, 2.8}, 99},
        {"one worse evaluation", 3, {4, 3.5, 3.6}, {4, 3.4, 3.0}, 99},
        {"two worse evaluations", 4, {4, 3.5, 3.6, 3.7}, {4, 3.4, 3.0, 2.5}, 1},
        {"the best is the first", 3, {3.5, 3.6, 3.7}, {3.4, 3.0, 2.5}, 0},
        {"a new best ends it", 5, {4, 3.5, 3.6, 3.7, 3.4}, {4, 3.4, 3.0, 2.5, 2.4}, 99},
        {"both losses rise: it diverges", 4, {4, 3.5, 3.6, 3.7}, {4, 3.4, 3.5, 3.6}, 99},
        {"noise of a converged run", 4, {4, 3.5, 3.502, 3.503}, {4, 3.4, 3.3, 3.2}, 99},
        {"a training loss that is as good as equal",
         4,
         {4, 3.5, 3.6, 3.7},
         {4, 3.4, 3.4, 3.39},
         99},
        {"no training loss", 4, {4, 3.5, 3.6, 3.7}, {NAN, NAN, NAN, NAN}, 99},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_evaluated e[6];
        for (size_t k = 0; k < rows[i].n; k++)
            e[k] = (bt_evaluated){
                .step = (int64_t)k, .val = rows[i].val[k], .train = rows[i].train[k]};
        const size_t since = bt_memorising_since(e, rows[i].n),
                     want = rows[i].since == 99 ? rows[i].n : rows[i].since;
        if (since != want) fail_msg("%s: since %zu instead of %zu", rows[i].what, since, want);
    }
}

/* The training loss falls by 0.001 a step; the validation loss is lowest at step 200. */
static double train_loss(int64_t step) { return 2.9998 - 0.001 * (double)step; }
static double val_loss(int64_t done) {
    return 3 + 0.001 * fabs((double)(done - 200)); /* 3.1, 3.0, 3.1, 3.2, ... */
}

static void record_run(bt_writer *w, int64_t epoch_tokens) {
    bt_fake f;
    const bt_sink *sink = bt_writer_sink(w);
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)epoch_tokens);
    sink->fact(sink->ctx, "data.epoch_tokens", text);
    sink->fact(sink->ctx, "data.tokens", "1");
    for (int64_t step = 0; step < STEPS; step++) {
        const bool evaluated = (step + 1) % EVERY == 0;
        (void)bt_fake_step(&f, step, 1);
        f.values[BT_MS_TOKENS] = STEP_TOKENS * (double)(step + 1);
        f.values[BT_MS_LOSS] = train_loss(step);
        f.values[BT_MS_VAL_LOSS] = evaluated ? val_loss(step + 1) : (double)NAN;
        f.r.wall_us = INT64_C(1700000000000000) + 100000 * (step + 1);
        if (evaluated)
            sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                               .step = step,
                                               .rank = -1,
                                               .wall_us = f.r.wall_us,
                                               .title = "validation"});
        sink->step(sink->ctx, &f.r);
    }
}

static void record_memorising_run(const char *path, const char *name, int64_t epoch_tokens) {
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run(name);
    s.started_us = INT64_C(1700000000000000);
    OK(bt_writer_open(&w, path, 10, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record_run(w, epoch_tokens);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

static void head_and_sql(void **state) {
    bt_tmp *t = *state;
    bt_db *db;
    double v;
    record_memorising_run(t->db, "book", PASS_TOKENS);
    record_memorising_run(t->db, "library", 10 * STEPS * STEP_TOKENS);
    bt_view *view = open_view(t->db, &db);
    bt_view_request a = ask_all("book");
    OK(bt_view_load(view, &a, err));
    const bt_view_head *h = &view->head;
    /* The gap uses the mean training loss of the 64 steps up to an evaluation. */
    const double at_best = 2.9998 - 0.001 * (199 - 31.5), at_end = 2.9998 - 0.001 * (599 - 31.5);
    NEAR(h->passes, 6);
    NEAR(h->val_gap, val_loss(600) - at_end);
    assert_int_equal(h->memorising_step, 199);
    assert_int_equal(h->n_remarks, 1);
    char want[128];
    snprintf(want, sizeof want, "fell from %.3f to %.3f", at_best, at_end);
    assert_non_null(strstr(h->remark[0], "Memorising since step 200"));
    assert_non_null(strstr(h->remark[0], want));
    assert_non_null(strstr(h->remark[0], "book@best"));
    assert_non_null(strstr(h->remark[0], "6 passes over the data"));

    /* At this step only one evaluation is worse than the best. */
    a.at_step = 350;
    OK(bt_view_load(view, &a, err));
    assert_int_equal(h->memorising_step, -1);
    NEAR(h->val_gap, val_loss(300) - (2.9998 - 0.001 * (299 - 31.5)));

    /* In less than one pass over the data a model cannot memorise them. */
    a = ask_all("library");
    OK(bt_view_load(view, &a, err));
    NEAR(h->passes, 0.1);
    assert_int_equal(h->memorising_step, -1);
    assert_int_equal(h->n_remarks, 0);

    OK(bt_db_value(db, "SELECT passes FROM runs WHERE run = ?1", "book", &v, err));
    NEAR(v, 6);
    OK(bt_db_value(db, "SELECT count(*) FROM evaluations WHERE run = ?1", "book", &v, err));
    NEAR(v, STEPS / EVERY);
    OK(bt_db_value(db, "SELECT val_gap FROM evaluations WHERE run = ?1 AND step = 599", "book", &v,
                   err));
    NEAR(v, val_loss(600) - at_end);
    bt_view_close(view);
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts),
        cmocka_unit_test_setup_teardown(head_and_sql, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
