/* norm.c - computes the gradient norm by blocks in order, or by exact sums. */
#include "engine/optim/norm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/exact.h"

enum { PARTS = 64 }; /* number of parts of a range, which threads process */

struct bt_norm {
    bt_norm_cfg cfg;
    double *blocks;   /* (blocks of the flat array) sums of squares */
    double *of_ranks; /* (the larger of tp and pp) sums of other ranks */
};

static size_t n_blocks(size_t total) { return (total + BT_SUM_BLOCK - 1) / BT_SUM_BLOCK; }

size_t bt_norm_bytes(size_t total, int ranks) {
    return (n_blocks(total) + (size_t)ranks) * sizeof(double);
}

bt_code bt_norm_create(bt_norm **out, const bt_norm_cfg *cfg, bt_err *err) {
    const bt_mesh_shape *s = &cfg->mesh->shape;
    bt_norm *n = *out = calloc(1, sizeof *n);
    if (n) {
        n->cfg = *cfg;
        n->blocks = calloc(n_blocks(cfg->total) + 1, sizeof *n->blocks);
        n->of_ranks = calloc((size_t)(s->tp > s->pp ? s->tp : s->pp), sizeof *n->of_ranks);
    }
    if (n && n->blocks && n->of_ranks) return BT_OK;
    bt_norm_destroy(n);
    *out = NULL;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory for the sums of %zu gradients",
                   cfg->total);
}

void bt_norm_destroy(bt_norm *n) {
    if (!n) return;
    free(n->blocks);
    free(n->of_ranks);
    free(n);
}

typedef struct fill_job {
    double *blocks;
    const float *x;
    bt_range piece;
} fill_job;

static void fill_blocks(void *ctx, int thread, size_t from, size_t to) {
    const fill_job *j = ctx;
    (void)thread;
    for (size_t b = j->piece.begin / BT_SUM_BLOCK + from; b < j->piece.begin / BT_SUM_BLOCK + to;
         b++) {
        size_t at = b * BT_SUM_BLOCK, n = bt_min_size(j->piece.end - at, BT_SUM_BLOCK);
        j->blocks[b] = bt_active_kernels()->sum_squares(j->x + at, n);
    }
}

static double counted_squares(const bt_norm *n, const float *x, bt_range block) {
    double sum = 0;
    for (size_t i = 0; i < n->cfg.n_counted; i++) {
        size_t begin = bt_max_size(n->cfg.counted[i].begin, block.begin),
               end = bt_min_size(n->cfg.counted[i].end, block.end);
        if (begin < end) sum += bt_op_sum_squares(x + begin, end - begin);
    }
    return sum;
}

/* Sums blocks again without the elements that another rank of the tensor-parallel group counts. */
static void exclude_foreign_elements(bt_norm *n, const float *x, bt_range piece) {
    for (size_t i = 0; i < n->cfg.n_excluded; i++) {
        size_t from = bt_max_size(n->cfg.excluded[i].begin, piece.begin),
               to = bt_min_size(n->cfg.excluded[i].end, piece.end);
        for (size_t b = from / BT_SUM_BLOCK; from < to && b * BT_SUM_BLOCK < to; b++) {
            bt_range block = {b * BT_SUM_BLOCK, bt_min_size((b + 1) * BT_SUM_BLOCK, piece.end)};
            n->blocks[b] = counted_squares(n, x, block);
        }
    }
}

static bt_code sum_by_blocks(bt_norm *n, const float *x, double *squares, bt_err *err) {
    const bt_norm_cfg *c = &n->cfg;
    size_t blocks = n_blocks(c->total);
    if (c->sharded) memset(n->blocks, 0, blocks * sizeof *n->blocks);
    for (size_t i = 0; i < c->n_pieces; i++) {
        fill_job j = {n->blocks, x, c->pieces[i]};
        if (j.piece.begin >= j.piece.end) continue;
        bt_parallel_for(n_blocks(j.piece.end - j.piece.begin), 4, fill_blocks, &j);
        exclude_foreign_elements(n, x, c->pieces[i]);
    }
    /* adding 0 changes no bits */
    if (c->sharded && bt_comm_size(c->mesh->shard) > 1) {
        bt_span_begin(BT_MR_COMM_EXPOSED);
        BT_TRY(bt_all_reduce_f64(c->mesh->shard, n->blocks, blocks, BT_SUM, err));
        bt_span_end();
    }
    *squares = 0;
    for (size_t b = 0; b < blocks; b++) *squares += n->blocks[b];
    return BT_OK;
}

/* Sums over the tensor-parallel group, then over the stages, each in the order of ranks. */
static bt_code sum_over_ranks_in_order(bt_norm *n, double *squares, bt_err *err) {
    const bt_mesh *m = n->cfg.mesh;
    double mine = *squares;
    if (n->cfg.tp_group) {
        bt_tp_group *g = n->cfg.tp_group;
        g->all_gather(g, &mine, n->of_ranks, sizeof mine);
        mine = 0;
        for (int k = 0; k < g->size; k++) mine += n->of_ranks[k];
    }
    *squares = mine;
    if (m->shape.pp == 1) return BT_OK;
    BT_TRY(bt_all_gather(m->pp, &mine, sizeof mine, n->of_ranks, err));
    *squares = 0;
    for (int k = 0; k < m->shape.pp; k++) *squares += n->of_ranks[k];
    return BT_OK;
}

typedef struct exact_job {
    const float *x;
    size_t n;
    uint32_t most[PARTS];
    double sum[PARTS][2];
    bt_exact units;
    bool squares;
} exact_job;

static void exact_parts(void *ctx, int thread, size_t begin, size_t end) {
    exact_job *j = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t from = j->n * i / PARTS, to = j->n * (i + 1) / PARTS;
        if (j->squares)
            bt_exact_add(j->sum[i], j->x + from, to - from, BT_EXACT_SQUARE, &j->units);
        else
            j->most[i] = bt_exact_most(j->x + from, to - from);
    }
}

/* Computes the largest magnitude, or the sum of squares, of the elements that this rank counts. */
static void exact_pass(const bt_norm *n, const float *x, exact_job *j, uint32_t *most_bits,
                       double sum[2]) {
    for (size_t i = 0; i < n->cfg.n_counted; i++) {
        bt_range r = n->cfg.counted[i];
        j->x = x + r.begin;
        j->n = r.end - r.begin;
        memset(j->sum, 0, sizeof j->sum);
        bt_parallel_for(PARTS, j->n < BT_SUM_BLOCK ? PARTS : 1, exact_parts, j);
        for (size_t s = 0; s < PARTS; s++) {
            if (j->squares)
                sum[0] += j->sum[s][0], sum[1] += j->sum[s][1];
            else if (j->most[s] > *most_bits)
                *most_bits = j->most[s];
        }
    }
}

static bt_code exact_norm(bt_norm *n, const float *x, double unscale, double *norm, bt_err *err) {
    const bt_mesh *m = n->cfg.mesh;
    exact_job j = {.squares = false};
    uint32_t bits = 0;
    float largest;
    double sum[2] = {0, 0};
    exact_pass(n, x, &j, &bits, sum);
    int64_t top = bits;
    const bool exchanges = bt_comm_size(m->world) > 1; /* a single rank does not communicate */
    if (exchanges) bt_span_begin(BT_MR_COMM_EXPOSED);
    BT_TRY(bt_all_reduce_i64(m->shard, &top, 1, BT_MAX, err));
    BT_TRY(bt_all_reduce_i64(m->tp, &top, 1, BT_MAX, err));
    BT_TRY(bt_all_reduce_i64(m->pp, &top, 1, BT_MAX, err));
    if (exchanges) bt_span_end();
    bits = (uint32_t)top;
    memcpy(&largest, &bits, sizeof largest);
    *norm = (double)largest;
    if (!isfinite(largest) || largest == 0) return BT_OK;
    j.units = bt_exact_units((double)largest * (double)largest, n->cfg.whole_elements);
    j.squares = true;
    exact_pass(n, x, &j, &bits, sum);
    if (exchanges) bt_span_begin(BT_MR_COMM_EXPOSED);
    if (n->cfg.sharded) BT_TRY(bt_all_reduce_f64(m->shard, sum, 2, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(m->tp, sum, 2, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(m->pp, sum, 2, BT_SUM, err));
    if (exchanges) bt_span_end();
    *norm = sqrt(sum[0] + sum[1]) * unscale;
    return BT_OK;
}

bt_code bt_norm_compute(bt_norm *n, const float *grads, double unscale, double *norm, bt_err *err) {
    double squares;
    if (n->cfg.exact) return exact_norm(n, grads, unscale, norm, err);
    BT_TRY(sum_by_blocks(n, grads, &squares, err));
    BT_TRY(sum_over_ranks_in_order(n, &squares, err));
    *norm = sqrt(squares) * unscale;
    return BT_OK;
}
