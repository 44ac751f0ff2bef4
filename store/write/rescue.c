/* rescue.c - moves a damaged file aside and copies its rows. */
#include "store/write/rescue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"

/* Tables to copy before those of the scopes; a table follows the tables to which its rows refer. up, down: orders of
 * the key, so that a damaged table can be read from both ends. */
static const struct {
    const char *name, *up, *down;
} plain[] = {
    {"run", "id", "id DESC"},
    {"run_doc", "run", "run DESC"},
    {"attempt", "id", "id DESC"},
    {"rank", "aid, rank", "aid DESC, rank DESC"},
    {"fact", "run, key", "run DESC, key DESC"},
    {"ckpt", "run, step, attempt", "run DESC, step DESC, attempt DESC"},
    {"event", "seq", "seq DESC"},
    {"roll", "key", "key DESC"},
    {"proposal", "run", "run DESC"},
};
enum { N_PLAIN = sizeof plain / sizeof plain[0], N_TABLES = N_PLAIN + BT_SCOPE_COUNT };

static const char *table_name(size_t t) {
    return t < N_PLAIN ? plain[t].name : bt_scopes[t - N_PLAIN].table;
}

static void put_key_order(bt_text *sql, size_t t, bool down) {
    bt_text_put(sql, " ORDER BY ");
    if (t < N_PLAIN)
        bt_text_put(sql, down ? plain[t].down : plain[t].up);
    else
        bt_schema_keys((bt_scope)(t - N_PLAIN), down ? " DESC" : "", sql);
}

bool bt_rescue_wanted(int rc) {
    return (rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB ||
           rc == SQLITE_IOERR_SHORT_READ;
}

/* ---- what happened ---- */

/* Reads the index through the connection's own mapping: closing a descriptor of the file would release all POSIX
 * locks of this process on it, and the next reader would find it unlocked and truncate it. */
static bool read_damaged_index(sqlite3 *db, unsigned char *head, size_t bytes) {
    enum { REGION = 32768 }; /* the only size that SQLite maps */
    sqlite3_file *file = NULL;
    void volatile *at = NULL;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK || !file ||
        !file->pMethods || file->pMethods->iVersion < 2 ||
        file->pMethods->xShmMap(file, 0, REGION, 0, &at) != SQLITE_OK || !at)
        return false;
    for (size_t i = 0; i < bytes; i++) head[i] = ((unsigned char volatile *)at)[i];
    return true;
}

/* The log is cut if it has fewer frames than its index counts (sqlite.org/walformat.html): a header of 32 bytes, and
 * for each frame 24 bytes and a page; the index has the page size at byte 14 (1: 65536) and the number of valid
 * frames at byte 16. */
static bool log_was_cut(sqlite3 *db, const char *path) {
    char name[BT_PATH_BYTES + 8];
    unsigned char head[20];
    struct stat st;
    uint16_t page;
    uint32_t frames;
    if (!read_damaged_index(db, head, sizeof head)) return false;
    memcpy(&page, head + 14, sizeof page);
    memcpy(&frames, head + 16, sizeof frames);
    if (frames == 0) return false;
    snprintf(name, sizeof name, "%s-wal", path);
    return stat(name, &st) != 0 ||
           st.st_size < 32 + (off_t)frames * (24 + (page == 1 ? 65536 : (off_t)page));
}

bt_damage bt_rescue_examine(sqlite3 *db, const char *path) {
    int moved = 0;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved)
        return BT_FILE_GONE;
    return log_was_cut(db, path) ? BT_LOG_CUT : BT_UNDAMAGED;
}

/* ---- through the open connection ---- */

static const char *const tails[] = {"-wal", "-shm"};

static void saved_name(char out[BT_PATH_BYTES + 8], const char *path) {
    snprintf(out, BT_PATH_BYTES + 8, "%s.saved", path);
}

static bool passes_quick_check(sqlite3 *db) {
    sqlite3_stmt *st = NULL;
    bool ok = sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL) == SQLITE_OK &&
              sqlite3_step(st) == SQLITE_ROW &&
              strcmp((const char *)sqlite3_column_text(st, 0), "ok") == 0;
    sqlite3_finalize(st);
    return ok;
}

bool bt_rescue_snapshot(sqlite3 *db, const char *path) {
    char name[BT_PATH_BYTES + 8];
    sqlite3 *to = NULL;
    saved_name(name, path);
    unlink(name);
    bool ok = sqlite3_open_v2(name, &to,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_EXRESCODE,
                              NULL) == SQLITE_OK;
    sqlite3_backup *copy = ok ? sqlite3_backup_init(to, "main", db, "main") : NULL;
    ok = copy && sqlite3_backup_step(copy, -1) == SQLITE_DONE;
    ok = sqlite3_backup_finish(copy) == SQLITE_OK && ok && passes_quick_check(to);
    sqlite3_close(to);
    if (!ok) unlink(name);
    return ok;
}

/* True for a database that another writer of bitrain has created. */
static bool is_a_metrics_database(const char *path) {
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bool yes = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
               sqlite3_prepare_v2(db, "SELECT count(*) FROM run", -1, &st, NULL) == SQLITE_OK &&
               sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    sqlite3_close(db);
    return yes;
}

/* ---- moving ---- */

static bt_code rename_damaged_database(const char *path, bt_rescue_result *out, bt_err *err) {
    char from[BT_PATH_BYTES + 8], to[BT_PATH_BYTES + 64], when[32];
    struct stat st;
    struct tm tm;
    time_t now = (time_t)(bt_wall_us() / 1000000);
    out->moved_to[0] = 0;
    if (stat(path, &st) != 0) return BT_OK;
    gmtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &tm);
    for (int i = 0; i == 0 || access(out->moved_to, F_OK) == 0; i++) {
        if (i == 0)
            snprintf(out->moved_to, sizeof out->moved_to, "%s.corrupt-%s", path, when);
        else
            snprintf(out->moved_to, sizeof out->moved_to, "%s.corrupt-%s-%d", path, when, i);
    }
    if (rename(path, out->moved_to) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot move the damaged database '%s' aside",
                             path);
    snprintf(from, sizeof from, "%s-wal", path);
    snprintf(to, sizeof to, "%s-wal", out->moved_to);
    /* The newest rows are in the log, if there is one. */
    rename(from, to);
    snprintf(from, sizeof from, "%s-shm", path);
    unlink(from); /* an index of the log, recreated when the file is opened */
    return BT_OK;
}

bt_code bt_rescue_install(const char *path, bt_rescue_result *out, bool *kept, bt_err *err) {
    char name[BT_PATH_BYTES + 8], old[BT_PATH_BYTES + 8];
    struct stat st;
    saved_name(name, path);
    *out = (bt_rescue_result){0};
    *kept = stat(path, &st) == 0 && is_a_metrics_database(path);
    if (*kept) {
        unlink(name);
        return BT_OK;
    }
    BT_TRY(rename_damaged_database(path, out, err));
    /* SQLite would apply a log that remains to the new file */
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(old, sizeof old, "%s%s", path, tails[i]);
        unlink(old);
    }
    if (rename(name, path) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot put '%s' in place of '%s'", name, path);
    return BT_OK;
}

/* ---- copying ---- */

/* Lists the columns that both files have: "a", "b". */
static bt_code common_columns(sqlite3 *from, sqlite3 *to, const char *path, const char *table,
                              bt_text *out, int *n, bt_err *err) {
    sqlite3_stmt *st = NULL, *has = NULL;
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT name FROM pragma_table_info('%s')", table);
    *n = 0;
    BT_TRY(bt_sql_prepare(to, path, sql, &st, err));
    snprintf(sql, sizeof sql, "SELECT 1 FROM pragma_table_info('%s') WHERE name = ?", table);
    if (sqlite3_prepare_v2(from, sql, -1, &has, NULL) == SQLITE_OK) {
        while (sqlite3_step(st) == SQLITE_ROW) {
            const char *name = (const char *)sqlite3_column_text(st, 0);
            sqlite3_reset(has);
            sqlite3_bind_text(has, 1, name, -1, SQLITE_TRANSIENT);
            if (sqlite3_step(has) == SQLITE_ROW)
                bt_text_printf(out, "%s\"%s\"", (*n)++ ? ", " : "", name);
        }
    }
    sqlite3_finalize(st);
    sqlite3_finalize(has);
    return BT_OK;
}

typedef struct copying {
    sqlite3 *from, *to;
    const char *path;
    bool fill; /* `to` has rows already: adds only the missing ones, in one pass */
    const bt_store_progress *progress;
    bt_rescue_result *out;
} copying;

/* Copies the rows that `select` returns. With until_met it stops at the first row that is not added, because that row
 * was copied from the other end of the table. *refused: a row violated the constraints of the new file. Returns true if
 * the end was reached. */
static bool copy_table_rows(const copying *c, const char *select, sqlite3_stmt *put, int n,
                            bool until_met, bool *refused) {
    sqlite3_stmt *get = NULL;
    int rc = sqlite3_prepare_v2(c->from, select, -1, &get, NULL);
    bool met = false;
    while (rc == SQLITE_OK && !met && (rc = sqlite3_step(get)) == SQLITE_ROW) {
        for (int i = 0; i < n; i++) sqlite3_bind_value(put, i + 1, sqlite3_column_value(get, i));
        int done = sqlite3_step(put);
        sqlite3_reset(put);
        rc = SQLITE_OK;
        if (done == SQLITE_DONE && sqlite3_changes(c->to) > 0) {
            c->out->rows++;
            continue;
        }
        *refused = *refused || (!c->fill && !until_met);
        /* after an error, which a value of a wrong type causes, the next row is copied */
        met = done == SQLITE_DONE && until_met;
    }
    sqlite3_finalize(get);
    return met || rc == SQLITE_DONE;
}

static bt_code copy_table(const copying *c, size_t t, bt_err *err) {
    bt_text columns, sql;
    sqlite3_stmt *put = NULL;
    int n = 0;
    bt_text_init(&columns);
    bt_text_init(&sql);
    bt_code code = common_columns(c->from, c->to, c->path, table_name(t), &columns, &n, err);
    if (code == BT_OK && n == 0) c->out->unreadable++;
    if (code == BT_OK && n > 0) {
        bt_text_printf(&sql, "INSERT OR IGNORE INTO %s(%s) VALUES (", table_name(t),
                       bt_text_str(&columns));
        for (int i = 0; i < n; i++) bt_text_put(&sql, i ? ",?" : "?");
        bt_text_put(&sql, ")");
        code = bt_sql_prepare(c->to, c->path, bt_text_str(&sql), &put, err);
    }
    if (put) {
        bt_text_clear(&sql);
        bt_text_printf(&sql, "SELECT %s FROM %s", bt_text_str(&columns), table_name(t));
        put_key_order(&sql, t, false);
        bool refused = false,
             whole = copy_table_rows(c, bt_text_str(&sql), put, n, false, &refused);
        bt_text_clear(&sql);
        bt_text_printf(&sql, "SELECT %s FROM %s", bt_text_str(&columns), table_name(t));
        put_key_order(&sql, t, true);
        if (!whole) copy_table_rows(c, bt_text_str(&sql), put, n, !c->fill, &refused);
        if (!whole || refused) c->out->unreadable++;
    }
    sqlite3_finalize(put);
    bt_text_release(&columns);
    bt_text_release(&sql);
    return code;
}

/* Copies the retention of rank rows, because with the default the writer would delete rescued rows. */
static bt_code copy_setting(const copying *c, bt_err *err) {
    char sql[100];
    const int64_t keep =
        c->out->setting
            ? -1
            : bt_sql_int(c->from, "SELECT value FROM meta WHERE key = 'keep_rank_steps'", -1);
    if (keep < 0) return BT_OK;
    snprintf(sql, sizeof sql, "UPDATE meta SET value = %lld WHERE key = 'keep_rank_steps'",
             (long long)keep);
    c->out->setting = true;
    return bt_sql_exec(c->to, c->path, sql, err);
}

static bt_code copy_all_tables(const copying *c, bt_err *err) {
    bt_sql_reading reading;
    BT_TRY(bt_sql_exec(c->to, c->path, "PRAGMA foreign_keys=OFF; BEGIN IMMEDIATE", err));
    bt_sql_reading_begin(&reading, c->from, c->progress,
                         c->fill ? "looking into backups" : "saving rows");
    bt_code code = BT_OK;
    for (size_t t = 0; t < N_TABLES && code == BT_OK; t++) code = copy_table(c, t, err);
    bt_sql_reading_end(&reading);
    if (code == BT_OK) code = copy_setting(c, err);
    if (code != BT_OK) return code;
    return bt_sql_exec(c->to, c->path,
                       "DELETE FROM attempt WHERE run NOT IN (SELECT id FROM run);"
                       "UPDATE meta SET value = max(value, (SELECT coalesce(max(id), 0) + 1 FROM "
                       "attempt)) WHERE key = 'next_aid';"
                       "COMMIT; PRAGMA foreign_keys=ON",
                       err);
}

/* Rows refer to runs by number, and another history of the same file may have assigned the numbers differently. */
static bool numbers_runs_equally(sqlite3 *a, sqlite3 *b) {
    static const char of[] = "SELECT id, name, created_us FROM run ORDER BY id";
    sqlite3_stmt *x = NULL, *y = NULL;
    bool same = sqlite3_prepare_v2(a, of, -1, &x, NULL) == SQLITE_OK &&
                sqlite3_prepare_v2(b, of, -1, &y, NULL) == SQLITE_OK;
    bool more = same && sqlite3_step(x) == SQLITE_ROW && sqlite3_step(y) == SQLITE_ROW;
    while (same && more) {
        const int64_t i = sqlite3_column_int64(x, 0), j = sqlite3_column_int64(y, 0);
        if (i == j)
            same = strcmp((const char *)sqlite3_column_text(x, 1),
                          (const char *)sqlite3_column_text(y, 1)) == 0 &&
                   sqlite3_column_int64(x, 2) == sqlite3_column_int64(y, 2);
        more = (i > j || sqlite3_step(x) == SQLITE_ROW) && (j > i || sqlite3_step(y) == SQLITE_ROW);
    }
    sqlite3_finalize(x);
    sqlite3_finalize(y);
    return same;
}

bt_code bt_rescue_fill(const char *path, const char *from, const bt_store_progress *progress,
                       bt_rescue_result *out, bt_err *err) {
    copying c = {.path = path, .fill = true, .progress = progress, .out = out};
    char name[BT_PATH_BYTES + 24];
    if (sqlite3_open_v2(from, &c.from, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        sqlite3_close(c.from);
        return BT_OK;
    }
    bt_code code = bt_sql_open_rw(&c.to, path, err);
    if (code == BT_OK && numbers_runs_equally(c.to, c.from)) code = copy_all_tables(&c, err);
    if (c.to && !sqlite3_get_autocommit(c.to)) sqlite3_exec(c.to, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(c.from);
    sqlite3_close(c.to);
    /* A backup has no log, so these files were created by reading it. */
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(name, sizeof name, "%s%s", from, tails[i]);
        unlink(name);
    }
    return code;
}

bt_code bt_rescue(const char *path, const bt_store_progress *progress, bt_rescue_result *out,
                  bt_err *err) {
    copying c = {.path = path, .progress = progress, .out = out};
    *out = (bt_rescue_result){0};
    BT_TRY(rename_damaged_database(path, out, err));
    bt_code code = bt_sql_open_rw(&c.to, path, err);
    if (code == BT_OK) code = bt_schema_apply(c.to, path, err);
    if (code == BT_OK && out->moved_to[0]) {
        bt_err ignored;
        if (bt_sql_open_rw(&c.from, out->moved_to, &ignored) != BT_OK)
            out->unreadable = N_TABLES;
        else
            code = copy_all_tables(&c, err);
    }
    if (c.to && !sqlite3_get_autocommit(c.to)) sqlite3_exec(c.to, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(c.from);
    sqlite3_close(c.to);
    return code;
}

void bt_rescue_describe(char *out, size_t size, bt_damage what, bool whole,
                        const bt_rescue_result *r) {
    static const char *const found[] = {
        [BT_FILE_GONE] = "metrics database had been removed",
        [BT_LOG_CUT] = "the log of the metrics database was cut",
        [BT_ROWS_BAD] = "metrics database was damaged",
    };
    if (what == BT_FILE_GONE && r->moved_to[0])
        snprintf(out, size, "metrics database had been replaced (the previous file is '%s' now)%s",
                 r->moved_to, whole ? ": every row was saved" : "");
    else if (whole)
        snprintf(out, size, "%s: every row was saved%s%s%s", found[what],
                 r->moved_to[0] ? ", the damaged file is '" : "", r->moved_to,
                 r->moved_to[0] ? "'" : "");
    else if (r->moved_to[0])
        snprintf(out, size, "%s: moved to '%s', %lld rows saved%s", found[what], r->moved_to,
                 (long long)r->rows, r->unreadable ? ", some lost" : "");
    else
        snprintf(out, size, "%s: records continue in a new one", found[what]);
}
