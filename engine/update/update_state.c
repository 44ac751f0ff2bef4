/* update_state.c - latent weights and optimizer states as rows of the state registry. */
#include "engine/base/small.h"
#include "engine/update/tensor_slices.h"
#include "engine/update/update.h"

/* Converts a range of the flat array to elements of tensor k's block. counted: excludes elements that another rank of
 * the tensor-parallel group writes. */
static bt_range range_in_update(const bt_update *u, size_t k, bt_range flat, bool counted) {
    const bt_tensor *x = &bt_model_params(u->model)->tensors[k];
    size_t begin = bt_max_size(x->offset + (counted ? x->first_counted : 0), flat.begin),
           end = bt_min_size(x->offset + x->count, flat.end);
    return begin < end ? (bt_range){begin - x->offset, end - x->offset} : (bt_range){0, 0};
}

/* name: name of the state in the checkpoint. */
static void add_weights(const bt_update *u, const char *name, size_t k, bt_range r,
                        bt_slices *out) {
    const bt_tensor *x = &bt_model_params(u->model)->tensors[k];
    const bt_latent w = bt_model_latent(u->model, k);
    bt_tensor_slices_in(x, name, bt_latent_at(w, r.begin), w.form, r, out);
}

static void add_states(const bt_update *u, size_t piece, size_t k, bt_range r, bt_slices *out) {
    const bt_tensor *x = &bt_model_params(u->model)->tensors[k];
    const bt_optim_rule *rule = bt_optim_rule_of(u->optimizer, &u->spans[k]);
    for (size_t s = 0; s < rule->n_states && r.begin < r.end; s++)
        bt_tensor_slices_in(x, rule->state_names[s],
                            bt_optim_state(u->optims[piece], k, s, x->offset + r.begin),
                            bt_optim_form(rule, u->states, s), r, out);
}

/* Returns the part of a piece that this rank writes: its replicas hold the same piece, and each writes an equal part.
 * HOST: only the replicas on rank 0's host divide it. */
static bt_range own_part_of_piece(const bt_update *u, bt_state_use use, bt_range piece) {
    int which;
    const size_t n = piece.end - piece.begin,
                 sharers = (size_t)bt_mesh_sharers(&u->mesh->shape, &u->mesh->me,
                                                   bt_update_sharded(u), use == BT_STATE_SAVE_HOST,
                                                   &which);
    if (which < 0) return (bt_range){piece.begin, piece.begin};
    const size_t me = (size_t)which;
    return (bt_range){piece.begin + n * me / sharers, piece.begin + n * (me + 1) / sharers};
}

static void weight_slices(void *ctx, bt_state_use use, bt_slices *out) {
    const bt_update *u = ctx;
    const bt_params *p = bt_model_params(u->model);
    const char *name = u->for_use && use != BT_STATE_WEIGHTS ? "latest" : "weight";
    for (size_t k = 0; k < p->n; k++) {
        if (!bt_state_saves(use) && bt_weights_holds(u->weights, &p->tensors[k])) {
            add_weights(u, name, k, (bt_range){0, p->tensors[k].count}, out);
            continue;
        }
        for (size_t i = 0; i < u->n_pieces; i++) {
            bool save = bt_state_saves(use);
            bt_range flat = save ? own_part_of_piece(u, use, u->pieces[i]) : u->pieces[i];
            add_weights(u, name, k, range_in_update(u, k, flat, save), out);
        }
    }
}

static void for_use_slices(void *ctx, bt_state_use use, bt_slices *out) {
    const bt_update *u = ctx;
    const bt_params *p = bt_model_params(u->model);
    const bool save = bt_state_saves(use);
    if (use == BT_STATE_WEIGHTS) return;
    for (size_t i = 0; i < u->n_pieces; i++) {
        const bt_range flat = save ? own_part_of_piece(u, use, u->pieces[i]) : u->pieces[i];
        for (size_t k = 0; k < p->n; k++) {
            const bt_range r = range_in_update(u, k, flat, save);
            if (r.begin == r.end) continue;
            float *at = u->for_use[i] + (p->tensors[k].offset + r.begin - u->pieces[i].begin);
            bt_tensor_slices_in(&p->tensors[k], "weight", at, BT_MOMENT_F32, r, out);
        }
    }
}

static void optimizer_slices(void *ctx, bt_state_use use, bt_slices *out) {
    const bt_update *u = ctx;
    bool save = bt_state_saves(use);
    if (use == BT_STATE_WEIGHTS) return;
    for (size_t i = 0; i < u->n_pieces; i++) {
        bt_range flat = save ? own_part_of_piece(u, use, u->pieces[i]) : u->pieces[i];
        for (size_t k = 0; k < bt_model_params(u->model)->n; k++)
            add_states(u, i, k, range_in_update(u, k, flat, save), out);
    }
}

static void optimizer_values(void *ctx, bt_json *j) {
    const bt_update *u = ctx;
    bt_json_str(j, "states", bt_states_name(u->states));
    bt_json_str(j, "weights", bt_states_name(u->latent));
}

void bt_update_add_state(bt_update *u, bt_state *s) {
    bt_state_add(s, &(bt_state_row){.name = "weights", .ctx = u, .slices = weight_slices});
    bt_state_add(s, &(bt_state_row){.name = "optimizer",
                                    .ctx = u,
                                    .slices = optimizer_slices,
                                    .save = optimizer_values});
    if (u->for_use)
        bt_state_add(s, &(bt_state_row){.name = "for_use", .ctx = u, .slices = for_use_slices});
}
