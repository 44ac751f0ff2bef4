/* repair.c - `bitrain runs repair`: moves a damaged database aside, and creates a new one from its readable rows and
 * its backups. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/write/manage.h"
#include "store/write/rescue.h"

static const char *const backups[] = {".backup", ".backup.1"};

/* Only writers of bitrain create the lock file and the backups. */
static bool had_database(const char *path) {
    static const char *const tails[] = {".lock", ".backup", ".backup.1"};
    char name[BT_PATH_BYTES + 16];
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++) {
        snprintf(name, sizeof name, "%s%s", path, tails[i]);
        if (access(name, F_OK) == 0) return true;
    }
    return false;
}

/* BT_OK: all pages are valid; BT_FORMAT: damaged, or another program's file (*foreign). */
static bt_code examine_database(const char *path, const bt_store_progress *progress, bool *foreign,
                                bt_err *err) {
    bt_sql_reading reading = {0};
    sqlite3 *db = NULL;
    sqlite3_stmt *st = NULL;
    bool outdated = false;
    *foreign = false;
    bt_code code = bt_sql_open_ro(&db, path, err);
    if (code == BT_OK) bt_sql_reading_begin(&reading, db, progress, "checking");
    if (code == BT_OK &&
        sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &st, NULL) == SQLITE_OK &&
        sqlite3_step(st) == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(st, 0);
        if (strcmp(said, "ok") != 0)
            code = bt_fail(err, BT_FORMAT, "metrics database '%s' is damaged: %s", path, said);
        else {
            code = bt_schema_check(db, path, &outdated, err);
            *foreign = code == BT_FORMAT;
        }
    } else if (code == BT_OK)
        code = bt_sql_fail(db, sqlite3_extended_errcode(db), path, "read", err);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return code;
}

bt_code bt_store_repair(const char *path, double wait_s, const bt_store_progress *progress,
                        bt_repair_result *out, bt_err *err) {
    bt_lock lock = {.fd = -1};
    bt_rescue_result r = {0};
    bt_err why = BT_ERR_INIT;
    struct stat st;
    bool foreign = false;
    *out = (bt_repair_result){0};
    const bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) return bt_fail(err, BT_FORMAT, "'%s' is not a file", path);
    bt_code found = there ? examine_database(path, progress, &foreign, &why) : BT_FORMAT;
    out->sound = found == BT_OK;
    if (found == BT_OK) return BT_OK;
    if (foreign || (found != BT_FORMAT && found != BT_NOTFOUND)) {
        if (err) *err = why;
        return found;
    }
    if (!had_database(path))
        return there ? bt_fail(err, BT_FORMAT,
                               "'%s' is not a metrics database of bitrain, and the path had no "
                               "database before",
                               path)
                     : bt_fail(err, BT_NOTFOUND,
                               "no metrics database at '%s', and no backup of one", path);
    BT_TRY(bt_lock_open(&lock, path, err));
    bt_code code = bt_lock_take(&lock, wait_s, err);
    if (code == BT_OK) code = bt_rescue(path, progress, &r, err);
    bt_rescue_result more = {.setting = r.setting};
    for (size_t i = 0; code == BT_OK && i < sizeof backups / sizeof backups[0]; i++) {
        char name[BT_PATH_BYTES + 16];
        snprintf(name, sizeof name, "%s%s", path, backups[i]);
        if (access(name, F_OK) == 0) code = bt_rescue_fill(path, name, progress, &more, err);
    }
    bt_lock_drop(&lock);
    bt_lock_close(&lock);
    snprintf(out->moved_to, sizeof out->moved_to, "%s", r.moved_to);
    out->rows = r.rows;
    out->rows_of_backups = more.rows;
    out->incomplete_tables = r.unreadable;
    return code;
}
