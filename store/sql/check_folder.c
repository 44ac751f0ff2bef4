/* check_folder.c - checks whether a folder can contain a database. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/os/file_system.h"
#include "store/sql/sql.h"
#include "store/store.h"

/* Removes the last component; returns false at "." and "/". */
static bool parent_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (!slash) {
        if (strcmp(path, ".") == 0) return false;
        memcpy(path, ".", 2);
    } else if (slash == path) {
        if (path[1] == '\0') return false;
        path[1] = '\0';
    } else {
        *slash = '\0';
    }
    return true;
}

bt_code bt_store_check_folder(bt_store_check *out, const char *path, bt_err *err) {
    struct stat st;
    long kind;
    struct statvfs space;
    memset(out, 0, sizeof *out);
    out->sqlite = sqlite3_libversion();
    if ((size_t)snprintf(out->folder, sizeof out->folder, "%s", path) >= sizeof out->folder)
        return bt_fail(err, BT_ARG, "path of the metrics database is too long");
    while (parent_folder(out->folder))
        if (stat(out->folder, &st) == 0) break;
    if (stat(out->folder, &st) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot look at '%s'", out->folder);
    if (!S_ISDIR(st.st_mode)) return bt_fail(err, BT_IO, "'%s' is not a folder", out->folder);
    if (!bt_file_system_of_path(out->folder, &kind) || statvfs(out->folder, &space) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot look at the file system of '%s'",
                             out->folder);
    out->refused = bt_fs_fault(out->folder, kind);
    out->writable = access(out->folder, W_OK | X_OK) == 0 &&
                    (access(path, F_OK) != 0 || access(path, R_OK | W_OK) == 0);
    out->free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
    return BT_OK;
}
