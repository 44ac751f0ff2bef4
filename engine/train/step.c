/* step.c - one optimizer update over the global batch. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/train/parts.h"

static void be_slow(const bt_trainer *t, bt_micro_times *took) {
    int64_t more = (int64_t)((t->slow - 1) * (double)(took->fwd_ns + took->bwd_ns));
    bt_sleep_ns(more);
    took->bwd_ns += more;
}
/* In reproducible training every unit's gradients are made whole over the tensor-parallel group by
 * themselves. */
static void ignore_ready(void *ctx, size_t begin, size_t end) { (void)ctx, (void)begin, (void)end; }

/* ---- a micro-batch --------------------------------------------------------------------------- */

bt_code bt_step_batch(bt_trainer *t, bt_batch *out, bt_err *err) {
    int64_t start = bt_now_ns();
    bt_place_enter(t->place, BT_AT_DATA, t->at.step);
    BT_TRY(bt_loader_next(t->loader, out, err));
    int64_t took = bt_now_ns() - start;
    bt_meter_add(&t->meter, BT_MR_DATA, took);
    t->compute_ns += took;
    bt_place_enter(t->place, BT_AT_COMPUTE, t->at.step);
    return BT_OK;
}

bt_grad_ready_fn bt_step_unit(bt_trainer *t, int64_t i) {
    bool last = i == t->n_micro - 1;
    int64_t first_row = (t->first_micro + i) * t->cfg.micro_batch * t->cfg.seq_len;
    bt_model_noise(t->model, (uint64_t)t->cfg.seed, (uint64_t)t->at.step, (uint64_t)first_row);
    if (t->cfg.reproducible) bt_model_grads_into(t->model, bt_reducer_unit(t->reducer));
    if (last) bt_reducer_last(t->reducer);
    return last ? bt_reducer_ready : t->cfg.reproducible ? ignore_ready : NULL;
}

bt_code bt_step_unit_done(bt_trainer *t, int64_t i, bt_err *err) {
    int64_t start = bt_now_ns();
    if (t->cfg.reproducible && i < t->n_micro - 1) bt_reducer_unit_done(t->reducer);
    bt_meter_add(&t->meter, BT_MR_BWD, bt_now_ns() - start);

    start = bt_now_ns();
    BT_TRY(bt_telemetry_poll(&t->telemetry, err));
    bt_meter_add(&t->meter, BT_MR_MONITOR, bt_now_ns() - start);
    return BT_OK;
}

bt_code bt_step_computed(bt_trainer *t, bt_micro_times *took, bt_err *err) {
    int64_t tp_ns = 0;
    BT_TRY(bt_tp_group_check(t->tp_group, err));
    BT_TRY(bt_weights_check(t->weights, err));
    bt_layout_meter_tp(t, &tp_ns);
    if (t->slow > 1) be_slow(t, took);
    t->compute_ns += took->fwd_ns + took->bwd_ns;
    bt_meter_add(&t->meter, BT_MR_FWD, took->fwd_ns);
    bt_meter_add(&t->meter, BT_MR_BWD, took->bwd_ns);
    return BT_OK;
}

static bt_code one_micro(bt_trainer *t, int64_t i, double scale, bt_err *err) {
    bt_micro_times took;
    bt_batch batch;
    BT_TRY(bt_step_batch(t, &batch, err));
    bt_layout_meter_tp(t, NULL); /* what others measured, or nobody wants to know */
    bt_grad_ready_fn ready = bt_step_unit(t, i);
    t->micro_losses[t->first_micro + i] = bt_model_train_micro(
        t->model, batch.inputs, batch.targets, scale, ready, t->reducer, &took);
    BT_TRY(bt_step_computed(t, &took, err));
    return bt_step_unit_done(t, i, err);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Adds the gradients of this rank's samples, scaled so that the sum over all ranks is the mean over
 * the batch's tokens. Only the last micro-batch lets finished gradients leave while backward goes
 * on. In reproducible training every micro-batch is a unit by itself, added to the others in a
 * fixed order. */
static bt_code accumulate_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    double scale = t->loss_scale.value / (double)t->cfg.batch_tokens, sum = 0;
    int64_t start = bt_now_ns();
    t->unscale = 1 / t->loss_scale.value;
    t->compute_ns = 0;
    bt_layout_zero_grads(t);
    bt_reducer_begin(t->reducer);
    BT_TRY(bt_weights_begin(t->weights, BT_PASSES_FORWARD_BACKWARD, t->shares, 0, err));
    bt_meter_add(&t->meter, BT_MR_BWD, bt_now_ns() - start);

    if (t->pipeline) BT_TRY(bt_pipeline_micros(t, scale, err));
    for (int64_t i = 0; i < t->n_micro && !t->pipeline; i++) BT_TRY(one_micro(t, i, scale, err));
    for (int64_t i = 0; i < t->n_micro; i++) sum += t->micro_losses[t->first_micro + i];
    int64_t wait_ns = 0;
    /* ranks that have more micro-batches still come for layers */
    BT_TRY(bt_weights_drain_sends(t->weights, &wait_ns, err));
    bt_meter_add(&t->meter, BT_MR_WAIT, wait_ns);
    out->loss = sum / (double)(t->n_micro * t->cfg.micro_batch * t->cfg.seq_len);
    bt_meter_set(&t->meter, BT_MR_LOSS, out->loss);
    bt_meter_set(&t->meter, BT_MR_MICRO_BATCHES, (double)t->n_micro);
    return BT_OK;
}

/* The step's loss from all micro-batches in their order, the same bits on any number of ranks. */
static bt_code add_losses(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    out->global_loss = NAN;
    if (!t->cfg.reproducible) return BT_OK;
    int64_t start = bt_now_ns();
    double sum = 0;
    for (int64_t i = 0; i < t->micros; i++)
        if (i < t->first_micro || i >= t->first_micro + t->n_micro) t->micro_losses[i] = 0;
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, t->micro_losses, (size_t)t->micros, BT_SUM, err));
    for (int64_t i = 0; i < t->micros; i++) sum += t->micro_losses[i];
    out->global_loss = sum / (double)t->cfg.batch_tokens;
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, bt_now_ns() - start);
    return BT_OK;
}

/* Waits until every rank holds the summed gradients, and until all know what rank 0 was asked to
 * do. */
static bt_code exchange_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    memset(t->notes, 0, sizeof t->notes);
    bt_control_ask(t);
    t->notes[NOTE_BAD_LOSS] = !isfinite(out->loss);
    t->notes[NOTE_GRAD_FINGERPRINT] = t->grad_fingerprint;
    t->notes[NOTE_GRAD_FINGERPRINT_NEG] = -t->grad_fingerprint;

    bt_reduce_times took;
    bt_place_enter(t->place, BT_AT_EXCHANGE, t->at.step);
    BT_TRY(bt_reducer_finish(t->reducer, t->notes, NOTE_COUNT, &took, err));
    bt_meter_add(&t->meter, BT_MR_COMM_BUSY, took.busy_ns);
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, took.exposed_ns);
    bt_meter_add(&t->meter, BT_MR_WAIT, took.wait_ns);
    bt_weights_times weights;
    BT_TRY(bt_weights_end(t->weights, &weights, err));
    bt_meter_add(&t->meter, BT_MR_COMM_BUSY, weights.busy_ns);
    bt_meter_add(&t->meter, BT_MR_COMM_EXPOSED, weights.blocked_ns);
    BT_TRY(add_losses(t, out, err));
    if (t->notes[NOTE_GRAD_FINGERPRINT] != -t->notes[NOTE_GRAD_FINGERPRINT_NEG]) {
        return bt_fail(err, BT_CHECK,
                       "the ranks' gradients of step %lld differ: unlike builds or processors, or "
                       "a hardware fault (resume from a checkpoint)",
                       (long long)t->at.step - 1);
    }
    return BT_OK;
}

/* The norm's bits, without the sign: equal on all ranks, or something is broken. */
static int64_t fingerprint(double grad_norm) {
    int64_t bits = 0;
    if (isfinite(grad_norm)) memcpy(&bits, &grad_norm, sizeof bits);
    return bits & INT64_MAX;
}

static void tell_scale(bt_trainer *t, const char *fmt, ...) BT_PRINTF(2, 3);
static void tell_scale(bt_trainer *t, const char *fmt, ...) {
    char body[64], title[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    snprintf(body, sizeof body, "{\"loss_scale\":%.17g}", t->loss_scale.value);
    bt_telemetry_event(&t->telemetry, "loss_scale", BT_EV_INFO, t->at.step, body, "%s", title);
}

/* The norm is the same on all ranks, so all skip the step together. A loss that is not finite is no
 * matter of its scale. */
static bool overflowed(bt_trainer *t, double grad_norm) {
    if (isfinite(grad_norm) || t->notes[NOTE_BAD_LOSS] || !bt_loss_scale_overflow(&t->loss_scale))
        return false;
    tell_scale(t, "fp16 gradients overflowed, step not applied: loss scale %.0f",
               t->loss_scale.value);
    return true;
}

static bt_code update_weights(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    int64_t start = bt_now_ns();
    bt_place_enter(t->place, BT_AT_OPTIMIZER, t->at.step);
    BT_TRY(bt_layout_grad_norm(t, &out->grad_norm, err));
    out->lr = bt_schedule_lr(&t->schedule, t->at.updates) * t->at.lr_factor;
    out->weight_decay = bt_schedule_decay(&t->schedule, t->at.updates);
    out->loss_scale = t->loss_scale.value;
    if (overflowed(t, out->grad_norm)) {
        out->applied = false;
        t->grad_fingerprint = 0;
        return BT_OK;
    }
    out->applied = bt_guard_step(&t->guard, out->grad_norm, t->notes[NOTE_BAD_LOSS] == 0);
    t->grad_fingerprint = fingerprint(out->grad_norm);
    bt_meter_add(&t->meter, BT_MR_OPTIM, bt_now_ns() - start);

    if (!out->applied) {
        const double *squares;
        BT_TRY(bt_layout_tensor_squares(t, &squares, err));
        const char *tensor = bt_guard_find(&t->table, squares);
        bt_telemetry_event(&t->telemetry, "warning", BT_EV_WARN, t->at.step, NULL,
                           "step not applied: %s%s is not finite", tensor ? "gradient of " : "loss",
                           tensor ? tensor : "");
        return bt_guard_verdict(&t->guard, t->at.step, tensor, err);
    }
    /* as torch.nn.utils.clip_grad_norm_ */
    double clip = t->cfg.clip / (out->grad_norm + 1e-6);
    float grad_scale = (float)(t->cfg.clip > 0 && clip < 1 ? clip * t->unscale : t->unscale);
    BT_TRY(bt_layout_update(t, grad_scale, (float)out->lr, (float)out->weight_decay, err));
    t->at.updates++;
    if (bt_loss_scale_good(&t->loss_scale)) {
        tell_scale(t, "%" PRId64 " steps without overflow: loss scale %.0f", t->loss_scale.every,
                   t->loss_scale.value);
    }
    return BT_OK;
}

bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    BT_TRY(accumulate_gradients(t, out, err));
    BT_TRY(exchange_gradients(t, out, err));

    BT_TRY(update_weights(t, out, err));

    t->at.step++;
    t->at.tokens += t->cfg.batch_tokens;
    return bt_share_adjust(t, err);
}
