/* tp_leaves.c - sums that tensor parallelism divides, as a tree over equal parts of the whole model
 * (reproducible training).
 *
 *     leaves     0   1   2   3   4   5   6   7        one rank adds all of it; of two each adds its
 *              half and a tensor-parallel group's sum makes the
 *              0+1     2+3     4+5     6+7          last step; of eight the tensor-parallel group makes all steps
 *              (0+1)+(2+3)     (4+5)+(6+7)
 *              all
 *
 *     leaves     0   1   2   3   4   5                any number: the tree of a tensor-parallel group
 *              (base/tp_group.h). Ranks that hold 1, 2, 4, ... leaves
 *              0+1     2+3     4+5                  hold whole branches: here one rank, three, six
 *              (0+1)+(2+3)
 *              all
 *
 * The leaf of a product over q, k, v is its heads', over gate and up its columns', of the head its
 * tokens', of a norm's gain a run of the micro-batch's rows. Where several leaves share a kv head, dk
 * and dv are added first, and the first of these leaves has all of the head's k and v. Without leaves
 * (none, or a rank that holds one) everything here is what it would be anyway. */
#include <assert.h>
#include <string.h>

#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* Int8 products only (the others unpack weights per call): a thread takes a block of rows through
 * all terms before the next. Of a tree's terms so many rows stay in L2; without a tree it is dx
 * alone, in bytes. */
enum { CUT_ROWS = 64, DX_BYTES = 7 << 16 };

/* rows r0.., the at-th of dy */
typedef struct dx_job {
    bt_model *m;
    const bt_dx_term *terms;
    size_t n, at, r0, rows;
} dx_job;

static size_t query_heads_of_leaf(const bt_model_setup *s) {
    return (size_t)s->cfg.H / bt_slice_leaves(s->slice, s->leaves);
}
static size_t group_of(const bt_model_cfg *c) {
    return (size_t)(c->group ? c->group : c->H / c->KV);
}

bool bt_net_kv_uneven(const bt_model_setup *s) {
    size_t each = query_heads_of_leaf(s), group = group_of(&s->cfg);
    return s->leaves > 1 && each % group && group % each;
}

/* the kv head whose queries begin in this leaf or a later one: leaves that begin inside a kv head
 * leave it to the one before */
static size_t first_kv(const bt_model_setup *s, size_t leaf) {
    size_t group = group_of(&s->cfg);
    return ((size_t)s->cfg.skip + leaf * query_heads_of_leaf(s) + group - 1) / group;
}

typedef struct part_run {
    size_t begin, end;
} part_run;

/* the layer's parts that a leaf adds */
static part_run parts_in(const bt_model *m, const bt_linear *l, size_t leaf, size_t leaves) {
    if (l->tensor->shard == BT_SHARD_KVROW && bt_net_kv_uneven(&m->setup))
        return (part_run){first_kv(&m->setup, leaf), first_kv(&m->setup, leaf + 1)};
    size_t each = leaves / l->leaves;
    return leaf % each || !l->contributes_dx ? (part_run){0, 0}
                                             : (part_run){leaf / each, leaf / each + 1};
}

/* out := the terms' products over one leaf */
static void dx_leaf(const dx_job *j, size_t leaf, size_t leaves, float *out) {
    int flags = 0;
    for (size_t i = 0; i < j->n; i++) {
        const bt_linear *l = j->terms[i].l;
        part_run run = parts_in(j->m, l, leaf, leaves);
        for (size_t part = run.begin; part < run.end; part++) {
            bt_linear_dx(l, part, out, j->terms[i].dy + j->at * l->N, j->r0, j->rows,
                         j->m->setup.prec, flags);
            flags = BT_ACC;
        }
    }
}

static size_t left_of(size_t leaves) { return (size_t)bt_tp_left((int)leaves); }

static void dx_tree(const dx_job *j, size_t first, size_t n, size_t leaves, float *out,
                    float *spare) {
    size_t elems = j->rows * (size_t)j->m->setup.cfg.C;
    if (n == 1) {
        dx_leaf(j, first, leaves, out);
        return;
    }
    size_t left = left_of(n);
    dx_tree(j, first, left, leaves, out, spare);
    dx_tree(j, first + left, n - left, leaves, spare, spare + elems);
    bt_op_add(out, spare, elems);
}

static size_t cuts_of(const bt_model *m) { return m->tp ? m->tp->leaves : 1; }

void bt_net_dx(bt_model *m, const bt_dx_term *terms, size_t n, size_t r0, size_t rows) {
    size_t leaves = cuts_of(m), C = (size_t)m->setup.cfg.C,
           most = leaves > 1 || C * sizeof(float) > DX_BYTES / CUT_ROWS
                      ? CUT_ROWS
                      : DX_BYTES / (C * sizeof(float)) / 32 * 32;
    size_t block = m->noise_rows ? most * (size_t)bt_threads_count() : rows;
    for (size_t at = 0; at < rows; at += block) {
        dx_job j = {m, terms, n, at, r0 + at, rows - at < block ? rows - at : block};
        dx_tree(&j, 0, leaves, leaves, m->layers[0].a.dxn + (r0 + at) * C,
                m->tp ? m->tp->spare : NULL);
    }
}

/* ---- dense products whose depth is divided ------------------------------------------------------- */

typedef struct depth_job {
    const bt_depth_product *p;
    const bt_tp_state *s;
    size_t leaves;
} depth_job;

static size_t depth_at(const depth_job *j, size_t leaf) {
    if (j->leaves == 1) return leaf * j->p->K;
    return j->p->vocab ? j->s->vocab_at[leaf] : leaf * (j->p->K / j->leaves);
}

/* the head's words of a leaf as int8: leaves lie one after another */
static bt_w8 words_of(const depth_job *j, size_t leaf) {
    const bt_head8 *h = j->p->int8;
    size_t before = 0;
    for (size_t i = 0; i < leaf; i++)
        before += bt_op_w8_bytes(depth_at(j, i + 1) - depth_at(j, i), j->p->N);
    return (bt_w8){(char *)h->w.packed + before, h->w.scale + depth_at(j, leaf)};
}

static void depth_int8(const depth_job *j, size_t leaf, float *out) {
    const bt_depth_product *p = j->p;
    size_t k = depth_at(j, leaf), end = depth_at(j, leaf + 1);
    bt_noise noise = p->int8->noise;
    noise.first += (uint32_t)k;
    bt_w8 w = words_of(j, leaf);
    bt_op_w8_dx8(out, p->N, p->a + k, p->lda, &w, p->M, end - k, p->N, &noise);
    bt_op_head_targets(&(bt_head_targets){.dx = out,
                                          .E = p->b,
                                          .index = p->index,
                                          .from = k,
                                          .to = end,
                                          .dscale = p->dscale,
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
        bt_op_gemm(out, p->N, p->a + k, p->lda, 0, p->b + (p->tb ? k : k * p->ldb), p->ldb, p->tb,
                   1.0f, p->M, p->N, depth_at(j, first + 1) - k, p->prec, 0);
        return;
    }
    size_t left = left_of(n);
    depth_tree(j, first, left, out, spare);
    depth_tree(j, first + left, n - left, spare, spare + elems);
    bt_op_add(out, spare, elems);
}

void bt_net_depth(bt_model *m, float *out, const bt_depth_product *p) {
    depth_job j = {p, m->tp, cuts_of(m)};
    depth_tree(&j, 0, j.leaves, out, m->tp ? m->tp->spare : NULL);
}

void bt_net_pack_words(bt_model *m) {
    size_t C = (size_t)m->setup.cfg.C;
    bt_depth_product p = {.K = (size_t)m->setup.cfg.V, .N = C, .vocab = true, .int8 = &m->head8};
    depth_job j = {&p, m->tp, cuts_of(m)};
    for (size_t leaf = 0; leaf < j.leaves; leaf++) {
        bt_w8 w = words_of(&j, leaf);
        bt_op_w8_pack(&w, m->head + depth_at(&j, leaf) * C,
                      depth_at(&j, leaf + 1) - depth_at(&j, leaf), C);
    }
}

/* ---- gains ----------------------------------------------------------------------------------- */

/* n sums of C elements on end: the first becomes all of them, as a tree */
static void add_up(float *x, size_t n, size_t C) {
    for (size_t step = 1; step < n; step *= 2) {
        for (size_t i = 0; i + step < n; i += 2 * step) bt_op_add(x + i * C, x + (i + step) * C, C);
    }
}

void bt_net_norm_bwd(bt_model *m, const bt_gain *g, float *dx, const float *dy, const float *x,
                     const float *rstd, int acc, size_t M) {
    bt_rows own = bt_net_own(m, M);
    size_t C = (size_t)m->setup.cfg.C;
    const float *own_rstd = rstd + own.first;
    if (!m->tp || m->tp->total_leaves == 1 || !g->dw) {
        bt_op_rmsnorm_bwd(dx, g->dw, dy, x, g->w, own_rstd, acc, own.n, C);
        return;
    }
    const bt_tp_state *s = m->tp;
    size_t n = s->sequence ? s->leaves : s->total_leaves, first = s->sequence ? s->first_leaf : 0;
    memset(s->gains, 0, n * C * sizeof *s->gains);
    /* rows as one rank would divide them, whichever of them are here */
    for (size_t i = 0; i < n; i++) {
        size_t begin = bt_tp_first_row(M, (int)(first + i), (int)s->total_leaves) - own.first,
               end = bt_tp_first_row(M, (int)(first + i + 1), (int)s->total_leaves) - own.first;
        bt_op_row_dgain(s->gains + i * C, dy + begin * C, x + begin * C, own_rstd + begin,
                        end - begin, C);
    }
    add_up(s->gains, n, C);
    bt_op_add(g->dw, s->gains, C);
    bt_op_rmsnorm_bwd(dx, NULL, dy, x, g->w, own_rstd, acc, own.n, C);
}

void bt_net_heads_bwd(bt_model *m, const bt_layer *l, bool kv, float *dx, const float *dy,
                      const float *x, size_t M) {
    const bt_gain *g = kv ? &l->k_norm : &l->q_norm;
    const float *rstd = kv ? l->a.k_rstd : l->a.q_rstd;
    const bt_linear *of = kv ? &l->k : &l->q;
    size_t D = (size_t)m->setup.cfg.D, heads = of->N / D;
    bool divided = m->tp && m->tp->total_leaves > 1;
    bt_op_rmsnorm_bwd(dx, divided ? NULL : g->dw, dy, x, g->w, rstd, 0, M * heads, D);
    if (!divided || !of->contributes_dx) return;
    float *gains = m->tp->gains;
    size_t n = of->leaves;
    bt_op_heads_dgain(gains, dy, x, rstd, M, heads, n, D);
    /* a leaf's heads one after another, then the leaves */
    if (kv && bt_net_kv_uneven(&m->setup)) {
        n = m->tp->leaves;
        for (size_t i = 0; i < n; i++) {
            size_t first = first_kv(&m->setup, i), end = first_kv(&m->setup, i + 1);
            memmove(gains + i * D, gains + first * D, D * sizeof *gains);
            for (size_t h = first + 1; h < end; h++) bt_op_add(gains + i * D, gains + h * D, D);
        }
    }
    add_up(gains, n, D);
    bt_op_add(g->dw, gains, D);
}

/* ---- kv heads that leaves share ---------------------------------------------------------------- */

size_t bt_net_kv_runs(const bt_model_setup *s) {
    size_t leaves = bt_slice_leaves(s->slice, s->leaves), kv = (size_t)s->cfg.KV;
    if (bt_net_kv_uneven(s)) return leaves > 1 ? 2 : 1;
    return kv < leaves ? leaves / kv : 1;
}

void bt_net_kv_sum(bt_model *m, float *d, size_t M) {
    const bt_linear *k = &m->layers[0].k;
    size_t n = M * k->N;
    add_up(d, bt_net_kv_runs(&m->setup), n);
    if (m->setup.leaves <= 1) return;
    bt_tp_join(m, d, M, k->N, (size_t)m->setup.cfg.D);
    if (k->tensor->copies > 1)
        m->tp->tp_group->all_reduce(m->tp->tp_group, d, n, k->tensor->copies);
}
