/* given_path.c - makes paths absolute; writes output files atomically. */
#include "cli/common/given_path.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/data/io/file_io.h"

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

bt_code bt_may_write(const char *path, bool force, bt_err *err) {
    struct stat st;
    if (force || stat(path, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        return BT_OK;
    return bt_fail(err, BT_BUSY, "'%s' exists already (--force replaces it)", path);
}

bt_code bt_out_text_open(bt_out_text *o, const char *path, bool force, bt_err *err) {
    *o = (bt_out_text){.to = stdout, .path = path};
    struct stat st;
    if (!path[0]) return BT_OK;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return bt_fail(err, BT_IO, "cannot write '%.200s': it is a folder (name a file in it)",
                       path);
    BT_TRY(bt_may_write(path, force, err));
    if (!bt_file_is_device(path) &&
        snprintf(o->part, sizeof o->part, "%s.part", path) >= (int)sizeof o->part)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", path);
    const char *at = o->part[0] ? o->part : path;
    o->to = fopen(at, "wb");
    return o->to ? BT_OK : bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", path);
}

bt_code bt_out_text_close(bt_out_text *o, bt_code code, bt_err *err) {
    if (!o->path[0]) return code;
    bool bad = ferror(o->to) != 0;
    if (fclose(o->to) != 0) bad = true;
    if (code == BT_OK && (bad || (o->part[0] && rename(o->part, o->path) != 0)))
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", o->path);
    if (code != BT_OK && o->part[0]) remove(o->part);
    return code;
}
