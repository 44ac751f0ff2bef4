/* memory_dir.c - makes and finds the folder of in-memory states on a host without a supervisor. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/ckpt/memory/memory_state.h"

/* Returns NAME of NAME/states; false: it has another form. */
static bool states_parent(const char *dir, char parent[PATH_MAX]) {
    if (snprintf(parent, PATH_MAX, "%s", dir) >= PATH_MAX) return false;
    char *end = strrchr(parent, '/');
    if (!end || end == parent) return false;
    *end = '\0';
    return true;
}

static bt_code make_private_folder(const char *folder, bt_err *err) {
    struct stat st;
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", folder);
    if (lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != getuid() ||
        (st.st_mode & 022))
        return bt_fail(err, BT_IO, "'%s' is not a folder of this user alone", folder);
    return BT_OK;
}

bt_code bt_memory_dir_make(const char *dir, bt_err *err) {
    char parent[PATH_MAX];
    if (!states_parent(dir, parent))
        return bt_fail(err, BT_IO, "'%s' cannot hold states in memory", dir);
    BT_TRY(make_private_folder(parent, err));
    return make_private_folder(dir, err);
}

void bt_memory_dir_remove(const char *dir) {
    char parent[PATH_MAX], lock[PATH_MAX + 8];
    if (!states_parent(dir, parent)) return;
    snprintf(lock, sizeof lock, "%s/lock", parent);
    if (access(lock, F_OK) == 0) return;
    bt_memory_state_drop(dir);
    rmdir(dir);
    rmdir(parent);
}
