/* tp_leaves.c - sums that tensor parallelism divides, as a tree over equal parts of the whole model
 * (reproducible training).
 *
 *     leaves   0   1   2   3   4   5   6   7        one rank adds all of it; of two each adds its half,
 *              0+1     2+3     4+5     6+7          and the sum over the group is the last step; of
 *              (0+1)+(2+3)     (4+5)+(6+7)          eight the group makes all steps
 *              all
 *
 *     leaves   0   1   2   3   4   5                any number: the tree of base/tp_group.h. Ranks
 *              0+1     2+3     4+5                  that hold 1, 2, 4, ... leaves hold whole
 *              (0+1)+(2+3)                          branches: here one rank, three, six
 *              all
 *
 * A leaf is a range of heads in q, k, v, of columns in gate and up, of tokens in the head, and of the
 * micro-batch's rows in the gradient of a norm's gain. Where several leaves share a kv head, dk
 * and dv are added first, and the first of these leaves has all of the head's k and v. */
#include <string.h>

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

/* Rows in a block, so that the rows of a tree's terms fit the L2 cache: a thread computes all terms of a block before
 * the next one. Used only for int8 products, because other products unpack the weights in every call. */
enum { LEAF_ROWS = 64 };

/* rows from r0 on; row `at` of dy is the first of them */
typedef struct dx_job {
    bt_model *m;
    const bt_dx_term *terms;
    size_t n, at, r0, rows;
} dx_job;

/* Sets out to the products of the terms over one leaf. */
static void dx_leaf(const dx_job *j, size_t leaf, size_t leaves, float *out) {
    int flags = 0;
    for (size_t i = 0; i < j->n; i++) {
        const bt_linear *l = j->terms[i].l;
        bt_tp_ranges run = bt_tp_ranges_in(&j->m->setup, l, leaf, leaves);
        for (size_t range = run.begin; range < run.end; range++) {
            l->ops->dx(l, range, out, bt_grads_from(j->terms[i].dy, j->at, 0), j->r0, j->rows,
                       flags);
            flags = BT_ACC;
        }
    }
}

static size_t leaves_of_left_branch(size_t leaves) { return (size_t)bt_tp_left((int)leaves); }

static void dx_tree(const dx_job *j, size_t first, size_t n, size_t leaves, float *out,
                    float *spare) {
    size_t elems = j->rows * (size_t)j->m->setup.cfg.C;
    if (n == 1) {
        dx_leaf(j, first, leaves, out);
        return;
    }
    size_t left = leaves_of_left_branch(n);
    dx_tree(j, first, left, leaves, out, spare);
    dx_tree(j, first + left, n - left, leaves, spare, spare + elems);
    bt_op_add(out, spare, elems);
}

void bt_tp_leaves_dx(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows) {
    size_t leaves = m->tp_state->leaves, C = (size_t)m->setup.cfg.C, block = rows;
    if (m->noise_rows)
        block = (leaves > 1 ? LEAF_ROWS : bt_one_rank_dx_rows(m)) * (size_t)bt_threads_count();
    for (size_t at = 0; at < rows; at += block) {
        dx_job j = {m, terms, n, at, r0 + at, rows - at < block ? rows - at : block};
        dx_tree(&j, 0, leaves, leaves, m->layers[0].a.dxn + (r0 + at) * C, m->tp_state->spare);
    }
}

/* Adds n consecutive arrays of C elements as a tree; the sum replaces the first one. */
static void add_as_tree(float *x, size_t n, size_t C) {
    for (size_t step = 1; step < n; step *= 2) {
        for (size_t i = 0; i + step < n; i += 2 * step) bt_op_add(x + i * C, x + (i + step) * C, C);
    }
}

void bt_tp_leaves_norm_bwd(bt_model *m, const bt_norm_bwd *j) {
    if (!j->gain->dw) {
        bt_tp_norm_bwd(m, j);
        return;
    }
    const bt_tp_state *s = m->tp_state;
    bt_rows own = bt_tp_own_rows(m, j->M);
    const float *own_rstd = j->rstd + own.first;
    size_t C = (size_t)m->setup.cfg.C, n = s->sequence ? s->leaves : s->total_leaves,
           first = s->sequence ? s->first_leaf : 0;
    memset(s->gains, 0, n * C * sizeof *s->gains);
    /* divides the rows as on one rank, although this rank has only some of them */
    for (size_t i = 0; i < n; i++) {
        size_t begin = bt_tp_first_row(j->M, (int)(first + i), (int)s->total_leaves) - own.first,
               end = bt_tp_first_row(j->M, (int)(first + i + 1), (int)s->total_leaves) - own.first;
        bt_op_row_dgain(s->gains + i * C, j->dy + begin * C, j->x + begin * C, own_rstd + begin,
                        end - begin, C);
    }
    add_as_tree(s->gains, n, C);
    bt_op_add(j->gain->dw, s->gains, C);
    bt_op_rmsnorm_bwd(j->dx, NULL, j->dy, j->x, j->gain->w, own_rstd, j->add, own.n, C);
}

void bt_tp_leaves_heads_bwd(bt_model *m, const bt_layer *l, bool kv, float *dx, const float *dy,
                            const float *x, size_t M) {
    const bt_model_setup *s = &m->setup;
    const bt_gain *g = kv ? &l->k_norm : &l->q_norm;
    const float *rstd = kv ? l->a.k_rstd : l->a.q_rstd;
    const bt_linear *of = kv ? &l->k : &l->q;
    size_t D = (size_t)s->cfg.D, heads = of->N / D;
    bt_op_rmsnorm_bwd(dx, NULL, dy, x, g->w, rstd, 0, M * heads, D);
    if (!of->contributes_dx || !g->dw) return;
    float *gains = m->tp_state->gains;
    size_t n = of->ranges;
    bt_op_heads_dgain(gains, dy, x, rstd, M, heads, n, D);
    /* the heads of a leaf one after another, then the leaves */
    if (kv && bt_leaves_split_kv(&s->cfg, s->slice, s->leaves)) {
        n = m->tp_state->leaves;
        for (size_t i = 0; i < n; i++) {
            size_t first = bt_leaves_first_kv(&s->cfg, s->slice, s->leaves, i),
                   end = bt_leaves_first_kv(&s->cfg, s->slice, s->leaves, i + 1);
            memmove(gains + i * D, gains + first * D, D * sizeof *gains);
            for (size_t h = first + 1; h < end; h++) bt_op_add(gains + i * D, gains + h * D, D);
        }
    }
    add_as_tree(gains, n, D);
    bt_op_add(g->dw, gains, D);
}

void bt_tp_leaves_sum_kv(bt_model *m, float *d, size_t M) {
    const bt_linear *k = &m->layers[0].k;
    bt_tp_group *t = m->tp_state->group;
    size_t n = M * k->N;
    add_as_tree(d, m->kv_runs, n);
    bt_tp_sum_shared_kv(m, d, M, k->N, (size_t)m->setup.cfg.D);
    if (k->tensor->copies > 1) t->all_reduce(t, d, n, k->tensor->copies);
}
