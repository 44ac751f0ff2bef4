/* pieces.c - updated weights from their owners to everybody, stripe by stripe. */
#include "engine/parallel/pieces.h"

#include <stdlib.h>

#include "engine/parallel/comm_internal.h"

struct bt_pieces {
    const bt_mesh *mesh;
    const bt_shards *shards;
    MPI_Request *requests;              /* (stripes) */
    int *counts, *displs;               /* (stripes, shards): MPI may read them until the gather ends */
    int started;
};

bt_code bt_pieces_create(bt_pieces **out, const bt_mesh *mesh, const bt_shards *shards, bt_err *err) {
    *out = NULL;
    bt_pieces *p = calloc(1, sizeof *p);
    size_t n = (size_t)shards->n, stripes = shards->n_stripes;
    if (p) {
        *p = (bt_pieces){.mesh = mesh, .shards = shards, .requests = calloc(stripes + 1, sizeof *p->requests),
                         .counts = calloc(stripes * n + 1, sizeof *p->counts), .displs = calloc(stripes * n + 1, sizeof *p->displs)};
    }
    if (!p || !p->requests || !p->counts || !p->displs) {
        bt_pieces_destroy(p);
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu stripes of %zu shards", stripes, n);
    }
    for (size_t i = 0; i < stripes; i++) {
        for (size_t s = 0; s < n; s++) {
            bt_range r = bt_shards_piece(shards, i, (int)s);
            p->counts[i * n + s] = (int)(r.end - r.begin);
            p->displs[i * n + s] = (int)(r.begin - bt_shards_stripe(shards, i).begin);
        }
    }
    *out = p;
    return BT_OK;
}

void bt_pieces_destroy(bt_pieces *p) {
    if (!p) return;
    free(p->requests);
    free(p->counts);
    free(p->displs);
    free(p);
}

bt_code bt_pieces_gather_start(bt_pieces *p, float *flat, size_t stripe, bt_err *err) {
    bt_comm *c = p->mesh->shard;
    size_t n = (size_t)p->shards->n;
    if (c->size == 1) return BT_OK;
    uint64_t sent = (uint64_t)p->counts[stripe * n + (size_t)c->rank] * sizeof(float) * (uint64_t)(c->size - 1);
    bt_comm_count(sent, sent);
    return bt_mpi_check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, flat + bt_shards_stripe(p->shards, stripe).begin, p->counts + stripe * n,
                                        p->displs + stripe * n, MPI_FLOAT, c->mpi, &p->requests[p->started++]),
                        "gathering of weights", err);
}

bt_code bt_pieces_gather_finish(bt_pieces *p, bt_err *err) {
    int n = p->started;
    p->started = 0;
    return n == 0 ? BT_OK : bt_mpi_check(MPI_Waitall(n, p->requests, MPI_STATUSES_IGNORE), "gathering of weights", err);
}
