/* model_memory.c - computes the sizes and the positions of all arrays of a model. */
#include "engine/model/create/model_memory.h"

#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/ternary.h"

enum { LOGITS_BYTES = 16 << 20, LOGITS_LEAST = 256, LOGITS_FROZEN = 64, LOGITS_ROWS8 = 128 };

static size_t logits_rows(size_t V, size_t M, size_t least) {
    size_t rows = (size_t)LOGITS_BYTES / (V * sizeof(float)) / 64 * 64;
    if (rows < least) rows = least;
    return rows < M ? rows : M;
}

/* A frozen head has no gradient, and an int8 copy of it would be the second largest array. */
bool bt_model_head_int8(const bt_model_setup *s) {
    return s->train && s->grad_int8 && bt_slice_is_last_stage(s->slice) && !bt_net_keeps_base(s);
}

bool bt_model_head_rows(const bt_model_setup *s) {
    return s->lean && bt_net_keeps_base(s) && s->grad_int8 && !s->cfg.classes &&
           bt_slice_is_last_stage(s->slice) && !bt_tp_needed(s);
}

/* Returns the bytes of a rank's vocabulary as int8 rows, or as leaves that are packed separately. */
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

size_t bt_model_ranges(const bt_model_setup *s, const bt_tensor *t) {
    return bt_leaves_packed(&s->cfg, s->slice, s->leaves, t);
}

size_t bt_model_packed_bytes(const bt_model_setup *s, const bt_tensor *t) {
    return bt_model_group_bytes(s, t) * (t->cols / bt_scale_inputs(s->cfg.scale, t->cols));
}

size_t bt_model_group_bytes(const bt_model_setup *s, const bt_tensor *t) {
    const size_t rows = t->rows / bt_model_ranges(s, t),
                 cols = bt_scale_inputs(s->cfg.scale, t->cols);
    const size_t bytes = bt_net_keeps_base(s) ? bt_active_kernels()->packed_2bit_bytes(rows, cols)
                                              : bt_active_kernels()->tern_bytes(rows, cols);
    return (bytes + 63) / 64 * 64;
}

bool bt_model_tied_copy(const bt_model_setup *s) {
    return s->cfg.tied && !s->cfg.classes && bt_slice_is_last_stage(s->slice) &&
           !bt_slice_is_first_stage(s->slice);
}

bool bt_model_tables8(const bt_model_setup *s) {
    return (s->lean || s->base_q8) && bt_net_keeps_base(s);
}

/* Returns the number of columns of the widest int8 matrix. */
static size_t widest_table8(const bt_model_setup *s) {
    const bt_model_cfg *c = &s->cfg;
    const size_t inputs = bt_max_size((size_t)c->H * (size_t)c->D, (size_t)c->F);
    return bt_net_layers8(s) ? bt_max_size((size_t)c->C, inputs) : (size_t)c->C;
}

bool bt_model_fits_q8(const bt_model_setup *s) {
    bt_model_cfg own;
    const size_t leaves = bt_max_size(1, bt_slice_leaves(s->slice, s->leaves));
    if (bt_slice_cfg(&own, &s->cfg, s->slice, NULL) != BT_OK)
        return true; /* bt_model_create reports it */
    return (size_t)own.C % BT_Q8_BLOCK == 0 &&
           (size_t)own.H * (size_t)own.D % (leaves * BT_Q8_BLOCK) == 0 &&
           (size_t)own.F % (leaves * BT_Q8_BLOCK) == 0;
}

bool bt_model_tied_bf16(const bt_model_setup *s) {
    return s->weight_source != BT_WEIGHTS_LOCAL && bt_net_reads_bf16(s->prec);
}

/* Returns the index of the first layer of the slice, whose panels all other layers reuse. */
static int first_layer(const bt_params *params) {
    int first = -1;
    for (size_t i = 0; i < params->n && first < 0; i++) first = params->tensors[i].layer;
    return first;
}

/* Plans buffers for values that are received from their owners; buffers for codes are planned elsewhere. */
static void plan_values(bt_model_memory *p, const bt_model_setup *s, const bt_params *params) {
    const int first = first_layer(params);
    for (size_t i = 0; i < params->n && s->weight_source != BT_WEIGHTS_LOCAL; i++) {
        const bt_tensor *t = &params->tensors[i];
        const bool eight = bt_net_table8(s, t), blocks = t->linear && bt_net_layers8(s);
        if (t->tern || (!eight && !bt_model_shares_out(t, s->prec))) continue;
        bool again = s->weight_source == BT_WEIGHTS_PREFETCHED && t->layer > first;
        size_t bytes = eight || blocks
                           ? bt_net_int8_values(t->rows, t->cols, !s->lean || blocks) + t->count
                           : bt_read_bytes(bt_model_read(t, s->prec), t->count),
               at = again ? 0 : bt_arena_reserve(&p->quant, bytes, 1);
        if (!p->packed) continue;
        p->packed[i] = again ? p->packed[bt_params_get(params, first, t->id) - params->tensors]
                             : at;
    }
}

static void plan_ternary(bt_model_memory *p, const bt_model_setup *s, const bt_params *params) {
    const int first = first_layer(params);
    const bool base = bt_net_keeps_base(s);
    size_t longest = 0;
    for (size_t i = 0; i < params->n; i++) {
        const bt_tensor *t = &params->tensors[i];
        if (!t->tern) continue;
        if (t->count > longest) longest = t->count;
        bool again = s->weight_source == BT_WEIGHTS_PREFETCHED && t->layer > first;
        size_t codes = s->weight_source == BT_WEIGHTS_LOCAL
                           ? bt_arena_reserve(&p->quant, t->count, 1)
                           : 0;
        size_t packed = again
                            ? 0
                            : bt_arena_reserve(&p->quant,
                                               bt_model_ranges(s, t) * bt_model_packed_bytes(s, t),
                                               1);
        const size_t inputs = bt_scale_inputs(s->cfg.scale, t->cols), groups = t->count / inputs;
        size_t packed2 = s->train ? 0
                                  : bt_arena_reserve(&p->quant, groups, bt_tern2_row_bytes(inputs));
        size_t scales = s->cfg.scale != BT_SCALE_TENSOR
                            ? bt_arena_reserve(&p->quant, groups, sizeof(float))
                            : 0;
        size_t by_group = s->cfg.scale > BT_SCALE_ROW
                              ? bt_arena_reserve(&p->quant, groups, sizeof(float))
                              : 0;
        if (!p->codes) continue;
        p->scales[i] = scales;
        p->by_group[i] = by_group;
        p->codes[i] = codes;
        p->packed[i] = again ? p->packed[bt_params_get(params, first, t->id) - params->tensors]
                             : packed;
        p->packed2[i] = packed2;
    }
    if (s->weight_source != BT_WEIGHTS_LOCAL && longest && !base)
        p->taken = bt_arena_reserve(&p->quant, longest, 1);
}

/* Plans one flat array or, if some tensors are bf16, an array for each tensor. */
static void plan_latent(bt_model_memory *p, const bt_model_setup *s, const bt_params *params) {
    if (!bt_net_latent_apart(s)) {
        p->w = bt_arena_reserve(&p->params, params->total, sizeof(float));
        return;
    }
    for (size_t i = 0; i < params->n; i++) {
        const bt_tensor *t = &params->tensors[i];
        const size_t at = bt_arena_reserve(&p->params, t->count,
                                           bt_moment_bytes(bt_model_latent_form(s, t)));
        if (p->latent) p->latent[i] = at;
    }
}

static void plan_adapters(bt_model_memory *p, const bt_model_setup *s) {
    const bt_model_cfg *c = &s->cfg;
    size_t widest = bt_max_size(widest_output(c), (size_t)c->C), rank = (size_t)c->lora.rank;
    p->lora_x = bt_arena_reserve(&p->scratch, BT_ADAPTER_CHUNK * widest, sizeof(float));
    p->lora_u = bt_arena_reserve(&p->scratch, BT_ADAPTER_CHUNK * rank, sizeof(float));
    p->lora_du = bt_arena_reserve(&p->scratch, BT_ADAPTER_CHUNK * rank, sizeof(float));
    if (c->lora.dora)
        p->lora_y = bt_arena_reserve(&p->scratch, BT_ADAPTER_CHUNK * widest, sizeof(float));
    if (c->lora.dora && s->train && s->drops_lora) {
        p->lora_xq = bt_arena_reserve(&p->scratch, BT_ADAPTER_CHUNK * widest, 1);
        p->lora_dq = bt_arena_reserve(&p->scratch, BT_ADAPTER_CHUNK, sizeof(float));
    }
}

/* Codes of one group of a matrix, or all groups of rows of an input. */
static size_t gathered_bytes(const bt_model_cfg *c, const bt_params *params) {
    size_t most = BT_SCALED_ROWS * widest_output(c);
    for (size_t i = 0; i < params->n; i++) {
        const bt_tensor *t = &params->tensors[i];
        if (t->tern) most = bt_max_size(most, t->rows * bt_scale_inputs(c->scale, t->cols));
    }
    return most;
}

static void plan_relation(bt_model_memory *p, const bt_model_setup *s, size_t M) {
    const size_t heads = (size_t)(s->cfg.H + 2 * s->cfg.KV) * (size_t)s->cfg.D;
    p->relation = bt_arena_reserve(&p->scratch, M * heads, sizeof(float));
    if (!s->taught) return;
    p->relation_grads = bt_arena_reserve(&p->scratch, M * heads, sizeof(float));
    p->relation_rows = bt_arena_reserve(
        &p->scratch, (size_t)2 * BT_RELATION_ROWS * (size_t)s->cfg.T, sizeof(float));
    p->relation_losses = bt_arena_reserve(&p->scratch, M, sizeof(double));
}

void bt_model_memory_plan(bt_model_memory *p, const bt_model_setup *s, const bt_params *params,
                          const bt_params *adapters, const bt_model_cfg *whole) {
    const bt_model_cfg *c = &s->cfg;
    size_t M = (size_t)s->B * (size_t)c->T;
    bt_arena_plan(&p->params, "params");
    plan_latent(p, s, params);
    bt_arena_plan(&p->grads, "grads");
    if (adapters->n) p->adapter_w = bt_arena_reserve(&p->params, adapters->total, sizeof(float));
    if (whole->lora.dora)
        p->row_norms = bt_arena_reserve(&p->params, BT_DORA_ARRAYS * bt_dora_rows(adapters),
                                        sizeof(float));
    if (s->train)
        p->g = bt_arena_reserve(&p->grads, adapters->n ? adapters->total : params->total,
                                sizeof(float));
    bt_arena_plan(&p->quant, "quantised");
    plan_ternary(p, s, params);
    plan_values(p, s, params);
    if (s->fades) p->fade = bt_arena_reserve(&p->quant, bt_net_fade_elems(params), sizeof(float));
    if (bt_model_tied_copy(s) && bt_model_tables8(s)) {
        const size_t V = (size_t)c->V, C = (size_t)c->C;
        p->tied = bt_arena_reserve(&p->quant, bt_net_int8_values(V, C, !s->lean) + V * C, 1);
    } else if (bt_model_tied_copy(s)) {
        bool half = bt_model_tied_bf16(s);
        p->tied = bt_arena_reserve(half ? &p->quant : &p->params, (size_t)c->V * (size_t)c->C,
                                   half ? sizeof(uint16_t) : sizeof(float));
        if (!adapters->n)
            p->d_tied = bt_arena_reserve(&p->grads, (size_t)c->V * (size_t)c->C, sizeof(float));
    }
    bt_arena_plan(&p->acts, "activations");
    bt_acts_reserve(&p->acts_plan, &p->acts, s);
    p->x_final = s->train && !bt_acts_lean(s)
                     ? bt_arena_reserve(&p->acts, bt_slice_rows(s, M) * (size_t)c->C, sizeof(float))
                     : 0;
    bt_arena_plan(&p->scratch, "scratch");
    /* Gradients of norms are sums over these rows. */
    if (bt_slice_is_last_stage(s->slice))
        p->logits_rows = logits_rows(s->leaves > 1 ? (size_t)whole->V : (size_t)c->V, M,
                                     bt_model_head_rows(s)   ? LOGITS_ROWS8
                                     : bt_net_keeps_base(s)  ? LOGITS_FROZEN
                                     : bt_model_head_int8(s) ? BT_GRAD_BLOCK
                                                             : LOGITS_LEAST);
    if (bt_model_tables8(s))
        p->wide = bt_arena_reserve(&p->scratch, (size_t)BT_TABLE8_ROWS * widest_table8(s),
                                   bt_net_reads_bf16(s->prec) ? sizeof(uint16_t) : sizeof(float));
    p->final_rstd = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->row_loss = bt_arena_reserve(&p->scratch, M, sizeof(float));
    p->counted = bt_arena_reserve(&p->scratch, 2 * M, sizeof(int32_t));
    p->head_slopes = s->train && c->logit_cap > 0 ? bt_arena_reserve(&p->scratch, M, sizeof(float))
                                                  : 0;
    p->logits = bt_arena_reserve(&p->scratch, p->logits_rows * bt_ops_logits_ld((size_t)c->V),
                                 sizeof(float));
    const size_t rotations = ((size_t)c->T + bt_model_short_rows(c)) * (size_t)c->D / 2;
    p->rope_cos = bt_arena_reserve(&p->scratch, rotations, sizeof(float));
    p->rope_sin = bt_arena_reserve(&p->scratch, rotations, sizeof(float));
    if (c->rope_local_theta > 0) {
        p->local_cos = bt_arena_reserve(&p->scratch, (size_t)c->T * (size_t)c->D / 2,
                                        sizeof(float));
        p->local_sin = bt_arena_reserve(&p->scratch, (size_t)c->T * (size_t)c->D / 2,
                                        sizeof(float));
    }
    p->pos = bt_arena_reserve(&p->scratch, M, sizeof(int32_t));
    p->documents = s->documents ? bt_arena_reserve(&p->scratch, M, sizeof(bt_attn_document)) : 0;
    p->reference = s->pairs ? bt_arena_reserve(&p->scratch, M, sizeof(double)) : 0;
    p->row_weights = s->pairs && !s->cfg.lora.rank ? bt_arena_reserve(&p->scratch, M, sizeof(float))
                                                   : 0;
    if (s->taught)
        p->distil_parts = bt_arena_reserve(
            &p->scratch, (1 + (size_t)bt_tp_size(s)) * BT_DISTIL_ROWS, sizeof(bt_distil_part));
    if (bt_net_relates(s)) plan_relation(p, s, M);
    if (c->classes) {
        const size_t K = (size_t)c->classes;
        p->class_rows = bt_arena_reserve(&p->scratch, M, sizeof(int32_t));
        p->class_picked = bt_arena_reserve(&p->scratch, M, sizeof(int32_t));
        p->confusion = bt_arena_reserve(&p->scratch, K * K, sizeof(double));
    }
    p->noise_rows = s->train && s->grad_int8 ? bt_arena_reserve(&p->scratch, M, sizeof(uint32_t))
                                             : 0;
    p->lora_drop_rows = s->train && s->drops_lora
                            ? bt_arena_reserve(&p->scratch, M, sizeof(uint32_t))
                            : 0;
    p->drop_rows = s->train && s->drops ? bt_arena_reserve(&p->scratch, M, sizeof(uint32_t)) : 0;
    if (bt_model_head_int8(s)) {
        p->head_packed = bt_arena_reserve(&p->scratch, head8_bytes(s, whole), 1);
        p->head_scale = bt_arena_reserve(&p->scratch, (size_t)c->V, sizeof(float));
    }
    if (bt_model_head_int8(s) || bt_model_head_rows(s)) {
        p->head_xq = bt_arena_reserve(&p->scratch, p->logits_rows * (size_t)c->C, 1);
        p->head_dq = bt_arena_reserve(&p->scratch, p->logits_rows, sizeof(float));
    }
    if (adapters->n) plan_adapters(p, s);
    if (c->scale > BT_SCALE_ROW)
        p->gathered = bt_arena_reserve(&p->scratch, gathered_bytes(c, params), 1);
    if (c->scale != BT_SCALE_TENSOR)
        p->scaled = bt_arena_reserve(&p->scratch, bt_min_size(BT_SCALED_ROWS, M) * widest_output(c),
                                     sizeof(float));
    if (bt_tp_needed(s)) bt_tp_reserve(&p->tp, &p->scratch, s, whole);
}

bt_code bt_model_tables(bt_params *params, bt_params *adapters, const bt_model_cfg *whole,
                        bt_model_slice slice, bt_err *err) {
    const bt_model_cfg base = bt_params_base(whole);
    *adapters = (bt_params){0};
    BT_TRY(bt_params_init(params, &base, slice, err));
    bt_code code = whole->lora.rank ? bt_params_init(adapters, whole, slice, err) : BT_OK;
    if (code != BT_OK) bt_params_release(params);
    return code;
}

size_t bt_model_base_bytes(const bt_model_setup *s) {
    bt_arena_row rows[8];
    const size_t n = bt_net_keeps_base(s) ? bt_model_plan(s, rows, 8) : 0;
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, "quantised") == 0) return rows[i].bytes;
    return 0;
}

size_t bt_model_plan(const bt_model_setup *s, bt_arena_row *rows, size_t max) {
    bt_params params, adapters;
    bt_model_setup local = *s;
    if (s->B < 1 || bt_slice_cfg(&local.cfg, &s->cfg, s->slice, NULL) != BT_OK ||
        bt_model_tables(&params, &adapters, &s->cfg, s->slice, NULL) != BT_OK)
        return 0;
    const bool base = bt_net_keeps_base(s);
    if (base) {
        local.weight_source = BT_WEIGHTS_GATHERED;
        bt_net_compact_base(&params, s);
    }
    bt_model_memory p = {0};
    bt_model_memory_plan(&p, &local, &params, &adapters, &s->cfg);
    bt_params_release(&params);
    bt_params_release(&adapters);
    static const char *const quantised_why[] = {
        "ternary codes (1 byte, to count flips) and their packed forms",
        "weights in the format of the products, received from their owners: all layers; embedding "
        "and head",
        "weights in the format of the products, received from their owners: one layer; embedding "
        "and head"};
    const bt_arena_row all[] = {
        {"params", p.params.bytes,
         base                     ? "norms of the base, and the adapters, fp32"
         : bt_net_latent_apart(s) ? "latent weights: bf16 in ternary layers, else fp32"
                                  : "latent weights, fp32"},
        {"grads", p.grads.bytes, "their gradients, fp32"},
        {"quantised", p.quant.bytes,
         base ? bt_net_layers8(s)
                    ? "frozen base in the format of the products: int8 in blocks with a scale each"
                : s->cfg.linear == BT_LIN_DENSE
                    ? "frozen base in the format of the products: bf16, or fp32 if they multiply "
                      "fp32"
                    : "frozen base in the format of the products: ternary codes in 2 bits"
              : quantised_why[s->weight_source]},
        {"activations", p.acts.bytes,
         "saved for backward per layer, plus the gradients of the backward pass"},
        {"scratch", p.scratch.bytes, "one chunk of logits, rotary tables, positions"},
    };
    size_t n = sizeof all / sizeof *all;
    for (size_t i = 0; i < n && i < max; i++) rows[i] = all[i];
    return n < max ? n : max;
}
