/* ops_split.c - operations on rows and vocabularies that are divided among ranks (tensor parallelism), over whole
 * problems. */
#include <string.h>

#include "engine/kernels/ops/ops.h"

typedef struct split_job {
    float *y, *dq;
    bt_table table;
    int8_t *xq;
    const float *x, *dy, *gain, *rstd, *mean;
    const int32_t *index;
    const size_t *at;
    bt_row_stat *stat;
    double *dot;
    float dscale;
    size_t C, M, first, V, leaves;
} split_job;

static double split_row_bytes(size_t rows, size_t C, double each) {
    return each * (double)rows * (double)C;
}

typedef bt_row_stat (*join_fn)(bt_row_stat x, bt_row_stat y);

static bt_row_stat join_leaves(bt_row_stat *leaf, size_t n, join_fn join) {
    for (size_t step = 1; step < n; step *= 2) {
        for (size_t i = 0; i + step < n; i += 2 * step) leaf[i] = join(leaf[i], leaf[i + step]);
    }
    return leaf[0];
}

static void stats_of_leaves(const split_job *j, size_t r) {
    bt_row_stat leaf[BT_ROW_LEAVES];
    size_t c = j->C / j->leaves;
    for (size_t p = 0; p < j->leaves; p++)
        bt_active_kernels()->row_stats(&leaf[p], j->x + r * j->C + p * c,
                                       j->gain ? j->gain + p * c : NULL, 1, c);
    j->stat[r] = join_leaves(leaf, j->leaves, bt_row_stat_join);
}

static void do_stats(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    for (size_t r = a; j->leaves > 1 && r < b; r++) stats_of_leaves(j, r);
    if (j->leaves == 1)
        bt_active_kernels()->row_stats(j->stat + a, j->x + a * j->C, j->gain, b - a, j->C);
}

void bt_op_row_stats(bt_row_stat *out, const float *x, const float *gain, size_t rows, size_t C,
                     size_t leaves) {
    split_job j = {.stat = out, .x = x, .gain = gain, .C = C, .leaves = leaves};
    bt_ops_run("row_stats", split_row_bytes(rows, C, 4), rows, bt_ops_row_grain(C), do_stats, &j);
}

static void do_apply(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    bt_active_kernels()->row_apply(j->xq ? j->xq + a * j->C : NULL, j->dq ? j->dq + a : NULL,
                                   j->y ? j->y + a * j->C : NULL, j->x + a * j->C, j->gain,
                                   j->rstd ? j->rstd + a : NULL, b - a, j->C);
}

void bt_op_row_apply(int8_t *xq, float *dq, float *y, const float *x, const float *gain,
                     const float *rstd, size_t rows, size_t C) {
    split_job j = {.xq = xq, .dq = dq, .y = y, .x = x, .gain = gain, .rstd = rstd, .C = C};
    bt_ops_run("row_apply", split_row_bytes(rows, C, y ? 9 : 5), rows, bt_ops_row_grain(C),
               do_apply, &j);
}

static void dot_of_leaves(const split_job *j, size_t r) {
    double leaf[BT_ROW_LEAVES];
    size_t c = j->C / j->leaves;
    for (size_t p = 0; p < j->leaves; p++) {
        size_t at = r * j->C + p * c;
        bt_active_kernels()->row_dot(&leaf[p], j->dy + at, j->x + at,
                                     j->gain ? j->gain + p * c : NULL, 1, c);
    }
    for (size_t step = 1; step < j->leaves; step *= 2) {
        for (size_t p = 0; p + step < j->leaves; p += 2 * step) leaf[p] += leaf[p + step];
    }
    // cppcheck-suppress uninitvar ; there is at least one leaf
    j->dot[r] = leaf[0];
}

static void do_dot(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    for (size_t r = a; j->leaves > 1 && r < b; r++) dot_of_leaves(j, r);
    if (j->leaves == 1)
        bt_active_kernels()->row_dot(j->dot + a, j->dy + a * j->C, j->x + a * j->C, j->gain, b - a,
                                     j->C);
}

void bt_op_row_dot(double *out, const float *dy, const float *x, const float *gain, size_t rows,
                   size_t C, size_t leaves) {
    split_job j = {.dot = out, .dy = dy, .x = x, .gain = gain, .C = C, .leaves = leaves};
    bt_ops_run("row_dot", split_row_bytes(rows, C, 8), rows, bt_ops_row_grain(C), do_dot, &j);
}

static void do_dx(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    bt_active_kernels()->row_dx(j->y + a * j->C, j->dy + a * j->C, j->x + a * j->C, j->gain,
                                j->rstd + a, j->mean + a, b - a, j->C);
}

void bt_op_row_dx(float *dx, const float *dy, const float *x, const float *gain, const float *rstd,
                  const float *mean, size_t rows, size_t C) {
    split_job j = {.y = dx, .dy = dy, .x = x, .gain = gain, .rstd = rstd, .mean = mean, .C = C};
    bt_ops_run("row_dx", split_row_bytes(rows, C, 12), rows, bt_ops_row_grain(C), do_dx, &j);
}

static void do_dgain(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    bt_active_kernels()->rmsnorm_dgain(j->y, j->dy, j->x, j->rstd, j->M, j->C, a, b);
}

void bt_op_row_dgain(float *dgain, const float *dy, const float *x, const float *rstd, size_t rows,
                     size_t C) {
    split_job j = {.y = dgain, .dy = dy, .x = x, .rstd = rstd, .M = rows, .C = C};
    bt_ops_run("rmsnorm_dgain", split_row_bytes(rows, C, 8), C, 64, do_dgain, &j);
}

typedef struct heads_job {
    float *out;
    const float *dy, *x, *rstd;
    size_t M, heads, each, D;
} heads_job;

static void do_heads(void *ctx, int thread, size_t a, size_t b) {
    const heads_job *j = ctx;
    (void)thread;
    memset(j->out + a * j->D, 0, (b - a) * j->D * sizeof *j->out);
    for (size_t p = a; p < b; p++) {
        for (size_t m = 0; m < j->M; m++) {
            size_t head = m * j->heads + p * j->each;
            bt_active_kernels()->rmsnorm_dgain(j->out + p * j->D, j->dy + head * j->D,
                                               j->x + head * j->D, j->rstd + head, j->each, j->D, 0,
                                               j->D);
        }
    }
}

void bt_op_heads_dgain(float *out, const float *dy, const float *x, const float *rstd, size_t M,
                       size_t heads, size_t leaves, size_t D) {
    heads_job j = {out, dy, x, rstd, M, heads, heads / leaves, D};
    bt_ops_run("rmsnorm_dgain", split_row_bytes(M, heads * D, 8), leaves, 1, do_heads, &j);
}

static void do_axpy(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    bt_active_kernels()->row_axpy(j->y + a * j->C, j->x + a * j->C, j->mean + a, b - a, j->C);
}

void bt_op_row_axpy(float *y, const float *x, const float *a, size_t rows, size_t C) {
    split_job j = {.y = y, .x = x, .mean = a, .C = C};
    bt_ops_run("row_axpy", split_row_bytes(rows, C, 12), rows, bt_ops_row_grain(C), do_axpy, &j);
}

static void lse_of_leaves(const split_job *j, size_t r) {
    bt_row_stat leaf[BT_ROW_LEAVES];
    for (size_t p = 0; p < j->leaves; p++) {
        /* an index below the leaf wraps to a large number */
        size_t c = j->at[p + 1] - j->at[p], at = (size_t)(int64_t)j->index[r] - j->at[p];
        int32_t target = j->index[r] >= 0 && at < c ? (int32_t)at : -1;
        bt_active_kernels()->row_lse(&leaf[p], j->x + r * j->C + j->at[p], &target, 1, c);
    }
    j->stat[r] = join_leaves(leaf, j->leaves, bt_row_lse_join);
}

static void do_lse(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    for (size_t r = a; j->leaves > 1 && r < b; r++) lse_of_leaves(j, r);
    if (j->leaves == 1)
        bt_active_kernels()->row_lse(j->stat + a, j->x + a * j->C, j->index + a, b - a, j->C);
}

void bt_op_row_lse(bt_row_stat *out, const float *logits, const int32_t *targets, size_t rows,
                   size_t V, const size_t *at, size_t leaves) {
    split_job j = {.stat = out, .x = logits, .index = targets, .at = at, .C = V, .leaves = leaves};
    bt_ops_run("row_lse", split_row_bytes(rows, V, 4), rows, 1, do_lse, &j);
}

static void softmax_of_rows(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    bt_active_kernels()->row_softmax(j->y + a * j->C, j->x + a, j->mean + a, j->index + a,
                                     j->dscale, b - a, j->C);
}

void bt_op_row_softmax(float *logits, const float *top, const float *k, const int32_t *targets,
                       float dscale, size_t rows, size_t V) {
    split_job j = {.y = logits, .x = top, .mean = k, .index = targets, .dscale = dscale, .C = V};
    bt_ops_run("row_softmax", split_row_bytes(rows, V, 8), rows, 1, softmax_of_rows, &j);
}

static void split_embed_unit(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    for (size_t m = a; m < b; m++) {
        size_t word = (size_t)j->index[m] -
                      j->first; /* a token of an earlier slice wraps to a large number */
        if (word < j->V)
            bt_table_read(j->y + m * j->C, &j->table, word * j->C, j->C);
        else
            memset(j->y + m * j->C, 0, j->C * sizeof(float));
    }
}

void bt_op_embed(float *x, bt_table E, const int32_t *tokens, size_t first, size_t V, size_t M,
                 size_t C) {
    split_job j = {.y = x, .table = E, .index = tokens, .first = first, .V = V, .C = C};
    bt_ops_run("embed", split_row_bytes(M, C, 8), M, 16, split_embed_unit, &j);
}

/* columns a to b of all rows, in ascending order of rows */
static void split_embed_bwd_unit(void *ctx, int thread, size_t a, size_t b) {
    const split_job *j = ctx;
    (void)thread;
    for (size_t m = 0; m < j->M; m++) {
        size_t at = (size_t)j->index[m] - j->first;
        if (at < j->V) bt_active_kernels()->add(j->y + at * j->C + a, j->dy + m * j->C + a, b - a);
    }
}

void bt_op_embed_bwd(float *dE, const float *dx, const int32_t *tokens, size_t first, size_t V,
                     size_t M, size_t C) {
    split_job j = {.y = dE, .dy = dx, .index = tokens, .first = first, .V = V, .M = M, .C = C};
    bt_ops_run("embed_bwd", split_row_bytes(M, C, 12), C, 64, split_embed_bwd_unit, &j);
}
