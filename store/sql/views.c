/* views.c - the public views, on which users and scripts rely. Views of scopes are derived from scopes.def and the
 * file's `metric` table, so that a file of a newer bitrain keeps its columns. */
#include <stdio.h>

#include "engine/base/rng.h"
#include "engine/base/tables/derived.h"
#include "store/sql/expand.h"
#include "store/sql/sql.h"

/* clang-format off */
#define ISO(us) "strftime('%Y-%m-%dT%H:%M:%fZ', " us " / 1e6, 'unixepoch')"
#define RUN_KEYS "r.name AS run, a.attempt AS attempt, "
#define STEP_KEYS RUN_KEYS "s.step AS step, (s.wall_us - r.created_us) / 1e6 AS time_s"
#define ATTEMPTS " FROM run r JOIN attempt a ON a.run = r.id"

_Static_assert(BT_AID_SHIFT == 46 && BT_RANK_BITS == 16, "the view rank_steps contains these numbers");
_Static_assert(BT_GAP_STEPS == 64, "the view evaluations contains this number");

typedef struct view {
    const char *name, *head;
    int scope; /* scope whose metric columns are inserted between head and tail, or -1 */
    const char *tail;
} view;

static const view fixed[] = {
    {"steps", STEP_KEYS, BT_SCOPE_STEP,
     ", s.flags AS flags" ATTEMPTS " JOIN step s ON s.aid = a.id AND s.step < a.live_to"},
    {"all_steps", STEP_KEYS ", s.step < a.live_to AS live", BT_SCOPE_STEP,
     ", s.flags AS flags" ATTEMPTS " JOIN step s ON s.aid = a.id"},
    /* selects by key, so that a range of steps is a range of keys */
    {"rank_steps", RUN_KEYS "t.step AS step, CAST(s.key & 65535 AS INTEGER) AS rank", BT_SCOPE_RANK,
     ATTEMPTS " JOIN step t ON t.aid = a.id AND t.step < a.live_to"
     " JOIN rank_step s ON s.key BETWEEN (a.id << 46) + (t.step << 16)"
     " AND (a.id << 46) + (t.step << 16) + 65535"},
    {"rank_phases",
     "k.run AS run, k.attempt AS attempt, k.step AS step, k.rank AS rank, p.column1 AS phase,"
     " CASE p.column1 {phases |WHEN '#' THEN k.@} END AS ms", -1,
     " FROM rank_steps k CROSS JOIN (VALUES {phases, |('#')}) p"},
    {"runs",
     /* the row of a paused run has the state running */
     "r.name AS run, CASE WHEN r.state = 'running' AND (SELECT e.kind FROM event e WHERE e.run = r.id"
     " AND e.kind IN ({paces, |'@'}) ORDER BY e.seq DESC LIMIT 1) IN ({pauses, |'@'})"
     " THEN 'paused' ELSE r.state END AS state,"
     " r.world AS ranks, r.last_step + 1 AS steps, r.tokens AS tokens,"
     " {passes(r.tokens, (SELECT CAST(f.value AS REAL) FROM fact f WHERE f.run = r.id"
     " AND f.key IN ('data.epoch_tokens', 'data.tokens') ORDER BY f.key LIMIT 1))} AS passes,"
     " r.loss AS loss, r.val_loss AS val_loss, r.best_val AS best_val, r.best_val_step AS best_val_step,"
     " r.tokens_per_s AS tokens_per_s, r.step_us / 1e3 AS step_ms, r.mfu AS mfu, r.comm_overhead AS comm_overhead,"
     " r.bytes_wire AS bytes_wire, r.rss_kib / 1024.0 AS rss_mib,"
     " r.energy_j AS energy_j, r.energy_j / nullif(r.tokens, 0) AS token_j,"
     " {goodput(r.productive_us, {times + |r.@_us} - r.finished_us)} AS goodput,"
     " {times, |r.@_us / 1e6 AS @_s}, r.n_attempts AS attempts,"
     " " ISO("r.created_us") " AS started, r.created_us / 1e6 AS started_s,"
     " " ISO("r.ended_us") " AS ended, r.ended_us / 1e6 AS ended_s,"
     " coalesce({times + |r.@_us}, coalesce(r.ended_us, r.last_us, r.created_us) - r.created_us) / 1e6 AS duration_s,"
     " r.last_us / 1e6 AS updated_s, r.exit_kind AS exit_kind, r.exit_code AS exit_code, r.seed AS seed,"
     " r.host AS host, r.user AS user, r.pid AS pid, r.build AS build, r.mpi AS mpi, r.note AS note,"
     " r.tags AS tags, r.out_dir AS out_dir, r.spark AS spark,"
     " r.dropped AS dropped, r.rev AS rev, d.argv AS argv, d.config AS config", -1,
     " FROM run r LEFT JOIN run_doc d ON d.run = r.id"},
    {"evaluations",
     "v.run AS run, v.attempt AS attempt, v.step AS step, v.tokens AS tokens, v.val_loss AS val_loss,"
     " v.train_loss AS train_loss, {val_gap(v.val_loss, v.train_loss)} AS val_gap"
     " FROM (SELECT e.run AS run, k.attempt AS attempt, e.step AS step, k.tokens AS tokens, k.val_loss AS val_loss,"
     " (SELECT avg(t.loss) FROM steps t WHERE t.run = e.run AND t.step > e.step - 64"
     " AND t.step <= e.step) AS train_loss"
     " FROM (SELECT DISTINCT run, step FROM events WHERE kind = 'evaluation' AND step >= 0) e"
     " JOIN steps k ON k.run = e.run AND k.step = e.step WHERE k.val_loss IS NOT NULL) v", -1, ""},
    {"attempts",
     RUN_KEYS "a.from_step AS from_step, nullif(a.live_to, 9223372036854775807) AS live_to, a.raw_from AS raw_from,"
     " " ISO("a.started_us") " AS started, a.started_us / 1e6 AS started_s,"
     " " ISO("a.ended_us") " AS ended, a.ended_us / 1e6 AS ended_s,"
     " a.reason AS reason, a.world AS world_size, a.host AS host, a.pid AS pid, a.exit_kind AS exit_kind,"
     " a.exit_code AS exit_code", -1,
     ATTEMPTS},
    {"ranks",
     RUN_KEYS "k.rank AS rank, k.host AS host, k.pid AS pid, k.isa AS isa, k.threads AS threads,"
     " k.pp AS pp, k.dp_replicate AS dp_replicate, k.dp_shard AS dp_shard, k.tp AS tp", -1,
     ATTEMPTS " JOIN rank k ON k.aid = a.id"},
    {"events",
     "e.seq AS seq, r.name AS run, a.attempt AS attempt, (e.t_us - r.created_us) / 1e6 AS time_s,"
     " " ISO("e.t_us") " AS time, e.step AS step, e.rank AS rank, e.kind AS kind,"
     " CASE e.level WHEN 0 THEN 'info' WHEN 1 THEN 'warning' ELSE 'error' END AS level,"
     " e.title AS title, e.body AS body", -1,
     " FROM run r JOIN event e ON e.run = r.id LEFT JOIN attempt a ON a.id = e.aid WHERE e.kind <> 'output'"},
    {"log_lines",
     "e.seq AS seq, r.name AS run, a.attempt AS attempt, (e.t_us - r.created_us) / 1e6 AS time_s,"
     " " ISO("e.t_us") " AS time, e.rank AS rank, k.host AS host,"
     " CASE WHEN e.title LIKE '%error%' OR e.title LIKE '%abort%' OR e.title LIKE '%signal%' THEN 'error'"
     " WHEN e.title LIKE '%warn%' THEN 'warning' ELSE 'info' END AS level,"
     " e.title AS text", -1,
     " FROM run r JOIN event e ON e.run = r.id LEFT JOIN attempt a ON a.id = e.aid"
     " LEFT JOIN rank k ON k.aid = e.aid AND k.rank = e.rank WHERE e.kind = 'output'"},
    {"checkpoints",
     "r.name AS run, c.attempt AS attempt, c.step AS step, (c.t_us - r.created_us) / 1e6 AS time_s, c.path AS path,"
     " c.bytes AS bytes, c.took_us / 1e3 AS took_ms, c.hash AS hash", -1,
     " FROM run r JOIN ckpt c ON c.run = r.id"},
    {"facts", "r.name AS run, f.key AS key, f.value AS value, f.attempt AS attempt", -1,
     " FROM run r JOIN fact f ON f.run = r.id AND f.key <> 'clock'"},
    {"metrics", "s.view AS view, m.key AS key, m.unit AS unit, m.meaning AS meaning, m.panel AS panel", -1,
     " FROM metric m JOIN scope s ON s.name = m.scope"},
    /* one row per option; config is {"key": {"value": ..., "origin": ...}} or {"key": value} */
    {"configs",
     "r.name AS run, j.key AS key, CASE WHEN j.type IN ('true', 'false') THEN j.type"
     " WHEN j.type <> 'object' THEN j.value"
     " WHEN json_type(j.value, '$.value') IN ('true', 'false') THEN json_type(j.value, '$.value')"
     " ELSE json_extract(j.value, '$.value') END AS value,"
     " CASE j.type WHEN 'object' THEN json_extract(j.value, '$.origin') END AS origin,"
     " CASE j.type WHEN 'object' THEN json_extract(j.value, '$.where') END AS place", -1,
     " FROM run r JOIN run_doc d ON d.run = r.id"
     " JOIN json_each(CASE WHEN json_valid(d.config) THEN d.config ELSE '{}' END) j"},
};
/* clang-format on */
enum { N_FIXED = sizeof fixed / sizeof fixed[0], N_VIEWS = N_FIXED + BT_SCOPE_COUNT };

/* Returns the SQL of a view before and after its metric columns; false: the scope's view is in the table `fixed`. */
static bool compose_view_parts(size_t v, view *out, bt_text *head, bt_text *tail) {
    if (v < N_FIXED) {
        *out = fixed[v];
        bt_text_put(head, out->head);
        bt_text_put(tail, out->tail);
        return true;
    }
    const bt_scope_row *s = &bt_scopes[v - N_FIXED];
    *out = (view){.name = s->view, .scope = (int)(v - N_FIXED)};
    bt_text_put(head, RUN_KEYS "s.step AS step");
    for (int k = 0; k < s->n_keys; k++)
        bt_text_printf(head, ", s.\"%s\" AS \"%s\"", s->key[k].name, s->key[k].name);
    bt_text_printf(tail, ATTEMPTS " JOIN %s s ON s.aid = a.id AND s.step < a.live_to", s->table);
    return s->kept == BT_KEPT_SAMPLED;
}

static bt_code put_metric_columns(sqlite3 *db, const char *path, int scope, bt_text *sql,
                                  bt_err *err) {
    sqlite3_stmt *st = NULL;
    if (scope < 0) return BT_OK;
    BT_TRY(bt_sql_prepare(
        db, path, "SELECT key, col, scale FROM metric WHERE scope = ? ORDER BY pos", &st, err));
    sqlite3_bind_text(st, 1, bt_scopes[scope].name, -1, SQLITE_STATIC);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        double scale = sqlite3_column_double(st, 2);
        bt_text_printf(sql, ", s.\"%s\"", (const char *)sqlite3_column_text(st, 1));
        if (scale > 1 || scale < 1) bt_text_printf(sql, " / %.1f", scale);
        bt_text_printf(sql, " AS \"%s\"", (const char *)sqlite3_column_text(st, 0));
    }
    const bt_code code = rc == SQLITE_DONE ? BT_OK : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    return code;
}

/* Composes CREATE VIEW; without a database it omits the metric columns, which the file defines. *sql is empty for a
 * scope whose view is in the table `fixed`. */
static bt_code create_view_sql(size_t v, sqlite3 *db, const char *path, bt_text *sql, bt_err *err) {
    bt_text head, tail;
    view w;
    bt_text_init(&head);
    bt_text_init(&tail);
    bt_code code = BT_OK;
    const bool own = compose_view_parts(v, &w, &head, &tail);
    if (head.failed || tail.failed)
        code = bt_fail(err, BT_NOMEM, "cannot take memory for the views of the database");
    if (own && code == BT_OK) {
        bt_text_printf(sql, "CREATE VIEW %s AS SELECT ", w.name);
        code = bt_sql_expand(sql, bt_text_str(&head), err);
        if (db && code == BT_OK) code = put_metric_columns(db, path, w.scope, sql, err);
        if (code == BT_OK) code = bt_sql_expand(sql, bt_text_str(&tail), err);
    }
    bt_text_release(&head);
    bt_text_release(&tail);
    return code;
}

static bt_code create_view(sqlite3 *db, const char *path, size_t v, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_code code = create_view_sql(v, db, path, &sql, err);
    if (code == BT_OK && sql.len) code = bt_sql_exec(db, path, bt_text_str(&sql), err);
    bt_text_release(&sql);
    return code;
}

/* Hash of this program's views; meta.views stores that of the file. */
static bt_code hash_view_definitions(int64_t *out, bt_err *err) {
    bt_text all;
    bt_text_init(&all);
    bt_code code = BT_OK;
    for (size_t v = 0; v < N_VIEWS && code == BT_OK; v++)
        code = create_view_sql(v, NULL, NULL, &all, err);
    *out = (int64_t)(bt_hash_name(bt_text_str(&all)) >> 1);
    bt_text_release(&all);
    return code;
}

bt_code bt_views_check(sqlite3 *db, const char *path, bool *differ, bt_err *err) {
    int64_t theirs = -1, ours;
    BT_TRY(bt_sql_get(db, path, "SELECT value FROM meta WHERE key = 'views'", &theirs, err));
    BT_TRY(hash_view_definitions(&ours, err));
    *differ = theirs != ours;
    return BT_OK;
}

bt_code bt_views_drop(sqlite3 *db, const char *path, bt_err *err) {
    for (size_t v = 0; v < N_VIEWS; v++) {
        char sql[120];
        snprintf(sql, sizeof sql, "DROP VIEW IF EXISTS \"%s\"",
                 v < N_FIXED ? fixed[v].name : bt_scopes[v - N_FIXED].view);
        BT_TRY(bt_sql_exec(db, path, sql, err));
    }
    return BT_OK;
}

bt_code bt_views_create(sqlite3 *db, const char *path, bt_err *err) {
    for (size_t v = 0; v < N_VIEWS; v++) BT_TRY(create_view(db, path, v, err));
    char sql[120];
    int64_t ours;
    BT_TRY(hash_view_definitions(&ours, err));
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta(key, value) VALUES ('views', %lld)",
             (long long)ours);
    return bt_sql_exec(db, path, sql, err);
}
