/* backup.c - a copy of the whole file beside it, taken through SQLite so that it is one moment of it; two are kept. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "store/manage.h"
#include "store/sql.h"

/* a copy may take a tenth of what is free: it must never be what fills the disk */
static bool has_room(const char *path) {
    struct stat st;
    struct statvfs v;
    if (stat(path, &st) != 0 || statvfs(path, &v) != 0) return false;
    return (uint64_t)st.st_size <= (uint64_t)v.f_bavail * v.f_frsize / 10;
}

static bt_code copy_into(sqlite3 *from, const char *path, const char *fresh, bt_err *err) {
    sqlite3 *to = NULL;
    int rc = sqlite3_open_v2(fresh, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_backup *b = rc == SQLITE_OK ? sqlite3_backup_init(to, "main", from, "main") : NULL;
    if (b) {
        rc = sqlite3_backup_step(b, -1);                /* one read transaction; writers go on in the log */
        sqlite3_backup_finish(b);
    } else if (rc == SQLITE_OK) rc = sqlite3_errcode(to);
    bt_code code = rc == SQLITE_DONE ? BT_OK : bt_fail(err, BT_IO, "cannot copy metrics database '%s' into '%s': %s", path, fresh, sqlite3_errstr(rc));
    sqlite3_close(to);
    return code;
}

bt_code bt_store_backup(const char *path, bt_err *err) {
    char fresh[BT_PATH_BYTES + 48], newest[BT_PATH_BYTES + 16], older[BT_PATH_BYTES + 16];
    sqlite3 *from = NULL;
    if (!has_room(path)) return bt_fail(err, BT_UNSUPPORTED, "no backup of '%s': it would take more than a tenth of the free room", path);
    snprintf(fresh, sizeof fresh, "%s.backup-%ld.tmp", path, (long)getpid());
    snprintf(newest, sizeof newest, "%s.backup", path);
    snprintf(older, sizeof older, "%s.backup.1", path);
    unlink(fresh);
    BT_TRY(bt_sql_open_ro(&from, path, err));
    bt_code code = copy_into(from, path, fresh, err);
    sqlite3_close(from);
    if (code == BT_OK && rename(newest, older) != 0 && errno != ENOENT) code = bt_fail_errno(err, BT_IO, errno, "cannot keep '%s' as '%s'", newest, older);
    if (code == BT_OK && rename(fresh, newest) != 0) code = bt_fail_errno(err, BT_IO, errno, "cannot rename '%s'", fresh);
    if (code != BT_OK) unlink(fresh);
    return code;
}
