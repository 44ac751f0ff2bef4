/* backup.c - copies the whole file through SQLite, so that the copy is consistent; two copies are kept. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "store/sql/sql.h"
#include "store/write/manage.h"

/* A copy may take a tenth of the free space, because it must never fill the disk. */
static bool has_room_for_backup(const char *path) {
    struct stat st;
    struct statvfs v;
    if (stat(path, &st) != 0 || statvfs(path, &v) != 0) return false;
    return (uint64_t)st.st_size <= (uint64_t)v.f_bavail * v.f_frsize / 10;
}

/* BITRAIN_TEST_BACKUP=GATE stops the copy at two points until GATE.copy and GATE.rename exist, to test a kill there. */
static bool has_test_gate(void) { return getenv("BITRAIN_TEST_BACKUP") != NULL; }
static void wait_for_test_gate(const char *place) {
    char gate[BT_PATH_BYTES];
    if (!has_test_gate()) return;
    snprintf(gate, sizeof gate, "%.1000s.%s", getenv("BITRAIN_TEST_BACKUP"), place);
    while (access(gate, F_OK) != 0) bt_sleep_ns(10000000);
}

static bt_code copy_database(sqlite3 *from, const char *path, const char *fresh, bt_err *err) {
    sqlite3 *to = NULL;
    int rc = sqlite3_open_v2(
        fresh, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_backup *b = rc == SQLITE_OK ? sqlite3_backup_init(to, "main", from, "main") : NULL;
    if (b) {
        if (has_test_gate()) sqlite3_backup_step(b, 2048); /* more than the cache holds */
        wait_for_test_gate("copy");
        /* One read transaction; writers continue in the log. */
        rc = sqlite3_backup_step(b, -1);
        sqlite3_backup_finish(b);
    } else if (rc == SQLITE_OK)
        rc = sqlite3_errcode(to);
    bt_code code = rc == SQLITE_DONE
                       ? BT_OK
                       : bt_fail(err, BT_IO, "cannot copy metrics database '%s' into '%s': %s",
                                 path, fresh, sqlite3_errstr(rc));
    sqlite3_close(to);
    return code;
}

/* The file is locked while it is written, so a file that can be locked is left from a killed process. Returns -1 if
 * it cannot be created. */
static int create_locked_file(const char *fresh) {
    unlink(fresh);
    int fd = open(fresh, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) flock(fd, LOCK_EX | LOCK_NB);
    return fd;
}

static bool is_abandoned_copy(const char *fresh) {
    int fd = open(fresh, O_RDONLY | O_CLOEXEC);
    bool nobody = fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0) close(fd);
    return nobody;
}

/* Removes NAME.backup-PID.tmp with SQLite's journal and the second name of take_places. Compares names, because a
 * path may contain special characters of a pattern. */
static void remove_stale_backups(const char *path) {
    static const char mark[] = ".backup-";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t folder = (size_t)(name - path), n = strlen(name);
    char file[BT_PATH_BYTES + NAME_MAX + 1], fresh[sizeof file];
    snprintf(file, sizeof file, "%.*s", (int)folder, path);
    DIR *d = opendir(folder ? file : ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, name, n) != 0 || strncmp(e->d_name + n, mark, strlen(mark)) != 0)
            continue;
        snprintf(file, sizeof file, "%.*s%s", (int)folder, path, e->d_name);
        snprintf(fresh, sizeof fresh, "%s", file);
        char *end = strstr(fresh + folder + n, ".tmp");
        if (!end) continue;
        end[4] = 0;
        if (is_abandoned_copy(fresh)) unlink(file);
    }
    if (d) closedir(d);
}

/* The newest copy becomes the older one, and the new copy becomes the newest; after a kill at any point both names have
 * a complete file. */
static bt_code rotate_backups(const char *fresh, const char *newest, const char *older,
                              bt_err *err) {
    char second[BT_PATH_BYTES + 64];
    /* name of a second link to the newest copy */
    snprintf(second, sizeof second, "%s.1", fresh);
    unlink(second);
    bool linked = link(newest, second) == 0;
    /* ENOENT: there is no earlier copy */
    if (!linked && errno == ENOENT)
        linked = true;
    else if (linked && rename(second, older) != 0) {
        const int e = errno;
        unlink(second);
        return bt_fail_errno(err, BT_IO, e, "cannot keep '%s' as '%s'", newest, older);
    }
    /* rename keeps its source if both names already are links to the same file */
    unlink(second);
    /* the file system has no links */
    if (!linked && rename(newest, older) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot keep '%s' as '%s'", newest, older);
    wait_for_test_gate("rename");
    if (rename(fresh, newest) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot rename '%s'", fresh);
    return BT_OK;
}

bt_code bt_store_backup(const char *path, bt_err *err) {
    char fresh[BT_PATH_BYTES + 48], newest[BT_PATH_BYTES + 16], older[BT_PATH_BYTES + 16];
    sqlite3 *from = NULL;
    remove_stale_backups(path);
    if (!has_room_for_backup(path))
        return bt_fail(err, BT_UNSUPPORTED,
                       "no backup of '%s': it would take more than a tenth of the free room", path);
    snprintf(fresh, sizeof fresh, "%s.backup-%ld.tmp", path, (long)getpid());
    snprintf(newest, sizeof newest, "%s.backup", path);
    snprintf(older, sizeof older, "%s.backup.1", path);
    BT_TRY(bt_sql_open_ro(&from, path, err));
    int fd = create_locked_file(fresh);
    bt_code code = copy_database(from, path, fresh, err);
    sqlite3_close(from);
    if (code == BT_OK) code = rotate_backups(fresh, newest, older, err);
    if (code != BT_OK) unlink(fresh);
    if (fd >= 0) close(fd);
    return code;
}
