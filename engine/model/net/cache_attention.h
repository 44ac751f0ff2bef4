/* cache_attention.h - attention of one query of one head to the keys and values of a cache.
 *
 * A single token gives a matrix product nothing to reuse. Therefore keys are read once, directly from memory, in
 * sixteen lanes that compilers can convert to vectors without reordering sums: every processor computes the same sums,
 * with the widest vectors that it has.
 * Threads: pure functions. */
#ifndef BT_ENGINE_MODEL_NET_CACHE_ATTENTION_H
#define BT_ENGINE_MODEL_NET_CACHE_ATTENTION_H

#include <stddef.h>

typedef struct bt_cached { /* keys and values of one head */
    const float *k, *v;    /* (seen, D), rows `ld` apart */
    size_t ld, seen, D;
    float scale, cap; /* see bt_attn_shape */
} bt_cached;

/* Computes o (D) = softmax(scale q k^T, with the soft limit) v. weights: memory for `seen` floats. */
void bt_cache_attend(float *o, const float *q, const bt_cached *c, float *weights);

#endif
