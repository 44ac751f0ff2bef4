/* fp16_part.c - loss scale of train.precision=fp16 (optim/loss_scale.h). A step whose gradients overflow is skipped
 * and halves the scale; many good steps in a row double it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/optim/loss_scale.h"
#include "engine/train/trainer_impl.h"

typedef struct fp16 {
    bt_loss_scale scale;
    double *in_use;
} fp16;

static bt_code fp16_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    const bt_run_cfg *c = s->cfg;
    fp16 *f = calloc(1, sizeof *f);
    if (!f) return bt_fail(err, BT_NOMEM, "cannot take memory for the loss scale");
    bt_loss_scale_init(&f->scale, c->train.precision == BT_PREC_FP16, c->train.loss_scale,
                       c->train.loss_scale_every);
    f->in_use = &t->step.loss_scale;
    *f->in_use = f->scale.value;
    *self = f;
    return BT_OK;
}

static void save_loss_scale(void *ctx, bt_json *j) {
    const bt_loss_scale *s = &((fp16 *)ctx)->scale;
    bt_json_num(j, "value", s->value);
    if (s->on) bt_json_int(j, "good", s->good);
}

/* A checkpoint of another precision contains no scale, so the initial one is used. */
static void load_loss_scale(void *ctx, const bt_state_values *v) {
    fp16 *f = ctx;
    const int64_t good = bt_state_int(v, "good", -1);
    const double value = bt_state_real(v, "value", 0);
    if (!f->scale.on || good < 0 || !bt_loss_scale_is(value)) return;
    f->scale.value = *f->in_use = value;
    f->scale.good = good;
}

static void fp16_add_state(void *self, bt_trainer *t, bt_state *s) {
    (void)t;
    bt_state_add(s, &(bt_state_row){.name = "loss_scale",
                                    .ctx = self,
                                    .save = save_loss_scale,
                                    .load = load_loss_scale});
}

static void change_loss_scale(fp16 *f, bt_trainer *t, bool skipped, const char *title) {
    char body[96];
    *f->in_use = f->scale.value;
    snprintf(body, sizeof body, "{\"loss_scale\":%.17g%s}", f->scale.value,
             skipped ? ",\"action\":\"skipped\"" : "");
    bt_telemetry_event(&t->telemetry, BT_EVENT_LOSS_SCALE, t->at.step, body, "%s: loss scale %.0f",
                       title, f->scale.value);
}

/* The norm is equal on all ranks, so all skip the step. The scale causes neither a non-finite loss nor an overflow
 * that is being recomputed. */
static bt_code fp16_verdict(void *self, bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict,
                            bt_err *err) {
    fp16 *f = self;
    (void)err;
    if (isfinite(o->grad_norm) || o->loss_bad || o->computed > 1) return BT_OK;
    if (!bt_loss_scale_overflow(&f->scale)) return BT_OK;
    change_loss_scale(f, t, true, "fp16 gradients overflowed, step skipped");
    *verdict = BT_SKIP;
    return BT_OK;
}

static bt_code fp16_after_update(void *self, bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    fp16 *f = self;
    char title[64];
    (void)err;
    if (!o->applied || o->elsewhere || !bt_loss_scale_good(&f->scale)) return BT_OK;
    snprintf(title, sizeof title, "%" PRId64 " steps without overflow", f->scale.every);
    change_loss_scale(f, t, false, title);
    return BT_OK;
}

static bt_code fp16_end_run(void *self, bt_trainer *t, bt_train_result *out, bt_err *err) {
    const fp16 *f = self;
    (void)t, (void)err;
    out->loss_scale = f->scale.on ? f->scale.value : NAN;
    return BT_OK;
}

const bt_part bt_part_fp16 = {.name = "fp16",
                              .create = fp16_create,
                              .release = free,
                              .add_state = fp16_add_state,
                              .judge = fp16_verdict,
                              .after_update = fp16_after_update,
                              .end = fp16_end_run};
