/* tp_dora.c - weight-decomposed adapters (dora.c) of layers whose inputs are divided over a tensor-parallel group or
 * into leaves. Their factors belong to the sum over the ranks, so they are applied after the exchange. The gradient of
 * the magnitudes needs that sum again: with leaves it is computed and exchanged once more; without, each rank adds
 * the gradient of its own part, and the parts are added once a step (bt_tp_complete_grad). */
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/tp/tp_state.h"

typedef struct scale_job {
    float *z;
    const float *sum, *scales;
    const bt_linear *l;
} scale_job;

BT_WIDEST static void scale_row(float *z, const float *sum, float scale, size_t n) {
    for (size_t i = 0; i < n; i++) z[i] = sum[i] * scale;
}

BT_WIDEST static void scale_row_columns(float *z, const float *sum, float scale,
                                        const float *columns, size_t n) {
    for (size_t i = 0; i < n; i++) z[i] = sum[i] * scale * columns[i];
}

static void scale_rows(void *ctx, int thread, size_t from, size_t to) {
    const scale_job *j = ctx;
    const size_t N = j->l->N;
    (void)thread;
    for (size_t r = from; r < to; r++)
        if (j->l->scales)
            scale_row_columns(j->z + r * N, j->sum + r * N, j->scales[r], j->l->scales, N);
        else
            scale_row(j->z + r * N, j->sum + r * N, j->scales[r], N);
}

/* Computes z (n, N), the base's output of rows first .. first+n, from the sum over the ranks; z may be sum. */
static void base_output(const bt_linear *l, float *z, const bt_linear_input *in, const float *sum,
                        size_t first, size_t n) {
    float *scales = l->adapter.tp->a;
    if (!l->tern) {
        bt_net_copy(z, sum, n * l->N);
        return;
    }
    for (size_t r = 0; r < n; r++) scales[r] = in->dq[first + r] * l->scale;
    scale_job j = {z, sum, scales, l};
    bt_parallel_for(n, 1 + 16384 / l->N, scale_rows, &j);
}

void bt_tp_dora_add(bt_model *m, float *y, const bt_linear *l, const bt_linear_input *in,
                    const float *sum, size_t M) {
    const bt_rows own = bt_tp_own_rows(m, M);
    const bt_adapter *a = &l->adapter;
    for (size_t at = 0, n; at < own.n; at += n) {
        n = bt_min_size(a->chunk, own.n - at);
        base_output(l, a->y, in, sum + at * l->N, own.first + at, n);
        bt_adapter_add(l, a->y, m->tp_state->adapter_rows + (own.first + at) * a->rank, n);
        bt_op_add_columns(y + at * l->N, a->y, NULL, a->factors, n, l->N);
    }
}

void bt_tp_dora_whole(const bt_linear *l, float *z, const bt_linear_input *in, const float *src,
                      size_t r0, size_t n) {
    const bt_adapter *a = &l->adapter;
    bt_model *m = (bt_model *)(uintptr_t)a->model;
    bt_tp_group *t = m->tp_state->group;
    if (l->tern && t->size == 1) { /* with the same bits */
        a->plain->fwd(l, z, in, src, r0, n, 0);
        return;
    }
    bt_tp_slice_product(m, z, l, in, src, r0, n);
    t->all_reduce(t, z, n * l->N, t->size);
    base_output(l, z, in, z, r0, n);
    bt_tp_adapter_rows(m, l, in, src, r0, n);
    t->all_reduce(t, m->tp_state->adapter_rows + r0 * a->rank, n * a->rank, t->size);
    bt_adapter_add(l, z, m->tp_state->adapter_rows + r0 * a->rank, n);
}
