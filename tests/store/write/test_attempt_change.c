/* test_attempt_change.c - the database cannot be written while one attempt ends and the next begins: every row is
 * stored later, in the right attempt. */
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "store/record/ring.h"
#include "tests/store/store_test.h"

static void write_step_range(bt_writer *w, int64_t from, int64_t to) {
    bt_fake f;
    for (int64_t i = from; i < to; i++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, i, 1));
}

static void note(bt_writer *w, const char *title) {
    const bt_event e = {.kind = BT_EVENT_WARNING, .rank = -1, .step = 1, .title = title};
    bt_writer_sink(w)->event(bt_writer_sink(w)->ctx, &e);
}

/* Writes a ring with step 3, which rank 0 of attempt 0 could not send. */
static void leave_ring(const char *path) {
    bt_ring *r = NULL;
    bt_fake f;
    OK(bt_ring_create(&r, path, 0, BT_RING_BYTES, err));
    for (int64_t i = 0; i < 4; i++) {
        bt_record *rec = bt_record_step(bt_fake_step(&f, i, 1));
        bt_ring_append(r, rec);
        bt_records_free(rec);
    }
    bt_ring_close(r);
}

enum { FREE, LOCKED, REMOVED, WAYS };

static void rows_wait_for_their_attempt(void **state) {
    const bt_tmp *t = *state;
    for (int way = FREE; way < WAYS; way++) {
        bt_writer *w = NULL;
        sqlite3 *db = NULL;
        bt_err why = BT_ERR_INIT;
        char path[200], ring[200], name[16];
        int attempt;
        snprintf(path, sizeof path, "%s/%d.db", t->dir, way);
        snprintf(ring, sizeof ring, "%s/ring-%d", t->dir, way);
        snprintf(name, sizeof name, "run-%d", way);
        bt_run_start s = bt_fake_run(name);
        OK(bt_writer_open(&w, path, 10, err));
        OK(bt_writer_begin(w, &s, &attempt, err));
        write_step_range(w, 0, 2);
        OK(bt_writer_flush(w, err));
        if (way == LOCKED) {
            assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
            assert_int_equal(sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
        } else if (way == REMOVED)
            assert_int_equal(unlink(path), 0);
        write_step_range(w, 2, 3);
        leave_ring(ring);
        OK(bt_writer_end_later(w, "failed", "signal", 137, ring, err));
        note(w, "between");
        s.resume = true;
        s.from_step = 2;
        s.reason = "again";
        OK(bt_writer_begin_later(w, &s, 1, err));
        write_step_range(w, 2, 6);
        if (way == LOCKED) {
            /* The next attempt fails before the first failure is stored. */
            OK(bt_writer_end_later(w, "failed", "signal", 137, "/nowhere/ring", err));
            s.from_step = 4;
            OK(bt_writer_begin_later(w, &s, 2, err));
            write_step_range(w, 4, 8);
            assert_true(bt_writer_committed_step(w) < 2);
            assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
            sqlite3_close(db);
        }
        OK(bt_writer_flush(w, err));
        assert_int_equal(bt_writer_begin(w, &s, &attempt, &why), BT_ARG);
        OK(bt_writer_end(w, "done", "finished", 0, err));
        bt_writer_close(w);
        assert_string_equal(bt_word(path,
                                    "SELECT group_concat(attempt || ':' || from_step || ':' || "
                                    "exit_kind, ' ') FROM attempts WHERE run = ?1",
                                    name),
                            way == LOCKED ? "0:0:signal 1:2:signal 2:4:finished"
                                          : "0:0:signal 1:2:finished");
        assert_true(bt_number(path, "SELECT count(*) FROM steps WHERE run = ?1", name) ==
                    (way == LOCKED ? 8 : 6));
        assert_true(bt_number(path,
                              "SELECT max(step) FROM all_steps WHERE run = ?1 AND attempt = 0",
                              name) == 3);
        assert_true(bt_number(path,
                              "SELECT count(*) FROM events WHERE run = ?1 AND attempt = 0 AND "
                              "title = 'between'",
                              name) == 1);
        assert_string_equal(bt_word(path, "SELECT state FROM runs WHERE run = ?1", name), "done");
        assert_int_equal(access(ring, F_OK), -1);
    }
}

/* An end that could not be stored is returned when the writer closes. */
static void a_stop_between_attempts(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    int attempt;
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    write_step_range(w, 0, 2);
    OK(bt_writer_end_later(w, "failed", "signal", 137, NULL, err));
    OK(bt_writer_end(w, "failed", "signal", 1, err));
    /* Closing does not wait to store an end if no attempt is open. */
    OK(bt_writer_begin_later(w, &s, 1, err));
    bt_writer_close(w);
    assert_string_equal(bt_word(t->db, "SELECT state FROM runs WHERE run = ?1", "a"), "failed");
    assert_true(bt_number(t->db, "SELECT count(*) FROM attempts WHERE run = ?1", "a") == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_wait_for_their_attempt, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_stop_between_attempts, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
