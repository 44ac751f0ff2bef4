/* model.c - memory, initial weights, quantisation, and one micro-batch. */
#include "engine/model/net/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/ternary.h"
#include "engine/model/net/net.h"

enum { LOGITS_BYTES = 16 << 20, LOGITS_LEAST = 256 };

/* Offsets of everything, before any memory is taken. */
typedef struct memory_plan {
    bt_arena params, grads, quant, acts, scratch;
    size_t w, g;
    /* per tensor; NULL when only sizes are wanted */
    size_t *codes, *packed, *packed2;
    size_t row, taken;
    bt_acts_plan acts_plan;
    size_t x_final, final_rstd, row_loss, logits, rope_cos, rope_sin, pos, noise_rows;
    size_t head_packed, head_scale, head_xq, head_dq; /* bt_head8 */
    size_t ones, mine, all, a, b, index;              /* of a part */
    size_t spare, gains;                              /* of leaves */
    size_t shared_kv_sums;                            /* kv heads that neighbours share */
    size_t logits_rows;
    size_t tied, d_tied; /* of a last stage */
} memory_plan;

static bool split(const bt_model_setup *s) { return s->slice.tp_size > 1 || s->leaves > 1; }

static size_t logits_rows(size_t V, size_t M, size_t least) {
    size_t rows = (size_t)LOGITS_BYTES / (V * sizeof(float)) / 64 * 64;
    if (rows < least) rows = least;
    return rows < M ? rows : M;
}

static bool head_int8(const bt_model_setup *s) {
    return s->train && s->grad_int8 && bt_slice_is_last_stage(s->slice);
}

/* a rank's vocabulary in leaves, each packed by itself */
static size_t head8_bytes(const bt_model_setup *s, const bt_model_cfg *whole) {
    size_t leaves = bt_slice_leaves(s->slice, s->leaves), bytes = 0;
    if (s->leaves <= 1) return bt_op_w8_bytes((size_t)s->cfg.V, (size_t)s->cfg.C);
    for (size_t i = 0; i < leaves; i++) {
        bt_model_slice leaf = {.tp_rank = s->slice.tp_rank * (int)leaves + (int)i,
                               .tp_size = s->leaves},
                       next = {.tp_rank = leaf.tp_rank + 1, .tp_size = s->leaves};
        bytes += bt_op_w8_bytes(bt_slice_vocab(whole, next) - bt_slice_vocab(whole, leaf),
                                (size_t)s->cfg.C);
    }
    return bytes;
}

static size_t widest_output(const bt_model_cfg *c) {
    size_t widest = (size_t)c->H * (size_t)c->D;
    if (widest < (size_t)c->C) widest = (size_t)c->C;
    return widest < (size_t)c->F ? (size_t)c->F : widest;
}

size_t bt_slice_rows(const bt_model_setup *s, size_t M) {
    if (s->slice.tp_size <= 1 || !s->sequence) return M;
    return bt_tp_first_row(M, s->slice.tp_rank + 1, s->slice.tp_size) -
           bt_tp_first_row(M, s->slice.tp_rank, s->slice.tp_size);
}

bool bt_leaves_fit(const bt_model_cfg *c, int n) {
    return n >= 1 && n <= BT_LEAVES_MAX && bt_slice_heads_fit(c, n) && c->F % n == 0 && c->V >= n;
}

int bt_leaves_auto(const bt_model_cfg *c) {
    int n = BT_LEAVES_AUTO;
    while (!bt_leaves_fit(c, n)) n /= 2;
    return n;
}

bool bt_leaves_divide(int leaves, int parts) {
    int each = leaves / parts;
    return parts == 1 || (leaves % parts == 0 && (each & (each - 1)) == 0);
}

/* outputs of a layer that are packed apart: those of each leaf, or whole kv heads */
static size_t parts_of(const bt_model_setup *s, const bt_tensor *t) {
    size_t leaves = bt_slice_leaves(s->slice, s->leaves), kv = (size_t)s->cfg.KV;
    if (t->shard == BT_SHARD_KVROW) return kv < leaves || bt_net_kv_uneven(s) ? kv : leaves;
    return t->shard == BT_SHARD_ROW ? leaves : 1;
}

static size_t packed_bytes(const bt_model_setup *s, const bt_tensor *t) {
    return (bt_k()->tern_bytes(t->rows / parts_of(s, t), t->cols) + 63) / 64 * 64;
}

static size_t levels(size_t leaves) { return leaves > 1 ? 1 + levels(leaves / 2) : 0; }
static int tp_size(const bt_model_setup *s) { return s->slice.tp_size > 1 ? s->slice.tp_size : 1; }

static bool tied_copy(const bt_model_setup *s) {
    return s->cfg.tied && bt_slice_is_last_stage(s->slice) && !bt_slice_is_first_stage(s->slice);
}

static void plan_ternary(memory_plan *p, const bt_model_setup *s, const bt_params *params) {
    size_t longest = 0;
    for (size_t i = 0; i < params->n; i++) {
        const bt_tensor *t = &params->tensors[i];
        if (!t->tern) continue;
        if (t->count > longest) longest = t->count;
        /* where the first layer's are */
        bool again = s->weight_source == BT_WEIGHTS_PREFETCHED && t->layer > 0;
        size_t codes = s->weight_source == BT_WEIGHTS_LOCAL
                           ? bt_arena_reserve(&p->quant, t->count, 1)
                           : 0;
        size_t packed = again ? 0
                              : bt_arena_reserve(&p->quant, parts_of(s, t) * packed_bytes(s, t), 1);
        size_t packed2 = s->train
                             ? 0
                             : bt_arena_reserve(&p->quant, t->rows, bt_tern2_row_bytes(t->cols));
        if (!p->codes) continue;
        p->codes[i] = codes;
        p->packed[i] = again ? p->packed[bt_params_get(params, 0, t->id) - params->tensors]
                             : packed;
        p->packed2[i] = packed2;
    }
    if (s->weight_source != BT_WEIGHTS_LOCAL) p->taken = bt_arena_reserve(&p->quant, longest, 1);
}

/* s->cfg is the part's */
static void plan_memory(memory_plan *p, const bt_model_setup *s, const bt_params *params,
                        const bt_model_cfg *whole) {
    const bt_model_cfg *c = &s->cfg;
    size_t M = (size_t)s->B * (size_t)c->T;
    bt_arena_plan(&p->params, "params");
    p->w = bt_arena_reserve(&p->params, params->total, sizeof(float));
    bt_arena_plan(&p->grads, "grads");
    if (s->train) p->g = bt_arena_reserve(&p->grads, params->total, sizeof(float));
    if (tied_copy(s)) {
        p->tied = bt_arena_reserve(&p->params, (size_t)c->V * (size_t)c->C, sizeof(float));
        p->d_tied = bt_arena_reserve(&p->grads, (size_t)c->V * (size_t)c->C, sizeof(float));
    }
    bt_arena_plan(&p->quant, "quantised");
    plan_ternary(p, s, params);
    bt_arena_plan(&p->acts, "activations");
    bt_acts_reserve(&p->acts_plan, &p->acts, s);
    p->x_final = s->train
                     ? bt_arena_reserve(&p->acts, bt_slice_rows(s, M) * (size_t)c->C, sizeof(float))
                     : 0;
    bt_arena_plan(&p->scratch, "scratch");
    /* their gradients are sums over these rows */
    if (bt_slice_is_last_stage(s->slice))
        p->logits_rows = logits_rows(s->leaves > 1 ? (size_t)whole->V : (size_t)c->V, M,
                                     head_int8(s) ? BT_GRAD_BLOCK : LOGITS_LEAST);
    p->final_rstd = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->row_loss = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->logits = bt_arena_reserve(&p->scratch, p->logits_rows * bt_ops_logits_ld((size_t)c->V),
                                 sizeof(float));
    p->rope_cos = bt_arena_reserve(&p->scratch, (size_t)c->T * (size_t)c->D / 2, sizeof(float));
    p->rope_sin = bt_arena_reserve(&p->scratch, (size_t)c->T * (size_t)c->D / 2, sizeof(float));
    p->pos = bt_arena_reserve(&p->scratch, M, sizeof(int32_t));
    p->noise_rows = s->train && s->grad_int8 ? bt_arena_reserve(&p->scratch, M, sizeof(uint32_t))
                                             : 0;
    if (head_int8(s)) {
        p->head_packed = bt_arena_reserve(&p->scratch, head8_bytes(s, whole), 1);
        p->head_scale = bt_arena_reserve(&p->scratch, (size_t)c->V, sizeof(float));
        p->head_xq = bt_arena_reserve(&p->scratch, p->logits_rows * (size_t)c->C, 1);
        p->head_dq = bt_arena_reserve(&p->scratch, p->logits_rows, sizeof(float));
    }
    p->row = s->train ? 0 : bt_arena_reserve(&p->scratch, widest_output(c), sizeof(float));
    if (!split(s)) return;
    if (s->leaves > 1) {
        p->spare = bt_arena_reserve(&p->scratch,
                                    levels(bt_slice_leaves(s->slice, s->leaves)) * M * (size_t)c->C,
                                    sizeof(float));
        size_t heads = (size_t)c->KV * (size_t)c->D,
               norms = (size_t)s->leaves * (size_t)(c->C > c->D ? c->C : c->D);
        p->gains = bt_arena_reserve(&p->scratch, heads > norms ? heads : norms, sizeof(float));
    }
    size_t joins = bt_slice_shared_kv(whole, (bt_model_slice){.tp_rank = s->slice.tp_size,
                                                              .tp_size = s->slice.tp_size});
    if (joins && s->train)
        p->shared_kv_sums = bt_arena_reserve(
            &p->scratch, joins * (s->leaves > 1 ? M : (size_t)c->C) * (size_t)c->D, sizeof(float));
    p->ones = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->mine = bt_arena_reserve(&p->scratch, M, sizeof(bt_row_stat));
    p->all = bt_arena_reserve(&p->scratch, M * (size_t)tp_size(s), sizeof(bt_row_stat));
    p->a = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->b = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->index = bt_arena_reserve(&p->scratch, M, sizeof(int32_t));
}

size_t bt_model_plan(const bt_model_setup *s, bt_arena_row *rows, size_t max) {
    bt_params params;
    bt_model_setup local = *s;
    if (s->B < 1 || bt_params_init(&params, &s->cfg, s->slice, NULL) != BT_OK ||
        bt_slice_cfg(&local.cfg, &s->cfg, s->slice, NULL) != BT_OK)
        return 0;
    memory_plan p = {0};
    plan_memory(&p, &local, &params, &s->cfg);
    bt_params_release(&params);
    static const char *const quantised_why[] = {
        "ternary codes (1 byte, to count flips) and their packed forms",
        "packed ternary weights, and one tensor's codes on their way there",
        "packed ternary weights of one layer, and one tensor's codes"};
    const bt_arena_row all[] = {
        {"params", p.params.bytes, "latent weights, fp32"},
        {"grads", p.grads.bytes, "their gradients, fp32"},
        {"quantised", p.quant.bytes, quantised_why[s->weight_source]},
        {"activations", p.acts.bytes,
         "kept for backward per layer, plus the gradients on the way back"},
        {"scratch", p.scratch.bytes, "one chunk of logits, rotary tables, positions"},
    };
    size_t n = sizeof all / sizeof *all;
    for (size_t i = 0; i < n && i < max; i++) rows[i] = all[i];
    return n < max ? n : max;
}

/* ---- wiring: tables to pointers -------------------------------------------------------------- */
static bt_gain gain_of(bt_model *m, int layer, bt_param_id id) {
    const bt_tensor *t = bt_params_get(&m->params, layer, id);
    if (!t) return (bt_gain){0};
    return (bt_gain){.tensor = t, .w = m->w + t->offset};
}

static bt_linear linear_of(bt_model *m, const memory_plan *p, int layer, bt_param_id id) {
    const bt_tensor *t = bt_params_get(&m->params, layer, id);
    size_t i = (size_t)(t - m->params.tensors);
    bt_linear l = {.tensor = t, .N = t->rows, .K = t->cols, .w = m->w + t->offset, .tern = t->tern};
    l.leaves = parts_of(&m->setup, t);
    l.contributes_dx = m->setup.leaves <= 1 || t->first_counted < t->count;
    l.first_row = t->row0;
    if (t->tern) {
        l.packed_bytes = packed_bytes(&m->setup, t);
        l.codes = m->setup.weight_source == BT_WEIGHTS_LOCAL
                      ? bt_arena_at(&m->quant_arena, p->codes[i])
                      : NULL;
        l.packed = bt_arena_at(&m->quant_arena, p->packed[i]);
        l.packed2 = m->setup.train ? NULL : bt_arena_at(&m->quant_arena, p->packed2[i]);
        l.row = m->setup.train ? NULL : bt_arena_at(&m->scratch_arena, p->row);
        l.noise = (bt_noise){m->noise_rows, (uint32_t)bt_hash_name(t->name), 0};
    }
    return l;
}

static void point_site(bt_linear_input *s, float *rstd, int8_t *xq, float *dq, float *xn) {
    s->rstd = rstd, s->xq = xq, s->dq = dq, s->xn = xn;
}

void bt_net_point(bt_model *m, int layer, int slot) {
    bt_layer *l = &m->layers[layer];
    bt_acts *a = &l->a;
    float *xn;
    bt_acts_point(a, &m->acts_plan, &m->acts_arena, (size_t)(slot * m->setup.cfg.L + layer));
    xn = m->setup.cfg.linear != BT_LIN_DENSE ? NULL : a->xn;
    if (m->tp) a->dxn = m->tp->tp_group->partial;
    if (layer > 0) m->layers[layer - 1].x_out = a->x;
    /* the last layer's; others are wired by the next */
    l->x_out = m->setup.train ? m->x_final : a->x;
    point_site(&l->attn_in, a->attn_rstd, a->attn_xq, a->attn_dq, xn);
    point_site(&l->o_in, a->o_rstd, a->o_xq, a->o_dq, a->on);
    point_site(&l->ffn_in, a->ffn_rstd, a->ffn_xq, a->ffn_dq, xn);
    point_site(&l->down_in, a->down_rstd, a->down_xq, a->down_dq, a->hn);
}

static void wire_layer(bt_model *m, const memory_plan *p, int i) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_layer *l = &m->layers[i];
    bool tern = c->linear != BT_LIN_DENSE, normed = c->norm != BT_NORM_PRE;
    size_t C = (size_t)c->C, HD = (size_t)c->H * (size_t)c->D, F = (size_t)c->F;
    float eps = (float)c->norm_eps;
    int n = m->first_layer + i; /* in the whole model */
    l->attn_in = (bt_linear_input){.K = C,
                                   .normed = true,
                                   .tern = tern,
                                   .gain = gain_of(m, n, BT_P_ATTN_NORM),
                                   .eps = eps,
                                   .whole_K = C};
    l->o_in = (bt_linear_input){.K = HD,
                                .normed = normed,
                                .tern = tern,
                                .gain = gain_of(m, n, BT_P_ATTN_SUBNORM),
                                .eps = eps,
                                .tp = m->tp,
                                .whole_K = (size_t)m->whole.H * (size_t)c->D};
    l->ffn_in = (bt_linear_input){.K = C,
                                  .normed = true,
                                  .tern = tern,
                                  .gain = gain_of(m, n, BT_P_FFN_NORM),
                                  .eps = eps,
                                  .whole_K = C};
    l->down_in = (bt_linear_input){.K = F,
                                   .normed = normed,
                                   .tern = tern,
                                   .gain = gain_of(m, n, BT_P_FFN_SUBNORM),
                                   .eps = eps,
                                   .tp = m->tp,
                                   .whole_K = (size_t)m->whole.F};
    bt_net_point(m, i, 0);
    l->q_norm = gain_of(m, n, BT_P_Q_NORM);
    l->k_norm = gain_of(m, n, BT_P_K_NORM);
    l->q = linear_of(m, p, n, BT_P_ATTN_Q);
    l->k = linear_of(m, p, n, BT_P_ATTN_K);
    l->v = linear_of(m, p, n, BT_P_ATTN_V);
    l->o = linear_of(m, p, n, BT_P_ATTN_O);
    l->gate = linear_of(m, p, n, BT_P_FFN_GATE);
    l->up = linear_of(m, p, n, BT_P_FFN_UP);
    l->down = linear_of(m, p, n, BT_P_FFN_DOWN);
}

/* In float like the published implementations, so that a model imported from them rotates by the
 * same angles. */
static void fill_rope(bt_model *m) {
    size_t half = (size_t)m->setup.cfg.D / 2;
    for (size_t i = 0; i < half; i++) {
        float freq = (float)pow(m->setup.cfg.rope_theta,
                                -(double)((float)(2 * i) / (float)m->setup.cfg.D));
        for (size_t t = 0; t < (size_t)m->setup.cfg.T; t++) {
            m->rope_cos[t * half + i] = cosf((float)t * freq);
            m->rope_sin[t * half + i] = sinf((float)t * freq);
        }
    }
}

static void wire_split(bt_model *m, const memory_plan *p) {
    bt_tp_state *x = m->tp;
    size_t M = (size_t)m->setup.B * (size_t)m->setup.cfg.T;
    x->tp_group = m->setup.tp_group;
    x->sequence = m->setup.sequence;
    x->leaves = bt_slice_leaves(m->setup.slice, m->setup.leaves);
    x->total_leaves = m->setup.leaves > 1 ? (size_t)m->setup.leaves : 1;
    x->spare = m->setup.leaves > 1 ? bt_arena_at(&m->scratch_arena, p->spare) : NULL;
    x->gains = m->setup.leaves > 1 ? bt_arena_at(&m->scratch_arena, p->gains) : NULL;
    x->first_leaf = (size_t)m->setup.slice.tp_rank * x->leaves;
    x->shared_kv = bt_slice_shared_kv(&m->whole,
                                      (bt_model_slice){.tp_rank = m->setup.slice.tp_size,
                                                       .tp_size = m->setup.slice.tp_size});
    x->shared_kv_sums = x->shared_kv && m->setup.train
                            ? bt_arena_at(&m->scratch_arena, p->shared_kv_sums)
                            : NULL;
    x->first_shared_kv = bt_slice_shared_kv(&m->whole, m->setup.slice) - (m->setup.cfg.skip > 0);
    x->vocab0 = bt_slice_vocab(&m->whole, m->setup.slice);
    for (size_t k = 0; k <= x->leaves && x->total_leaves > 1; k++)
        x->vocab_at[k] = bt_slice_vocab(&m->whole,
                                        (bt_model_slice){.tp_rank = (int)(x->first_leaf + k),
                                                         .tp_size = (int)x->total_leaves}) -
                         x->vocab0;
    x->ones = bt_arena_at(&m->scratch_arena, p->ones);
    x->mine = bt_arena_at(&m->scratch_arena, p->mine);
    x->all = bt_arena_at(&m->scratch_arena, p->all);
    x->a = bt_arena_at(&m->scratch_arena, p->a);
    x->b = bt_arena_at(&m->scratch_arena, p->b);
    x->index = bt_arena_at(&m->scratch_arena, p->index);
    for (size_t i = 0; i < M; i++) x->ones[i] = 1.0f;
}

static float *at_tensor(float *flat, const bt_tensor *t) {
    return flat && t ? flat + t->offset : NULL;
}

void bt_model_grads_into(bt_model *m, float *grads) {
    float *g = m->g = grads ? grads : m->own_g;
    const bt_tensor *embed = bt_params_get(&m->params, -1, BT_P_EMBED);
    for (int i = 0; i < m->setup.cfg.L; i++) {
        bt_layer *l = &m->layers[i];
        bt_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
        bt_gain *gains[] = {&l->attn_in.gain, &l->o_in.gain, &l->ffn_in.gain,
                            &l->down_in.gain, &l->q_norm,    &l->k_norm};
        for (size_t k = 0; k < sizeof linears / sizeof *linears; k++)
            linears[k]->dw = at_tensor(g, linears[k]->tensor);
        for (size_t k = 0; k < sizeof gains / sizeof *gains; k++)
            gains[k]->dw = at_tensor(g, gains[k]->tensor);
    }
    m->final_norm.dw = at_tensor(g, m->final_norm.tensor);
    m->d_embed = at_tensor(g, embed);
    m->d_head = m->d_tied
                    ? m->d_tied
                    : at_tensor(g, m->setup.cfg.tied ? embed
                                                     : bt_params_get(&m->params, -1, BT_P_HEAD));
}

static void wire(bt_model *m, const memory_plan *p) {
    const bt_model_cfg *c = &m->setup.cfg;
    if (m->tp) wire_split(m, p);
    m->w = bt_arena_at(&m->params_arena, p->w);
    m->own_g = m->setup.train ? bt_arena_at(&m->grads_arena, p->g) : NULL;
    m->taken = m->setup.weight_source != BT_WEIGHTS_LOCAL ? bt_arena_at(&m->quant_arena, p->taken)
                                                          : NULL;
    m->noise_rows = m->setup.train && m->setup.grad_int8
                        ? bt_arena_at(&m->scratch_arena, p->noise_rows)
                        : NULL;
    m->acts_plan = p->acts_plan;
    m->x_final = m->setup.train ? bt_arena_at(&m->acts_arena, p->x_final) : NULL;
    for (int i = 0; i < c->L; i++) wire_layer(m, p, i);
    m->x_final = m->layers[c->L - 1].x_out;
    m->final_norm = gain_of(m, -1, BT_P_FINAL_NORM);
    if (tied_copy(&m->setup)) {
        m->tied = bt_arena_at(&m->params_arena, p->tied);
        m->d_tied = m->setup.train ? bt_arena_at(&m->grads_arena, p->d_tied) : NULL;
    }
    m->embed = at_tensor(m->w, bt_params_get(&m->params, -1, BT_P_EMBED));
    m->head = m->tied   ? m->tied
              : c->tied ? m->embed
                        : at_tensor(m->w, bt_params_get(&m->params, -1, BT_P_HEAD));
    m->final_rstd = bt_arena_at(&m->scratch_arena, p->final_rstd);
    m->row_loss = bt_arena_at(&m->scratch_arena, p->row_loss);
    m->logits = bt_arena_at(&m->scratch_arena, p->logits);
    m->logits_rows = p->logits_rows;
    if (head_int8(&m->setup)) {
        bt_arena *a = &m->scratch_arena;
        m->head8 = (bt_head8){{bt_arena_at(a, p->head_packed), bt_arena_at(a, p->head_scale)},
                              bt_arena_at(a, p->head_xq),
                              bt_arena_at(a, p->head_dq),
                              {m->noise_rows, (uint32_t)bt_hash_name("head"),
                               (uint32_t)(m->tp ? m->tp->vocab0 : 0)}};
    }
    m->rope_cos = bt_arena_at(&m->scratch_arena, p->rope_cos);
    m->rope_sin = bt_arena_at(&m->scratch_arena, p->rope_sin);
    m->pos = bt_arena_at(&m->scratch_arena, p->pos);
    m->block = bt_acts_block(&m->setup, (size_t)m->setup.B * (size_t)c->T);
    fill_rope(m);
    bt_model_grads_into(m, NULL);
}

/* kernel scratch for every product, its two gradients, the head and attention */
static bt_code plan_kernels(const bt_model *m, bt_err *err) {
    const bt_model_cfg *c = &m->setup.cfg;
    size_t M = (size_t)m->setup.B * (size_t)c->T, T = (size_t)c->T, D = (size_t)c->D;
    const bt_layer *l = &m->layers[0];
    const bt_linear *linears[] = {&l->q, &l->k, &l->o, &l->gate, &l->down};
    for (size_t i = 0; i < sizeof linears / sizeof *linears; i++) {
        size_t N = linears[i]->N, K = linears[i]->K;
        BT_TRY(bt_ops_plan(M, N, K, T, D, NULL, err));
        BT_TRY(bt_ops_plan(M, K, N, T, D, NULL, err));
        if (m->setup.train) BT_TRY(bt_ops_plan(N, K, M, T, D, NULL, err));
    }
    size_t rows = m->logits_rows, V = (size_t)c->V, C = (size_t)c->C;
    if (!bt_slice_is_last_stage(m->setup.slice)) return BT_OK;
    BT_TRY(bt_ops_plan(rows, V, C, T, D, NULL, err));
    if (!m->setup.train) return BT_OK;
    BT_TRY(bt_ops_plan(rows, C, V, T, D, NULL, err));
    return bt_ops_plan(V, C, rows, T, D, NULL, err);
}

bt_code bt_model_create(bt_model **out, const bt_model_setup *s, bt_err *err) {
    *out = NULL;
    if (s->B < 1)
        return bt_fail(err, BT_ARG, "a micro-batch of %d sequences is impossible: at least 1",
                       s->B);
    bt_model *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot take memory for a model");
    m->setup = *s;
    m->whole = s->cfg;
    memory_plan p = {0};
    bool part = split(s);
    bt_code code = bt_params_init(&m->params, &s->cfg, s->slice, err);
    if (code == BT_OK) code = bt_slice_cfg(&m->setup.cfg, &s->cfg, s->slice, err);
    if (code == BT_OK && part && (!s->tp_group || s->tp_group->size != tp_size(s)))
        code = bt_fail(err, BT_ARG, "part %d of %d of a model needs its tensor-parallel group",
                       s->slice.tp_rank, s->slice.tp_size);
    if (code == BT_OK && s->leaves > 1 &&
        (!bt_leaves_fit(&s->cfg, s->leaves) || !bt_leaves_divide(s->leaves, tp_size(s))))
        code = bt_fail(err, BT_ARG, "a model cannot be divided into %d equal parts for %d ranks",
                       s->leaves, tp_size(s));
    if (code != BT_OK) goto done;
    if (part) m->tp = calloc(1, sizeof *m->tp);
    m->totals = calloc(m->params.n * (1 + (part ? (size_t)tp_size(s) : 0)), sizeof *m->totals);
    m->layers = calloc((size_t)m->setup.cfg.L, sizeof *m->layers);
    m->first_layer = bt_slice_layers(&s->cfg, s->slice).first;
    m->quant_sums = calloc(bt_model_quant_sums(m) + 1, sizeof *m->quant_sums);
    p.codes = calloc(m->params.n, sizeof *p.codes);
    p.packed = calloc(m->params.n, sizeof *p.packed);
    p.packed2 = calloc(m->params.n, sizeof *p.packed2);
    if (!m->layers || !m->quant_sums || !m->totals || (part && !m->tp) || !p.codes || !p.packed ||
        !p.packed2) {
        code = bt_fail(err, BT_NOMEM, "cannot take memory for %d layers", s->cfg.L);
        goto done;
    }
    plan_memory(&p, &m->setup, &m->params, &s->cfg);
    m->params_arena = p.params;
    m->grads_arena = p.grads;
    m->quant_arena = p.quant;
    m->acts_arena = p.acts;
    m->scratch_arena = p.scratch;
    bt_arena *arenas[] = {&m->params_arena, &m->grads_arena, &m->quant_arena, &m->acts_arena,
                          &m->scratch_arena};
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas && code == BT_OK; i++)
        code = bt_arena_commit(arenas[i], err);
    if (code != BT_OK) goto done;
    wire(m, &p);
    bt_model_noise(m, 0, 0, 0);
    code = plan_kernels(m, err);
done:
    free(p.codes);
    free(p.packed);
    free(p.packed2);
    if (code != BT_OK)
        bt_model_destroy(m);
    else
        *out = m;
    return code;
}

void bt_model_destroy(bt_model *m) {
    if (!m) return;
    bt_arena_release(&m->params_arena);
    bt_arena_release(&m->grads_arena);
    bt_arena_release(&m->quant_arena);
    bt_arena_release(&m->acts_arena);
    bt_arena_release(&m->scratch_arena);
    free(m->layers);
    free(m->quant_sums);
    free(m->totals);
    free(m->tp);
    bt_params_release(&m->params);
    free(m);
}

const bt_model_cfg *bt_model_config(const bt_model *m) { return &m->whole; }
bt_model_slice bt_model_slice_of(const bt_model *m) { return m->setup.slice; }
const bt_params *bt_model_params(const bt_model *m) { return &m->params; }
float *bt_model_weights(bt_model *m) { return m->w; }
float *bt_model_grads(bt_model *m) { return m->own_g; }
void bt_model_source(bt_model *m, bt_layer_source *s) { m->source = s; }

/* ---- one micro-batch ------------------------------------------------------------------------- */
/* Head and loss; with dscale, also their gradient: a.dxn = d(normed residual), and the head's. */
static double head_loss(bt_model *m, const int32_t *targets, float dscale) {
    const bt_model_cfg *c = &m->setup.cfg;
    size_t M = (size_t)m->setup.B * (size_t)c->T;
    bt_rows own = bt_net_own(m, M);
    bt_op_rmsnorm(m->layers[0].a.xn + own.first * (size_t)c->C, m->final_rstd + own.first,
                  m->x_final, m->final_norm.w, (float)c->norm_eps, own.n, (size_t)c->C);
    return bt_net_head_loss(m, targets, dscale, M);
}

double bt_model_train_micro(bt_model *m, const int32_t *inputs, const int32_t *targets,
                            double grad_scale, bt_grad_ready_fn ready, void *ready_ctx) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_acts *a = &m->layers[0].a;
    size_t B = (size_t)m->setup.B, T = (size_t)c->T;
    bt_net_forward(m, inputs, B, T);
    bt_span_begin(BT_MR_BWD);
    int64_t begin = bt_span_ns(BT_MR_BWD);
    double loss = head_loss(m, targets, (float)grad_scale);
    /* of the head's three products one is forward */
    bt_span_transfer(BT_MR_FWD, (bt_span_ns(BT_MR_BWD) - begin) / 3);
    if (!c->tied) bt_net_ready(m, bt_params_get(&m->params, -1, BT_P_HEAD), ready, ready_ctx);
    bt_net_norm_bwd(m, &m->final_norm, a->dx, bt_net_own_sum(m, a->dxn, B * T), m->x_final,
                    m->final_rstd, 0, B * T);
    bt_net_ready(m, m->final_norm.tensor, ready, ready_ctx);
    bt_net_backward(m, inputs, B, T, ready, ready_ctx);
    bt_span_end();
    return loss;
}

double bt_model_eval_micro(bt_model *m, const int32_t *inputs, const int32_t *targets) {
    bt_net_forward(m, inputs, (size_t)m->setup.B, (size_t)m->setup.cfg.T);
    return head_loss(m, targets, 0.0f);
}
