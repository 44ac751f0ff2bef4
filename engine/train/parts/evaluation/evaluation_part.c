/* evaluation_part.c - computes the validation loss every train.eval_every steps, at the end, and on request. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/config/run_property.h"
#include "engine/config/tune_cfg.h"
#include "engine/observe/profile.h"
#include "engine/train/data/run_data.h"
#include "engine/train/trainer_impl.h"

typedef struct evaluation {
    bt_evaluator *evaluator; /* NULL without validation data */
} evaluation;

static bt_code evaluation_create(bt_trainer *t, const bt_trainer_setup *s, void **self,
                                 bt_err *err) {
    (void)t, (void)s;
    return bt_part_new(self, sizeof(evaluation), "the evaluation", err);
}

static void evaluation_release(void *self) {
    evaluation *e = self;
    bt_evaluator_close(e->evaluator);
    free(e);
}

/* The watch for hangs allows a time for each micro-batch, not for the whole of an evaluation. */
static void enter_next_micro(void *ctx, double done) {
    bt_trainer *t = ctx;
    (void)done;
    bt_progress_enter(t->page, BT_AT_EVALUATION, t->at.step - 1);
}

static bt_code evaluation_build(void *self, bt_trainer *t, bt_err *err) {
    evaluation *e = self;
    char hash[32];
    bt_loader_cfg data = bt_trainer_loader_cfg(t);
    bt_code code = BT_OK;
    if (bt_trainer_validates(t))
        code = bt_evaluator_open(&e->evaluator, &data, t->cfg.train.eval_tokens, t->mesh.dp, err);
    BT_TRY(bt_agree(t->mesh.world, code, err));
    snprintf(hash, sizeof hash, "%016" PRIx64, bt_evaluator_hash(e->evaluator));
    BT_TRY(bt_agree_value(t->mesh.world, "the validation data (by hash)", hash, err));
    if (!e->evaluator) return BT_OK;
    bt_evaluator_watch(e->evaluator, enter_next_micro, t);
    t->validation.first_tokens = bt_evaluator_tokens(e->evaluator, &t->validation.n_tokens);
    return BT_OK;
}

static void evaluation_facts(void *self, bt_trainer *t, bool goes_on) {
    const evaluation *e = self;
    (void)goes_on;
    if (e->evaluator)
        bt_trainer_fact(t, "data.val_bytes_per_token", "%.17g",
                        bt_evaluator_bytes_per_token(e->evaluator));
    bt_trainer_fact(t, "arena.validation", "%zu", bt_evaluator_bytes(e->evaluator));
    /* without --val-data these notes would repeat those of the training data */
    if (t->cfg.data.val_path[0])
        bt_run_data_notes(&t->telemetry, "validation data: ", bt_evaluator_notes(e->evaluator),
                          t->at.step - 1);
}

static void json_number(char *out, size_t size, double v) {
    if (isfinite(v))
        snprintf(out, size, "%.9g", v);
    else
        snprintf(out, size, "null");
}

static bt_code run_validation(bt_evaluator *e, bt_trainer *t, bt_err *err) {
    bt_weights *w = t->update.weights;
    bt_eval_result *r = &t->validation.newest;
    int64_t start = bt_now_ns();
    bt_progress_enter(t->page, BT_AT_EVALUATION, t->at.step - 1);
    BT_TRY(bt_trainer_swap_for_use(t, err));
    BT_TRY(bt_weights_begin(w, BT_PASSES_FORWARD, NULL, bt_evaluator_micros(e), err));
    BT_TRY(bt_evaluator_run(e, t->model, t->schedule->pipe, r, err));
    BT_TRY(bt_weights_check(w, err));
    BT_TRY(bt_weights_end(w, err));
    char body[200], nats[40], bits[40];
    json_number(nats, sizeof nats, r->nats);
    json_number(bits, sizeof bits, r->bits_per_byte);
    snprintf(body, sizeof body,
             "{\"val_loss\":%s,\"bits_per_byte\":%s,\"tokens\":%" PRId64 ",\"took_ms\":%.3f}", nats,
             bits, r->tokens, (double)(bt_now_ns() - start) / 1e6);
    if (t->setup.model.pairs)
        bt_telemetry_event(&t->telemetry, BT_EVENT_EVALUATION, t->at.step - 1, body,
                           "validation %.4f nats per preference, %.1f %% right, reward margin %.3f "
                           "(%" PRId64 " preferences)",
                           r->nats, 100 * r->accuracy, r->margin, r->tokens);
    else if (t->setup.model.cfg.classes)
        bt_telemetry_event(&t->telemetry, BT_EVENT_EVALUATION, t->at.step - 1, body,
                           "validation %.4f nats per text, %.1f %% right, macro F1 %.3f (%" PRId64
                           " texts)",
                           r->nats, 100 * r->accuracy, r->macro_f1, r->tokens);
    else
        bt_telemetry_event(&t->telemetry, BT_EVENT_EVALUATION, t->at.step - 1, body,
                           "validation %.4f nats per token, %.4f bits per byte (%" PRId64
                           " tokens)",
                           r->nats, r->bits_per_byte, r->tokens);
    BT_TRY(bt_parts_evaluated(t, err));
    BT_TRY(bt_trainer_swap_for_use(t, err));
    bt_trainer_forget_transfers(t);
    return BT_OK;
}

static bool evaluation_due(void *self, const bt_trainer *t, const bt_step_outcome *o) {
    const evaluation *e = self;
    return e->evaluator && (bt_every(t->at.step, t->cfg.train.eval_every) || bt_trainer_at_end(t) ||
                            (o->control.verbs & BT_REQ_EVAL));
}

static bt_code evaluation_after_step(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const evaluation *e = self;
    bt_profile_hold(true);
    bt_code code = run_validation(e->evaluator, t, err);
    bt_profile_hold(false);
    o->evaluated = true;
    /* only a fully ternary model can be the best checkpoint */
    o->best = code == BT_OK && bt_run_lambda(&t->cfg, t->at.step) >= 1 &&
              bt_saver_validated(&t->saver, t->validation.newest.nats);
    return code;
}

static bt_code evaluation_act(void *self, bt_trainer *t, const bt_control *c, bool evaluated,
                              bt_err *err) {
    const evaluation *e = self;
    if (!(c->verbs & BT_REQ_EVAL) || evaluated) return BT_OK;
    if (e->evaluator) return run_validation(e->evaluator, t, err);
    bt_telemetry_event(&t->telemetry, BT_EVENT_WARNING, t->at.step - 1, NULL,
                       "no validation data: data.val_frac is 0");
    return BT_OK;
}

const bt_part bt_part_evaluation = {.name = "evaluation",
                                    .create = evaluation_create,
                                    .release = evaluation_release,
                                    .build = evaluation_build,
                                    .facts = evaluation_facts,
                                    .due = evaluation_due,
                                    .after_step = evaluation_after_step,
                                    .phase = BT_SPAN_EXCLUDED,
                                    .act = evaluation_act};
