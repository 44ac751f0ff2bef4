/* blocks.h - reads a long run in few pieces: summary blocks (rollup.h), and raw rows
 * where there is no block (the ends of the range, the newest steps, repeated steps, old files).
 *
 * Every live step of the range is in exactly one block, so minima, maxima and sums over the
 * blocks equal those over the steps.
 * Cost: about (steps / max_steps) * 16 row reads at most; a million steps in blocks of at
 *  most 4096: a few milliseconds. */
#ifndef BT_STORE_READ_BLOCKS_H
#define BT_STORE_READ_BLOCKS_H

#include "store/store.h"
#include "store/write/rollup.h"

typedef struct bt_blocks_request {
    const char *run;
    int64_t step0, step1; /* inclusive */
    int64_t max_steps;    /* maximum length of a block; below 16: raw rows only */
    bool ranks;           /* also read the values of ranks */
} bt_blocks_request;

typedef struct bt_block {
    /* Inclusive. The block has one step or an aligned power of 16 of steps. */
    int64_t step0, step1;
    int attempt;
    const bt_block_stat *steps; /* [BT_MS_COUNT] */
    bt_block_stat wall_us;      /* ends of the steps, microseconds since 1970 */
    int n_ranks;                /* 0: not requested, or not sampled here */
    /* (n_ranks, BT_MR_COUNT); blocks of 16 steps contain only means: min = max = mean */
    const bt_block_stat *ranks;
} bt_block;
typedef bool (*bt_block_fn)(void *ctx,
                            const bt_block *b); /* in order of steps; returns false to stop */

bt_code bt_blocks_walk(bt_db *db, const bt_blocks_request *ask, bt_block_fn fn, void *ctx,
                       bt_err *err) BT_MUST_CHECK;

#endif
