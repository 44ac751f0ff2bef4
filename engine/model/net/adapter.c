/* adapter.c - linear layers with frozen weights: no gradient for them, and for some a low-rank adapter, u = scale
 * x A^T, y += u B^T. Backward: dB += dy^T u, du = scale dy B, dA += du^T x, dx += du A (arXiv:2106.09685).
 * Products of adapters have the precision of dense layers. With dropout an adapter reads x through a mask, through
 * which du A passes to dx; the mask is computed again in each product. */
#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/model/net/net.h"

typedef struct widen_job {
    float *out;
    const int8_t *xq;
    const float *dq;
    size_t K;
} widen_job;

BT_WIDEST static void widen_frozen_row(float *out, const int8_t *x, float scale, size_t n) {
    for (size_t i = 0; i < n; i++) out[i] = (float)x[i] * scale;
}

static void widen_rows(void *ctx, int thread, size_t begin, size_t end) {
    const widen_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++)
        widen_frozen_row(j->out + r * j->K, j->xq + r * j->K, j->dq[r], j->K);
}

bool bt_adapter_drops(const bt_linear *l) {
    const bt_model *m = l->adapter.model;
    return m->gradient_passes && m->lora_drop.rows && m->lora_drop.below > 0;
}

/* Writes to y the values of rows r0 .. r0+n of x that the layer's mask keeps. add: adds them to y instead. */
static void drop_input(const bt_linear *l, float *y, const float *x, bool add, size_t r0,
                       size_t n) {
    const bt_tensor *a = l->adapter.a_tensor;
    bt_drop how = l->adapter.model->lora_drop;
    how.rows += r0;
    how.first = (uint32_t)bt_hash_name(a->name);
    how.whole = a->whole_cols;
    how.col0 = a->col0;
    bt_op_drop(y, x, &how, add, n, l->K);
}

const float *bt_adapter_input(const bt_linear *l, const bt_linear_input *in, const float *src,
                              size_t r0, size_t n) {
    float *x = l->adapter.x;
    const bool drops = bt_adapter_drops(l);
    if (in->tern) {
        widen_job j = {x, in->xq + r0 * l->K, in->dq + r0, l->K};
        bt_parallel_for(n, 8, widen_rows, &j);
        if (drops) drop_input(l, x, x, false, r0, n);
        return x;
    }
    const float *floats = bt_input_floats(in, src) + r0 * l->K;
    if (!drops) return floats;
    drop_input(l, x, floats, false, r0, n);
    return x;
}

void bt_adapter_drop_back(const bt_linear *l, float *dx, const float *masked, size_t r0, size_t n) {
    drop_input(l, dx, masked, true, r0, n);
}

void bt_adapter_down(const bt_linear *l, const float *x, size_t n) {
    const bt_adapter *a = &l->adapter;
    bt_op_gemm(a->u, a->rank, x, l->K, 0, a->a, l->K, 1, a->scale, n, a->rank, l->K, l->prec, 0);
}

void bt_adapter_add(const bt_linear *l, float *y, const float *u, size_t n) {
    const bt_adapter *a = &l->adapter;
    bt_op_gemm(y, l->N, u, a->rank, 0, a->b, a->rank, 1, 1, n, l->N, a->rank, l->prec, BT_ACC);
}

static void adapter_forward(const bt_linear *l, float *y, const bt_linear_input *in,
                            const float *src, size_t r0, size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    l->frozen->fwd(l, y, in, src, r0, rows, flags);
    for (size_t at = 0, n; a->rank && at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        bt_adapter_down(l, bt_adapter_input(l, in, src, r0 + at, n), n);
        bt_adapter_add(l, y + at * l->N, a->u, n);
    }
}

static void adapter_input_gradient(const bt_linear *l, size_t range, float *dx_out, bt_grads dy,
                                   size_t r0, size_t rows, int flags) {
    const bt_adapter *a = &l->adapter;
    size_t N = l->N / l->ranges, col = range * N;
    l->frozen->dx(l, range, dx_out, dy, r0, rows, flags);
    for (size_t at = 0, n; a->rank && at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        bt_op_gemm(a->du, a->rank, dy.f32 + at * l->N + col, l->N, 0, a->b + col * a->rank, a->rank,
                   0, a->scale, n, a->rank, N, l->prec, 0);
        const bool drops = bt_adapter_drops(l);
        float *to = drops ? a->x : dx_out + at * l->K;
        bt_op_gemm(to, l->K, a->du, a->rank, 0, a->a, l->K, 0, 1, n, l->K, a->rank, l->prec,
                   drops ? 0 : BT_ACC);
        if (drops) drop_input(l, dx_out + at * l->K, to, true, r0 + at, n);
    }
}

static void adapter_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                       size_t r0, size_t rows) {
    const bt_adapter *a = &l->adapter;
    for (size_t at = 0, n; a->rank && at < rows; at += n) {
        n = bt_min_size(a->chunk, rows - at);
        const float *x = bt_adapter_input(l, in, src, r0 + at, n), *d = dy.f32 + at * l->N;
        bt_adapter_down(l, x, n);
        bt_op_gemm(a->db, a->rank, d, l->N, 1, a->u, a->rank, 0, 1, l->N, a->rank, n, l->prec,
                   BT_ACC);
        bt_op_gemm(a->du, a->rank, d, l->N, 0, a->b, a->rank, 0, a->scale, n, a->rank, l->N,
                   l->prec, 0);
        bt_op_gemm(a->da, l->K, a->du, a->rank, 1, x, l->K, 0, 1, a->rank, l->K, n, l->prec,
                   BT_ACC);
    }
}

const bt_linear_ops bt_adapter_ops = {adapter_forward, adapter_input_gradient, adapter_dw};

void bt_net_adapters(bt_model *m, bool on) {
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        bt_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            all[k]->ops = on ? all[k]->adapted : all[k]->frozen;
    }
}
