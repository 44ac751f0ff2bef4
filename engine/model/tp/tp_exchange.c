/* tp_exchange.c - what a rank does that holds one part of a model: the exchanges of tensor and
 * sequence parallelism.
 *
 *     tokens (rows) of the residual lie with their owners       blocks of columns lie with the parts
 *
 *     x own --norm, int8--> gather --> q k v | gate up  --> o, h columns --{sum x^2, absmax}
 *                            shared--> int8 columns
 *                            1 byte + scale a token                              |
 *     x own <-- * scales <-- reduce <-- whole numbers of the columns' product ---+
 *
 * and backward the same way: dx gathered for o and down, gradients of a normed residual reduced to
 * their owners.
 * Exact: a scale is made of all ranks' |w|; a row's statistics of all its columns, added as a tree
 *        over the ranks. A ternary
 * product's partial sums travel as whole numbers in fp32, exact below 2^24, so their sum has the
 * bits of one rank's product. Without `sequence` every rank owns all rows: what was reduced is
 * gathered at once. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* ---- rows ------------------------------------------------------------------------------------ */

static bt_rows share_of(const bt_tp_group *t, size_t M) {
    size_t first = bt_tp_first_row(M, t->rank, t->size);
    return (bt_rows){first, bt_tp_first_row(M, t->rank + 1, t->size) - first};
}

bt_rows bt_net_own(const bt_model *m, size_t M) {
    return m->tp && m->tp->sequence ? share_of(m->tp->tp_group, M) : (bt_rows){0, M};
}

static void gather_floats(bt_model *m, float *x, size_t M) {
    bt_tp_rows rows = {x, (size_t)m->setup.cfg.C * sizeof(float)};
    m->tp->tp_group->all_gather_rows(m->tp->tp_group, &rows, 1, M);
}

static void gather_site(bt_model *m, const bt_linear_input *s, size_t M) {
    if (!m->tp || !m->tp->sequence) return;
    if (!s->tern) {
        gather_floats(m, s->xn, M);
        return;
    }
    bt_tp_rows rows[] = {{s->xq, s->K}, {s->dq, sizeof(float)}};
    m->tp->tp_group->all_gather_rows(m->tp->tp_group, rows, 2, M);
}

void bt_net_site(bt_model *m, const bt_linear_input *s, const float *x, size_t M) {
    bt_rows own = bt_net_own(m, M);
    bt_input_fwd(s, x, own.first, own.n);
    gather_site(m, s, M);
}

void bt_net_restore(bt_model *m, const bt_linear_input *s, const float *x, size_t M) {
    bt_rows own = bt_net_own(m, M);
    bt_input_restore(s, x, own.first, own.n);
    if (!s->tern) gather_site(m, s, M);
}

const float *bt_net_all(bt_model *m, const float *own_rows, size_t M) {
    if (!m->tp || !m->tp->sequence) return own_rows;
    bt_rows own = bt_net_own(m, M);
    size_t C = (size_t)m->setup.cfg.C;
    float *all = m->tp->tp_group->common;
    bt_net_copy(all + own.first * C, own_rows, own.n * C);
    gather_floats(m, all, M);
    return all;
}

float *bt_net_own_sum(bt_model *m, float *x, size_t M) {
    if (!m->tp) return x;
    assert(x == m->tp->tp_group->partial);
    m->tp->tp_group->reduce_scatter_rows(m->tp->tp_group, M, (size_t)m->setup.cfg.C);
    if (!m->tp->sequence) gather_floats(m, x, M);
    return x + bt_net_own(m, M).first * (size_t)m->setup.cfg.C;
}

/* ---- row-parallel products ------------------------------------------------------------------- */

void bt_net_out_part(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *s,
                     const float *src, size_t r0, size_t rows) {
    if (!m->tp) {
        bt_linear_fwd(l, y + r0 * l->N, s, src, r0, rows, m->setup.prec, BT_ACC);
        return;
    }
    float *part = m->layers[0].a.dxn + r0 * l->N;
    /* the same bits at once */
    if (l->tern && m->tp->tp_group->size == 1)
        bt_linear_fwd(l, y + r0 * l->N, s, src, r0, rows, m->setup.prec, BT_ACC);
    else if (l->tern)
        bt_op_tern_fwd(part, l->N, s->xq + r0 * l->K, m->tp->ones, l->packed, 1.0f, rows, l->N,
                       l->K, 0);
    else
        bt_net_depth(m, part,
                     &(bt_depth_product){.a = bt_input_floats(s, src) + r0 * l->K,
                                         .b = l->w,
                                         .lda = l->K,
                                         .ldb = l->K,
                                         .M = rows,
                                         .N = l->N,
                                         .K = l->K,
                                         .tb = 1,
                                         .prec = m->setup.prec});
}

void bt_net_out_sum(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *s, size_t M) {
    if (!m->tp || (l->tern && m->tp->tp_group->size == 1)) return;
    bt_rows own = bt_net_own(m, M);
    const float *sum = bt_net_own_sum(m, m->layers[0].a.dxn, M);
    if (!l->tern) {
        bt_op_add(y, sum, own.n * l->N);
        return;
    }
    float *scales = m->tp->a;
    for (size_t r = 0; r < own.n; r++) scales[r] = s->dq[own.first + r] * l->scale;
    bt_op_row_axpy(y, sum, scales, own.n, l->N);
}

/* ---- norms and int8 of rows whose columns lie in all parts ----------------------------------- */

/* what n ranks from `first` say of a row, rows apart */
static bt_row_stat whole_row(const bt_row_stat *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    int left = bt_tp_left(n);
    return bt_row_stat_join(whole_row(of, rows, first, left),
                            whole_row(of, rows, first + left, n - left));
}

static double whole_dot(const double *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    int left = bt_tp_left(n);
    return whole_dot(of, rows, first, left) + whole_dot(of, rows, first + left, n - left);
}

void bt_tp_input_fwd(const bt_linear_input *s, const float *x, size_t r0, size_t rows) {
    bt_tp_state *p = s->tp;
    bt_tp_group *t = p->tp_group;
    if (!s->tern && !s->normed) {
        if (s->xn) bt_net_copy(s->xn + r0 * s->K, x, rows * s->K);
        return;
    }
    bt_op_row_stats(p->mine, x, s->gain.w, rows, s->K, p->leaves);
    t->all_gather(t, p->mine, p->all, rows * sizeof *p->mine);
    for (size_t r = 0; r < rows; r++) {
        bt_row_stat row = whole_row(p->all + r, rows, 0, t->size);
        float rstd = 1.0f;
        if (s->normed)
            s->rstd[r0 + r] = rstd =
                (float)(1.0 / sqrt(row.sum / (double)s->whole_K + (double)s->eps));
        if (s->tern) s->dq[r0 + r] = row.a * rstd * row.b;
    }
    bt_op_row_apply(s->tern ? s->xq + r0 * s->K : NULL, s->tern ? s->dq + r0 : NULL,
                    s->tern ? NULL : s->xn + r0 * s->K, x, s->gain.w,
                    s->normed ? s->rstd + r0 : NULL, rows, s->K);
}

void bt_tp_input_bwd(const bt_linear_input *s, float *dx, const float *dy, const float *x,
                     size_t r0, size_t rows) {
    bt_tp_state *p = s->tp;
    bt_tp_group *t = p->tp_group;
    if (s->gain.dw) bt_op_row_dgain(s->gain.dw, dy, x, s->rstd + r0, rows, s->K);
    double *mine = (double *)(void *)p->mine, *all = (double *)(void *)p->all;
    bt_op_row_dot(mine, dy, x, s->gain.w, rows, s->K, p->leaves);
    t->all_gather(t, mine, all, rows * sizeof *mine);
    for (size_t r = 0; r < rows; r++) {
        p->a[r] = (float)(whole_dot(all + r, rows, 0, t->size) / (double)s->whole_K);
    }
    bt_op_row_dx(dx, dy, x, s->gain.w, s->rstd + r0, p->a, rows, s->K);
}

/* ---- vocabulary ------------------------------------------------------------------------------ */

void bt_net_embed(bt_model *m, const int32_t *inputs, size_t M) {
    bt_acts *a = &m->layers[0].a;
    size_t C = (size_t)m->setup.cfg.C;
    if (!m->tp) {
        bt_op_embed(a->x, m->embed, inputs, M, C);
        return;
    }
    bt_op_embed_slice(a->dxn, m->embed, inputs, m->tp->vocab0, (size_t)m->setup.cfg.V, M, C);
    bt_net_copy(a->x, bt_net_own_sum(m, a->dxn, M), bt_net_own(m, M).n * C);
}

void bt_net_embed_bwd(bt_model *m, const int32_t *inputs, size_t M) {
    bt_acts *a = &m->layers[0].a;
    size_t C = (size_t)m->setup.cfg.C;
    if (!m->tp)
        bt_op_embed_bwd(m->d_embed, a->dx, inputs, M, C);
    else
        bt_op_embed_slice_bwd(m->d_embed, bt_net_all(m, a->dx, M), inputs, m->tp->vocab0,
                              (size_t)m->setup.cfg.V, M, C);
}

/* Every part's largest logit, its sum of exp and the target's logit if it is here, in one exchange:
 * the row's loss and what its gradient needs, the same on all ranks. a = largest, b = gradient
 * scale / sum, index = targets of this part */
static bt_row_stat whole_lse(const bt_row_stat *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    int left = bt_tp_left(n);
    return bt_row_lse_join(whole_lse(of, rows, first, left),
                           whole_lse(of, rows, first + left, n - left));
}

static void part_losses(bt_model *m, const int32_t *targets, float dscale, float *row_loss,
                        size_t rows) {
    bt_tp_state *p = m->tp;
    bt_tp_group *t = p->tp_group;
    size_t V = (size_t)m->setup.cfg.V;
    for (size_t r = 0; r < rows; r++) {
        size_t at = (size_t)(int64_t)targets[r] - p->vocab0;
        p->index[r] = targets[r] >= 0 && at < V ? (int32_t)at : -1;
    }
    bt_op_row_lse(p->mine, m->logits, p->index, rows, V, p->vocab_at, p->leaves);
    t->all_gather(t, p->mine, p->all, rows * sizeof *p->mine);
    for (size_t r = 0; r < rows; r++) {
        bt_row_stat row = whole_lse(p->all + r, rows, 0, t->size);
        p->a[r] = row.a;
        p->b[r] = targets[r] < 0 ? 0.0f : (float)((double)dscale / row.sum);
        row_loss[r] = targets[r] < 0 ? 0.0f : (float)(log(row.sum) + (double)row.a - (double)row.b);
    }
}

double bt_net_head_loss(bt_model *m, const int32_t *targets, float dscale, size_t M) {
    bt_acts *a = &m->layers[0].a;
    size_t V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C;
    bool grad = dscale != 0.0f;
    bt_prec prec = m->setup.prec;
    if (!m->tp) {
        return bt_op_head_loss(grad ? a->dxn : NULL, grad ? m->d_head : NULL, a->xn, m->head,
                               targets, dscale, m->logits, m->logits_rows, m->row_loss, M, V, C,
                               prec, m->head8.w.packed ? &m->head8 : NULL);
    }
    if (m->tp->sequence) gather_floats(m, a->xn, M);
    double loss = 0;
    bt_head8 h = m->head8;
    if (grad && h.w.packed) bt_net_pack_words(m);
    for (size_t r0 = 0; r0 < M; r0 += m->logits_rows, h.noise.rows += m->logits_rows) {
        size_t rows = M - r0 < m->logits_rows ? M - r0 : m->logits_rows;
        const float *x = a->xn + r0 * C;
        bt_op_gemm(m->logits, V, x, C, 0, m->head, C, 1, 1.0f, rows, V, C, prec, 0);
        part_losses(m, targets + r0, dscale, m->row_loss + r0, rows);
        if (!grad) continue;
        bt_op_row_softmax(m->logits, m->tp->a, m->tp->b, m->tp->index, h.w.packed ? 0 : dscale,
                          rows, V);
        if (h.w.packed) {
            const int32_t *index = m->tp->index;
            bt_net_depth(m, a->dxn + r0 * C,
                         &(bt_depth_product){.a = m->logits,
                                             .b = m->head,
                                             .lda = V,
                                             .M = rows,
                                             .N = C,
                                             .K = V,
                                             .vocab = true,
                                             .int8 = &h,
                                             .index = index,
                                             .dscale = dscale});
            bt_op_head_dE8(m->d_head, m->logits, V, x, &h, rows, V, C);
            bt_op_head_targets(&(bt_head_targets){.dE = m->d_head,
                                                  .x = x,
                                                  .index = index,
                                                  .to = V,
                                                  .dscale = dscale,
                                                  .rows = rows,
                                                  .C = C});
            continue;
        }
        bt_net_depth(m, a->dxn + r0 * C,
                     &(bt_depth_product){.a = m->logits,
                                         .b = m->head,
                                         .lda = V,
                                         .ldb = C,
                                         .M = rows,
                                         .N = C,
                                         .K = V,
                                         .prec = prec,
                                         .vocab = true});
        bt_op_gemm(m->d_head, C, m->logits, V, 1, x, C, 0, 1.0f, V, C, rows, prec, BT_ACC);
    }
    for (size_t r = 0; r < M; r++) loss += (double)m->row_loss[r];
    return loss;
}

/* ---- gradients and scales -------------------------------------------------------------------- */

/* Norms see a rank's own tokens only, heads' norms its own heads, shared kv heads the queries of
 * one part. */
void bt_tp_grad(const bt_model *m, const bt_tensor *t) {
    bool heads = t->id == BT_P_Q_NORM || t->id == BT_P_K_NORM || t->shard == BT_SHARD_KVROW;
    /* made of the sum of dk or dv: whole already */
    if (m->tp->total_leaves > 1 && t->shard == BT_SHARD_KVROW) return;
    if (t->shard == BT_SHARD_KVROW)
        bt_tp_join(m, m->g + t->offset, 1, 0, (size_t)m->setup.cfg.D * t->cols);
    if (t->copies > 1 && (heads || m->tp->sequence))
        m->tp->tp_group->all_reduce(m->tp->tp_group, m->g + t->offset, t->count, t->copies);
}

void bt_tp_join(const bt_model *m, float *x, size_t rows, size_t ld, size_t width) {
    const bt_tp_state *s = m->tp;
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
    s->tp_group->all_reduce(s->tp_group, s->shared_kv_sums, s->shared_kv * elems,
                            s->tp_group->size);
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < rows; r++)
            memcpy(x + r * ld + head[i] * width,
                   s->shared_kv_sums + (s->first_shared_kv + i) * elems + r * width,
                   width * sizeof *x);
}

void bt_tp_totals(const bt_model *m, double (*totals)[2]) {
    bt_tp_group *t = m->tp->tp_group;
    size_t n = m->params.n;
    double(*all)[2] = totals + n;
    t->all_gather(t, totals, all, n * sizeof *totals);
    for (size_t i = 0; i < n; i++) {
        totals[i][0] = totals[i][1] = 0;
        for (size_t k = 0; k < (size_t)t->size; k++) {
            totals[i][0] += all[k * n + i][0];
            totals[i][1] += all[k * n + i][1];
        }
    }
}
