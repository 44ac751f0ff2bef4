/* query.c - runs read-only SELECT statements over the views, and helpers of readers. */
#include "store/store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "store/read/live_runs.h"
#include "store/read/query_gate.h"
#include "store/sql/sql.h"

enum { MAX_COLUMNS = 256, CELL_BYTES = 32 };

struct bt_db {
    char path[BT_PATH_BYTES];
    sqlite3 *db;
    int64_t deadline_ns;       /* deadline of the running query; 0: none */
    sqlite3_stmt *begin, *end; /* statements of a snapshot */
    sqlite3_stmt *version; /* prepared once, because this statement runs many times per second */
    bool snapping;         /* BEGIN or COMMIT of a snapshot is running (query_gate.h) */
};

/* ---- open ---- */

static int is_past_deadline(void *ctx) {
    const bt_db *d = ctx;
    return d->deadline_ns && bt_now_ns() > d->deadline_ns;
}

/* Migrates the file of an older bitrain, as a writer would when it opens the file. */
static bt_code migrate_file(const char *path, bt_err *err) {
    bt_writer *w = NULL;
    BT_TRY(bt_writer_open(&w, path, 5, err));
    bt_writer_close(w);
    return BT_OK;
}

/* ---- limits of a reading connection ---------------------------------------------------------- */
static bt_code limit_reading_connection(bt_db *d, bt_err *err) {
    sqlite3_limit(d->db, SQLITE_LIMIT_LENGTH, 64 << 20);
    sqlite3_limit(d->db, SQLITE_LIMIT_SQL_LENGTH, 1 << 20);
    sqlite3_limit(d->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_limit(d->db, SQLITE_LIMIT_COLUMN, MAX_COLUMNS);
    sqlite3_progress_handler(d->db, 10000, is_past_deadline, d);
    return bt_query_gate_install(d->db, &d->snapping, d->path, err);
}

bt_code bt_db_open(bt_db **out, const char *path, bt_err *err) {
    bool outdated = false;
    *out = NULL;
    bt_db *d = calloc(1, sizeof *d);
    if (!d) return bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory");
    snprintf(d->path, sizeof d->path, "%s", path);
    bt_code code = bt_sql_open_ro(&d->db, path, err);
    if (code == BT_OK) code = bt_schema_check(d->db, path, &outdated, err);
    if (code == BT_OK && outdated) {
        bt_err why = BT_ERR_INIT;
        sqlite3_close(d->db);
        d->db = NULL;
        if (migrate_file(path, &why) != BT_OK)
            code = bt_fail(
                err, BT_FORMAT,
                "metrics database '%.200s' is of an older bitrain and cannot be updated: %.200s",
                path, why.msg);
        else
            code = bt_sql_open_ro(&d->db, path, err);
    }
    if (code == BT_OK) code = bt_live_runs_install(d->db, path, err);
    if (code == BT_OK) code = limit_reading_connection(d, err);
    if (code != BT_OK) {
        bt_db_close(d);
        return code;
    }
    *out = d;
    return BT_OK;
}

void bt_db_close(bt_db *d) {
    if (!d) return;
    sqlite3_finalize(d->begin);
    sqlite3_finalize(d->end);
    sqlite3_finalize(d->version);
    sqlite3_close_v2(d->db); /* closes after the last statement of other users, see bt_db_reopen */
    free(d);
}

bt_code bt_db_reopen(bt_db *d, bt_err *err) {
    bt_db *other = NULL;
    BT_TRY(bt_db_open(&other, d->path, err));
    const bt_db old = *d;
    *d = *other;
    *other = old;
    /* registers the callbacks again, because their argument was `other` */
    bt_code code = limit_reading_connection(d, err);
    bt_db_close(other);
    return code;
}

/* ---- snapshots ---- */

static int run_kept_statement(bt_db *d, sqlite3_stmt **st, const char *sql) {
    d->snapping = true;
    int rc = *st ? SQLITE_OK
                 : sqlite3_prepare_v3(d->db, sql, -1, SQLITE_PREPARE_PERSISTENT, st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(*st);
    sqlite3_reset(*st);
    d->snapping = false;
    return rc;
}

bt_code bt_db_snapshot(bt_db *d, bt_err *err) {
    int rc = run_kept_statement(d, &d->begin, "BEGIN");
    return rc == SQLITE_DONE ? BT_OK : bt_sql_fail(d->db, rc, d->path, "read", err);
}

void bt_db_snapshot_end(bt_db *d) {
    if (!sqlite3_get_autocommit(d->db)) run_kept_statement(d, &d->end, "ROLLBACK");
}

sqlite3 *bt_db_handle(bt_db *d) { return d->db; }
const char *bt_db_path(const bt_db *d) { return d->path; }

int64_t bt_db_version(bt_db *d) {
    int rc = d->version ? SQLITE_OK
                        : sqlite3_prepare_v3(d->db, "PRAGMA data_version", -1,
                                             SQLITE_PREPARE_PERSISTENT, &d->version, NULL);
    int64_t version = rc == SQLITE_OK && sqlite3_step(d->version) == SQLITE_ROW
                          ? sqlite3_column_int64(d->version, 0)
                          : -1;
    sqlite3_reset(d->version);
    return version;
}

bool bt_db_moved(bt_db *d) {
    int moved = 0;
    return sqlite3_file_control(d->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved;
}

/* ---- queries ---- */

static bt_code translate_query_error(bt_db *d, int rc, const char *sql, double max_s, bt_err *err) {
    switch (rc & 0xff) {
    case SQLITE_INTERRUPT:
        return bt_fail(err, BT_BUSY, "query took longer than %.3g s and was stopped", max_s);
    case SQLITE_AUTH: return bt_fail(err, BT_ARG, "query may only read: %s", sqlite3_errmsg(d->db));
    case SQLITE_NOMEM:
        if (sqlite3_hard_heap_limit64(-1) > 0)
            return bt_fail(err, BT_BUSY, "query takes more than %lld MiB of memory and was stopped",
                           (long long)(sqlite3_hard_heap_limit64(-1) >> 20));
        return bt_fail(err, BT_NOMEM, "no memory for the query");
    case SQLITE_TOOBIG: return bt_fail(err, BT_ARG, "query makes a text or a row that is too long");
    case SQLITE_ERROR: {
        int at = sqlite3_error_offset(d->db);
        if (at >= 0)
            return bt_fail(err, BT_ARG, "SQL error: %s, at '%.40s'", sqlite3_errmsg(d->db),
                           sql + at);
        return bt_fail(err, BT_ARG, "SQL error: %s", sqlite3_errmsg(d->db));
    }
    default: return bt_sql_fail(d->db, rc, d->path, "read", err);
    }
}

/* Returns the shortest text that is parsed as the same number. */
static const char *shortest_real_text(char *out, double v) {
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, CELL_BYTES, "%.*g", digits, v);
        if (digits == 17 || strtod(out, NULL) == v) break;
    }
    if (isfinite(v) && !strpbrk(out, ".e")) strcat(out, ".0");
    return out;
}

static bool is_blank_sql(const char *s) {
    for (; *s; s++) {
        if (!strchr(" \t\r\n;", *s)) return false;
    }
    return true;
}

typedef struct cells {
    const char *names[MAX_COLUMNS], *text[MAX_COLUMNS];
    char types[MAX_COLUMNS + 1], reals[MAX_COLUMNS][CELL_BYTES];
    double nums[MAX_COLUMNS];
} cells;

static void convert_result_row(sqlite3_stmt *st, int n, cells *c) {
    for (int i = 0; i < n; i++) {
        int type = sqlite3_column_type(st, i);
        c->nums[i] = type == SQLITE_INTEGER || type == SQLITE_FLOAT ? sqlite3_column_double(st, i)
                                                                    : NAN;
        c->types[i] = "?irtbn"[type];
        if (type == SQLITE_NULL)
            c->text[i] = NULL;
        else if (type == SQLITE_FLOAT)
            c->text[i] = shortest_real_text(c->reals[i], c->nums[i]);
        else
            c->text[i] = (const char *)sqlite3_column_text(st, i);
    }
}

static bt_code each_query_row(bt_db *d, sqlite3_stmt *st, const bt_query *q, bt_row_fn fn,
                              void *ctx, bt_err *err) {
    int n = sqlite3_column_count(st), rc;
    cells *c = calloc(1, sizeof *c);
    if (!c) return bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory");
    for (int i = 0; i < n; i++) c->names[i] = sqlite3_column_name(st, i);
    bt_row row = {.n = n, .names = c->names, .cells = c->text, .types = c->types, .nums = c->nums};
    int64_t rows = 0;
    bool go = true;
    while (go && (rc = sqlite3_step(st)) == SQLITE_ROW) {
        if (q->max_rows > 0 && rows == q->max_rows) {
            if (q->truncated) *q->truncated = true;
            break;
        }
        convert_result_row(st, n, c);
        rows++;
        go = fn(ctx, &row);
    }
    bt_code code = BT_OK;
    if (go && rc != SQLITE_ROW && rc != SQLITE_DONE)
        code = translate_query_error(d, rc, q->sql, q->max_s, err);
    free(c);
    return code;
}

bt_code bt_db_query(bt_db *d, const bt_query *q, bt_row_fn fn, void *ctx, bt_err *err) {
    sqlite3_stmt *st = NULL;
    const char *tail = NULL;
    if (q->truncated) *q->truncated = false;
    d->deadline_ns = q->max_s > 0 ? bt_now_ns() + (int64_t)(q->max_s * 1e9) : 0;
    int rc = sqlite3_prepare_v2(d->db, q->sql, -1, &st, &tail);
    bt_code code = BT_OK;
    if (rc != SQLITE_OK)
        code = translate_query_error(d, rc, q->sql, q->max_s, err);
    else if (!st)
        code = bt_fail(err, BT_ARG, "query is empty");
    else if (tail && !is_blank_sql(tail))
        code = bt_fail(err, BT_ARG, "query has a second statement: '%.40s'", tail);
    else if (!sqlite3_stmt_readonly(st))
        code = bt_fail(err, BT_ARG, "query may only read the database");
    for (int i = 0; i < q->n_params && code == BT_OK; i++) {
        if (q->params[i]) sqlite3_bind_text(st, i + 1, q->params[i], -1, SQLITE_STATIC);
    }
    if (code == BT_OK) code = each_query_row(d, st, q, fn, ctx, err);
    sqlite3_finalize(st);
    d->deadline_ns = 0;
    return code;
}

void bt_db_limit_memory(int64_t bytes) { sqlite3_hard_heap_limit64(bytes); }

static bool copy_first_number(void *ctx, const bt_row *row) {
    *(double *)ctx = row->nums[0];
    return false;
}

bt_code bt_db_value(bt_db *d, const char *sql, const char *run, double *out, bt_err *err) {
    *out = NAN;
    return bt_db_query(d, &(bt_query){.sql = sql, .params = &run, .n_params = 1}, copy_first_number,
                       out, err);
}

/* ---- names of runs ---- */

typedef struct names {
    char list[512][BT_NAME_MAX];
    size_t n;
} names;

static bool copy_first_name(void *ctx, const bt_row *row) {
    names *all = ctx;
    if (row->cells[0]) snprintf(all->list[all->n++], BT_NAME_MAX, "%s", row->cells[0]);
    return all->n < sizeof all->list / sizeof all->list[0];
}

bt_code bt_db_run(bt_db *d, const char *wanted, char run[BT_NAME_MAX], bt_err *err) {
    names *all = calloc(1, sizeof *all);
    if (!all) return bt_fail(err, BT_NOMEM, "cannot read metrics: out of memory");
    bool last = strcmp(wanted, "last") == 0;
    bt_code code =
        last ? bt_db_query(d,
                           &(bt_query){.sql = "SELECT name FROM run ORDER BY max(created_us, "
                                              "coalesce(last_us, 0)) DESC, id DESC LIMIT 1"},
                           copy_first_name, all, err)
             : bt_db_query(d,
                           &(bt_query){.sql = "SELECT name FROM run WHERE name = ?1 UNION ALL "
                                              "SELECT name FROM run WHERE name = ?1 COLLATE "
                                              "NOCASE LIMIT 1",
                                       .params = &wanted,
                                       .n_params = 1},
                           copy_first_name, all, err);
    if (code == BT_OK && all->n == 1)
        snprintf(run, BT_NAME_MAX, "%s", all->list[0]);
    else if (code == BT_OK && last)
        code = bt_fail(err, BT_NOTFOUND, "no run in '%s' yet (start one with `bitrain train`)",
                       d->path);
    else if (code == BT_OK) {
        const char *candidates[512];
        all->n = 0;
        code = bt_db_query(d, &(bt_query){.sql = "SELECT name FROM run ORDER BY id DESC LIMIT 512"},
                           copy_first_name, all, err);
        for (size_t i = 0; i < all->n; i++) candidates[i] = all->list[i];
        const char *near = bt_nearest(wanted, candidates, all->n);
        char shown[BT_NAME_MAX];
        bt_text_plain(shown, sizeof shown, wanted);
        if (code == BT_OK && near)
            code = bt_fail(err, BT_NOTFOUND, "no run '%s' (did you mean '%s'?)", shown, near);
        else if (code == BT_OK)
            code = bt_fail(err, BT_NOTFOUND, "no run '%s' (`bitrain runs` lists them)", shown);
    }
    free(all);
    return code;
}

typedef struct folder_text {
    char *to;
    size_t size;
} folder_text;

static bool read_lens_folder(void *ctx, const bt_row *row) {
    const folder_text *f = ctx;
    if (row->cells[0] && strlen(row->cells[0]) < f->size) strcpy(f->to, row->cells[0]);
    return false;
}

bt_code bt_db_run_folder(bt_db *d, const char *run, char *out, size_t size, bt_err *err) {
    folder_text f = {out, size};
    out[0] = '\0';
    return bt_db_query(d,
                       &(bt_query){.sql = "SELECT out_dir FROM runs WHERE run = ?1",
                                   .params = &run,
                                   .n_params = 1,
                                   .max_rows = 1,
                                   .max_s = 5},
                       read_lens_folder, &f, err);
}
