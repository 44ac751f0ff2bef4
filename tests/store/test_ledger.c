// ctest: timeout=60
/* The division of a run's wall time into parts: every part equals a sum computed by hand, and all parts add up to the
 * elapsed time. The runs are written in simulated time, by the calls that ranks and supervisor make. */
#include "store/read/run_ledger.h"
#include "store_test.h"

enum { S = 1000000 };
static const int64_t BEGAN = INT64_C(1700000000) * S;

typedef struct story {
    const bt_tmp *t;
    bt_writer *w;
    const bt_sink *sink;
    int64_t now; /* microseconds since the run began */
} story;

static void attempt_begins(story *y, const char *reason) {
    int attempt;
    bt_run_start s = bt_fake_run("a");
    s.resume = strcmp(reason, "start") != 0;
    s.reason = reason;
    s.started_us = BEGAN + y->now;
    s.pid = 0;
    OK(bt_writer_begin(y->w, &s, &attempt, err));
    y->sink = bt_writer_sink(y->w);
}

static void emit_ledger_event(story *y, bt_event_kind kind, int64_t step, const char *body) {
    y->sink->event(y->sink->ctx, &(bt_event){.kind = kind,
                                             .step = step,
                                             .rank = -1,
                                             .wall_us = BEGAN + y->now,
                                             .title = "it happens",
                                             .body = body});
}

static void training_begins(story *y, double after_s, int64_t done) {
    y->now += (int64_t)(after_s * S);
    emit_ledger_event(y, done ? BT_EVENT_RESUMED : BT_EVENT_STARTED, done - 1, NULL);
}

/* Writes steps first..last of equal durations, of which every `log_every`-th has a record. */
static void write_steps(story *y, int64_t first, int64_t last, double each_s, int64_t log_every) {
    bt_fake f;
    for (int64_t step = first; step <= last; step++) {
        y->now += (int64_t)(each_s * S);
        if (step % log_every) continue;
        bt_fake_step(&f, step, 2);
        f.values[BT_MS_VAL_LOSS] = NAN;
        /* The slowest rank's time exceeds the clock's when ranks drift. */
        f.values[BT_MS_STEP_TIME] = 1.3 * each_s * 1e3;
        f.r.wall_us = BEGAN + y->now;
        y->sink->step(y->sink->ctx, &f.r);
    }
}

static void write_validation(story *y, int64_t step, double took_s) {
    char body[80];
    y->now += (int64_t)(took_s * S);
    snprintf(body, sizeof body, "{\"val_loss\":2.5,\"took_ms\":%.3f}", took_s * 1e3);
    emit_ledger_event(y, BT_EVENT_EVALUATION, step, body);
}

static void write_saved_checkpoint(story *y, int64_t steps_done, double took_s) {
    y->now += (int64_t)(took_s * S);
    y->sink->checkpoint(y->sink->ctx, &(bt_ckpt_record){.step = steps_done,
                                                        .wall_us = BEGAN + y->now,
                                                        .path = "/nowhere",
                                                        .took_us = (int64_t)(took_s * S),
                                                        .hash = "ab"});
    emit_ledger_event(y, BT_EVENT_CHECKPOINT, steps_done - 1, NULL);
}

static void advance_clock(story *y, double s) { y->now += (int64_t)(s * S); }

/* Ends the attempt, and corrects the end in the database because the writer uses the real clock. */
static void attempt_ends(story *y, const char *state, int code) {
    sqlite3 *db = NULL;
    char sql[200];
    OK(bt_writer_end(y->w, state, state, code, err));
    assert_int_equal(sqlite3_open(y->t->db, &db), SQLITE_OK);
    snprintf(sql, sizeof sql,
             "UPDATE run SET ended_us = %lld, lost_us = NULL; UPDATE attempt SET ended_us = %lld "
             "WHERE id = "
             "(SELECT max(id) FROM attempt)",
             (long long)(BEGAN + y->now), (long long)(BEGAN + y->now));
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static story begin_story(const bt_tmp *t) {
    story y = {.t = t};
    OK(bt_writer_open(&y.w, t->db, 1, err));
    attempt_begins(&y, "start");
    return y;
}

/* Seconds of each part in the order of times.def; their sum is the total. */
typedef struct seconds {
    double productive, redone, validation, checkpoint, paused, finished, startup, lost;
} seconds;

static void check_ledger(const bt_tmp *t, bt_ledger_until until, const seconds *want) {
    const double *w = &want->productive;
    bt_db *db = NULL;
    bt_ledger l = {0};
    OK(bt_db_open(&db, t->db, err));
    for (int again = 0; again < 2; again++) { /* first computed, then read from the stored row */
        double sum = 0;
        int64_t at, us[BT_TIME_PARTS] = {0};
        OK(bt_run_ledger(&l, db, "a", until, err));
        for (int p = 0; p < BT_TIME_PARTS; p++) {
            if (fabs(bt_ledger_s(&l, (bt_time_part)p) - w[p]) > 1e-5)
                fail_msg("%s: %.6f s, not %.6f s", bt_times[p].key,
                         bt_ledger_s(&l, (bt_time_part)p), w[p]);
            sum += w[p];
        }
        assert_true(fabs((double)(l.end_us - l.begin_us) / 1e6 - sum) < 1e-5);
        assert_true(fabs(bt_ledger_goodput(&l) - want->productive / (sum - want->finished)) < 1e-7);
        at = l.begin_us;
        /* The intervals of the ledger have no gaps and the same sums. */
        for (size_t i = 0; i < l.n; i++) {
            assert_true(l.span[i].begin_us == at && l.span[i].end_us > at);
            assert_true(i == 0 || l.span[i].part != l.span[i - 1].part ||
                        l.span[i].attempt != l.span[i - 1].attempt);
            us[l.span[i].part] += l.span[i].end_us - at;
            at = l.span[i].end_us;
        }
        assert_true(at == l.end_us);
        assert_memory_equal(us, l.us, sizeof us);
    }
    bt_ledger_release(&l);
    bt_db_close(db);
}

/* Checks the row of the run that SQL returns. */
static void check_row(const bt_tmp *t, const seconds *want) {
    const double *w = &want->productive;
    double sum = 0;
    bt_writer *writer = NULL;
    /* Opening sets the end of the run again, which attempt_ends removed. */
    OK(bt_writer_open(&writer, t->db, 1, err));
    bt_writer_close(writer);
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        char sql[80];
        snprintf(sql, sizeof sql, "SELECT %s_s FROM runs WHERE run = ?1", bt_times[p].key);
        if (fabs(bt_number(t->db, sql, "a") - w[p]) > 1e-5)
            fail_msg("runs.%s_s is %.6f, not %.6f", bt_times[p].key, bt_number(t->db, sql, "a"),
                     w[p]);
        sum += w[p];
    }
    assert_true(fabs(bt_number(t->db, "SELECT goodput FROM runs WHERE run = ?1", "a") -
                     want->productive / (sum - want->finished)) < 1e-7);
}

/* The run has many validations and two pauses; during one pause it evaluates and saves a checkpoint. */
static void pauses_and_validations_are_not_productive(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 3, 0);
    seconds want = {.startup = 3};
    for (int64_t k = 0; k < 71; k++) {
        write_steps(&y, 10 * k, 10 * k + 9, 0.1, 1);
        write_validation(&y, 10 * k + 9, 0.25);
    }
    want.productive += 71;
    want.validation += 71 * 0.25;
    emit_ledger_event(&y, BT_EVENT_PAUSED, 709, NULL);
    advance_clock(&y, 20);
    write_validation(&y, 709, 2);
    advance_clock(&y, 1);
    write_saved_checkpoint(&y, 710, 0.5);
    emit_ledger_event(&y, BT_EVENT_CONTINUED, 709, NULL);
    write_steps(&y, 710, 719, 0.1, 1);
    emit_ledger_event(&y, BT_EVENT_PAUSED, 719, NULL);
    advance_clock(&y, 30);
    emit_ledger_event(&y, BT_EVENT_CONTINUED, 719, NULL);
    write_steps(&y, 720, 729, 0.1, 1);
    want.paused += 51;
    want.validation += 2;
    want.checkpoint += 0.5;
    want.productive += 2;
    write_saved_checkpoint(&y, 730, 1.5);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 729, NULL);
    want.checkpoint += 1.5;
    advance_clock(&y, 0.75); /* time after the last step, in which MPI is finalized */
    want.startup += 0.75;
    attempt_ends(&y, "done", 0);
    bt_writer_close(y.w);
    check_ledger(*state, (bt_ledger_until){0}, &want);
    check_row(*state, &want);
}

/* The run fails, restarts from its checkpoint, fails again before its first step, is stopped, and is resumed later. */
static void failures_cost_lost_and_repeated_time(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 2, 0);
    write_steps(&y, 0, 49, 1, 1);
    write_saved_checkpoint(&y, 50, 1);
    write_steps(&y, 50, 79, 1, 1);
    advance_clock(&y, 12); /* A killed rank keeps the step from ending. */
    attempt_ends(&y, "failed", 1);
    advance_clock(&y, 4);
    attempt_begins(&y, "restart");
    advance_clock(&y, 5);
    attempt_ends(&y, "failed", 1);
    advance_clock(&y, 8);
    attempt_begins(&y, "restart");
    training_begins(&y, 2, 50);
    write_steps(&y, 50, 99, 1, 1);
    write_saved_checkpoint(&y, 100, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 99, NULL);
    advance_clock(&y, 1);
    attempt_ends(&y, "stopped", 0);
    advance_clock(&y, 3600);
    attempt_begins(&y, "resume");
    training_begins(&y, 2, 100);
    write_steps(&y, 100, 109, 1, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 109, NULL);
    attempt_ends(&y, "done", 0);
    bt_writer_close(y.w);
    const seconds want = {.productive = 110,
                          .redone = 30,
                          .checkpoint = 2,
                          .paused = 3600,
                          .startup = 2 + 2 + 1 + 2,
                          .lost = 12 + 4 + 5 + 8};
    check_ledger(*state, (bt_ledger_until){0}, &want);
    check_row(*state, &want);
}

/* Every tenth step has a record, so the first record after a restart follows the repeated steps. */
static void steps_without_a_record_are_classified(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 54, 1, 10); /* The last record is step 50 at 51 s. */
    advance_clock(&y, 3);
    attempt_ends(&y, "failed", 1);
    attempt_begins(&y, "restart");
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(((const bt_tmp *)*state)->db, &db), SQLITE_OK);
    sqlite3_exec(db, "UPDATE attempt SET from_step = 45 WHERE attempt = 1", NULL, NULL, NULL);
    sqlite3_close(db);
    training_begins(&y, 1, 45);
    write_steps(&y, 45, 80, 1, 10); /* repeats steps 45 to 50 */
    emit_ledger_event(&y, BT_EVENT_STOPPED, 80, NULL);
    attempt_ends(&y, "done", 0);
    bt_writer_close(y.w);
    const seconds want = {.productive = 51 + 30, .redone = 6, .startup = 2, .lost = 4 + 3};
    check_ledger(*state, (bt_ledger_until){0}, &want);
}

/* A finished run that is extended later was not paused in between: its goodput excludes that time. */
static void an_extended_run_had_ended(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 9, NULL);
    attempt_ends(&y, "done", 0);
    advance_clock(&y, 300);
    attempt_begins(&y, "resume");
    training_begins(&y, 1, 10);
    write_steps(&y, 10, 19, 1, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 19, NULL);
    attempt_ends(&y, "stopped", 0);
    advance_clock(&y, 60);
    attempt_begins(&y, "resume");
    training_begins(&y, 1, 20);
    write_steps(&y, 20, 29, 1, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 29, NULL);
    attempt_ends(&y, "done", 0);
    bt_writer_close(y.w);
    const seconds want = {.productive = 30, .startup = 3, .finished = 300, .paused = 60};
    check_ledger(*state, (bt_ledger_until){0}, &want);
    check_row(*state, &want);
}

static void a_stall_is_lost_with_its_silence(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    advance_clock(&y, 30);
    emit_ledger_event(&y, BT_EVENT_STALLED, 9, "{\"silent_ms\":30000}");
    advance_clock(&y, 15);
    emit_ledger_event(&y, BT_EVENT_RECOVERED, 10, NULL);
    write_steps(&y, 10, 19, 1, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 19, NULL);
    attempt_ends(&y, "done", 0);
    bt_writer_close(y.w);
    const seconds want = {.productive = 20, .startup = 1, .lost = 45};
    check_ledger(*state, (bt_ledger_until){0}, &want);
}

/* A step whose update was skipped counts as lost, even without a record. A bad step whose update was applied is
 * productive. */
static void skipped_steps_are_not_productive(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    emit_ledger_event(&y, BT_EVENT_BAD_STEP, 10, "{\"action\":\"skipped\"}");
    write_steps(&y, 10, 10, 3, 1);
    write_validation(&y, 10, 2);
    emit_ledger_event(&y, BT_EVENT_BAD_STEP, 11, "{\"action\":\"accepted\"}");
    emit_ledger_event(&y, BT_EVENT_LOSS_SCALE, 12, "{\"action\":\"skipped\"}");
    emit_ledger_event(&y, BT_EVENT_LOSS_SCALE, 13, "{\"loss_scale\":2}");
    write_steps(&y, 11, 19, 1, 1);
    emit_ledger_event(&y, BT_EVENT_BAD_STEP, 24, "{\"action\":\"skipped\"}");
    write_steps(&y, 20, 40, 1, 20);
    /* This step does not end. */
    emit_ledger_event(&y, BT_EVENT_BAD_STEP, 41, "{\"action\":\"skipped\"}");
    emit_ledger_event(&y, BT_EVENT_STOPPED, 40, NULL);
    attempt_ends(&y, "stopped", 0);
    bt_writer_close(y.w);
    const seconds want = {
        .productive = 10 + 8 + 20, .validation = 2, .startup = 1, .lost = 3 + 1 + 1};
    check_ledger(*state, (bt_ledger_until){0}, &want);
    check_row(*state, &want);
}

/* A stall is reported after the newest step: the run was working until the stall began, and the time after the stall is
 * unknown. */
static void the_last_event_is_the_newest_record(void **state) {
    story y = begin_story(*state);
    const bt_tmp *t = *state;
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    advance_clock(&y, 12);
    emit_ledger_event(&y, BT_EVENT_STALLED, 9, "{\"silent_ms\":10000}");
    advance_clock(&y, 3);
    emit_ledger_event(&y, BT_EVENT_RECOVERED, 9, NULL);
    OK(bt_writer_flush(y.w, err));
    const int64_t later = BEGAN + y.now + 5 * (int64_t)S;
    check_ledger(t, (bt_ledger_until){0}, &(seconds){.productive = 12, .startup = 1, .lost = 13});
    check_ledger(t, (bt_ledger_until){later, false},
                 &(seconds){.productive = 12, .startup = 1, .lost = 18});
    check_ledger(t, (bt_ledger_until){later, true},
                 &(seconds){.productive = 17, .startup = 1, .lost = 13});
    bt_writer_close(y.w);
}

/* An attempt without steps began, and its beginning is the newest known time. */
static void an_attempt_that_begins_is_a_record(void **state) {
    story y = begin_story(*state);
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    emit_ledger_event(&y, BT_EVENT_STOPPED, 9, NULL);
    attempt_ends(&y, "stopped", 0);
    advance_clock(&y, 60);
    attempt_begins(&y, "resume");
    OK(bt_writer_flush(y.w, err));
    check_ledger(*state, (bt_ledger_until){0},
                 &(seconds){.productive = 10, .startup = 1, .paused = 60});
    bt_writer_close(y.w);
}

/* The state of a live run decides how the time after its newest record is counted. */
static void a_live_run_is_evaluated_at_the_given_time(void **state) {
    story y = begin_story(*state);
    const bt_tmp *t = *state;
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    OK(bt_writer_flush(y.w, err));
    const int64_t later = BEGAN + 20 * (int64_t)S; /* 9 s after the newest record */
    check_ledger(t, (bt_ledger_until){0}, &(seconds){.productive = 10, .startup = 1});
    check_ledger(t, (bt_ledger_until){later, true}, &(seconds){.productive = 19, .startup = 1});
    check_ledger(t, (bt_ledger_until){later, false},
                 &(seconds){.productive = 10, .startup = 1, .lost = 9});
    emit_ledger_event(&y, BT_EVENT_PAUSED, 9, NULL);
    OK(bt_writer_flush(y.w, err));
    check_ledger(t, (bt_ledger_until){later, true},
                 &(seconds){.productive = 10, .startup = 1, .paused = 9});
    bt_writer_close(y.w);
}

/* The supervisor's clock, which defines the end of the run, differs from the clock of rank 0. */
static void no_time_follows_the_end_of_a_run(void **state) {
    story y = begin_story(*state);
    const bt_tmp *t = *state;
    char sql[100];
    training_begins(&y, 1, 0);
    write_steps(&y, 0, 9, 1, 1);
    attempt_ends(&y, "done", 0);
    snprintf(sql, sizeof sql, "UPDATE run SET ended_us = %lld",
             (long long)(BEGAN + 6 * (int64_t)S));
    run_sql(t->db, sql);
    check_ledger(t, (bt_ledger_until){0}, &(seconds){.productive = 5, .startup = 1});
    run_sql(t->db, "UPDATE run SET ended_us = created_us - 1");
    bt_db *db = NULL;
    bt_ledger l = {0};
    OK(bt_db_open(&db, t->db, err));
    OK(bt_run_ledger(&l, db, "a", (bt_ledger_until){0}, err));
    assert_int_equal(l.n, 0);
    assert_true(l.end_us == l.begin_us);
    bt_ledger_release(&l);
    bt_db_close(db);
    bt_writer_close(y.w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pauses_and_validations_are_not_productive, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(failures_cost_lost_and_repeated_time, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(steps_without_a_record_are_classified, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(an_extended_run_had_ended, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_stall_is_lost_with_its_silence, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(skipped_steps_are_not_productive, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(the_last_event_is_the_newest_record, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(an_attempt_that_begins_is_a_record, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_live_run_is_evaluated_at_the_given_time, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(no_time_follows_the_end_of_a_run, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
