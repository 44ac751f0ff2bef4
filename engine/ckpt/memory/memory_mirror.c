/* memory_mirror.c - ranks of the next host in the ring keep copies of the parts of a host's ranks. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/ckpt/memory/memory_format.h"
#include "engine/ckpt/memory/memory_ring.h"
#include "engine/parallel/mpi/mailbox.h"

enum { PIECE = 64 << 20 }; /* bytes of one message */

typedef struct kept {
    int rank; /* rank that wrote the part */
    memory_pair pair;
    memory_head head; /* received head, which is written last */
} kept;

struct memory_mirror {
    bt_comm *comm; /* communicator of the ranks that write, used only for these messages */
    bt_mailbox *box;
    int keeper; /* rank that keeps the copy of this rank's part; -1: none */
    uint64_t bytes;
    kept *part;
    size_t n;
};

typedef struct offer { /* what a rank states about its part */
    uint64_t layout, bytes;
} offer;

static size_t count_mirror_pieces(uint64_t bytes) {
    return 2 + bytes / PIECE;
} /* the first piece and the head are separate messages */

static bt_code choose_mirrored_state(memory_mirror *m, const memory_pair_name *own,
                                     const offer *all, bt_err *err) {
    const int me = own->rank, size = own->world_size, n = bt_memory_kept(me, size);
    m->keeper = bt_memory_keeper(me, size);
    size_t messages = m->keeper >= 0 ? count_mirror_pieces(m->bytes) : 0;
    m->part = calloc((size_t)n + 1, sizeof *m->part);
    if (!m->part)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d copies of states", n);
    const int from = n > 0 ? bt_memory_neighbour(bt_comm_host(me), -1, size) : -1;
    for (int r = 0; r < size && n > 0; r++) {
        if (bt_comm_host(r) != from || bt_memory_keeper(r, size) != me) continue;
        const memory_pair_name name = {own->dir, r, size, all[r].layout, "m"};
        m->part[m->n].rank = r;
        ckpt_pair_init(&m->part[m->n++].pair, &name, all[r].bytes);
        messages += count_mirror_pieces(all[r].bytes);
    }
    return bt_mailbox_create(&m->box, m->comm, messages, err);
}

bt_code ckpt_mirror_create(memory_mirror **out, bt_comm *world, const memory_pair_name *own,
                           uint64_t bytes, bt_err *err) {
    memory_mirror *m = *out = calloc(1, sizeof *m);
    offer mine = {own->layout, bytes}, *all = calloc((size_t)own->world_size, sizeof *all);
    bt_code code = m && all ? BT_OK
                            : bt_fail(err, BT_NOMEM, "cannot allocate memory for copies of states");
    code = bt_agree(world, code, err);
    if (code == BT_OK)
        code = bt_agree(world, bt_comm_split(&m->comm, world, 0, own->rank, err), err);
    if (code == BT_OK) code = bt_all_gather(world, &mine, sizeof mine, all, err);
    if (code == BT_OK) {
        m->bytes = bytes;
        code = bt_agree(world, choose_mirrored_state(m, own, all, err), err);
    }
    free(all);
    if (code == BT_OK) return BT_OK;
    ckpt_mirror_destroy(m, false);
    *out = NULL;
    return code;
}

uint64_t ckpt_mirror_missing(const memory_mirror *m) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < m->n; i++) bytes += ckpt_pair_missing(&m->part[i].pair);
    return bytes;
}

bt_code ckpt_mirror_take(memory_mirror *m, const bt_memory_id *begun_from, bt_err *err) {
    for (size_t i = 0; i < m->n; i++) BT_TRY(ckpt_pair_take(&m->part[i].pair, begun_from, err));
    return BT_OK;
}

size_t ckpt_mirror_total(const memory_mirror *m) {
    size_t bytes = 0;
    for (size_t i = 0; i < m->n; i++) bytes += 2 * m->part[i].pair.bytes;
    return bytes;
}

void ckpt_mirror_destroy(memory_mirror *m, bool remove) {
    if (!m) return;
    for (size_t i = 0; i < m->n; i++) {
        if (remove) ckpt_pair_remove(&m->part[i].pair);
        ckpt_pair_close(&m->part[i].pair);
    }
    bt_mailbox_destroy(m->box);
    bt_comm_free(m->comm);
    free(m->part);
    free(m);
}

static uint64_t piece_at(uint64_t at, uint64_t end) { return end - at < PIECE ? end - at : PIECE; }

static bt_code receive_mirrored_part(memory_mirror *m, kept *k, bt_err *err) {
    memory_head *there = ckpt_pair_head(&k->pair);
    there->self_hash = 0; /* the segment is not valid from here on */
    atomic_thread_fence(memory_order_seq_cst);
    const uint64_t end = k->pair.bytes;
    for (uint64_t at = sizeof *there; at < end; at += PIECE)
        BT_TRY(
            bt_mailbox_recv(m->box, k->rank, (unsigned char *)there + at, piece_at(at, end), err));
    return bt_mailbox_recv(m->box, k->rank, &k->head, sizeof k->head, err);
}

/* Writes the head of the received segment, which makes it valid. */
static void validate_copy(kept *k) {
    memory_head *there = ckpt_pair_head(&k->pair);
    const uint64_t hash = k->head.self_hash;
    if (hash != XXH3_64bits(&k->head, sizeof k->head - sizeof hash)) return;
    k->head.self_hash = 0;
    memcpy(there, &k->head, sizeof *there);
    atomic_thread_fence(memory_order_seq_cst);
    there->self_hash = hash;
    k->pair.next = 1 - k->pair.next;
}

bt_code ckpt_mirror_exchange(memory_mirror *m, const unsigned char *segment,
                             const memory_head *valid, bt_err *err) {
    bt_mailbox_begin(m->box);
    for (size_t i = 0; i < m->n; i++) BT_TRY(receive_mirrored_part(m, &m->part[i], err));
    for (uint64_t at = sizeof *valid; m->keeper >= 0 && at < m->bytes; at += PIECE) {
        const size_t n = piece_at(at, m->bytes);
        BT_TRY(bt_mailbox_send(m->box, m->keeper, segment + at, n, n, err));
    }
    if (m->keeper >= 0)
        BT_TRY(bt_mailbox_send(m->box, m->keeper, valid, sizeof *valid, sizeof *valid, err));
    BT_TRY(bt_mailbox_wait(m->box, err));
    for (size_t i = 0; i < m->n; i++) validate_copy(&m->part[i]);
    return BT_OK;
}
