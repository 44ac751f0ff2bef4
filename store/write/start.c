/* start.c - stores the proposal of a resumed run, and withdraws a start that recorded no step. */
#include "store/write/start.h"

/* columns of `run` that the beginning or the end of an attempt writes (attempt.c, ledger.c) */
#define STARTED \
    "host, pid, world, state, ended_us, exit_kind, exit_code, n_attempts, productive_us, " \
    "redone_us, validation_us, checkpoint_us, paused_us, startup_us, lost_us, finished_us"

bt_code bt_start_propose(sqlite3 *db, const char *path, int64_t run, const bt_run_start *s,
                         bt_err *err) {
    const char *const texts[] = {s->argv, s->config_json, s->note, s->build, s->mpi, s->out_dir};
    return bt_sql_put_row(db, path,
                          "INSERT OR REPLACE INTO proposal(run, argv, config, note, build, mpi, "
                          "out_dir) VALUES (?,?,?,?,?,?,?)",
                          "itttttt", texts, &run, err);
}

bt_code bt_start_remember(sqlite3 *db, const char *path, int64_t run, bt_err *err) {
    BT_TRY(bt_sql_exec(db, path,
                       "CREATE TABLE IF NOT EXISTS temp.run_before AS SELECT * FROM main.run "
                       "LIMIT 0; DELETE FROM temp.run_before;"
                       "CREATE TABLE IF NOT EXISTS temp.fact_before AS SELECT * FROM main.fact "
                       "LIMIT 0; DELETE FROM temp.fact_before",
                       err));
    BT_TRY(bt_sql_put_row(db, path,
                          "INSERT INTO temp.run_before SELECT * FROM main.run WHERE id = ?", "i",
                          NULL, &run, err));
    return bt_sql_put_row(db, path,
                          "INSERT INTO temp.fact_before SELECT * FROM main.fact WHERE run = ?", "i",
                          NULL, &run, err);
}

/* attempts that began after the rows of run ?1 were remembered */
#define SINCE "run = ?1 AND attempt >= (SELECT n_attempts FROM temp.run_before WHERE id = ?1)"

static bt_code count_steps(sqlite3 *db, const char *path, int64_t run, int64_t *n, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(db, path,
                          "SELECT EXISTS (SELECT 1 FROM attempt a JOIN step s ON s.aid = a.id "
                          "WHERE " SINCE ")",
                          &st, err));
    sqlite3_bind_int64(st, 1, run);
    const int rc = sqlite3_step(st);
    *n = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    return rc == SQLITE_ROW ? BT_OK : bt_sql_fail(db, rc, path, "read", err);
}

bt_code bt_start_withdraw(sqlite3 *db, const char *path, int64_t run, bool *withdrawn,
                          bt_err *err) {
    static const char *const statements[] = {
        "DELETE FROM event WHERE aid IN (SELECT id FROM attempt WHERE " SINCE ")",
        "DELETE FROM ckpt WHERE " SINCE,
        "DELETE FROM attempt WHERE " SINCE,
        "DELETE FROM proposal WHERE run = ?1",
        "DELETE FROM fact WHERE run = ?1",
        "INSERT INTO fact SELECT * FROM temp.fact_before WHERE run = ?1",
        "UPDATE run SET (" STARTED ") = (SELECT " STARTED
        " FROM temp.run_before WHERE id = ?1), rev = rev + 1 WHERE id = ?1",
    };
    int64_t steps = 0;
    *withdrawn = false;
    BT_TRY(count_steps(db, path, run, &steps, err));
    if (steps) return BT_OK;
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        BT_TRY(bt_sql_put_row(db, path, statements[i], "i", NULL, &run, err));
    *withdrawn = true;
    return BT_OK;
}
