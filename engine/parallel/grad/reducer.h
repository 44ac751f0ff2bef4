/* reducer.h - sums the gradients of the data-parallel ranks during backward, and measures the cost.
 *
 *     last micro-batch's backward          finish
 *     |--layer L-1--|--layer L-2--|-- ... --|......|
 *            bucket 0 ~~~~~~~~~~~~~~            ^ all buckets done
 *                     bucket 1 ~~~~~~~~~~~~~~~~~
 *     busy   =  first start .. last done        blocked = finish .. last done = wait + exposed
 *
 * Order:    create -> { begin -> [unit -> unit_done -> ...] -> last -> ready* (from backward) -> finish }* ->
 *           destroy. `ready` has the type bt_grad_ready_fn. Between last and finish the reducer is the idle hook
 *           of the thread pool, because MPI moves data only inside its calls.
 * Result:   plain: every rank holds the sum. Sharded (ZeRO): a rank holds the sum of its own pieces; the rest of
 *           the array is undefined, or zero and without memory if discard is set.
 * Units:    reproducible training adds every logical micro-batch separately: gradients are written to the array
 *           returned by `unit`, then unit_done is called; the last unit is written to the array of gradients. The
 *           sum has the same bits for any number of ranks (tree_sum.h). Units are counted separately in each lane
 *           of the array (unit_accumulator.h); backward finishes the last lane first.
 * Wait:     ranks exchange the times at which they arrived at `finish`. `wait` is the time until the last one
 *           arrived; only the rest of the blocked time is `exposed`. Skews below three times the clock error count
 *           as exposed.
 * Notes:    small integers sent with the arrival times; every rank of the world gets the maximum of each.
 * Errors:   an error inside ready is returned by finish. No allocation after create.
 * Bits:     the same layout gives the same bits on any MPI; units give them for any layout, with a codec that is
 *           order-exact.
 * A single rank exchanges nothing and reports zeros. */
#ifndef BT_ENGINE_PARALLEL_GRAD_REDUCER_H
#define BT_ENGINE_PARALLEL_GRAD_REDUCER_H

#include "engine/parallel/grad/grad_digest.h"
#include "engine/parallel/grad/payload.h"
#include "engine/parallel/grad/unit_rounding.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/shard/shard_map.h"

enum { BT_NOTES_MAX = 20 };
/* Maximum number of buckets in flight, and so the memory for them. Between hosts more buckets hide the latency of a
 * round; within a host the same processors copy them in any case. */
enum { BT_STRIPES_IN_FLIGHT = 4, BT_STRIPES_ON_HOST = 2 };

typedef struct bt_reducer bt_reducer;

typedef struct bt_reducer_cfg {
    /* gradients are summed over its dp ranks; notes are exchanged over its world. Borrowed */
    const bt_mesh *mesh;
    float *grads; /* flat array, borrowed */
    size_t n;
    size_t bucket_bytes;     /* sharded: the stripe is the bucket */
    bool overlap;            /* false: the whole exchange is in finish */
    bt_payload_form form;    /* encoding of messages; codec NULL: none */
    void *state;             /* state of the codec, as in bt_exchange_cfg */
    const bt_shards *shards; /* NULL or one shard: plain. Borrowed */
    /* sharded: returns the memory of pieces owned by other ranks (ZeRO-2) */
    bool discard;
    /* reproducible: number of logical micro-batches per step; 0: a rank's gradient is one sum */
    int64_t units;
    /* units per dp rank, in order; NULL: even. Read by create only: another distribution needs another reducer */
    const int64_t *shares;
    bt_unit_rounding *rounding; /* rounding of units; NULL: none. Borrowed */
    const bt_range
        *lanes; /* (n_lanes) ranges with separate units; n_lanes 0: one. Read by create only */
    int n_lanes;
} bt_reducer_cfg;

typedef struct bt_reduce_times {
    int64_t busy_ns, wait_ns, exposed_ns;
} bt_reduce_times;

/* Splits the time for which a rank was blocked in an exchange: `wait` until the last rank arrived, and `exposed`, the
 * rest. skew_ns: time from this rank's arrival to the last arrival. error_ns: error of the common clock; skews up to
 * three times that are ignored. */
bt_reduce_times bt_reduce_split(int64_t blocked_ns, int64_t skew_ns, int64_t error_ns);

/* Collective over world. */
bt_code bt_reducer_create(bt_reducer **out, const bt_reducer_cfg *cfg, bt_err *err) BT_MUST_CHECK;
/* Returns the staging memory that a rank of the world would need for even shares. Does not read mesh, grads, state,
 * overlap, discard and shares of c. */
size_t bt_reducer_staging(const bt_reducer_cfg *c, const bt_mesh_shape *shape, int rank);
void bt_reducer_destroy(bt_reducer *r); /* accepts NULL */
void bt_reducer_begin(bt_reducer *r);   /* begins a step */
/* Returns the array to which the gradients of a lane's next unit are added; it is zeroed. Without units: the array
 * of gradients. */
float *bt_reducer_unit(bt_reducer *r, int lane);
void bt_reducer_unit_done(bt_reducer *r, int lane); /* the unit in that array is complete */
/* Announces that the following backward pass is the last one of the step and of the last lane. */
void bt_reducer_last(bt_reducer *r);
void bt_reducer_ready(void *reducer, size_t begin, size_t end);
bt_code bt_reducer_finish(bt_reducer *r, int64_t *notes, size_t n_notes, bt_reduce_times *times,
                          bt_err *err) BT_MUST_CHECK;
/* Returns true if ranks of this host exchange gradients through shared memory. */
bool bt_reducer_shares_memory(const bt_reducer *r);
/* Returns the digest of this rank's own gradients, without those of other ranks. Call it between finish and the use
 * of the gradients. */
bt_grad_digest bt_reducer_digest(const bt_reducer *r);

#endif
