/* schema.c - tables, views and migrations. Tables keep integers (microseconds, KiB, bytes, 1e-9):
 * SQLite stores small integers in 1-4 bytes; the views give them back in the units of metrics.def.
 * The views are the public contract. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "store/sql/sql.h"

/* ---- how metrics are kept ---- */

int bt_scope_metrics(bt_scope scope, const bt_metric **list) {
    switch (scope) {
    case BT_SCOPE_STEP: *list = bt_step_metrics; return BT_MS_COUNT;
    case BT_SCOPE_RANK: *list = bt_rank_metrics; return BT_MR_COUNT;
    case BT_SCOPE_COMM: *list = bt_comm_metrics; return BT_MC_COUNT;
    case BT_SCOPE_PAIR: *list = bt_pair_metrics; return BT_MP_COUNT;
    default: *list = bt_layer_metrics; return BT_ML_COUNT;
    }
}

static void swap_suffix(char *out, size_t size, const char *key, const char *from, const char *to) {
    size_t n = strlen(key), m = strlen(from);
    if (n > m && strcmp(key + n - m, from) == 0) n -= m;
    snprintf(out, size, "%.*s%s", (int)n, key, to);
}

void bt_column_of(bt_scope scope, const bt_metric *m, bt_column *out) {
    *out = (bt_column){.integer = true, .scale = 1};
    snprintf(out->name, sizeof out->name, "%s", m->key);
    switch (m->unit) {
    case BT_UNIT_MS:
        swap_suffix(out->name, sizeof out->name, m->key, "_ms", "_us");
        out->scale = 1e3;
        break;
    case BT_UNIT_MIB:
        swap_suffix(out->name, sizeof out->name, m->key, "_mib", "_kib");
        out->scale = 1024;
        break;
    case BT_UNIT_BYTES:
    case BT_UNIT_COUNT: break;
    case BT_UNIT_FRAC:
        if (scope == BT_SCOPE_STEP)
            out->integer = false;
        else {
            swap_suffix(out->name, sizeof out->name, m->key, "_frac", "_ppb");
            out->scale = 1e9;
        }
        break;
    case BT_UNIT_NATS:
        /* 4 bytes instead of 8 in the table that grows fastest */
        if (scope == BT_SCOPE_RANK) {
            swap_suffix(out->name, sizeof out->name, m->key, "", "_unats");
            out->scale = 1e6;
        } else
            out->integer = false;
        break;
    default: out->integer = false;
    }
}

static const struct {
    const char *name, *table, *keys;
    int n_keys;
} scopes[BT_SCOPE_COUNT] = {
    [BT_SCOPE_STEP] = {"step", "step", "aid, step, wall_us, flags", 4},
    [BT_SCOPE_RANK] = {"rank", "rank_step", "key", 1},
    [BT_SCOPE_LAYER] = {"layer", "layer_stat", "aid, step, layer, tensor", 4},
    [BT_SCOPE_COMM] = {"comm", "comm_op", "aid, step, rank, op, axis", 5},
    [BT_SCOPE_PAIR] = {"pair", "comm_pair", "aid, step, rank, peer", 4},
};

void bt_schema_insert(bt_scope scope, bt_text *sql) {
    const bt_metric *list;
    int n = bt_scope_metrics(scope, &list);
    bt_text_printf(sql, "INSERT OR REPLACE INTO %s(%s", scopes[scope].table, scopes[scope].keys);
    for (int i = 0; i < n; i++) {
        bt_column c;
        bt_column_of(scope, &list[i], &c);
        bt_text_printf(sql, ", %s", c.name);
    }
    bt_text_put(sql, ") VALUES (");
    for (int i = 0; i < n + scopes[scope].n_keys; i++) bt_text_put(sql, i ? ",?" : "?");
    bt_text_put(sql, ")");
}

/* ---- tables ---- */

_Static_assert(BT_AID_SHIFT == 46 && BT_RANK_BITS == 16, "the view rank_steps says these numbers");

/* `aid` is attempt.id: one small integer stands for (run, attempt) in the tables that grow.
 * A row is live when step < attempt.live_to; the first step of a later attempt sets live_to,
 * replayed steps need no scan. */
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
    /* the summary, kept up to date in the transaction of the data: `runs` opens nothing else */
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
    "CREATE TABLE layer_stat(aid INTEGER NOT NULL, step INTEGER NOT NULL, layer INTEGER NOT NULL, "
    "tensor TEXT NOT NULL,"
    " PRIMARY KEY(aid, step, layer, tensor)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE event(seq INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL REFERENCES "
    "run(id) ON DELETE CASCADE, aid INTEGER,"
    " t_us INTEGER NOT NULL, step INTEGER, rank INTEGER, kind TEXT NOT NULL, level INTEGER NOT "
    "NULL, title TEXT, body TEXT) STRICT;"
    "CREATE INDEX event_run ON event(run, seq);"
    "CREATE TABLE ckpt(run INTEGER NOT NULL REFERENCES run(id) ON DELETE CASCADE, step INTEGER NOT "
    "NULL, attempt INTEGER NOT NULL, t_us INTEGER NOT NULL,"
    " path TEXT NOT NULL, bytes INTEGER, took_us INTEGER, hash TEXT, PRIMARY KEY(run, step, "
    "attempt)) STRICT, WITHOUT ROWID;";

/* summaries over blocks of steps (rollup.h); raw_from: rank rows below this step may be gone, their
 * summaries stay */
static const char *const tables_v2 =
    "CREATE TABLE roll(key INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"
    "ALTER TABLE attempt ADD COLUMN raw_from INTEGER NOT NULL DEFAULT 0;"
    /* ids of attempts are never used again: rows of a removed run may still wait for their
     * deletion */
    "INSERT INTO meta(key, value) VALUES ('keep_rank_steps', 50000), ('next_aid', (SELECT "
    "coalesce(max(id), 0) + 1 FROM attempt));";

static const char *const tables_v4 =
    "CREATE TABLE comm_op(aid INTEGER NOT NULL, step INTEGER NOT NULL, rank INTEGER NOT NULL, op "
    "TEXT NOT NULL, axis TEXT NOT NULL,"
    " PRIMARY KEY(aid, step, rank, op, axis)) STRICT, WITHOUT ROWID;";

static const char *const tables_v5 = "CREATE TABLE comm_pair(aid INTEGER NOT NULL, step INTEGER "
                                     "NOT NULL, rank INTEGER NOT NULL, peer INTEGER NOT NULL,"
                                     " PRIMARY KEY(aid, step, rank, peer)) STRICT, WITHOUT ROWID;";

static bt_code run_tables_v1(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v1, err);
}
static bt_code run_tables_v2(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v2, err);
}
static bt_code run_tables_v4(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v4, err);
}
static bt_code run_tables_v5(sqlite3 *db, const char *path, bt_err *err) {
    return bt_sql_exec(db, path, tables_v5, err);
}

/* rank_step by one packed key (sql.h); its metric columns are those the file has */
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
                   "DROP VIEW IF EXISTS rank_steps; CREATE TABLE rank_packed(key INTEGER PRIMARY "
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

/* forward only: entry i brings a file from version i to i + 1 */
typedef bt_code (*migration)(sqlite3 *db, const char *path, bt_err *err);
static const migration migrations[BT_SCHEMA_VERSION] = {
    run_tables_v1, run_tables_v2, pack_rank_keys, run_tables_v4, run_tables_v5};

/* ---- views ---- */

#define ISO(us) "strftime('%Y-%m-%dT%H:%M:%fZ', " us " / 1e6, 'unixepoch')"
#define LIVE(t) \
    " FROM run r JOIN attempt a ON a.run = r.id JOIN " t " s ON s.aid = a.id AND s.step < " \
    "a.live_to"
#define EVERY(t) " FROM run r JOIN attempt a ON a.run = r.id JOIN " t " s ON s.aid = a.id"
#define STEP_KEYS \
    "r.name AS run, a.attempt AS attempt, s.step AS step, (s.wall_us - r.created_us) / 1e6 AS " \
    "time_s"

/* {head, scope of the metric columns or -1, tail} */
static const struct {
    const char *name, *head;
    int scope;
    const char *tail;
} views[] = {
    {"steps", STEP_KEYS, BT_SCOPE_STEP, ", s.flags AS flags" LIVE("step")},
    {"all_steps", STEP_KEYS ", s.step < a.live_to AS live", BT_SCOPE_STEP,
     ", s.flags AS flags" EVERY("step")},
    /* through `step`, so that a range of steps is a range of keys */
    {"rank_steps",
     "r.name AS run, a.attempt AS attempt, t.step AS step, CAST(s.key & 65535 AS INTEGER) AS rank",
     BT_SCOPE_RANK,
     " FROM run r JOIN attempt a ON a.run = r.id JOIN step t ON t.aid = a.id AND t.step < a.live_to"
     " JOIN rank_step s ON s.key BETWEEN (a.id << 46) + (t.step << 16) AND (a.id << 46) + (t.step "
     "<< 16) + 65535"},
    {"layers",
     "r.name AS run, a.attempt AS attempt, s.step AS step, s.layer AS layer, s.tensor AS tensor",
     BT_SCOPE_LAYER, LIVE("layer_stat")},
    {"comm_ops",
     "r.name AS run, a.attempt AS attempt, s.step AS step, s.rank AS rank, s.op AS op, s.axis AS "
     "axis",
     BT_SCOPE_COMM, LIVE("comm_op")},
    {"comm_pairs",
     "r.name AS run, a.attempt AS attempt, s.step AS step, s.rank AS rank, s.peer AS peer",
     BT_SCOPE_PAIR, LIVE("comm_pair")},
    {"runs",
     "r.name AS run, r.state AS state, r.world AS ranks, r.last_step + 1 AS steps, r.tokens AS "
     "tokens, r.loss AS loss,"
     " r.val_loss AS val_loss, r.best_val AS best_val, r.best_val_step AS best_val_step, "
     "r.tokens_per_s AS tokens_per_s,"
     " r.step_us / 1e3 AS step_ms, r.mfu AS mfu, r.comm_overhead AS comm_overhead, r.bytes_wire AS "
     "bytes_wire, r.rss_kib / 1024.0 AS rss_mib,"
     " CASE WHEN coalesce(r.ended_us, r.last_us) > r.created_us THEN min(1.0, r.first_time_us * "
     "1.0 / (coalesce(r.ended_us, r.last_us) - r.created_us)) END AS goodput,"
     " r.first_time_us / 1e6 AS productive_s, r.redone_us / 1e6 AS redone_s, r.n_attempts AS "
     "attempts, " ISO(
         "r.created_us") " AS started,"
                         " r.created_us / 1e6 AS started_s, " ISO(
                             "r.ended_us") " AS ended, r.ended_us / 1e6 AS ended_s,"
                                           " (coalesce(r.ended_us, r.last_us, r.created_us) - "
                                           "r.created_us) / 1e6 AS duration_s, r.last_us / 1e6 AS "
                                           "updated_s,"
                                           " r.exit_kind AS exit_kind, r.exit_code AS exit_code, "
                                           "r.seed AS seed, r.host AS host, r.user AS user, r.pid "
                                           "AS pid, r.build AS build,"
                                           " r.mpi AS mpi, r.note AS note, r.tags AS tags, "
                                           "r.out_dir AS out_dir, r.spark AS spark, r.dropped AS "
                                           "dropped, r.rev AS rev,"
                                           " d.argv AS argv, d.config AS config",
     -1, " FROM run r LEFT JOIN run_doc d ON d.run = r.id"},
    {"attempts",
     "r.name AS run, a.attempt AS attempt, a.from_step AS from_step, nullif(a.live_to, "
     "9223372036854775807) AS live_to, a.raw_from AS raw_from, " ISO(
         "a.started_us") " AS started, a.started_us / 1e6 AS started_s, " ISO("a.ended_us") " AS "
                                                                                            "ended,"
                                                                                            " a."
                                                                                            "ended_"
                                                                                            "us / "
                                                                                            "1e6 "
                                                                                            "AS "
                                                                                            "ended_"
                                                                                            "s,"
                                                                                            " a."
                                                                                            "reason"
                                                                                            " AS "
                                                                                            "reason"
                                                                                            ", "
                                                                                            "a."
                                                                                            "world "
                                                                                            "AS "
                                                                                            "world_"
                                                                                            "size, "
                                                                                            "a."
                                                                                            "host "
                                                                                            "AS "
                                                                                            "host, "
                                                                                            "a.pid "
                                                                                            "AS "
                                                                                            "pid, "
                                                                                            "a."
                                                                                            "exit_"
                                                                                            "kind "
                                                                                            "AS "
                                                                                            "exit_"
                                                                                            "kind, "
                                                                                            "a."
                                                                                            "exit_"
                                                                                            "code "
                                                                                            "AS "
                                                                                            "exit_"
                                                                                            "code",
     -1, " FROM run r JOIN attempt a ON a.run = r.id"},
    {"ranks",
     "r.name AS run, a.attempt AS attempt, k.rank AS rank, k.host AS host, k.pid AS pid, k.isa AS "
     "isa, k.threads AS threads,"
     " k.pp AS pp, k.dp_replicate AS dp_replicate, k.dp_shard AS dp_shard, k.tp AS tp",
     -1, " FROM run r JOIN attempt a ON a.run = r.id JOIN rank k ON k.aid = a.id"},
    {"events",
     "e.seq AS seq, r.name AS run, a.attempt AS attempt, (e.t_us - r.created_us) / 1e6 AS "
     "time_s, " ISO("e.t_us") " AS time,"
                              " e.step AS step, e.rank AS rank, e.kind AS kind, CASE e.level WHEN "
                              "0 THEN 'info' WHEN 1 THEN 'warning' ELSE 'error' END AS level,"
                              " e.title AS title, e.body AS body",
     -1, " FROM run r JOIN event e ON e.run = r.id LEFT JOIN attempt a ON a.id = e.aid"},
    {"checkpoints",
     "r.name AS run, c.attempt AS attempt, c.step AS step, (c.t_us - r.created_us) / 1e6 AS "
     "time_s, c.path AS path,"
     " c.bytes AS bytes, c.took_us / 1e3 AS took_ms, c.hash AS hash",
     -1, " FROM run r JOIN ckpt c ON c.run = r.id"},
    {"facts", "r.name AS run, f.key AS key, f.value AS value, f.attempt AS attempt", -1,
     " FROM run r JOIN fact f ON f.run = r.id"},
    {"metrics",
     "CASE scope WHEN 'step' THEN 'steps' WHEN 'rank' THEN 'rank_steps' WHEN 'comm' THEN "
     "'comm_ops' WHEN 'pair' THEN 'comm_pairs' ELSE 'layers' END AS view, key, unit, meaning, "
     "panel",
     -1, " FROM metric"},
    /* one row an option; config is {"key": {"value": ..., "origin": ...}} or {"key": value} */
    {"configs",
     "r.name AS run, j.key AS key, CASE WHEN j.type IN ('true', 'false') THEN j.type WHEN j.type "
     "<> 'object' THEN j.value"
     " WHEN json_type(j.value, '$.value') IN ('true', 'false') THEN json_type(j.value, '$.value') "
     "ELSE json_extract(j.value, '$.value') END AS value,"
     " CASE j.type WHEN 'object' THEN json_extract(j.value, '$.origin') END AS origin,"
     " CASE j.type WHEN 'object' THEN json_extract(j.value, '$.where') END AS place",
     -1,
     " FROM run r JOIN run_doc d ON d.run = r.id JOIN json_each(CASE WHEN json_valid(d.config) "
     "THEN d.config ELSE '{}' END) j"},
};

static bt_code create_view(sqlite3 *db, const char *path, size_t v, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_text_printf(&sql, "DROP VIEW IF EXISTS %s; CREATE VIEW %s AS SELECT %s", views[v].name,
                   views[v].name, views[v].head);
    bt_code code = BT_OK;
    if (views[v].scope >= 0) {
        sqlite3_stmt *st = NULL;
        code = bt_sql_prepare(
            db, path, "SELECT key, col, scale FROM metric WHERE scope = ? ORDER BY pos", &st, err);
        if (code == BT_OK) sqlite3_bind_text(st, 1, scopes[views[v].scope].name, -1, SQLITE_STATIC);
        while (code == BT_OK && sqlite3_step(st) == SQLITE_ROW) {
            double scale = sqlite3_column_double(st, 2);
            bt_text_printf(&sql, ", s.\"%s\"", (const char *)sqlite3_column_text(st, 1));
            if (scale > 1 || scale < 1) bt_text_printf(&sql, " / %.1f", scale);
            bt_text_printf(&sql, " AS \"%s\"", (const char *)sqlite3_column_text(st, 0));
        }
        sqlite3_finalize(st);
    }
    bt_text_put(&sql, views[v].tail);
    if (code == BT_OK && sql.failed)
        code = bt_fail(err, BT_NOMEM, "cannot build the views of '%s': out of memory", path);
    if (code == BT_OK) code = bt_sql_exec(db, path, bt_text_str(&sql), err);
    bt_text_release(&sql);
    return code;
}

/* metrics of this program that the file does not know yet: a row in `metric` and a column each;
 * *added counts them */
static bt_code add_metrics(sqlite3 *db, const char *path, bool look_only, int *added, bt_err *err) {
    sqlite3_stmt *find = NULL, *put = NULL;
    bt_code code = bt_sql_prepare(db, path, "SELECT 1 FROM metric WHERE scope = ? AND key = ?",
                                  &find, err);
    if (code == BT_OK && !look_only) {
        code = bt_sql_prepare(
            db, path,
            "INSERT INTO metric(scope, key, pos, unit, panel, meaning, col, scale) VALUES (?,?,"
            "(SELECT count(*) FROM metric),?,?,?,?,?)",
            &put, err);
    }
    for (int s = 0; s < BT_SCOPE_COUNT && code == BT_OK; s++) {
        const bt_metric *list;
        int n = bt_scope_metrics((bt_scope)s, &list);
        for (int i = 0; i < n && code == BT_OK; i++) {
            bt_column c;
            bt_column_of((bt_scope)s, &list[i], &c);
            sqlite3_reset(find);
            sqlite3_bind_text(find, 1, scopes[s].name, -1, SQLITE_STATIC);
            sqlite3_bind_text(find, 2, list[i].key, -1, SQLITE_STATIC);
            int rc = sqlite3_step(find);
            sqlite3_reset(find);
            if (rc == SQLITE_ROW) continue;
            if (rc != SQLITE_DONE) {
                code = bt_sql_fail(db, rc, path, "read", err);
                break;
            }
            ++*added;
            if (look_only) continue;
            char sql[256];
            snprintf(sql, sizeof sql, "ALTER TABLE %s ADD COLUMN \"%s\" %s", scopes[s].table,
                     c.name, c.integer ? "INTEGER" : "REAL");
            code = bt_sql_exec(db, path, sql, err);
            if (code != BT_OK) break;
            sqlite3_reset(put);
            sqlite3_bind_text(put, 1, scopes[s].name, -1, SQLITE_STATIC);
            sqlite3_bind_text(put, 2, list[i].key, -1, SQLITE_STATIC);
            sqlite3_bind_text(put, 3, bt_unit_name(list[i].unit), -1, SQLITE_STATIC);
            sqlite3_bind_text(put, 4, bt_panel_name(list[i].panel), -1, SQLITE_STATIC);
            sqlite3_bind_text(put, 5, list[i].help, -1, SQLITE_STATIC);
            sqlite3_bind_text(put, 6, c.name, -1, SQLITE_TRANSIENT);
            sqlite3_bind_double(put, 7, c.scale);
            rc = sqlite3_step(put);
            if (rc != SQLITE_DONE) code = bt_sql_fail(db, rc, path, "update", err);
        }
    }
    sqlite3_finalize(find);
    sqlite3_finalize(put);
    return code;
}

/* a number for the views of this program; meta.views says which ones the file has */
static int64_t views_mark(void) {
    uint64_t h = 0;
    for (size_t v = 0; v < sizeof views / sizeof views[0]; v++)
        h = h * 31 + bt_hash_name(views[v].name) + 7 * bt_hash_name(views[v].head) +
            11 * bt_hash_name(views[v].tail);
    return (int64_t)(h >> 1);
}

static bool views_differ(sqlite3 *db) {
    return bt_sql_int(db, "SELECT value FROM meta WHERE key = 'views'", -1) != views_mark();
}

/* ---- versions ---- */

/* BT_FORMAT unless the file is ours; *version 0: an empty new file */
static bt_code identify(sqlite3 *db, const char *path, int64_t *version, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(db, path, "SELECT count(*) FROM sqlite_schema", &st, err));
    int rc = sqlite3_step(st);
    int64_t things = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : -1;
    bt_code code = rc == SQLITE_ROW ? BT_OK : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    if (code != BT_OK) return code;
    int64_t id = bt_sql_int(db, "PRAGMA application_id", -1);
    *version = bt_sql_int(db, "PRAGMA user_version", -1);
    if (things == 0 && id == 0 && *version == 0) return BT_OK;
    if (id != BT_APPLICATION_ID)
        return bt_fail(
            err, BT_FORMAT,
            "'%s' is a database of another program, not of bitrain (choose another --store)", path);
    if (*version > BT_SCHEMA_VERSION) {
        return bt_fail(err, BT_FORMAT,
                       "metrics database '%s' was written by a newer bitrain (schema %lld, this "
                       "program knows %d): upgrade bitrain",
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
    BT_TRY(identify(db, path, &version, err));
    if (version == 0)
        return bt_fail(err, BT_FORMAT, "'%s' is not a metrics database of bitrain (an empty file)",
                       path);
    if (version == BT_SCHEMA_VERSION) BT_TRY(add_metrics(db, path, true, &missing, err));
    *outdated = version < BT_SCHEMA_VERSION || missing > 0 || views_differ(db);
    return BT_OK;
}

static bt_code upgrade(sqlite3 *db, const char *path, int64_t version, bt_err *err) {
    int added = 0;
    char sql[200];
    for (int64_t v = version; v < BT_SCHEMA_VERSION; v++) BT_TRY(migrations[v](db, path, err));
    BT_TRY(add_metrics(db, path, false, &added, err));
    for (size_t v = 0; v < sizeof views / sizeof views[0]; v++)
        BT_TRY(create_view(db, path, v, err));
    snprintf(sql, sizeof sql,
             "INSERT OR REPLACE INTO meta(key, value) VALUES ('views', %lld); PRAGMA "
             "application_id=%d; PRAGMA user_version=%d",
             (long long)views_mark(), BT_APPLICATION_ID, BT_SCHEMA_VERSION);
    return bt_sql_exec(db, path, sql, err);
}

bt_code bt_schema_apply(sqlite3 *db, const char *path, bt_err *err) {
    int64_t version = 0;
    int missing = 0;
    BT_TRY(identify(db, path, &version, err));
    if (version == 0)
        BT_TRY(bt_sql_exec(db, path, "PRAGMA page_size=4096; PRAGMA auto_vacuum=INCREMENTAL", err));
    BT_TRY(bt_sql_exec(db, path, "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL", err));
    if (version == BT_SCHEMA_VERSION) {
        BT_TRY(add_metrics(db, path, true, &missing, err));
        if (missing == 0 && !views_differ(db)) return BT_OK;
    }
    BT_TRY(bt_sql_exec(db, path, "BEGIN IMMEDIATE", err));
    bt_code code = upgrade(db, path, version, err);
    if (code == BT_OK) code = bt_sql_exec(db, path, "COMMIT", err);
    if (code != BT_OK) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return code;
}
