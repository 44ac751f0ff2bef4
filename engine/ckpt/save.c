/* save.c - the fence, and the collective that commits one checkpoint. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/ckpt/ckpt_list.h"

/* ---- fence ----------------------------------------------------------------------------------- */

static bt_code read_attempt(const char *dir, int *attempt, bt_err *err) {
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/attempt", dir);
    *attempt = -1;
    bt_code code = ckpt_slurp(path, 64, &text, &n, err);
    if (code == BT_NOTFOUND) return BT_OK;
    BT_TRY(code);
    char *end = NULL;
    long v = strtol(text, &end, 10);
    bool ok = end != text && (*end == '\n' || *end == '\0') && v >= 0 && v <= INT_MAX;
    free(text);
    if (!ok)
        return bt_fail(err, BT_FORMAT,
                       "'%s' does not hold an attempt number (remove it if no run is alive)", path);
    *attempt = (int)v;
    return BT_OK;
}

/* the lock orders `begin` of a new attempt against the commit of an old one; -1 and err when it
 * cannot be had */
static int lock_fence(const char *dir, bt_err *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/attempt.lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
        return -1;
    }
    while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        /* file systems without locks: the number alone fences */
        if (errno == ENOLCK || errno == EOPNOTSUPP) return fd;
        bt_fail_errno(err, BT_IO, errno, "cannot lock '%s'", path);
        close(fd);
        return -1;
    }
    return fd;
}

static bt_code check_fence(const char *dir, int attempt, bt_err *err) {
    int newest;
    BT_TRY(read_attempt(dir, &newest, err));
    if (newest > attempt)
        return bt_fail(err, BT_BUSY, "attempt %d may not write to '%s': attempt %d began there",
                       attempt, dir, newest);
    return BT_OK;
}

/* leftovers of saves that were killed */
static void sweep_uncommitted(const char *dir) {
    ckpt_list list;
    if (ckpt_list_read(dir, &list, NULL) != BT_OK) return;
    for (size_t i = 0; i < list.n; i++) {
        char path[PATH_MAX];
        if (snprintf(path, sizeof path, "%s/%s", dir, list.entries[i].name) >= (int)sizeof path)
            continue;
        ckpt_manifest m;
        if (!list.entries[i].committed)
            ckpt_remove(path, NULL);
        else if (ckpt_manifest_read(path, &m, NULL) == BT_OK) {
            ckpt_remove_other_generations(path, m.generation);
            ckpt_remove_file(path, "manifest.json.tmp");
            ckpt_manifest_release(&m);
        }
    }
    ckpt_list_release(&list);
}

bt_code bt_ckpt_prepare(const char *dir, bool fresh, bt_err *err) {
    char path[PATH_MAX];
    BT_TRY(ckpt_mkdirs(dir, err));
    if (snprintf(path, sizeof path, "%s/attempt.lock", dir) >= (int)sizeof path)
        return bt_fail(err, BT_ARG, "checkpoint folder '%s' is too long", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot write to checkpoint folder '%s'", dir);
    close(fd);
    if (!fresh) return BT_OK;
    ckpt_list list;
    BT_TRY(ckpt_list_read(dir, &list, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < list.n && code == BT_OK; i++)
        if (list.entries[i].committed)
            code = bt_fail(err, BT_BUSY,
                           "'%s' holds checkpoints already (go on with --resume '%s', or choose "
                           "another --out)",
                           dir, dir);
    ckpt_list_release(&list);
    return code;
}

int bt_ckpt_next_attempt(const char *dir, int at_least) {
    int newest;
    ckpt_list list;
    if (read_attempt(dir, &newest, NULL) != BT_OK) newest = -1;
    /* a folder that was copied without its fence */
    if (ckpt_list_read(dir, &list, NULL) == BT_OK) {
        for (size_t i = 0; i < list.n; i++)
            if (list.entries[i].attempt > newest) newest = list.entries[i].attempt;
        ckpt_list_release(&list);
    }
    return newest + 1 > at_least ? newest + 1 : at_least;
}

bt_code bt_ckpt_begin(const char *dir, int attempt, bt_err *err) {
    BT_TRY(ckpt_mkdirs(dir, err));
    int lock = lock_fence(dir, err);
    if (lock < 0) return err ? err->code : BT_IO;
    char text[24];
    snprintf(text, sizeof text, "%d\n", attempt);
    bt_code code = check_fence(dir, attempt, err);
    if (code == BT_OK)
        code = ckpt_replace_file(dir, "attempt", text, strlen(text), NULL, NULL, err);
    if (code == BT_OK) sweep_uncommitted(dir);
    close(lock);
    return code;
}

/* ---- commit ---------------------------------------------------------------------------------- */

typedef struct fence_ctx {
    const char *dir;
    int attempt, lock;
    bool passed;
} fence_ctx;

static bt_code fence_before_rename(void *ctx, bt_err *err) {
    fence_ctx *f = ctx;
    f->lock = lock_fence(f->dir, err);
    if (f->lock < 0) return err ? err->code : BT_IO;
    BT_TRY(check_fence(f->dir, f->attempt, err));
    f->passed = true;
    return BT_OK;
}

/* the manifest that is in place is the one with this seal */
static bool manifest_is(const char *folder, const char *seal) {
    ckpt_manifest m;
    if (ckpt_manifest_read(folder, &m, NULL) != BT_OK) return false;
    const bool ours = strcmp(m.seal, seal) == 0;
    ckpt_manifest_release(&m);
    return ours;
}

/* rank 0: manifest from everybody's rows; the rename inside is the commit */
static bt_code commit(const char *dir, const char *folder, const bt_ckpt_meta *meta,
                      uint64_t generation, int world_size, const ckpt_file *rows, char seal[33],
                      bool *renamed, bt_err *err) {
    ckpt_file *files = calloc((size_t)world_size, sizeof *files);
    if (!files) return bt_fail(err, BT_NOMEM, "cannot allocate %d file rows", world_size);
    size_t n = 0;
    for (int r = 0; r < world_size; r++)
        if (rows[r].name[0]) files[n++] = rows[r];
    bt_text text;
    bt_text_init(&text);
    fence_ctx fence = {dir, meta->attempt, -1, false};
    bt_code code = n > 0 ? BT_OK : bt_fail(err, BT_ARG, "nothing to save: no rank gave a slice");
    if (code == BT_OK)
        code = ckpt_manifest_text(meta, generation, world_size, files, n, &text, seal, err);
    if (code == BT_OK)
        code = ckpt_replace_file(folder, "manifest.json", text.data, text.len, fence_before_rename,
                                 &fence, err);
    *renamed = fence.passed && manifest_is(folder, seal);
    if (fence.lock >= 0) close(fence.lock);
    if (code == BT_OK) code = ckpt_sync_folder(dir, err);
    if (code == BT_OK && !*renamed)
        code = bt_fail(err, BT_IO, "'%s/manifest.json' reads back differently than written",
                       folder);
    bt_text_release(&text);
    free(files);
    return code;
}

/* only the newest `keep` stay; a failure here costs disk space, not the checkpoint */
static void retire(const char *dir, const char *folder, uint64_t generation, int keep) {
    ckpt_remove_other_generations(folder, generation);
    ckpt_list list;
    if (ckpt_list_read(dir, &list, NULL) != BT_OK) return;
    int kept = 0;
    for (size_t i = 0; i < list.n; i++) {
        char path[PATH_MAX];
        if (!list.entries[i].committed) continue;
        if (list.entries[i].readable && kept < keep)
            kept++;
        else if (kept >= keep &&
                 snprintf(path, sizeof path, "%s/%s", dir, list.entries[i].name) < (int)sizeof path)
            ckpt_remove(path, NULL);
    }
    ckpt_list_release(&list);
}

static bt_code prepare(const char *dir, const char *folder, const bt_ckpt_meta *meta,
                       uint64_t *generation, bt_err *err) {
    if (getrandom(generation, sizeof *generation, 0) != (ssize_t)sizeof *generation)
        return bt_fail_errno(err, BT_IO, errno, "cannot get a random generation number");
    BT_TRY(ckpt_mkdirs(dir, err));
    BT_TRY(check_fence(dir, meta->attempt, err));
    return ckpt_mkdirs(folder, err);
}

bt_code bt_ckpt_save(bt_comm *c, const char *dir, const bt_ckpt_meta *meta,
                     const bt_ckpt_slice *slices, size_t n, int keep, char *path, size_t path_size,
                     int64_t *bytes, char hash[33], bt_err *err) {
    const int rank = bt_comm_rank(c), size = bt_comm_size(c);
    char folder[PATH_MAX];
    bt_code code = BT_OK;
    if (snprintf(folder, sizeof folder, "%s/step-%012" PRId64, dir, meta->step) >=
        (int)sizeof folder - 80)
        code = bt_fail(err, BT_ARG, "checkpoint folder '%s' is too long", dir);
    uint64_t generation = 0;
    if (code == BT_OK && rank == 0) code = prepare(dir, folder, meta, &generation, err);
    BT_TRY(bt_agree(c, code, err));
    BT_TRY(bt_broadcast(c, &generation, sizeof generation, 0, err));

    ckpt_file mine, *rows = NULL;
    memset(&mine, 0, sizeof mine);
    mine.rank = rank;
    if (n > 0) code = ckpt_file_write(folder, &mine, generation, meta->step, slices, n, err);
    if (rank == 0 && code == BT_OK && !(rows = calloc((size_t)size, sizeof *rows)))
        code = bt_fail(err, BT_NOMEM, "cannot allocate %d file rows", size);
    code = bt_agree(c, code, err);
    if (code == BT_OK) code = bt_gather(c, &mine, sizeof mine, rows, 0, err);

    struct {
        char seal[40];
        int64_t bytes;
    } sum;
    bool renamed = false;
    memset(&sum, 0, sizeof sum);
    if (code == BT_OK) {
        if (rank == 0) {
            code = commit(dir, folder, meta, generation, size, rows, sum.seal, &renamed, err);
            for (int r = 0; r < size; r++) sum.bytes += (int64_t)rows[r].bytes;
        }
        code = bt_agree(c, code, err);
    }
    if (code == BT_OK) code = bt_broadcast(c, &sum, sizeof sum, 0, err);
    if (code != BT_OK) {
        bt_err ignored;
        /* An error after the rename (a sync that failed): it is in place and loads, only a power
         * cut may take it. It stays, and so do the older ones. */
        if (bt_broadcast(c, &renamed, sizeof renamed, 0, &ignored) == BT_OK && renamed) {
            free(rows);
            return code;
        }
        if (mine.name[0]) ckpt_remove_file(folder, mine.name);
        /* stays when an older commit is inside */
        if (bt_barrier(c, &ignored) == BT_OK && rank == 0) rmdir(folder);
        if (bt_barrier(c, &ignored) != BT_OK)
            bt_log(BT_LOG_WARN, "after a failed checkpoint: %s", ignored.msg);
        free(rows);
        return code;
    }
    if (rank == 0) retire(dir, folder, generation, keep < 1 ? 1 : keep);
    free(rows);
    if (path) snprintf(path, path_size, "%s", folder);
    if (bytes) *bytes = sum.bytes;
    if (hash) memcpy(hash, sum.seal, 33);
    return BT_OK;
}
