/* manage.c - removes, renames, tags and annotates runs, and compacts the file. */
#include "store/write/manage.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/system/ascii.h"
#include "store/record/ring.h"
#include "store/sql/sql.h"
#include "store/write/retain.h"
#include "store/write/rollup.h"

enum { CHUNK_ROWS = 20000 };

typedef struct session {
    const char *path;
    sqlite3 *db;
    bt_lock lock;
    double wait_s;
} session;

/* ---- a writer for a moment ---- */

static void leave_session(session *s) {
    sqlite3_close(s->db);
    bt_lock_close(&s->lock);
}

static bt_code enter_session(session *s, const char *path, double wait_s, bt_err *err) {
    struct stat st;
    *s = (session){.path = path, .wait_s = wait_s, .lock.fd = -1};
    if (stat(path, &st) != 0) return bt_fail(err, BT_NOTFOUND, "no metrics database at '%s'", path);
    bt_code code = bt_sql_open_rw(&s->db, path, err);
    if (code == BT_OK) code = bt_lock_open(&s->lock, path, err);
    if (code == BT_OK) code = bt_lock_take(&s->lock, wait_s, err);
    if (code == BT_OK) {
        code = bt_schema_apply(s->db, path, err);
        bt_lock_drop(&s->lock);
    }
    if (code != BT_OK) leave_session(s);
    return code;
}

static bt_code begin_session(session *s, bt_err *err) {
    BT_TRY(bt_lock_take(&s->lock, s->wait_s, err));
    bt_code code = bt_sql_exec(s->db, s->path, "BEGIN IMMEDIATE", err);
    if (code != BT_OK) bt_lock_drop(&s->lock);
    return code;
}

static bt_code end_session(session *s, bt_code code, bt_err *err) {
    if (code == BT_OK) code = bt_sql_exec(s->db, s->path, "COMMIT", err);
    if (!sqlite3_get_autocommit(s->db)) sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
    bt_lock_drop(&s->lock);
    return code;
}

/* Runs one statement with texts bound in order; *changes may be NULL. */
static bt_code run_text_statement(session *s, const char *sql, const char *const *texts,
                                  int64_t *changes, bt_err *err) {
    sqlite3_stmt *st = NULL;
    BT_TRY(bt_sql_prepare(s->db, s->path, sql, &st, err));
    for (int i = 0; i < sqlite3_bind_parameter_count(st); i++)
        // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a statement with parameters has texts
        sqlite3_bind_text(st, i + 1, texts[i], -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    bt_code code = rc == SQLITE_DONE || rc == SQLITE_ROW
                       ? BT_OK
                       : bt_sql_fail(s->db, rc, s->path, "write", err);
    sqlite3_finalize(st);
    if (changes) *changes = sqlite3_changes64(s->db);
    return code;
}

/* ---- rm ---- */

static bt_code fail_being_trained(const session *s, const char *run, int pid, bt_err *err) {
    bt_text store;
    bt_text_init(&store);
    bt_store_flag(&store, s->path);
    bt_fail(err, BT_BUSY,
            "run '%s' is being trained by pid %d (stop it first: bitrain ctl %s stop%s)", run, pid,
            run, bt_text_str(&store));
    bt_text_release(&store);
    return BT_BUSY;
}

/* BT_NOTFOUND, or BT_BUSY while a process of this machine trains it. */
static bt_code check_run_has_ended(session *s, const char *run, bt_err *err) {
    sqlite3_stmt *st = NULL;
    char here[BT_HOST_MAX] = "";
    bt_code code = BT_OK;
    gethostname(here, sizeof here - 1);
    BT_TRY(bt_sql_prepare(s->db, s->path, "SELECT state, host, pid FROM run WHERE name = ?", &st,
                          err));
    sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
    if (sqlite3_step(st) != SQLITE_ROW)
        code = bt_fail(err, BT_NOTFOUND, "no run '%s' (`bitrain runs` lists them)", run);
    else {
        const char *state = (const char *)sqlite3_column_text(st, 0),
                   *host = (const char *)sqlite3_column_text(st, 1);
        int pid = sqlite3_column_int(st, 2);
        bool elsewhere = host && strcmp(host, here) != 0;
        if (state && strcmp(state, "running") == 0 && pid > 0 && !elsewhere &&
            (kill(pid, 0) == 0 || errno == EPERM))
            code = fail_being_trained(s, run, pid, err);
    }
    sqlite3_finalize(st);
    return code;
}

/* Returns the first attempt that has rows in the table of a scope but no longer exists; 0: none. */
static int64_t find_orphaned_attempt(session *s, const bt_scope_row *scope) {
    bool packed = scope->kept == BT_KEPT_PACKED;
    const char *t = scope->table;
    char sql[480];
    snprintf(sql, sizeof sql,
             packed ? "SELECT min(x) FROM (WITH RECURSIVE ids(x) AS (SELECT (SELECT min(key) FROM "
                      "%s) >> 46 UNION ALL SELECT (SELECT min(key) FROM %s WHERE key >= (x + 1) << "
                      "46) >> 46 FROM ids WHERE x IS NOT NULL) SELECT x FROM ids WHERE x NOT IN "
                      "(SELECT id FROM attempt))"
                    : "SELECT min(x) FROM (WITH RECURSIVE ids(x) AS (SELECT (SELECT min(aid) FROM "
                      "%s) UNION ALL SELECT (SELECT min(aid) FROM %s WHERE aid > x) FROM ids WHERE "
                      "x IS NOT NULL) SELECT x FROM ids WHERE x NOT IN (SELECT id FROM attempt))",
             t, t);
    return bt_sql_int(s->db, sql, 0); /* NULL reads as 0 */
}

/* Deletes the first CHUNK_ROWS rows of an attempt; *gone: their number. */
static bt_code delete_rows(session *s, const bt_scope_row *scope, int64_t aid, int64_t *gone,
                           bt_err *err) {
    const char *t = scope->table;
    const long long a = aid;
    char sql[480];
    if (scope->kept == BT_KEPT_PACKED)
        snprintf(
            sql, sizeof sql,
            "DELETE FROM %s WHERE key BETWEEN %lld << 46 AND (SELECT max(key) FROM (SELECT key "
            "FROM %s WHERE key >= %lld << 46 AND key < (%lld + 1) << 46 ORDER BY key LIMIT "
            "%d))",
            t, a, t, a, a, CHUNK_ROWS);
    else
        snprintf(sql, sizeof sql,
                 "DELETE FROM %s WHERE aid = %lld AND step <= (SELECT max(step) FROM (SELECT step "
                 "FROM %s WHERE aid = %lld ORDER BY step LIMIT %d))",
                 t, a, t, a, CHUNK_ROWS);
    BT_TRY(begin_session(s, err));
    bt_code code = run_text_statement(s, sql, NULL, gone, err);
    return end_session(s, code, err);
}

/* Deletes rows without an attempt, the rest of a removed run. Works in chunks and releases the lock in between. */
static bt_code delete_orphan_rows(session *s, int64_t *rows, bt_err *err) {
    int64_t gone = 0, aid;
    for (int k = 0; k < BT_SCOPE_COUNT; k++) {
        const bt_scope_row *scope = &bt_scopes[k];
        while ((aid = find_orphaned_attempt(s, scope)) != 0) {
            BT_TRY(delete_rows(s, scope, aid, &gone, err));
            if (gone == 0) break;
            *rows += gone;
        }
    }
    BT_TRY(begin_session(s, err));
    bt_code code = run_text_statement(
        s, "DELETE FROM roll WHERE (key >> 42) NOT IN (SELECT id FROM attempt)", NULL, &gone, err);
    if (code == BT_OK) *rows += gone;
    return end_session(s, code, err);
}

bt_code bt_runs_remove(const char *path, const char *const *runs, size_t n, double wait_s,
                       bt_err *err) {
    session s;
    int64_t rows = 0;
    BT_TRY(enter_session(&s, path, wait_s, err));
    bt_code code = begin_session(&s, err);
    /* All or none: dependent rows are deleted with the run, those of the long tables later. */
    if (code == BT_OK) {
        for (size_t i = 0; i < n && code == BT_OK; i++)
            code = check_run_has_ended(&s, runs[i], err);
        for (size_t i = 0; i < n && code == BT_OK; i++)
            code = run_text_statement(&s, "DELETE FROM run WHERE name = ?", &runs[i], NULL, err);
        code = end_session(&s, code, err);
    }
    if (code == BT_OK) code = delete_orphan_rows(&s, &rows, err);
    leave_session(&s);
    return code;
}

/* ---- tag, note ---- */

static bool find_tag(const char *list, const char *word, size_t n, size_t *at) {
    for (const char *p = list; *p;) {
        size_t m = strcspn(p, " ");
        if (m == n && memcmp(p, word, n) == 0) {
            *at = (size_t)(p - list);
            return true;
        }
        p += m + (p[m] == ' ');
    }
    return false;
}

static bool is_valid_tag(const char *name) {
    if (!name[0] || strchr("+- ", name[0])) return false;
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) return false;
    return true;
}

/* Converts a tag to its stored form: tags are separated by spaces, so their own spaces become no-break spaces
 * (U+00A0). */
static void stored_tag(char *out, size_t size, const char *tag) {
    size_t n = 0;
    for (; *tag && n + 2 < size; tag++) {
        if (*tag == ' ') out[n++] = '\xc2';
        out[n++] = *tag == ' ' ? '\xa0' : *tag;
    }
    out[n] = 0;
}

static bt_code edit_tags(char tags[256], const char *word, bt_err *err) {
    bool remove = word[0] == '-';
    char name[256];
    size_t at;
    word += word[0] == '-' || word[0] == '+';
    if (!is_valid_tag(word))
        return bt_fail(err, BT_ARG,
                       "'%.64s' is not a tag: a text without control characters that does not "
                       "begin with '+', '-' or a blank",
                       word);
    stored_tag(name, sizeof name, word);
    const size_t n = strlen(name);
    bool there = find_tag(tags, name, n, &at);
    if (remove && there) {
        size_t gone = n + (tags[at + n] == ' ');
        memmove(tags + at, tags + at + gone, strlen(tags + at + gone) + 1);
        size_t len = strlen(tags);
        if (len && tags[len - 1] == ' ') tags[len - 1] = 0;
    }
    if (!remove && !there) {
        size_t len = strlen(tags);
        if (len + n + 2 > 256)
            return bt_fail(err, BT_ARG, "too many tags: together they may have 255 bytes");
        snprintf(tags + len, 256 - len, "%s%s", len ? " " : "", name);
    }
    return BT_OK;
}

bt_code bt_run_tag(const char *path, const char *run, const char *const *words, size_t n,
                   double wait_s, char result[256], bt_err *err) {
    session s;
    sqlite3_stmt *st = NULL;
    result[0] = 0;
    BT_TRY(enter_session(&s, path, wait_s, err));
    bt_code code = begin_session(&s, err);
    if (code == BT_OK) {
        code = bt_sql_prepare(s.db, path, "SELECT tags FROM run WHERE name = ?", &st, err);
        if (code == BT_OK) sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
        if (code == BT_OK && sqlite3_step(st) != SQLITE_ROW)
            code = bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
        const char *tags = code == BT_OK ? (const char *)sqlite3_column_text(st, 0) : NULL;
        snprintf(result, 256, "%s", tags ? tags : "");
        sqlite3_finalize(st);
        for (size_t i = 0; i < n && code == BT_OK; i++) code = edit_tags(result, words[i], err);
        if (code == BT_OK)
            code = run_text_statement(
                &s, "UPDATE run SET tags = nullif(?, ''), rev = rev + 1 WHERE name = ?",
                (const char *[]){result, run}, NULL, err);
        code = end_session(&s, code, err);
    }
    leave_session(&s);
    return code;
}

bt_code bt_run_note(const char *path, const char *run, const char *text, double wait_s,
                    bt_err *err) {
    session s;
    int64_t changed = 0;
    if (strlen(text) > BT_NOTE_MAX)
        return bt_fail(err, BT_ARG, "the note has %zu bytes, at most %d are possible", strlen(text),
                       BT_NOTE_MAX);
    BT_TRY(enter_session(&s, path, wait_s, err));
    bt_code code = begin_session(&s, err);
    if (code == BT_OK) {
        code = run_text_statement(
            &s, "UPDATE run SET note = nullif(?, ''), rev = rev + 1 WHERE name = ?",
            (const char *[]){text, run}, &changed, err);
        if (code == BT_OK && changed == 0) code = bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
        code = end_session(&s, code, err);
    }
    leave_session(&s);
    return code;
}

/* ---- rename ---- */

static bool session_has_row(session *s, const char *sql, const char *text) {
    sqlite3_stmt *st = NULL;
    bt_err ignored = BT_ERR_INIT;
    if (bt_sql_prepare(s->db, s->path, sql, &st, &ignored) != BT_OK) return false;
    sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
    const bool found = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

/* True if the parent of the run's folder contains the list of a sweep. */
static bool belongs_to_sweep(session *s, const char *run) {
    sqlite3_stmt *st = NULL;
    struct stat is;
    char list[BT_PATH_BYTES + 32] = "";
    bt_err ignored = BT_ERR_INIT;
    if (bt_sql_prepare(s->db, s->path, "SELECT out_dir FROM run WHERE name = ?", &st, &ignored) !=
        BT_OK)
        return false;
    sqlite3_bind_text(st, 1, run, -1, SQLITE_STATIC);
    const char *out = sqlite3_step(st) == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0)
                                                     : NULL;
    if (out && out[0]) snprintf(list, sizeof list, "%s/../sweep.runs", out);
    sqlite3_finalize(st);
    return list[0] && stat(list, &is) == 0;
}

static bt_code check_may_rename(session *s, const char *run, const char *name, bt_err *err) {
    BT_TRY(check_run_has_ended(s, run, err));
    /* A run may change the case of its own name. */
    if (!bt_ascii_equal(run, name) &&
        session_has_row(s, "SELECT 1 FROM run WHERE name = ? COLLATE NOCASE", name))
        return bt_fail(err, BT_BUSY, "another run has the name '%s'", name);
    if (belongs_to_sweep(s, run))
        return bt_fail(err, BT_BUSY,
                       "run '%s' belongs to a sweep, which finds its runs by their names", run);
    return BT_OK;
}

bt_code bt_run_rename(const char *path, const char *run, const char *name, double wait_s,
                      bt_err *err) {
    session s;
    if (!bt_name_ok(name) || bt_ascii_equal(name, "last"))
        return bt_fail(
            err, BT_ARG,
            "'%.64s' is no name for a run: at most 64 letters, digits, '.', '_' and '-', "
            "and not 'last'",
            name);
    BT_TRY(enter_session(&s, path, wait_s, err));
    bt_code code = begin_session(&s, err);
    if (code == BT_OK) {
        code = check_may_rename(&s, run, name, err);
        /* The settings for a resume also contain the name. */
        if (code == BT_OK)
            code = run_text_statement(
                &s,
                "UPDATE run_doc SET config = CASE WHEN json_type(config, "
                "'$.\"run.name\".value') IS NOT NULL THEN json_set(config, "
                "'$.\"run.name\".value', ?1) WHEN json_type(config, '$.\"run.name\"') "
                "= 'text' THEN json_set(config, '$.\"run.name\"', ?1) ELSE config END "
                "WHERE run = (SELECT id FROM run WHERE name = ?2)",
                (const char *[]){name, run}, NULL, err);
        if (code == BT_OK)
            code = run_text_statement(&s, "UPDATE run SET name = ?, rev = rev + 1 WHERE name = ?",
                                      (const char *[]){name, run}, NULL, err);
        code = end_session(&s, code, err);
    }
    leave_session(&s);
    return code;
}

bt_code bt_run_mark(const char *path, const char *run, int64_t step, bt_event_kind kind,
                    const char *title, double wait_s, bt_err *err) {
    session s;
    int64_t changed = 0;
    char at[24], now[24], level[8];
    snprintf(at, sizeof at, "%lld", (long long)step);
    snprintf(now, sizeof now, "%lld", (long long)bt_wall_us());
    snprintf(level, sizeof level, "%d", (int)bt_events[kind].level);
    BT_TRY(enter_session(&s, path, wait_s, err));
    bt_code code = begin_session(&s, err);
    if (code == BT_OK) { /* a note at a step has the time and the attempt of the step */
        code = run_text_statement(
            &s,
            "INSERT INTO event(run, aid, t_us, step, kind, level, title)"
            " SELECT r.id, coalesce(p.aid, (SELECT max(id) FROM attempt WHERE run = r.id)), "
            "coalesce(p.wall_us, CAST(?3 AS INTEGER)), p.step, ?4, CAST(?6 AS INTEGER), ?5 FROM "
            "run r"
            " LEFT JOIN (SELECT a.run AS run, s.aid AS aid, s.step AS step, s.wall_us AS wall_us "
            "FROM attempt a JOIN step s ON s.aid = a.id AND s.step < a.live_to"
            " WHERE s.step = CAST(?2 AS INTEGER)) p ON p.run = r.id WHERE r.name = ?1",
            (const char *[]){run, at, now, bt_events[kind].name, title, level}, &changed, err);
        if (code == BT_OK && changed == 0) code = bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
        code = end_session(&s, code, err);
    }
    leave_session(&s);
    return code;
}

bt_code bt_run_fact(const char *path, const char *run, const char *key, const char *value,
                    double wait_s, bt_err *err) {
    session s;
    int64_t changed = 0;
    BT_TRY(enter_session(&s, path, wait_s, err));
    bt_code code = begin_session(&s, err);
    if (code == BT_OK) {
        code = run_text_statement(
            &s,
            "INSERT OR REPLACE INTO fact(run, key, value, attempt) SELECT r.id, ?2, ?3,"
            " coalesce((SELECT max(attempt) FROM attempt WHERE run = r.id), 0) FROM "
            "run r WHERE r.name = ?1",
            (const char *[]){run, key, value}, &changed, err);
        if (code == BT_OK && changed == 0) code = bt_fail(err, BT_NOTFOUND, "no run '%s'", run);
        code = end_session(&s, code, err);
    }
    leave_session(&s);
    return code;
}

/* ---- gc ---- */

static int64_t database_file_bytes(const char *path) {
    struct stat a, b;
    char wal[BT_PATH_BYTES + 8];
    snprintf(wal, sizeof wal, "%s-wal", path);
    return (stat(path, &a) == 0 ? (int64_t)a.st_size : 0) +
           (stat(wal, &b) == 0 ? (int64_t)b.st_size : 0);
}

/* Calls fn for each attempt. */
typedef bt_code (*attempt_fn)(session *s, int64_t aid, int64_t newest, void *ctx, bt_err *err);

static bt_code call_for_each_attempt(session *s, attempt_fn fn, void *ctx, bt_err *err) {
    for (int64_t aid = 0;;) {
        char sql[160];
        snprintf(sql, sizeof sql, "SELECT min(id) FROM attempt WHERE id > %lld", (long long)aid);
        int64_t next = 0, newest = -1;
        BT_TRY(bt_sql_get(s->db, s->path, sql, &next, err));
        if (next == 0) return BT_OK;
        aid = next;
        snprintf(sql, sizeof sql, "SELECT coalesce(max(step), -1) FROM step WHERE aid = %lld",
                 (long long)aid);
        BT_TRY(bt_sql_get(s->db, s->path, sql, &newest, err));
        if (newest >= 0) BT_TRY(fn(s, aid, newest, ctx, err));
    }
}

static bt_code retain_attempt(session *s, int64_t aid, int64_t newest, void *ctx, bt_err *err) {
    bt_gc_result *out = ctx;
    for (bool more = true; more;) {
        BT_TRY(bt_lock_take(&s->lock, s->wait_s, err));
        int rc = bt_retain_chunk(s->db, aid, newest, &more, &out->rank_rows);
        bt_lock_drop(&s->lock);
        if (rc != SQLITE_OK) return bt_sql_fail(s->db, rc, s->path, "write", err);
    }
    return BT_OK;
}

typedef struct rebuilding {
    bt_roll *roll;
    bool all, inside; /* inside: summaries of an attempt are being recomputed */
    const bt_store_progress *progress;
    double steps, done; /* number of all steps and of finished ones */
} rebuilding;

/* Called while SQLite works. */
static int report_rebuilt(void *ctx) {
    const rebuilding *x = ctx;
    const double now = x->inside ? (double)(bt_roll_newest(x->roll) + 1) : 0;
    x->progress->fn(x->progress->ctx, "making summaries",
                    fmin(1, (x->done + now) / fmax(1, x->steps)));
    return 0; /* continue */
}

static bt_code add_attempt_steps(session *s, int64_t aid, int64_t newest, void *ctx, bt_err *err) {
    (void)s, (void)aid, (void)err;
    ((rebuilding *)ctx)->steps += (double)(newest + 1);
    return BT_OK;
}

/* True if summaries of the attempt are to be computed: they are missing, or `all` is set. False for an attempt that is
 * in progress or has deleted rows. */
static bool wants_summaries(session *s, int64_t aid, bool all) {
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT raw_from > 0 OR ended_us IS NULL FROM attempt WHERE id = %lld",
             (long long)aid);
    if (bt_sql_int(s->db, sql, 1)) return false;
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM (SELECT 1 FROM roll WHERE key >= %lld AND key < %lld LIMIT 1)",
             (long long)bt_roll_key(aid, 0, 0, 0), (long long)bt_roll_key(aid + 1, 0, 0, 0));
    return all || bt_sql_int(s->db, sql, 1) == 0;
}

static bt_code rebuild_attempt(session *s, int64_t aid, int64_t newest, void *ctx, bt_err *err) {
    rebuilding *x = ctx;
    bt_code code = BT_OK;
    if (wants_summaries(s, aid, x->all)) {
        BT_TRY(begin_session(s, err));
        x->inside = true;
        code = end_session(s, bt_roll_rebuild(x->roll, aid, err), err);
        x->inside = false;
    }
    x->done += (double)(newest + 1);
    return code;
}

static bt_code rebuild_all_attempts(session *s, const bt_gc_cfg *cfg, bt_err *err) {
    enum { OPS = 10000 }; /* SQLite instructions between two callbacks */
    rebuilding x = {.all = cfg->rebuild, .progress = &cfg->progress};
    BT_TRY(bt_roll_open(&x.roll, s->db, s->path, err));
    bt_code code = call_for_each_attempt(s, add_attempt_steps, &x, err);
    if (cfg->progress.fn) sqlite3_progress_handler(s->db, OPS, report_rebuilt, &x);
    if (code == BT_OK) code = call_for_each_attempt(s, rebuild_attempt, &x, err);
    sqlite3_progress_handler(s->db, 0, NULL, NULL);
    bt_roll_close(x.roll);
    return code;
}

static bt_code compact_database(session *s, bt_err *err) {
    BT_TRY(bt_lock_take(&s->lock, s->wait_s, err));
    bt_code code = bt_sql_exec(s->db, s->path, "PRAGMA incremental_vacuum", err);
    if (code == BT_OK)
        sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    bt_lock_drop(&s->lock);
    return code;
}

static bt_code collect_garbage(session *s, const bt_gc_cfg *cfg, bt_gc_result *out, bt_err *err) {
    if (cfg->keep_rank_steps >= 0) {
        char sql[120];
        snprintf(sql, sizeof sql,
                 "INSERT OR REPLACE INTO meta(key, value) VALUES ('keep_rank_steps', %lld)",
                 (long long)cfg->keep_rank_steps);
        BT_TRY(begin_session(s, err));
        BT_TRY(end_session(s, run_text_statement(s, sql, NULL, NULL, err), err));
    }
    BT_TRY(delete_orphan_rows(s, &out->orphan_rows, err));
    BT_TRY(rebuild_all_attempts(s, cfg, err));
    BT_TRY(call_for_each_attempt(s, retain_attempt, out, err));
    return cfg->compact ? compact_database(s, err) : BT_OK;
}

bt_code bt_store_gc(const char *path, const bt_gc_cfg *cfg, double wait_s, bt_gc_result *out,
                    bt_err *err) {
    session s;
    *out = (bt_gc_result){0};
    BT_TRY(enter_session(&s, path, wait_s, err));
    out->bytes_before = database_file_bytes(path);
    bt_code code = collect_garbage(&s, cfg, out, err);
    out->bytes_after = database_file_bytes(path);
    leave_session(&s);
    return code;
}
