/* weight_prefetch.h - sends parts of every shard's bytes to all ranks of the shard axis, one part after another,
 * shortly before its use: ZeRO-3 gathers a layer's weights in the form that its products read. A rank that does
 * not own them needs room for two parts, not for all.
 *
 *     own bytes       | part 0 | 1 | 2 | ... | n-1 |     the same bytes in every visit; sent up to
 *                                                        BT_PREFETCH_AHEAD visits before this rank's own
 *                                                        position, so that a late rank does not stop other ranks
 *     remote bytes    | current | next |                 a ring: while one part is used, the next is in flight
 *
 * A rank visits parts in a walk; a part visited twice in a row is gathered once:
 *     forth             0 1 .. n-1   0 1 .. n-1   ...                      passes x n visits
 *     forth and back    0 1 .. n-1 .. 1 0 1 .. n-1 .. 1 0   ...            passes x 2 (n-1) + 1
 *
 * All ranks of the axis use the same walk, but may have different numbers of passes (unequal micro-batches), which
 * all ranks have in their configuration. In every visit a rank receives the part without its own bytes: with N
 * shards (N-1)/N of it, and sends as much.
 *
 * Order:    create -> { begin -> (wait -> bytes* -> next)* -> serve -> end }* -> destroy. Own bytes do not change
 *           from begin to end. serve: this rank makes no more visits and sends the data that other ranks still
 *           need. Afterwards these arrive without this rank's help beyond MPI's progress, so that it may wait for
 *           something else.
 * Progress: in its own calls and as an idle hook of the thread pool, from begin to end.
 * Collective over the shard axis. Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_SHARD_WEIGHT_PREFETCH_H
#define BT_ENGINE_PARALLEL_SHARD_WEIGHT_PREFETCH_H

#include "engine/parallel/mpi/mesh.h"

/* number of visits by which a rank sends its bytes ahead of its own position */
enum { BT_PREFETCH_AHEAD = 8 };

typedef struct bt_prefetch bt_prefetch;
typedef enum { BT_PASSES_FORWARD, BT_PASSES_FORWARD_BACKWARD } bt_passes;

typedef struct bt_prefetch_cfg {
    const bt_mesh *mesh; /* borrowed */
    size_t n_parts;
    /* (shards, n_parts + 1) offsets of the parts of each shard's bytes; borrowed */
    const size_t *at;
    const unsigned char *own; /* this shard's bytes; borrowed */
} bt_prefetch_cfg;

size_t bt_prefetch_visits(bt_passes walk, size_t n_parts, size_t passes);
/* Returns the memory used by create for parts of at most `longest` remote bytes. */
size_t bt_prefetch_bytes(size_t longest);
bt_code bt_prefetch_create(bt_prefetch **out, const bt_prefetch_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_prefetch_destroy(bt_prefetch *f); /* accepts NULL */
/* passes: (shards) number of passes of each shard. */
bt_code bt_prefetch_begin(bt_prefetch *f, bt_passes walk, const size_t *passes, bt_err *err)
    BT_MUST_CHECK;
/* Waits for the next part of the walk. */
bt_code bt_prefetch_wait(bt_prefetch *f, size_t part, bt_err *err) BT_MUST_CHECK;
/* Returns a shard's bytes of that part; for this shard, `own`. */
const unsigned char *bt_prefetch_from(const bt_prefetch *f, int shard);
/* Releases the part. */
bt_code bt_prefetch_next(bt_prefetch *f, bt_err *err) BT_MUST_CHECK;
/* Makes progress at most every 50 us, between begin and end; may be called at any rate. */
void bt_prefetch_poll(void *feed);
bt_code bt_prefetch_drain_sends(bt_prefetch *f, bt_err *err) BT_MUST_CHECK;
bt_code bt_prefetch_end(bt_prefetch *f, bt_err *err) BT_MUST_CHECK;
/* Returns the sum of the times from request to detected arrival, since begin. */
int64_t bt_prefetch_busy_ns(const bt_prefetch *f);

#endif
