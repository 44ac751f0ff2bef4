/* live_runs.c - the SQL functions behind the view `runs`: the state by the owning process, and times from one ledger
 * per run, which is read at the first call. */
#include "store/read/live_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/read/run_state.h"
#include "store/read/setting_value.h"

typedef struct live_run {
    sqlite3 *db;
    char path[BT_PATH_BYTES], run[BT_NAME_MAX];
    int64_t instant; /* wall_us of the query for which the ledger was read */
    bool known, asking;
    bt_ledger ledger;
} live_run;

static bt_code read_ledger(live_run *x, bt_err *err) {
    sqlite3_stmt *st = NULL;
    int64_t id = 0, now_us = 0;
    bt_run_state state = BT_STATE_RUNNING;
    BT_TRY(bt_sql_prepare(x->db, x->path,
                          "SELECT id, state, host, pid, coalesce(last_us, created_us), step_us, "
                          "(SELECT ended_us FROM attempt a WHERE a.run = run.id ORDER BY a.attempt "
                          "DESC LIMIT 1) FROM run WHERE name = ?1",
                          &st, err));
    sqlite3_bind_text(st, 1, x->run, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_ROW) {
        const char *word = (const char *)sqlite3_column_text(st, 1);
        const char *host = (const char *)sqlite3_column_text(st, 2);
        id = sqlite3_column_int64(st, 0);
        now_us = bt_run_now_us(x->db, id);
        state = bt_run_state_of(
            bt_run_state_word(word ? word : "", host ? host : "", sqlite3_column_int64(st, 3)),
            fmax(0, (double)(now_us - sqlite3_column_int64(st, 4)) / 1e6),
            bt_sql_number(st, 5) / 1e6, sqlite3_column_type(st, 6) != SQLITE_NULL);
    }
    sqlite3_finalize(st);
    if (!id) return bt_fail(err, BT_NOTFOUND, "no run '%s'", x->run);
    bt_ledger_forget(&x->ledger);
    return bt_ledger_read(&x->ledger, x->db, x->path, id, bt_run_until(state, now_us), err);
}

static double live_run_value(const live_run *x, const char *word) {
    if (strcmp(word, "goodput") == 0) return bt_ledger_goodput(&x->ledger);
    if (strcmp(word, "duration") == 0) return (double)(x->ledger.end_us - x->ledger.begin_us) / 1e6;
    for (int p = 0; p < BT_TIME_PARTS; p++)
        if (strcmp(word, bt_times[p].key) == 0) return bt_ledger_s(&x->ledger, (bt_time_part)p);
    return NAN;
}

/* A view of a crafted file may call this function, even while it reads a ledger: a nested call returns NULL. */
static void sql_live_value(sqlite3_context *ctx, int n, sqlite3_value **arg) {
    live_run *x = sqlite3_user_data(ctx);
    const char *run = (const char *)sqlite3_value_text(arg[0]),
               *word = (const char *)sqlite3_value_text(arg[2]);
    const int64_t instant = sqlite3_value_int64(arg[1]);
    bt_err ignored;
    (void)n;
    if (!run || !word || x->asking || strlen(run) >= sizeof x->run) return;
    if (!x->known || x->instant != instant || strcmp(x->run, run) != 0) {
        strcpy(x->run, run);
        x->instant = instant;
        x->asking = true;
        x->known = read_ledger(x, &ignored) == BT_OK;
        x->asking = false;
    }
    if (x->known) sqlite3_result_double(ctx, live_run_value(x, word));
}

static void sql_run_state(sqlite3_context *ctx, int n, sqlite3_value **arg) {
    (void)n;
    const char *state = (const char *)sqlite3_value_text(arg[0]);
    const char *host = (const char *)sqlite3_value_text(arg[1]);
    if (!state)
        sqlite3_result_null(ctx);
    else
        sqlite3_result_text(ctx,
                            bt_run_state_word(state, host ? host : "", sqlite3_value_int64(arg[2])),
                            -1, SQLITE_TRANSIENT);
}

static void release_live_runs(void *ctx) {
    live_run *x = ctx;
    bt_ledger_release(&x->ledger);
    free(x);
}

/* SQLite returns the same time for all columns of a row, so they share one ledger */
#define INSTANT "CAST((julianday('now') - 2440587.5) * 86400e6 AS INTEGER)"

static void put_runs_column(bt_text *sql, const char *name) {
    const char *word = strcmp(name, "duration_s") == 0 ? "duration"
                       : strcmp(name, "goodput") == 0  ? "goodput"
                                                       : NULL;
    for (int p = 0; p < BT_TIME_PARTS && !word; p++) {
        const size_t n = strlen(bt_times[p].key);
        if (strncmp(name, bt_times[p].key, n) == 0 && strcmp(name + n, "_s") == 0)
            word = bt_times[p].key;
    }
    if (strcmp(name, "state") == 0)
        bt_text_put(sql, BT_STATE_FUNCTION "(state, host, pid) AS state");
    else if (word)
        bt_text_printf(sql,
                       "CASE WHEN ended_s IS NULL THEN " BT_LIVE_FUNCTION "(run, " INSTANT
                       ", '%s') ELSE \"%s\" END AS \"%s\"",
                       word, name, name);
    else
        bt_text_printf(sql, "\"%s\"", name);
}

static bt_code compose_runs_view(sqlite3 *db, const char *path, bt_text *sql, bt_err *err) {
    sqlite3_stmt *st = NULL;
    int n = 0;
    BT_TRY(
        bt_sql_prepare(db, path, "SELECT name FROM pragma_table_info('runs', 'main')", &st, err));
    /* A TEMP view is stored in memory; this is the only write of a reader's connection. */
    bt_text_put(sql, "PRAGMA query_only=OFF; CREATE TEMP VIEW runs AS SELECT ");
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (n++) bt_text_put(sql, ", ");
        put_runs_column(sql, (const char *)sqlite3_column_text(st, 0));
    }
    bt_code code = rc == SQLITE_DONE ? BT_OK : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    BT_TRY(code);
    if (n == 0) { /* an empty file */
        bt_text_clear(sql);
        return BT_OK;
    }
    bt_text_put(sql, " FROM main.runs; PRAGMA query_only=ON");
    return sql->failed ? bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory") : BT_OK;
}

bt_code bt_live_runs_install(sqlite3 *db, const char *path, bt_err *err) {
    bt_text sql;
    live_run *x = calloc(1, sizeof *x);
    if (!x) return bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory");
    x->db = db;
    snprintf(x->path, sizeof x->path, "%s", path);
    int rc = sqlite3_create_function(db, BT_STATE_FUNCTION, 3, SQLITE_UTF8 | SQLITE_INNOCUOUS, NULL,
                                     sql_run_state, NULL, NULL);
    if (rc == SQLITE_OK) rc = bt_setting_value_install(db);
    if (rc != SQLITE_OK) {
        free(x);
        return bt_sql_fail(db, rc, path, "open", err);
    }
    rc = sqlite3_create_function_v2(db, BT_LIVE_FUNCTION, 3, SQLITE_UTF8 | SQLITE_INNOCUOUS, x,
                                    sql_live_value, NULL, NULL, release_live_runs);
    if (rc != SQLITE_OK) return bt_sql_fail(db, rc, path, "open", err); /* SQLite has released it */
    bt_text_init(&sql);
    bt_code code = compose_runs_view(db, path, &sql, err);
    if (code == BT_OK) code = bt_sql_exec(db, path, bt_text_str(&sql), err);
    bt_text_release(&sql);
    return code;
}
