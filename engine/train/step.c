/* step.c - one optimizer update over the global batch. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/span.h"
#include "engine/base/testing/testing.h"
#include "engine/config/tune_cfg.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/train/parts/island/island_part.h"

/* ---- gradients ------------------------------------------------------------------------------- */

static double compute_seconds(void) {
    return (double)(bt_span_ns(BT_MR_DATA) + bt_span_ns(BT_MR_FWD) + bt_span_ns(BT_MR_BWD)) / 1e9;
}

static void put_test_nan(bt_trainer *t) {
    const bt_params *p = bt_model_params(t->model);
    const int rank = bt_comm_rank(t->mesh.world);
    for (size_t k = 0; k < p->n; k++)
        if (bt_testing_nan(rank, t->at.step, p->tensors[k].name))
            bt_model_grads(t->model)[p->tensors[k].offset] = NAN;
}

/* Adds the gradients of this rank's samples, scaled so that the sum over all ranks is the mean over
 * the batch's tokens. Only the last micro-batch lets finished gradients leave while backward goes
 * on. In reproducible training every micro-batch is a unit by itself, added to the others in a fixed
 * order. */
static bt_code accumulate_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    const bt_micro_plan *plan = &t->micro_plan;
    if (t->island) BT_TRY(bt_trainer_island_data(t, err));
    const int64_t counted = t->island ? bt_trainer_island_counted(t)
                                      : bt_loader_counted(t->loader, t->at.step);
    out->counted = counted < 0 ? t->step_tokens : counted;
    double scale = t->loss_scale.value / (double)out->counted, sum = 0, began = compute_seconds();
    t->micro.step = t->at.step;
    t->micro.counted = 0;
    bt_span_begin(BT_MR_BWD);
    /* first, so that the first layer's weights are on their way while gradients are zeroed */
    BT_TRY(bt_weights_begin(t->update.weights, BT_PASSES_FORWARD_BACKWARD, plan->shares, 0, err));
    bt_update_zero_grads(&t->update);
    (void)bt_model_take_score(t->model);
    bt_trainer_codec_begin(t);
    bt_reducer_begin(t->reducer);
    put_test_nan(t);
    bt_span_end();

    bt_model_round_attention(t->model, true);
    const bt_code code = t->schedule->run(t->schedule, &t->micro, scale, err);
    bt_model_round_attention(t->model, false);
    BT_TRY(code);
    out->seconds_per_micro = (compute_seconds() - began) / (double)plan->n;
    for (int64_t i = 0; i < plan->n; i++) sum += *bt_micro_loss(&t->micro, i);
    out->score = bt_model_take_score(t->model);
    int64_t mine = counted < 0 ? plan->n * t->micro.rows : t->micro.counted;
    out->loss = mine ? sum / (double)mine : 0; /* of no token: without weight in the mean */
    /* ranks with more micro-batches still need this rank's weights */
    BT_TRY(bt_weights_drain_sends(t->update.weights, err));
    bt_meter_set(&t->meter, BT_MR_LOSS, out->loss);
    bt_meter_set(&t->meter, BT_MR_COUNTED, counted < 0 ? NAN : (double)t->micro.counted);
    bt_meter_set(&t->meter, BT_MR_MICRO_BATCHES, (double)plan->n);
    return BT_OK;
}

/* The step's loss from all micro-batches in their order, the same bits on any number of ranks. */
static bt_code add_losses(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    const bt_micro_plan *plan = &t->micro_plan;
    double sum = 0, *losses = t->micro.losses;
    out->global_loss = NAN;
    if (!t->cfg.reproducible) return BT_OK;
    bt_span_begin(BT_MR_COMM_EXPOSED);
    for (int64_t i = 0; i < plan->micros; i++)
        if (i < plan->first || i >= plan->first + plan->n) losses[i] = 0;
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, losses, (size_t)plan->micros, BT_SUM, err));
    for (int64_t i = 0; i < plan->micros; i++) sum += losses[i];
    out->global_loss = sum / (double)out->counted;
    bt_span_end();
    return BT_OK;
}

/* The machine of a rank is about to be taken away (a batch system's or a cloud's notice): all save and
 * leave together. The supervisor knows what to do without that machine. */
static void heed_notice(bt_trainer *t, bt_step_outcome *out, int rank) {
    char title[80];
    out->control.verbs |= BT_REQ_STOP;
    snprintf(title, sizeof title, "a signal told rank %d to leave: all ranks save and leave", rank);
    bt_telemetry_event_of(&t->telemetry, BT_EVENT_RANK_LEAVES, rank, t->at.step, NULL, title);
}

/* what the micro-batches of all ranks were right about, which the last stage of a pipeline knows */
static bt_code add_scores(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    if (!t->setup.model.pairs && !t->setup.model.cfg.classes) return BT_OK;
    const size_t n = sizeof out->score / sizeof out->score.n;
    bt_span_begin(BT_MR_COMM_EXPOSED);
    BT_TRY(bt_all_reduce_f64(t->mesh.dp, &out->score.n, n, BT_SUM, err));
    if (t->schedule->pipe) BT_TRY(bt_pipe_sum(t->schedule->pipe, &out->score.n, n, err));
    bt_span_end();
    return BT_OK;
}

/* Waits until every rank holds the summed gradients, and until all know what rank 0 was asked. */
static bt_code exchange_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    int64_t notes[NOTE_COUNT] = {0};
    if (bt_comm_rank(t->mesh.world) == 0) {
        bt_control asked = bt_control_take(t->requests);
        notes[NOTE_CONTROL] = asked.verbs | (bt_saver_due(&t->saver) ? REQ_CKPT_DUE : 0);
        notes[NOTE_LR] = asked.lr_bits;
    } else if (bt_control_take(t->requests).verbs & BT_REQ_STOP)
        notes[NOTE_LEAVE] = 1 + bt_comm_rank(t->mesh.world);
    notes[NOTE_BAD_LOSS] = !isfinite(out->loss);
    if (isfinite(out->loss)) memcpy(&notes[NOTE_LOSS], &out->loss, sizeof out->loss);
    notes[NOTE_CKPT_BUSY] = bt_saver_busy(&t->saver);
    notes[NOTE_GRAD_FINGERPRINT] = t->grad_fingerprint;
    notes[NOTE_GRAD_FINGERPRINT_NEG] = -t->grad_fingerprint;

    notes[NOTE_MEMORY_EVERY] = bt_memory_saver_wish(&t->memory, t->step_s);
    BT_TRY(bt_telemetry_poll(&t->telemetry, err));
    bt_memory_saver_settle(t);

    bt_reduce_times took;
    bt_place_enter(t->place, BT_AT_EXCHANGE, t->at.step);
    bt_span_begin(BT_MR_OTHER);
    BT_TRY(bt_reducer_finish(t->reducer, notes, NOTE_COUNT, &took, err));
    bt_span_transfer(BT_MR_COMM_EXPOSED, took.exposed_ns);
    bt_span_transfer(BT_MR_WAIT, took.wait_ns);
    bt_span_end();
    bt_meter_busy(&t->meter, took.busy_ns);
    bt_codec_choice_took(&t->codec, &took);
    BT_TRY(bt_weights_end(t->update.weights, err));
    BT_TRY(bt_trainer_codec_agree(t, err));
    BT_TRY(add_losses(t, out, err));
    BT_TRY(add_scores(t, out, err));
    out->control = (bt_control){.verbs = notes[NOTE_CONTROL], .lr_bits = notes[NOTE_LR]};
    if (notes[NOTE_LEAVE] && !(out->control.verbs & BT_REQ_STOP))
        heed_notice(t, out, (int)notes[NOTE_LEAVE] - 1);
    out->ckpt_busy = notes[NOTE_CKPT_BUSY] != 0;
    out->loss_bad = notes[NOTE_BAD_LOSS] != 0;
    t->memory.every = notes[NOTE_MEMORY_EVERY];
    bt_memory_saver_met(t);
    memcpy(&out->worst_loss, &notes[NOTE_LOSS], sizeof out->worst_loss);
    if (notes[NOTE_GRAD_FINGERPRINT] == -notes[NOTE_GRAD_FINGERPRINT_NEG]) return BT_OK;
    return bt_fail(
        err, BT_DAMAGED,
        "the ranks' gradients of step %lld differ: a fault of memory or processor, or a bug "
        "(resume from a checkpoint)",
        (long long)t->at.step - 1);
}

/* ---- update ---------------------------------------------------------------------------------- */

/* The norm's bits, without the sign: equal on all ranks, or something is broken. */
static int64_t fingerprint(double grad_norm) {
    int64_t bits = 0;
    if (isfinite(grad_norm)) memcpy(&bits, &grad_norm, sizeof bits);
    return bits & INT64_MAX;
}

static void scale_event(bt_trainer *t, bool skipped, const char *fmt, ...) BT_PRINTF(3, 4);
static void scale_event(bt_trainer *t, bool skipped, const char *fmt, ...) {
    char body[96], title[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    snprintf(body, sizeof body, "{\"loss_scale\":%.17g%s}", t->loss_scale.value,
             skipped ? ",\"action\":\"skipped\"" : "");
    bt_telemetry_event(&t->telemetry, BT_EVENT_LOSS_SCALE, t->at.step, body, "%s", title);
}

/* The norm is the same on all ranks, so all skip the step together. A loss that is not finite is no
 * matter of its scale. */
static bool overflowed(bt_trainer *t, const bt_step_outcome *o) {
    if (isfinite(o->grad_norm) || o->loss_bad || !bt_loss_scale_overflow(&t->loss_scale))
        return false;
    scale_event(t, true, "fp16 gradients overflowed, step not applied: loss scale %.0f",
                t->loss_scale.value);
    return true;
}

static bt_code apply(bt_trainer *t, const bt_step_outcome *out, bt_err *err) {
    double unscale = 1 / t->loss_scale.value,
           clip = t->cfg.clip / (out->grad_norm + 1e-6); /* as torch.nn.utils.clip_grad_norm_ */
    bt_optim_update how = {.t = t->at.updates + 1,
                           .held_at = t->codec.held_at,
                           .grad_scale = (float)(t->cfg.clip > 0 && clip < 1 ? clip * unscale
                                                                             : unscale),
                           .lr = (float)out->lr,
                           .decay = (float)out->weight_decay};
    BT_TRY(bt_update_apply(&t->update, &how, err));
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    t->at.updates++;
    if (bt_loss_scale_good(&t->loss_scale))
        scale_event(t, false, "%" PRId64 " steps without overflow: loss scale %.0f",
                    t->loss_scale.every, t->loss_scale.value);
    return BT_OK;
}

bt_step_facts bt_step_facts_of(const bt_trainer *t, const bt_step_outcome *o) {
    return (bt_step_facts){.loss = t->cfg.reproducible ? o->global_loss : o->worst_loss,
                           .grad_norm = o->grad_norm,
                           .loss_finite = !o->loss_bad};
}

static bt_code update_weights(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    bool good = true;
    out->lr = bt_schedule_lr(&t->lr, t->at.updates) * t->at.lr_factor;
    out->weight_decay = bt_schedule_decay(&t->lr, t->at.updates);
    out->loss_scale = t->loss_scale.value;
    if (overflowed(t, out)) {
        out->applied = false;
        bt_residual_undo(&t->residual);
        t->grad_fingerprint = 0;
        return t->island ? bt_trainer_island_exchange(t, out, false, err) : BT_OK;
    }
    BT_TRY(bt_bad_step(t, out, &good, err));
    out->applied = good;
    out->bad = !good;
    t->grad_fingerprint = fingerprint(out->grad_norm);
    if (!good) return t->island ? bt_trainer_island_exchange(t, out, false, err) : BT_OK;
    const bt_step_facts facts = bt_step_facts_of(t, out);
    bt_guard_good(&t->guard, &facts);
    if (!bt_trainer_island_steps_at_hub(t)) BT_TRY(apply(t, out, err));
    return t->island ? bt_trainer_island_exchange(t, out, true, err) : BT_OK;
}

bt_code bt_step_gradients(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    BT_TRY(accumulate_gradients(t, out, err));
    bt_testing_hang(bt_comm_rank(t->mesh.world), t->at.step);
    BT_TRY(exchange_gradients(t, out, err));
    bt_span_begin(BT_MR_OPTIM);
    bt_place_enter(t->place, BT_AT_OPTIMIZER, t->at.step);
    BT_TRY(bt_update_norm(&t->update, 1 / t->loss_scale.value, &out->grad_norm, err));
    bt_span_end();
    return BT_OK;
}

void bt_trainer_lambda(bt_trainer *t) {
    const double lambda = bt_tune_lambda(&t->cfg, t->at.step);
    if (lambda != t->lambda) bt_guard_forget(&t->guard);
    t->lambda = lambda;
    if (bt_tune_fades(&t->cfg)) bt_model_lambda(t->model, lambda);
}

bt_code bt_train_step(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    *out = (bt_step_outcome){.lambda = t->lambda};
    /* exchanges of an evaluation are no part of this step */
    (void)bt_tp_group_take_busy_ns(t->update.tp_group);
    BT_TRY(bt_step_gradients(t, out, err));
    bt_span_begin(BT_MR_OPTIM);
    BT_TRY(update_weights(t, out, err));
    bt_span_end();
    if (out->left) return BT_OK;

    bt_meter_busy(&t->meter, bt_update_take_busy_ns(&t->update));
    bt_meter_busy(&t->meter, bt_tp_group_take_busy_ns(t->update.tp_group));
    if (t->schedule->pipe) bt_meter_busy(&t->meter, bt_pipe_take_busy_ns(t->schedule->pipe));
    t->at.step++;
    t->at.tokens += t->step_tokens;
    bt_trainer_lambda(t);
    bt_replica_check_test_flip(&t->replica_check, t->at.step);
    return BT_OK;
}
