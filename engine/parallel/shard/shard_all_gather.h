/* shard_all_gather.h - all-gathers the values that shards own to all ranks of the shard axis, in place. Each range
 * of the flat array has its own memory and element size (the latent weights, or a table of them as bf16).
 * Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_SHARD_SHARD_ALL_GATHER_H
#define BT_ENGINE_PARALLEL_SHARD_SHARD_ALL_GATHER_H

#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/shard/shard_map.h"

typedef struct bt_shard_all_gather bt_shard_all_gather;

typedef struct bt_gathered {
    bt_range range; /* elements of the flat array */
    void *values;   /* the value of range.begin; borrowed */
    size_t elem;    /* bytes of a value: 2 or 4 */
} bt_gathered;

/* ranges: the parts of the flat array that are gathered, ascending and disjoint; copied */
bt_code bt_shard_all_gather_create(bt_shard_all_gather **out, const bt_mesh *mesh,
                                   const bt_shards *shards, const bt_gathered *ranges,
                                   size_t n_ranges, bt_err *err) BT_MUST_CHECK;
void bt_shard_all_gather_destroy(bt_shard_all_gather *p); /* accepts NULL */
/* Sends every shard's part of the stripe to every shard, in place; all ranks gather the stripes in the same order. */
bt_code bt_shard_all_gather_start(bt_shard_all_gather *p, size_t stripe, bt_err *err) BT_MUST_CHECK;
/* Waits until all started exchanges are complete. */
bt_code bt_shard_all_gather_finish(bt_shard_all_gather *p, bt_err *err) BT_MUST_CHECK;

#endif
