/* codec_part.c - gradient compression: residuals, quanta of units in reproducible training, codec of each step
 * (codec_choice.h). */
#include "engine/train/parts/codec/codec_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/base/span.h"
#include "engine/train/trainer_impl.h"

static size_t groups_before(const bt_params *all, size_t tensor) {
    size_t n = 0;
    for (size_t i = 0; i < tensor; i++) n += bt_rounding_groups(all->tensors[i].whole_rows);
    return n;
}

/* Creates groups for the tensors of all stages, so that every rank has all quanta. */
static bt_code create_rounding(bt_unit_rounding *r, bt_trainer *t, bt_err *err) {
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
    return bt_rounding_create(r, tensors, p->n, groups_before(all, all->n),
                              (uint64_t)t->cfg.run.seed, err);
}

enum { DIGITS = 4 };

/* four hexadecimal digits for each group */
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

static bt_code codec_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t, (void)s;
    return bt_part_new(self, sizeof(bt_codec_part), "the codec", err);
}

static void codec_release(void *self) {
    bt_codec_part *p = self;
    bt_residual_release(&p->residual);
    bt_rounding_release(&p->rounding);
    bt_codec_choice_release(&p->choice);
    free(p);
}

static bt_code codec_model_made(void *self, bt_trainer *t, bt_err *err) {
    bt_codec_part *p = self;
    (void)err;
    bt_codec_choice_keep_plain(&p->choice, t);
    return BT_OK;
}

static bt_code codec_build(void *self, bt_trainer *t, bt_err *err) {
    bt_codec_part *p = self;
    BT_TRY(bt_residual_create(&p->residual, &t->setup, err));
    BT_TRY(bt_codec_choice_create(&p->choice, t, err));
    const bool exact = bt_rank_setup_form(&t->setup).codec == &bt_codec_exact;
    return exact ? create_rounding(&p->rounding, t, err) : BT_OK;
}

static void reducer_cfg(void *self, bt_trainer *t, bt_reducer_cfg *c) {
    bt_codec_part *p = self;
    c->form.codec = bt_codec_choice_now(&p->choice, t);
    c->rounding = p->rounding.n_groups ? &p->rounding : NULL;
    c->state = p->residual.owed;
    bt_codec_choice_made(&p->choice, t, c->form.codec);
    t->step.held_at = p->choice.held_at;
}

/* The row "codec" precedes the residuals because it determines which tensors have one. */
static void codec_add_state(void *self, bt_trainer *t, bt_state *s) {
    bt_codec_part *p = self;
    bt_codec_choice_add_state(&p->choice, t, s);
    bt_residual_add_state(&p->residual, s);
    bt_state_add(
        s, &(bt_state_row){
               .name = "quanta", .ctx = &p->rounding, .save = save_quanta, .load = load_quanta});
}

/* A checkpoint may have changed the codec. */
static bt_code codec_ready(void *self, bt_trainer *t, bt_err *err) {
    const bt_codec_part *p = self;
    t->step.held_at = p->choice.held_at;
    return bt_codec_choice_stale(&p->choice, t) ? bt_trainer_make_reducer(t, err) : BT_OK;
}

static bt_code codec_begin_gradients(void *self, bt_trainer *t, bt_step_outcome *o, bool again,
                                     bt_err *err) {
    bt_codec_part *p = self;
    (void)o, (void)err;
    if (again) bt_residual_undo(&p->residual);
    bt_residual_begin(&p->residual, bt_model_grads(t->model), t->step.loss_scale,
                      p->choice.made->state_bytes > 0);
    if (p->rounding.n_groups) bt_rounding_begin(&p->rounding, t->at.step, t->step.loss_scale);
    return BT_OK;
}

static bt_code codec_exchanged(void *self, bt_trainer *t, bt_step_outcome *o,
                               const bt_reduce_times *took, const int64_t *notes, bt_err *err) {
    bt_codec_part *p = self;
    (void)o, (void)notes;
    p->choice.took = *took;
    return p->rounding.n_groups ? bt_rounding_agree(&p->rounding, t->mesh.world, err) : BT_OK;
}

static bt_code codec_after_update(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    bt_codec_part *p = self;
    (void)t, (void)err;
    if (!o->applied) bt_residual_undo(&p->residual);
    return BT_OK;
}

static bool is_stats_step(const bt_trainer *t) {
    return t->setup.dp > 1 && bt_every(t->at.step - 1, t->cfg.train.stats_every);
}

static bool codec_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    const bt_codec_part *p = self;
    (void)o;
    return p->choice.ladder.n > 1 || is_stats_step(t);
}

/* Statistics describe the codec of the previous step, so they precede the choice for the next one. */
static bt_code codec_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    bt_codec_part *p = self;
    if (is_stats_step(t)) {
        bt_span_begin(BT_MR_MONITOR);
        BT_TRY(bt_codec_choice_sample(&p->choice, t, &p->residual, o, err));
        bt_span_end();
    }
    if (p->choice.ladder.n < 2) return BT_OK;
    BT_TRY(bt_codec_choice_step(&p->choice, t, &p->residual, o, err));
    return bt_codec_choice_stale(&p->choice, t) ? bt_trainer_make_reducer(t, err) : BT_OK;
}

static size_t residual_bytes(const bt_rank_setup *s, size_t saved) {
    (void)saved;
    return 2 * bt_residual_bytes(s);
}

const bt_part bt_part_codec = {
    .name = "codec",
    .memory = {"residual",
               "gradients that the codec has not sent yet, fp32, and a copy from before the step",
               residual_bytes, false},
    .create = codec_create,
    .release = codec_release,
    .model_made = codec_model_made,
    .build = codec_build,
    .reducer_cfg = reducer_cfg,
    .add_state = codec_add_state,
    .ready = codec_ready,
    .begin_gradients = codec_begin_gradients,
    .exchanged = codec_exchanged,
    .after_update = codec_after_update,
    .due = codec_due,
    .after_step = codec_after_step,
    .phase = BT_MR_COMM_EXPOSED};
