/* bigrams.h - counts of the tokens that follow each token in a text: a bigram model as shares. Made by
 * data/shards/followers.h, read by the head (kernels/ops/ops.h).
 * Threads: constant after it was counted. */
#ifndef BT_ENGINE_BASE_NUMBERS_BIGRAMS_H
#define BT_ENGINE_BASE_NUMBERS_BIGRAMS_H

#include <stdint.h>

/* The followers of token t are token[at[t]] to token[at[t + 1]], ascending, with shares that add up to 1; a token
 * without followers has none. token and share have room for at[V] */
typedef struct bt_followers {
    uint32_t *at; /* (V + 1); NULL: nothing was counted */
    int32_t *token;
    float *share;
} bt_followers;

#endif
