/* load.c - agrees on the checkpoint to load, and reads its files as a source of slices. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/ckpt/ckpt_list.h"
#include "engine/ckpt/section_source.h"

/* Verifies this rank's share: all heads and indices, and the bytes of the files i with i mod size == rank (size >
 * 0). */
static bt_code verify_share(const char *folder, int rank, int size, ckpt_manifest *m, bt_err *err) {
    BT_TRY(ckpt_manifest_read(folder, m, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < m->n_files && code == BT_OK; i++) {
        if (size > 0 && i % (size_t)size == (size_t)rank)
            code = ckpt_file_verify(folder, &m->files[i], m->generation, m->meta.step, err);
        else
            code = ckpt_file_open(folder, &m->files[i], m->generation, m->meta.step, NULL, NULL,
                                  err);
    }
    if (code != BT_OK) ckpt_manifest_release(m);
    return code;
}

static bool is_checkpoint(const char *path) {
    char manifest[PATH_MAX];
    struct stat st;
    return snprintf(manifest, sizeof manifest, "%s/manifest.json", path) < (int)sizeof manifest &&
           stat(manifest, &st) == 0;
}

/* c NULL: one process. All ranks try the checkpoints in the order of rank 0's list. */
static int rank_or_zero(bt_comm *c) { return c ? bt_comm_rank(c) : 0; }
static int size_or_one(bt_comm *c) { return c ? bt_comm_size(c) : 1; }
static bt_code agree_on_load(bt_comm *c, bt_code code, bt_err *err) {
    return c ? bt_agree(c, code, err) : code;
}
static bt_code broadcast_bytes(bt_comm *c, void *x, size_t bytes, bt_err *err) {
    return c ? bt_broadcast(c, x, bytes, 0, err) : BT_OK;
}

static bt_code try_checkpoint(bt_comm *c, const char *folder, bool chosen, ckpt_manifest *m,
                              bt_err *err) {
    memset(m, 0, sizeof *m);
    char seal[40] = {0};
    bool mine = false;
    bt_code code = verify_share(folder, rank_or_zero(c), chosen ? 0 : size_or_one(c), m, err);
    mine = code == BT_OK;
    if (mine) memcpy(seal, m->seal, 33);
    BT_TRY(broadcast_bytes(c, seal, sizeof seal, err));
    /* On folders that are not shared, every host must have the same checkpoint, not only one with the same name. If
     * rank 0 has none, all ranks receive its error. */
    if (mine && strcmp(seal, m->seal) != 0)
        code = bt_fail(err, BT_FORMAT,
                       "'%s' is another checkpoint on this host than on the host of rank 0: copy "
                       "it to all hosts",
                       folder);
    code = agree_on_load(c, code, err);
    if (code != BT_OK && mine) ckpt_manifest_release(m);
    return code;
}

static void add_reason(bt_text *why, const char *folder, const bt_err *e) {
    if (!why) return;
    const char *base = strrchr(folder, '/');
    if (e->rank >= 0)
        bt_text_printf(why, "%s passed over (rank %d): %s\n", base ? base + 1 : folder, e->rank,
                       e->msg);
    else
        bt_text_printf(why, "%s passed over: %s\n", base ? base + 1 : folder, e->msg);
}

static bt_code find_checkpoint(bt_comm *c, const char *dir, char *path, size_t path_size,
                               ckpt_manifest *m, bt_text *why, bt_err *err) {
    struct {
        int64_t direct, n;
        int32_t code;
    } plan = {0, 0, BT_OK};
    ckpt_list list = {0};
    bt_code code = BT_OK;
    if (rank_or_zero(c) == 0) {
        plan.direct = is_checkpoint(dir);
        if (!plan.direct) code = ckpt_list_read(dir, &list, err);
        plan.n = plan.direct ? 1 : (int64_t)list.n;
    }
    code = agree_on_load(c, code, err);
    if (code == BT_OK) code = broadcast_bytes(c, &plan, sizeof plan, err);
    bool any = false, done = false;
    bt_err last = BT_ERR_INIT;
    for (int64_t i = 0; i < plan.n && code == BT_OK && !done; i++) {
        char folder[PATH_MAX] = {0};
        bool skip = false;
        if (rank_or_zero(c) == 0) {
            if (plan.direct) snprintf(folder, sizeof folder, "%s", dir);
            /* an interrupted save, which bt_ckpt_begin removes */
            else if (!list.entries[i].committed)
                skip = true;
            else if (snprintf(folder, sizeof folder, "%s/%s", dir, list.entries[i].name) >=
                     (int)sizeof folder)
                skip = true;
            if (skip) folder[0] = '\0';
        }
        code = broadcast_bytes(c, folder, sizeof folder, err);
        if (code != BT_OK || !folder[0]) continue;
        any = true;
        last = (bt_err)BT_ERR_INIT;
        /* The supervisor has verified a checkpoint that is passed to ranks, so they hash only what they load. */
        const bt_code tried = try_checkpoint(c, folder, c && plan.direct, m, &last);
        done = tried == BT_OK;
        if (done) {
            snprintf(path, path_size, "%s", folder);
        } else if (tried == BT_NOMEM || tried == BT_MPI) { /* not caused by the checkpoint */
            if (err) *err = last;
            code = tried;
        } else {
            add_reason(why, folder, &last);
        }
    }
    ckpt_list_release(&list);
    if (code != BT_OK || done) return code;
    if (!any) return bt_fail(err, BT_NOTFOUND, "no checkpoint in '%s'", dir);
    return bt_fail(err, BT_FORMAT,
                   "no checkpoint in '%s' can be used; the error of the last one is: %.300s", dir,
                   last.msg);
}

bt_code bt_ckpt_find(bt_comm *c, const char *dir, char *path, size_t path_size, bt_ckpt_meta *meta,
                     bt_text *why, bt_err *err) {
    ckpt_manifest m;
    memset(&m, 0, sizeof m);
    BT_TRY(find_checkpoint(c, dir, path, path_size, &m, why, err));
    if (meta) {
        *meta = m.meta; /* takes ownership of the texts */
        memset(&m.meta, 0, sizeof m.meta);
    }
    ckpt_manifest_release(&m);
    return BT_OK;
}

bool bt_ckpt_peek(const char *dir, int *attempt, int64_t *step) {
    ckpt_list list;
    bool found = false;
    if (ckpt_list_read(dir, &list, NULL) != BT_OK) return false;
    for (size_t i = 0; i < list.n && !found; i++) {
        if (!list.entries[i].committed || !list.entries[i].readable) continue;
        *attempt = list.entries[i].attempt;
        *step = list.entries[i].step;
        found = true;
    }
    ckpt_list_release(&list);
    return found;
}

struct bt_ckpt_reader {
    ckpt_source from;
    char folder[PATH_MAX];
    ckpt_manifest m;
    int fd; /* descriptor of file number `open`, or -1 */
    uint32_t open;
};
typedef struct bt_ckpt_reader reader;

static bt_code read_file_section(ckpt_source *from, const ckpt_section *s, void *out, bt_err *err);

static bt_code reader_open(reader *r, const char *folder, bt_err *err) {
    memset(r, 0, sizeof *r);
    r->fd = -1;
    BT_TRY(ckpt_manifest_read(folder, &r->m, err)); /* BT_ARG: the path is too long */
    snprintf(r->folder, sizeof r->folder, "%s", folder);
    r->from = (ckpt_source){.name = r->folder, .read = read_file_section};
    for (size_t i = 0; i < r->m.n_files; i++) {
        ckpt_section *more = NULL;
        const ckpt_file *f = &r->m.files[i];
        BT_TRY(ckpt_file_open(folder, f, r->m.generation, r->m.meta.step, NULL, &more, err));
        ckpt_section *all = realloc(r->from.sections,
                                    (r->from.n + f->n_sections + 1) * sizeof *all);
        if (!all) {
            free(more);
            return bt_fail(err, BT_NOMEM, "cannot allocate the sections of '%s'", folder);
        }
        r->from.sections = all;
        for (uint64_t k = 0; k < f->n_sections; k++) more[k].file = (uint32_t)i;
        memcpy(all + r->from.n, more, f->n_sections * sizeof *more);
        r->from.n += f->n_sections;
        free(more);
    }
    ckpt_source_sort(&r->from);
    return BT_OK;
}

static void reader_close(reader *r) {
    if (r->fd >= 0) close(r->fd);
    ckpt_source_release(&r->from);
    ckpt_manifest_release(&r->m);
}

/* Reads the data of a section into out (count elements) and compares them with their hash. */
static bt_code read_file_section(ckpt_source *from, const ckpt_section *s, void *out, bt_err *err) {
    reader *r = (reader *)from; /* `from` is its first member */
    const char *folder = from->name;
    const ckpt_file *f = &r->m.files[s->file];
    if (r->fd < 0 || r->open != s->file) {
        if (r->fd >= 0) close(r->fd);
        r->fd = -1;
        BT_TRY(ckpt_file_open(folder, f, r->m.generation, r->m.meta.step, &r->fd, NULL, err));
        r->open = s->file;
    }
    size_t bytes = s->head.count * s->head.elem_bytes;
    BT_TRY(ckpt_read_all(r->fd, out, bytes, s->data_offset, f->name, err));
    if (XXH3_64bits(out, bytes) != s->head.data_hash)
        return bt_fail(err, BT_FORMAT, "'%s/%s': bytes %llu..%llu ('%s' %s) are damaged", folder,
                       f->name, (unsigned long long)s->data_offset,
                       (unsigned long long)(s->data_offset + bytes - 1), s->head.tensor,
                       s->head.state);
    return BT_OK;
}

bt_code bt_ckpt_reader_open(bt_ckpt_reader **out, const char *path, bt_err *err) {
    reader *r = *out = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    bt_code code = reader_open(r, path, err);
    if (code == BT_OK) return BT_OK;
    bt_ckpt_reader_close(r);
    *out = NULL;
    return code;
}

bt_code bt_ckpt_reader_read(bt_ckpt_reader *r, const bt_ckpt_slice *slice, bt_err *err) {
    return ckpt_source_fill(&r->from, slice, err);
}

void bt_ckpt_reader_close(bt_ckpt_reader *r) {
    if (!r) return;
    reader_close(r);
    free(r);
}

bt_code bt_ckpt_load(const char *path, const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    reader *r;
    BT_TRY(bt_ckpt_reader_open(&r, path, err));
    bt_code code = BT_OK;
    for (size_t i = 0; i < n && code == BT_OK; i++)
        code = ckpt_source_fill(&r->from, &slices[i], err);
    bt_ckpt_reader_close(r);
    return code;
}
