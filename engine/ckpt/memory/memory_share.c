/* memory_share.c - finds the state from which the ranks of a job restart, and copies it to other hosts. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_state.h"

enum { PIECE = 64 << 20 }; /* bytes of one broadcast */

struct bt_memory_found {
    memory_segments all;
    bt_memory_id id;
    const char *name; /* borrowed, like the next member */
    bt_comm *world;
    bool spread;
    int parts; /* number of parts of the state, one per rank that wrote it */
};

bool bt_memory_is_here(int rank) { return bt_comm_host(rank) == bt_comm_host(0); }

bool bt_memory_all_here(const bt_comm *world) {
    for (int r = 0; r < bt_comm_size(world); r++)
        if (!bt_memory_is_here(r)) return false;
    return true;
}

void bt_memory_found_close(bt_memory_found *f) {
    if (!f) return;
    ckpt_memory_close(&f->all);
    free(f);
}

static bt_code allocate_mapped_state(memory_mapped *s, bt_err *err) {
    void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for the state of the first host",
                       s->bytes);
    s->at = at;
    return BT_OK;
}

/* c: rank 0, which sends, and ranks of other hosts, which receive. */
static bt_code copy_segment(bt_memory_found *f, bt_comm *c, memory_mapped s, bt_err *err) {
    const bool gives = bt_comm_rank(c) == 0;
    uint64_t bytes = s.bytes;
    BT_TRY(bt_broadcast(c, &bytes, sizeof bytes, 0, err));
    s.bytes = bytes;
    bt_code code = bt_agree(c, gives ? BT_OK : allocate_mapped_state(&s, err), err);
    for (size_t at = 0; at < s.bytes && code == BT_OK; at += PIECE)
        code = bt_broadcast(c, (void *)(uintptr_t)(s.at + at),
                            s.bytes - at < PIECE ? s.bytes - at : PIECE, 0, err);
    if (gives) return code;
    if (code == BT_OK && !ckpt_memory_is_whole(&s))
        code = bt_fail(err, BT_FORMAT,
                       "a part of the state in memory was damaged on its way from the first host");
    if (code == BT_OK)
        return ckpt_memory_add(&f->all, s)
                   ? BT_OK
                   : bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of states");
    if (s.at) munmap((void *)(uintptr_t)s.at, s.bytes);
    return code;
}

static bt_code copy_found_states(bt_memory_found *f, bt_comm *c, bt_err *err) {
    const bool gives = bt_comm_rank(c) == 0;
    int64_t n = 0;
    for (size_t i = 0; gives && i < f->all.n; i++)
        n += ckpt_memory_is_of(memory_head_of(&f->all.at[i]), &f->id);
    BT_TRY(bt_broadcast(c, &n, sizeof n, 0, err));
    for (size_t i = 0; n > 0; i++) {
        if (gives && !ckpt_memory_is_of(memory_head_of(&f->all.at[i]), &f->id)) continue;
        BT_TRY(
            bt_agree(c, copy_segment(f, c, gives ? f->all.at[i] : (memory_mapped){0}, err), err));
        n--;
    }
    return BT_OK;
}

static bt_code share_found_states(bt_memory_found *f, bt_comm *world, bt_err *err) {
    bt_comm *c = NULL;
    const int rank = bt_comm_rank(world);
    const bool takes_part = rank == 0 || !bt_memory_is_here(rank);
    BT_TRY(bt_comm_split(&c, world, takes_part, rank, err));
    const bt_code code = takes_part ? copy_found_states(f, c, err) : BT_OK;
    bt_comm_free(c);
    return bt_agree(world, code, err);
}

typedef struct choice { /* message format */
    bt_memory_id id;
    int64_t spread, parts;
} choice;

/* All ranks of the first host search, and must find the same state. */
static bt_code agree_on_state(bt_memory_found *f, bt_err *err) {
    bt_comm *world = f->world;
    const bool here = bt_memory_is_here(bt_comm_rank(world));
    choice mine = {0}, first;
    if (here) ckpt_memory_open(&f->all, f->name);
    const memory_head *h = here ? ckpt_memory_newest(&f->all) : NULL;
    if (h) {
        ckpt_memory_describe(h, &mine.id, NULL);
        mine.spread = h->spread;
        mine.parts = h->world_size;
    }
    bt_code code = h || !here
                       ? BT_OK
                       : bt_fail(err, BT_FORMAT,
                                 "the folder '%s' contains no complete state in memory", f->name);
    BT_TRY(bt_agree(world, code, err));
    first = mine;
    BT_TRY(bt_broadcast(world, &first, sizeof first, 0, err));
    if (here && memcmp(&first, &mine, sizeof first) != 0)
        code = bt_fail(err, BT_FORMAT,
                       "the ranks find different states in memory in the folder '%s'", f->name);
    f->id = first.id;
    f->spread = first.spread != 0;
    f->parts = (int)first.parts;
    return bt_agree(world, code, err);
}

/* Broadcasts the metadata of the state from the part of rank 0; all parts have the same. */
static bt_code broadcast_state_meta(const bt_memory_found *f, bt_ckpt_meta *meta, bt_err *err) {
    bt_memory_id id;
    memory_head h;
    if (bt_comm_rank(f->world) == 0)
        h = *memory_head_of(
            ckpt_memory_part(&f->all, &f->id, 0)); /* its existence was checked before */
    BT_TRY(bt_broadcast(f->world, &h, sizeof h, 0, err));
    ckpt_memory_describe(&h, &id, meta);
    return BT_OK;
}

bt_code bt_memory_found_open(bt_memory_found **out, const char *dir, bt_comm *world,
                             bt_memory_id *id, bt_ckpt_meta *meta, bt_err *err) {
    memset(meta, 0, sizeof *meta);
    bt_memory_found *f = *out = calloc(1, sizeof *f);
    bt_code code = bt_agree(
        world, f ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of states"),
        err);
    if (code == BT_OK) {
        f->name = dir;
        f->world = world;
        code = agree_on_state(f, err);
    }
    if (code == BT_OK && f->spread && !bt_memory_is_here(bt_comm_rank(world)))
        ckpt_memory_open(&f->all, dir);
    if (code == BT_OK && !f->spread && !bt_memory_all_here(world))
        code = share_found_states(f, world, err);
    if (code == BT_OK) code = broadcast_state_meta(f, meta, err);
    if (code == BT_OK) {
        *id = f->id;
        return BT_OK;
    }
    bt_memory_found_close(f);
    *out = NULL;
    return code;
}

bt_code bt_memory_found_load(bt_memory_found *f, const bt_ckpt_slice *slices, size_t n,
                             bt_err *err) {
    const memory_spread s = {f->name, f->world, f->id, f->parts};
    if (f->spread) BT_TRY(ckpt_memory_gather(&f->all, &s, slices, n, err));
    return bt_agree(f->world, ckpt_memory_load(&f->all, f->name, &f->id, slices, n, f->spread, err),
                    err);
}
