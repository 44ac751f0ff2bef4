/* tp_input.c - norms and int8 of rows whose columns are divided over a tensor-parallel group: the inputs of o and down.
 * A row's statistics cover all its columns; they are added as a tree over the leaves and then over the ranks. */
#include <math.h>

#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

/* Joins the statistics of a row from n ranks, which are `rows` elements apart, beginning with rank `first`. */
static bt_row_stat join_row_stats(const bt_row_stat *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    int left = bt_tp_left(n);
    return bt_row_stat_join(join_row_stats(of, rows, first, left),
                            join_row_stats(of, rows, first + left, n - left));
}

static double join_dot_products(const double *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    int left = bt_tp_left(n);
    return join_dot_products(of, rows, first, left) +
           join_dot_products(of, rows, first + left, n - left);
}

static void columns_fwd(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    const bt_tp_state *p = in->tp;
    bt_tp_group *t = p->group;
    const bool codes = in->tern || in->fade > 0;
    bt_op_row_stats(p->mine, x, in->gain.w, rows, in->K, p->leaves);
    t->all_gather(t, p->mine, p->all, rows * sizeof *p->mine);
    for (size_t r = 0; r < rows; r++) {
        bt_row_stat row = join_row_stats(p->all + r, rows, 0, t->size);
        float rstd = 1.0f;
        if (in->normed)
            in->rstd[r0 + r] = rstd =
                (float)(1.0 / sqrt(row.sum / (double)in->whole_K + (double)in->eps));
        if (codes) in->dq[r0 + r] = row.a * rstd * row.b;
    }
    bt_op_row_apply(codes ? in->xq + r0 * in->K : NULL, codes ? in->dq + r0 : NULL,
                    in->tern ? NULL : in->xn + r0 * in->K, x, in->gain.w,
                    in->normed ? in->rstd + r0 : NULL, rows, in->K);
    if (in->fade > 0) bt_net_fade_rows(in, r0, rows);
}

static void columns_bwd(const bt_linear_input *in, float *dx, const float *dy, const float *x,
                        size_t r0, size_t rows) {
    const bt_tp_state *p = in->tp;
    bt_tp_group *t = p->group;
    if (in->gain.dw) bt_op_row_dgain(in->gain.dw, dy, x, in->rstd + r0, rows, in->K);
    double *mine = (double *)(void *)p->mine, *all = (double *)(void *)p->all;
    bt_op_row_dot(mine, dy, x, in->gain.w, rows, in->K, p->leaves);
    t->all_gather(t, mine, all, rows * sizeof *mine);
    for (size_t r = 0; r < rows; r++) {
        p->a[r] = (float)(join_dot_products(all + r, rows, 0, t->size) / (double)in->whole_K);
    }
    bt_op_row_dx(dx, dy, x, in->gain.w, in->rstd + r0, p->a, rows, in->K);
}

static void columns_restore(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    if (in->tern) return;
    bt_op_row_apply(NULL, NULL, in->xn + r0 * in->K, x, in->gain.w,
                    in->normed ? in->rstd + r0 : NULL, rows, in->K);
    if (in->fade > 0) bt_net_fade_rows(in, r0, rows);
}

const bt_input_ops bt_tp_input_ops = {
    .fwd = columns_fwd, .restore = columns_restore, .bwd = columns_bwd};
