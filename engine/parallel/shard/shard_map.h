/* shard_map.h - ownership of the flat arrays by ranks if optimizer state is sharded (ZeRO).
 *
 *  stripe 0 stripe 1... every stripe is cut into one piece per
 *  shard:
 *  | 0 | 1 | 2 | 3 | | 0 | 1 | 2 | 3 | backward finishes stripes from the end, and
 *  every
 *  owner has its share of each
 *
 * Pieces begin at multiples of BT_SUM_BLOCK elements, so that block sums never cross an owner; in larger models at
 * multiples of a huge page, so that freed or untouched memory is whole pages. Without shards there is one stripe
 * with one piece. Pure arithmetic. */
#ifndef BT_ENGINE_PARALLEL_SHARD_SHARD_MAP_H
#define BT_ENGINE_PARALLEL_SHARD_SHARD_MAP_H

#include <stdbool.h>

#include "engine/base/range.h"

typedef struct bt_shards {
    size_t total, stripe, piece; /* elements */
    size_t n_stripes;
    int n; /* number of shards */
} bt_shards;

/* Sets stripes of about stripe_bytes and of equal size, a whole number of blocks for each of the dp_replicate x
 * dp_shard ranks. */
void bt_shards_init(bt_shards *s, size_t total, size_t stripe_bytes, int dp_replicate,
                    int dp_shard);
/* Returns true if pieces are not whole huge pages: sharded memory must then use small pages. */
bool bt_shards_ragged(const bt_shards *s);
/* Returns a range that may be empty (in the last stripe). */
bt_range bt_shards_piece(const bt_shards *s, size_t stripe, int shard);
/* Returns the stripes [begin, end) that contain elements of a non-empty range of the flat array. */
bt_range bt_shards_stripes(const bt_shards *s, bt_range elements);
/* Returns the number of elements in all pieces of a shard. */
size_t bt_shards_elems(const bt_shards *s, int shard);

#endif
