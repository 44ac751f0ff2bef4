/* tp_vocab.c - embedding, head and loss with a range of the vocabulary on each rank of a group. */
#include <assert.h>
#include <math.h>

#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

void bt_tp_embed(bt_model *m, const int32_t *inputs, size_t M) {
    bt_acts *a = &m->layers[0].a;
    size_t C = (size_t)m->setup.cfg.C;
    bt_op_embed(a->dxn, m->embed, inputs, m->tp_state->vocab0, (size_t)m->setup.cfg.V, M, C);
    bt_net_copy(a->x, bt_tp_reduce_grad(m, a->dxn, M), bt_tp_own_rows(m, M).n * C);
}

void bt_tp_embed_bwd(bt_model *m, const int32_t *inputs, size_t M) {
    bt_acts *a = &m->layers[0].a;
    size_t C = (size_t)m->setup.cfg.C;
    if (!m->d_embed) { /* frozen, on all ranks: nothing else keeps the next pass off the group's memory */
        bt_tp_synchronise(m);
        return;
    }
    bt_op_embed_bwd(m->d_embed, bt_tp_gather_grad(m, a->dx, M), inputs, m->tp_state->vocab0,
                    (size_t)m->setup.cfg.V, M, C);
}

/* Joins the largest logits and the sums of exponentials of a row from n ranks, beginning with rank `first`. */
static bt_row_stat join_logit_stats(const bt_row_stat *of, size_t rows, int first, int n) {
    if (n == 1) return of[(size_t)first * rows];
    int left = bt_tp_left(n);
    return bt_row_lse_join(join_logit_stats(of, rows, first, left),
                           join_logit_stats(of, rows, first + left, n - left));
}

/* Exchanges the largest logit of each part, its sum of exponentials and, if it is in the part, the target's logit. Sets
 * the losses of the rows and the inputs of their gradients, the same on all ranks: a = largest logit, b = gradient
 * scale / sum, index = the targets in this part. */
static void exchange_losses(bt_model *m, const int32_t *targets, float dscale, float *row_loss,
                            size_t rows) {
    const bt_tp_state *p = m->tp_state;
    bt_tp_group *t = p->group;
    size_t V = (size_t)m->setup.cfg.V;
    for (size_t r = 0; r < rows; r++) {
        size_t at = (size_t)(int64_t)targets[r] - p->vocab0;
        p->index[r] = targets[r] >= 0 && at < V ? (int32_t)at : -1;
    }
    bt_op_row_lse(p->mine, m->logits, p->index, rows, V, p->vocab_at, p->leaves);
    t->all_gather(t, p->mine, p->all, rows * sizeof *p->mine);
    for (size_t r = 0; r < rows; r++) {
        bt_row_stat row = join_logit_stats(p->all + r, rows, 0, t->size);
        p->a[r] = row.a;
        const double lse = log(row.sum) + (double)row.a;
        p->b[r] = targets[r] < 0 ? 0.0f : (float)((double)dscale / row.sum);
        row_loss[r] = targets[r] < 0 ? 0.0f : (float)(lse - (double)row.b);
    }
}

/* Replaces the logits of `rows` rows by their gradients; with int8 gradients without the targets' own terms. */
static void part_gradients(bt_model *m, const int32_t *targets, float dscale, size_t r0,
                           size_t rows) {
    const bt_tp_state *p = m->tp_state;
    const size_t V = (size_t)m->setup.cfg.V;
    const bt_followers *followers = m->head_form.followers;
    const float at_target = m->head8.w.packed || followers ? 0 : dscale;
    if (m->head_form.cap > 0)
        bt_op_row_softmax_capped(&(bt_capped_rows){.logits = m->logits,
                                                   .ld = V,
                                                   .top = p->a,
                                                   .k = p->b,
                                                   .targets = p->index,
                                                   .dscale = at_target,
                                                   .cap = m->head_form.cap,
                                                   .slopes = m->head_form.slopes,
                                                   .rows = rows,
                                                   .V = V});
    else
        bt_op_row_softmax(m->logits, p->a, p->b, p->index, at_target, rows, V);
    if (followers)
        bt_op_head_follower_targets(&(bt_head_follower_targets){.logits = m->logits,
                                                                .followers = followers,
                                                                .inputs = m->head_form.inputs + r0,
                                                                .targets = targets,
                                                                .dscale = dscale,
                                                                .weight = m->head_form.weight,
                                                                .first = p->vocab0,
                                                                .rows = rows,
                                                                .V = V,
                                                                .ld = V});
}

bt_vocab_part bt_tp_vocab(const bt_model *m) {
    const bt_tp_state *p = m->tp_state;
    return (bt_vocab_part){p->vocab0, p->leaves, p->vocab_at, p->group};
}

void bt_tp_gather_final(bt_model *m, size_t M) {
    if (m->tp_state->sequence) bt_tp_gather_residual(m, m->layers[0].a.xn, M);
}

void bt_tp_head_dx(bt_model *m, size_t r0, size_t rows, size_t ld) {
    const size_t C = (size_t)m->setup.cfg.C;
    bt_tp_depth_product(m, m->layers[0].a.dxn + r0 * C,
                        &(bt_depth_product){.a = m->logits,
                                            .b = m->head,
                                            .lda = ld,
                                            .ldb = C,
                                            .M = rows,
                                            .N = C,
                                            .K = (size_t)m->setup.cfg.V,
                                            .prec = m->setup.prec,
                                            .vocab = true});
}

double bt_tp_head_loss(bt_model *m, const int32_t *targets, float dscale, size_t M) {
    bt_acts *a = &m->layers[0].a;
    size_t V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C;
    bool grad = dscale != 0.0f;
    bt_prec prec = m->setup.prec;
    bt_tp_gather_final(m, M);
    double loss = 0;
    bt_head8 h = m->head8;
    if (grad && h.w.packed) bt_tp_pack_head(m);
    for (size_t r0 = 0; r0 < M; r0 += m->logits_rows, h.noise.rows += m->logits_rows) {
        size_t rows = M - r0 < m->logits_rows ? M - r0 : m->logits_rows;
        const float *x = a->xn + r0 * C;
        bt_op_gemm_table(m->logits, V, x, C, m->head, C, 1, rows, V, C, prec, 0);
        if (m->head_form.cap > 0) bt_op_soft_cap(m->logits, V, m->head_form.cap, rows, V);
        exchange_losses(m, targets + r0, dscale, m->row_loss + r0, rows);
        if (!grad) continue;
        part_gradients(m, targets + r0, dscale, r0, rows);
        if (h.w.packed) {
            const int32_t *index = m->tp_state->index;
            const float at_target = m->head_form.followers ? 0 : dscale;
            const float *slopes = m->head_form.cap > 0 ? m->head_form.slopes : NULL;
            bt_tp_depth_product(m, a->dxn + r0 * C,
                                &(bt_depth_product){.a = m->logits,
                                                    .b = m->head,
                                                    .lda = V,
                                                    .M = rows,
                                                    .N = C,
                                                    .K = V,
                                                    .vocab = true,
                                                    .int8 = &h,
                                                    .index = index,
                                                    .dscale = at_target,
                                                    .slopes = slopes});
            if (!m->d_head) continue; /* frozen */
            bt_op_head_dE8(m->d_head, m->logits, V, x, &h, rows, V, C);
            bt_op_head_targets(&(bt_head_targets){.dE = m->d_head,
                                                  .x = x,
                                                  .index = index,
                                                  .to = V,
                                                  .dscale = at_target,
                                                  .slopes = slopes,
                                                  .rows = rows,
                                                  .C = C});
            continue;
        }
        bt_tp_head_dx(m, r0, rows, V);
        if (m->d_head)
            bt_op_gemm(m->d_head, C, m->logits, V, 1, x, C, 0, 1.0f, V, C, rows, prec, BT_ACC);
    }
    for (size_t r = 0; r < M; r++) loss += (double)m->row_loss[r];
    return loss;
}

/* Chooses the best of the parts of all ranks; of equal logits the smaller token, as on one rank. */
int32_t bt_tp_draw(bt_model *m, const bt_draw *how, size_t M) {
    const bt_tp_state *p = m->tp_state;
    size_t V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C;
    float *xn = m->layers[0].a.xn;
    bt_drawn *all = (bt_drawn *)(void *)p->all, mine; /* one of each rank */
    static_assert(sizeof *all <= sizeof *p->all,
                  "a draw takes no more room than a row's statistics");
    bt_tp_gather_final(m, M);
    bt_op_gemm_table(m->logits, V, xn + (M - 1) * C, C, m->head, C, 1, 1, V, C, m->setup.prec, 0);
    if (m->head_form.cap > 0) bt_op_soft_cap(m->logits, V, m->head_form.cap, 1, V);
    mine = bt_net_draw(m->logits, V, (int64_t)p->vocab0, how);
    p->group->all_gather(p->group, &mine, all, sizeof mine);
    for (int i = 0; i < p->group->size; i++) {
        if (i == 0 || all[i].score > mine.score) mine = all[i];
    }
    return (int32_t)mine.token;
}
