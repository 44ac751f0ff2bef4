/* tp_adapter.c - low-rank adapters beside layers that are divided over a tensor-parallel group.
 *
 *     q k v gate up   outputs are divided: B is divided, every rank has all of A and of u = s x A^T. The sum of
 *     the
 *                     ranks' s dy B is du
 *     o down          inputs are divided: A is divided, every rank has all of B. The sum of the ranks' parts of u
 *                     is an exchange of (M, rank) floats beside the exchange of the base's product
 *
 * So the gradient of the replicated matrix is a sum over the ranks: once a step, when it is complete
 * (bt_tp_complete_grad). With leaves u and du themselves are summed, as a tree over the leaves and then over the
 * ranks, before a gradient is computed from them: then it has the same bits in any slice. */
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

typedef struct leaf_job {
    const bt_linear *l;
    const bt_model_setup *setup;
    const float *from; /* u: x (n, K); du: dy (n, N) */
    size_t n, leaves;
    void (*one)(const struct leaf_job *j, size_t leaf, float *out);
} leaf_job;

static void leaf_tree(const leaf_job *j, size_t first, size_t n, float *out, float *spare) {
    const size_t elems = j->n * j->l->adapter.rank;
    if (n == 1) {
        j->one(j, first, out);
        return;
    }
    const size_t left = (size_t)bt_tp_left((int)n);
    leaf_tree(j, first, left, out, spare);
    leaf_tree(j, first + left, n - left, spare, spare + elems);
    bt_op_add(out, spare, elems);
}

/* Computes scale x A^T of the leaf's inputs. */
static void leaf_u(const leaf_job *j, size_t leaf, float *out) {
    const bt_linear *l = j->l;
    const bt_adapter *a = &l->adapter;
    const size_t K = l->K / j->leaves, at = leaf * K;
    bt_op_gemm(out, a->rank, j->from + at, l->K, 0, a->a + at, l->K, 1, a->scale, j->n, a->rank, K,
               l->prec, 0);
}

/* Computes scale dy B of the leaf's outputs. If leaves share a kv head, one of them processes the whole head. */
static void leaf_du(const leaf_job *j, size_t leaf, float *out) {
    const bt_linear *l = j->l;
    const bt_adapter *a = &l->adapter;
    const size_t N = l->N / l->ranges;
    const bt_tp_ranges run = bt_tp_ranges_in(j->setup, l, leaf, j->leaves);
    if (run.begin == run.end) {
        memset(out, 0, j->n * a->rank * sizeof *out);
        return;
    }
    bt_op_gemm(out, a->rank, j->from + run.begin * N, l->N, 0, a->b + run.begin * N * a->rank,
               a->rank, 0, a->scale, j->n, a->rank, (run.end - run.begin) * N, l->prec, 0);
}

static const bt_model_setup *tp_setup(const bt_linear *l) { return l->adapter.tp->setup; }

static void outputs_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                       size_t r0, size_t rows) {
    const bt_adapter *a = &l->adapter;
    const bt_tp_state *s = a->tp;
    if (!a->rank) return;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        leaf_job j = {l, tp_setup(l), dy.f32 + at * l->N, n, s->leaves, leaf_du};
        leaf_tree(&j, 0, s->leaves, s->adapter_rows + at * a->rank, s->adapter_spare);
    }
    s->group->all_reduce(s->group, s->adapter_rows, rows * a->rank, s->group->size);
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        const float *x = bt_adapter_input(l, in, src, r0 + at, n);
        bt_op_gemm(a->u, a->rank, x, l->K, 0, a->a, l->K, 1, a->scale, n, a->rank, l->K, l->prec,
                   0);
        bt_op_gemm(a->db, a->rank, dy.f32 + at * l->N, l->N, 1, a->u, a->rank, 0, 1, l->N, a->rank,
                   n, l->prec, BT_ACC);
        bt_op_gemm(a->da, l->K, s->adapter_rows + at * a->rank, a->rank, 1, x, l->K, 0, 1, a->rank,
                   l->K, n, l->prec, BT_ACC);
    }
}

void bt_tp_adapter_rows(bt_model *m, const bt_linear *l, const bt_linear_input *in,
                        const float *src, size_t r0, size_t rows) {
    const bt_adapter *a = &l->adapter;
    const bt_tp_state *s = m->tp_state;
    if (!a->rank || l->ops == l->frozen) return;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        leaf_job j = {l, &m->setup, bt_adapter_input(l, in, src, r0 + at, n), n, s->leaves, leaf_u};
        leaf_tree(&j, 0, s->leaves, s->adapter_rows + (r0 + at) * a->rank, s->adapter_spare);
    }
}

void bt_tp_adapter_sum(bt_model *m, const bt_linear *l, size_t M) {
    bt_tp_group *t = m->tp_state->group;
    if (l->adapter.rank && l->ops != l->frozen)
        t->all_reduce(t, m->tp_state->adapter_rows, M * l->adapter.rank, t->size);
}

void bt_tp_adapter_add(bt_model *m, float *y, const bt_linear *l, size_t M) {
    const bt_rows own = bt_tp_own_rows(m, M);
    const bt_adapter *a = &l->adapter;
    if (!a->rank || l->ops == l->frozen) return;
    for (size_t at = 0, n; at < own.n; at += n) {
        n = bt_min_size(a->chunk, own.n - at);
        bt_adapter_add(l, y + at * l->N, m->tp_state->adapter_rows + (own.first + at) * a->rank, n);
    }
}

/* This rank has all inputs, so only the parts of their leaves are added. */
static void inputs_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                       size_t r0, size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    const bt_tp_state *s = a->tp;
    l->frozen->fwd(l, y, in, src, r0, rows, flags);
    for (size_t at = 0, n; a->rank && at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        leaf_job j = {l, tp_setup(l), bt_adapter_input(l, in, src, r0 + at, n),
                      n, s->leaves,   leaf_u};
        leaf_tree(&j, 0, s->leaves, a->u, s->adapter_spare);
        bt_adapter_add(l, y + at * l->N, a->u, n);
    }
}

static void inputs_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                      size_t r0, size_t rows) {
    const bt_adapter *a = &l->adapter;
    const bt_tp_state *s = a->tp;
    if (!a->rank) return;
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        leaf_job j = {l, tp_setup(l), bt_adapter_input(l, in, src, r0 + at, n),
                      n, s->leaves,   leaf_u};
        leaf_tree(&j, 0, s->leaves, s->adapter_rows + at * a->rank, s->adapter_spare);
    }
    s->group->all_reduce(s->group, s->adapter_rows, rows * a->rank, s->group->size);
    for (size_t at = 0, n; at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        const float *d = dy.f32 + at * l->N;
        bt_op_gemm(a->db, a->rank, d, l->N, 1, s->adapter_rows + at * a->rank, a->rank, 0, 1, l->N,
                   a->rank, n, l->prec, BT_ACC);
        bt_op_gemm(a->du, a->rank, d, l->N, 0, a->b, a->rank, 0, a->scale, n, a->rank, l->N,
                   l->prec, 0);
        bt_op_gemm(a->da, l->K, a->du, a->rank, 1, bt_adapter_input(l, in, src, r0 + at, n), l->K,
                   0, 1, a->rank, l->K, n, l->prec, BT_ACC);
    }
}

static void adapter_dx(const bt_linear *l, size_t range, float *dx, bt_grads dy, size_t r0,
                       size_t rows, int flags) {
    bt_adapter_ops.dx(l, range, dx, dy, r0, rows, flags);
}

static void adapter_fwd(const bt_linear *l, float *y, const bt_linear_input *in, const float *src,
                        size_t r0, size_t rows, int flags) {
    bt_adapter_ops.fwd(l, y, in, src, r0, rows, flags);
}

static const bt_linear_ops outputs_apart = {adapter_fwd, adapter_dx, outputs_dw},
                           inputs_apart = {inputs_fwd, adapter_dx, inputs_dw};

void bt_tp_wire_adapter(bt_model *m, bt_linear *l) {
    l->adapter.tp = m->tp_state;
    if (m->setup.leaves <= 1)
        return; /* Each rank keeps its part of each sum; bt_adapter_ops do that. */
    l->ops = l->adapted = l->tensor->shard == BT_SHARD_COL ? &inputs_apart : &outputs_apart;
}
