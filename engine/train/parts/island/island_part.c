/* island_part.c - runs a training as an island of a hub (islands.hub): start, data of the steps, exchange of
 * updates. */
#include "engine/train/parts/island/island_part.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/train/trainer_impl.h"

/* After a stop request, a step waits only a limited time for the hub. */
static bool is_stop_due(void *ctx) {
    const bt_island_part *p = ctx;
    const bt_trainer *t = p->trainer;
    const int64_t patience_ns = 3000000000;
    if (t->requests && (atomic_load(&t->requests->bits) & BT_REQ_STOP)) return true;
    return p->stop_ns && bt_now_ns() - p->stop_ns > patience_ns;
}

static void record_hub_state(void *ctx, bool lost, const char *line) {
    bt_trainer *t = ((bt_island_part *)ctx)->trainer;
    bt_telemetry_event(&t->telemetry, lost ? BT_EVENT_WARNING : BT_EVENT_HUB, t->at.step - 1, NULL,
                       "hub '%s': %s", t->cfg.islands.hub, line);
}

static void adopt_hub_step(bt_island_part *p, bt_trainer *t) {
    const bt_island_go *go = bt_island_now(p->island);
    t->at.step = t->at.updates = go->clock;
    t->at.tokens = go->clock * t->cfg.train.batch_tokens;
    p->left = go->steps;
    p->ahead = -1;
    p->next = -1;
}

static bt_code island_ready(void *self, bt_trainer *t, bt_err *err) {
    bt_island_part *p = self;
    if (p->island) return BT_OK;
    const bt_island_cfg cfg = {.cfg = &t->cfg,
                               .update = &t->update,
                               .world = t->mesh.world,
                               .hashes = {bt_params_hash(&t->setup.params),
                                          bt_loader_hash(t->loader)},
                               .sequences = t->micro_plan.sequences,
                               .ctx = p,
                               .interrupted = is_stop_due,
                               .tell = record_hub_state};
    BT_TRY(bt_island_create(&p->island, &cfg, err));
    BT_TRY(bt_island_join(p->island, err));
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    adopt_hub_step(p, t);
    const bt_island_go *go = bt_island_now(p->island);
    bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, t->at.step - 1, NULL,
                       "joined hub '%s' at step %" PRId64 ", %" PRId64 " island%s",
                       t->cfg.islands.hub, go->clock, go->islands, go->islands == 1 ? "" : "s");
    return BT_OK;
}

/* Moves the loader to the sequences that the hub assigned to this step, and counts their targets. Balancing may have
 * changed this rank's share. */
static bt_code island_begin_gradients(void *self, bt_trainer *t, bt_step_outcome *o, bool again,
                                      bt_err *err) {
    bt_island_part *p = self;
    const bt_micro_plan *plan = &t->micro_plan;
    const bt_island_go *go = bt_island_now(p->island);
    const int64_t B = t->cfg.train.micro_batch, ahead = p->ahead,
                  done = ahead < 0 ? go->steps - p->left : ahead,
                  begin = (ahead < 0 ? go->begin : go->next_begin) + done * go->stride;
    const bool moved = again || begin != p->next || go->stride != p->stride ||
                       plan->first != p->share_first || plan->n != p->share_n;
    t->micro.before_rows = go->offset * t->cfg.model.seq_len;
    if (moved)
        BT_TRY(bt_loader_deal(t->loader, begin, (int)go->stride, (int)(plan->first * B),
                              (int)(plan->n * B), err));
    p->begin = begin;
    p->stride = go->stride;
    p->next = begin + go->stride;
    p->share_first = plan->first;
    p->share_n = plan->n;
    o->counted = bt_loader_counted_in(t->loader, p->begin, plan->sequences);
    return BT_OK;
}

static bool is_applied_by_hub(const bt_island_part *p) {
    return bt_island_now(p->island)->kind == BT_PUSH_GRADIENT;
}

static bt_code island_verdict(void *self, bt_trainer *t, bt_step_outcome *o, bt_verdict *verdict,
                              bt_err *err) {
    (void)t, (void)o, (void)err;
    if (is_applied_by_hub(self)) *verdict = BT_ELSEWHERE;
    return BT_OK;
}

/* Mean loss over the learned tokens of this island. Ranks without such tokens or with a non-finite loss do not
 * count. */
static bt_code mean_loss(bt_trainer *t, const bt_step_outcome *out, double *loss, bt_err *err) {
    const double mine = (double)(t->micro.counted > 0 ? t->micro.counted
                                                      : t->micro_plan.n * t->micro.rows);
    double sums[2] = {0, 0};
    *loss = out->global_loss;
    if (t->cfg.train.reproducible) return BT_OK;
    if (out->loss > 0 && isfinite(out->loss)) {
        sums[0] = out->loss * mine;
        sums[1] = mine;
    }
    BT_TRY(bt_all_reduce_f64(t->mesh.world, sums, 2, BT_SUM, err));
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return BT_OK;
}

static void handle_rejoin(bt_island_part *p, bt_trainer *t, bt_step_outcome *out) {
    const int64_t was = t->at.step;
    const bt_update_outcome o = bt_island_outcome(p->island);
    adopt_hub_step(p, t);
    out->again = t->at.step <= was;
    if (o == BT_UPDATE_LOST)
        bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, was, NULL,
                           "joined hub '%s' again at step %" PRId64 " (was at %" PRId64 ")",
                           t->cfg.islands.hub, t->at.step, was + 1);
    else
        bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, was, NULL,
                           "hub '%s': at step %" PRId64 " again (was at %" PRId64 "): %s",
                           t->cfg.islands.hub, t->at.step, was + 1,
                           o == BT_UPDATE_APPLIED ? "steps since the newest update are lost"
                                                  : "the newest update was left out");
    t->at.step--;
    t->at.tokens -= t->cfg.train.batch_tokens;
}

static bt_code apply_hub_answer(bt_island_part *p, bt_trainer *t, bt_step_outcome *out, bool again,
                                bt_err *err) {
    const bt_island_go *go = bt_island_now(p->island);
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    p->left = go->steps;
    if (isfinite(go->lr)) {
        out->lr = go->lr;
        out->weight_decay = go->decay;
        out->grad_norm = go->grad_norm;
    }
    if (again) handle_rejoin(p, t, out);
    if (go->steps == 0 &&
        t->at.step + 1 <
            t->cfg.train.steps) { /* rounds without this island have advanced the hub */
        t->cfg.train.steps = t->at.step + 1;
        t->step.stop = true;
    }
    return BT_OK;
}

/* After a stop request or the loss of the hub, the training ends with the state of the last complete step. */
static bt_code end_island(bt_island_part *p, bt_trainer *t, bt_step_outcome *out, bt_code code,
                          bt_err *err) {
    if (code != BT_STOPPED && !bt_island_gave_up(p->island)) return code;
    if (code != BT_STOPPED) p->hub_lost = *err;
    t->step.stop = out->left = true;
    return BT_OK;
}

static bt_code send_step_to_hub(bt_island_part *p, bt_trainer *t, bt_step_outcome *out, bool apply,
                                bool at_hub, bt_err *err) {
    const int64_t steps = bt_island_now(p->island)->steps;
    /* The delta covers the earlier steps too, so a skipped local step does not change it. */
    bt_island_work w = {.tokens = at_hub ? out->counted : out->counted * steps,
                        .grad_norm = out->grad_norm,
                        .unscale = 1 / t->step.loss_scale};
    bool again = false;
    bt_island_state state = BT_ISLAND_SETTLED;
    BT_TRY(mean_loss(t, out, &w.loss, err));
    p->stop_ns = out->control.verbs & BT_REQ_STOP ? bt_now_ns() : 0;
    bt_progress_enter(t->page, BT_AT_HUB, t->at.step);
    bt_span_begin(BT_MR_COMM_EXPOSED);
    bt_code code = at_hub && !apply ? bt_island_skip(p->island, &again, err)
                   : at_hub         ? bt_island_gradient(p->island, &w, &again, err)
                                    : bt_island_delta(p->island, &w, &state, err);
    bt_span_end();
    if (code != BT_OK) return end_island(p, t, out, code, err);
    if (state == BT_ISLAND_AHEAD) {
        p->ahead = 0;
        return BT_OK;
    }
    if (at_hub && apply) t->at.updates++;
    return apply_hub_answer(p, t, out, again || state == BT_ISLAND_REJOINED, err);
}

/* Trains a step while the hub's answer to the last delta is pending. */
static bt_code step_ahead(bt_island_part *p, bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    bt_island_state state;
    bt_progress_enter(t->page, BT_AT_HUB, t->at.step);
    bt_span_begin(BT_MR_COMM_EXPOSED);
    p->stop_ns = out->control.verbs & BT_REQ_STOP ? bt_now_ns() : 0;
    bt_code code = bt_island_ahead(p->island, ++p->ahead, &state, err);
    bt_span_end();
    if (code != BT_OK) return end_island(p, t, out, code, err);
    if (state == BT_ISLAND_AHEAD) return BT_OK;
    const int64_t ahead = p->ahead;
    p->ahead = -1;
    BT_TRY(apply_hub_answer(p, t, out, state == BT_ISLAND_REJOINED, err));
    if (state == BT_ISLAND_SETTLED) p->left -= ahead;
    return BT_OK;
}

static bt_code island_after_update(void *self, bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    bt_island_part *p = self;
    const bool at_hub = is_applied_by_hub(p);
    if (p->ahead >= 0)
        BT_TRY(step_ahead(p, t, out, err));
    else
        p->left--;
    if (p->left > 0 || p->ahead >= 0) bt_island_beat(p->island);
    if (p->left > 0 || p->ahead >= 0 || t->step.stop || out->left ||
        bt_island_now(p->island)->steps == 0)
        return BT_OK;
    return send_step_to_hub(p, t, out, out->applied, at_hub, err);
}

/* Writes for example " (2 late, 1 poisoned)", or "" without rejected updates. */
static void put_reasons(const bt_island_count *n, char *out, size_t size) {
    size_t at = 0;
    out[0] = 0;
    for (int o = 0; o < BT_UPDATE_OUTCOMES && at < size; o++)
        if (n->by_outcome[o])
            at += (size_t)snprintf(out + at, size - at, "%s%" PRId64 " %s", at ? ", " : " (",
                                   n->by_outcome[o], bt_update_outcome_name((bt_update_outcome)o));
    if (at && at < size) snprintf(out + at, size - at, ")");
}

static bt_code island_end_run(void *self, bt_trainer *t, bt_train_result *out, bt_err *err) {
    bt_island_part *p = self;
    char reasons[160];
    (void)out;
    bt_island_end(p->island);
    const bt_island_count n = bt_island_counted(p->island);
    put_reasons(&n, reasons, sizeof reasons);
    bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, t->at.step - 1, NULL,
                       "hub '%s' has applied %" PRId64 " updates of this island, %" PRId64
                       " tokens; %" PRId64 " left out%s",
                       t->cfg.islands.hub, n.applied, n.tokens, n.left_out, reasons);
    if (p->hub_lost.code == BT_OK) return BT_OK;
    return bt_fail(err, p->hub_lost.code, "hub '%s': %.150s; checkpoint: '%s'", t->cfg.islands.hub,
                   p->hub_lost.msg, t->saver.path);
}

static bt_code island_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    if (!s->cfg->islands.hub[0]) return BT_OK;
    bt_island_part *p = calloc(1, sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory for the island");
    p->trainer = t;
    t->step.data_owner = "a hub deals out the data of its islands";
    *self = p;
    return BT_OK;
}

static void island_release(void *self) {
    bt_island_part *p = self;
    bt_island_destroy(p->island);
    free(p);
}

static size_t island_bytes(const bt_rank_setup *s, size_t saved) {
    (void)saved;
    return s->cfg->islands.hub[0] ? bt_island_bytes(s) : 0;
}

const bt_part bt_part_island = {
    .name = "island",
    .memory = {"island", "weights and updates in the exchange with the hub", island_bytes, false},
    .create = island_create,
    .release = island_release,
    .ready = island_ready,
    .begin_gradients = island_begin_gradients,
    .judge = island_verdict,
    .after_update = island_after_update,
    .end = island_end_run};
