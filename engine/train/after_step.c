/* after_step.c - the actions of after_step.def. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/span.h"
#include "engine/config/tune_cfg.h"
#include "engine/train/trainer_impl.h"

static bool every(int64_t step, int64_t n) { return n > 0 && step % n == 0; }
bool bt_trainer_at_end(const bt_trainer *t) { return t->at.step >= t->cfg.steps; }
static bool at_stop(const bt_trainer *t) { return t->stop_at > 0 && t->at.step >= t->stop_at; }

/* ---- codec ----------------------------------------------------------------------------------- */

static bool due_codec(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return t->codec.ladder.n > 1;
}

static bt_code run_codec(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    return bt_codec_choice_step(t, o, err);
}

/* ---- balance --------------------------------------------------------------------------------- */

static void balance_event(bt_trainer *t, double gain) {
    const bt_micro_plan *p = &t->micro_plan;
    char body[512], *at = body, *end = body + sizeof body;
    int64_t least = INT64_MAX, most = INT64_MIN;
    at += snprintf(at, (size_t)(end - at), "{\"micro_batches\":[");
    for (size_t i = 0; i < p->dp; i++) {
        if (p->shares[i] < least) least = p->shares[i];
        if (p->shares[i] > most) most = p->shares[i];
        if (end - at > 32) /* of the first hundred ranks */
            at += snprintf(at, (size_t)(end - at), "%s%" PRId64, i ? "," : "", p->shares[i]);
    }
    snprintf(at, (size_t)(end - at), "]}");
    bt_telemetry_event(&t->telemetry, BT_EVENT_BALANCE, t->at.step - 1, body,
                       "from the next step ranks take %" PRId64 " to %" PRId64
                       " micro-batches by their speed: steps %.0f %% shorter",
                       least, most, 100 * gain);
}

static bool due_balance(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return t->micro_plan.balance == BT_BALANCE_AUTO;
}

static bt_code run_balance(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    const bt_micro_plan *p = &t->micro_plan;
    double gain;
    BT_TRY(bt_micro_plan_adjust(&t->micro_plan, o->seconds_per_micro, &gain, err));
    if (!(gain > 0)) return BT_OK;
    balance_event(t, gain);
    /* other units are added on other ranks, in the same tree */
    if (t->cfg.reproducible) BT_TRY(bt_trainer_make_reducer(t, err));
    t->island_next = -1; /* an island's data are dealt out again */
    return bt_loader_move(t->loader, t->at.step, (int)(p->first * t->cfg.micro_batch),
                          (int)(p->n * t->cfg.micro_batch), err);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

static void sample_event(const bt_trainer *t, const bt_text *prompt, const bt_text *text,
                         bool asked, double took_ms) {
    bt_text body;
    bt_json j;
    char line[64]; /* the text's beginning */
    bt_text_init(&body);
    bt_text_plain(line, sizeof line, bt_text_str(text));
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "prompt", bt_text_str(prompt));
    bt_json_str(&j, "text", bt_text_str(text));
    bt_json_num(&j, "took_ms", took_ms);
    if (asked) bt_json_bool(&j, "asked", true);
    bt_json_end(&j, '}');
    bt_telemetry_event(&t->telemetry, BT_EVENT_SAMPLE, t->at.step - 1, bt_text_str(&body),
                       asked ? "writes, as asked: %s" : "writes: %s", line);
    bt_text_release(&body);
}

static bt_code write_sample_text(bt_trainer *t, bt_sample_text *s, bool asked, bt_err *err) {
    bt_text prompt, text;
    int64_t start = bt_now_ns();
    bt_text_init(&prompt);
    bt_text_init(&text);
    bt_code code = bt_sample_text_run(s, t->model, t->schedule->pipe, t->update.weights, &prompt,
                                      &text, err);
    if (code == BT_OK && text.len > 0)
        sample_event(t, &prompt, &text, asked, (double)(bt_now_ns() - start) / 1e6);
    bt_text_release(&text);
    bt_text_release(&prompt);
    return code;
}

/* of a forward pass that belongs to no step */
static void forget_transfers(bt_trainer *t) {
    (void)bt_weights_take_busy_ns(t->update.weights);
    if (t->schedule->pipe) (void)bt_pipe_take_busy_ns(t->schedule->pipe);
}

static void json_number(char *out, size_t size, double v) {
    if (isfinite(v))
        snprintf(out, size, "%.9g", v);
    else
        snprintf(out, size, "null");
}

bt_code bt_trainer_evaluate(bt_trainer *t, bt_err *err) {
    bt_weights *w = t->update.weights;
    bt_eval_result *r = &t->validation;
    int64_t start = bt_now_ns();
    bt_place_enter(t->place, BT_AT_EVALUATION, t->at.step - 1);
    BT_TRY(bt_weights_begin(w, BT_PASSES_FORWARD, NULL, bt_evaluator_micros(t->evaluator), err));
    BT_TRY(bt_evaluator_run(t->evaluator, t->model, t->schedule->pipe, r, err));
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
    for (bt_sample_text *s = t->sample_text; s; s = bt_sample_text_next(s))
        BT_TRY(write_sample_text(t, s, false, err));
    forget_transfers(t);
    return BT_OK;
}

static bool due_evaluation(const bt_trainer *t, const bt_step_outcome *o) {
    return t->evaluator && (every(t->at.step, t->cfg.eval_every) || bt_trainer_at_end(t) ||
                            (o->control.verbs & BT_REQ_EVAL));
}

static bt_code run_evaluation(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    bt_profile_hold(true);
    bt_code code = bt_trainer_evaluate(t, err);
    bt_profile_hold(false);
    o->evaluated = true;
    /* a checkpoint is a ternary model's: a loss of another says nothing about it */
    o->best = code == BT_OK && t->lambda >= 1 && bt_saver_validated(&t->saver, t->validation.nats);
    return code;
}

/* ---- replicas -------------------------------------------------------------------------------- */

static void blame_event(bt_trainer *t, int rank, const char *host, const char *tensor,
                        const char *title) {
    bt_text body;
    bt_json j;
    bt_text_init(&body);
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "cause", "replicas_differ");
    bt_json_str(&j, "tensor", tensor);
    bt_json_int(&j, "rank", rank);
    bt_json_str(&j, "host", host);
    bt_json_end(&j, '}');
    bt_telemetry_event_of(&t->telemetry, BT_EVENT_HARDWARE, rank, t->at.step - 1,
                          bt_text_str(&body), title);
    bt_text_release(&body);
}

static void told_difference(bt_trainer *t, const bt_replica_blame *b) {
    char title[400];
    const bool tie = !b->majority;
    if (tie)
        snprintf(
            title, sizeof title,
            "weights of %s differ after step %" PRId64
            " between rank %d (host '%s') and rank %d (host '%s'): which is damaged shows when "
            "the step has been done again from a checkpoint",
            b->tensor, t->at.step, b->rank[0], b->host[0], b->rank[1], b->host[1]);
    else
        snprintf(title, sizeof title,
                 "weights of %s on rank %d (host '%s') are damaged after step %" PRId64
                 ": the majority of replicas holds others",
                 b->tensor, b->rank[0], b->host[0], t->at.step);
    blame_event(t, tie ? -1 : b->rank[0], b->host[0], b->tensor, title);
    if (tie && bt_comm_rank(t->mesh.world) == 0)
        bt_suspect_write(t->cfg.out, &t->mesh, &(bt_suspect){.step = t->at.step, .blame = *b});
}

bt_code bt_trainer_compare_replicas(bt_trainer *t, bt_err *err) {
    bt_replica_blame blame = {0};
    const bt_code code = bt_replica_check_run(&t->replica_check, t->at.step, &blame, err);
    if (!blame.found) return code;
    told_difference(t, &blame);
    /* on its way to disk: its weights were compared before they were copied, and all ranks are here */
    bt_err unsaved = BT_ERR_INIT;
    if (bt_saver_finish(&t->saver, &unsaved) != BT_OK) bt_log(BT_LOG_WARN, "%s", unsaved.msg);
    return code;
}

/* Of the two that differed at this step in the attempt before, the one whose weights are others now. */
static bt_code settle_suspicion(bt_trainer *t, bt_err *err) {
    char title[300];
    int which;
    const bt_replica_blame b = t->suspect.blame;
    BT_TRY(bt_suspect_settle(t->cfg.out, &t->suspect, &t->replica_check, &which, err));
    if (which < 0) return BT_OK;
    snprintf(title, sizeof title,
             "step %" PRId64
             " was done again: it was rank %d (host '%s') whose weights of %s were damaged",
             t->at.step, b.rank[which], b.host[which], b.tensor);
    blame_event(t, b.rank[which], b.host[which], b.tensor, title);
    return BT_OK;
}

/* train.check_weights_every=-1: as seldom as the cost of it asks for, the same on all ranks. began_ns: of the newest
 * comparison */
static bt_code plan_next_check(bt_trainer *t, int64_t began_ns, bt_err *err) {
    const int64_t now = bt_now_ns(), steps = t->at.step - t->checked_step;
    double worst[2] = {(double)(now - began_ns), 0}; /* the longest, the shortest step negated */
    if (t->checked_ns > 0 && steps > 0)
        worst[1] = -(double)(began_ns - t->checked_ns) / (double)steps;
    BT_TRY(bt_all_reduce_f64(t->mesh.world, worst, 2, BT_MAX, err));
    t->next_check = t->at.step + bt_replica_check_every(worst[0], -worst[1]);
    t->checked_ns = now;
    return BT_OK;
}

static bt_code compare_replicas(bt_trainer *t, bt_err *err) {
    if (t->cfg.check_weights == 0 || t->checked_step == t->at.step || t->setup.dp == 1)
        return BT_OK;
    const int64_t began = bt_now_ns();
    BT_TRY(bt_trainer_compare_replicas(t, err));
    if (t->suspect.step == t->at.step) BT_TRY(settle_suspicion(t, err));
    if (t->cfg.check_weights < 0) BT_TRY(plan_next_check(t, began, err));
    t->checked_step = t->at.step;
    return BT_OK;
}

static bool due_replicas(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return every(t->at.step, t->cfg.check_weights) || bt_trainer_at_end(t) ||
           (t->cfg.check_weights < 0 && t->at.step >= t->next_check) ||
           t->suspect.step == t->at.step;
}

static bt_code run_replicas(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o;
    return compare_replicas(t, err);
}

/* ---- statistics and the step's record ---------------------------------------------------------- */

static bool due_statistics(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return every(t->at.step - 1, t->cfg.stats_every);
}

static bt_code run_statistics(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    bt_sample_step s = {
        .step = t->at.step - 1, .applied = o->applied, .unscale = 1 / o->loss_scale};
    bt_place_enter(t->place, BT_AT_RECORD, t->at.step - 1);
    BT_TRY(bt_codec_choice_sample(t, o, &s.residual_ratio, &s.grad_bits, err));
    return bt_observer_sample(t->observer, &s, err);
}

static bool due_record(const bt_trainer *t, const bt_step_outcome *o) {
    if (o->again) return false;
    /* an evaluation during a pause belongs to the step before it: that step has a record */
    return every(t->at.step - 1, t->cfg.log_every) || o->evaluated || !o->applied ||
           (o->control.verbs & BT_REQ_PAUSE) || bt_trainer_at_end(t) || at_stop(t);
}

static bt_code run_record(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    double values[BT_MS_COUNT];
    bt_place_enter(t->place, BT_AT_RECORD, t->at.step - 1);
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    values[BT_MS_TOKENS] = (double)t->at.tokens;
    values[BT_MS_LOSS] = o->global_loss;
    values[BT_MS_COUNTED] = (double)o->counted;
    values[BT_MS_GRAD_NORM] = o->grad_norm;
    values[BT_MS_LR] = o->lr;
    values[BT_MS_WEIGHT_DECAY] = o->weight_decay;
    values[BT_MS_LOSS_SCALE] = o->loss_scale;
    values[BT_MS_SKIPPED] = !o->applied;
    if (o->score.n > 0) values[BT_MS_ACCURACY] = o->score.right / o->score.n;
    if (t->setup.model.pairs) values[BT_MS_REWARD_MARGIN] = o->score.margin / o->score.n;
    if (o->evaluated) values[BT_MS_VAL_ACCURACY] = t->validation.accuracy;
    if (o->evaluated) values[BT_MS_VAL_MARGIN] = t->validation.margin;
    if (o->evaluated) values[BT_MS_VAL_F1] = t->validation.macro_f1;
    values[BT_MS_LAMBDA] = bt_tune_fades(&t->cfg) ? o->lambda : NAN;
    if (o->evaluated) values[BT_MS_VAL_LOSS] = t->validation.nats;
    return bt_telemetry_post(&t->telemetry, t->at.step - 1, values, o->rank_values, err);
}

/* ---- state in memory --------------------------------------------------------------------------- */

static bool due_memory(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return t->memory.to && every(t->at.step, t->memory.every);
}

static bt_code run_memory(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o;
    return bt_memory_saver_write(t, err);
}

/* ---- prediction ------------------------------------------------------------------------------ */

static bool due_prediction(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return t->cfg.predicted_ms > 0 && bt_trainer_full_size(t);
}

static bt_code run_prediction(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o, (void)err;
    /* the others' figures are with rank 0; a bigram model's steps were not predicted */
    if (bt_comm_rank(t->mesh.world) == 0 && !bt_run_cfg_bigram(&t->cfg, t->at.step - 1))
        bt_prediction_check_step(&t->prediction, &t->telemetry, t->at.step - 1);
    return BT_OK;
}

/* ---- checkpoint ------------------------------------------------------------------------------ */

static bool due_checkpoint(const bt_trainer *t, const bt_step_outcome *o) {
    return (bt_trainer_at_end(t) && t->cfg.ckpt_final) || at_stop(t) ||
           (o->control.verbs & (BT_REQ_STOP | REQ_CKPT_DUE)) || t->ckpt_postponed ||
           (o->best && !o->bad) || every(t->at.step, t->cfg.ckpt_every);
}

/* A step that was not applied leaves the weights as they were; but what makes batches bad may be in
 * the weights, which the next good step disproves. At the end there is no next one. */
static bool last_step(const bt_trainer *t, const bt_step_outcome *o) {
    return bt_trainer_at_end(t) || at_stop(t) || (o->control.verbs & BT_REQ_STOP);
}

static bool postpone(bt_trainer *t, const bt_step_outcome *o) {
    return t->ckpt_postponed = o->bad && !last_step(t, o);
}

static bool due_commit(const bt_trainer *t, const bt_step_outcome *o) {
    return bt_saver_pending(&t->saver) && !o->ckpt_busy;
}

static bt_code run_commit(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o;
    return bt_saver_advance(&t->saver, err);
}

bt_code bt_trainer_save(bt_trainer *t, bool best, bool wait, bt_err *err) {
    BT_TRY(bt_telemetry_flush(&t->telemetry, err));
    bt_place_enter(t->place, BT_AT_CHECKPOINT, t->at.step - 1);
    BT_TRY(compare_replicas(t, err));
    return bt_saver_save(&t->saver, best, wait, err);
}

static bt_code run_checkpoint(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    return postpone(t, o) ? BT_OK : bt_trainer_save(t, o->best, last_step(t, o), err);
}

/* ---- verification ------------------------------------------------------------------------------ */

static bool due_verify(const bt_trainer *t, const bt_step_outcome *o) {
    (void)o;
    return t->cfg.ckpt_verify && bt_comm_rank(t->mesh.world) == 0;
}

static bt_code run_verify(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    (void)o, (void)err;
    bt_saver_check(&t->saver, false);
    return BT_OK;
}

/* ---- control --------------------------------------------------------------------------------- */

static void change_lr(bt_trainer *t, double factor) {
    char body[64];
    t->at.lr_factor = factor;
    snprintf(body, sizeof body, "{\"lr_factor\":%.17g}", factor);
    bt_telemetry_event(&t->telemetry, BT_EVENT_CONTROL, t->at.step - 1, body,
                       "learning rate times %g from now on", factor);
}

static bt_code evaluate_now(bt_trainer *t, bt_err *err) {
    if (t->evaluator) return bt_trainer_evaluate(t, err);
    bt_telemetry_event(&t->telemetry, BT_EVENT_WARNING, t->at.step - 1, NULL,
                       "no validation data: data.val_frac is 0");
    return BT_OK;
}

/* A prompt that cannot be gone on from is refused by all ranks alike, and training goes on. */
static bt_code sample_now(bt_trainer *t, bt_err *err) {
    const bool asked_here = bt_comm_rank(t->mesh.world) == 0;
    char *prompt = asked_here ? bt_control_take_prompt(t->requests) : NULL;
    bt_sample_text *s = NULL;
    bt_place_enter(t->place, BT_AT_EVALUATION, t->at.step - 1);
    bt_code code = bt_sample_text_for_prompt(&s, &t->cfg, t->mesh.world, prompt, err);
    free(prompt);
    if (code == BT_ARG || code == BT_UNSUPPORTED) {
        bt_telemetry_event(&t->telemetry, BT_EVENT_REFUSED, t->at.step - 1, NULL, "no sample: %s",
                           err ? err->msg : "");
        return BT_OK;
    }
    bt_profile_hold(true);
    if (code == BT_OK) code = write_sample_text(t, s, true, err);
    bt_profile_hold(false);
    forget_transfers(t);
    bt_sample_text_destroy(s);
    return code;
}

static bt_code save_now(bt_trainer *t, bt_err *err) {
    if (t->ckpt_postponed) {
        bt_telemetry_event(&t->telemetry, BT_EVENT_CONTROL, t->at.step - 1, NULL,
                           "the checkpoint that was asked for follows the next good step");
        return BT_OK;
    }
    return bt_trainer_save(t, false, false, err);
}

/* Whoever passes a request on records who asked; what became of it is recorded here. evaluated: the
 * validation loss of these weights is known already */
static bt_code act(bt_trainer *t, const bt_control *c, bool evaluated, bt_err *err) {
    if (c->verbs & BT_REQ_LR) change_lr(t, bt_control_lr_factor(c));
    if ((c->verbs & BT_REQ_EVAL) && !evaluated) BT_TRY(evaluate_now(t, err));
    if (c->verbs & BT_REQ_MIXTURE) BT_TRY(bt_trainer_mixture_now(t, err));
    if (c->verbs & BT_REQ_SAMPLE) BT_TRY(sample_now(t, err));
    if (c->verbs & BT_REQ_CHECKPOINT) BT_TRY(save_now(t, err));
    if (c->verbs & BT_REQ_STOP) t->stop = true;
    return BT_OK;
}

static void while_paused(void *ctx) { bt_saver_check(&((bt_trainer *)ctx)->saver, true); }

static bt_code pause_here(bt_trainer *t, bt_err *err) {
    BT_TRY(bt_telemetry_flush(&t->telemetry, err));
    BT_TRY(bt_saver_finish(&t->saver, err));
    bt_telemetry_event(&t->telemetry, BT_EVENT_PAUSED, t->at.step - 1, NULL,
                       "paused after step %" PRId64, t->at.step);
    int64_t began = bt_now_ns();
    bt_place_enter(t->place, BT_AT_PAUSE, t->at.step - 1);
    while (!t->stop) {
        bt_control c;
        const bt_control_idle idle = {while_paused, t};
        BT_TRY(bt_control_wait(t->mesh.world, t->requests, &idle, &c, err));
        BT_TRY(act(t, &c, false, err));
        BT_TRY(bt_saver_finish(&t->saver, err));
        if (c.verbs & BT_REQ_RESUME) break;
    }
    bt_telemetry_event(&t->telemetry, BT_EVENT_CONTINUED, t->at.step - 1, NULL,
                       "%s after a pause of %.1f s", t->stop ? "stopping" : "going on",
                       (double)(bt_now_ns() - began) / 1e9);
    return BT_OK;
}

static bool due_control(const bt_trainer *t, const bt_step_outcome *o) {
    (void)t;
    return o->control.verbs != 0;
}

static bt_code run_control(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    if (o->control.verbs & BT_REQ_CHECKPOINT) (void)postpone(t, o);
    BT_TRY(act(t, &o->control, o->evaluated, err));
    bool pause = (o->control.verbs & BT_REQ_PAUSE) && !(o->control.verbs & BT_REQ_RESUME);
    return pause && !t->stop ? pause_here(t, err) : BT_OK;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct {
    bool (*due)(const bt_trainer *t, const bt_step_outcome *o);
    bt_code (*run)(bt_trainer *t, bt_step_outcome *o, bt_err *err);
    int phase;
} actions[] = {
#define BT_AFTER_STEP(name, phase, what) {due_##name, run_##name, phase},
#include "engine/train/after_step.def"
#undef BT_AFTER_STEP
};

bt_code bt_after_step(bt_trainer *t, bt_step_outcome *o, bt_err *err) {
    for (size_t i = 0; i < sizeof actions / sizeof *actions; i++) {
        if (!actions[i].due(t, o)) continue;
        bt_span_begin(actions[i].phase);
        BT_TRY(actions[i].run(t, o, err));
        bt_span_end();
    }
    return BT_OK;
}
