/* ckpt_list.c - lists the checkpoints of a folder. */
#include "engine/ckpt/ckpt_list.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool parse_step_folder(const char *name, int64_t *step) {
    char again[32];
    if (strlen(name) >= sizeof again || sscanf(name, "step-%18" SCNd64, step) != 1 || *step < 0)
        return false;
    snprintf(again, sizeof again, "step-%012" PRId64, *step);
    return strcmp(again, name) == 0;
}

static int compare_newest_first(const void *a, const void *b) {
    const ckpt_entry *x = a, *y = b;
    if (x->readable != y->readable) return x->readable ? 1 : -1;
    if (x->attempt != y->attempt) return x->attempt < y->attempt ? 1 : -1;
    return x->step < y->step ? 1 : x->step > y->step ? -1 : 0;
}

bt_code ckpt_list_read(const char *dir, ckpt_list *out, bt_err *err) {
    memset(out, 0, sizeof *out);
    DIR *d = opendir(dir);
    if (!d)
        return bt_fail_errno(err, errno == ENOENT || errno == ENOTDIR ? BT_NOTFOUND : BT_IO, errno,
                             "cannot open checkpoint folder '%s'", dir);
    size_t cap = 0;
    bt_code code = BT_OK;
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step;
        char path[PATH_MAX];
        if (!parse_step_folder(e->d_name, &step)) continue;
        if (out->n == cap) {
            cap = cap ? 2 * cap : 16;
            ckpt_entry *more = realloc(out->entries, cap * sizeof *more);
            if (!more) {
                code = bt_fail(err, BT_NOMEM, "cannot list '%s'", dir);
                break;
            }
            out->entries = more;
        }
        ckpt_entry *x = &out->entries[out->n++];
        memset(x, 0, sizeof *x);
        snprintf(x->name, sizeof x->name, "%.31s", e->d_name);
        x->step = step;
        x->attempt = -1;
        struct stat st;
        x->committed = snprintf(path, sizeof path, "%s/%s/manifest.json", dir, x->name) <
                           (int)sizeof path &&
                       stat(path, &st) == 0;
        ckpt_manifest m;
        bt_err why = BT_ERR_INIT;
        if (!x->committed || snprintf(path, sizeof path, "%s/%s", dir, x->name) >= (int)sizeof path)
            continue;
        const bt_code read = ckpt_manifest_read(path, &m, &why);
        if (read == BT_NOMEM) { /* out of memory, which does not mean a damaged checkpoint */
            code = read;
            if (err) *err = why;
            break;
        }
        if (read != BT_OK) continue;
        x->readable = true;
        x->attempt = m.meta.attempt;
        ckpt_manifest_release(&m);
    }
    closedir(d);
    if (code != BT_OK)
        ckpt_list_release(out);
    else if (out->n > 1)
        qsort(out->entries, out->n, sizeof *out->entries, compare_newest_first);
    return code;
}

void ckpt_list_release(ckpt_list *l) {
    free(l->entries);
    memset(l, 0, sizeof *l);
}

void ckpt_remove_file(const char *folder, const char *name) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path) unlink(path);
}

/* Removes data files, finished or not, except those of generation `keep` (0: none). */
static void remove_data_files(const char *folder, uint64_t keep) {
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        char name[CKPT_FILE_NAME_MAX + 8];
        size_t n = strlen(e->d_name);
        if (n >= sizeof name) continue;
        memcpy(name, e->d_name, n + 1);
        if (n > 4 && strcmp(name + n - 4, ".tmp") == 0) name[n - 4] = '\0';
        unsigned long long generation = 0;
        if (!ckpt_file_name_ok(name) || sscanf(name, "data-%*d-%16llx", &generation) != 1) continue;
        if (keep == 0 || generation != keep) ckpt_remove_file(folder, e->d_name);
    }
    closedir(d);
}

void ckpt_remove_other_generations(const char *folder, uint64_t generation) {
    remove_data_files(folder, generation);
}

void ckpt_remove(const char *folder, bt_err *err) {
    ckpt_remove_file(folder, "manifest.json");
    ckpt_remove_file(folder, "manifest.json.tmp");
    remove_data_files(folder, 0);
    if (rmdir(folder) != 0 && err) bt_fail_errno(err, BT_IO, errno, "cannot remove '%s'", folder);
}
