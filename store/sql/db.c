/* db.c - opens the file with the program's settings, and translates SQLite's result codes. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "engine/base/log.h"
#include "engine/base/os/file_system.h"
#include "engine/base/system/folders.h"
#include "store/sql/sql.h"

/* Detects a lack of inodes: SQLite reports only the error number of its second, read-only attempt to open the file. */
static bool has_no_inodes(const char *path) {
    char folder[BT_PATH_BYTES];
    struct statvfs space;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    else
        snprintf(folder, sizeof folder, ".");
    return statvfs(folder, &space) == 0 && space.f_files > 0 && space.f_favail == 0;
}

bt_code bt_sql_fail(sqlite3 *db, int rc, const char *path, const char *doing, bt_err *err) {
    const char *why = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
    switch (rc == SQLITE_IOERR_NOMEM ? SQLITE_NOMEM : rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return bt_fail(err, BT_BUSY,
                       "cannot %s '%s': another program holds the database (close it, or wait)",
                       doing, path);
    case SQLITE_NOTADB:
        return bt_fail(err, BT_FORMAT,
                       "'%s' is not a metrics database of bitrain (not an SQLite file)", path);
    case SQLITE_CORRUPT:
        return bt_fail(err, BT_FORMAT,
                       "metrics database '%s' is damaged: %s (`bitrain runs repair` saves what "
                       "is readable)",
                       path, why);
    case SQLITE_FULL: return bt_fail(err, BT_IO, "cannot %s '%s': the disk is full", doing, path);
    case SQLITE_IOERR: {
        int e = db ? sqlite3_system_errno(db) : 0;
        return bt_fail(err, BT_IO, "cannot %s '%s': %s%s%s", doing, path, why, e ? ": " : "",
                       e ? strerror(e) : "");
    }
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
        if (has_no_inodes(path))
            return bt_fail(err, BT_IO,
                           "cannot %s '%s': %s: its file system has no free inodes (df -i)", doing,
                           path, strerror(ENOSPC));
        return bt_fail(err, BT_IO,
                       "cannot %s '%s': %s (check the permissions of the file and its folder)",
                       doing, path, why);
    case SQLITE_NOMEM: return bt_fail(err, BT_NOMEM, "cannot %s '%s': out of memory", doing, path);
    default: return bt_fail(err, BT_DB, "cannot %s '%s': %s", doing, path, why);
    }
}

bt_code bt_sql_exec(sqlite3 *db, const char *path, const char *sql, bt_err *err) {
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    return rc == SQLITE_OK ? BT_OK : bt_sql_fail(db, rc, path, "use", err);
}

bt_code bt_sql_prepare(sqlite3 *db, const char *path, const char *sql, sqlite3_stmt **out,
                       bt_err *err) {
    int rc = sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
    return rc == SQLITE_OK ? BT_OK : bt_sql_fail(db, rc, path, "use", err);
}

bt_code bt_sql_get(sqlite3 *db, const char *path, const char *sql, int64_t *value, bt_err *err) {
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK) rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) *value = sqlite3_column_int64(st, 0);
    const bt_code code = rc == SQLITE_ROW || rc == SQLITE_DONE
                             ? BT_OK
                             : bt_sql_fail(db, rc, path, "read", err);
    sqlite3_finalize(st);
    return code;
}

int64_t bt_sql_int(sqlite3 *db, const char *sql, int64_t otherwise) {
    int64_t value = otherwise;
    return bt_sql_get(db, "", sql, &value, NULL) == BT_OK ? value : otherwise;
}

static bt_code make_database_folders(const char *path, bt_err *err) {
    bt_err why = BT_ERR_INIT;
    const bt_code code = bt_make_folder_of(path, &why);
    return code == BT_OK ? BT_OK
                         : bt_fail(err, code, "%s (it is for the metrics database)", why.msg);
}

/* Warns once in a process, because a run opens its database several times. */
static void warn_of_fuse(const char *folder) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    if (atomic_flag_test_and_set(&told)) return;
    bt_log(
        BT_LOG_WARN,
        "the metrics database in '%s' is on FUSE, where memory and locks work between the "
        "processes of this host only: no other host may use that folder (--store FILE on a local "
        "disk is safe)",
        folder);
}

static bt_code check_database_folder(const char *path, bool writes, bt_err *err) {
    char dir[BT_PATH_BYTES];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = 0;
    else
        snprintf(dir, sizeof dir, ".");
    long kind;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return bt_fail(err, BT_FORMAT, "'%s' is not a file", path);
    if (!bt_file_system_of_path(dir, &kind))
        return bt_fail_errno(err, errno == ENOENT ? BT_NOTFOUND : BT_IO, errno,
                             "cannot look at folder '%s' of the metrics database", dir);
    const bool fuse = bt_file_system_is_fuse(kind);
    const char *name = bt_fs_fault(dir, kind);
    if (name && strcmp(name, "FUSE") == 0)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "metrics database cannot live in '%s': shared memory or locks do not work on "
            "this FUSE file system, and SQLite's log needs both (use --store FILE on a "
            "local disk)",
            dir);
    if (fuse && writes) warn_of_fuse(dir);
    if (name) {
        return bt_fail(err, BT_UNSUPPORTED,
                       "metrics database cannot live in '%s': %s is shared between hosts and "
                       "SQLite's log is not "
                       "(use --store FILE on a local disk)",
                       dir, name);
    }
    return BT_OK;
}

static bt_code open_connection(sqlite3 **out, const char *name, int flags, const char *path,
                               bt_err *err) {
    sqlite3 *db = NULL;
    int rc = sqlite3_open_v2(name, &db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE,
                             NULL);
    if (rc != SQLITE_OK) {
        bt_code code = bt_sql_fail(db, rc, path, "open", err);
        sqlite3_close(db);
        return code;
    }
    sqlite3_extended_result_codes(db, 1);
    /* The schema of another user's file must not run with this user's rights. Readers need JSON functions in views,
     * which SQLite 3.40 does not classify as harmless; their allow-list (query_gate.c) also covers views. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, (flags & SQLITE_OPEN_READONLY) != 0,
                      NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
    *out = db;
    return BT_OK;
}

bt_code bt_sql_open_rw(sqlite3 **out, const char *path, bt_err *err) {
    sqlite3 *db = NULL;
    *out = NULL;
    BT_TRY(make_database_folders(path, err));
    BT_TRY(check_database_folder(path, true, err));
    BT_TRY(open_connection(&db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, path, err));
    /* Checkpoints require the lock file. */
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    bt_code code =
        bt_sql_exec(db, path,
                    "PRAGMA busy_timeout=2000; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY; "
                    "PRAGMA foreign_keys=ON; PRAGMA wal_autocheckpoint=0",
                    err);
    if (code != BT_OK) {
        sqlite3_close(db);
        return code;
    }
    *out = db;
    return BT_OK;
}

/* Builds file:...?mode=ro with every special byte of the path escaped. */
static void build_readonly_uri(char *out, size_t size, const char *path, const char *tail) {
    size_t n = (size_t)snprintf(out, size, "file:");
    for (const char *p = path; *p && n + 4 < size; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("/._-", c);
        n += (size_t)snprintf(out + n, size - n, plain ? "%c" : "%%%02X", c);
    }
    snprintf(out + n, size - n, "?%s", tail);
}

static bt_code open_readonly(sqlite3 **out, const char *path, const char *tail, bt_err *err) {
    char uri[3 * BT_PATH_BYTES + 64];
    sqlite3 *db = NULL;
    build_readonly_uri(uri, sizeof uri, path, tail);
    BT_TRY(open_connection(&db, uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, path, err));
    int rc = sqlite3_exec(db,
                          "PRAGMA busy_timeout=2000; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY; "
                          "PRAGMA query_only=ON;"
                          "SELECT count(*) FROM sqlite_schema",
                          NULL, NULL, NULL);
    if (rc != SQLITE_OK) {
        bt_code code = bt_sql_fail(db, rc, path, "read", err);
        sqlite3_close(db);
        return code;
    }
    *out = db;
    return BT_OK;
}

bt_code bt_sql_open_ro(sqlite3 **out, const char *path, bt_err *err) {
    struct stat st;
    char wal[BT_PATH_BYTES + 8];
    *out = NULL;
    if (stat(path, &st) != 0) {
        int e = errno;
        if (e == ENOENT || e == ENOTDIR)
            return bt_fail(
                err, BT_NOTFOUND,
                "no metrics database at '%s': nothing has been trained there yet (see --store)",
                path);
        return bt_fail_errno(err, BT_IO, e, "cannot open metrics database '%s'", path);
    }
    BT_TRY(check_database_folder(path, false, err));
    bt_code code = open_readonly(out, path, "mode=ro", err);
    snprintf(wal, sizeof wal, "%s-wal", path);
    /* A complete file in a read-only folder: without a log there is no writer to coordinate with. */
    if (code == BT_IO && stat(wal, &st) != 0 && errno == ENOENT)
        code = open_readonly(out, path, "mode=ro&immutable=1", err);
    return code;
}
