// ctest: timeout=110
/* Whole runs: other numbers of ranks, a viewer beside the run, records of its attempts in the database. */
#include "run_stage.h"

/* Permits up to two ranks; from step 100 on training is complete. */
static bt_code on_layout(void *ctx, const bt_resize_request *w, bool take, bt_job_layout *out,
                         bt_err *err) {
    stage *s = ctx;
    if (w->most > 2) return bt_fail(err, BT_ARG, "too many");
    if (w->from_step >= 100) return bt_fail(err, BT_STOPPED, "nothing is left");
    *out = (bt_job_layout){.ranks = w->most, .settings = s->setup.settings, .same = w->most == 1};
    snprintf(out->told, sizeof out->told, "%d ranks", w->most);
    s->taken += take;
    return BT_OK;
}

static void a_run_continues_with_other_ranks(void **state) {
    stage *s = *state;
    s->setup.layout = on_layout;
    s->setup.layout_ctx = s;
    s->when = "step 1\n";
    s->verb = "resize";
    s->value = "2";
    s->resume_at = 2;
    run(s, PLAYS("steps 2;until stop;result {\"stopped\":true}", "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\ncontrol -1 resize to 2 ranks requested by key\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "resized -1 continues with 2 ranks (1 before): requested by key\nattempt 1 from 2\nstep "
        "2\n");
    assert_int_equal(s->result.resizes, 1);
    assert_int_equal(s->result.restarts, 0);
    assert_int_equal(s->taken, 1);
    assert_false(s->result.stopped);
}

/* Only the ranks received the stop signal, not the supervisor. */
static void a_signal_to_the_ranks_alone(void **state) {
    stage *s = *state;
    s->setup.layout = on_layout;
    s->setup.layout_ctx = s;
    run(s, PLAYS("steps 1;result {\"stopped\":true}", "steps 1;result {}"),
        "attempt 0 from 0\nstep 0\n"
        "restarted -1 attempt 1 continues after step 0: a signal stopped the ranks, but not the "
        "run\n"
        "attempt 1 from 0\nstep 0\n");
    assert_int_equal(s->result.restarts, 1);
}

/* Output of a viewer appears on the screen; its end does not end the run. */
static void output_of_a_viewer_is_shown(void **state) {
    static const char *const viewer[] = {"/bin/sh", "-c", "echo http://here; echo; exit 3", NULL};
    stage *s = *state;
    s->setup.viewer = viewer;
    s->when = "ended; training";
    s->verb = "stop"; /* The supervisor waits for a rank. */
    run(s, PLAYS("until stop;steps 1;result {\"stopped\":true}"),
        "attempt 0 from 0\nnotice -1 http://here\nnotice -1 \n"
        "warning -1 the dashboard ended; training continues\n"
        "control -1 stop requested by key\nstep 0\n");
    assert_true(s->result.stopped);
}

static double value_of(const char *path, const char *sql) {
    bt_db *db = NULL;
    bt_err err = BT_ERR_INIT;
    double x = -1;
    assert_int_equal(bt_db_open(&db, path, &err), BT_OK);
    assert_int_equal(bt_db_value(db, sql, "r", &x, &err), BT_OK);
    bt_db_close(db);
    return x;
}

/* Opens a database that contains the run and its first attempt. */
static void open_writer(stage *s, char path[96]) {
    bt_err err = BT_ERR_INIT;
    snprintf(path, 96, "%s/m.db", s->dir);
    s->setup.start = (bt_run_start){.name = "r",
                                    .reason = "start",
                                    .argv = "",
                                    .config_json = "{}",
                                    .host = "h",
                                    .user = "",
                                    .build = "",
                                    .mpi = "",
                                    .note = "",
                                    .out_dir = s->dir,
                                    .world_size = 1,
                                    .pid = 1};
    assert_int_equal(bt_writer_open(&s->setup.writer, path, 1, &err), BT_OK);
    assert_int_equal(bt_writer_begin(s->setup.writer, &s->setup.start, &s->setup.attempt, &err),
                     BT_OK);
}

static void attempts_are_recorded(void **state) {
    stage *s = *state;
    char path[96];
    bt_err err = BT_ERR_INIT;
    open_writer(s, path);
    s->resume_at = 2;
    run(s, PLAYS("steps 3;leaves;die 9", "alone;die 9", "ranks;steps 2;result {}"),
        "attempt 0 from 0\nstep 0\nstep 1\nstep 2\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 3\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "restarted -1 attempt 1 continues after step 2: a rank was ended by signal 9 (Killed) "
        "after "
        "step 3\n"
        "attempt 1 from 2\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 2\n"
        "restarted -1 attempt 2 continues after step 2: a rank was ended by signal 9 (Killed) "
        "after "
        "step 2\n"
        "attempt 2 from 2\nstep 2\nstep 3\n");
    assert_int_equal(bt_writer_end(s->setup.writer, "done", "finished", 0, &err), BT_OK);
    bt_writer_close(s->setup.writer);
    assert_int_equal((int)value_of(path, "SELECT count(*) FROM attempts WHERE run = ?1"), 3);
    assert_int_equal(
        (int)value_of(path, "SELECT count(*) FROM attempts WHERE run = ?1 AND ended_s > 0"), 3);
    assert_int_equal(
        (int)value_of(path,
                      "SELECT count(*) FROM attempts WHERE run = ?1 AND exit_kind = 'signal' AND "
                      "exit_code = 137"),
        2);
    assert_int_equal(
        (int)value_of(path, "SELECT count(*) FROM attempts WHERE run = ?1 AND from_step = 2"), 2);
    assert_int_equal((int)value_of(path, "SELECT steps FROM runs WHERE run = ?1"), 4);
    assert_int_equal((int)value_of(path, "SELECT count(*) FROM all_steps WHERE run = ?1"), 5);
    assert_int_equal(
        (int)value_of(path, "SELECT count(*) FROM events WHERE run = ?1 AND kind = 'failure'"), 2);
    assert_int_equal(
        (int)value_of(path, "SELECT count(*) FROM ranks WHERE run = ?1 AND attempt = 2"), 1);
}

/* The attempt number is the one with which the ranks were launched, whatever the database counts. */
static void an_attempt_has_the_number_of_its_launch(void **state) {
    stage *s = *state;
    char path[96];
    bt_err err = BT_ERR_INIT;
    open_writer(s, path);
    s->setup.attempt = 3;
    s->resume_at = 2;
    run(s, PLAYS("", "", "", "steps 2;leaves;die 9", "steps 1;result {}"),
        "attempt 3 from 0\nstep 0\nstep 1\n"
        "failure -1 a rank was ended by signal 9 (Killed) after step 2\n"
        "ckpt_damaged -1 a newer one is damaged\nckpt_damaged -1 and another\n"
        "restarted -1 attempt 4 continues after step 2: a rank was ended by signal 9 (Killed) "
        "after "
        "step 2\n"
        "attempt 4 from 2\nstep 2\n");
    assert_int_equal(bt_writer_end(s->setup.writer, "done", "finished", 0, &err), BT_OK);
    bt_writer_close(s->setup.writer);
    assert_int_equal((int)value_of(path, "SELECT max(attempt) FROM attempts WHERE run = ?1"), 4);
    assert_int_equal((int)value_of(path, "SELECT steps FROM runs WHERE run = ?1"), 3);
}

static int tests(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, open_stage, close_stage)
    const struct CMUnitTest all[] = {
        T(a_run_continues_with_other_ranks),
        T(a_signal_to_the_ranks_alone),
        T(output_of_a_viewer_is_shown),
        T(attempts_are_recorded),
        T(an_attempt_has_the_number_of_its_launch),
    };
    return cmocka_run_group_tests(all, NULL, NULL);
}

int main(int argc, char **argv) { return stage_main(argc, argv, tests); }
