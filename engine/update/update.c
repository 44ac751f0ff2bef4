/* update.c - divides the elements among ranks, and the operations that depend on this division. */
#include "engine/update/update.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/base/span.h"
#include "engine/kernels/ops/ops.h"
#include "engine/parallel/tp/tp_group_create.h"

bool bt_update_sharded(const bt_update *u) { return u->shards.n > 1; }

static bt_code assign_pieces(bt_update *u, const bt_run_cfg *c, bt_err *err) {
    const bt_params *p = bt_model_params(u->model);
    bt_optim_cfg optim = bt_run_cfg_optim(c);
    size_t stripes = u->shards.n_stripes;
    u->spans = calloc(p->n, sizeof *u->spans);
    u->pieces = calloc(stripes, sizeof *u->pieces);
    u->optims = calloc(stripes, sizeof *u->optims);
    if (!u->spans || !u->pieces || !u->optims)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", p->n);
    bt_params_spans(u->spans, p, c);
    for (size_t k = 0; k < p->n; k++) {
        const bt_latent w = bt_model_latent(u->model, k);
        u->spans[k].weights = w.at;
        u->spans[k].form = w.form;
    }
    for (u->n_pieces = 0; u->n_pieces < stripes; u->n_pieces++) {
        bt_range *piece = &u->pieces[u->n_pieces];
        *piece = bt_shards_piece(&u->shards, u->n_pieces,
                                 bt_update_sharded(u) ? u->mesh->me.dp_shard : 0);
        BT_TRY(bt_optim_create(&u->optims[u->n_pieces], &optim, u->spans, p->n, *piece, err));
    }
    return BT_OK;
}

static bt_range intersect_range(bt_range a, size_t begin, size_t end) {
    bt_range r = {bt_max_size(a.begin, begin), bt_min_size(a.end, end)};
    return r.begin < r.end ? r : (bt_range){0, 0};
}

static void append_range(bt_range *list, size_t *n, bt_range r) {
    if (r.begin < r.end) list[(*n)++] = r;
}

/* Plans the norm so that every element counts once: one rank of the tensor-parallel group counts elements that several
 * ranks hold. */
static bt_code plan_norm(bt_update *u, const bt_run_cfg *c, bt_err *err) {
    const bt_params *p = bt_model_params(u->model);
    bt_norm_cfg norm = {.mesh = u->mesh,
                        .tp_group = u->tp_group,
                        .sharded = bt_update_sharded(u),
                        .exact = c->train.parts > 1,
                        .total = p->total,
                        .pieces = u->pieces,
                        .n_pieces = u->n_pieces};
    u->counted = calloc(p->n + u->n_pieces, sizeof *u->counted);
    u->excluded = calloc(p->n + u->n_pieces, sizeof *u->excluded);
    u->tensor_squares = calloc(u->table.n, sizeof *u->tensor_squares);
    if (!u->counted || !u->excluded || !u->tensor_squares)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", p->n);
    for (size_t i = 0; i < u->table.n; i++)
        norm.whole_elements += (double)u->table.tensors[i].whole_rows *
                               (double)u->table.tensors[i].whole_cols;
    for (size_t i = 0; i < u->n_pieces; i++) {
        for (size_t k = 0; k < p->n; k++) {
            const bt_tensor *x = &p->tensors[k];
            size_t first = x->offset + x->first_counted, end = x->offset + x->count;
            append_range(u->counted, &norm.n_counted, intersect_range(u->pieces[i], first, end));
            append_range(u->excluded, &norm.n_excluded,
                         intersect_range(u->pieces[i], x->offset, first));
        }
    }
    norm.counted = u->counted;
    norm.excluded = u->excluded;
    return bt_norm_create(&u->norm, &norm, err);
}

bt_code bt_update_create(bt_update *u, const bt_update_cfg *cfg, bt_err *err) {
    const bt_rank_setup *s = cfg->setup;
    const bt_run_cfg *c = s->cfg;
    *u = (bt_update){.model = cfg->model,
                     .mesh = cfg->mesh,
                     .tp_group = cfg->tp_group,
                     .shards = s->shards,
                     .keep_others_zero = s->sharded && c->mesh.zero >= 2,
                     .optimizer = (bt_optim_id)c->optim.name,
                     .states = (bt_states_kind)c->optim.states,
                     .latent = (bt_states_kind)c->optim.weights};
    BT_TRY(bt_params_init(&u->table, bt_model_config(u->model),
                          (bt_model_slice){.tp_rank = s->me.tp, .tp_size = s->shape.tp}, err));
    BT_TRY(assign_pieces(u, c, err));
    BT_TRY(plan_norm(u, c, err));
    const bt_weights_cfg weights = {.model = u->model,
                                    .mesh = u->mesh,
                                    .shards = &u->shards,
                                    .flips = c->parallel.gather == BT_GATHER_FLIPS,
                                    .fades = s->model.fades,
                                    .weight_source = s->model.weight_source,
                                    .prec = s->model.prec};
    BT_TRY(bt_weights_create(&u->weights, &weights, err));
    const bt_matrix_update_cfg matrices = {.setup = s,
                                           .mesh = u->mesh,
                                           .model = u->model,
                                           .optims = u->optims,
                                           .pieces = u->pieces,
                                           .n_pieces = u->n_pieces,
                                           .spans = u->spans};
    return bt_matrix_update_create(&u->matrices, &matrices, err);
}

bt_code bt_update_synchronise(bt_update *u, bt_err *err) {
    return bt_matrix_update_synchronise(u->matrices, err);
}

void bt_update_release(bt_update *u) {
    for (size_t i = 0; i < u->n_pieces; i++) bt_optim_destroy(u->optims[i]);
    bt_weights_destroy(u->weights);
    bt_matrix_update_destroy(u->matrices);
    bt_norm_destroy(u->norm);
    free(u->optims);
    free(u->pieces);
    free(u->spans);
    free(u->counted);
    free(u->excluded);
    free(u->tensor_squares);
    bt_params_release(&u->table);
    memset(u, 0, sizeof *u);
}

bt_update_sizes bt_update_bytes(const bt_rank_setup *s) {
    const bt_params *p = &s->params;
    int ranks = s->shape.tp > s->shape.pp ? s->shape.tp : s->shape.pp;
    bt_update_sizes sizes = {.exchange = bt_weights_bytes(s),
                             .work = bt_norm_bytes(p->total, ranks)};
    bt_optim_span *spans = calloc(p->n, sizeof *spans);
    if (!spans) return sizes;
    bt_params_spans(spans, p, s->cfg);
    /* pieces and spans ascend, so the spans of each piece form a window that only moves forward */
    for (size_t i = 0, first = 0, end = 0; i < s->shards.n_stripes; i++) {
        const bt_range piece = bt_shards_piece(&s->shards, i, s->shard);
        while (first < p->n && spans[first].end <= piece.begin) first++;
        while (end < p->n && spans[end].begin < piece.end) end++;
        if (first < end)
            sizes.optimizer += bt_optim_bytes((bt_optim_id)s->cfg->optim.name,
                                              (bt_states_kind)s->cfg->optim.states, spans + first,
                                              end - first, piece);
    }
    free(spans);
    sizes.optimizer += bt_matrix_update_bytes(s);
    return sizes;
}

void bt_update_init_weights(bt_update *u, uint64_t seed) {
    const bt_params *p = bt_model_params(u->model);
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *x = &p->tensors[k];
        if (bt_weights_holds(u->weights, x)) {
            bt_model_init_range(u->model, seed, x->offset, x->offset + x->count);
            continue;
        }
        for (size_t i = 0; i < u->n_pieces; i++) {
            bt_range r = intersect_range(u->pieces[i], x->offset, x->offset + x->count);
            bt_model_init_range(u->model, seed, r.begin, r.end);
        }
    }
}

bt_code bt_update_quantise(bt_update *u, bt_err *err) {
    BT_TRY(bt_weights_quantise(u->weights, err));
    return bt_tp_group_check(u->tp_group, err);
}

/* Skips pages that the exchange has returned to the system: they are already zero, and a write would allocate them
 * again. */
void bt_update_zero_grads(bt_update *u) {
    float *grads = bt_model_grads(u->model);
    if (!u->keep_others_zero) {
        bt_model_zero_grads(u->model);
        return;
    }
    for (size_t i = 0; i < u->n_pieces; i++)
        bt_op_zero(grads + u->pieces[i].begin, u->pieces[i].end - u->pieces[i].begin);
}

bt_code bt_update_norm(bt_update *u, double unscale, double *norm, bt_err *err) {
    BT_TRY(bt_norm_compute(u->norm, bt_model_grads(u->model), unscale, norm, err));
    return bt_tp_group_check(u->tp_group, err);
}

bt_code bt_update_apply(bt_update *u, const bt_optim_update *how, bt_err *err) {
    const float *g = bt_model_grads(u->model);
    for (size_t i = u->n_pieces; i-- > 0;) {
        bt_optim_step(u->optims[i], NULL, g, how);
        if (!u->matrices) BT_TRY(bt_weights_gather(u->weights, i, err));
    }
    if (u->matrices) {
        BT_TRY(bt_matrix_update_apply(u->matrices, how, err));
        for (size_t i = u->n_pieces; i-- > 0;) BT_TRY(bt_weights_gather(u->weights, i, err));
    }
    u->last = *how;
    return bt_update_quantise(u, err);
}

int64_t bt_update_take_busy_ns(bt_update *u) {
    return bt_weights_take_busy_ns(u->weights) + bt_matrix_update_take_busy_ns(u->matrices);
}

void bt_update_raise_second_moments(bt_update *u, size_t k, double share) {
    enum { SECOND_MOMENT = 1 };
    const bt_tensor *x = &bt_model_params(u->model)->tensors[k];
    for (size_t i = 0; i < u->n_pieces; i++)
        bt_optim_raise(u->optims[i], k, SECOND_MOMENT,
                       intersect_range(u->pieces[i], x->offset, x->offset + x->count), share);
}

static double own_squares(const bt_update *u, const bt_tensor *x) {
    const float *grads = bt_model_grads(u->model);
    double sum = 0;
    for (size_t i = 0; i < u->n_pieces; i++) {
        bt_range r = intersect_range(u->pieces[i], x->offset + x->first_counted,
                                     x->offset + x->count);
        if (r.begin < r.end) sum += bt_op_sum_squares(grads + r.begin, r.end - r.begin);
    }
    return sum;
}

bt_code bt_update_tensor_squares(bt_update *u, double unscale, const double **out, bt_err *err) {
    const bt_params *p = bt_model_params(u->model);
    double *squares = u->tensor_squares;
    memset(squares, 0, u->table.n * sizeof *squares);
    for (size_t i = 0; i < p->n; i++)
        squares[p->tensors[i].number] = own_squares(u, &p->tensors[i]) * unscale * unscale;
    const bool exchanges = bt_comm_size(u->mesh->world) > 1; /* one rank has no communication */
    if (exchanges) bt_span_begin(BT_MR_COMM_EXPOSED);
    if (bt_update_sharded(u))
        BT_TRY(bt_all_reduce_f64(u->mesh->shard, squares, u->table.n, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(u->mesh->tp, squares, u->table.n, BT_SUM, err));
    BT_TRY(bt_all_reduce_f64(u->mesh->pp, squares, u->table.n, BT_SUM, err));
    if (exchanges) bt_span_end();
    *out = squares;
    return BT_OK;
}

void bt_update_change(const bt_update *u, size_t k, bt_range r, double *change, double *before) {
    if (u->last.t == 0) return;
    if (bt_optim_rule_of(u->optimizer, &u->spans[k])->whole_matrix) {
        bt_matrix_update_change(u->matrices, k, r, &u->last, change, before);
        return;
    }
    for (size_t i = 0; i < u->n_pieces; i++) {
        bt_range own = intersect_range(u->pieces[i], r.begin, r.end);
        if (own.begin < own.end)
            bt_optim_change(u->optims[i], k, own, NULL, bt_model_grads(u->model), &u->last, change,
                            before);
    }
}
