/* model_create.c - creates a model: allocates its memory and connects each layer with the functions for its kind. */
#include <math.h>
#include <stdlib.h>

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/create/model_memory.h"

static bt_gain gain_of_tensor(bt_model *m, int layer, bt_param_id id) {
    const bt_tensor *t = bt_params_get(&m->params, layer, id);
    if (!t) return (bt_gain){0};
    return (bt_gain){.tensor = t, .w = m->latents[t - m->params.tensors].at};
}

/* Returns the number of magnitudes of tensors before t. */
static size_t rows_before(const bt_params *adapters, const bt_tensor *t) {
    size_t rows = 0;
    for (const bt_tensor *x = adapters->tensors; x < t; x++)
        if (x->row_norms) rows += x->rows;
    return rows;
}

static bt_adapter adapter_of_layer(bt_model *m, int layer, bt_param_id id) {
    const bt_tensor *ta = bt_params_get(&m->adapters, layer, bt_adapter_a(id)),
                    *tb = bt_params_get(&m->adapters, layer, bt_adapter_b(id)),
                    *tm = bt_params_get(&m->adapters, layer, bt_adapter_m(id));
    if (!ta || !tb) return (bt_adapter){0};
    bt_adapter a = {.a_tensor = ta,
                    .b_tensor = tb,
                    .m_tensor = tm,
                    .a = m->adapter_w + ta->offset,
                    .b = m->adapter_w + tb->offset,
                    .rank = ta->rows,
                    .chunk = BT_ADAPTER_CHUNK,
                    .scale = (float)m->whole.lora.scale,
                    .x = m->lora_x,
                    .u = m->lora_u,
                    .du = m->lora_du,
                    .y = m->lora_y,
                    .rounded = bt_net_reads_bf16(m->setup.prec),
                    .model = m};
    if (!tm) return a;
    a.m = m->adapter_w + tm->offset;
    a.norms = m->row_norms + BT_DORA_ARRAYS * rows_before(&m->adapters, tm);
    a.inverse = a.norms + tm->rows;
    a.factors = a.inverse + tm->rows;
    a.less = a.factors + tm->rows;
    a.xq = m->lora_xq;
    a.dq = m->lora_dq;
    return a;
}

/* Returns a table of int8 values (rows, cols) in `memory`. blocks: a scale for each block, else for each row. */
static bt_table make_int8_table(const bt_model *m, const bt_model_memory *p, const void *memory,
                                size_t rows, size_t cols, bool blocks) {
    return (bt_table){.i8 = (const int8_t *)memory + bt_net_int8_values(rows, cols, blocks),
                      .scale = blocks ? NULL : memory,
                      .half_scale = blocks ? memory : NULL,
                      .wide = bt_arena_at(&m->scratch_arena, p->wide),
                      .width = cols};
}

static bt_linear make_linear(bt_model *m, const bt_model_memory *p, int layer, bt_param_id id) {
    const bt_tensor *t = bt_params_get(&m->params, layer, id);
    size_t i = (size_t)(t - m->params.tensors);
    bt_linear l = {.tensor = t, .N = t->rows, .K = t->cols, .dx_ld = t->cols, .tern = t->tern};
    l.scale_cols = bt_scale_inputs(m->setup.cfg.scale, t->cols);
    const bool base = bt_net_keeps_base(&m->setup);
    l.w = m->latents[i];
    l.values = (bt_table){.f32 = l.w.form == BT_MOMENT_F32 ? l.w.at : NULL};
    if (!t->tern && m->setup.weight_source != BT_WEIGHTS_LOCAL) {
        l.panel = bt_arena_at(&m->quant_arena, p->packed[i]);
        l.values = bt_net_layers8(&m->setup)
                       ? make_int8_table(m, p, l.panel, t->rows, t->cols, true)
                   : bt_model_read(t, m->setup.prec) == BT_READ_BF16 ? (bt_table){.bf16 = l.panel}
                                                                     : (bt_table){.f32 = l.panel};
    }
    l.ranges = bt_model_ranges(&m->setup, t);
    l.prec = m->setup.prec;
    l.contributes_dx = m->setup.leaves <= 1 || t->first_counted < t->count;
    l.first_row = t->row0;
    if (t->tern) {
        l.packed_bytes = bt_model_packed_bytes(&m->setup, t);
        l.codes = m->setup.weight_source == BT_WEIGHTS_LOCAL
                      ? bt_arena_at(&m->quant_arena, p->codes[i])
                      : NULL;
        l.packed_2bit = base;
        l.packed = bt_arena_at(&m->quant_arena, p->packed[i]);
        l.packed2 = m->setup.train ? NULL : bt_arena_at(&m->quant_arena, p->packed2[i]);
        if (m->setup.cfg.scale != BT_SCALE_TENSOR) {
            l.scale = 1;
            l.scales = bt_arena_at(&m->quant_arena, p->scales[i]);
            l.scaled = bt_arena_at(&m->scratch_arena, p->scaled);
        }
        if (m->setup.cfg.scale > BT_SCALE_ROW) {
            l.by_group = bt_arena_at(&m->quant_arena, p->by_group[i]);
            l.gathered = bt_arena_at(&m->scratch_arena, p->gathered);
        }
        l.group_bytes = bt_model_group_bytes(&m->setup, t);
        l.noise = (bt_noise){m->noise_rows, (uint32_t)bt_hash_name(t->name), 0};
    }
    l.ops = bt_linear_ops_of(&l);
    if (m->adapters.n) {
        l.frozen = l.ops;
        l.ops = l.adapted = &bt_adapter_ops;
        l.adapter = adapter_of_layer(m, layer, id);
    }
    return l;
}

static int layer_number(const bt_model *m, int i) {
    const bt_chunk *c = m->chunks;
    while (i >= c->first + c->n) c++;
    return c->number + i - c->first;
}

static void connect_layer(bt_model *m, const bt_model_memory *p, int i) {
    const bt_model_cfg *c = &m->setup.cfg;
    bt_layer *l = &m->layers[i];
    bool tern = c->linear != BT_LIN_DENSE, normed = c->norm != BT_NORM_PRE;
    size_t C = (size_t)c->C, HD = (size_t)c->H * (size_t)c->D, F = (size_t)c->F;
    float eps = (float)c->norm_eps;
    int n = layer_number(m, i);
    l->attn_in = (bt_linear_input){.K = C,
                                   .normed = true,
                                   .tern = tern,
                                   .gain = gain_of_tensor(m, n, BT_P_ATTN_NORM),
                                   .eps = eps,
                                   .whole_K = C};
    l->o_in = (bt_linear_input){.K = HD,
                                .normed = normed,
                                .tern = tern,
                                .gain = gain_of_tensor(m, n, BT_P_ATTN_SUBNORM),
                                .eps = eps,
                                .whole_K = (size_t)m->whole.H * (size_t)c->D};
    l->ffn_in = (bt_linear_input){.K = C,
                                  .normed = true,
                                  .tern = tern,
                                  .gain = gain_of_tensor(m, n, BT_P_FFN_NORM),
                                  .eps = eps,
                                  .whole_K = C};
    l->down_in = (bt_linear_input){.K = F,
                                   .normed = normed,
                                   .tern = tern,
                                   .gain = gain_of_tensor(m, n, BT_P_FFN_SUBNORM),
                                   .eps = eps,
                                   .whole_K = (size_t)m->whole.F};
    bt_net_point(m, i, 0);
    bt_linear_input *inputs[] = {&l->attn_in, &l->o_in, &l->ffn_in, &l->down_in};
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
        inputs[k]->ops = bt_input_ops_of(inputs[k]);
    l->q_norm = gain_of_tensor(m, n, BT_P_Q_NORM);
    l->k_norm = gain_of_tensor(m, n, BT_P_K_NORM);
    l->attn_post = gain_of_tensor(m, n, BT_P_ATTN_POST_NORM);
    l->ffn_post = gain_of_tensor(m, n, BT_P_FFN_POST_NORM);
    l->q_bias = gain_of_tensor(m, n, BT_P_ATTN_Q_BIAS);
    l->k_bias = gain_of_tensor(m, n, BT_P_ATTN_K_BIAS);
    l->v_bias = gain_of_tensor(m, n, BT_P_ATTN_V_BIAS);
    l->q = make_linear(m, p, n, BT_P_ATTN_Q);
    l->k = make_linear(m, p, n, BT_P_ATTN_K);
    l->v = make_linear(m, p, n, BT_P_ATTN_V);
    l->o = make_linear(m, p, n, BT_P_ATTN_O);
    l->gate = make_linear(m, p, n, BT_P_FFN_GATE);
    l->up = make_linear(m, p, n, BT_P_FFN_UP);
    l->down = make_linear(m, p, n, BT_P_FFN_DOWN);
    if (bt_tp_needed(&m->setup)) bt_tp_wire_layer(m, l);
    bt_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t k = 0; k < sizeof linears / sizeof *linears; k++) bt_dora_wire(linears[k]);
    l->glu = bt_glu_of(l);
}

/* Computes in float like the published implementations, so that an imported model rotates by the same angles. */
static void fill_rotation_table(const bt_model_cfg *c, float *cosines, float *sines, double theta,
                                const bt_rope_scaling *scaling, int length) {
    const size_t dims = bt_model_rotary(c), half = dims / 2;
    const float by = (float)bt_rope_attention(scaling);
    for (size_t i = 0; i < half; i++) {
        const float freq = bt_rope_frequency((int)i, theta, scaling, (int)dims, length);
        for (size_t t = 0; t < (size_t)length; t++) {
            cosines[t * half + i] = by * cosf((float)t * freq);
            sines[t * half + i] = by * sinf((float)t * freq);
        }
    }
}

static void fill_rotations(bt_model *m, const bt_model_memory *p) {
    const bt_model_cfg *c = &m->setup.cfg;
    const bt_rope_scaling none = {0};
    m->local_cos = m->rope_cos = bt_arena_at(&m->scratch_arena, p->rope_cos);
    m->local_sin = m->rope_sin = bt_arena_at(&m->scratch_arena, p->rope_sin);
    fill_rotation_table(c, m->rope_cos, m->rope_sin, c->rope_theta, &c->rope, c->T);
    const int shorter = (int)bt_model_short_rows(c);
    const size_t behind = (size_t)c->T * bt_model_rotary(c) / 2;
    fill_rotation_table(c, m->rope_cos + behind, m->rope_sin + behind, c->rope_theta, &c->rope,
                        shorter);
    if (!(c->rope_local_theta > 0)) return;
    m->local_cos = bt_arena_at(&m->scratch_arena, p->local_cos);
    m->local_sin = bt_arena_at(&m->scratch_arena, p->local_sin);
    fill_rotation_table(c, m->local_cos, m->local_sin, c->rope_local_theta, &none, c->T);
}

/* Returns the frozen embedding or head whose int8 values begin at offset `at` of the arena. */
static bt_table frozen_int8_table(const bt_model *m, const bt_model_memory *p, size_t at) {
    return make_int8_table(m, p, bt_arena_at(&m->quant_arena, at), (size_t)m->setup.cfg.V,
                           (size_t)m->setup.cfg.C, !m->setup.lean);
}

/* Returns the embedding or the head: the latent weights, or the table that the owners of the weights fill. */
static bt_table vocabulary_table(const bt_model *m, const bt_model_memory *p, bt_param_id id) {
    const bt_tensor *t = bt_params_get(&m->params, -1, id);
    bool half = bt_net_reads_bf16(m->setup.prec);
    if (!t) return (bt_table){0};
    if (bt_net_table8(&m->setup, t))
        return frozen_int8_table(m, p, p->packed[t - m->params.tensors]);
    if (half && m->setup.weight_source != BT_WEIGHTS_LOCAL)
        return (bt_table){.bf16 = bt_arena_at(&m->quant_arena, p->packed[t - m->params.tensors])};
    return (bt_table){.f32 = m->latents[t - m->params.tensors].at, .rounded = half};
}

static bt_table copied_embedding(const bt_model *m, const bt_model_memory *p) {
    const bt_model_setup *s = &m->setup;
    if (!bt_model_tied_copy(s)) return (bt_table){0};
    if (bt_model_tables8(s)) return frozen_int8_table(m, p, p->tied);
    if (bt_model_tied_bf16(s)) return (bt_table){.bf16 = bt_arena_at(&m->quant_arena, p->tied)};
    return (bt_table){.f32 = bt_arena_at(&m->params_arena, p->tied),
                      .rounded = bt_net_reads_bf16(s->prec)};
}

static void connect_class_head(bt_model *m, const bt_model_memory *p) {
    bt_class_head *h = &m->classes;
    h->tensor = bt_params_get(bt_model_params(m), -1, BT_P_SCORE);
    h->w = h->tensor ? bt_model_latent(m, (size_t)(h->tensor - bt_model_params(m)->tensors)).at
                     : NULL;
    h->rows = bt_arena_at(&m->scratch_arena, p->class_rows);
    h->picked = bt_arena_at(&m->scratch_arena, p->class_picked);
    h->confusion = bt_arena_at(&m->scratch_arena, p->confusion);
}

static void connect_int8_head(bt_model *m, const bt_model_memory *p) {
    bt_arena *a = &m->scratch_arena;
    const bool rows = bt_model_head_rows(&m->setup);
    if (!rows && !bt_model_head_int8(&m->setup)) return;
    m->head8 = (bt_head8){.xq = bt_arena_at(a, p->head_xq),
                          .dq = bt_arena_at(a, p->head_dq),
                          .noise = {m->noise_rows, (uint32_t)bt_hash_name("head"),
                                    (uint32_t)bt_slice_vocab(&m->whole, m->setup.slice)}};
    m->head8.w =
        rows ? (bt_w8){(void *)(uintptr_t)m->head.i8, (float *)(uintptr_t)m->head.scale, true}
             : (bt_w8){bt_arena_at(a, p->head_packed), bt_arena_at(a, p->head_scale), false};
}

static void connect_latent_weights(bt_model *m, const bt_model_memory *p) {
    m->w = bt_net_latent_apart(&m->setup) ? NULL : bt_arena_at(&m->params_arena, p->w);
    for (size_t i = 0; i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        const bool none = t->linear && bt_net_keeps_base(&m->setup);
        m->latents[i] = (bt_latent){none   ? NULL
                                    : m->w ? m->w + t->offset
                                           : bt_arena_at(&m->params_arena, p->latent[i]),
                                    bt_model_latent_form(&m->setup, t)};
    }
}

static void connect_relation(bt_model *m, const bt_model_memory *p) {
    const bt_model_cfg *c = &m->setup.cfg;
    const size_t M = (size_t)m->setup.B * (size_t)c->T, T = (size_t)c->T, D = (size_t)c->D,
                 widths[BT_RELATIONS] = {(size_t)c->H * D, (size_t)c->KV * D, (size_t)c->KV * D};
    float *x = bt_arena_at(&m->scratch_arena, p->relation),
          *dx = m->setup.taught ? bt_arena_at(&m->scratch_arena, p->relation_grads) : NULL;
    bt_relation *r = &m->relation;
    r->layer = &m->layers[bt_net_layer(m, m->setup.relation_layer - 1)];
    for (int i = 0; i < BT_RELATIONS; i++) {
        r->width[i] = widths[i];
        r->x[i] = x;
        r->dx[i] = dx;
        x += M * widths[i];
        if (dx) dx += M * widths[i];
    }
    if (!dx) return;
    r->own_rows = bt_arena_at(&m->scratch_arena, p->relation_rows);
    r->taught_rows = r->own_rows + BT_RELATION_ROWS * T;
    r->losses = bt_arena_at(&m->scratch_arena, p->relation_losses);
}

static void connect_tensor_parallel(bt_model *m, const bt_model_memory *p) {
    const bt_model_cfg *c = &m->setup.cfg;
    if (bt_tp_needed(&m->setup)) bt_tp_wire(m, &p->tp);
    connect_latent_weights(m, p);
    if (m->adapters.n) {
        m->adapter_w = bt_arena_at(&m->params_arena, p->adapter_w);
        m->lora_x = bt_arena_at(&m->scratch_arena, p->lora_x);
        m->lora_u = bt_arena_at(&m->scratch_arena, p->lora_u);
        m->lora_du = bt_arena_at(&m->scratch_arena, p->lora_du);
    }
    if (m->whole.lora.dora) {
        m->lora_y = bt_arena_at(&m->scratch_arena, p->lora_y);
        m->row_norms = bt_arena_at(&m->params_arena, p->row_norms);
        m->lora_xq = m->setup.drops_lora ? bt_arena_at(&m->scratch_arena, p->lora_xq) : NULL;
        m->lora_dq = m->setup.drops_lora ? bt_arena_at(&m->scratch_arena, p->lora_dq) : NULL;
    }
    m->own_g = m->setup.train ? bt_arena_at(&m->grads_arena, p->g) : NULL;
    m->taken = m->setup.weight_source != BT_WEIGHTS_LOCAL && c->linear != BT_LIN_DENSE &&
                       !bt_net_keeps_base(&m->setup)
                   ? bt_arena_at(&m->quant_arena, p->taken)
                   : NULL;
    m->noise_rows = m->setup.train && m->setup.grad_int8
                        ? bt_arena_at(&m->scratch_arena, p->noise_rows)
                        : NULL;
    m->drop.rows = m->setup.train && m->setup.drops ? bt_arena_at(&m->scratch_arena, p->drop_rows)
                                                    : NULL;
    m->lora_drop.rows = m->setup.train && m->setup.drops_lora
                            ? bt_arena_at(&m->scratch_arena, p->lora_drop_rows)
                            : NULL;
    m->acts_plan = p->acts_plan;
    m->reference = m->setup.pairs ? bt_arena_at(&m->scratch_arena, p->reference) : NULL;
    m->row_weights = m->setup.pairs && !m->setup.cfg.lora.rank
                         ? bt_arena_at(&m->scratch_arena, p->row_weights)
                         : NULL;
    m->distil_parts = m->setup.taught ? bt_arena_at(&m->scratch_arena, p->distil_parts) : NULL;
    if (bt_net_relates(&m->setup)) connect_relation(m, p);
    if (c->classes) connect_class_head(m, p);
    m->lambda = 1;
    m->fade.panel = m->setup.fades ? bt_arena_at(&m->quant_arena, p->fade) : NULL;
    m->x_final = m->setup.train && !bt_acts_lean(&m->setup)
                     ? bt_arena_at(&m->acts_arena, p->x_final)
                     : NULL;
    for (int i = 0; i < c->L; i++) connect_layer(m, p, i);
    m->x_final = m->layers[c->L - 1].x_out;
    m->final_norm = gain_of_tensor(m, -1, BT_P_FINAL_NORM);
    bool copy = bt_model_tied_copy(&m->setup);
    m->tied = copied_embedding(m, p);
    m->d_tied = copy && m->setup.train && !m->adapters.n ? bt_arena_at(&m->grads_arena, p->d_tied)
                                                         : NULL;
    m->embed = vocabulary_table(m, p, BT_P_EMBED);
    m->head = copy ? m->tied : c->tied ? m->embed : vocabulary_table(m, p, BT_P_HEAD);
    m->final_rstd = bt_arena_at(&m->scratch_arena, p->final_rstd);
    m->row_loss = bt_arena_at(&m->scratch_arena, p->row_loss);
    m->counted = bt_arena_at(&m->scratch_arena, p->counted);
    m->logits = bt_arena_at(&m->scratch_arena, p->logits);
    m->logits_rows = p->logits_rows;
    m->head_form = (bt_head_form){.cap = (float)c->logit_cap,
                                  .slopes = m->setup.train && c->logit_cap > 0
                                                ? bt_arena_at(&m->scratch_arena, p->head_slopes)
                                                : NULL};
    connect_int8_head(m, p);
    m->pos = bt_arena_at(&m->scratch_arena, p->pos);
    m->documents = m->setup.documents ? bt_arena_at(&m->scratch_arena, p->documents) : NULL;
    m->heads_per_run = (size_t)c->H / bt_slice_leaves(m->setup.slice, m->setup.leaves);
    m->kv_runs = bt_leaves_kv_runs(c, m->setup.slice, m->setup.leaves);
    m->block = bt_acts_block(&m->setup, (size_t)m->setup.B * (size_t)c->T);
    if (bt_acts_again(&m->setup))
        m->again = bt_acts_wide(&m->setup, (size_t)m->setup.B * (size_t)c->T);
    fill_rotations(m, p);
    bt_model_grads_into(m, NULL);
}

static bt_code plan_adapter(const bt_model *m, size_t N, size_t K, bt_err *err) {
    size_t n = BT_ADAPTER_CHUNK, r = (size_t)m->whole.lora.rank, T = (size_t)m->whole.T,
           D = (size_t)m->whole.D;
    const size_t shapes[][3] = {{n, r, K}, {n, N, r}, {n, r, N}, {n, K, r}, {N, r, n}, {r, K, n}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        BT_TRY(bt_ops_plan(shapes[i][0], shapes[i][1], shapes[i][2], T, D, NULL, err));
    return BT_OK;
}

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
        if (m->adapters.n) BT_TRY(plan_adapter(m, N, K, err));
    }
    if (m->relation.dx[0]) {
        const size_t R = BT_RELATION_ROWS, N = m->relation.width[0];
        BT_TRY(bt_ops_plan(R, T, N, T, D, NULL, err));
        BT_TRY(bt_ops_plan(R, N, T, T, D, NULL, err));
        BT_TRY(bt_ops_plan(T, N, R, T, D, NULL, err));
    }
    size_t rows = m->logits_rows, V = (size_t)c->V, C = (size_t)c->C;
    if (!bt_slice_is_last_stage(m->setup.slice)) return BT_OK;
    BT_TRY(bt_ops_plan(rows, V, C, T, D, NULL, err));
    if (!m->setup.train) return BT_OK;
    BT_TRY(bt_ops_plan(rows, C, V, T, D, NULL, err));
    return bt_ops_plan(V, C, rows, T, D, NULL, err);
}

static void divide_layers_into_chunks(bt_model *m) {
    int first = 0;
    for (int k = 0; k < m->n_chunks; k++) {
        const bt_layer_run run = bt_slice_chunk(&m->whole, m->setup.slice, k);
        m->chunks[k] = (bt_chunk){.first = first, .n = run.n, .number = run.first};
        first += run.n;
    }
    m->chunk = m->chunks;
}

static size_t count_totals(const bt_model *m) {
    size_t rows = 0;
    for (size_t i = 0; m->setup.cfg.scale != BT_SCALE_TENSOR && i < m->params.n; i++) {
        const bt_tensor *t = &m->params.tensors[i];
        if (t->shard == BT_SHARD_COL)
            rows += t->count / bt_scale_inputs(m->setup.cfg.scale, t->cols);
    }
    return bt_max_size(m->params.n + (rows + 1) / 2, bt_dora_divided_rows(&m->adapters));
}

static size_t most_magnitudes(const bt_params *adapters) {
    size_t most = 1;
    for (size_t i = 0; i < adapters->n; i++)
        if (adapters->tensors[i].row_norms) most = bt_max_size(most, adapters->tensors[i].rows);
    return most;
}

/* Allocates everything but the arenas. */
static bt_code allocate_model(bt_model *m, bt_model_memory *p, bt_err *err) {
    m->layers = calloc((size_t)m->setup.cfg.L, sizeof *m->layers);
    m->chunks = calloc((size_t)m->n_chunks, sizeof *m->chunks);
    m->n_totals = count_totals(m);
    m->totals = calloc(m->n_totals, sizeof *m->totals);
    m->whole_rows = calloc(most_magnitudes(&m->adapters), sizeof *m->whole_rows);
    m->quant_sums = calloc(bt_model_quant_sums(m) + 1, sizeof *m->quant_sums);
    m->latents = calloc(m->params.n, sizeof *m->latents);
    p->latent = calloc(m->params.n, sizeof *p->latent);
    p->codes = calloc(m->params.n, sizeof *p->codes);
    p->packed = calloc(m->params.n, sizeof *p->packed);
    p->packed2 = calloc(m->params.n, sizeof *p->packed2);
    p->scales = calloc(m->params.n, sizeof *p->scales);
    p->by_group = calloc(m->params.n, sizeof *p->by_group);
    if (!m->layers || !m->chunks || !m->totals || !m->whole_rows || !m->quant_sums || !m->latents ||
        !p->latent || !p->codes || !p->packed || !p->packed2 || !p->scales || !p->by_group)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d layers", m->whole.L);
    divide_layers_into_chunks(m);
    return bt_tp_needed(&m->setup) ? bt_tp_create(m, err) : BT_OK;
}

static bt_code commit_arenas(bt_model *m, const bt_model_memory *p, bt_err *err) {
    m->params_arena = p->params;
    m->grads_arena = p->grads;
    m->quant_arena = p->quant;
    m->acts_arena = p->acts;
    m->scratch_arena = p->scratch;
    BT_TRY(bt_arena_commit(&m->params_arena, err));
    BT_TRY(bt_arena_commit(&m->grads_arena, err));
    if (m->setup.base_memory)
        m->quant_arena.base = m->setup.base_memory, m->quant_arena.borrowed = true;
    if (!m->quant_arena.borrowed) BT_TRY(bt_arena_commit(&m->quant_arena, err));
    BT_TRY(bt_arena_commit(&m->acts_arena, err));
    return bt_arena_commit(&m->scratch_arena, err);
}

static bt_code build_model(bt_model *m, bt_model_memory *p, bt_err *err) {
    const bt_model_setup *s = &m->setup;
    BT_TRY(bt_model_tables(&m->params, &m->adapters, &m->whole, s->slice, err));
    if (bt_net_keeps_base(s)) bt_net_compact_base(&m->params, s);
    BT_TRY(bt_slice_cfg(&m->setup.cfg, &m->whole, s->slice, err));
    m->n_chunks = bt_slice_chunks(s->slice);
    BT_TRY(allocate_model(m, p, err));
    bt_model_memory_plan(p, s, &m->params, &m->adapters, &m->whole);
    BT_TRY(commit_arenas(m, p, err));
    connect_tensor_parallel(m, p);
    bt_model_noise(m, 0, 0, 0);
    return plan_kernels(m, err);
}

bt_code bt_model_create(bt_model **out, const bt_model_setup *s, bt_err *err) {
    *out = NULL;
    if (s->B < 1)
        return bt_fail(err, BT_ARG, "a micro-batch has %d sequences but must have at least 1",
                       s->B);
    bt_model *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot allocate memory for a model");
    m->setup = *s;
    m->whole = s->cfg;
    if (bt_net_keeps_base(s)) m->setup.weight_source = BT_WEIGHTS_GATHERED;
    m->tp = &bt_tp_one_rank;
    bt_model_memory p = {0};
    bt_code code = build_model(m, &p, err);
    free(p.latent);
    free(p.codes);
    free(p.packed);
    free(p.packed2);
    free(p.scales);
    free(p.by_group);
    if (code != BT_OK)
        bt_model_destroy(m);
    else
        *out = m;
    return code;
}

static void destroy_single_model(bt_model *m) {
    bt_arena_release(&m->params_arena);
    bt_arena_release(&m->grads_arena);
    bt_arena_release(&m->quant_arena);
    bt_arena_release(&m->acts_arena);
    bt_arena_release(&m->scratch_arena);
    bt_tp_release(m);
    free(m->layers);
    free(m->chunks);
    free(m->quant_sums);
    free(m->totals);
    free(m->whole_rows);
    free(m->latents);
    bt_params_release(&m->params);
    bt_params_release(&m->adapters);
    free(m);
}

void bt_model_destroy(bt_model *m) {
    for (bt_model *next; m; m = next) {
        next = m->member;
        destroy_single_model(m);
    }
}
