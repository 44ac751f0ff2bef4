/* run_folder.c - counts and removes the files of a run's out folder, and nothing else that may lie
 * there. */
#include "cli/runs/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/store.h"

enum { DESCRIPTORS = 16 };

static bool is_ours(const char *name) {
    static const char *const files[] = {"log.txt", "attempt",      "attempt.lock", "run.lock",
                                        "best",    "suspect.json", BT_RING_FILE};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(name, files[i]) == 0) return true;
    return strncmp(name, "step-", 5) == 0;
}

/* nftw knows no context; one folder at a time, one thread */
static int64_t sum;
static int trouble;

static int add_size(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)path;
    (void)at;
    if (type == FTW_F) sum += st->st_size;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    if (remove(path) != 0 && !trouble) trouble = errno;
    return 0;
}

bool bt_run_folder_look(const char *dir, int *checkpoints, int64_t *bytes) {
    char path[PATH_MAX];
    *checkpoints = 0;
    *bytes = 0;
    if (!dir || !dir[0] || snprintf(path, sizeof path, "%s/attempt.lock", dir) >= (int)sizeof path)
        return false;
    DIR *d = access(path, F_OK) == 0 ? opendir(dir) : NULL;
    if (!d) return false;
    sum = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (!is_ours(e->d_name)) continue;
        if (strncmp(e->d_name, "step-", 5) == 0) ++*checkpoints;
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            nftw(path, add_size, DESCRIPTORS, FTW_PHYS);
    }
    closedir(d);
    *bytes = sum;
    return true;
}

bt_code bt_run_folder_remove(const char *dir, bool *left, bt_err *err) {
    char path[PATH_MAX];
    *left = false;
    DIR *d = opendir(dir);
    if (!d) return bt_fail_errno(err, BT_IO, errno, "cannot open the folder '%s'", dir);
    trouble = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (!is_ours(e->d_name)) continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            nftw(path, remove_one, DESCRIPTORS, FTW_PHYS | FTW_DEPTH);
    }
    closedir(d);
    if (trouble) return bt_fail_errno(err, BT_IO, trouble, "cannot remove all of '%s'", dir);
    *left = rmdir(dir) != 0;
    return BT_OK;
}
