/* transformer.c - the network: the forward pass, and the backward pass written by hand.
 *
 * A layer, with n = RMSNorm, Q = quantise (ternary layers), W* = BitLinear:
 *     q, k, v = W{q,k,v} Q(n(x)) [+ b]   q, k = rope([qk-norm] q, k)      o = attention(q, k, v)
 *     x_mid   = x + [post-norm] Wo Q([n] o)
 *     gate,up = W{gate,up} Q(n(x_mid))   h = act(gate) * up
 *     x_out   = x_mid + [post-norm] Wdown Q([n] h)
 *
 * The norms [n] exist for `subln` (with gain) and `bitlinear` (without; there the first and third have
 * none either). Backward runs through the same lines in reverse and reports every tensor's gradient when it is
 * final, from the end of the flat array to its beginning. The feed-forward part runs in blocks of rows, so that
 * its widest floats fit the cache.
 *
 * With dropout (into_residual.c) the embedding and both products that are added to x pass through a mask.
 *
 * m->tp has the operations of tensor parallelism (tp_ops.h); on one rank these do nothing, or compute the named
 * product or norm. */
#include <assert.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/net.h"

/* The layers come from their owners: waits for this one, while the next one may be in transit. */
static void need_layer_weights(const bt_model *m, int layer) {
    if (m->source) m->source->need(m->source, layer);
}

static void poll_layer_source(const bt_model *m) {
    if (m->source) m->source->poll(m->source);
}

/* Dense layers compute their inputs from the residual again, so its floats are kept. */
static void load_residual(const bt_model *m, float *x, const uint16_t *saved, size_t n) {
    if (bt_net_ternary(m)) bt_acts_load(&m->setup, x, saved, n);
}

/* Reads rows of x into an input, and stores them as bf16 in `saved` unless that is NULL. */
static void read_saving(const bt_linear_input *in, uint16_t *saved, const float *x, size_t r0,
                        size_t rows) {
    if (saved && in->ops->fwd_saving) {
        in->ops->fwd_saving(in, saved, x, r0, rows);
        return;
    }
    bt_acts_save(saved, x, rows * in->K);
    in->ops->fwd(in, x, r0, rows);
}

/* Computes the input rows of all tokens from own rows of the residual x. */
static void read_residual(bt_model *m, const bt_linear_input *in, const float *x, uint16_t *saved,
                          size_t M) {
    bt_rows own = m->tp->own_rows(m, M);
    read_saving(in, saved, x, own.first, own.n);
    m->tp->gather_input(m, in, M);
}

/* Dense: computes the same floats for dW again. */
static void reread_residual(bt_model *m, const bt_linear_input *in, const float *x, size_t M) {
    if (in->tern) return;
    bt_rows own = m->tp->own_rows(m, M);
    in->ops->restore(in, x, own.first, own.n);
    m->tp->gather_input(m, in, M);
}

void bt_net_positions(bt_model *m, size_t B, size_t T, size_t first) {
    for (size_t b = 0; b < B; b++) {
        for (size_t t = 0; t < T; t++) m->pos[b * T + t] = (int32_t)(first + t);
    }
}

/* Position 0 begins a document; the first -1 of a sequence begins its padding. */
void bt_model_documents(bt_model *m, const int32_t *positions) {
    size_t B = (size_t)m->setup.B, T = (size_t)m->setup.cfg.T;
    m->n_documents = 0;
    for (size_t i = 0; positions && i < B * T; i++) {
        bool padding = positions[i] < 0,
             more = i % T &&
                    (padding ? m->documents[m->n_documents - 1].padding : positions[i] > 0);
        m->pos[i] = padding ? 0 : positions[i];
        if (!more) m->documents[m->n_documents++] = (bt_attn_document){i, 0, padding};
        m->documents[m->n_documents - 1].n++;
    }
}

void bt_model_follower_targets(bt_model *m, bt_follower_targets how) {
    m->head_form.followers = how.followers;
    m->head_form.weight = how.weight;
}

void bt_model_gradient_passes(bt_model *m, bool on) { m->gradient_passes = on; }

static int layer_number(const bt_model *m, const bt_layer *l) {
    return m->chunk->number + (int)(l - m->layers) - m->chunk->first;
}

size_t bt_net_window(const bt_model *m, const bt_layer *l) {
    const bt_model_cfg *c = &m->setup.cfg;
    return bt_model_layer_is_local(c, layer_number(m, l)) ? (size_t)c->window : 0;
}

static bt_attn_shape layer_attn_shape(const bt_model *m, const bt_layer *l, size_t T) {
    const bt_model_cfg *c = &m->setup.cfg;
    size_t D = (size_t)c->D, HD = (size_t)c->H * D, KVD = (size_t)c->KV * D;
    return (bt_attn_shape){.T = T,
                           .D = D,
                           .ldq = HD,
                           .ldk = KVD,
                           .ldv = KVD,
                           .ldo = HD,
                           .scale = bt_model_query_factor(c),
                           .cap = (float)c->attention_cap,
                           .window = bt_net_window(m, l),
                           .group = (size_t)c->group,
                           .skip = (size_t)c->skip,
                           .int8 = m->gradient_passes && m->setup.attention_int8,
                           .documents = m->n_documents ? m->documents : NULL,
                           .n_documents = m->n_documents};
}

float *bt_net_q(const bt_layer *l) { return l->a.qr ? l->a.qr : l->a.q; }
float *bt_net_k(const bt_layer *l) { return l->a.kr ? l->a.kr : l->a.k; }

static bool layer_rotates(const bt_model *m, const bt_layer *l) {
    const int every = m->setup.cfg.no_rope_every;
    return !every || (layer_number(m, l) + 1) % every != 0;
}

static bt_rotation rotation_of(const bt_model *m, const bt_layer *l, size_t row) {
    const bool local = bt_model_layer_is_local(&m->setup.cfg, layer_number(m, l));
    return (bt_rotation){.cos = local ? m->local_cos : m->rope_cos,
                         .sin = local ? m->local_sin : m->rope_sin,
                         .pos = m->pos + row,
                         .dims = bt_model_rotary(&m->setup.cfg)};
}

/* Applies the norm, if there is one, to heads of q or k, and then rotates them by position. */
static void norm_and_rotate(const bt_model *m, const bt_layer *l, bool kv, float *out, float *rstd,
                            const float *x, size_t M) {
    const bt_model_cfg *c = &m->setup.cfg;
    const bt_gain *gain = kv ? &l->k_norm : &l->q_norm;
    size_t D = (size_t)c->D, heads = (size_t)(kv ? c->KV : c->H);
    if (gain->tensor) bt_op_rmsnorm(out, rstd, x, gain->w, (float)c->norm_eps, M * heads, D);
    if (!layer_rotates(m, l)) return;
    const bt_rotation by = rotation_of(m, l, 0);
    bt_op_rope(out, heads * D, &by, 0, M, heads, D);
}

/* Returns true if only the rounded residual is kept (acts.def, lean), so that a layer begins with it in both passes. */
static bool reloads_bf16_input(const bt_model *m, const bt_acts *a) {
    return a->x_saved && m->setup.recompute == BT_RECOMPUTE_FULL;
}

/* Returns true if attention reads the saved bf16 values of q, k and v, which products would round to bf16 in any case.
 * Heads with a norm are saved before it. */
static bool attention_reads_saved_bf16(const bt_model *m, const bt_acts *a) {
    return a->q_saved && !m->setup.cfg.qk_norm && m->setup.prec == BT_PREC_BF16 &&
           bt_kernels_multiply_bf16();
}

/* Computes rows r0 .. r0+rows of q, k or v. */
static void project_qkv_rows(const bt_linear *l, const bt_gain *bias, float *y,
                             const bt_linear_input *in, const float *x, size_t r0, size_t rows) {
    l->ops->fwd(l, y, in, x, r0, rows, 0);
    if (bias->tensor) bt_op_add_row(y, bias->w, rows, l->N);
}

/* Stores heads of q or k as bf16. by: NULL for a layer that does not rotate. */
static void save_heads(uint16_t *saved, float *x, const bt_rotation *by, size_t rows, size_t heads,
                       size_t D) {
    if (by)
        bt_op_rope_save(saved, x, by, rows, heads, D);
    else
        bt_acts_save(saved, x, rows * heads * D);
}

/* Computes q, k and v as bf16 only, in blocks of rows whose floats fit the cache. */
static void compute_qkv_bf16(bt_model *m, bt_layer *l, size_t M) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_acts *a = &l->a;
    read_residual(m, &l->attn_in, a->x, reloads_bf16_input(m, a) ? NULL : a->x_saved, M);
    for (size_t r0 = 0; r0 < M; r0 += m->block) {
        const size_t rows = M - r0 < m->block ? M - r0 : m->block, q = r0 * l->q.N, k = r0 * l->k.N;
        const bt_rotation rotation = rotation_of(m, l, r0),
                          *by = layer_rotates(m, l) ? &rotation : NULL;
        project_qkv_rows(&l->q, &l->q_bias, a->q, &l->attn_in, a->x, r0, rows);
        save_heads(a->q_saved + q, a->q, by, rows, (size_t)c->H, (size_t)c->D);
        project_qkv_rows(&l->k, &l->k_bias, a->k, &l->attn_in, a->x, r0, rows);
        save_heads(a->k_saved + k, a->k, by, rows, (size_t)c->KV, (size_t)c->D);
        project_qkv_rows(&l->v, &l->v_bias, a->v, &l->attn_in, a->x, r0, rows);
        bt_acts_save(a->v_saved + k, a->v, rows * l->v.N);
        poll_layer_source(m);
    }
}

void bt_net_qkv(bt_model *m, bt_layer *l, size_t M) {
    bt_acts *a = &l->a;
    read_residual(m, &l->attn_in, a->x, reloads_bf16_input(m, a) ? NULL : a->x_saved, M);
    project_qkv_rows(&l->q, &l->q_bias, a->q, &l->attn_in, a->x, 0, M);
    project_qkv_rows(&l->k, &l->k_bias, a->k, &l->attn_in, a->x, 0, M);
    project_qkv_rows(&l->v, &l->v_bias, a->v, &l->attn_in, a->x, 0, M);
    norm_and_rotate(m, l, false, bt_net_q(l), a->q_rstd, a->q, M);
    norm_and_rotate(m, l, true, bt_net_k(l), a->k_rstd, a->k, M);
}

void bt_net_attn_out(bt_model *m, bt_layer *l, size_t M) {
    bt_acts *a = &l->a;
    read_saving(&l->o_in, a->o_saved, a->o, 0, M);
    bt_net_copy(a->x_mid, a->x, m->tp->own_rows(m, M).n * l->o.N);
    float *y = bt_net_branch_begin(m, a->x_mid, l, BT_DROP_ATTN, M);
    m->tp->add_product(m, y, &l->o, &l->o_in, a->o, 0, M);
    m->tp->finish_product(m, y, &l->o, &l->o_in, M);
    bt_net_branch_end(m, a->x_mid, l, BT_DROP_ATTN, M);
}

static bt_gate_and_up gate_up_at(const bt_model *m, const bt_layer *l, size_t r0) {
    const bt_acts *a = &l->a;
    size_t at = a->gate_saved ? 0 : (m->again ? r0 % m->again : r0) * l->gate.N;
    return (bt_gate_and_up){a->gate + at, a->up + at};
}

static void gate_up(const bt_model *m, bt_layer *l, size_t r0, size_t rows) {
    bt_acts *a = &l->a;
    bt_gate_and_up y = gate_up_at(m, l, r0);
    l->gate.ops->fwd(&l->gate, y.gate, &l->ffn_in, a->x_mid, r0, rows, 0);
    l->up.ops->fwd(&l->up, y.up, &l->ffn_in, a->x_mid, r0, rows, 0);
}

/* x_out NULL: computes only the values that backward needs. */
static void ffn(bt_model *m, bt_layer *l, float *x_out, size_t M) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_acts *a = &l->a;
    size_t C = (size_t)c->C;
    const bool adds = x_out || l->ffn_post.tensor; /* the norm reads the sum in backward */
    read_residual(m, &l->ffn_in, a->x_mid, a->x_mid_saved, M);
    if (!adds && m->again) return; /* backward repeats this part */
    if (x_out) bt_net_copy(x_out, a->x_mid, m->tp->own_rows(m, M).n * C);
    float *y = adds ? bt_net_branch_begin(m, x_out, l, BT_DROP_FFN, M) : NULL;
    for (size_t r0 = 0; r0 < M; r0 += m->block) {
        size_t rows = M - r0 < m->block ? M - r0 : m->block;
        gate_up(m, l, r0, rows);
        l->glu.fwd(m, l, gate_up_at(m, l, r0), r0, rows);
        if (adds) m->tp->add_product(m, y, &l->down, &l->down_in, a->h, r0, rows);
        poll_layer_source(m);
    }
    if (!adds) return;
    m->tp->finish_product(m, y, &l->down, &l->down_in, M);
    bt_net_branch_end(m, x_out, l, BT_DROP_FFN, M);
}

void bt_net_ffn(bt_model *m, bt_layer *l, size_t M) { ffn(m, l, l->x_out, M); }

/* Keeps what attention reads, for the relations of this layer. The values are the same whether attention reads saved
 * bf16 values or floats, because its products round floats. */
static void keep_heads(bt_model *m, const bt_layer *l, bool bf16, size_t M) {
    const bt_relation *r = &m->relation;
    const bt_acts *a = &l->a;
    const float *const x[BT_RELATIONS] = {bt_net_q(l), bt_net_k(l), a->v};
    const uint16_t *const saved[BT_RELATIONS] = {a->q_saved, a->k_saved, a->v_saved};
    for (int i = 0; i < BT_RELATIONS; i++) {
        if (!bf16) bt_net_copy(r->x[i], x[i], M * r->width[i]);
        bt_acts_load(&m->setup, r->x[i], bf16 ? saved[i] : NULL, M * r->width[i]);
    }
}

static void layer_forward(bt_model *m, bt_layer *l, float *x_out, size_t B, size_t T) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_attn_shape shape = layer_attn_shape(m, l, T);
    bt_acts *a = &l->a;
    size_t M = B * T, own = m->tp->own_rows(m, M).n * (size_t)c->C;
    if (reloads_bf16_input(m, a)) {
        if (x_out) bt_acts_save(a->x_saved, a->x, own);
        bt_acts_load(&m->setup, a->x, a->x_saved, own);
    }
    if (attention_reads_saved_bf16(m, a)) {
        shape.bf16 = true;
        compute_qkv_bf16(m, l, M);
        bt_op_attn_fwd(a->o, a->lse, a->q_saved, a->k_saved, a->v_saved, &shape, B, (size_t)c->H,
                       (size_t)c->KV, m->setup.prec);
    } else {
        bt_net_qkv(m, l, M);
        poll_layer_source(m);
        bt_op_attn_fwd(a->o, a->lse, bt_net_q(l), bt_net_k(l), a->v, &shape, B, (size_t)c->H,
                       (size_t)c->KV, m->setup.prec);
        bt_acts_save(a->q_saved, a->q, M * shape.ldq);
        bt_acts_save(a->k_saved, a->k, M * shape.ldk);
        bt_acts_save(a->v_saved, a->v, M * shape.ldv);
    }
    if (x_out && l == m->relation.layer) keep_heads(m, l, shape.bf16, M);
    poll_layer_source(m);
    bt_net_attn_out(m, l, M);
    ffn(m, l, x_out, M);
}

void bt_net_forward(bt_model *m, const int32_t *inputs, size_t B, size_t T) {
    const bt_chunk *c = m->chunk;
    bt_span_begin(BT_MR_FWD);
    if (!m->n_documents) bt_net_positions(m, B, T, 0);
    if (bt_net_begins(m)) {
        m->tp->embed(m, inputs, B * T);
        bt_net_scale_embedding(m, m->layers[0].a.x, B * T);
    }
    for (int i = c->first; i < c->first + c->n; i++) {
        need_layer_weights(m, i);
        layer_forward(m, &m->layers[i], m->layers[i].x_out, B, T);
    }
    bt_span_end();
}

void bt_net_forward_member(const bt_model *m, bt_model *member, const int32_t *inputs) {
    const size_t B = (size_t)m->setup.B, T = (size_t)m->setup.cfg.T;
    member->n_documents = m->n_documents;
    if (m->n_documents) {
        memcpy(member->documents, m->documents, m->n_documents * sizeof *m->documents);
        memcpy(member->pos, m->pos, B * T * sizeof *m->pos);
    }
    bt_net_forward(member, inputs, B, T);
}

typedef struct backward {
    bt_model *m;
    size_t B, T, M;
    bt_prec prec;
    bt_grad_ready_fn ready;
    void *ready_ctx;
} backward;

void bt_net_ready(const bt_model *m, const bt_tensor *t, bt_grad_ready_fn ready, void *ready_ctx) {
    if (!t || !ready) return;
    if (m->adapters.n && !t->adapter && t != m->classes.tensor)
        return; /* a frozen base has no gradients */
    m->tp->complete_grad(m, t);
    const bt_params *p = bt_model_params(m);
    size_t i = (size_t)(t - p->tensors);
    ready(ready_ctx, t->offset, i + 1 < p->n ? p->tensors[i + 1].offset : p->total);
}

static void gradient_done(const backward *p, const bt_tensor *t) {
    bt_net_ready(p->m, t, p->ready, p->ready_ctx);
}

static void linear_done(const backward *p, const bt_linear *l) {
    gradient_done(p, l->adapter.m_tensor);
    gradient_done(p, l->adapter.b_tensor);
    gradient_done(p, l->adapter.a_tensor);
    gradient_done(p, l->tensor);
}

/* Adds to the gradient of a bias the gradient dy (M, N) of the sum that contains it. */
static void bias_done(const backward *p, const bt_linear *l, const bt_gain *bias, const float *dy) {
    if (!bias->tensor) return;
    if (bias->dw) bt_op_sum_rows(bias->dw, dy, p->M, l->N);
    gradient_done(p, bias->tensor);
}

static void linear_dw(const bt_linear *l, bt_grads dy, const bt_linear_input *in, const float *src,
                      size_t r0, size_t rows) {
    l->ops->dw(l, dy, in, src, r0, rows);
}

static void dw_done(const backward *p, const bt_linear *l, const float *dy,
                    const bt_linear_input *in, const float *src) {
    linear_dw(l, bt_grads_f32(dy, l->N), in, src, 0, p->M);
    linear_done(p, l);
}

/* Returns row `row` of the gradients that backward computes at once, in the saved format (acts.def). */
static bt_glu_grads glu_grads_at(const bt_acts *a, size_t row, size_t F) {
    const size_t at = row * F;
    if (a->dgate_bf16)
        return (bt_glu_grads){.gate_bf16 = a->dgate_bf16 + at, .up_bf16 = a->dup_bf16 + at};
    return (bt_glu_grads){(a->dgate ? a->dgate : a->gate) + at, (a->dup ? a->dup : a->up) + at,
                          NULL, NULL};
}

/* Computes the gradients of gate and up from rows r0 .. r0+rows of dx; d begins at row r0. */
static void glu_backward(bt_model *m, bt_layer *l, const float *dx, bt_glu_grads d, size_t r0,
                         size_t rows) {
    bt_acts *a = &l->a;
    if (m->again || m->setup.recompute == BT_RECOMPUTE_SELECTIVE) gate_up(m, l, r0, rows);
    if (m->again) l->glu.fwd(m, l, gate_up_at(m, l, r0), r0, rows);
    l->down.ops->dx(&l->down, 0, l->down_in.normed ? a->dhn : a->dh,
                    bt_grads_f32(dx + r0 * l->down.N, l->down.N), r0, rows, 0);
    poll_layer_source(m);
    l->glu.bwd(m, l, d, gate_up_at(m, l, r0), r0, rows);
    if (!d.gate || !bt_acts_rounds_dy(&m->setup) || !bt_net_ternary(m)) return;
    bt_op_round_bf16(d.gate, rows * l->gate.N);
    bt_op_round_bf16(d.up, rows * l->up.N);
}

static bool norm_reads_saved(const bt_model *m, const bt_linear_input *in, const uint16_t *saved) {
    return saved && in->tern && m->tp == &bt_tp_one_rank && m->layers[0].a.norm_sums;
}

/* Reads x as bf16 from `saved` or, if that is NULL, as floats. */
static void norm_backward(const backward *p, const bt_linear_input *in, const float *x,
                          const uint16_t *saved) {
    bt_model *m = p->m;
    const bt_acts *a = &m->layers[0].a;
    m->tp->norm_bwd(m, &(bt_norm_bwd){.gain = &in->gain,
                                      .dx = a->dx,
                                      .dy = m->tp->reduce_grad(m, a->dxn, p->M),
                                      .x = saved ? NULL : x,
                                      .saved = saved,
                                      .sums = a->norm_sums,
                                      .rstd = in->rstd,
                                      .add = true,
                                      .M = p->M});
    gradient_done(p, in->gain.tensor);
}

static void ffn_backward(const backward *p, bt_layer *l) {
    bt_model *m = p->m;
    const bt_model_cfg *c = &m->setup.cfg;
    bt_acts *a = &l->a;
    size_t F = (size_t)c->F, C = (size_t)c->C, wide = bt_acts_wide(&m->setup, p->M);
    bt_rows own = m->tp->own_rows(m, p->M);
    const float *dx = m->tp->gather_grad(m, bt_net_branch_grad(m, l, BT_DROP_FFN, p->M), p->M);
    gradient_done(p, l->ffn_post.tensor);
    const bt_glu_grads d = glu_grads_at(a, 0, F);
    const bt_grads dgate = {d.gate, d.gate_bf16, F}, dup = {d.up, d.up_bf16, F};
    const bool kept = norm_reads_saved(m, &l->ffn_in, a->x_mid_saved);
    if (!kept) load_residual(m, a->x_mid, a->x_mid_saved, own.n * C);
    reread_residual(m, &l->ffn_in, a->x_mid, p->M);
    /* Processes all rows at once, or blocks of rows whose dgate and dup fit in L3 (bt_acts_wide). */
    for (size_t w0 = 0, n; w0 < p->M; w0 += n) {
        n = p->M - w0 < wide ? p->M - w0 : wide;
        for (size_t i = 0; i < n; i += m->block) {
            glu_backward(m, l, dx, glu_grads_at(a, i, F), w0 + i,
                         n - i < m->block ? n - i : m->block);
        }
        linear_dw(&l->down, bt_grads_f32(dx + w0 * C, C), &l->down_in, a->h, w0, n);
        if (w0 + n == p->M) linear_done(p, &l->down), gradient_done(p, l->down_in.gain.tensor);
        m->tp->dx(m, (bt_dx_term[]){{&l->up, dup}, {&l->gate, dgate}}, 2, w0, n);
        poll_layer_source(m);
        linear_dw(&l->up, dup, &l->ffn_in, a->x_mid, w0, n);
        if (w0 + n == p->M) linear_done(p, &l->up);
        linear_dw(&l->gate, dgate, &l->ffn_in, a->x_mid, w0, n);
    }
    linear_done(p, &l->gate);
    norm_backward(p, &l->ffn_in, a->x_mid, kept ? a->x_mid_saved : NULL);
}

/* Returns true if the backward pass of attention itself rotates the gradients of heads back, while they are cached. It
 * can if the heads are complete, that is, not shared by leaves. */
static bool attention_rotates_back(const bt_model *m) {
    return m->tp->sum_kv == bt_one_rank_sum_kv;
}

/* Adds to dy, the gradient of q (0), k (1) or v (2) before the rotation, that of the relations of rotated heads. */
static void add_relation(const backward *p, const bt_layer *l, int which, float *dy) {
    bt_model *m = p->m;
    const size_t N = m->relation.width[which], D = (size_t)m->setup.cfg.D;
    if (l != m->relation.layer || !(m->distil.relation > 0)) return;
    const bt_rotation by = rotation_of(m, l, 0);
    if (which < 2 && layer_rotates(m, l))
        bt_op_rope(m->relation.dx[which], N, &by, 1, p->M, N / D, D);
    bt_op_add(dy, m->relation.dx[which], p->M * N);
}

/* Passes dy in place back through the rotation, then through the norm of heads with input x. `spare`: as large as
 * dy. */
static float *undo_norm_and_rotate(const backward *p, const bt_layer *l, bool kv, float *dy,
                                   float *spare, const float *x) {
    bt_model *m = p->m;
    const bt_gain *gain = kv ? &l->k_norm : &l->q_norm;
    size_t D = (size_t)m->setup.cfg.D, heads = (size_t)(kv ? m->setup.cfg.KV : m->setup.cfg.H);
    const bt_rotation by = rotation_of(m, l, 0);
    if (!attention_rotates_back(m) && layer_rotates(m, l))
        bt_op_rope(dy, heads * D, &by, 1, p->M, heads, D);
    add_relation(p, l, kv, dy);
    if (!gain->tensor) return dy;
    m->tp->heads_bwd(m, l, kv, spare, dy, x, p->M);
    gradient_done(p, gain->tensor);
    return spare;
}

static void attn_backward(const backward *p, bt_layer *l) {
    bt_model *m = p->m;
    const bt_model_cfg *c = &m->setup.cfg;
    bt_acts *a = &l->a;
    bt_attn_shape shape = layer_attn_shape(m, l, p->T);
    size_t H = (size_t)c->H, KV = (size_t)c->KV;
    shape.run = m->heads_per_run;
    const float *dx = m->tp->gather_grad(m, bt_net_branch_grad(m, l, BT_DROP_ATTN, p->M), p->M);
    gradient_done(p, l->attn_post.tensor);
    const bt_rotation by = rotation_of(m, l, 0);
    if (attention_rotates_back(m) && layer_rotates(m, l)) shape.turned = &by;
    shape.bf16 = attention_reads_saved_bf16(m, a);
    const bool o_kept = shape.bf16 && l->o_in.tern && l->o_in.normed && l->o_in.ops->bwd_saved &&
                        a->norm_sums;
    if (!o_kept) bt_acts_load(&m->setup, a->o, a->o_saved, p->M * shape.ldo);
    if (!shape.bf16) {
        bt_acts_load(&m->setup, a->q, a->q_saved, p->M * shape.ldq);
        bt_acts_load(&m->setup, a->k, a->k_saved, p->M * shape.ldk);
        bt_acts_load(&m->setup, a->v, a->v_saved, p->M * shape.ldv);
    }
    l->o_in.ops->restore(&l->o_in, a->o, 0, p->M);
    l->o.ops->dx(&l->o, 0, l->o_in.normed ? a->d_on : a->d_o, bt_grads_f32(dx, l->o.N), 0, p->M, 0);
    dw_done(p, &l->o, dx, &l->o_in, a->o);
    poll_layer_source(m);
    if (o_kept)
        l->o_in.ops->bwd_saved(&l->o_in, a->d_o, a->d_on, a->o_saved, a->norm_sums, 0, p->M);
    else if (l->o_in.normed)
        l->o_in.ops->bwd(&l->o_in, a->d_o, a->d_on, a->o, 0, p->M);
    gradient_done(p, l->o_in.gain.tensor);
    if (c->qk_norm) { /* rotated heads are not saved */
        norm_and_rotate(m, l, false, a->qr, NULL, a->q, p->M);
        norm_and_rotate(m, l, true, a->kr, NULL, a->k, p->M);
    }
    if (shape.bf16)
        bt_op_attn_bwd(a->dq, a->dk, a->dv, a->d_o, a->o_saved, a->lse, a->q_saved, a->k_saved,
                       a->v_saved, &shape, p->B, H, KV, m->kv_runs, p->prec);
    else
        bt_op_attn_bwd(a->dq, a->dk, a->dv, a->d_o, a->o, a->lse, bt_net_q(l), bt_net_k(l), a->v,
                       &shape, p->B, H, KV, m->kv_runs, p->prec);
    poll_layer_source(m);
    m->tp->sum_kv(m, a->dk, p->M);
    m->tp->sum_kv(m, a->dv, p->M);
    add_relation(p, l, 2, a->dv);
    const float *dk = undo_norm_and_rotate(p, l, true, a->dk, a->kr, a->k);
    const float *dq = undo_norm_and_rotate(p, l, false, a->dq, a->qr, a->q);
    bias_done(p, &l->v, &l->v_bias, a->dv);
    bias_done(p, &l->k, &l->k_bias, dk);
    bias_done(p, &l->q, &l->q_bias, dq);
    const bool kept = norm_reads_saved(m, &l->attn_in, a->x_saved);
    if (!kept) load_residual(m, a->x, a->x_saved, m->tp->own_rows(m, p->M).n * (size_t)c->C);
    reread_residual(m, &l->attn_in, a->x, p->M);
    m->tp->dx(m,
              (bt_dx_term[]){{&l->v, bt_grads_f32(a->dv, l->v.N)},
                             {&l->k, bt_grads_f32(dk, l->k.N)},
                             {&l->q, bt_grads_f32(dq, l->q.N)}},
              3, 0, p->M);
    dw_done(p, &l->v, a->dv, &l->attn_in, a->x);
    dw_done(p, &l->k, dk, &l->attn_in, a->x);
    dw_done(p, &l->q, dq, &l->attn_in, a->x);
    norm_backward(p, &l->attn_in, a->x, kept ? a->x_saved : NULL);
}

void bt_net_backward(bt_model *m, const int32_t *inputs, size_t B, size_t T, bt_grad_ready_fn ready,
                     void *ready_ctx) {
    assert(m->setup.train);
    const bt_chunk *c = m->chunk;
    backward p = {.m = m,
                  .B = B,
                  .T = T,
                  .M = B * T,
                  .prec = m->setup.prec,
                  .ready = ready,
                  .ready_ctx = ready_ctx};
    bt_span_begin(BT_MR_BWD);
    for (int i = c->first + c->n - 1; i >= c->first; i--) {
        bt_layer *l = &m->layers[i];
        need_layer_weights(m, i);
        if (m->setup.recompute == BT_RECOMPUTE_FULL) layer_forward(m, l, NULL, B, T);
        ffn_backward(&p, l);
        attn_backward(&p, l);
    }
    if (bt_net_begins(m)) {
        bt_net_scale_embedding(m, m->layers[0].a.dx, p.M);
        m->tp->embed_bwd(m, inputs, p.M);
        gradient_done(&p, &m->params.tensors[0]);
    }
    bt_span_end();
}
