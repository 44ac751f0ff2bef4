/* tp_exchange.c - the exchanges of tensor and sequence parallelism, of a rank that holds one slice of a model.
 *
 *     each rank owns tokens (rows) of the residual              each rank has a block of columns
 *
 *     x own --norm, int8--> gather --> q k v | gate up  --> o, h columns --{sum x^2, absmax}
 *                            shared--> int8 columns
 *                            1 byte + scale a token                              |
 *     x own <-- * scales <-- reduce <-- whole numbers of the columns' product ---+
 *
 * Backward is analogous: dx is gathered for o and down, gradients of a normed residual are reduced to their
 * owners.
 * Exact: a scale is computed from |w| of all ranks; a row's statistics from all its columns, added as a tree over
 *        the ranks. Partial sums of a ternary product are sent as whole numbers in fp32, exact below 2^24, so
 *        their sum has the bits of one rank's product. Without `sequence` every rank owns all rows: reduced data
 *        are gathered at once. */
#include <assert.h>
#include <string.h>

#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

void bt_tp_gather_residual(bt_model *m, float *x, size_t M) {
    bt_tp_rows rows = {x, (size_t)m->setup.cfg.C * sizeof(float)};
    m->tp_state->group->all_gather_rows(m->tp_state->group, &rows, 1, M);
}

void bt_tp_gather_input(bt_model *m, const bt_linear_input *in, size_t M) {
    if (!m->tp_state->sequence) return;
    if (!in->tern) {
        bt_tp_gather_residual(m, in->xn, M);
        return;
    }
    bt_tp_rows rows[] = {{in->xq, in->K}, {in->dq, sizeof(float)}};
    m->tp_state->group->all_gather_rows(m->tp_state->group, rows, 2, M);
}

const float *bt_tp_gather_grad(bt_model *m, const float *own_rows, size_t M) {
    if (!m->tp_state->sequence) return own_rows;
    bt_rows own = bt_tp_own_rows(m, M);
    size_t C = (size_t)m->setup.cfg.C;
    float *all = m->tp_state->group->common;
    bt_net_copy(all + own.first * C, own_rows, own.n * C);
    bt_tp_gather_residual(m, all, M);
    return all;
}

float *bt_tp_reduce_grad(bt_model *m, float *x, size_t M) {
    assert(x == m->tp_state->group->partial);
    m->tp_state->group->reduce_scatter_rows(m->tp_state->group, M, (size_t)m->setup.cfg.C);
    if (!m->tp_state->sequence) bt_tp_gather_residual(m, x, M);
    return x + bt_tp_own_rows(m, M).first * (size_t)m->setup.cfg.C;
}

/* True if one rank has all of a product: a ternary one, which has the same bits, or one with factors for a masked input
 * (dora.c), which is not divided over ranks. */
static bool on_one_rank(const bt_model *m, const bt_linear *l) {
    return m->tp_state->group->size == 1 &&
           (l->tern || (l->adapter.m && m->lora_drop.rows && l->ops != l->frozen));
}

void bt_tp_add_product(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                       const float *src, size_t r0, size_t rows) {
    float *part = m->layers[0].a.dxn + r0 * l->N;
    if (on_one_rank(m, l)) {
        l->ops->fwd(l, y + r0 * l->N, in, src, r0, rows, BT_ACC);
        return;
    }
    bt_tp_slice_product(m, part, l, in, src, r0, rows);
    bt_tp_adapter_rows(m, l, in, src, r0, rows);
}

void bt_tp_finish_product(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                          size_t M) {
    if (on_one_rank(m, l)) return;
    bt_rows own = bt_tp_own_rows(m, M);
    bt_tp_adapter_sum(m, l, M);
    const float *sum = bt_tp_reduce_grad(m, m->layers[0].a.dxn, M);
    if (l->adapter.m && l->ops != l->frozen) {
        bt_tp_dora_add(m, y, l, in, sum, M);
        return;
    }
    if (l->tern) {
        float *scales = m->tp_state->a;
        for (size_t r = 0; r < own.n; r++) scales[r] = in->dq[own.first + r] * l->scale;
        if (l->scales)
            bt_op_add_columns(y, sum, scales, l->scales, own.n, l->N);
        else
            bt_op_row_axpy(y, sum, scales, own.n, l->N);
    } else {
        bt_op_add(y, sum, own.n * l->N);
    }
    bt_tp_adapter_add(m, y, l, M);
}

void bt_tp_norm_bwd(bt_model *m, const bt_norm_bwd *j) {
    bt_rows own = bt_tp_own_rows(m, j->M);
    bt_op_rmsnorm_bwd(j->dx, j->gain->dw, j->dy, j->x, j->gain->w, j->rstd + own.first, j->add,
                      own.n, (size_t)m->setup.cfg.C);
}

/* The gradient of some tensors is a partial sum on each rank: a norm processes only the rank's own tokens, a norm of
 * heads only its own heads, a shared kv head only the queries of one rank, and the replicated matrix of an adapter only
 * the rank's part of the other matrix. */
void bt_tp_complete_grad(const bt_model *m, const bt_tensor *t) {
    bool heads = t->id == BT_P_Q_NORM || t->id == BT_P_K_NORM || t->shard == BT_SHARD_KVROW ||
                 t->adapter;
    /* It is complete already, because it was computed from the sum of dk or dv, or over an adapter's ranks. */
    if (m->tp_state->total_leaves > 1 && (t->shard == BT_SHARD_KVROW || t->adapter)) return;
    if (t->shard == BT_SHARD_KVROW)
        bt_tp_sum_shared_kv(m, m->g + t->offset, 1, 0, (size_t)m->setup.cfg.D * t->cols);
    if (t->id == BT_P_SCORE) return; /* every rank has all tokens */
    if (t->copies > 1 && (heads || m->tp_state->sequence))
        m->tp_state->group->all_reduce(m->tp_state->group, m->g + t->offset, t->count, t->copies);
}

void bt_tp_sum_shared_kv(const bt_model *m, float *x, size_t rows, size_t ld, size_t width) {
    const bt_tp_state *s = m->tp_state;
    const bt_model_cfg *c = &m->setup.cfg;
    size_t head[2], n = 0, elems = rows * width;
    if (s->shared_kv == 0) return;
    if (c->skip > 0) head[n++] = 0;
    if ((c->skip + c->H) % c->group != 0) head[n++] = (size_t)c->KV - 1;
    memset(s->shared_kv_sums, 0, s->shared_kv * elems * sizeof *x);
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            memcpy(s->shared_kv_sums + (s->first_shared_kv + i) * elems + r * width,
                   x + r * ld + head[i] * width, width * sizeof *x);
    s->group->all_reduce(s->group, s->shared_kv_sums, s->shared_kv * elems, s->group->size);
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            memcpy(x + r * ld + head[i] * width,
                   s->shared_kv_sums + (s->first_shared_kv + i) * elems + r * width,
                   width * sizeof *x);
}

void bt_tp_total_sums(const bt_model *m, double (*totals)[2]) {
    bt_tp_group *t = m->tp_state->group;
    size_t n = m->n_totals;
    double(*all)[2] = m->tp_state->totals;
    t->all_gather(t, totals, all, n * sizeof *totals);
    for (size_t i = 0; i < n; i++) {
        totals[i][0] = totals[i][1] = 0;
        for (size_t k = 0; k < (size_t)t->size; k++) {
            totals[i][0] += all[k * n + i][0];
            totals[i][1] += all[k * n + i][1];
        }
    }
}

void bt_tp_synchronise(const bt_model *m) {
    bt_tp_group *t = m->tp_state->group;
    t->all_gather(t, m->tp_state->mine, m->tp_state->all, sizeof *m->tp_state->mine);
}
