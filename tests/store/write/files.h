/* files.h - runs in a database file, the number of runs in a file, and files that are not databases. */
#ifndef BT_TESTS_STORE_WRITE_FILES_H
#define BT_TESTS_STORE_WRITE_FILES_H

#include "store/sql/sql.h"
#include "tests/store/store_test.h"

static inline void add_run(const char *path, const char *name) {
    bt_writer *w = NULL;
    int attempt;
    bt_fake f;
    bt_run_start s = bt_fake_run(name);
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t step = 0; step < 5; step++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 2));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

/* Counts the runs in the database file with this suffix. */
static inline int64_t runs_in(const bt_tmp *t, const char *end) {
    char path[200];
    sqlite3 *db = NULL;
    snprintf(path, sizeof path, "%s%s", t->db, end);
    if (access(path, F_OK) != 0) return -1;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    const int64_t n = bt_sql_int(db, "SELECT count(*) FROM run", -2);
    sqlite3_close(db);
    for (int i = 0; i < 2 && *end; i++) { /* removes the files that reading has created */
        snprintf(path, sizeof path, "%s%s%s", t->db, end, i ? "-shm" : "-wal");
        unlink(path);
    }
    return n;
}

static inline void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

#endif
