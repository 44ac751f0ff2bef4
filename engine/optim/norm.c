/* norm.c - see norm.h. */
#include "engine/optim/norm.h"

#include <assert.h>

#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"

size_t bt_norm_blocks(size_t n) { return (n + BT_SUM_BLOCK - 1) / BT_SUM_BLOCK; }

typedef struct fill {
    double *blocks;
    const float *x;
    size_t begin, end;
} fill;

static void fill_range(void *ctx, int thread, size_t from, size_t to) {
    (void)thread;
    const fill *f = ctx;
    for (size_t b = f->begin / BT_SUM_BLOCK + from; b < f->begin / BT_SUM_BLOCK + to; b++) {
        size_t at = b * BT_SUM_BLOCK, n = f->end - at < BT_SUM_BLOCK ? f->end - at : BT_SUM_BLOCK;
        f->blocks[b] = bt_k()->sum_squares(f->x + at, n);
    }
}

void bt_norm_fill(double *blocks, const float *x, size_t begin, size_t end) {
    if (begin >= end) return;
    assert(begin % BT_SUM_BLOCK == 0);
    fill f = {blocks, x, begin, end};
    bt_parallel_for(bt_norm_blocks(end - begin), 4, fill_range, &f);
}

double bt_norm_sum(const double *blocks, size_t n_blocks) {
    double sum = 0;
    for (size_t i = 0; i < n_blocks; i++) sum += blocks[i];
    return sum;
}
