/* bigrams.h - the relative frequencies with which tokens follow each token in a text (a bigram model).
 * data/shards/followers.h counts them; the head reads them (kernels/ops/ops.h).
 * Threads: constant after counting. */
#ifndef BT_ENGINE_BASE_NUMBERS_BIGRAMS_H
#define BT_ENGINE_BASE_NUMBERS_BIGRAMS_H

#include <stdint.h>

/* The followers of token t are token[at[t]] to token[at[t + 1] - 1] in ascending order; their shares add up to 1. A
 * token may have no followers. token and share have at[V] elements. */
typedef struct bt_followers {
    uint32_t *at; /* (V + 1); NULL: not counted */
    int32_t *token;
    float *share;
} bt_followers;

#endif
