/* pieces.h - collectives over what shards own: values of pieces to all ranks of the shard axis.
 * Threads: the training thread. */
#ifndef BT_ENGINE_PARALLEL_PIECES_H
#define BT_ENGINE_PARALLEL_PIECES_H

#include "engine/parallel/mesh.h"
#include "engine/parallel/shard.h"

typedef struct bt_pieces bt_pieces;

bt_code bt_pieces_create(bt_pieces **out, const bt_mesh *mesh, const bt_shards *shards, bt_err *err) BT_MUST_CHECK;
void bt_pieces_destroy(bt_pieces *p);                   /* accepts NULL */
/* every shard's piece of the stripe to every shard, in place in the flat array; stripes in the same order on all ranks */
bt_code bt_pieces_gather_start(bt_pieces *p, float *flat, size_t stripe, bt_err *err) BT_MUST_CHECK;
bt_code bt_pieces_gather_finish(bt_pieces *p, bt_err *err) BT_MUST_CHECK;       /* waits for all that were started */

#endif
