/* The times of a run are those of the clock that recorded it, even if the system clock was changed before a viewer
 * opens it or before it is resumed. */
#include "../view_test.h"

static const int64_t hour_us = 3600 * INT64_C(1000000);

/* Opens a shared clock that is this much behind the clock of this process. */
static void open_shared_clock(int64_t behind_us) {
    char name[BT_CLOCK_NAME], boot[BT_CLOCK_NAME];
    assert_true(bt_clock_name(name)[0]);
    snprintf(boot, sizeof boot, "%.*s", (int)strcspn(name, " "), name);
    char other[2 * BT_CLOCK_NAME];
    snprintf(other, sizeof other, "%s %lld", boot,
             (long long)(strtoll(name + strlen(boot), NULL, 10) - behind_us));
    bt_clock_join(other, 0);
}

static void record(bt_writer *w, int64_t from, int64_t to) {
    bt_fake f;
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = from; step < to; step++) sink->step(sink->ctx, bt_fake_step(&f, step, 2));
    OK(bt_writer_flush(w, err));
}

static double value_of(const bt_tmp *t, const char *sql) {
    bt_db *db = NULL;
    double x = NAN;
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_value(db, sql, "a", &x, err));
    bt_db_close(db);
    return x;
}

static void check_shown_as_live(const bt_tmp *t) {
    bt_db *db = NULL;
    bt_view *v = open_view(t->db, &db);
    bt_view_request ask = ask_all("a");
    OK(bt_view_load(v, &ask, err));
    assert_true(v->head.age_s >= 0 && v->head.age_s < 25);
    assert_int_equal(v->head.state, BT_STATE_RUNNING);
    assert_true(v->head.elapsed_s >= 0 && v->head.elapsed_s < 60);
    assert_true(v->runs.run[0].age_s < 25 && v->runs.run[0].duration_s < 60);
    assert_int_equal(v->runs.run[0].state, BT_STATE_RUNNING);
    bt_view_close(v);
    bt_db_close(db);
    assert_true(value_of(t, "SELECT duration_s FROM runs WHERE run = ?1") < 60);
}

static void a_clock_that_was_set_moves_no_time(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("a");
    char here[BT_HOST_MAX] = "", clock_of_run[BT_CLOCK_NAME];
    gethostname(here, sizeof here - 1);
    s.host = here;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record(w, 0, 20);
    (void)bt_clock_name(clock_of_run);
    /* The system clock was set back or forward before the viewer started. */
    static const int64_t by_hours[] = {-24, 25, -2};
    for (int i = 0; i < 3; i++) {
        open_shared_clock(by_hours[i] * hour_us);
        check_shown_as_live(t);
    }
    bt_clock_join(clock_of_run, 0);
    OK(bt_writer_end(w, "failed", "error", 1, err));
    open_shared_clock(48 * hour_us);
    s.resume = true;
    s.from_step = 10;
    OK(bt_writer_begin(w, &s, &attempt, err));
    record(w, 10, 30);
    check_shown_as_live(t);
    bt_writer_close(w);
    assert_true(value_of(t, "SELECT max(time_s) - min(time_s) FROM steps WHERE run = ?1") < 60);
    assert_true(value_of(t, "SELECT min(time_s) FROM steps WHERE run = ?1") >= 0);
    assert_true(value_of(t, "SELECT count(*) FROM facts WHERE run = ?1") < 1);
}

/* After a reboot the system clock may show an earlier time; the times of the run still increase. */
static void a_record_of_another_boot_continues_after_its_newest_time(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record(w, 0, 10);
    OK(bt_writer_end(w, "stopped", "stopped", 0, err));
    run_sql(t->db, "UPDATE fact SET value = 'another-boot 12' WHERE key = 'clock'");
    open_shared_clock(hour_us);
    s.resume = true;
    s.from_step = 10;
    OK(bt_writer_begin(w, &s, &attempt, err));
    record(w, 10, 20);
    bt_writer_close(w);
    assert_true(value_of(t, "SELECT (SELECT time_s FROM steps WHERE run = ?1 AND step = 10) >= "
                            "(SELECT time_s FROM steps WHERE run = ?1 AND step = 9)") > 0);
}

/* A run resumes from the checkpoint with the highest step of its newest attempt, whatever the times of the
 * checkpoints. */
static void the_newest_checkpoint_is_the_highest(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    record(w, 0, 50);
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 20; step <= 40; step += 20)
        sink->checkpoint(sink->ctx, &(bt_ckpt_record){.step = step,
                                                      .wall_us = bt_wall_us() - step * hour_us,
                                                      .path = "/c",
                                                      .hash = "h"});
    OK(bt_writer_flush(w, err));
    OK(bt_writer_end(w, "failed", "error", 1, err));
    bt_writer_close(w);
    bt_db *db = NULL;
    bt_view *v = open_view(t->db, &db);
    bt_view_request ask = ask_all("a");
    OK(bt_view_load(v, &ask, err));
    assert_non_null(strstr(v->head.trouble.advice, "40"));
    bt_view_close(v);
    bt_db_close(db);
}

/* Steps take one second, with a pause of 15 minutes between two of them; the last gradient was lost. */
static void a_pause_is_no_step_time(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    bt_run_start s = bt_fake_run("a");
    const int64_t begin = INT64_C(1700000000000000), pause_us = 900000000;
    s.config_json = "{\"train.steps\":{\"value\":1000,\"origin\":\"flag\"}}";
    s.started_us = begin;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    int64_t now = begin;
    sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_STARTED, .wall_us = now, .title = "t"});
    for (int64_t step = 0; step < 120; step++) {
        now += 1000000;
        (void)bt_fake_step(&f, step, 1);
        if (step >= 117) f.values[BT_MS_GRAD_NORM] = NAN;
        f.r.wall_us = now;
        sink->step(sink->ctx, &f.r);
        if (step != 99) continue;
        sink->event(
            sink->ctx,
            &(bt_event){.kind = BT_EVENT_PAUSED, .step = step, .wall_us = now, .title = "t"});
        now += pause_us;
        sink->event(
            sink->ctx,
            &(bt_event){.kind = BT_EVENT_CONTINUED, .step = step, .wall_us = now, .title = "t"});
    }
    OK(bt_writer_flush(w, err));
    bt_db *db = NULL;
    bt_view *v = open_view(t->db, &db);
    bt_view_request ask = ask_all("a");
    ask.now_us = now;
    OK(bt_view_load(v, &ask, err));
    near(v->head.eta_s, 1000 - 120, 1, "time left");
    assert_true(v->head.eta_err_s < 5);
    near(v->head.time_s[BT_TIME_PAUSED], 900, 1, "paused");
    assert_true(isnan(v->head.grad_norm));
    assert_int_equal(v->head.grad_lost_step, 117);
    ask.at_step = 110;
    OK(bt_view_load(v, &ask, err));
    near(v->head.grad_norm, bt_truth(110, BT_MS_GRAD_NORM), 1e-9, "gradient norm");
    assert_int_equal(v->head.grad_lost_step, -1);
    bt_view_close(v);
    bt_db_close(db);
    bt_writer_close(w);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {
        TEST(a_clock_that_was_set_moves_no_time),
        TEST(a_record_of_another_boot_continues_after_its_newest_time),
        TEST(the_newest_checkpoint_is_the_highest),
        TEST(a_pause_is_no_step_time),
    };
    return cmocka_run_group_tests_name("run_clock", tests, NULL, NULL);
}
