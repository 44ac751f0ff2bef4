/* memory_dir.c - creates and removes the folder of states in memory on a host without a supervisor. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/ckpt/memory/memory_state.h"

/* Writes NAME if dir is NAME/states; otherwise returns false. */
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
        return bt_fail(err, BT_IO, "'%s' is not a folder that only this user can access", folder);
    return BT_OK;
}

bt_code bt_memory_dir_make(const char *dir, bt_err *err) {
    char parent[PATH_MAX];
    if (!states_parent(dir, parent))
        return bt_fail(err, BT_IO,
                       "'%s' cannot be the folder of states in memory: its path is too long or "
                       "does not end with '/states'",
                       dir);
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
