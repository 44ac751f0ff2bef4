/* whole_array.c - copies the slices of ranks by name and position of their tensor. */
#include "engine/islands/island/whole_array.h"

#include <stdlib.h>
#include <string.h>

static const bt_tensor *find_tensor_of_slice(const bt_params *p, const char *name) {
    for (size_t k = 0; k < p->n; k++)
        if (strcmp(p->tensors[k].name, name) == 0) return &p->tensors[k];
    return NULL;
}

enum { WEIGHTS, OPTIMIZER }; /* indices of the rows in the update's state */

static bt_code find_array_slices(bt_whole_array *a, size_t row, bt_state_use use, bt_slices *out,
                                 size_t **at, bt_err *err) {
    bt_state rows = {.n = 0};
    bt_update_add_state(a->update, &rows);
    rows.rows[0] = rows.rows[row];
    rows.n = 1;
    BT_TRY(bt_state_slices(&rows, use, out, err));
    *at = calloc(out->n + 1, sizeof **at);
    if (!*at) return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu slices", out->n);
    for (size_t i = 0; i < out->n; i++) {
        const bt_tensor *x = find_tensor_of_slice(&a->params, out->at[i].tensor);
        if (!x || x->count != out->at[i].tensor_elems)
            return bt_fail(err, BT_UNSUPPORTED, "tensor '%s' is not a tensor of the whole model",
                           out->at[i].tensor);
        (*at)[i] = x->offset + out->at[i].first;
    }
    return BT_OK;
}

bt_code bt_whole_array_create(bt_whole_array *a, bt_update *update, bt_comm *world, bt_err *err) {
    *a = (bt_whole_array){.update = update, .world = world};
    const bt_model_slice whole = {.tp_rank = 0};
    BT_TRY(bt_params_init(&a->params, bt_model_config(update->model), whole, err));
    a->x = calloc(a->params.total, sizeof *a->x);
    if (!a->x)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the model's %zu elements",
                       a->params.total);
    BT_TRY(find_array_slices(a, WEIGHTS, BT_STATE_SAVE, &a->own, &a->own_at, err));
    return find_array_slices(a, WEIGHTS, BT_STATE_RESUME, &a->held, &a->held_at, err);
}

void bt_whole_array_release(bt_whole_array *a) {
    bt_params_release(&a->params);
    bt_slices_release(&a->own);
    bt_slices_release(&a->held);
    free(a->own_at);
    free(a->held_at);
    free(a->x);
    *a = (bt_whole_array){.x = NULL};
}

/* Returns the storage form of an optimizer state of the latent weights. */
static bt_moment_form slice_form(const bt_ckpt_slice *s) {
    return s->type == bt_ckpt_type_of(BT_MOMENT_BF16) ? BT_MOMENT_BF16 : BT_MOMENT_F32;
}

/* Row i of a slice: `width` elements every `stride` elements, or all elements. */
typedef struct stretch {
    size_t in_slice, in_array, n;
} stretch;

static bool next_array_stretch(const bt_ckpt_slice *s, size_t at, size_t *row, stretch *out) {
    const size_t width = s->width ? s->width : s->count;
    if (*row * width >= s->count) return false;
    *out = (stretch){*row * width, at + *row * (s->width ? s->stride : 0), width};
    ++*row;
    return true;
}

/* Returns the gradients of a slice of weights; the flat array has the layout of the weights. */
static const float *gradients_of(const bt_whole_array *a, const bt_ckpt_slice *s) {
    const bt_model *m = a->update->model;
    const bt_params *p = bt_model_params(m);
    const bt_tensor *x = find_tensor_of_slice(p, s->tensor);
    const bt_latent w = bt_model_latent(m, (size_t)(x - p->tensors));
    const size_t bytes = (size_t)((const unsigned char *)s->data - (unsigned char *)w.at);
    return bt_model_grads(a->update->model) + x->offset + bytes / bt_moment_bytes(w.form);
}

static bt_code sum_array(bt_whole_array *a, bt_err *err) {
    if (bt_comm_size(a->world) == 1) return BT_OK;
    return bt_all_reduce_f32(a->world, a->x, a->params.total, BT_SUM, err);
}

bt_code bt_whole_array_weights(bt_whole_array *a, bt_err *err) {
    memset(a->x, 0, a->params.total * sizeof *a->x);
    for (size_t i = 0; i < a->own.n; i++) {
        const bt_ckpt_slice *s = &a->own.at[i];
        const bt_latent w = {s->data, slice_form(s)};
        stretch r;
        for (size_t row = 0; next_array_stretch(s, a->own_at[i], &row, &r);)
            bt_moment_convert(a->x + r.in_array, BT_MOMENT_F32, bt_latent_at(w, r.in_slice), w.form,
                              r.n);
    }
    return sum_array(a, err);
}

bt_code bt_whole_array_gradients(bt_whole_array *a, float by, bt_err *err) {
    memset(a->x, 0, a->params.total * sizeof *a->x);
    for (size_t i = 0; i < a->own.n; i++) {
        const float *values = gradients_of(a, &a->own.at[i]);
        stretch r;
        for (size_t row = 0; next_array_stretch(&a->own.at[i], a->own_at[i], &row, &r);)
            for (size_t k = 0; k < r.n; k++) a->x[r.in_array + k] = values[r.in_slice + k] * by;
    }
    return sum_array(a, err);
}

static void put_stretches(const bt_whole_array *a, const bt_ckpt_slice *s, bt_moment_form form,
                          size_t at) {
    stretch r;
    for (size_t row = 0; next_array_stretch(s, at, &row, &r);)
        bt_moment_convert((unsigned char *)s->data + r.in_slice * bt_moment_bytes(form), form,
                          a->x + r.in_array, BT_MOMENT_F32, r.n);
}

bt_code bt_whole_array_place(bt_whole_array *a, bt_err *err) {
    BT_TRY(bt_broadcast(a->world, a->x, a->params.total * sizeof *a->x, 0, err));
    for (size_t i = 0; i < a->held.n; i++)
        put_stretches(a, &a->held.at[i], slice_form(&a->held.at[i]), a->held_at[i]);
    return BT_OK;
}

/* Returns true if the slice is state k of its tensor, and writes the form of the state. */
static bool is_state(const bt_whole_array *a, const bt_ckpt_slice *s, size_t k,
                     bt_moment_form *form) {
    const bt_params *p = bt_model_params(a->update->model);
    for (size_t i = 0; i < p->n; i++) {
        if (strcmp(p->tensors[i].name, s->tensor) != 0) continue;
        const bt_optim_rule *rule = bt_optim_rule_of(a->update->optimizer, &a->update->spans[i]);
        *form = bt_optim_form(rule, a->update->states, k);
        return k < rule->n_states && strcmp(rule->state_names[k], s->state) == 0;
    }
    return false;
}

bt_code bt_whole_array_place_state(bt_whole_array *a, size_t k, bt_err *err) {
    bt_slices states = {.n = 0};
    size_t *at = NULL;
    bt_moment_form form;
    BT_TRY(bt_broadcast(a->world, a->x, a->params.total * sizeof *a->x, 0, err));
    const bt_code code = find_array_slices(a, OPTIMIZER, BT_STATE_RESUME, &states, &at, err);
    for (size_t i = 0; code == BT_OK && i < states.n; i++)
        if (is_state(a, &states.at[i], k, &form)) put_stretches(a, &states.at[i], form, at[i]);
    bt_slices_release(&states);
    free(at);
    return bt_agree(a->world, code, err);
}
