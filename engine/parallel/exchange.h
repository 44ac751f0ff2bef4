/* exchange.h - how a bucket of gradients becomes the sum of all ranks' buckets. Two ways, one interface:
 *
 *     all_reduce   MPI_Iallreduce: the order of the sum is MPI's (same layout, same bits)
 *     direct       every rank sends each part of the bucket to the rank that owns it; owners add in the order of fold.h;
 *                  the result stays with its owners (ZeRO) or is gathered by all. Volume as a ring's for one node a rank.
 *
 * Order:    reset -> { start (buckets in ascending order) | progress }* until progress says all are done -> reset ...
 * Threads:  the training thread, also from the pool's idle hook: progress must not use the pool.
 * Private to engine/parallel. */
#ifndef BT_ENGINE_PARALLEL_EXCHANGE_H
#define BT_ENGINE_PARALLEL_EXCHANGE_H

#include "engine/parallel/bucket.h"
#include "engine/parallel/fold.h"
#include "engine/parallel/mesh.h"
#include "engine/parallel/shard.h"

typedef struct bt_exchange {
    void *self;
    void (*reset)(void *self);
    bt_code (*start)(void *self, size_t bucket, bt_err *err);
    bt_code (*progress)(void *self, size_t *done, bt_err *err);         /* buckets 0 .. done-1 have arrived */
    void (*destroy)(void *self);
} bt_exchange;

typedef struct bt_exchange_cfg {
    const bt_mesh *mesh;
    const bt_buckets *buckets;
    float *grads;
    /* direct only */
    bool sharded;                       /* the sum of a bucket stays in pieces with dp_shard owners */
    bool discard;                       /* give the pages of what others own back to the system */
    int64_t units;                      /* leaves of the tree; rank d holds [units d / n, units (d + 1) / n) */
} bt_exchange_cfg;

bt_code bt_exchange_all_reduce(bt_exchange *out, const bt_exchange_cfg *cfg, bt_err *err) BT_MUST_CHECK;
bt_code bt_exchange_direct(bt_exchange *out, const bt_exchange_cfg *cfg, bt_err *err) BT_MUST_CHECK;
size_t bt_exchange_direct_staging(const bt_buckets *b, int dp_size, int dp_rank, int64_t units);        /* bytes */
/* direct: the arrays in which this rank's nodes lie, before the first start of a step */
void bt_exchange_direct_nodes(bt_exchange *e, const bt_fold *nodes);

#endif
