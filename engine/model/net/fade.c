/* fade.c - layers that change gradually from full precision to ternary: y = x' W'^T with
 *   x' = x + lambda (Q(x) - x), W' = W + lambda (Q(W) - W). Gradients pass straight through to x' and W'.
 * lambda 0 gives the bits of the dense layer; lambda 1 is the ternary layer of linear.c. Between them the dense
 * products read x' and W', which are computed for one layer at a time. */
#include <assert.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/ternary.h"
#include "engine/model/net/net.h"

enum { ALIGN_ELEMS = 16 };

static size_t list_linears(bt_layer *l, bt_linear *out[7]) {
    bt_linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) out[i] = all[i];
    return sizeof all / sizeof *all;
}

static size_t align_elems(size_t n) { return (n + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS; }

size_t bt_net_fade_elems(const bt_params *p) {
    size_t longest = 0, n = 0;
    int layer = -1;
    for (size_t i = 0; i < p->n; i++) {
        const bt_tensor *t = &p->tensors[i];
        if (!t->linear) continue;
        n = (t->layer == layer ? n : 0) + align_elems(t->count);
        layer = t->layer;
        if (n > longest) longest = n;
    }
    return longest;
}

typedef struct mix_job {
    float *x;
    const int8_t *xq;
    const float *dq;
    float lambda;
    size_t K;
} mix_job;

static void mix_rows(void *ctx, int thread, size_t begin, size_t end) {
    const mix_job *j = ctx;
    (void)thread;
    for (size_t r = begin; r < end; r++) {
        float *x = j->x + r * j->K;
        for (size_t k = 0; k < j->K; k++)
            x[k] += j->lambda * ((float)j->xq[r * j->K + k] * j->dq[r] - x[k]);
    }
}

void bt_net_fade_rows(const bt_linear_input *in, size_t r0, size_t rows) {
    mix_job j = {in->xn + r0 * in->K, in->xq + r0 * in->K, in->dq + r0, in->fade, in->K};
    bt_parallel_for(rows, 8, mix_rows, &j);
}

/* Returns the functions of the same input as dense layers read it. */
static const bt_input_ops *dense_input_ops(const bt_linear_input *in) {
    bt_linear_input dense = *in;
    dense.tern = false;
    return bt_input_ops_of(&dense);
}

static void fade_fwd(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    dense_input_ops(in)->fwd(in, x, r0, rows);
    bt_op_quant(in->xq + r0 * in->K, in->dq + r0, in->xn + r0 * in->K, rows, in->K);
    bt_net_fade_rows(in, r0, rows);
}

/* The codes still exist from the forward pass. */
static void fade_restore(const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    dense_input_ops(in)->restore(in, x, r0, rows);
    bt_net_fade_rows(in, r0, rows);
}

static void fade_bwd(const bt_linear_input *in, float *dx, const float *dy, const float *x,
                     size_t r0, size_t rows) {
    dense_input_ops(in)->bwd(in, dx, dy, x, r0, rows);
}

static const bt_input_ops fading = {.fwd = fade_fwd, .restore = fade_restore, .bwd = fade_bwd};

typedef struct weights_job {
    float *out;
    const float *w;
    const int8_t *codes;
    float lambda, scale;
    const float
        *scales; /* one scale for each K elements; out begins at element `first`. NULL: `scale` */
    size_t first, K;
} weights_job;

static void mix_weights(void *ctx, int thread, size_t begin, size_t end) {
    const weights_job *j = ctx;
    (void)thread;
    for (size_t at = begin, n; at < end; at += n) {
        const size_t row = j->scales ? (j->first + at) / j->K : 0;
        const float scale = j->scales ? j->scales[row] : j->scale;
        n = j->scales ? bt_min_size(end - at, (row + 1) * j->K - (j->first + at)) : end - at;
        for (size_t i = at; i < at + n; i++)
            j->out[i] = j->w[i] + j->lambda * (scale * (float)j->codes[i] - j->w[i]);
    }
}

static void fade_need_layer(bt_layer_source *s, int layer) {
    bt_fade *f = (bt_fade *)s;
    bt_linear *all[7];
    if (f->layer == layer) return;
    const size_t n = list_linears(&f->m->layers[layer], all);
    for (size_t i = 0; i < n; i++) {
        const bt_linear *l = all[i];
        weights_job j = {.out = (float *)(uintptr_t)l->values.f32,
                         .w = l->w.at,
                         .codes = l->codes,
                         .lambda = (float)f->m->lambda,
                         .scale = l->scale,
                         .scales = l->scales,
                         .K = l->scale_cols};
        bt_parallel_for(l->N * l->K, 4096, mix_weights, &j);
    }
    f->layer = layer;
}

static void fade_poll(bt_layer_source *s) { (void)s; }

enum { PIECE = 8192 }; /* codes unpacked at a time; a multiple of the 128 codes of a packed block */

static bool has_local_weights(const bt_model *m) {
    return m->setup.weight_source == BT_WEIGHTS_LOCAL;
}

static bt_linear *fade_linear(bt_model *m, size_t tensor) {
    const bt_tensor *t = &m->params.tensors[tensor];
    bt_linear *all[7];
    const size_t n = list_linears(&m->layers[bt_net_layer(m, t->layer)], all);
    for (size_t i = 0; i < n; i++)
        if (all[i]->tensor == t) return all[i];
    return NULL;
}

bool bt_model_fading(const bt_model *m) { return m->lambda < 1; }

bt_read bt_model_fade_read(bt_prec prec) {
    return bt_net_reads_bf16(prec) ? BT_READ_BF16 : BT_READ_FP32;
}

typedef struct own_job {
    const bt_fade_run *run;
    const bt_linear *l;
    uint8_t *out;
    bt_read as;
    float lambda;
} own_job;

static void mix_own_pieces(void *ctx, int thread, size_t begin, size_t end) {
    const own_job *j = ctx;
    (void)thread;
    for (size_t k = begin; k < end; k++) {
        const size_t at = k * PIECE, n = j->run->n - at < PIECE ? j->run->n - at : PIECE;
        int8_t codes[PIECE];
        float mixed[PIECE];
        bt_tern2_read(codes, j->run->packed, at, n);
        const float *latent = bt_latent_at(j->l->w, j->run->first + at);
        weights_job w = {.out = mixed,
                         .w = latent,
                         .codes = codes,
                         .lambda = j->lambda,
                         .scale = j->l->scale,
                         .scales = j->l->scales,
                         .first = j->run->first + at,
                         .K = j->l->scale_cols};
        mix_weights(&w, 0, 0, n);
        uint8_t *out = j->out + bt_read_bytes(j->as, at);
        if (j->as == BT_READ_BF16)
            bt_active_kernels()->to_bf16((uint16_t *)(void *)out, mixed, n);
        else
            memcpy(out, mixed, n * sizeof *mixed);
    }
}

void bt_model_fade_own(bt_model *m, const bt_fade_run *run, uint8_t *out) {
    own_job j = {run, fade_linear(m, run->tensor), out, bt_model_fade_read(m->setup.prec),
                 (float)m->lambda};
    bt_parallel_for((run->n + PIECE - 1) / PIECE, 1, mix_own_pieces, &j);
}

void bt_model_fade_take(bt_model *m, size_t tensor, size_t first, size_t n, const uint8_t *values) {
    float *panel = (float *)(uintptr_t)fade_linear(m, tensor)->values.f32 + first;
    if (bt_model_fade_read(m->setup.prec) == BT_READ_BF16)
        bt_op_load_bf16(panel, (const uint16_t *)(const void *)values, n);
    else
        memcpy(panel, values, n * sizeof *panel);
}

static void wire_inputs(bt_model *m, bt_layer *l, bool ternary, bool mixed) {
    bt_linear_input *inputs[] = {&l->attn_in, &l->o_in, &l->ffn_in, &l->down_in};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        bt_linear_input *in = inputs[i];
        in->tern = ternary;
        in->fade = mixed ? (float)m->lambda : 0;
        if (!in->tp) in->ops = mixed ? &fading : bt_input_ops_of(in);
    }
}

static void wire_linears(bt_model *m, bt_layer *l, bool ternary, bool mixed) {
    float *panel = m->fade.panel;
    bt_linear *all[7];
    const size_t n = list_linears(l, all);
    for (size_t i = 0; i < n; i++) {
        all[i]->tern = ternary;
        all[i]->values = (bt_table){.f32 = mixed || !has_local_weights(m) ? panel : all[i]->w.at};
        all[i]->ops = bt_linear_ops_of(all[i]);
        panel += align_elems(all[i]->N * all[i]->K);
    }
}

void bt_model_lambda(bt_model *m, double lambda) {
    assert(m->setup.fades || lambda == 1);
    if (!m->setup.fades || lambda == m->lambda) return;
    const bool ternary = lambda >= 1, mixed = !ternary && lambda > 0;
    m->lambda = lambda;
    m->fade = (bt_fade){
        .source = {fade_need_layer, fade_poll}, .m = m, .layer = -1, .panel = m->fade.panel};
    if (has_local_weights(m)) m->source = mixed ? &m->fade.source : NULL;
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        wire_inputs(m, l, ternary, mixed);
        wire_linears(m, l, ternary, mixed);
        l->glu = bt_glu_of(l);
    }
}
