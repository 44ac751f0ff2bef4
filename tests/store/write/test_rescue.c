/* test_rescue.c - a damaged or missing database file: kinds of damage, files moved aside, and restored rows. */
#include <sys/stat.h>

#include "store/sql/sql.h"
#include "store/write/manage.h"
#include "store/write/rescue.h"
#include "tests/store/store_test.h"
#include "tests/store/write/files.h"

static void kinds_of_damage_are_distinguished(void **state) {
    const bt_tmp *t = *state;
    static const struct {
        int rc;
        bool wanted;
    } rows[] = {{SQLITE_CORRUPT, true},     {SQLITE_CORRUPT_INDEX, true},
                {SQLITE_NOTADB, true},      {SQLITE_IOERR_SHORT_READ, true},
                {SQLITE_IOERR_READ, false}, {SQLITE_IOERR, false},
                {SQLITE_FULL, false},       {SQLITE_BUSY, false},
                {SQLITE_OK, false},         {SQLITE_ROW, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(bt_rescue_wanted(rows[i].rc), rows[i].wanted);
    sqlite3 *db = NULL;
    char wal[200], aside[200];
    add_run(t->db, "a");
    snprintf(wal, sizeof wal, "%s-wal", t->db);
    snprintf(aside, sizeof aside, "%s.aside", t->db);
    OK(bt_sql_open_rw(&db, t->db, err));
    OK(bt_sql_exec(db, t->db, "UPDATE run SET note = 'x'", err));
    assert_int_equal(bt_rescue_examine(db, t->db), BT_UNDAMAGED);
    struct stat st;
    assert_int_equal(stat(wal, &st), 0);
    assert_int_equal(rename(wal, aside), 0);
    assert_int_equal(bt_rescue_examine(db, t->db), BT_LOG_CUT);
    FILE *f = fopen(wal, "w"); /* complete frames, then one byte less */
    assert_non_null(f);
    const int64_t frames = (st.st_size - 32) / (24 + 4096);
    assert_int_equal(ftruncate(fileno(f), 32 + frames * (24 + 4096)), 0);
    assert_int_equal(bt_rescue_examine(db, t->db), BT_UNDAMAGED);
    fclose(f);
    assert_int_equal(truncate(wal, 31), 0);
    assert_int_equal(bt_rescue_examine(db, t->db), BT_LOG_CUT);
    assert_int_equal(rename(aside, wal), 0);
    assert_true(bt_rescue_snapshot(db, t->db));
    assert_int_equal(runs_in(t, ".saved"), 1);
    assert_int_equal(rename(t->db, aside), 0);
    assert_int_equal(bt_rescue_examine(db, t->db), BT_FILE_GONE);
    sqlite3_close(db);
}

/* A foreign file and its log are moved aside, and the snapshot takes its place. */
static void a_snapshot_is_installed(void **state) {
    const bt_tmp *t = *state;
    bt_rescue_result r;
    bool kept = true;
    bt_err why = BT_ERR_INIT;
    sqlite3 *db = NULL;
    char name[200], first[BT_PATH_BYTES + 48];
    add_run(t->db, "a");
    OK(bt_sql_open_rw(&db, t->db, err));
    assert_true(bt_rescue_snapshot(db, t->db));
    sqlite3_close(db);
    /* A new database of another run is kept. */
    OK(bt_rescue_install(t->db, &r, &kept, err));
    assert_true(kept && !r.moved_to[0]);
    assert_int_equal(runs_in(t, ".saved"), -1);
    for (int k = 0; k < 2; k++) { /* The second file within a second gets another name. */
        OK(bt_sql_open_rw(&db, t->db, err));
        assert_true(bt_rescue_snapshot(db, t->db));
        sqlite3_close(db);
        write_text(t->db, "no database");
        snprintf(name, sizeof name, "%s-wal", t->db);
        write_text(name, "its log");
        OK(bt_rescue_install(t->db, &r, &kept, err));
        assert_false(kept);
        assert_int_equal(access(r.moved_to, F_OK), 0);
        int day, time, end = 0; /* for example m.db.corrupt-20260131T235959Z */
        const char *when = r.moved_to + strlen(t->db);
        assert_int_equal(sscanf(when, ".corrupt-%8dT%6dZ%n", &day, &time, &end), 2);
        assert_true(end == 25 && day > 20200000 && (when[end] == '\0' || when[end] == '-'));
        assert_int_equal(runs_in(t, ""), 1);
        assert_int_equal(runs_in(t, ".saved"), -1);
        snprintf(name, sizeof name, "%.150s-wal", r.moved_to);
        assert_int_equal(access(name, F_OK), 0);
        if (k) assert_string_not_equal(r.moved_to, first);
        strcpy(first, r.moved_to);
    }
    /* If the database is missing, its log and -shm file are removed, because SQLite would use them with the new
     * database. */
    OK(bt_sql_open_rw(&db, t->db, err));
    assert_true(bt_rescue_snapshot(db, t->db));
    sqlite3_close(db);
    unlink(t->db);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%s", t->db, i ? "-shm" : "-wal");
        write_text(name, "of what was there");
    }
    OK(bt_rescue_install(t->db, &r, &kept, err));
    assert_false(kept || r.moved_to[0]);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%s", t->db, i ? "-shm" : "-wal");
        assert_int_not_equal(access(name, F_OK), 0);
    }
    assert_int_equal(runs_in(t, ""), 1);
    unlink(t->db);
    assert_int_equal(bt_rescue_install(t->db, &r, &kept, &why), BT_IO); /* There is no snapshot. */
    assert_non_null(strstr(why.msg, "' in place of '"));
}

/* Pages in the middle of a table are lost: rows before and after them are saved, and the table counts as damaged. */
static void rows_are_saved_from_both_ends(void **state) {
    const bt_tmp *t = *state;
    bt_rescue_result r;
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    bt_run_start s = bt_fake_run("a");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t step = 0; step < 600; step++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 4));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    run_sql(t->db, "PRAGMA wal_checkpoint(TRUNCATE)");
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(t->db, &db), SQLITE_OK);
    const int64_t page = bt_sql_int(
                      db,
                      "SELECT pageno - 1 FROM dbstat WHERE name = 'rank_step' AND pagetype = "
                      "'leaf' ORDER BY path LIMIT 1 OFFSET 5",
                      -1),
                  bytes = bt_sql_int(db, "PRAGMA page_size", 0);
    sqlite3_close(db);
    if (page < 0) skip(); /* This SQLite lacks dbstat. */
    FILE *file = fopen(t->db, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(page * bytes), SEEK_SET), 0);
    for (int64_t i = 0; i < bytes; i++) fputc(0, file);
    fclose(file);
    OK(bt_rescue(t->db, NULL, &r, err));
    assert_int_equal(r.unreadable, 1);
    assert_true(r.moved_to[0]);
    assert_true(bt_number(t->db, "SELECT count(*) FROM steps", NULL) == 600);
    const double ranks = bt_number(t->db, "SELECT count(*) FROM rank_steps", NULL);
    assert_true(ranks > 2000 && ranks < 2400);
    assert_true(bt_number(t->db, "SELECT min(step) FROM rank_steps", NULL) == 0);
    assert_true(bt_number(t->db, "SELECT max(step) FROM rank_steps", NULL) == 599);
    assert_true(r.rows > 2600);
}

/* A row that the new table refuses is skipped, and later rows are saved; the table counts as damaged. */
static void rows_after_a_refused_row_are_saved(void **state) {
    const bt_tmp *t = *state;
    static const char *const never[] = {"'never'", "NULL"};
    bt_rescue_result r;
    char sql[80];
    for (char name[] = "a"; name[0] < 'e'; name[0]++) add_run(t->db, name);
    OK(bt_rescue(t->db, NULL, &r, err));
    assert_int_equal(r.unreadable, 0);
    for (int i = 0; i < 2; i++) {
        const int64_t all = r.rows;
        run_sql(t->db, "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace("
                       "replace(sql, 'STRICT', ''), 'NOT NULL', '') WHERE name = 'run'");
        snprintf(sql, sizeof sql, "UPDATE run SET created_us = %s WHERE name = '%c'", never[i],
                 'b' + i);
        run_sql(t->db, sql);
        OK(bt_rescue(t->db, NULL, &r, err));
        bt_table_is(t->db, "SELECT name FROM run ORDER BY id", i ? "a\nd\n" : "a\nc\nd\n");
        if (i == 0) assert_int_equal(r.rows, all - 1);
        assert_int_equal(r.unreadable, 1);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {TEST(kinds_of_damage_are_distinguished),
                                       TEST(a_snapshot_is_installed),
                                       TEST(rows_are_saved_from_both_ends),
                                       TEST(rows_after_a_refused_row_are_saved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
