/* memory_gather.c - copies missing parts of a spread state from the hosts that have them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/base/small.h"
#include "engine/ckpt/memory/memory_format.h"
#include "engine/parallel/mpi/mailbox.h"

enum { PIECE = 64 << 20 }; /* bytes of one message */

typedef struct gather {
    const memory_spread *s;
    memory_segments *all;
    int rank, size;
    int *lowest;     /* (size) lowest rank on the host of each rank */
    uint64_t *bytes; /* (size, parts) bytes of a part on the host of a rank; 0: missing */
    /* (size, parts) the rank receives the part for its host; set only for the lowest rank of the host */
    unsigned char *takes;
    memory_segment *coming; /* (parts) memory for parts that this rank receives */
} gather;

static size_t gather_cell(const gather *g, int rank, int part) {
    return (size_t)rank * (size_t)g->s->parts + (size_t)part;
}
static uint64_t host_has_part(const gather *g, int rank, int part) {
    return g->bytes[gather_cell(g, rank, part)];
}
static bool receives_part(const gather *g, int rank, int part) {
    return g->takes[gather_cell(g, rank, part)];
}

/* Returns the lowest rank that has the part; -1: none. */
static int find_sender(const gather *g, int part) {
    for (int r = 0; r < g->size; r++)
        if (host_has_part(g, r, part)) return r;
    return -1;
}

static bt_code receive_tables(gather *g, bt_err *err) {
    const size_t parts = (size_t)g->s->parts, n = (size_t)g->size * parts;
    g->bytes = calloc(n + 1, sizeof *g->bytes);
    g->takes = calloc(n + 1, 1);
    g->coming = calloc(parts + 1, sizeof *g->coming);
    g->lowest = calloc((size_t)g->size, sizeof *g->lowest);
    if (!g->bytes || !g->takes || !g->coming || !g->lowest)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of %zu parts", n);
    for (int r = 0; r < g->size; r++)
        while (bt_comm_host(g->lowest[r]) != bt_comm_host(r)) g->lowest[r]++;
    return BT_OK;
}

static bt_code list_memory_states(gather *g, bt_err *err) {
    const int parts = g->s->parts;
    uint64_t *mine = calloc((size_t)parts + 1, sizeof *mine);
    bt_code code = bt_agree(
        g->s->world,
        mine ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of parts"), err);
    if (code == BT_OK) {
        for (int p = 0; p < parts; p++) {
            const memory_mapped *m = ckpt_memory_part(g->all, &g->s->id, (uint32_t)p);
            mine[p] = m ? m->bytes : 0;
        }
        code = bt_all_gather(g->s->world, mine, (size_t)parts * sizeof *mine, g->bytes, err);
    }
    free(mine);
    if (code != BT_OK) return code;
    int found = 0;
    for (int p = 0; p < parts; p++) found += find_sender(g, p) >= 0;
    return found == parts ? BT_OK
                          : bt_fail(err, BT_FORMAT,
                                    "the state in memory ('%s') has the parts of only %d of %d "
                                    "ranks for step %lld on the present hosts",
                                    g->s->dir, found, parts, (long long)g->s->id.step);
}

/* Sends head and table of a part, which describe its content, to every rank. */
static bt_code broadcast_table(gather *g, int part, const bt_ckpt_slice *slices, size_t n,
                               bool *touches, bt_err *err) {
    const int from = find_sender(g, part);
    memory_head h;
    section_head *table = NULL;
    bt_code code = BT_OK;
    const memory_mapped *m = ckpt_memory_part(g->all, &g->s->id, (uint32_t)part);
    if (g->rank == from) h = *memory_head_of(m);
    BT_TRY(bt_broadcast(g->s->world, &h, sizeof h, from, err));
    const size_t bytes = h.n_sections * sizeof *table;
    table = malloc(bytes + 1);
    if (!table) code = bt_fail(err, BT_NOMEM, "cannot allocate memory for a table of sections");
    code = bt_agree(g->s->world, code, err);
    if (code == BT_OK && g->rank == from) memcpy(table, m->at + sizeof h, bytes);
    if (code == BT_OK) code = bt_broadcast(g->s->world, table, bytes, from, err);
    if (code == BT_OK)
        code = bt_agree(g->s->world, ckpt_memory_touches(&h, table, slices, n, touches, err), err);
    free(table);
    return code;
}

/* A host receives each missing part of which a slice of one of its ranks has elements. */
static bt_code find_needed_parts(gather *g, const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    const int parts = g->s->parts;
    unsigned char *mine = calloc((size_t)parts + 1, 1),
                  *all = calloc((size_t)parts * (size_t)g->size + 1, 1);
    bt_code code = bt_agree(
        g->s->world,
        mine && all ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of parts"),
        err);
    for (int p = 0; p < parts && code == BT_OK; p++) {
        bool everywhere = true, touches = false;
        for (int r = 0; r < g->size; r++) everywhere = everywhere && host_has_part(g, r, p);
        if (everywhere) continue;
        code = broadcast_table(g, p, slices, n, &touches, err);
        mine[p] = touches && !host_has_part(g, g->rank, p);
    }
    if (code == BT_OK) code = bt_all_gather(g->s->world, mine, (size_t)parts, all, err);
    for (int r = 0; r < g->size && code == BT_OK; r++)
        for (int p = 0; p < parts; p++)
            if (all[gather_cell(g, r, p)]) g->takes[gather_cell(g, g->lowest[r], p)] = 1;
    free(mine);
    free(all);
    return code;
}

static bt_code allocate_gathered(gather *g, bt_err *err) {
    for (int p = 0; p < g->s->parts; p++) {
        if (!receives_part(g, g->rank, p)) continue;
        BT_TRY(bt_memory_dir_make(g->s->dir, err));
        snprintf(g->coming[p].path, sizeof g->coming[p].path,
                 "%.4000s/" MEMORY_PREFIX "%05d-%d-copy-%d", g->s->dir, p, g->s->parts, g->rank);
        unlink(g->coming[p].path); /* left by an interrupted start */
        BT_TRY(ckpt_segment_take(&g->coming[p], host_has_part(g, find_sender(g, p), p), err));
    }
    return BT_OK;
}

static bt_code send_part(gather *g, bt_mailbox *box, int part, int to, bt_err *err) {
    const int from = find_sender(g, part);
    const uint64_t bytes = host_has_part(g, from, part);
    if (g->rank != from && g->rank != to) return BT_OK;
    const memory_mapped *m = ckpt_memory_part(g->all, &g->s->id, (uint32_t)part);
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bt_min_size(PIECE, bytes - at);
        bt_mailbox_begin(box);
        if (g->rank == from)
            BT_TRY(bt_mailbox_send(box, to, m->at + at, n, n, err));
        else
            BT_TRY(bt_mailbox_recv(box, from, g->coming[part].at + at, n, err));
        BT_TRY(bt_mailbox_wait(box, err));
    }
    return BT_OK;
}

/* All ranks use the same order, so that sender and receiver wait for the same message. */
static bt_code send_all_parts(gather *g, bt_err *err) {
    bt_comm *c = NULL;
    bt_mailbox *box = NULL;
    BT_TRY(bt_comm_split(&c, g->s->world, 0, g->rank, err));
    bt_code code = bt_agree(g->s->world, bt_mailbox_create(&box, c, 1, err), err);
    for (int p = 0; p < g->s->parts && code == BT_OK; p++)
        for (int to = 0; to < g->size && code == BT_OK; to++)
            if (receives_part(g, to, p)) code = send_part(g, box, p, to, err);
    bt_mailbox_destroy(box);
    bt_comm_free(c);
    return code;
}

/* Removes the names of the copies when all ranks have mapped them; the mappings remain valid. */
static bt_code remap_segments(gather *g, bt_err *err) {
    BT_TRY(bt_barrier(g->s->world, err));
    ckpt_memory_close(g->all);
    ckpt_memory_open(g->all, g->s->dir);
    return bt_barrier(g->s->world, err);
}

static void release_gather(gather *g) {
    for (int p = 0; g->coming && p < g->s->parts; p++) {
        if (g->coming[p].at) munmap(g->coming[p].at, host_has_part(g, find_sender(g, p), p));
        if (g->coming[p].path[0]) unlink(g->coming[p].path);
    }
    free(g->bytes);
    free(g->takes);
    free(g->lowest);
    free(g->coming);
}

bt_code ckpt_memory_gather(memory_segments *all, const memory_spread *s,
                           const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    gather g = {.s = s, .all = all, .rank = bt_comm_rank(s->world), .size = bt_comm_size(s->world)};
    bt_code code = bt_agree(s->world, receive_tables(&g, err), err);
    if (code == BT_OK) code = list_memory_states(&g, err);
    if (code == BT_OK) code = find_needed_parts(&g, slices, n, err);
    if (code == BT_OK) code = bt_agree(s->world, allocate_gathered(&g, err), err);
    if (code == BT_OK) code = send_all_parts(&g, err);
    if (code == BT_OK) code = remap_segments(&g, err);
    release_gather(&g);
    return code;
}
