/* schema.c - base tables and migrations. Tables store integers (microseconds, KiB, bytes, 1e-9), which SQLite keeps
 * in 1 to 4 bytes if they are small; the views (views.c) convert them to the units of metrics.def. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/sql/sql.h"

/* ---- tables ---- */

_Static_assert(BT_AID_SHIFT == 46 && BT_RANK_BITS == 16,
               "the view rank_steps contains these numbers");

/* `aid` is attempt.id: one small integer replaces (run, attempt) in the tables that grow. A row
 * is live if step < attempt.live_to; the first step of a later attempt sets live_to, so repeated
 * steps need no scan. */
static const char *const tables_v1 =
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;"
    "CREATE TABLE metric(scope TEXT NOT NULL, key TEXT NOT NULL, pos INTEGER NOT NULL, unit TEXT "
    "NOT NULL, panel TEXT NOT NULL,"
    " meaning TEXT NOT NULL, col TEXT NOT NULL, scale REAL NOT NULL, PRIMARY KEY(scope, key)) "
    "STRICT, WITHOUT ROWID;"
    "CREATE TABLE run(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_us INTEGER NOT "
    "NULL, host TEXT, user TEXT, pid INTEGER,"
    " build TEXT, mpi TEXT, note TEXT, tags TEXT, out_dir TEXT, world INTEGER, seed INTEGER, state "
    "TEXT NOT NULL, ended_us INTEGER,"
    " exit_kind TEXT, exit_code INTEGER, n_attempts INTEGER NOT NULL DEFAULT 0,"
    /* The summary is updated in the transaction of the data, so that `runs` reads nothing else. */
    " last_step INTEGER, last_us INTEGER, tokens INTEGER, loss REAL, val_loss REAL, best_val REAL, "
    "best_val_step INTEGER,"
    " tokens_per_s REAL, step_us INTEGER, mfu REAL, comm_overhead REAL, bytes_wire INTEGER, "
    "rss_kib INTEGER,"
    " first_time_us INTEGER NOT NULL DEFAULT 0, redone_us INTEGER NOT NULL DEFAULT 0, spark TEXT,"
    " dropped INTEGER NOT NULL DEFAULT 0, rev INTEGER NOT NULL DEFAULT 0) STRICT;"
    "CREATE TABLE run_doc(run INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE, argv TEXT, "
    "config TEXT) STRICT;"
    "CREATE TABLE attempt(id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES run(id) ON "
    "DELETE CASCADE, attempt INTEGER NOT NULL,"
    " started_us INTEGER NOT NULL, ended_us INTEGER, from_step INTEGER NOT NULL, live_to INTEGER "
    "NOT NULL, world INTEGER, pid INTEGER,"
    " host TEXT, reason TEXT, exit_kind TEXT, exit_code INTEGER, UNIQUE(run, attempt)) STRICT;"
    "CREATE TABLE rank(aid INTEGER NOT NULL REFERENCES attempt(id) ON DELETE CASCADE, rank INTEGER "
    "NOT NULL, host TEXT, pid INTEGER, isa TEXT,"
    " threads INTEGER, pp INTEGER, dp_replicate INTEGER, dp_shard INTEGER, tp INTEGER, PRIMARY "
    "KEY(aid, rank)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE fact(run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, key TEXT NOT "
    "NULL, value TEXT,"
    " attempt INTEGER NOT NULL, PRIMARY KEY(run, key)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE step(aid INTEGER NOT NULL, step INTEGER NOT NULL, wall_us INTEGER NOT NULL, "
    "flags INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(aid, step)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE rank_step(aid INTEGER NOT NULL, step INTEGER NOT NULL, rank INTEGER NOT NULL, "
    "PRIMARY KEY(aid, step, rank)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE event(seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES "
    "run(id) ON DELETE CASCADE, aid INTEGER,"
    " t_us INTEGER NOT NULL, step INTEGER, rank INTEGER, kind TEXT NOT NULL, level INTEGER NOT "
    "NULL, title TEXT, body TEXT) STRICT;"
    "CREATE INDEX event_run ON event(run, seq);"
    "CREATE TABLE ckpt(run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, step INTEGER NOT "
    "NULL, attempt INTEGER NOT NULL, t_us INTEGER NOT NULL,"
    " path TEXT NOT NULL, bytes INTEGER, took_us INTEGER, hash TEXT, PRIMARY KEY(run, step, "
    "attempt)) STRICT, WITHOUT ROWID;";

/* Summaries of blocks of steps (rollup.h). raw_from: rank rows below this step may have been
 * deleted; their summaries remain */
static const char *const tables_v2 =
    "CREATE TABLE roll(key INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"
    "ALTER TABLE attempt ADD COLUMN raw_from INTEGER NOT NULL DEFAULT 0;"
    /* Ids of attempts are never reused, because rows of a removed run may not be deleted yet. */
    "INSERT INTO meta(key, value) VALUES ('keep_rank_steps', 50000), ('next_aid', (SELECT "
    "coalesce(max(id), 0) + 1 FROM attempt));";

/* Adds the table of scopes; converts events of kind `control` to the kinds `paused` and `continued` by their titles. */
static const char *const tables_v6 =
    "CREATE TABLE scope(name TEXT PRIMARY KEY, view TEXT NOT NULL, tbl TEXT NOT NULL, per TEXT NOT "
    "NULL) STRICT, WITHOUT ROWID;"
    "UPDATE event SET kind = 'paused' WHERE kind = 'control' AND title = 'paused';"
    "UPDATE event SET kind = 'continued' WHERE kind = 'control' AND title LIKE '% after a pause of "
    "%';"
    "UPDATE event SET kind = 'checkpoint_failed' WHERE kind = 'checkpoint' AND level = 2;";

/* Parts of a run's time (times.def); store/ledger computes missing ones. The event that follows a checkpoint has a more
 * accurate time than the record of the checkpoint. */
static const char *const tables_v7 =
    "ALTER TABLE run RENAME COLUMN first_time_us TO productive_us;"
    "ALTER TABLE run ADD COLUMN validation_us INTEGER;"
    "ALTER TABLE run ADD COLUMN checkpoint_us INTEGER;"
    "ALTER TABLE run ADD COLUMN paused_us INTEGER;"
    "ALTER TABLE run ADD COLUMN startup_us INTEGER;"
    "ALTER TABLE run ADD COLUMN lost_us INTEGER;"
    "UPDATE ckpt SET t_us = coalesce((SELECT max(e.t_us) FROM event e WHERE e.run = ckpt.run AND "
    "e.kind = 'checkpoint' AND e.step = ckpt.step - 1 AND e.aid = (SELECT a.id FROM attempt a "
    "WHERE "
    "a.run = ckpt.run AND a.attempt = ckpt.attempt)), t_us);";

static const char *const tables_v8 = "ALTER TABLE run ADD COLUMN energy_j REAL;";

/* The time between the last step and an extension of the run is not a pause, so the parts are recomputed. */
static const char *const tables_v9 = "ALTER TABLE run ADD COLUMN finished_us INTEGER;"
                                     "UPDATE run SET lost_us = NULL;";

/* Settings that a resumed run adopts with the first step of its new attempt (store/write/start.h). */
static const char *const tables_v10 =
    "CREATE TABLE proposal(run INTEGER PRIMARY KEY REFERENCES run(id) ON DELETE CASCADE, argv "
    "TEXT, "
    "config TEXT, note TEXT, build TEXT, mpi TEXT, out_dir TEXT) STRICT;";

/* Skipped steps now count as lost time; NULL makes readers compute the parts of a run's time again. */
static const char *const tables_v11 = "UPDATE run SET lost_us = NULL;";

static bt_code execute_tables_v1(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v1, err);
}
static bt_code execute_tables_v2(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v2, err);
}
static bt_code execute_tables_v6(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v6, err);
}

static bt_code execute_tables_v7(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v7, err);
}

static bt_code execute_tables_v8(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v8, err);
}

static bt_code execute_tables_v9(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v9, err);
}

static bt_code execute_tables_v10(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v10, err);
}

static bt_code execute_tables_v11(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v11, err);
}

/* Replaces the key of rank_step by one packed key (sql.h); the metric columns are those of the file. */
static bt_code pack_rank_keys(sqlite3 *db, const char *path, bt_err *err) {
    sqlite3_stmt *st = NULL;
    bt_text types, names, sql;
    bt_text_init(&types);
    bt_text_init(&names);
    bt_text_init(&sql);
    bt_code code = bt_sql_prepare(
        db, path, "SELECT name, type FROM pragma_table_info('rank_step') WHERE pk = 0", &st, err);
    while (code == BT_OK && sqlite3_step(st) == SQLITE_ROW) {
        bt_text_printf(&types, ", \"%s\" %s", (const char *)sqlite3_column_text(st, 0),
                       (const char *)sqlite3_column_text(st, 1));
        bt_text_printf(&names, ", \"%s\"", (const char *)sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    bt_text_printf(&sql,
                   "CREATE TABLE rank_packed(key INTEGER PRIMARY "
                   "KEY%s) STRICT;"
                   "INSERT INTO rank_packed(key%s) SELECT (aid << %d) + (step << %d) + rank%s FROM "
                   "rank_step WHERE step < (1 << %d) AND rank < (1 << %d) ORDER BY aid, step, rank;"
                   "DROP TABLE rank_step; ALTER TABLE rank_packed RENAME TO rank_step",
                   bt_text_str(&types), bt_text_str(&names), BT_AID_SHIFT, BT_RANK_BITS,
                   bt_text_str(&names), BT_STEP_BITS, BT_RANK_BITS);
    if (code == BT_OK && (types.failed || names.failed || sql.failed))
        code = bt_fail(err, BT_NOMEM, "cannot update '%s': out of memory", path);
    if (code == BT_OK) code = bt_sql_exec(db, path, bt_text_str(&sql), err);
    bt_text_release(&types);
    bt_text_release(&names);
    bt_text_release(&sql);
    return code;
}

/* Migrations only go forward: entry i converts version i to i + 1. Versions 4 and 5 created tables of
 * sampled values, which are now created when they are missing, so these entries are NULL. */
typedef bt_code (*migration)(sqlite3 *db, const char *path, bt_err *err);
static const migration migrations[BT_SCHEMA_VERSION] = {execute_tables_v1,
                                                        execute_tables_v2,
                                                        pack_rank_keys,
                                                        NULL,
                                                        NULL,
                                                        execute_tables_v6,
                                                        execute_tables_v7,
                                                        execute_tables_v8,
                                                        execute_tables_v9,
                                                        execute_tables_v10,
                                                        execute_tables_v11};

/* ---- scopes and metrics that the file lacks -------------------------------------------------- */

static bt_code add_scope(sqlite3 *db, const char *path, const bt_scope_row *s, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    if (s->kept == BT_KEPT_SAMPLED) bt_schema_create((bt_scope)(s - bt_scopes), &sql);
    char *row = sqlite3_mprintf("INSERT INTO scope(name, view, tbl, per) VALUES (%Q, %Q, %Q, %Q)",
                                s->name, s->view, s->table, s->per);
    bt_text_put(&sql, row ? row : "");
    bt_code code = row && !sql.failed
                       ? bt_sql_exec(db, path, bt_text_str(&sql), err)
                       : bt_fail(err, BT_NOMEM, "cannot update '%s': out of memory", path);
    sqlite3_free(row);
    bt_text_release(&sql);
    return code;
}

static bt_code add_metric(sqlite3 *db, const char *path, const bt_scope_row *s, const bt_metric *m,
                          bt_err *err) {
    bt_column c;
    bt_column_of((bt_scope)(s - bt_scopes), m, &c);
    char *sql = sqlite3_mprintf(
        "ALTER TABLE %s ADD COLUMN \"%w\" %s; INSERT INTO metric(scope, key, pos, unit, panel, "
        "meaning, col, scale) VALUES (%Q, %Q, (SELECT count(*) FROM metric), %Q, %Q, %Q, %Q, %.1f)",
        s->table, c.name, c.integer ? "INTEGER" : "REAL", s->name, m->key, bt_unit_name(m->unit),
        bt_panel_name(m->panel), m->help, c.name, c.scale);
    bt_code code = sql ? bt_sql_exec(db, path, sql, err)
                       : bt_fail(err, BT_NOMEM, "cannot update '%s': out of memory", path);
    sqlite3_free(sql);
    return code;
}

/* Returns 1, 0, or -1 with err. */
static int schema_has_row(sqlite3 *db, const char *path, sqlite3_stmt *st, const char *a,
                          const char *b, bt_err *err) {
    sqlite3_reset(st);
    sqlite3_bind_text(st, 1, a, -1, SQLITE_STATIC);
    if (b) sqlite3_bind_text(st, 2, b, -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    sqlite3_reset(st);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) return rc == SQLITE_ROW;
    bt_sql_fail(db, rc, path, "read", err);
    return -1;
}

/* Adds scopes and metrics of this program that the file lacks; *added counts them. */
static bt_code add_table_rows(sqlite3 *db, const char *path, bool look_only, int *added,
                              bt_err *err) {
    sqlite3_stmt *scope = NULL, *metric = NULL;
    bt_code code = bt_sql_prepare(db, path, "SELECT 1 FROM scope WHERE name = ?", &scope, err);
    if (code == BT_OK)
        code = bt_sql_prepare(db, path, "SELECT 1 FROM metric WHERE scope = ? AND key = ?", &metric,
                              err);
    for (int s = 0; s < BT_SCOPE_COUNT && code == BT_OK; s++) {
        const bt_scope_row *row = &bt_scopes[s];
        int has = schema_has_row(db, path, scope, row->name, NULL, err);
        *added += has == 0;
        if (has < 0)
            code = err ? err->code : BT_DB;
        else if (!has && !look_only)
            code = add_scope(db, path, row, err);
        for (int i = 0; i < row->n && code == BT_OK; i++) {
            has = schema_has_row(db, path, metric, row->name, row->metric[i].key, err);
            *added += has == 0;
            if (has < 0)
                code = err ? err->code : BT_DB;
            else if (!has && !look_only)
                code = add_metric(db, path, row, &row->metric[i], err);
        }
    }
    sqlite3_finalize(scope);
    sqlite3_finalize(metric);
    return code;
}

/* ---- versions ---- */

/* Returns BT_FORMAT unless it is a bitrain database; *version 0: an empty new file. */
static bt_code identify_database(sqlite3 *db, const char *path, int64_t *version, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(db, path, "SELECT count(*) FROM sqlite_schema", &st, err));
    int rc = sqlite3_step(st);
    int64_t things = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    bt_code code = rc == SQLITE_ROW ? BT_OK : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    if (code != BT_OK) return code;
    int64_t id = -1;
    *version = -1;
    BT_TRY(bt_sql_get(db, path, "PRAGMA application_id", &id, err));
    BT_TRY(bt_sql_get(db, path, "PRAGMA user_version", version, err));
    if (things == 0 && id == 0 && *version == 0) return BT_OK;
    if (id != BT_APPLICATION_ID)
        return bt_fail(
            err, BT_FORMAT,
            "'%s' is a database of another program, not of bitrain (choose another --store)", path);
    if (*version > BT_SCHEMA_VERSION) {
        return bt_fail(err, BT_FORMAT,
                       "metrics database '%s' was written by a newer bitrain (schema %lld, this "
                       "program supports %d): upgrade bitrain",
                       path, (long long)*version, BT_SCHEMA_VERSION);
    }
    if (*version < 1)
        return bt_fail(err, BT_FORMAT,
                       "metrics database '%s' has the impossible schema version %lld", path,
                       (long long)*version);
    return BT_OK;
}

bt_code bt_schema_check(sqlite3 *db, const char *path, bool *outdated, bt_err *err) {
    int64_t version = 0;
    int missing = 0;
    BT_TRY(identify_database(db, path, &version, err));
    if (version == 0)
        return bt_fail(err, BT_NOTFOUND, "no run is recorded in '%s' yet (an empty file)", path);
    if (version == BT_SCHEMA_VERSION) BT_TRY(add_table_rows(db, path, true, &missing, err));
    *outdated = version < BT_SCHEMA_VERSION || missing > 0;
    return *outdated ? BT_OK : bt_views_check(db, path, outdated, err);
}

static bt_code upgrade_database(sqlite3 *db, const char *path, int64_t version, bt_err *err) {
    int added = 0;
    char sql[200];
    BT_TRY(bt_views_drop(db, path, err)); /* views would block a change of their tables */
    for (int64_t v = version; v < BT_SCHEMA_VERSION; v++)
        if (migrations[v]) BT_TRY(migrations[v](db, path, err));
    BT_TRY(add_table_rows(db, path, false, &added, err));
    BT_TRY(bt_views_create(db, path, err));
    snprintf(sql, sizeof sql, "PRAGMA application_id=%d; PRAGMA user_version=%d", BT_APPLICATION_ID,
             BT_SCHEMA_VERSION);
    return bt_sql_exec(db, path, sql, err);
}

bt_code bt_schema_apply(sqlite3 *db, const char *path, bt_err *err) {
    int64_t version = 0;
    int missing = 0;
    BT_TRY(identify_database(db, path, &version, err));
    if (version == 0)
        BT_TRY(bt_sql_exec(db, path, "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL", err));
    BT_TRY(bt_sql_exec(db, path, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", err));
    if (version == BT_SCHEMA_VERSION) {
        BT_TRY(add_table_rows(db, path, true, &missing, err));
        bool differ = false;
        BT_TRY(bt_views_check(db, path, &differ, err));
        if (missing == 0 && !differ) return BT_OK;
    }
    BT_TRY(bt_sql_exec(db, path, "BEGIN IMMEDIATE", err));
    bt_code code = upgrade_database(db, path, version, err);
    if (code == BT_OK) code = bt_sql_exec(db, path, "COMMIT", err);
    if (code != BT_OK) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}
