/* exchange.h - how a bucket of gradients becomes the sum of all ranks' buckets: every rank sends
 * each part of it to the rank that owns the part; owners add in the order of tree_sum.h; the result
 * stays with its owners (ZeRO) or goes back to all. Between hosts a part travels once for each host
 * group (exchange_route.h), encoded by a codec. Gradients that are not encoded go from rank to rank of a
 * host through memory that all of them map, where the system lets them.
 *
 * The volume is a ring's, the order of the sum is ours (MPI's would follow its algorithm, and
 * change with the size of the world), and memory is bounded: BT_STRIPES_IN_FLIGHT buckets are on
 * their way at a time (BT_STRIPES_ON_HOST where all ranks are on one host). MPI_Iallreduce,
 * measured on two ranks of one host, took 3 to 8 % more processor time and a temporary copy of every
 * bucket that had been started.
 * Order:    reset -> nodes -> { start (buckets in ascending order) | progress }* until progress
 *           says all are done -> reset ...
 * Threads:  the training thread, also from the pool's idle hook: progress does not use the pool.
 * Private to engine/parallel; its files: exchange_internal.h. */
#ifndef BT_ENGINE_PARALLEL_GRAD_EXCHANGE_H
#define BT_ENGINE_PARALLEL_GRAD_EXCHANGE_H

#include "engine/parallel/grad/bucket.h"
#include "engine/parallel/grad/payload.h"
#include "engine/parallel/grad/tree_sum.h"
#include "engine/parallel/mpi/mesh.h"

typedef struct bt_exchange bt_exchange;

/* all that decides what a rank of a world sends, receives and holds */
typedef struct bt_exchange_plan {
    const bt_mesh_shape *shape; /* its data-parallel ranks exchange. Borrowed */
    int rank;                   /* of the world */
    const bt_buckets *buckets;  /* cut into one part for each data-parallel rank. Borrowed */
    bool sharded;               /* the sum of a bucket stays in pieces with dp_shard owners */
    bt_payload_form form;       /* of what goes from host group to host group */
    int64_t units;              /* leaves of the tree, in runs: */
    /* (n) of each rank; NULL: rank d holds [units d / n, units (d + 1) / n). Read by create only */
    const int64_t *shares;
} bt_exchange_plan;

typedef struct bt_exchange_cfg {
    bt_exchange_plan plan;
    const bt_mesh *mesh; /* borrowed */
    float *grads;
    void *state; /* of the codec, for each gradient; NULL: the exchange takes its own. Borrowed */
    /* sharded: give the pages of what others own back to the system */
    bool discard;
} bt_exchange_cfg;

/* collective over mesh->world; not agreed on: a rank may fail alone */
bt_code bt_exchange_create(bt_exchange **out, const bt_exchange_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_exchange_destroy(bt_exchange *x); /* accepts NULL */
/* bytes that create takes, the codec's state included; 0 when there is no memory to find out */
size_t bt_exchange_staging(const bt_exchange_plan *plan);
/* reduce-scatter when sharded, else all-reduce */
bt_coll bt_exchange_kind(const bt_exchange *x);
void bt_exchange_reset(bt_exchange *x);
/* the arrays in which this rank's nodes lie */
void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes);
bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *err) BT_MUST_CHECK;
/* ranks of this host exchange through memory, at least until what they add leaves it */
bool bt_exchange_shares_memory(const bt_exchange *x);
/* all buckets that were started are on their way or done */
bool bt_exchange_has_room(const bt_exchange *x);
/* buckets 0 .. done-1 have arrived */
bt_code bt_exchange_progress(bt_exchange *x, size_t *done, bt_err *err) BT_MUST_CHECK;
/* the caller has nothing else to do: where nothing has moved for a while, and no message is on its way,
 * sleeps until another rank may have come, for a millisecond at most */
void bt_exchange_rest(const bt_exchange *x);
/* of a part that ranks of one host exchange through memory at a time, at most: a piece is in a cache when the
 * next rank reads it. Less in tests that must see several */
extern size_t bt_exchange_piece_bytes;

#endif
