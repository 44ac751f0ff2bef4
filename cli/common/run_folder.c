/* run_folder.c - measures and removes the files that a run wrote to its output folder, and no other files. */
#include "cli/common/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/tables/metric.h"
#include "store/store.h"
#include "store/write/manage.h"

enum { DESCRIPTORS = 16 };

static bool is_run_file(const char *name) {
    static const char *const files[] = {"log.txt", "attempt",      "attempt.lock", "run.lock",
                                        "best",    "suspect.json", BT_RING_FILE};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(name, files[i]) == 0) return true;
    return strncmp(name, "step-", 5) == 0;
}

/* nftw has no context argument, so the sum is static: one folder at a time, one thread. */
static int64_t sum;
static int trouble;

static int add_size(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)path;
    (void)at;
    if (type == FTW_F) sum += st->st_size;
    return 0;
}

static int remove_run_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    if (remove(path) != 0 && !trouble) trouble = errno;
    return 0;
}

bool bt_run_folder_measure(const char *dir, int *checkpoints, int64_t *bytes) {
    char path[PATH_MAX];
    *checkpoints = 0;
    *bytes = 0;
    if (!dir || !dir[0] || snprintf(path, sizeof path, "%s/attempt.lock", dir) >= (int)sizeof path)
        return false;
    DIR *d = access(path, F_OK) == 0 ? opendir(dir) : NULL;
    if (!d) return false;
    sum = 0;
    for (const struct dirent *e; (e = readdir(d));) {
        if (!is_run_file(e->d_name)) continue;
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
        if (!is_run_file(e->d_name)) continue;
        if (snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            nftw(path, remove_run_entry, DESCRIPTORS, FTW_PHYS | FTW_DEPTH);
    }
    closedir(d);
    if (trouble) return bt_fail_errno(err, BT_IO, trouble, "cannot remove all of '%s'", dir);
    *left = rmdir(dir) != 0;
    return BT_OK;
}

bt_code bt_run_remove(const char *store, const char *run, bool checkpoints, char *reply,
                      size_t size, bt_err *err) {
    char folder[PATH_MAX] = "", bytes_text[32];
    bt_db *db = NULL;
    int n = 0;
    int64_t bytes = 0;
    bool left = false;
    BT_TRY(bt_db_open(&db, store, err));
    bt_code code = bt_db_run_folder(db, run, folder, sizeof folder, err);
    bt_db_close(db);
    BT_TRY(code);
    BT_TRY(bt_runs_remove(store, &run, 1, 1, err));
    const bool there = bt_run_folder_measure(folder, &n, &bytes);
    snprintf(reply, size, "removed the records of %.64s", run);
    if (!there) return BT_OK;
    if (!checkpoints) {
        snprintf(reply, size, "removed the records of %.64s; its checkpoints remain in '%.200s'",
                 run, folder);
        return BT_OK;
    }
    BT_TRY(bt_run_folder_remove(folder, &left, err));
    snprintf(reply, size, "removed the records of %.64s and %d checkpoint%s, %s", run, n,
             n == 1 ? "" : "s",
             bt_metric_format(bytes_text, sizeof bytes_text, (double)bytes, BT_UNIT_BYTES));
    return BT_OK;
}
