/* exchange.h - sums a bucket of gradients over the ranks: every rank sends each part of it to the rank that owns
 * the part; owners add in the order of tree_sum.h and keep the result (ZeRO) or send it to all. Between hosts a
 * part is sent once per host group (exchange_route.h), encoded by a codec. Gradients that are not encoded are
 * exchanged by the ranks of a host through shared memory, if the system permits it.
 *
 * The volume is that of a ring; the order of the sum is fixed (MPI's depends on its algorithm and the size of the
 * world); memory is bounded: BT_STRIPES_IN_FLIGHT buckets are in flight at a time (BT_STRIPES_ON_HOST if all ranks
 * are on one host). MPI_Iallreduce, measured on two ranks of one host, took 3 to 8 % more processor time and a
 * temporary copy of every bucket in flight.
 * Order:    reset -> nodes -> { start (buckets in ascending order) | progress }* until progress reports all done
 *           -> reset ...
 * Threads:  the training thread, also from the pool's idle hook: progress does not use the pool.
 * Private to engine/parallel; its files: exchange_internal.h. */
#ifndef BT_ENGINE_PARALLEL_GRAD_EXCHANGE_H
#define BT_ENGINE_PARALLEL_GRAD_EXCHANGE_H

#include "engine/parallel/grad/bucket.h"
#include "engine/parallel/grad/payload.h"
#include "engine/parallel/grad/tree_sum.h"
#include "engine/parallel/mpi/mesh.h"

typedef struct bt_exchange bt_exchange;

/* determines what a rank sends, receives and stores */
typedef struct bt_exchange_plan {
    const bt_mesh_shape *shape; /* shape whose data-parallel ranks exchange; borrowed */
    int rank;                   /* rank in the world */
    const bt_buckets
        *buckets;         /* each bucket is cut into one part per data-parallel rank; borrowed */
    bool sharded;         /* the sum of a bucket remains distributed over dp_shard owners */
    bt_payload_form form; /* encoding of messages between host groups */
    int64_t units;        /* number of leaves of the tree */
    /* (n) leaves per rank, in order; NULL: rank d has [units d / n, units (d + 1) / n). Read by create only */
    const int64_t *shares;
} bt_exchange_plan;

typedef struct bt_exchange_cfg {
    bt_exchange_plan plan;
    const bt_mesh *mesh; /* borrowed */
    float *grads;
    void *state; /* codec state for each gradient; NULL: the exchange allocates its own. Borrowed */
    /* sharded: returns the pages of parts owned by other ranks to the system */
    bool discard;
} bt_exchange_cfg;

/* Collective over mesh->world, but without agreement: a rank may fail alone. */
bt_code bt_exchange_create(bt_exchange **out, const bt_exchange_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_exchange_destroy(bt_exchange *x); /* accepts NULL */
/* Returns the memory used by create, including the codec's state; 0 if memory for the plan is missing. */
size_t bt_exchange_staging(const bt_exchange_plan *plan);
/* Returns reduce-scatter if sharded, otherwise all-reduce. */
bt_coll bt_exchange_kind(const bt_exchange *x);
void bt_exchange_reset(bt_exchange *x);
/* sets the arrays of this rank's nodes */
void bt_exchange_nodes(bt_exchange *x, const bt_tree_sum *nodes);
bt_code bt_exchange_start(bt_exchange *x, size_t bucket, bt_err *err) BT_MUST_CHECK;
/* true if ranks of this host exchange through shared memory, at least before encoding */
bool bt_exchange_shares_memory(const bt_exchange *x);
/* Returns true if all started buckets are in flight or done. */
bool bt_exchange_has_room(const bt_exchange *x);
/* Advances the exchange; buckets 0 .. done-1 are complete. */
bt_code bt_exchange_progress(bt_exchange *x, size_t *done, bt_err *err) BT_MUST_CHECK;
/* Called when this rank has nothing to compute. If nothing has moved for a while and no message is in flight,
 * sleeps for at most 1 ms or until another rank may have arrived. */
void bt_exchange_rest(const bt_exchange *x);
/* maximum bytes of a piece that ranks of one host exchange through shared memory, so that it is still cached when the
 * next rank reads it; tests set it lower */
extern size_t bt_exchange_piece_bytes;

#endif
