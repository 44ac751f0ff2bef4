/* shard_all_gather.c - sends weights from their owners directly to each other rank. */
#include "engine/parallel/shard/shard_all_gather.h"

#include <stdlib.h>
#include <string.h>

#include "engine/parallel/mpi/comm_internal.h"

enum { TAG = 30000 };

struct bt_shard_all_gather {
    const bt_mesh *mesh;
    const bt_shards *shards;
    bt_gathered *ranges;
    size_t n_ranges;
    MPI_Request *requests;
    int started;
};

/* one message, whose values are sent from or received into their final place */
typedef struct part {
    char *at;
    size_t n, elem;
} part;

/* Returns the next part of a piece that is gathered and advances *k. At the end n is 0. */
static part next_part(const bt_shard_all_gather *p, bt_range piece, size_t *k) {
    for (; *k < p->n_ranges; (*k)++) {
        const bt_gathered *g = &p->ranges[*k];
        size_t begin = g->range.begin > piece.begin ? g->range.begin : piece.begin;
        size_t end = g->range.end < piece.end ? g->range.end : piece.end;
        if (begin >= end) continue;
        (*k)++;
        return (part){(char *)g->values + (begin - g->range.begin) * g->elem, end - begin, g->elem};
    }
    return (part){0};
}

static MPI_Datatype part_mpi_type(const part *x) { return x->elem == 2 ? MPI_UINT16_T : MPI_FLOAT; }

/* Returns the number of requests, sent and received, for all stripes and shards. */
static size_t max_gather_requests(const bt_shard_all_gather *p) {
    size_t parts = 0;
    for (size_t i = 0; i < p->shards->n_stripes; i++) {
        for (int s = 0; s < p->shards->n; s++) {
            for (size_t k = 0;;) {
                if (next_part(p, bt_shards_piece(p->shards, i, s), &k).n == 0) break;
                parts++;
            }
        }
    }
    /* each own part is sent to n - 1 ranks; each part of the other ranks is received once */
    return parts * (size_t)p->shards->n;
}

bt_code bt_shard_all_gather_create(bt_shard_all_gather **out, const bt_mesh *mesh,
                                   const bt_shards *shards, const bt_gathered *ranges,
                                   size_t n_ranges, bt_err *err) {
    *out = NULL;
    bt_shard_all_gather *p = calloc(1, sizeof *p);
    if (p)
        *p = (bt_shard_all_gather){.mesh = mesh,
                                   .shards = shards,
                                   .ranges = calloc(n_ranges + 1, sizeof *p->ranges),
                                   .n_ranges = n_ranges};
    if (p && p->ranges) {
        memcpy(p->ranges, ranges, n_ranges * sizeof *ranges);
        p->requests = calloc(max_gather_requests(p) + 1, sizeof *p->requests);
    }
    if (!p || !p->requests) {
        bt_shard_all_gather_destroy(p);
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu stripes of %d shards",
                       shards->n_stripes, shards->n);
    }
    *out = p;
    return BT_OK;
}

void bt_shard_all_gather_destroy(bt_shard_all_gather *p) {
    if (!p) return;
    free(p->ranges);
    free(p->requests);
    free(p);
}

static bt_code receive_stripes(bt_shard_all_gather *p, const part *x, int from, bt_err *err) {
    bt_pair_add(bt_mesh_peer(p->mesh, BT_AXIS_SHARD, from),
                &(bt_pair){.messages = 1, .bytes = (int64_t)(x->n * x->elem)});
    return bt_mpi_check(MPI_Irecv(x->at, (int)x->n, part_mpi_type(x), from, TAG,
                                  p->mesh->shard->mpi, &p->requests[p->started++]),
                        "gathering of weights", err);
}

static bt_code send_stripes(bt_shard_all_gather *p, const part *x, int to, bt_err *err) {
    uint64_t bytes = (uint64_t)x->n * x->elem;
    bt_comm_count(bytes, bytes);
    bt_traffic_add(BT_COLL_ALL_GATHER, p->mesh->shard->axis,
                   &(bt_traffic){.bytes_logical = (int64_t)bytes, .bytes_wire = (int64_t)bytes});
    return bt_mpi_check(MPI_Isend(x->at, (int)x->n, part_mpi_type(x), to, TAG, p->mesh->shard->mpi,
                                  &p->requests[p->started++]),
                        "gathering of weights", err);
}

/* Both sides walk the same parts in the same order, so messages with one tag match. */
bt_code bt_shard_all_gather_start(bt_shard_all_gather *p, size_t stripe, bt_err *err) {
    const bt_comm *c = p->mesh->shard;
    for (int d = 1; d < c->size; d++) {
        int from = (c->rank + d) % c->size;
        for (size_t k = 0;;) {
            part x = next_part(p, bt_shards_piece(p->shards, stripe, from), &k);
            if (x.n == 0) break;
            BT_TRY(receive_stripes(p, &x, from, err));
        }
    }
    for (int d = 1; d < c->size; d++) {
        int to = (c->rank - d + c->size) % c->size;
        for (size_t k = 0;;) {
            part x = next_part(p, bt_shards_piece(p->shards, stripe, c->rank), &k);
            if (x.n == 0) break;
            BT_TRY(send_stripes(p, &x, to, err));
        }
    }
    return BT_OK;
}

bt_code bt_shard_all_gather_finish(bt_shard_all_gather *p, bt_err *err) {
    int n = p->started;
    p->started = 0;
    if (n == 0) return BT_OK;
    bt_traffic_mark mark = bt_traffic_begin();
    BT_TRY(bt_mpi_check(MPI_Waitall(n, p->requests, MPI_STATUSES_IGNORE), "gathering of weights",
                        err));
    bt_traffic_end(&mark, BT_COLL_ALL_GATHER, p->mesh->shard->axis);
    bt_traffic_add(BT_COLL_ALL_GATHER, p->mesh->shard->axis, &(bt_traffic){.rounds = 1});
    return BT_OK;
}
