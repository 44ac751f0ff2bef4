/* flip_gather.h - sends every shard's ternary codes to all ranks of the shard axis once a step, as the changes since
 * the last gather (flip_code.h). The first gather after a start sends all codes, so a checkpoint contains no state of
 * this module. Each rank keeps all shards' codes of the last gather, 2 bits each.
 *
 * Collective over the shard axis. Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_SHARD_FLIP_GATHER_H
#define BT_ENGINE_PARALLEL_SHARD_FLIP_GATHER_H

#include "engine/parallel/mpi/mesh.h"

typedef struct bt_flip_gather bt_flip_gather;

/* bytes: (shards) size of each shard's codes */
bt_code bt_flip_gather_create(bt_flip_gather **out, const bt_mesh *mesh, const size_t *bytes,
                              bt_err *err) BT_MUST_CHECK;
void bt_flip_gather_destroy(bt_flip_gather *f); /* accepts NULL */
/* Returns the memory used by create for shards of `all` bytes in total. */
size_t bt_flip_gather_bytes(size_t all);
/* own: this shard's codes */
bt_code bt_flip_gather_run(bt_flip_gather *f, const unsigned char *own, bt_err *err) BT_MUST_CHECK;
/* Returns a shard's codes after the last gather. */
const unsigned char *bt_flip_gather_from(const bt_flip_gather *f, int shard);

#endif
