/* memory_state.c - writes a rank's part of a state: first the sections, then the head that makes it valid. */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "engine/base/hash.h"
#include "engine/base/os/file_system.h"
#include "engine/base/stream_copy.h"
#include "engine/base/threads.h"
#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_state.h"

/* Free space that remains for segments of MPI and of other jobs. */
static const uint64_t SPARE_BYTES = UINT64_C(32) << 20;

struct bt_memory_state {
    bt_comm *world;
    /* (n) heads of the sections, equal in every state except for the hashes of the data */
    section_head *table;
    const unsigned char **from; /* (n) addresses of the sections' data */
    uint64_t *to;               /* (n) offsets of the data in a segment */
    size_t n;
    memory_pair own;
    memory_mirror *mirror; /* NULL: all parts are on this host */
    bt_comm *host;         /* ranks of the world that write on this host; NULL: all */
    int64_t attempt, number;
    memory_head *waiting; /* head of a written state that is not valid yet; NULL: none */
    char dir[PATH_MAX];
};

static uint64_t longest_slice(const bt_ckpt_slice *s) {
    const uint64_t most = MEMORY_SECTION_ELEMS;
    if (s->width == 0) return most;
    return most / s->width > 0 ? most / s->width * s->width : s->width;
}

static size_t count_memory_sections(const bt_ckpt_slice *slices, size_t n) {
    size_t sections = 0;
    for (size_t i = 0; i < n; i++)
        sections += (slices[i].count + longest_slice(&slices[i]) - 1) / longest_slice(&slices[i]);
    return sections;
}

size_t bt_memory_state_bytes(size_t data, size_t n) {
    const size_t sections = n + data / sizeof(float) / MEMORY_SECTION_ELEMS;
    return 2 * (memory_data_begin(sections) + data + 64 * sections);
}

static bt_code make_table(bt_memory_state *m, const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    m->n = count_memory_sections(slices, n);
    m->table = calloc(m->n + 1, sizeof *m->table);
    m->from = calloc(m->n + 1, sizeof *m->from);
    m->to = calloc(m->n + 1, sizeof *m->to);
    if (!m->table || !m->from || !m->to)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the table of %zu sections", m->n);
    uint64_t at = memory_data_begin(m->n);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        const bt_ckpt_slice *s = &slices[i];
        const size_t elem = bt_ckpt_type_bytes(s->type);
        if (strlen(s->tensor) >= sizeof m->table->tensor ||
            strlen(s->state) >= sizeof m->table->state)
            return bt_fail(err, BT_ARG, "tensor name '%s' or state '%s' is too long", s->tensor,
                           s->state);
        for (uint64_t done = 0, most = longest_slice(s); done < s->count; done += most, k++) {
            section_head *h = &m->table[k];
            h->magic = CKPT_SECTION_MAGIC;
            h->elem_bytes = (uint16_t)elem;
            h->type = (uint16_t)s->type;
            memcpy(h->tensor, s->tensor, strlen(s->tensor));
            memcpy(h->state, s->state, strlen(s->state));
            h->tensor_elems = s->tensor_elems;
            h->first = s->first + (s->width ? done / s->width * s->stride : done);
            h->count = s->count - done < most ? s->count - done : most;
            h->width = s->width;
            h->stride = s->stride;
            m->from[k] = (const unsigned char *)s->data + done * elem;
            m->to[k] = at;
            at = memory_next(at, h);
        }
    }
    m->own.bytes = at;
    return BT_OK;
}

static bool is_memory(const char *dir) {
    long kind;
    return bt_file_system_of_path(dir, &kind) && bt_file_system_in_memory(kind);
}

/* Compares the memory that all ranks of this host need with the free space. */
static bt_code check_room(bt_memory_state *m, bt_err *err) {
    struct statvfs v;
    int64_t all =
        (int64_t)(ckpt_pair_missing(&m->own) + (m->mirror ? ckpt_mirror_missing(m->mirror) : 0));
    BT_TRY(bt_all_reduce_i64(m->host ? m->host : m->world, &all, 1, BT_SUM, err));
    if (statvfs(m->dir, &v) != 0)
        return bt_fail_errno(err, BT_IO, errno, "cannot determine the free space of '%s'", m->dir);
    const uint64_t free_bytes = (uint64_t)v.f_bavail * v.f_frsize;
    if (all > 0 && (uint64_t)all + SPARE_BYTES > free_bytes)
        return bt_fail(err, BT_IO,
                       "'%s' has only %.1f MiB of free space, but two states need %.1f MiB", m->dir,
                       (double)free_bytes / 1048576, (double)all / 1048576);
    return BT_OK;
}

static bt_code name_memory_segments(bt_memory_state *m, const bt_memory_id *begun_from,
                                    bt_err *err) {
    BT_TRY(bt_agree(m->world, check_room(m, err), err));
    BT_TRY(ckpt_pair_take(&m->own, begun_from, err));
    return m->mirror ? ckpt_mirror_take(m->mirror, begun_from, err) : BT_OK;
}

/* Chooses the names of the segments and, for several hosts, the ranks that keep copies. */
static bt_code name_segments(bt_memory_state *m, const bt_memory_cfg *cfg, bt_err *err) {
    const int rank = bt_comm_rank(cfg->world);
    const memory_pair_name name = {cfg->dir, rank, bt_comm_size(cfg->world),
                                   XXH3_64bits(m->table, m->n * sizeof *m->table), ""};
    const uint64_t bytes = m->own.bytes;
    ckpt_pair_init(&m->own, &name, bytes);
    if (!cfg->spread) return BT_OK;
    BT_TRY(bt_agree(cfg->world, bt_comm_split(&m->host, cfg->world, bt_comm_host(rank), rank, err),
                    err));
    return ckpt_mirror_create(&m->mirror, cfg->world, &name, bytes, err);
}

bt_code bt_memory_state_open(bt_memory_state **out, const bt_memory_cfg *cfg, bt_err *err) {
    *out = NULL;
    bt_memory_state *m = calloc(1, sizeof *m);
    bt_code code = m ? BT_OK
                     : bt_fail(err, BT_NOMEM, "cannot allocate memory for the newest states");
    if (code == BT_OK) {
        m->world = cfg->world;
        m->attempt = cfg->attempt;
        snprintf(m->dir, sizeof m->dir, "%s", cfg->dir);
        code = make_table(m, cfg->slices, cfg->n, err);
    }
    if (code == BT_OK && !is_memory(cfg->dir))
        code = bt_fail(err, BT_UNSUPPORTED, "'%s' is not a file system in memory", cfg->dir);
    code = bt_agree(cfg->world, code, err);
    if (code == BT_OK) code = name_segments(m, cfg, err);
    if (code == BT_OK)
        code = bt_agree(cfg->world, name_memory_segments(m, cfg->begun_from, err), err);
    if (code == BT_OK) {
        *out = m;
        return BT_OK;
    }
    if (m) {
        ckpt_pair_remove(&m->own);
        ckpt_mirror_destroy(m->mirror, true);
        m->mirror = NULL;
    }
    bt_memory_state_close(m);
    return code;
}

void bt_memory_state_close(bt_memory_state *m) {
    if (!m) return;
    ckpt_pair_close(&m->own);
    ckpt_mirror_destroy(m->mirror, false);
    bt_comm_free(m->host);
    free(m->table);
    free(m->from);
    free(m->to);
    free(m);
}

size_t bt_memory_state_total(const bt_memory_state *m) {
    return 2 * m->own.bytes + (m->mirror ? ckpt_mirror_total(m->mirror) : 0);
}

typedef struct copy {
    const bt_memory_state *m;
    unsigned char *at;
} copy;

static void copy_sections(void *ctx, int thread, size_t begin, size_t end) {
    (void)thread;
    const copy *c = ctx;
    const bt_memory_state *m = c->m;
    section_head *table = (section_head *)(c->at + sizeof(memory_head));
    for (size_t i = begin; i < end; i++) {
        const size_t bytes = m->table[i].count * m->table[i].elem_bytes;
        table[i] = m->table[i];
        /* hashing loads the data into the second-level cache; the copy does not use the caches */
        table[i].data_hash = XXH3_64bits(m->from[i], bytes);
        bt_stream_copy(c->at + m->to[i], m->from[i], bytes);
    }
}

bt_code bt_memory_state_write(bt_memory_state *m, const bt_ckpt_meta *meta, int64_t disk_ns,
                              bt_err *err) {
    copy c = {m, m->own.seg[m->own.next].at};
    memory_head fresh, *h = &fresh, *there = (memory_head *)c.at;
    m->waiting = NULL;
    if (meta->state.len >= MEMORY_VALUES)
        return bt_fail(err, BT_UNSUPPORTED,
                       "the values of the state have %zu bytes, more than the limit of %d",
                       meta->state.len, (int)MEMORY_VALUES);
    there->self_hash = 0; /* the segment is not valid from here on */
    atomic_thread_fence(memory_order_seq_cst);
    bt_parallel_for(m->n, 1, copy_sections, &c);

    memset(h, 0, sizeof *h);
    memcpy(h->magic, MEMORY_MAGIC, sizeof h->magic);
    h->version = 1;
    h->rank = (uint32_t)bt_comm_rank(m->world);
    h->world_size = (uint32_t)bt_comm_size(m->world);
    h->attempt = m->attempt;
    h->number = ++m->number;
    h->step = meta->step;
    h->tokens = meta->tokens;
    h->disk_ns = disk_ns;
    h->params_hash = meta->params_hash;
    h->data_hash = meta->data_hash;
    h->vocab_hash = meta->vocab_hash;
    h->n_sections = m->n;
    h->bytes = m->own.bytes;
    h->table_hash = XXH3_64bits(c.at + sizeof *h, m->n * sizeof(section_head));
    snprintf(h->run, sizeof h->run, "%s", meta->run);
    snprintf(h->isa, sizeof h->isa, "%s", meta->isa);
    snprintf(h->build, sizeof h->build, "%s", meta->build);
    h->values_bytes = (uint32_t)meta->state.len;
    memcpy(h->values, bt_text_str(&meta->state), meta->state.len);
    h->spread = m->mirror != NULL;
    memcpy(there, h, sizeof *h); /* ckpt_memory_drop_older reads the attempt */
    m->waiting = there;
    m->own.next = 1 - m->own.next;
    if (!m->mirror) return BT_OK;
    h->self_hash = XXH3_64bits(h, sizeof *h - sizeof h->self_hash);
    return ckpt_mirror_exchange(m->mirror, c.at, h, err);
}

void bt_memory_state_publish(bt_memory_state *m) {
    enum {
        SETTLED = 3
    }; /* both segments of every rank belong to this attempt after so many states */
    memory_head *h = m->waiting;
    if (!h) return;
    atomic_thread_fence(memory_order_seq_cst);
    h->self_hash = XXH3_64bits(h, sizeof *h - sizeof h->self_hash);
    m->waiting = NULL;
    if (h->number == SETTLED && bt_comm_rank(m->host ? m->host : m->world) == 0)
        ckpt_memory_drop_older(m->dir, m->attempt);
}
