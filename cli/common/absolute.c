/* absolute.c - the current folder before a relative path. */
#include "cli/common/absolute.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bt_code bt_absolute_path(const char *path, char out[PATH_MAX], bt_err *err) {
    char cwd[PATH_MAX];
    if (path[0] == '/') {
        if (snprintf(out, PATH_MAX, "%s", path) < PATH_MAX) return BT_OK;
    } else {
        if (!getcwd(cwd, sizeof cwd))
            return bt_fail_errno(err, BT_IO, errno, "cannot find the current folder");
        if (snprintf(out, PATH_MAX, "%s/%s", strcmp(cwd, "/") == 0 ? "" : cwd, path) < PATH_MAX)
            return BT_OK;
    }
    return bt_fail(err, BT_ARG, "path '%s' is too long", path);
}
