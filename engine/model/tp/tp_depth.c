/* tp_depth.c - products whose depth is divided into leaves: one product for each leaf, added as a tree. */
#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

typedef struct depth_job {
    const bt_depth_product *p;
    const bt_tp_state *s;
    size_t leaves;
} depth_job;

static size_t depth_at(const depth_job *j, size_t leaf) {
    if (j->leaves == 1) return leaf * j->p->K;
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): there is a leaf at least
    return j->p->vocab ? j->s->vocab_at[leaf] : leaf * (j->p->K / j->leaves);
}

/* Returns the int8 weights of a leaf's part of the head. The leaves follow one another. */
static bt_w8 head_weights_of_leaf(const depth_job *j, size_t leaf) {
    const bt_head8 *h = j->p->int8;
    size_t before = 0;
    for (size_t i = 0; i < leaf; i++)
        before += bt_op_w8_bytes(depth_at(j, i + 1) - depth_at(j, i), j->p->N);
    return (bt_w8){(char *)h->w.packed + before, h->w.scale + depth_at(j, leaf), false};
}

static void depth_int8(const depth_job *j, size_t leaf, float *out) {
    const bt_depth_product *p = j->p;
    size_t k = depth_at(j, leaf), end = depth_at(j, leaf + 1);
    bt_noise noise = p->int8->noise;
    noise.first += (uint32_t)k;
    bt_w8 w = head_weights_of_leaf(j, leaf);
    bt_op_w8_dx8(out, p->N, p->a + k, p->lda, &w, p->M, end - k, p->N, &noise);
    bt_op_head_targets(&(bt_head_targets){.dx = out,
                                          .E = p->b,
                                          .index = p->index,
                                          .from = k,
                                          .to = end,
                                          .dscale = p->dscale,
                                          .slopes = p->slopes,
                                          .rows = p->M,
                                          .C = p->N});
}

static void depth_tree(const depth_job *j, size_t first, size_t n, float *out, float *spare) {
    const bt_depth_product *p = j->p;
    size_t elems = p->M * p->N;
    if (n == 1 && p->int8) {
        depth_int8(j, first, out);
        return;
    }
    if (n == 1) {
        size_t k = depth_at(j, first);
        bt_op_gemm_table(out, p->N, p->a + k, p->lda, bt_table_from(p->b, p->tb ? k : k * p->ldb),
                         p->ldb, p->tb, p->M, p->N, depth_at(j, first + 1) - k, p->prec, 0);
        return;
    }
    size_t left = (size_t)bt_tp_left((int)n);
    depth_tree(j, first, left, out, spare);
    depth_tree(j, first + left, n - left, spare, spare + elems);
    bt_op_add(out, spare, elems);
}

void bt_tp_depth_product(bt_model *m, float *out, const bt_depth_product *p) {
    depth_job j = {p, m->tp_state, m->tp_state->leaves};
    depth_tree(&j, 0, j.leaves, out, m->tp_state->spare);
}

void bt_tp_slice_product(bt_model *m, float *part, const bt_linear *l, const bt_linear_input *in,
                         const float *src, size_t r0, size_t rows) {
    if (l->tern)
        bt_op_tern_fwd(part, l->N, in->xq + r0 * l->K, m->tp_state->ones, l->packed, 1.0f, rows,
                       l->N, l->K, l->packed_2bit ? BT_COMPACT : 0);
    else
        bt_tp_depth_product(m, part,
                            &(bt_depth_product){.a = bt_input_floats(in, src) + r0 * l->K,
                                                .b = l->values,
                                                .lda = l->K,
                                                .ldb = l->K,
                                                .M = rows,
                                                .N = l->N,
                                                .K = l->K,
                                                .tb = 1,
                                                .prec = m->setup.prec});
}

void bt_tp_pack_head(bt_model *m) {
    size_t C = (size_t)m->setup.cfg.C;
    bt_depth_product p = {.K = (size_t)m->setup.cfg.V, .N = C, .vocab = true, .int8 = &m->head8};
    depth_job j = {&p, m->tp_state, m->tp_state->leaves};
    for (size_t leaf = 0; leaf < j.leaves; leaf++) {
        bt_w8 w = head_weights_of_leaf(&j, leaf);
        bt_table words = bt_table_from(m->head, depth_at(&j, leaf) * C);
        bt_op_w8_pack(&w, &words, depth_at(&j, leaf + 1) - depth_at(&j, leaf), C);
    }
}
