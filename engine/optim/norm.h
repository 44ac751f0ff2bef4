/* norm.h - the squared norm of a flat array by fixed blocks of BT_SUM_BLOCK elements, so that it
 * has the same bits whether one rank holds the array or many hold pieces of it: blocks are summed
 * where they lie, their sums added in order.
 * Threads: the training thread; blocks are split over the pool. */
#ifndef BT_ENGINE_OPTIM_NORM_H
#define BT_ENGINE_OPTIM_NORM_H

#include <stddef.h>

/* of an array of n elements */
size_t bt_norm_blocks(size_t n);
/* blocks[i] for every block that begins in [begin, end); begin is a multiple of BT_SUM_BLOCK, end
 * too or the array's end */
void bt_norm_fill(double *blocks, const float *x, size_t begin, size_t end);
double bt_norm_sum(const double *blocks, size_t n_blocks);

#endif
