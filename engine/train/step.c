/* step.c - one optimizer update over the global batch. */
#include <math.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/base/testing/testing.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/train/trainer_impl.h"

/* The trainer's own notes in the step's exchange, before those of the parts; every rank receives the maximum of
 * each. The fingerprint is sent as a positive and a negated value, which reveals a difference. LOSS: bits of the
 * largest mean loss of a rank; for non-negative doubles they have the order of the values. */
enum { NOTE_BAD_LOSS, NOTE_LOSS, NOTE_FINGERPRINT, NOTE_FINGERPRINT_NEG, NOTE_PARTS };

static double compute_seconds(void) {
    return (double)(bt_span_ns(BT_MR_DATA) + bt_span_ns(BT_MR_FWD) + bt_span_ns(BT_MR_BWD)) / 1e9;
}

static void inject_test_nan(bt_trainer *t) {
    const bt_params *p = bt_model_params(t->model);
    const int rank = bt_comm_rank(t->mesh.world);
    for (size_t k = 0; k < p->n; k++)
        if (bt_testing_nan(rank, t->at.step, p->tensors[k].name))
            bt_model_grads(t->model)[p->tensors[k].offset] = NAN;
}

static bt_code begin_step_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    const bool again = out->computed++ > 0;
    if (!t->step.data_owner) {
        if (again) BT_TRY(bt_trainer_replace_data(t, err));
        out->counted = bt_loader_counted(t->loader, t->at.step);
    }
    bt_span_begin(BT_MR_BWD);
    /* first, so that the first layer's weights are transferred while gradients are zeroed */
    BT_TRY(bt_weights_begin(t->update.weights, BT_PASSES_FORWARD_BACKWARD, t->micro_plan.shares, 0,
                            err));
    bt_update_zero_grads(&t->update);
    (void)bt_model_take_score(t->model);
    BT_TRY(bt_parts_begin_gradients(t, out, again, err));
    bt_reducer_begin(t->reducer);
    inject_test_nan(t);
    bt_span_end();
    return BT_OK;
}

/* Adds the gradients of this rank's samples, scaled so that the sum over all ranks is the mean over the batch's
 * tokens. Only the last micro-batch sends finished gradients during backward. In reproducible training every
 * micro-batch is a separate unit, and units are added in a fixed order. */
static bt_code accumulate_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    const bt_micro_plan *plan = &t->micro_plan;
    const double began = compute_seconds();
    BT_TRY(begin_step_gradients(t, out, err));
    const bool all = out->counted < 0;
    if (all) out->counted = t->cfg.train.batch_tokens;
    t->micro.step = t->at.step;
    t->micro.counted = 0;
    bt_model_gradient_passes(t->model, true);
    const bt_code code = t->schedule->run(t->schedule, &t->micro,
                                          t->step.loss_scale / (double)out->counted, err);
    bt_model_gradient_passes(t->model, false);
    BT_TRY(code);
    double sum = 0;
    out->seconds_per_micro = (compute_seconds() - began) / (double)plan->n;
    for (int64_t i = 0; i < plan->n; i++) sum += *bt_micro_loss(&t->micro, i);
    out->score = bt_model_take_score(t->model);
    const int64_t mine = all ? plan->n * t->micro.rows : t->micro.counted;
    out->loss = mine ? sum / (double)mine
                     : 0; /* a rank without targets has no weight in the mean */
    /* ranks with more micro-batches may still need this rank's weights */
    BT_TRY(bt_weights_drain_sends(t->update.weights, err));
    bt_meter_set(&t->meter, BT_MR_LOSS, out->loss);
    bt_meter_set(&t->meter, BT_MR_COUNTED, all ? NAN : (double)t->micro.counted);
    bt_meter_set(&t->meter, BT_MR_MICRO_BATCHES, (double)plan->n);
    return BT_OK;
}

/* Sums the step's loss over all micro-batches in a fixed order, so any number of ranks gives the same bits. */
static bt_code add_losses(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    const bt_micro_plan *plan = &t->micro_plan;
    double sum = 0, *losses = t->micro.losses;
    out->global_loss = NAN;
    if (!t->cfg.train.reproducible) return BT_OK;
    bt_span_begin(BT_MR_COMM_EXPOSED);
    for (int64_t i = 0; i < plan->micros; i++)
        if (i < plan->first || i >= plan->first + plan->n) losses[i] = 0;
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, losses, (size_t)plan->micros, BT_SUM, err));
    for (int64_t i = 0; i < plan->micros; i++) sum += losses[i];
    out->global_loss = sum / (double)out->counted;
    bt_span_end();
    return BT_OK;
}

/* Sums the scores of all micro-batches, which only the last pipeline stage computes. */
static bt_code add_scores(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    if (!t->setup.model.pairs && !t->setup.model.cfg.classes) return BT_OK;
    const size_t n = sizeof out->score / sizeof out->score.n;
    bt_span_begin(BT_MR_COMM_EXPOSED);
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, &out->score.n, n, BT_SUM, err));
    if (t->schedule->pipe) BT_TRY(bt_pipe_sum(t->schedule->pipe, &out->score.n, n, err));
    bt_span_end();
    return BT_OK;
}

static bt_code exchange_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    int64_t notes[NOTE_PARTS + BT_PART_NOTES] = {0};
    notes[NOTE_BAD_LOSS] = !isfinite(out->loss);
    if (isfinite(out->loss)) memcpy(&notes[NOTE_LOSS], &out->loss, sizeof out->loss);
    notes[NOTE_FINGERPRINT] = t->step.grad_fingerprint;
    notes[NOTE_FINGERPRINT_NEG] = -t->step.grad_fingerprint;
    BT_TRY(bt_telemetry_poll(&t->telemetry, err));
    bt_parts_put_notes(t, notes + NOTE_PARTS);

    bt_reduce_times took;
    bt_progress_enter(t->page, BT_AT_EXCHANGE, t->at.step);
    bt_span_begin(BT_MR_OTHER);
    BT_TRY(bt_reducer_finish(t->reducer, notes, NOTE_PARTS + (size_t)t->parts.notes, &took, err));
    bt_span_transfer(BT_MR_COMM_EXPOSED, took.exposed_ns);
    bt_span_transfer(BT_MR_WAIT, took.wait_ns);
    bt_span_end();
    bt_meter_busy(&t->meter, took.busy_ns);
    BT_TRY(bt_weights_end(t->update.weights, err));
    BT_TRY(add_losses(t, out, err));
    BT_TRY(add_scores(t, out, err));
    out->loss_bad = notes[NOTE_BAD_LOSS] != 0;
    memcpy(&out->worst_loss, &notes[NOTE_LOSS], sizeof out->worst_loss);
    BT_TRY(bt_parts_exchanged(t, out, &took, notes + NOTE_PARTS, err));
    if (notes[NOTE_FINGERPRINT] == -notes[NOTE_FINGERPRINT_NEG]) return BT_OK;
    return bt_fail(
        err, BT_DAMAGED,
        "the ranks' gradients of step %lld differ: a fault of memory or processor, or a bug "
        "(resume from a checkpoint)",
        (long long)t->at.step - 1);
}

/* Computes the gradients of the global batch and their norm; the weights do not change. */
static bt_code compute_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    BT_TRY(accumulate_gradients(t, out, err));
    bt_testing_hang(bt_comm_rank(t->mesh.world), t->at.step);
    BT_TRY(exchange_gradients(t, out, err));
    bt_span_begin(BT_MR_OPTIM);
    bt_progress_enter(t->page, BT_AT_OPTIMIZER, t->at.step);
    BT_TRY(bt_update_norm(&t->update, 1 / t->step.loss_scale, &out->grad_norm, err));
    bt_span_end();
    return BT_OK;
}

/* Bits of the norm without the sign; a difference between ranks indicates an error. */
static int64_t norm_bits(double grad_norm) {
    int64_t bits = 0;
    if (isfinite(grad_norm)) memcpy(&bits, &grad_norm, sizeof bits);
    return bits & INT64_MAX;
}

static bt_code apply_gradients(bt_trainer *t, const bt_step_outcome *out, bt_err *err) {
    double unscale = 1 / t->step.loss_scale,
           clip = t->cfg.optim.clip /
                  (out->grad_norm + 1e-6); /* same as torch.nn.utils.clip_grad_norm_ */
    bt_optim_update how = {.t = t->at.updates + 1,
                           .held_at = t->step.held_at,
                           .grad_scale = (float)(t->cfg.optim.clip > 0 && clip < 1 ? clip * unscale
                                                                                   : unscale),
                           .lr = (float)out->lr,
                           .decay = (float)out->weight_decay};
    BT_TRY(bt_update_apply(&t->update, &how, err));
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    t->at.updates++;
    return BT_OK;
}

static void meter_transfers(bt_trainer *t) {
    bt_meter_busy(&t->meter, bt_update_take_busy_ns(&t->update));
    bt_meter_busy(&t->meter, bt_tp_group_take_busy_ns(t->update.tp_group));
    if (t->schedule->pipe) bt_meter_busy(&t->meter, bt_pipe_take_busy_ns(t->schedule->pipe));
}

bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    bt_verdict verdict;
    *out = (bt_step_outcome){.lr = bt_schedule_lr(&t->lr, t->at.updates) * t->at.lr_factor,
                             .weight_decay = bt_schedule_decay(&t->lr, t->at.updates),
                             .loss_scale = t->step.loss_scale};
    /* discards exchange times of an evaluation before this step */
    (void)bt_tp_group_take_busy_ns(t->update.tp_group);
    do {
        BT_TRY(compute_gradients(t, out, err));
        bt_span_begin(BT_MR_OPTIM);
        BT_TRY(bt_parts_verdict(t, out, &verdict, err));
        bt_span_end();
    } while (verdict == BT_AGAIN);

    bt_span_begin(BT_MR_OPTIM);
    t->step.grad_fingerprint = norm_bits(out->grad_norm);
    out->applied = verdict != BT_SKIP;
    out->elsewhere = verdict == BT_ELSEWHERE;
    if (verdict == BT_APPLY) BT_TRY(apply_gradients(t, out, err));
    BT_TRY(bt_parts_after_update(t, out, err));
    bt_span_end();
    if (out->left) return BT_OK;
    meter_transfers(t);
    t->at.step++;
    t->at.tokens += t->cfg.train.batch_tokens;
    return BT_OK;
}
