/* save.c - the fence, the steps of a save, and the collective function that executes them. */
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
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/log.h"
#include "engine/base/system/folders.h"
#include "engine/ckpt/ckpt_list.h"
#include "engine/ckpt/save_steps.h"

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
        return bt_fail(
            err, BT_FORMAT,
            "'%s' does not contain the number of an attempt (remove it if no run uses this folder)",
            path);
    *attempt = (int)v;
    return BT_OK;
}

/* Takes the lock that orders the begin of a new attempt and the commit of an old one. Returns -1 with an error. */
static int lock_fence(const char *dir, bt_err *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/attempt.lock", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
        return -1;
    }
    while (flock(fd, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        /* On file systems without locks, only the number of the attempt prevents commits by older attempts. */
        if (errno == ENOLCK || errno == EOPNOTSUPP) return fd;
        bt_fail_errno(err, BT_IO, errno, "cannot lock '%s'", path);
        close(fd);
        return -1;
    }
    return fd;
}

/* newest: receives the number in the fence, -1 if there is none; may be NULL. */
static bt_code check_fence(const char *dir, int attempt, int *newest, bt_err *err) {
    int number;
    BT_TRY(read_attempt(dir, &number, err));
    if (newest) *newest = number;
    if (number > attempt)
        return bt_fail(err, BT_BUSY,
                       "attempt %d may not write to '%s', because the newer attempt %d has begun "
                       "there: end this attempt",
                       attempt, dir, number);
    return BT_OK;
}

/* Overwrites the number in the existing file, which needs neither a free block nor permission to create files. Numbers
 * only increase, so the new text is never shorter than the old one. */
static bt_code overwrite_fence(const char *dir, const char *text, bt_err *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/attempt", dir);
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot open '%s'", path);
    bt_code code = ckpt_write_all(fd, text, strlen(text), 0, path, err);
    if (code == BT_OK && fsync(fd) != 0)
        code = bt_fail_errno(err, BT_IO, errno, "cannot sync '%s'", path);
    close(fd);
    return code;
}

/* Writes the number of the attempt. The caller has locked and checked the fence. */
static bt_code write_fence(const char *dir, int attempt, bt_err *err) {
    char text[24];
    bt_err ignored = BT_ERR_INIT;
    snprintf(text, sizeof text, "%d\n", attempt);
    bt_code code = ckpt_replace_file(dir, "attempt", text, strlen(text), NULL, NULL, err);
    if (code == BT_IO && overwrite_fence(dir, text, &ignored) == BT_OK) code = BT_OK;
    return code;
}

/* Removes files of killed saves. */
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

/* Creates, syncs and removes a file of one block, so that a full disk is detected before anything starts. */
static bt_code probe_folder(const char *dir, bt_err *err) {
    static const char block[4096];
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/attempt.probe", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bt_code code = fd < 0 ? BT_IO : ckpt_write_all(fd, block, sizeof block, 0, path, NULL);
    if (code == BT_OK && fsync(fd) != 0) code = BT_IO;
    const int cause = errno;
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    return code == BT_OK
               ? BT_OK
               : bt_fail_errno(err, BT_IO, cause, "cannot write to checkpoint folder '%s'", dir);
}

bt_code bt_ckpt_prepare(const char *dir, bool fresh, bt_err *err) {
    char path[PATH_MAX];
    BT_TRY(bt_make_folders(dir, err));
    if (snprintf(path, sizeof path, "%s/attempt.lock", dir) >= (int)sizeof path)
        return bt_fail(err, BT_ARG, "checkpoint folder '%s' is too long", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot write to checkpoint folder '%s'", dir);
    close(fd);
    BT_TRY(bt_ckpt_check(dir, fresh, err));
    return probe_folder(dir, err);
}

bt_code bt_ckpt_check(const char *dir, bool fresh, bt_err *err) {
    if (!fresh || access(dir, F_OK) != 0) return BT_OK;
    ckpt_list list;
    BT_TRY(ckpt_list_read(dir, &list, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < list.n && code == BT_OK; i++)
        if (list.entries[i].committed)
            code = bt_fail(err, BT_BUSY,
                           "'%s' already contains checkpoints (continue with --resume '%s', choose "
                           "another --name or --out, or remove them: rm -r '%s')",
                           dir, dir, dir);
    ckpt_list_release(&list);
    return code;
}

int bt_ckpt_next_attempt(const char *dir, int at_least) {
    int newest;
    ckpt_list list;
    if (read_attempt(dir, &newest, NULL) != BT_OK) newest = -1;
    /* the folder may have been copied without its fence */
    if (ckpt_list_read(dir, &list, NULL) == BT_OK) {
        for (size_t i = 0; i < list.n; i++)
            if (list.entries[i].attempt > newest) newest = list.entries[i].attempt;
        ckpt_list_release(&list);
    }
    return newest + 1 > at_least ? newest + 1 : at_least;
}

bt_code bt_ckpt_begin(const char *dir, int attempt, bt_err *err) {
    BT_TRY(bt_make_folders(dir, err));
    int lock = lock_fence(dir, err);
    if (lock < 0) return err ? err->code : BT_IO;
    bt_code code = check_fence(dir, attempt, NULL, err);
    /* first, because this may free the space that the fence needs */
    if (code == BT_OK) sweep_uncommitted(dir);
    if (code == BT_OK) code = write_fence(dir, attempt, err);
    close(lock);
    return code;
}

typedef struct fence_ctx {
    const char *dir;
    int attempt, lock;
    bool announce, passed;
} fence_ctx;

static bt_code fence_before_rename(void *ctx, bt_err *err) {
    fence_ctx *f = ctx;
    f->lock = lock_fence(f->dir, err);
    if (f->lock < 0) return err ? err->code : BT_IO;
    int newest;
    BT_TRY(check_fence(f->dir, f->attempt, &newest, err));
    if (f->announce && newest < f->attempt) BT_TRY(write_fence(f->dir, f->attempt, err));
    f->passed = true;
    return BT_OK;
}

/* Returns BT_OK if the manifest on disk has this seal, BT_NOMEM if that is unknown. */
static bt_code check_written_manifest(const char *folder, const char *seal, bt_err *err) {
    ckpt_manifest m;
    const bt_code code = ckpt_manifest_read(folder, &m, err);
    if (code == BT_NOMEM) return code;
    const bool ours = code == BT_OK && strcmp(m.seal, seal) == 0;
    if (code == BT_OK) ckpt_manifest_release(&m);
    return ours ? BT_OK
                : bt_fail(err, BT_IO,
                          "'%s/manifest.json' has other content than was written: the disk may be "
                          "faulty",
                          folder);
}

/* The link is relative, so that the folder may be moved. A failure does not affect the checkpoint. */
static void link_best(const ckpt_save *s) {
    char link[PATH_MAX], tmp[PATH_MAX];
    if (snprintf(link, sizeof link, "%s/best", s->job.dir) >= (int)sizeof link ||
        snprintf(tmp, sizeof tmp, "%s/best.tmp", s->job.dir) >= (int)sizeof tmp)
        return;
    unlink(tmp);
    if (symlink(strrchr(s->folder, '/') + 1, tmp) != 0 || rename(tmp, link) != 0)
        bt_log(BT_LOG_WARN, "cannot make the link '%s'", link);
}

/* Reads the name of the best checkpoint's folder; "": none. */
static void read_best(const char *dir, char name[64]) {
    char link[PATH_MAX];
    name[0] = '\0';
    if (snprintf(link, sizeof link, "%s/best", dir) >= (int)sizeof link) return;
    const ssize_t n = readlink(link, name, 63);
    name[n > 0 ? n : 0] = '\0';
}

/* Removes all checkpoints except the newest `keep` and the best. A failure only costs disk space. */
static void remove_superseded_checkpoints(const ckpt_save *s) {
    const char *dir = s->job.dir;
    char best[64];
    read_best(dir, best);
    int keep = s->job.keep < 1 ? 1 : s->job.keep, kept = 0;
    ckpt_remove_other_generations(s->folder, s->generation);
    ckpt_list list;
    if (ckpt_list_read(dir, &list, NULL) != BT_OK) return;
    for (size_t i = 0; i < list.n; i++) {
        char path[PATH_MAX];
        if (!list.entries[i].committed) continue;
        if (list.entries[i].readable && kept < keep)
            kept++;
        else if (kept >= keep && strcmp(list.entries[i].name, best) != 0 &&
                 snprintf(path, sizeof path, "%s/%s", dir, list.entries[i].name) < (int)sizeof path)
            ckpt_remove(path, NULL);
    }
    ckpt_list_release(&list);
}

/* Writes the manifest with the rows of all ranks; its rename is the commit. */
static bt_code put_manifest(ckpt_save *s, const ckpt_file *files, size_t n, bt_err *err) {
    const bt_ckpt_meta *meta = s->job.meta;
    bt_text text;
    bt_text_init(&text);
    fence_ctx fence = {s->job.dir, meta->attempt, -1, s->job.announce, false};
    bt_code code = ckpt_manifest_text(meta, s->generation, s->size, files, n, &text, s->seal, err);
    if (code == BT_OK)
        code = ckpt_replace_file(s->folder, "manifest.json", text.data, text.len,
                                 fence_before_rename, &fence, err);
    bt_err why = BT_ERR_INIT;
    const bt_code back = check_written_manifest(s->folder, s->seal, &why);
    /* the data of a manifest that may be on disk must be kept */
    s->renamed = fence.passed && (back == BT_OK || back == BT_NOMEM);
    if (fence.lock >= 0) close(fence.lock);
    if (code == BT_OK) code = ckpt_sync_folder(s->job.dir, err);
    if (code == BT_OK && back != BT_OK) {
        code = back;
        if (err) *err = why;
    }
    bt_text_release(&text);
    return code;
}

bt_code ckpt_save_commit(ckpt_save *s, bt_err *err) {
    ckpt_file *files = calloc((size_t)s->size, sizeof *files);
    if (!files) return bt_fail(err, BT_NOMEM, "cannot allocate %d file rows", s->size);
    size_t n = 0;
    for (int r = 0; r < s->size; r++)
        if (s->rows[r].name[0]) files[n++] = s->rows[r];
    bt_code code = n > 0 ? put_manifest(s, files, n, err)
                         : bt_fail(err, BT_ARG, "no rank has anything to save");
    free(files);
    if (code == BT_OK && s->job.best) link_best(s);
    if (code == BT_OK) remove_superseded_checkpoints(s);
    return code;
}

/* Returns true if the disk has room for another checkpoint as large as the newest, or if this is unknown. */
static bool disk_has_room(const char *dir, uint64_t bytes) {
    enum { SLACK = 256 << 10 }; /* for partially filled blocks and for folders */
    struct statvfs v;
    return statvfs(dir, &v) != 0 || (uint64_t)v.f_bavail * v.f_frsize >= bytes + bytes / 64 + SLACK;
}

static uint64_t data_bytes(const ckpt_manifest *m) {
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n_files; i++) sum += m->files[i].bytes;
    return sum;
}

/* Returns the size of the newest checkpoint if all its files are intact, else 0. */
static uint64_t verified_bytes(const char *dir, const ckpt_entry *newest) {
    char path[PATH_MAX];
    ckpt_manifest m;
    if (snprintf(path, sizeof path, "%s/%s", dir, newest->name) >= (int)sizeof path ||
        ckpt_manifest_read(path, &m, NULL) != BT_OK)
        return 0;
    uint64_t bytes = data_bytes(&m);
    if (!disk_has_room(dir, bytes)) /* with enough room the checkpoint need not be read back */
        for (size_t i = 0; bytes && i < m.n_files; i++)
            if (ckpt_file_verify(path, &m.files[i], m.generation, m.meta.step, NULL) != BT_OK)
                bytes = 0;
    ckpt_manifest_release(&m);
    return bytes;
}

/* If the disk has no room for another checkpoint, removes older ones, the oldest first, but not the best and not the
 * newest, which is first read back completely. Without this, a run whose disk has room for exactly ckpt.keep
 * checkpoints could never save again. Returns the number of removed checkpoints. */
static int remove_older_checkpoints(const char *dir) {
    char best[64];
    ckpt_list list;
    int removed = 0;
    if (ckpt_list_read(dir, &list, NULL) != BT_OK) return 0;
    read_best(dir, best);
    size_t newest = 0;
    while (newest < list.n && !list.entries[newest].readable) newest++;
    const uint64_t bytes = newest < list.n ? verified_bytes(dir, &list.entries[newest]) : 0;
    for (size_t i = list.n; bytes && i-- > newest + 1 && !disk_has_room(dir, bytes);) {
        char path[PATH_MAX];
        const ckpt_entry *old = &list.entries[i];
        if (!old->committed || strcmp(old->name, best) == 0 ||
            snprintf(path, sizeof path, "%s/%s", dir, old->name) >= (int)sizeof path)
            continue;
        ckpt_remove(path, NULL);
        removed++;
    }
    ckpt_list_release(&list);
    return removed;
}

bt_code ckpt_save_begin(ckpt_save *s, bt_comm *c, const bt_ckpt_job *job, bt_err *err) {
    bt_code code = BT_OK;
    *s = (ckpt_save){.c = c, .job = *job, .rank = bt_comm_rank(c), .size = bt_comm_size(c)};
    if (snprintf(s->folder, sizeof s->folder, "%s/step-%012" PRId64, job->dir, job->meta->step) >=
        (int)sizeof s->folder - 80)
        code = bt_fail(err, BT_ARG, "checkpoint folder '%s' is too long", job->dir);
    if (code == BT_OK && s->rank == 0 &&
        getrandom(&s->generation, sizeof s->generation, 0) != (ssize_t)sizeof s->generation)
        code = bt_fail_errno(err, BT_IO, errno, "cannot read a random number for the checkpoint");
    BT_TRY(bt_agree(c, code, err));
    return bt_broadcast(c, &s->generation, sizeof s->generation, 0, err);
}

bt_code ckpt_save_make_folder(ckpt_save *s, bt_err *err) {
    BT_TRY(bt_make_folders(s->job.dir, err));
    BT_TRY(check_fence(s->job.dir, s->job.meta->attempt, NULL, err));
    s->replaced = remove_older_checkpoints(s->job.dir);
    return bt_make_folders(s->folder, err);
}

bt_code ckpt_save_write(ckpt_save *s, bt_err *err) {
    s->mine.rank = s->rank;
    if (s->job.n == 0) return BT_OK;
    BT_TRY(ckpt_check_finite(s->job.slices, s->job.n, err));
    return ckpt_file_write(s->folder, &s->mine, s->generation, &s->job, err);
}

bt_code ckpt_save_gather(ckpt_save *s, bt_code written, bt_err *err) {
    if (s->rank == 0 && written == BT_OK && !(s->rows = calloc((size_t)s->size, sizeof *s->rows)))
        written = bt_fail(err, BT_NOMEM, "cannot allocate %d file rows", s->size);
    BT_TRY(bt_agree(s->c, written, err));
    return bt_gather(s->c, &s->mine, sizeof s->mine, s->rows, 0, err);
}

bt_code ckpt_save_tell(ckpt_save *s, bt_code committed, bt_ckpt_saved *out, bt_err *err) {
    struct {
        char seal[40];
        int64_t bytes, replaced;
    } sum;
    memset(&sum, 0, sizeof sum);
    if (s->rank == 0) {
        memcpy(sum.seal, s->seal, sizeof sum.seal);
        for (int r = 0; r < s->size; r++) sum.bytes += (int64_t)s->rows[r].bytes;
        sum.replaced = s->replaced;
    }
    BT_TRY(bt_agree(s->c, committed, err));
    BT_TRY(bt_broadcast(s->c, &sum, sizeof sum, 0, err));
    if (!out) return BT_OK;
    snprintf(out->path, sizeof out->path, "%s", s->folder);
    out->bytes = sum.bytes;
    out->replaced = (int)sum.replaced;
    memcpy(out->hash, sum.seal, sizeof out->hash);
    return BT_OK;
}

/* Removes all files of a failed save. After an error that follows the rename (a failed sync), the checkpoint is
 * committed and can be loaded, and only a power failure can destroy it; it is kept, and so are the older ones. */
static void roll_back(ckpt_save *s) {
    bt_err ignored;
    if (bt_broadcast(s->c, &s->renamed, sizeof s->renamed, 0, &ignored) == BT_OK && s->renamed)
        return;
    if (s->mine.name[0]) ckpt_remove_file(s->folder, s->mine.name);
    /* the folder is not empty if it contains an older commit */
    if (bt_barrier(s->c, &ignored) == BT_OK && s->rank == 0) rmdir(s->folder);
    if (bt_barrier(s->c, &ignored) != BT_OK)
        bt_log(BT_LOG_WARN, "after a failed checkpoint: %s", ignored.msg);
}

void ckpt_save_end(ckpt_save *s, bt_code code) {
    if (code != BT_OK && s->made) roll_back(s);
    free(s->rows);
    memset(s, 0, sizeof *s);
}

bt_code bt_ckpt_save(bt_comm *c, const bt_ckpt_job *job, bt_ckpt_saved *out, bt_err *err) {
    ckpt_save s;
    bt_code code = ckpt_save_begin(&s, c, job, err);
    if (code == BT_OK) {
        code = bt_agree(c, s.rank == 0 ? ckpt_save_make_folder(&s, err) : BT_OK, err);
        s.made = code == BT_OK;
        if (code == BT_OK) code = ckpt_save_gather(&s, ckpt_save_write(&s, err), err);
        if (code == BT_OK)
            code = ckpt_save_tell(&s, s.rank == 0 ? ckpt_save_commit(&s, err) : BT_OK, out, err);
        ckpt_save_end(&s, code);
    }
    return code;
}
