/* memory_read.c - finds the newest complete state in shared memory, and reads slices from it. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_state.h"
#include "engine/ckpt/section_source.h"

bool ckpt_memory_is_whole(const memory_mapped *s) {
    const memory_head *h = memory_head_of(s);
    if (s->bytes < sizeof *h || memcmp(h->magic, MEMORY_MAGIC, sizeof h->magic) != 0 ||
        h->version != 1 || h->self_hash == 0 ||
        h->self_hash != XXH3_64bits(h, sizeof *h - sizeof h->self_hash) || h->bytes != s->bytes ||
        h->n_sections > s->bytes / sizeof(section_head) ||
        memory_data_begin(h->n_sections) > s->bytes || h->values_bytes >= MEMORY_VALUES)
        return false;
    const section_head *table = (const section_head *)(s->at + sizeof *h);
    if (h->table_hash != XXH3_64bits(table, h->n_sections * sizeof *table)) return false;
    uint64_t at = memory_data_begin(h->n_sections);
    for (size_t i = 0; i < h->n_sections; i++) {
        if (!ckpt_section_possible(&table[i], s->bytes - at)) return false;
        at = memory_next(at, &table[i]);
        if (at > s->bytes) return false;
    }
    return true;
}

static memory_mapped map_segment(const char *dir, const char *name, bool torn_too) {
    char path[PATH_MAX];
    struct stat st;
    memory_mapped s = {0};
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return s;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= (off_t)sizeof(memory_head)) {
        void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) s = (memory_mapped){at, (size_t)st.st_size};
    }
    close(fd);
    if (s.at && !torn_too && !ckpt_memory_is_whole(&s)) {
        munmap((void *)(uintptr_t)s.at, s.bytes);
        s = (memory_mapped){0};
    }
    return s;
}

void ckpt_memory_close(memory_segments *all) {
    for (size_t i = 0; i < all->n; i++) munmap((void *)(uintptr_t)all->at[i].at, all->at[i].bytes);
    free(all->at);
    *all = (memory_segments){0};
}

bool ckpt_memory_add(memory_segments *all, memory_mapped s) {
    if (all->n == all->cap) {
        const size_t cap = all->cap ? 2 * all->cap : 16;
        memory_mapped *more = realloc(all->at, cap * sizeof *more);
        if (!more) {
            munmap((void *)(uintptr_t)s.at, s.bytes);
            return false;
        }
        all->at = more;
        all->cap = cap;
    }
    all->at[all->n++] = s;
    return true;
}

void ckpt_memory_open(memory_segments *all, const char *dir) {
    *all = (memory_segments){0};
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, MEMORY_PREFIX, strlen(MEMORY_PREFIX)) != 0) continue;
        const memory_mapped s = map_segment(dir, e->d_name, false);
        if (s.at && !ckpt_memory_add(all, s)) break;
    }
    closedir(d);
}

static bool is_same_memory_state(const memory_head *h, const memory_head *to) {
    return h->attempt == to->attempt && h->number == to->number && h->step == to->step &&
           h->world_size == to->world_size && h->params_hash == to->params_hash;
}

/* Returns true if there is a part of every rank. */
static bool is_complete(const memory_segments *all, const memory_head *of) {
    uint32_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        const memory_head *a = memory_head_of(&all->at[i]);
        bool twice = false;
        for (size_t k = 0; k < i && !twice; k++) {
            const memory_head *b = memory_head_of(&all->at[k]);
            twice = is_same_memory_state(b, of) && a->rank == b->rank;
        }
        n += is_same_memory_state(a, of) && a->rank < of->world_size && !twice;
    }
    return n == of->world_size;
}

static bool is_newer_memory_state(const memory_head *a, const memory_head *b) {
    return a->attempt != b->attempt ? a->attempt > b->attempt : a->number > b->number;
}

const memory_head *ckpt_memory_newest(const memory_segments *all) {
    const memory_head *best = NULL;
    for (size_t i = 0; i < all->n; i++) {
        const memory_head *h = memory_head_of(&all->at[i]);
        if (h->rank == 0 && (!best || is_newer_memory_state(h, best)) &&
            (h->spread || is_complete(all, h)))
            best = h;
    }
    return best;
}

bool ckpt_memory_is_of(const memory_head *h, const bt_memory_id *id) {
    return h->attempt == id->attempt && h->number == id->number && h->step == id->step;
}

const memory_mapped *ckpt_memory_part(const memory_segments *all, const bt_memory_id *id,
                                      uint32_t rank) {
    for (size_t i = 0; i < all->n; i++) {
        const memory_head *h = memory_head_of(&all->at[i]);
        if (h->rank == rank && ckpt_memory_is_of(h, id)) return &all->at[i];
    }
    return NULL;
}

void ckpt_memory_describe(const memory_head *h, bt_memory_id *id, bt_ckpt_meta *meta) {
    *id = (bt_memory_id){h->attempt, h->number, h->step, h->disk_ns};
    if (!meta) return;
    meta->step = h->step;
    meta->tokens = h->tokens;
    meta->attempt = (int)h->attempt;
    meta->params_hash = h->params_hash;
    meta->data_hash = h->data_hash;
    meta->vocab_hash = h->vocab_hash;
    snprintf(meta->run, sizeof meta->run, "%.63s", h->run);
    snprintf(meta->isa, sizeof meta->isa, "%.31s", h->isa);
    snprintf(meta->build, sizeof meta->build, "%.63s", h->build);
    bt_text_putn(&meta->state, h->values, h->values_bytes);
}

bool bt_memory_state_find(const char *dir, bt_memory_id *id, bt_ckpt_meta *meta) {
    memory_segments all;
    if (meta) memset(meta, 0, sizeof *meta);
    ckpt_memory_open(&all, dir);
    const memory_head *h = ckpt_memory_newest(&all);
    const bool found = h != NULL;
    if (found) ckpt_memory_describe(h, id, meta);
    ckpt_memory_close(&all);
    return found;
}

typedef struct memory_source {
    ckpt_source from;
    const memory_segments *all;
} memory_source;

static bt_code read_memory_section(ckpt_source *from, const ckpt_section *s, void *out,
                                   bt_err *err) {
    const memory_source *m = (const memory_source *)from; /* `from` is the first member */
    const size_t bytes = s->head.count * s->head.elem_bytes;
    memcpy(out, m->all->at[s->file].at + s->data_offset, bytes);
    if (XXH3_64bits(out, bytes) != s->head.data_hash)
        return bt_fail(err, BT_FORMAT,
                       "the state in memory ('%s') is damaged in '%s' (%s) of the part of rank %u",
                       from->name, s->head.tensor, s->head.state,
                       memory_head_of(&m->all->at[s->file])->rank);
    return BT_OK;
}

static void add_memory_sections(ckpt_source *to, const memory_head *h, const section_head *table,
                                uint32_t file) {
    uint64_t at = memory_data_begin(h->n_sections);
    for (size_t k = 0; k < h->n_sections; at = memory_next(at, &table[k]), k++)
        to->sections[to->n++] = (ckpt_section){.head = table[k], .data_offset = at, .file = file};
}

static bt_code read_memory_sections(ckpt_source *to, size_t n, bt_err *err) {
    to->sections = calloc(n + 1, sizeof *to->sections);
    return to->sections ? BT_OK
                        : bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu sections", n);
}

static bool is_first_of_part(const memory_segments *all, size_t i, const bt_memory_id *id) {
    const memory_head *h = memory_head_of(&all->at[i]);
    return ckpt_memory_is_of(h, id) && ckpt_memory_part(all, id, h->rank) == &all->at[i];
}

static bt_code collect_segments(memory_source *m, const bt_memory_id *id, bool some, bt_err *err) {
    size_t n = 0, found = 0;
    uint32_t world = 0;
    for (size_t i = 0; i < m->all->n; i++) {
        if (!is_first_of_part(m->all, i, id)) continue;
        const memory_head *h = memory_head_of(&m->all->at[i]);
        n += h->n_sections;
        world = h->world_size;
        found++;
    }
    if (!some && (found == 0 || found != world))
        return bt_fail(
            err, BT_FORMAT,
            "the state in memory ('%s') has the parts of only %zu of %u ranks for step %lld",
            m->from.name, found, world, (long long)id->step);
    BT_TRY(read_memory_sections(&m->from, n, err));
    for (size_t i = 0; i < m->all->n; i++) {
        if (!is_first_of_part(m->all, i, id)) continue;
        const memory_head *h = memory_head_of(&m->all->at[i]);
        add_memory_sections(&m->from, h, (const section_head *)(m->all->at[i].at + sizeof *h),
                            (uint32_t)i);
    }
    ckpt_source_sort(&m->from);
    return BT_OK;
}

bt_code ckpt_memory_touches(const memory_head *h, const section_head *table,
                            const bt_ckpt_slice *slices, size_t n, bool *touches, bt_err *err) {
    ckpt_source s = {0};
    *touches = false;
    BT_TRY(read_memory_sections(&s, h->n_sections, err));
    add_memory_sections(&s, h, table, 0);
    ckpt_source_sort(&s);
    for (size_t i = 0; i < n && !*touches; i++) *touches = ckpt_source_touches(&s, &slices[i]);
    ckpt_source_release(&s);
    return BT_OK;
}

bt_code ckpt_memory_load(const memory_segments *all, const char *name, const bt_memory_id *id,
                         const bt_ckpt_slice *slices, size_t n, bool some, bt_err *err) {
    memory_source m = {.from = {.name = name, .read = read_memory_section}, .all = all};
    bt_code code = collect_segments(&m, id, some, err);
    for (size_t i = 0; i < n && code == BT_OK; i++)
        code = ckpt_source_fill(&m.from, &slices[i], err);
    ckpt_source_release(&m.from);
    return code;
}

bt_code bt_memory_state_load(const char *dir, const bt_memory_id *id, const bt_ckpt_slice *slices,
                             size_t n, bt_err *err) {
    memory_segments all;
    ckpt_memory_open(&all, dir);
    const bt_code code = ckpt_memory_load(&all, dir, id, slices, n, false, err);
    ckpt_memory_close(&all);
    return code;
}

static void drop_older_states(const char *dir, int64_t below) {
    char path[PATH_MAX];
    DIR *d = opendir(dir);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, MEMORY_PREFIX, strlen(MEMORY_PREFIX)) != 0 ||
            snprintf(path, sizeof path, "%s/%s", dir, e->d_name) >= (int)sizeof path)
            continue;
        memory_mapped s = below < INT64_MAX ? map_segment(dir, e->d_name, true)
                                            : (memory_mapped){0};
        /* A segment that is being written is not valid, but its head has the attempt. */
        const bool stale = !s.at || memory_head_of(&s)->attempt < below;
        if (s.at) munmap((void *)(uintptr_t)s.at, s.bytes);
        if (stale) unlink(path);
    }
    closedir(d);
}

void bt_memory_state_drop(const char *dir) { drop_older_states(dir, INT64_MAX); }
void ckpt_memory_drop_older(const char *dir, int64_t attempt) { drop_older_states(dir, attempt); }
