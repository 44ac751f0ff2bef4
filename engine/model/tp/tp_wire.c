/* tp_wire.c - memory of a rank's slice, and the choice of its functions. */
#include <stdlib.h>

#include "engine/model/tp/tp_state.h"

#define SLICE_OPS \
    .own_rows = bt_tp_own_rows, .gather_input = bt_tp_gather_input, \
    .gather_grad = bt_tp_gather_grad, .reduce_grad = bt_tp_reduce_grad, \
    .add_product = bt_tp_add_product, .finish_product = bt_tp_finish_product, \
    .embed = bt_tp_embed, .embed_bwd = bt_tp_embed_bwd, .head_loss = bt_tp_head_loss, \
    .vocab = bt_tp_vocab, .gather_final = bt_tp_gather_final, .head_dx = bt_tp_head_dx, \
    .draw = bt_tp_draw, .complete_grad = bt_tp_complete_grad, .total_sums = bt_tp_total_sums, \
    .meet = bt_tp_synchronise

/* Functions of a slice whose sums only the group adds. */
static const bt_tp_ops slices = {SLICE_OPS, .dx = bt_one_rank_dx, .norm_bwd = bt_tp_norm_bwd,
                                 .heads_bwd = bt_one_rank_heads_bwd, .sum_kv = bt_one_rank_sum_kv};

/* Functions of a slice whose sums are trees of leaves, of which the group adds the upper branches. */
static const bt_tp_ops slices_of_leaves = {SLICE_OPS, .dx = bt_tp_leaves_dx,
                                           .norm_bwd = bt_tp_leaves_norm_bwd,
                                           .heads_bwd = bt_tp_leaves_heads_bwd,
                                           .sum_kv = bt_tp_leaves_sum_kv};

static size_t tree_levels(size_t leaves) { return leaves > 1 ? 1 + tree_levels(leaves / 2) : 0; }

static size_t shared_kv(const bt_model_setup *s, const bt_model_cfg *whole) {
    int n = s->slice.tp_size;
    return bt_slice_shared_kv(whole, (bt_model_slice){.tp_rank = n, .tp_size = n});
}

void bt_tp_reserve(bt_tp_memory *p, bt_arena *scratch, const bt_model_setup *s,
                   const bt_model_cfg *whole) {
    const bt_model_cfg *c = &s->cfg;
    size_t M = (size_t)s->B * (size_t)c->T, C = (size_t)c->C, D = (size_t)c->D;
    if (s->leaves > 1) {
        p->spare = bt_arena_reserve(
            scratch, tree_levels(bt_slice_leaves(s->slice, s->leaves)) * M * C, sizeof(float));
        size_t heads = (size_t)c->KV * D, norms = (size_t)s->leaves * (C > D ? C : D);
        p->gains = bt_arena_reserve(scratch, heads > norms ? heads : norms, sizeof(float));
    }
    size_t shared = shared_kv(s, whole);
    if (shared && s->train)
        p->shared_kv_sums = bt_arena_reserve(scratch, shared * (s->leaves > 1 ? M : C) * D,
                                             sizeof(float));
    const size_t rank = (size_t)whole->lora.rank;
    if (rank) {
        p->adapter_rows = bt_arena_reserve(scratch, M * rank, sizeof(float));
        p->adapter_spare = bt_arena_reserve(
            scratch,
            (1 + tree_levels(bt_slice_leaves(s->slice, s->leaves))) * BT_ADAPTER_CHUNK * rank,
            sizeof(float));
    }
    p->ones = bt_arena_reserve(scratch, M, sizeof(float));
    p->mine = bt_arena_reserve(scratch, M, sizeof(bt_row_stat));
    p->all = bt_arena_reserve(scratch, M * (size_t)bt_tp_size(s), sizeof(bt_row_stat));
    p->a = bt_arena_reserve(scratch, M, sizeof(float));
    p->b = bt_arena_reserve(scratch, M, sizeof(float));
    p->index = bt_arena_reserve(scratch, M, sizeof(int32_t));
}

bt_code bt_tp_create(bt_model *m, bt_err *err) {
    const bt_model_setup *s = &m->setup;
    int size = bt_tp_size(s);
    if (!s->tp_group || s->tp_group->size != size)
        return bt_fail(err, BT_ARG,
                       "slice %d of %d of a model has no tensor-parallel group of this size",
                       s->slice.tp_rank, size);
    if (s->leaves > 1 &&
        (!bt_leaves_fit(&m->whole, s->leaves) || !bt_leaves_divide(s->leaves, size)))
        return bt_fail(err, BT_ARG, "a model cannot be divided into %d equal parts for %d ranks",
                       s->leaves, size);
    m->tp_state = calloc(1, sizeof *m->tp_state);
    if (m->tp_state)
        m->tp_state->totals = calloc(m->n_totals * (size_t)size, sizeof *m->tp_state->totals);
    if (!m->tp_state || !m->tp_state->totals)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a slice of a model");
    m->tp = s->leaves > 1 ? &slices_of_leaves : &slices;
    return BT_OK;
}

void bt_tp_wire(bt_model *m, const bt_tp_memory *p) {
    bt_tp_state *x = m->tp_state;
    const bt_model_setup *s = &m->setup;
    const bt_arena *scratch = &m->scratch_arena;
    size_t M = (size_t)s->B * (size_t)s->cfg.T;
    bool tree = s->leaves > 1;
    x->group = s->tp_group;
    x->setup = s;
    x->sequence = s->sequence;
    x->leaves = bt_slice_leaves(s->slice, s->leaves);
    x->total_leaves = tree ? (size_t)s->leaves : 1;
    x->spare = tree ? bt_arena_at(scratch, p->spare) : NULL;
    x->gains = tree ? bt_arena_at(scratch, p->gains) : NULL;
    x->first_leaf = (size_t)s->slice.tp_rank * x->leaves;
    x->shared_kv = shared_kv(s, &m->whole);
    x->shared_kv_sums = x->shared_kv && s->train ? bt_arena_at(scratch, p->shared_kv_sums) : NULL;
    x->first_shared_kv = bt_slice_shared_kv(&m->whole, s->slice) - (s->cfg.skip > 0);
    x->vocab0 = bt_slice_vocab(&m->whole, s->slice);
    for (size_t k = 0; tree && k <= x->leaves; k++) {
        bt_model_slice leaf = {.tp_rank = (int)(x->first_leaf + k), .tp_size = s->leaves};
        x->vocab_at[k] = bt_slice_vocab(&m->whole, leaf) - x->vocab0;
    }
    if (m->adapters.n) {
        x->adapter_rows = bt_arena_at(scratch, p->adapter_rows);
        x->adapter_spare = bt_arena_at(scratch, p->adapter_spare);
    }
    x->ones = bt_arena_at(scratch, p->ones);
    x->mine = bt_arena_at(scratch, p->mine);
    x->all = bt_arena_at(scratch, p->all);
    x->a = bt_arena_at(scratch, p->a);
    x->b = bt_arena_at(scratch, p->b);
    x->index = bt_arena_at(scratch, p->index);
    for (size_t i = 0; i < M; i++) x->ones[i] = 1.0f;
    m->dxn = x->group->partial; /* the group adds up this array */
}

void bt_tp_wire_layer(bt_model *m, bt_layer *l) {
    bt_linear *linears[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down};
    for (size_t i = 0; m->adapters.n && i < sizeof linears / sizeof *linears; i++) {
        bt_tp_wire_adapter(m, linears[i]);
        if (m->setup.leaves > 1 && linears[i]->tensor->shard == BT_SHARD_COL)
            linears[i]->adapter.whole = bt_tp_dora_whole;
    }
    bt_linear_input *inputs[] = {&l->o_in,
                                 &l->down_in}; /* their columns are divided over the ranks */
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) {
        if (!inputs[i]->normed && !inputs[i]->tern) continue; /* no statistics of rows */
        inputs[i]->tp = m->tp_state;
        inputs[i]->ops = &bt_tp_input_ops;
    }
}

void bt_tp_release(bt_model *m) {
    if (m->tp_state) free(m->tp_state->totals);
    free(m->tp_state);
}
