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
    return bt_ckpt_check(dir, fresh, err);
}

bt_code bt_ckpt_check(const char *dir, bool fresh, bt_err *err) {
    if (!fresh || access(dir, F_OK) != 0) return BT_OK;
    ckpt_list list;
    BT_TRY(ckpt_list_read(dir, &list, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < list.n && code == BT_OK; i++)
        if (list.entries[i].committed)
            code = bt_fail(err, BT_BUSY,
                           "'%s' holds checkpoints already (go on with --resume '%s', choose "
                           "another --name or --out, or remove them: rm -r '%s')",
                           dir, dir, dir);
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

typedef struct save_ctx { /* one collective save */
    bt_comm *c;
    const bt_ckpt_job *job;
    char folder[PATH_MAX];
    uint64_t generation;
    ckpt_file mine, *rows; /* rows: of all ranks, on rank 0 */
    char seal[40];
    bool renamed; /* rank 0: the manifest is in place */
} save_ctx;

/* rank 0: manifest from all ranks' rows; the rename inside is the commit */
static bt_code commit(save_ctx *s, bt_err *err) {
    int world_size = bt_comm_size(s->c);
    const bt_ckpt_meta *meta = s->job->meta;
    ckpt_file *files = calloc((size_t)world_size, sizeof *files);
    if (!files) return bt_fail(err, BT_NOMEM, "cannot allocate %d file rows", world_size);
    size_t n = 0;
    for (int r = 0; r < world_size; r++)
        if (s->rows[r].name[0]) files[n++] = s->rows[r];
    bt_text text;
    bt_text_init(&text);
    fence_ctx fence = {s->job->dir, meta->attempt, -1, false};
    bt_code code = n > 0 ? BT_OK : bt_fail(err, BT_ARG, "nothing to save: no rank gave a slice");
    if (code == BT_OK)
        code = ckpt_manifest_text(meta, s->generation, world_size, files, n, &text, s->seal, err);
    if (code == BT_OK)
        code = ckpt_replace_file(s->folder, "manifest.json", text.data, text.len,
                                 fence_before_rename, &fence, err);
    s->renamed = fence.passed && manifest_is(s->folder, s->seal);
    if (fence.lock >= 0) close(fence.lock);
    if (code == BT_OK) code = ckpt_sync_folder(s->job->dir, err);
    if (code == BT_OK && !s->renamed)
        code = bt_fail(err, BT_IO, "'%s/manifest.json' reads back differently than written",
                       s->folder);
    bt_text_release(&text);
    free(files);
    return code;
}

/* only the newest `keep` stay; a failure here costs disk space, not the checkpoint */
static void retire(const save_ctx *s) {
    const char *dir = s->job->dir;
    int keep = s->job->keep < 1 ? 1 : s->job->keep, kept = 0;
    ckpt_remove_other_generations(s->folder, s->generation);
    ckpt_list list;
    if (ckpt_list_read(dir, &list, NULL) != BT_OK) return;
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

static bt_code make_generation(save_ctx *s, bt_err *err) {
    if (getrandom(&s->generation, sizeof s->generation, 0) != (ssize_t)sizeof s->generation)
        return bt_fail_errno(err, BT_IO, errno, "cannot get a random generation number");
    BT_TRY(ckpt_mkdirs(s->job->dir, err));
    BT_TRY(check_fence(s->job->dir, s->job->meta->attempt, err));
    return ckpt_mkdirs(s->folder, err);
}

/* folder and generation, the same on all ranks */
static bt_code prepare(save_ctx *s, bt_err *err) {
    bt_code code = BT_OK;
    if (snprintf(s->folder, sizeof s->folder, "%s/step-%012" PRId64, s->job->dir,
                 s->job->meta->step) >= (int)sizeof s->folder - 80)
        code = bt_fail(err, BT_ARG, "checkpoint folder '%s' is too long", s->job->dir);
    if (code == BT_OK && bt_comm_rank(s->c) == 0) code = make_generation(s, err);
    BT_TRY(bt_agree(s->c, code, err));
    return bt_broadcast(s->c, &s->generation, sizeof s->generation, 0, err);
}

/* this rank's file, and on rank 0 the rows of all */
static bt_code write_files(save_ctx *s, bt_err *err) {
    const int rank = bt_comm_rank(s->c), size = bt_comm_size(s->c);
    bt_code code = BT_OK;
    s->mine.rank = rank;
    if (s->job->n > 0) code = ckpt_file_write(s->folder, &s->mine, s->generation, s->job, err);
    if (rank == 0 && code == BT_OK && !(s->rows = calloc((size_t)size, sizeof *s->rows)))
        code = bt_fail(err, BT_NOMEM, "cannot allocate %d file rows", size);
    BT_TRY(bt_agree(s->c, code, err));
    return bt_gather(s->c, &s->mine, sizeof s->mine, s->rows, 0, err);
}

static bt_code commit_and_tell(save_ctx *s, bt_ckpt_saved *out, bt_err *err) {
    struct {
        char seal[40];
        int64_t bytes;
    } sum;
    bt_code code = BT_OK;
    memset(&sum, 0, sizeof sum);
    if (bt_comm_rank(s->c) == 0) {
        code = commit(s, err);
        memcpy(sum.seal, s->seal, sizeof sum.seal);
        for (int r = 0; r < bt_comm_size(s->c); r++) sum.bytes += (int64_t)s->rows[r].bytes;
    }
    BT_TRY(bt_agree(s->c, code, err));
    BT_TRY(bt_broadcast(s->c, &sum, sizeof sum, 0, err));
    if (!out) return BT_OK;
    snprintf(out->path, sizeof out->path, "%s", s->folder);
    out->bytes = sum.bytes;
    memcpy(out->hash, sum.seal, sizeof out->hash);
    return BT_OK;
}

/* Nothing of a failed save stays. But an error after the rename (a sync that failed) leaves a
 * checkpoint that is in place and loads, which only a power cut may take: it stays, and so do the
 * older ones. */
static void roll_back(save_ctx *s) {
    bt_err ignored;
    if (bt_broadcast(s->c, &s->renamed, sizeof s->renamed, 0, &ignored) == BT_OK && s->renamed)
        return;
    if (s->mine.name[0]) ckpt_remove_file(s->folder, s->mine.name);
    /* the folder stays when an older commit is inside */
    if (bt_barrier(s->c, &ignored) == BT_OK && bt_comm_rank(s->c) == 0) rmdir(s->folder);
    if (bt_barrier(s->c, &ignored) != BT_OK)
        bt_log(BT_LOG_WARN, "after a failed checkpoint: %s", ignored.msg);
}

bt_code bt_ckpt_save(bt_comm *c, const bt_ckpt_job *job, bt_ckpt_saved *out, bt_err *err) {
    save_ctx s = {.c = c, .job = job};
    BT_TRY(prepare(&s, err));
    bt_code code = write_files(&s, err);
    if (code == BT_OK) code = commit_and_tell(&s, out, err);
    if (code != BT_OK)
        roll_back(&s);
    else if (bt_comm_rank(c) == 0)
        retire(&s);
    free(s.rows);
    return code;
}
