/* one_rank.c - the operations of a whole model on one rank, which has every row and every column. */
#include <string.h>

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* Sizes of blocks for int8 products, so that dx of a block fits the L2 cache: a thread computes all terms of a block
 * before the next one. Other products unpack the weights in every call, so they have no blocks. */
enum { DX_BYTES = 7 << 16, DX_ROWS_LEAST = 64 };

static bt_rows own_rows(const bt_model *m, size_t M) {
    (void)m;
    return (bt_rows){0, M};
}

static void gather_input(bt_model *m, const bt_linear_input *in, size_t M) {
    (void)m, (void)in, (void)M;
}

static const float *gather_grad(bt_model *m, const float *own, size_t M) {
    (void)m, (void)M;
    return own;
}

static float *reduce_grad(bt_model *m, float *x, size_t M) {
    (void)m, (void)M;
    return x;
}

static void one_rank_add_product(bt_model *m, float *y, const bt_linear *l,
                                 const bt_linear_input *in, const float *src, size_t r0,
                                 size_t rows) {
    (void)m;
    l->ops->fwd(l, y + r0 * l->N, in, src, r0, rows, BT_ACC);
}

static void finish_product(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                           size_t M) {
    (void)m, (void)y, (void)l, (void)in, (void)M;
}

size_t bt_one_rank_dx_rows(const bt_model *m) {
    size_t row_bytes = (size_t)m->setup.cfg.C * sizeof(float);
    return row_bytes > DX_BYTES / DX_ROWS_LEAST ? DX_ROWS_LEAST : DX_BYTES / row_bytes / 32 * 32;
}

void bt_one_rank_dx(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows) {
    size_t C = (size_t)m->setup.cfg.C,
           block = m->noise_rows && bt_net_ternary(m)
                       ? bt_one_rank_dx_rows(m) * (size_t)bt_threads_count()
                       : rows;
    for (size_t at = 0; at < rows; at += block) {
        size_t some = rows - at < block ? rows - at : block;
        for (size_t i = 0; i < n; i++) {
            const bt_linear *l = terms[i].l;
            l->ops->dx(l, 0, m->layers[0].a.dxn + (r0 + at) * C, bt_grads_from(terms[i].dy, at, 0),
                       r0 + at, some, i > 0 ? BT_ACC : 0);
        }
    }
}

static void one_rank_norm_bwd(bt_model *m, const bt_norm_bwd *j) {
    if (!j->x) {
        bt_op_rmsnorm_bwd_saved(&(bt_rmsnorm_bwd_saved){.dx = j->dx,
                                                        .dgain = j->gain->dw,
                                                        .sums = j->sums,
                                                        .dy = j->dy,
                                                        .gain = j->gain->w,
                                                        .rstd = j->rstd,
                                                        .x = j->saved,
                                                        .acc = j->add,
                                                        .rows = j->M,
                                                        .C = (size_t)m->setup.cfg.C});
        return;
    }
    bt_op_rmsnorm_bwd(j->dx, j->gain->dw, j->dy, j->x, j->gain->w, j->rstd, j->add, j->M,
                      (size_t)m->setup.cfg.C);
}

void bt_one_rank_heads_bwd(bt_model *m, const bt_layer *l, bool kv, float *dx, const float *dy,
                           const float *x, size_t M) {
    const bt_gain *g = kv ? &l->k_norm : &l->q_norm;
    size_t D = (size_t)m->setup.cfg.D, heads = (kv ? l->k.N : l->q.N) / D;
    bt_op_rmsnorm_bwd(dx, g->dw, dy, x, g->w, kv ? l->a.k_rstd : l->a.q_rstd, 0, M * heads, D);
}

void bt_one_rank_sum_kv(bt_model *m, float *d, size_t M) { (void)m, (void)d, (void)M; }

static void one_rank_embed(bt_model *m, const int32_t *inputs, size_t M) {
    bt_op_embed(m->layers[0].a.x, m->embed, inputs, 0, (size_t)m->setup.cfg.V, M,
                (size_t)m->setup.cfg.C);
}

static void embed_bwd(bt_model *m, const int32_t *inputs, size_t M) {
    if (m->d_embed)
        bt_op_embed_bwd(m->d_embed, m->layers[0].a.dx, inputs, 0, (size_t)m->setup.cfg.V, M,
                        (size_t)m->setup.cfg.C);
}

/* If only answers are learned, most tokens have no loss, and the head computes only the rows with a target. A head that
 * trains keeps all rows, because its gradient is a sum over blocks of them. */
typedef struct counted_rows {
    int32_t *rows, *targets;
    size_t n;
} counted_rows;

static bool skips_rows_without_target(const bt_model *m, bool grad) {
    return !grad || (!m->d_head && (!m->head8.w.packed || m->head8.w.rows));
}

static counted_rows select_rows_with_target(bt_model *m, const int32_t *targets, size_t M) {
    const size_t C = (size_t)m->setup.cfg.C;
    float *xn = m->layers[0].a.xn;
    counted_rows c = {m->counted, m->counted + M, 0};
    for (size_t r = 0; r < M; r++) {
        if (targets[r] < 0) continue;
        c.rows[c.n] = (int32_t)r;
        c.targets[c.n] = targets[r];
        if (c.n < r) memcpy(xn + c.n * C, xn + r * C, C * sizeof *xn);
        c.n++;
    }
    return c;
}

/* Moves rows in descending order, so that no row is overwritten before it is moved. */
static void restore_row_order(bt_model *m, const counted_rows *c, float *dx, size_t M) {
    const size_t C = (size_t)m->setup.cfg.C;
    for (size_t r = M, left = c->n; r-- > 0;) {
        const bool here = left > 0 && (size_t)c->rows[left - 1] == r;
        if (here) left--;
        m->row_loss[r] = here ? m->row_loss[left] : 0;
        if (!dx) continue;
        if (!here)
            memset(dx + r * C, 0, C * sizeof *dx);
        else if (left < r)
            memcpy(dx + r * C, dx + left * C, C * sizeof *dx);
    }
}

static double head_loss(bt_model *m, const int32_t *targets, float dscale, size_t M) {
    const bt_acts *a = &m->layers[0].a;
    bool grad = dscale != 0.0f, some = skips_rows_without_target(m, grad);
    const counted_rows c = some ? select_rows_with_target(m, targets, M) : (counted_rows){.n = M};
    double loss = bt_op_head_loss(grad ? a->dxn : NULL, grad ? m->d_head : NULL, a->xn, m->head,
                                  some ? c.targets : targets, dscale, m->logits, m->logits_rows,
                                  m->row_loss, c.n, (size_t)m->setup.cfg.V, (size_t)m->setup.cfg.C,
                                  m->setup.prec, m->head8.w.packed ? &m->head8 : NULL,
                                  &m->head_form);
    if (some) restore_row_order(m, &c, grad ? a->dxn : NULL, M);
    return loss;
}

static bt_vocab_part whole_vocabulary(const bt_model *m) {
    (void)m;
    return (bt_vocab_part){.leaves = 1};
}

static void gather_final(bt_model *m, size_t M) { (void)m, (void)M; }

static void head_dx(bt_model *m, size_t r0, size_t rows, size_t ld) {
    const size_t V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C;
    bt_op_gemm_table(m->layers[0].a.dxn + r0 * C, C, m->logits, ld, m->head, C, 0, rows, C, V,
                     m->setup.prec, 0);
}

static int32_t one_rank_draw(bt_model *m, const bt_draw *how, size_t M) {
    size_t V = (size_t)m->setup.cfg.V, C = (size_t)m->setup.cfg.C;
    bt_op_gemm_table(m->logits, V, m->layers[0].a.xn + (M - 1) * C, C, m->head, C, 1, 1, V, C,
                     m->setup.prec, 0);
    if (m->head_form.cap > 0) bt_op_soft_cap(m->logits, V, m->head_form.cap, 1, V);
    return (int32_t)bt_net_draw(m->logits, V, 0, how).token;
}

static void complete_grad(const bt_model *m, const bt_tensor *t) { (void)m, (void)t; }
static void total_sums(const bt_model *m, double (*totals)[2]) { (void)m, (void)totals; }
static void no_barrier(const bt_model *m) { (void)m; }

const bt_tp_ops bt_tp_one_rank = {.own_rows = own_rows,
                                  .gather_input = gather_input,
                                  .gather_grad = gather_grad,
                                  .reduce_grad = reduce_grad,
                                  .add_product = one_rank_add_product,
                                  .finish_product = finish_product,
                                  .dx = bt_one_rank_dx,
                                  .norm_bwd = one_rank_norm_bwd,
                                  .heads_bwd = bt_one_rank_heads_bwd,
                                  .sum_kv = bt_one_rank_sum_kv,
                                  .embed = one_rank_embed,
                                  .embed_bwd = embed_bwd,
                                  .head_loss = head_loss,
                                  .vocab = whole_vocabulary,
                                  .gather_final = gather_final,
                                  .head_dx = head_dx,
                                  .draw = one_rank_draw,
                                  .complete_grad = complete_grad,
                                  .total_sums = total_sums,
                                  .meet = no_barrier};
