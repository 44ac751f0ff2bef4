/* shard_map.c - sizes of stripes and pieces, in blocks of sums and huge pages. */
#include "engine/parallel/shard/shard_map.h"

#include <stdbool.h>

#include "engine/base/arena.h"
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"

enum { MOST_PAGED = 16, LEAST_STRIPES = 4 };

void bt_shards_init(bt_shards *s, size_t total, size_t stripe_bytes, int dp_replicate,
                    int dp_shard) {
    *s = (bt_shards){
        .total = total, .stripe = total, .piece = total, .n_stripes = total > 0, .n = 1};
    if (dp_shard == 1 || total == 0) return;
    /* elements of the smallest stripe whose pieces are whole huge pages */
    size_t huge = BT_ARENA_PAGE / sizeof(float) * (size_t)dp_shard;
    bool pages = stripe_bytes >= BT_ARENA_PAGE && dp_shard <= MOST_PAGED &&
                 total >= LEAST_STRIPES * huge;
    size_t unit = pages ? huge : (size_t)BT_SUM_BLOCK * (size_t)dp_shard;
    if (unit / (size_t)dp_shard % ((size_t)BT_SUM_BLOCK * (size_t)dp_replicate) != 0)
        unit *= (size_t)dp_replicate;
    size_t wanted = stripe_bytes / sizeof(float) > unit ? stripe_bytes / sizeof(float) : unit;
    /* The stripes have nearly equal sizes, which are close to the wanted size. */
    size_t even = (total + wanted - 1) / wanted;
    s->n = dp_shard;
    s->stripe = ((total + even - 1) / even + unit - 1) / unit * unit;
    s->piece = s->stripe / (size_t)dp_shard;
    s->n_stripes = (total + s->stripe - 1) / s->stripe;
}

bool bt_shards_ragged(const bt_shards *s) {
    return s->n > 1 && s->piece * sizeof(float) % BT_ARENA_PAGE != 0;
}

bt_range bt_shards_piece(const bt_shards *s, size_t stripe, int shard) {
    size_t begin = stripe * s->stripe + (size_t)shard * s->piece;
    return (bt_range){bt_min_size(begin, s->total), bt_min_size(begin + s->piece, s->total)};
}

bt_range bt_shards_stripes(const bt_shards *s, bt_range elements) {
    if (s->n_stripes == 0) return (bt_range){0, 0};
    return (bt_range){elements.begin / s->stripe,
                      bt_min_size((elements.end + s->stripe - 1) / s->stripe, s->n_stripes)};
}

size_t bt_shards_elems(const bt_shards *s, int shard) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_stripes; i++) {
        bt_range r = bt_shards_piece(s, i, shard);
        n += r.end - r.begin;
    }
    return n;
}
