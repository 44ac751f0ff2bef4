/* trainer_codec.c - what the codec of a training keeps: residuals, and the quanta of units in
 * reproducible training. Which codec it is: codec_choice.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/train/trainer_impl.h"

/* ---- quanta ---------------------------------------------------------------------------------- */

static size_t groups_before(const bt_params *all, size_t tensor) {
    size_t n = 0;
    for (size_t i = 0; i < tensor; i++) n += bt_rounding_groups(all->tensors[i].whole_rows);
    return n;
}

/* The groups of all stages' tensors, so that every rank knows all quanta. */
static bt_code create_rounding(bt_trainer *t, bt_err *err) {
    const bt_params *p = &t->setup.params, *all = &t->update.table;
    bt_rounding_tensor *tensors = calloc(p->n + 1, sizeof *tensors);
    for (size_t i = 0; tensors && i < p->n; i++) {
        const bt_tensor *x = &p->tensors[i];
        tensors[i] = (bt_rounding_tensor){.offset = x->offset,
                                          .rows = x->rows,
                                          .cols = x->cols,
                                          .row0 = x->row0,
                                          .col0 = x->col0,
                                          .whole_rows = x->whole_rows,
                                          .first_group = groups_before(all, x->number),
                                          .name = bt_hash_name(x->name)};
    }
    return bt_rounding_create(&t->rounding, tensors, p->n, groups_before(all, all->n),
                              (uint64_t)t->cfg.seed, err);
}

enum { DIGITS = 4 };

/* four hexadecimal digits a group */
static void save_quanta(void *ctx, bt_json *j) {
    const bt_unit_rounding *r = ctx;
    char *text = r->n_groups ? malloc(DIGITS * r->n_groups + 1) : NULL;
    if (!text) return;
    for (size_t g = 0; g < r->n_groups; g++)
        snprintf(text + DIGITS * g, DIGITS + 1, "%04x", (unsigned)(r->exponents[g] - INT16_MIN));
    bt_json_str(j, "exponents", text);
    free(text);
}

static void load_quanta(void *ctx, const bt_state_values *v) {
    bt_unit_rounding *r = ctx;
    const char *text = bt_state_text(v, "exponents");
    if (!text || strlen(text) != DIGITS * r->n_groups) return;
    for (size_t g = 0; g < r->n_groups; g++) {
        char digits[DIGITS + 1] = {0};
        memcpy(digits, text + DIGITS * g, DIGITS);
        r->exponents[g] = (int16_t)(strtol(digits, NULL, 16) + INT16_MIN);
    }
}

/* ---- the codec --------------------------------------------------------------------------------- */

bt_code bt_trainer_codec_create(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_residual_create(&t->residual, &t->setup, err));
    BT_TRY(bt_codec_choice_create(t, err));
    return bt_rank_setup_form(&t->setup).codec == &bt_codec_exact ? create_rounding(t, err) : BT_OK;
}

void bt_trainer_codec_release(bt_trainer *t) {
    bt_residual_release(&t->residual);
    bt_rounding_release(&t->rounding);
    bt_codec_choice_release(&t->codec);
}

void bt_trainer_codec_state(bt_trainer *t, bt_state *s) {
    bt_codec_choice_add_state(t, s); /* which tensors have residuals; so it comes before them */
    bt_residual_add_state(&t->residual, s);
    bt_state_add(
        s, &(bt_state_row){
               .name = "quanta", .ctx = &t->rounding, .save = save_quanta, .load = load_quanta});
}

bool bt_trainer_codec_stale(const bt_trainer *t) {
    return t->codec.made != bt_codec_choice_now(t) || t->codec.fell_anew;
}

bt_payload_form bt_trainer_codec_form(bt_trainer *t) {
    bt_payload_form form = bt_rank_setup_form(&t->setup);
    form.codec = bt_codec_choice_now(t);
    bt_codec_choice_made(t, form.codec);
    return form;
}

void bt_trainer_codec_begin(bt_trainer *t) {
    bt_residual_begin(&t->residual, bt_model_grads(t->model), t->loss_scale.value,
                      t->codec.made->state_bytes > 0);
    if (t->rounding.n_groups) bt_rounding_begin(&t->rounding, t->at.step, t->loss_scale.value);
}

bt_code bt_trainer_codec_agree(bt_trainer *t, bt_err *err) {
    return t->rounding.n_groups ? bt_rounding_agree(&t->rounding, t->mesh.world, err) : BT_OK;
}
