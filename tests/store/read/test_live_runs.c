/* The view `runs` derives the state of an unfinished run from its process and the times from its recorded steps. */
#include "../store_test.h"
#include "store/read/live_runs.h"
#include "store/read/run_state.h"
#include "store/sql/sql.h"

enum { NO_PROCESS = 0x7ffffff0, STEPS = 10 }; /* No process has this number. */
#define SECOND_US INT64_C(1000000)

/* Records ten steps of step_s seconds, two seconds apart; the last one ends at end_us. */
static void record_ten_steps(const char *path, const char *name, int pid, int64_t end_us,
                             double step_s) {
    char here[BT_HOST_MAX] = "";
    bt_run_start start = bt_fake_run(name);
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    gethostname(here, sizeof here - 1);
    start.host = here;
    start.pid = pid;
    start.started_us = end_us - STEPS * 2 * SECOND_US;
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    for (int64_t step = 0; step < STEPS; step++) {
        bt_fake_step(&f, step, 2);
        f.r.wall_us = start.started_us + 2 * SECOND_US * (step + 1);
        f.values[BT_MS_STEP_TIME] = 1e3 * step_s;
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &f.r);
    }
    bt_writer_close(w);
}

static double read_run_column(const char *path, const char *name, const char *column) {
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT %s FROM runs WHERE run = ?1", column);
    return bt_number(path, sql, name);
}

/* The process died, so the columns cover the time up to the newest record. */
static void times_of_a_lost_run(void **state) {
    const bt_tmp *t = *state;
    bt_ledger l = {0};
    sqlite3 *db = NULL;
    record_ten_steps(t->db, "other", (int)getpid(), bt_wall_us(), 2);
    record_ten_steps(t->db, "r", NO_PROCESS, 1700000000 * SECOND_US, 2);
    assert_string_equal(bt_word(t->db, "SELECT state FROM runs WHERE run = ?1", "r"), "lost");
    assert_string_equal(bt_word(t->db, "SELECT state FROM runs WHERE run = ?1", "other"),
                        "running");
    OK(bt_sql_open_ro(&db, t->db, err));
    const int64_t id = bt_sql_int(db, "SELECT id FROM run WHERE name = 'r'", 0);
    OK(bt_ledger_read(&l, db, t->db, id, bt_run_until(BT_STATE_LOST, bt_wall_us()), err));
    double sum = 0;
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        char column[40];
        snprintf(column, sizeof column, "%s_s", bt_times[p].key);
        const double s = read_run_column(t->db, "r", column);
        assert_true(fabs(s - bt_ledger_s(&l, (bt_time_part)p)) < 1e-6);
        sum += s;
    }
    assert_true(bt_ledger_s(&l, BT_TIME_PRODUCTIVE) > 10);
    assert_true(fabs(read_run_column(t->db, "r", "duration_s") - 2 * STEPS) < 1e-6);
    assert_true(fabs(sum - 2 * STEPS) < 1e-6);
    assert_true(fabs(read_run_column(t->db, "r", "goodput") - bt_ledger_goodput(&l)) < 1e-9);
    assert_true(isnan(read_run_column(t->db, "nobody", "duration_s")));
    bt_ledger_release(&l);
    sqlite3_close(db);
}

/* Twenty minutes after the newest record, a run whose steps take long is still training and a run with short steps is
 * lost. */
static void silence_depends_on_the_step_time(void **state) {
    const bt_tmp *t = *state;
    const int64_t end_us = bt_wall_us() - 1200 * SECOND_US;
    record_ten_steps(t->db, "long", (int)getpid(), end_us, 3600);
    record_ten_steps(t->db, "short", (int)getpid(), end_us, 2);
    assert_true(read_run_column(t->db, "long", "productive_s") >= 1200);
    assert_true(read_run_column(t->db, "long", "lost_s") < 1);
    assert_true(read_run_column(t->db, "short", "productive_s") < 2 * STEPS + 1);
    assert_true(read_run_column(t->db, "short", "lost_s") >= 1100);
    static const char *const names[] = {"long", "short"};
    for (int i = 0; i < 2; i++)
        assert_true(read_run_column(t->db, names[i], "duration_s") >= 1200 + 2 * STEPS);
}

/* One statement selects several runs; one run and one figure are missing. */
static void each_run_has_its_own_duration(void **state) {
    const bt_tmp *t = *state;
    char sql[200];
    record_ten_steps(t->db, "a", NO_PROCESS, 1700000000 * SECOND_US, 2);
    record_ten_steps(t->db, "b", NO_PROCESS, 1700000000 * SECOND_US, 2);
    assert_string_equal(
        bt_word(t->db, "SELECT group_concat(round(duration_s), ' ') FROM runs WHERE run <> ?1",
                "x"),
        "20.0 20.0");
    static const struct {
        const char *run, *word, *want;
    } rows[] = {{"'a'", "'duration'", "20.0"},  {"'x'", "'duration'", "none"},
                {"NULL", "'duration'", "none"}, {"'a'", "NULL", "none"},
                {"'a'", "'mood'", "none"},      {"'b'", "'duration'", "20.0"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(sql, sizeof sql,
                 "SELECT coalesce(" BT_LIVE_FUNCTION "(%s, 0, %s), 'none') WHERE ?1 <> ''",
                 rows[i].run, rows[i].word);
        assert_string_equal(bt_word(t->db, sql, "x"), rows[i].want);
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)

int main(void) {
    const struct CMUnitTest tests[] = {CASE(times_of_a_lost_run),
                                       CASE(silence_depends_on_the_step_time),
                                       CASE(each_run_has_its_own_duration)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
