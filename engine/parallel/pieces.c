/* pieces.c - updated weights from their owners to everybody, stripe by stripe. */
#include "engine/parallel/pieces.h"

#include <stdlib.h>

#include "engine/parallel/comm_internal.h"

enum { TAG = 30000 };

struct bt_pieces {
    const bt_mesh *mesh;
    const bt_shards *shards;
    MPI_Request *requests;              /* (stripes, 2, shards - 1) */
    int started;
};

bt_code bt_pieces_create(bt_pieces **out, const bt_mesh *mesh, const bt_shards *shards, bt_err *err) {
    *out = NULL;
    bt_pieces *p = calloc(1, sizeof *p);
    if (p) *p = (bt_pieces){.mesh = mesh, .shards = shards, .requests = calloc(2 * shards->n_stripes * (size_t)shards->n + 1, sizeof *p->requests)};
    if (!p || !p->requests) {
        bt_pieces_destroy(p);
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu stripes of %d shards", shards->n_stripes, shards->n);
    }
    *out = p;
    return BT_OK;
}

void bt_pieces_destroy(bt_pieces *p) {
    if (!p) return;
    free(p->requests);
    free(p);
}

/* Straight between each two, in place. Stripes are sent in one order by all, so messages with one tag match. */
bt_code bt_pieces_gather_start(bt_pieces *p, float *flat, size_t stripe, bt_err *err) {
    bt_comm *c = p->mesh->shard;
    bt_range own = bt_shards_piece(p->shards, stripe, c->rank);
    for (int k = 1; k < c->size; k++) {
        int from = (c->rank + k) % c->size;
        bt_range r = bt_shards_piece(p->shards, stripe, from);
        if (r.begin == r.end) continue;
        BT_TRY(bt_mpi_check(MPI_Irecv(flat + r.begin, (int)(r.end - r.begin), MPI_FLOAT, from, TAG, c->mpi, &p->requests[p->started++]), "gathering of weights", err));
    }
    for (int k = 1; k < c->size && own.begin < own.end; k++) {
        int to = (c->rank - k + c->size) % c->size;
        BT_TRY(bt_mpi_check(MPI_Isend(flat + own.begin, (int)(own.end - own.begin), MPI_FLOAT, to, TAG, c->mpi, &p->requests[p->started++]), "gathering of weights", err));
    }
    uint64_t sent = (uint64_t)(own.end - own.begin) * sizeof(float) * (uint64_t)(c->size - 1);
    bt_comm_count(sent, sent);
    return BT_OK;
}

bt_code bt_pieces_gather_finish(bt_pieces *p, bt_err *err) {
    int n = p->started;
    p->started = 0;
    return n == 0 ? BT_OK : bt_mpi_check(MPI_Waitall(n, p->requests, MPI_STATUSES_IGNORE), "gathering of weights", err);
}
