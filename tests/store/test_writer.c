// ctest: timeout=60
/* Records given to the writer appear in the views: values, attempts, summaries. Names and states are checked. */
#include "store_test.h"

static void values_are_conserved(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt = -1;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(attempt, 0);
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 40; step++) sink->step(sink->ctx, bt_fake_step(&f, step, 3));
    OK(bt_writer_flush(w, err));
    assert_int_equal(bt_writer_committed_step(w), 39);
    assert_int_equal(bt_writer_dropped(w), 0);
    bt_db *db = NULL;
    OK(bt_db_open(&db, t->db, err));
    for (int i = 0; i < BT_MS_COUNT; i++) {
        char sql[200];
        double got;
        snprintf(sql, sizeof sql, "SELECT %s FROM steps WHERE run = ?1 AND step = 17",
                 bt_step_metrics[i].key);
        OK(bt_db_value(db, sql, "a", &got, err));
        bool whole = bt_step_metrics[i].unit == BT_UNIT_BYTES ||
                     bt_step_metrics[i].unit == BT_UNIT_COUNT;
        assert_true(fabs(got - bt_truth(17, i)) <= (whole ? 0.5 : 1e-12));
    }
    for (int i = 0; i < BT_MR_COUNT; i++) {
        char sql[200];
        double got;
        snprintf(sql, sizeof sql,
                 "SELECT %s FROM rank_steps WHERE run = ?1 AND step = 17 AND rank = 2",
                 bt_rank_metrics[i].key);
        OK(bt_db_value(db, sql, "a", &got, err));
        bool whole = bt_rank_metrics[i].unit == BT_UNIT_BYTES ||
                     bt_rank_metrics[i].unit == BT_UNIT_COUNT;
        assert_true(fabs(got - bt_rank_truth(17, 2, i)) <= (whole ? 0.5 : 1e-9));
    }
    bt_db_close(db);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a") == 120);
    assert_true(bt_number(t->db, "SELECT steps FROM runs WHERE run = ?1", "a") == 40);
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    assert_string_equal(bt_word(t->db, "SELECT state FROM runs WHERE run = ?1", "a"), "done");
    assert_string_equal(
        bt_word(
            t->db,
            "SELECT value FROM configs WHERE run = ?1 AND key = 'train.steps' AND origin = 'flag'",
            "a"),
        "10");
}

static void unknown_values_are_null(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    bt_fake_step(&f, 0, 0);
    f.values[BT_MS_VAL_LOSS] = NAN;
    f.values[BT_MS_LOSS] = INFINITY;
    f.values[BT_MS_BYTES_WIRE] = 1e300;
    sink->step(sink->ctx, &f.r);
    bt_writer_close(w);
    assert_string_equal(bt_word(t->db, "SELECT val_loss FROM steps WHERE run = ?1", "a"), "NULL");
    assert_string_equal(bt_word(t->db, "SELECT loss FROM steps WHERE run = ?1", "a"), "NULL");
    assert_true(bt_number(t->db, "SELECT flags FROM steps WHERE run = ?1", "a") ==
                (double)(1 << BT_MS_LOSS));
    assert_string_equal(bt_word(t->db, "SELECT bytes_wire FROM steps WHERE run = ?1", "a"),
                        "9223372036854775807");
}

static void all_other_records_are_stored(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    bt_rank_info ranks[2] = {
        {.rank = 0, .pid = 11, .threads = 2, .host = "n1", .isa = "avx512"},
        {.rank = 1, .pid = 12, .threads = 2, .host = "n2", .isa = "amx", .dp_replicate = 1}};
    sink->ranks(sink->ctx, ranks, 2);
    sink->fact(sink->ctx, "params", "3000000");
    sink->fact(sink->ctx, "params", "3000001");
    double v[2][BT_ML_COUNT] = {{0.31, 0.345, 1e-7, 0.02, 1.5}, {0.31, 0.345, 1e-7, 0.02, 1.5}};
    bt_key keys[] = {{.i = 0}, {.s = "attn_q"}, {.i = 1}, {.s = "ffn_down"}};
    sink->rows(sink->ctx,
               &(bt_row_record){
                   .scope = BT_SCOPE_LAYER, .step = 20, .n = 2, .keys = keys, .values = v[0]});
    bt_event e = {.kind = BT_EVENT_WARNING,
                  .step = 3,
                  .rank = -1,
                  .wall_us = bt_wall_us(),
                  .title = "it's \"odd\"",
                  .body = "{\"a\":1}"};
    sink->event(sink->ctx, &e);
    /* A checkpoint keeps its own time, here an hour before its record arrived. */
    bt_ckpt_record c = {.step = 20,
                        .wall_us = bt_wall_us() - INT64_C(3600000000),
                        .path = "/tmp/x",
                        .bytes = 1 << 20,
                        .took_us = 1500,
                        .hash = "ab"};
    sink->checkpoint(sink->ctx, &c);
    OK(bt_writer_flush(w, err));
    assert_string_equal(
        bt_word(t->db,
                "SELECT host || isa FROM ranks WHERE run = ?1 AND rank = 1 AND dp_replicate = 1",
                "a"),
        "n2amx");
    assert_string_equal(bt_word(t->db, "SELECT value FROM facts WHERE run = ?1 AND key = 'params'",
                                "a"),
                        "3000001");
    assert_true(
        bt_number(
            t->db,
            "SELECT flip_frac FROM layers WHERE run = ?1 AND layer = 1 AND tensor = 'ffn_down'",
            "a") == 1e-7);
    assert_string_equal(bt_word(t->db,
                                "SELECT title FROM events WHERE run = ?1 AND kind = 'warning' AND "
                                "level = 'warning' AND rank IS NULL",
                                "a"),
                        "it's \"odd\"");
    assert_true(bt_number(t->db, "SELECT took_ms FROM checkpoints WHERE run = ?1 AND step = 20",
                          "a") == 1.5);
    double at_s =
        bt_number(t->db,
                  "SELECT c.time_s + r.started_s FROM checkpoints c JOIN runs r USING (run) "
                  "WHERE run = ?1",
                  "a");
    assert_true(fabs(at_s - (double)c.wall_us / 1e6) < 1e-3);
    assert_true(bt_number(t->db, "SELECT count(*) FROM metrics", NULL) == BT_METRICS_COUNT);
    bt_writer_close(w);
}

static void record_evaluation(const bt_sink *sink, int64_t step, const char *body) {
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_EVALUATION,
                                       .step = step,
                                       .rank = -1,
                                       .wall_us = bt_wall_us(),
                                       .title = "validation",
                                       .body = body});
}

/* A validation loss computed during a pause is recorded after the step it belongs to. */
static void a_late_evaluation_is_a_validation_of_its_step(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    OK(bt_writer_open(&w, t->db, 1, err));
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 300; step++) {
        bt_fake_step(&f, step, 2);
        f.values[BT_MS_VAL_LOSS] = NAN;
        sink->step(sink->ctx, &f.r);
        if (step == 7) record_evaluation(sink, 7, "{\"val_loss\":3.5,\"took_ms\":2}");
        if (step == 255) record_evaluation(sink, 255, "{\"val_loss\":2.25,\"took_ms\":2}");
        if (step == 260) record_evaluation(sink, 260, "{\"val_loss\":null,\"took_ms\":2}");
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    assert_true(bt_number(t->db, "SELECT count(val_loss) FROM steps WHERE run = ?1", "a") == 2);
    assert_true(bt_number(t->db, "SELECT val_loss FROM steps WHERE run = ?1 AND step = 255", "a") ==
                2.25);
    assert_true(bt_number(t->db, "SELECT val_loss FROM runs WHERE run = ?1", "a") == 2.25);
    assert_true(bt_number(t->db, "SELECT best_val FROM runs WHERE run = ?1", "a") == 2.25);
    assert_true(bt_number(t->db, "SELECT best_val_step FROM runs WHERE run = ?1", "a") == 255);
}

/* Attempts record steps 0 to 99, 60 to 79 (killed) and 70 to 119. */
static void a_repeated_step_replaces_the_first(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_fake f;
    /* The second attempt is given a wrong first step. */
    const struct {
        int64_t from, first, last;
    } attempts[] = {{0, 0, 99}, {0, 60, 79}, {70, 70, 119}};
    int64_t clock_us = INT64_C(1700000000000000);
    OK(bt_writer_open(&w, t->db, 1, err));
    for (int a = 0; a < 3; a++) {
        int attempt;
        bt_run_start s = bt_fake_run("a");
        s.resume = a > 0;
        s.from_step = attempts[a].from;
        s.started_us = clock_us;
        OK(bt_writer_begin(w, &s, &attempt, err));
        assert_int_equal(attempt, a);
        const bt_sink *sink = bt_writer_sink(w);
        for (int64_t step = attempts[a].first; step <= attempts[a].last; step++) {
            bt_fake_step(&f, step, 2);
            clock_us += llround(bt_truth(step, BT_MS_STEP_TIME) * 1e3);
            f.r.wall_us = clock_us;
            sink->step(sink->ctx, &f.r);
        }
        OK(bt_writer_end(w, "failed", "killed", 1, err));
    }
    bt_writer_close(w);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps WHERE run = ?1", "a") == 120);
    assert_true(bt_number(t->db, "SELECT count(DISTINCT step) FROM steps WHERE run = ?1", "a") ==
                120);
    assert_true(bt_number(t->db, "SELECT count(*) FROM rank_steps WHERE run = ?1", "a") == 240);
    assert_true(bt_number(t->db, "SELECT sum(attempt) FROM steps WHERE run = ?1", "a") ==
                10 * 1 + 50 * 2);
    assert_true(bt_number(t->db, "SELECT count(*) FROM all_steps WHERE run = ?1", "a") == 170);
    assert_true(bt_number(t->db, "SELECT sum(1 - live) FROM all_steps WHERE run = ?1", "a") == 50);
    assert_true(bt_number(t->db, "SELECT attempts FROM runs WHERE run = ?1", "a") == 3);
    /* 120 steps were new and 50 repeated. */
    double again = 0, first = 0;
    for (int64_t step = 0; step < 120; step++) first += bt_truth(step, BT_MS_STEP_TIME) / 1e3;
    for (int64_t step = 60; step < 80; step++) again += bt_truth(step, BT_MS_STEP_TIME) / 1e3;
    for (int64_t step = 70; step < 100; step++) again += bt_truth(step, BT_MS_STEP_TIME) / 1e3;
    assert_true(
        fabs(bt_number(t->db, "SELECT productive_s FROM runs WHERE run = ?1", "a") - first) < 1e-4);
    assert_true(fabs(bt_number(t->db, "SELECT redone_s FROM runs WHERE run = ?1", "a") - again) <
                1e-4);
}

static void names_and_states_are_checked(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL, *w2 = NULL;
    int attempt;
    bt_err why;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_open(&w2, t->db, 1, err));
    bt_run_start s = bt_fake_run("No Good");
    assert_int_equal(bt_writer_begin(w, &s, &attempt, &why), BT_ARG);
    s.name = "base-1";
    s.resume = true;
    assert_int_equal(bt_writer_begin(w, &s, &attempt, &why), BT_NOTFOUND);
    s.resume = false;
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(bt_writer_begin(w2, &s, &attempt, &why), BT_BUSY);
    assert_non_null(strstr(why.msg, "exists already"));
    s.resume = true;
    /* Another process tries to resume the run that this process trains. */
    s.pid = 1;
    assert_int_equal(bt_writer_begin(w2, &s, &attempt, &why), BT_BUSY);
    assert_non_null(strstr(why.msg, "is being trained by pid"));
    bt_writer_close(w);
    bt_writer_close(w2);
    bt_db *db = NULL;
    char run[BT_NAME_MAX];
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_run(db, "last", run, err));
    assert_string_equal(run, "base-1");
    assert_int_equal(bt_db_run(db, "bose-1", run, &why), BT_NOTFOUND);
    assert_non_null(strstr(why.msg, "did you mean 'base-1'"));
    bt_db_close(db);
}

/* One writer records several attempts: their times, their ends, and the ring file. */
static void one_writer_records_several_attempts(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt = -1;
    bt_err why = BT_ERR_INIT;
    bt_fake f;
    char ring[120], longest[1100], want[160];
    OK(bt_writer_open(&w, t->db, 1, err));
    const bt_sink *sink = bt_writer_sink(w);
    sink->step(sink->ctx, bt_fake_step(&f, 0, 2)); /* No attempt is open, so the step is ignored. */
    OK(bt_writer_flush(w, err));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_run_start s = bt_fake_run("a");
    s.started_us = 1700000000000000;
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(attempt, 0);
    assert_int_equal(bt_writer_committed_step(w), -1);
    assert_int_equal(bt_writer_begin(w, &s, &attempt, &why), BT_ARG);
    assert_string_equal(why.msg, "an attempt is open already");
    memset(longest, 'x', sizeof longest);
    longest[1024] = '\0';
    assert_int_equal(bt_writer_keep(w, longest, 0, &why), BT_ARG);
    snprintf(want, sizeof want, "path '%.100s...' is too long", longest);
    assert_string_equal(why.msg, want);
    snprintf(ring, sizeof ring, "%s/ring", t->dir);
    OK(bt_writer_keep(w, ring, attempt, err));
    assert_int_equal(access(ring, F_OK), 0);
    for (int64_t step = 3; step < 6; step++) {
        bt_fake_step(&f, step, 2);
        f.r.wall_us = s.started_us + 1000 * step;
        sink->step(sink->ctx, &f.r);
    }
    OK(bt_writer_flush(w, err));
    assert_int_equal(bt_writer_committed_step(w), 5);
    assert_int_equal(bt_writer_dropped(w), 0);
    /* The attempt ended with its last step. */
    OK(bt_writer_end(w, "failed", "signal", 137, err));
    assert_int_not_equal(access(ring, F_OK), 0);
    OK(bt_writer_end(w, "done", "finished", 0, err)); /* A second end is ignored. */
    bt_table_is(
        t->db,
        "SELECT state, exit_kind, exit_code, created_us, ended_us, last_step, n_attempts FROM run",
        "failed|signal|137|1700000000000000|1700000000005000|5|1\n");
    bt_table_is(t->db,
                "SELECT id, attempt, started_us, ended_us, exit_kind, exit_code FROM attempt",
                "1|0|1700000000000000|1700000000005000|signal|137\n");
    /* The ring holds no step; rank rows beyond the range of their key are counted. */
    s.resume = true;
    s.started_us = 0;
    s.from_step = 6;
    OK(bt_writer_begin(w, &s, &attempt, err));
    assert_int_equal(attempt, 1);
    assert_int_equal(bt_writer_committed_step(w), -1);
    OK(bt_writer_keep(w, ring, attempt, err));
    sink->step(sink->ctx, bt_fake_step(&f, INT64_C(1) << 30, 2));
    OK(bt_writer_flush(w, err));
    assert_int_equal(bt_writer_dropped(w), 2);
    bt_writer_close(w); /* The attempt has not ended, so the ring file is kept. */
    assert_int_equal(access(ring, F_OK), 0);
    bt_table_is(t->db, "SELECT state, exit_kind, ended_us, n_attempts, dropped FROM run",
                "running|-|-|2|2\n");
    bt_table_is(t->db, "SELECT step FROM step ORDER BY 1", "3\n4\n5\n1073741824\n");
    bt_writer_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(values_are_conserved, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(unknown_values_are_null, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(all_other_records_are_stored, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_late_evaluation_is_a_validation_of_its_step, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_repeated_step_replaces_the_first, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(names_and_states_are_checked, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(one_writer_records_several_attempts, bt_tmp_make,
                                        bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
