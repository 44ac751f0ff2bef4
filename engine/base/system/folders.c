/* folders.c - calls mkdir for each part of a path. */
#include "engine/base/system/folders.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static bt_code make_folder(const char *path, bt_err *err) {
    struct stat st;
    if (mkdir(path, 0777) == 0) return BT_OK;
    const int e = errno;
    if (stat(path, &st) != 0)
        return bt_fail_errno(err, BT_IO, e, "cannot create folder '%s'", path);
    return S_ISDIR(st.st_mode) ? BT_OK : bt_fail(err, BT_IO, "'%s' is not a folder", path);
}

bt_code bt_make_folders(const char *path, bt_err *err) {
    char part[PATH_MAX];
    const size_t n = strlen(path);
    if (n == 0 || n >= sizeof part)
        return bt_fail(err, BT_ARG, "cannot create folder '%s': the path is empty or too long",
                       path);
    for (size_t i = 1; i <= n; i++) {
        if (i < n && path[i] != '/') continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        BT_TRY(make_folder(part, err));
    }
    return BT_OK;
}

bt_code bt_make_folder_of(const char *path, bt_err *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return BT_OK;
    if (slash - path >= PATH_MAX)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", path);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return bt_make_folders(folder, err);
}
