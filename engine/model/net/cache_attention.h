/* cache_attention.h - one query of one head against the keys and values of a cache.
 *
 * One token gives a matrix product nothing to reuse: keys are read once, straight from memory, in
 * sixteen lanes that compilers turn into vectors without being allowed to reorder sums. So every
 * processor computes the same sums, and each takes the widest vectors that it has.
 * Threads: pure functions. */
#ifndef BT_ENGINE_MODEL_NET_CACHE_ATTENTION_H
#define BT_ENGINE_MODEL_NET_CACHE_ATTENTION_H

#include <stddef.h>

typedef struct bt_cached { /* keys and values of one head */
    const float *k, *v;    /* (seen, D), rows `ld` apart */
    size_t ld, seen, D;
    float scale, cap; /* see bt_attn_shape */
} bt_cached;

/* o (D) = softmax(scale q k^T, with the soft limit) v; weights: memory of `seen` floats */
void bt_cache_attend(float *o, const float *q, const bt_cached *c, float *weights);

#endif
