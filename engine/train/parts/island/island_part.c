/* island_part.c - the step's exchange with the hub. */
#include "engine/train/parts/island/island_part.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"

/* A stop that the step knows of already waits for a hub that answers, and not for one that does not. */
static bool interrupted(void *ctx) {
    const bt_trainer *t = ctx;
    const int64_t patience_ns = 3000000000;
    if (t->requests && (atomic_load(&t->requests->bits) & BT_REQ_STOP)) return true;
    return t->island_stop_ns && bt_now_ns() - t->island_stop_ns > patience_ns;
}

static void tell(void *ctx, bool lost, const char *line) {
    bt_trainer *t = ctx;
    bt_telemetry_event(&t->telemetry, lost ? BT_EVENT_WARNING : BT_EVENT_HUB, t->at.step - 1, NULL,
                       "hub '%s': %s", t->cfg.hub, line);
}

/* ---- where this island is ------------------------------------------------------------------------ */

static void take_clock(bt_trainer *t) {
    const bt_island_go *go = bt_island_now(t->island);
    t->at.step = t->at.updates = go->clock;
    t->at.tokens = go->clock * t->cfg.batch_tokens;
    t->island_left = go->steps;
    t->island_ahead = -1;
    t->island_next = -1;
}

bt_code bt_trainer_island_join(bt_trainer *t, bt_err *err) {
    if (!t->cfg.hub[0]) return BT_OK;
    const bt_island_cfg cfg = {.cfg = &t->cfg,
                               .update = &t->update,
                               .world = t->mesh.world,
                               .hashes = {bt_params_hash(&t->setup.params),
                                          bt_loader_hash(t->loader)},
                               .sequences = t->micro_plan.sequences,
                               .ctx = t,
                               .interrupted = interrupted,
                               .tell = tell};
    BT_TRY(bt_island_create(&t->island, &cfg, err));
    BT_TRY(bt_island_join(t->island, err));
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    take_clock(t);
    const bt_island_go *go = bt_island_now(t->island);
    bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, t->at.step - 1, NULL,
                       "joined hub '%s' at step %" PRId64 ", %" PRId64 " island%s", t->cfg.hub,
                       go->clock, go->islands, go->islands == 1 ? "" : "s");
    return BT_OK;
}

bt_code bt_trainer_island_data(bt_trainer *t, bt_err *err) {
    const bt_micro_plan *p = &t->micro_plan;
    const bt_island_go *go = bt_island_now(t->island);
    const int64_t B = t->cfg.micro_batch, ahead = t->island_ahead,
                  done = ahead < 0 ? go->steps - t->island_left : ahead,
                  begin = (ahead < 0 ? go->begin : go->next_begin) + done * go->stride;
    t->micro.before_rows = go->offset * t->cfg.seq_len;
    if (begin != t->island_next || go->stride != t->island_stride)
        BT_TRY(bt_loader_deal(t->loader, begin, (int)go->stride, (int)(p->first * B),
                              (int)(p->n * B), err));
    t->island_begin = begin;
    t->island_stride = go->stride;
    t->island_next = begin + go->stride;
    return BT_OK;
}

int64_t bt_trainer_island_counted(const bt_trainer *t) {
    return bt_loader_counted_in(t->loader, t->island_begin, t->micro_plan.sequences);
}

bool bt_trainer_island_steps_at_hub(const bt_trainer *t) {
    return t->island && bt_island_now(t->island)->kind == BT_PUSH_GRADIENT;
}

/* The mean over this island's tokens. A rank that learned none, or has no finite loss, does not count */
static bt_code mean_loss(bt_trainer *t, const bt_step_outcome *out, double *loss, bt_err *err) {
    const double mine = (double)(t->micro.counted > 0 ? t->micro.counted
                                                      : t->micro_plan.n * t->micro.rows);
    double sums[2] = {0, 0};
    *loss = out->global_loss;
    if (t->cfg.reproducible) return BT_OK;
    if (out->loss > 0 && isfinite(out->loss)) {
        sums[0] = out->loss * mine;
        sums[1] = mine;
    }
    BT_TRY(bt_all_reduce_f64(t->mesh.world, sums, 2, BT_SUM, err));
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return BT_OK;
}

/* ---- the exchange -------------------------------------------------------------------------------- */

/* Steps are done again: as of a member that joins, or because its update was left out */
static void rejoined(bt_trainer *t, bt_step_outcome *out) {
    const int64_t was = t->at.step;
    const bt_update_outcome o = bt_island_outcome(t->island);
    take_clock(t);
    out->again = t->at.step <= was;
    if (o == BT_UPDATE_LOST)
        bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, was, NULL,
                           "joined hub '%s' again at step %" PRId64 " (was at %" PRId64 ")",
                           t->cfg.hub, t->at.step, was + 1);
    else
        bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, was, NULL,
                           "hub '%s': at step %" PRId64 " again (was at %" PRId64 "): %s",
                           t->cfg.hub, t->at.step, was + 1,
                           o == BT_UPDATE_APPLIED ? "steps since the newest update are lost"
                                                  : "the newest update was left out");
    t->at.step--; /* the step that is ending is the one before */
    t->at.tokens -= t->cfg.batch_tokens;
}

static bt_code answer(bt_trainer *t, bt_step_outcome *out, bool again, bt_err *err) {
    const bt_island_go *go = bt_island_now(t->island);
    BT_TRY(t->schedule->tie(t->schedule, t->model, err));
    t->island_left = go->steps;
    if (isfinite(go->lr)) {
        out->lr = go->lr;
        out->weight_decay = go->decay;
        out->grad_norm = go->grad_norm;
    }
    if (again) rejoined(t, out);
    if (go->steps == 0 &&
        t->at.step + 1 <
            t->cfg.steps) { /* of rounds without it the job has steps that it has not */
        t->cfg.steps = t->at.step + 1;
        t->stop = true;
    }
    return BT_OK;
}

/* A stop, or a hub that never came back, ends the training with the state of the last whole step. */
static bt_code end_here(bt_trainer *t, bt_step_outcome *out, bt_code code, bt_err *err) {
    if (code != BT_STOPPED && !bt_island_gave_up(t->island)) return code;
    if (code != BT_STOPPED) t->hub_lost = *err;
    t->stop = out->left = true;
    return BT_OK;
}

static bt_code to_hub(bt_trainer *t, bt_step_outcome *out, bool apply, bool at_hub, bt_err *err) {
    const int64_t steps = bt_island_now(t->island)->steps;
    /* of own steps, one that was skipped changes nothing of what the others before it changed */
    bt_island_work w = {.tokens = at_hub ? out->counted : out->counted * steps,
                        .grad_norm = out->grad_norm,
                        .unscale = 1 / t->loss_scale.value};
    bool again = false;
    bt_island_state state = BT_ISLAND_SETTLED;
    BT_TRY(mean_loss(t, out, &w.loss, err));
    t->island_stop_ns = out->control.verbs & BT_REQ_STOP ? bt_now_ns() : 0;
    bt_place_enter(t->place, BT_AT_HUB, t->at.step);
    bt_span_begin(BT_MR_COMM_EXPOSED);
    bt_code code = at_hub && !apply ? bt_island_skip(t->island, &again, err)
                   : at_hub         ? bt_island_gradient(t->island, &w, &again, err)
                                    : bt_island_delta(t->island, &w, &state, err);
    bt_span_end();
    if (code != BT_OK) return end_here(t, out, code, err);
    if (state == BT_ISLAND_AHEAD) {
        t->island_ahead = 0;
        return BT_OK;
    }
    if (at_hub && apply) t->at.updates++;
    return answer(t, out, again || state == BT_ISLAND_REJOINED, err);
}

/* a step beyond a delta that had not been answered */
static bt_code after_ahead(bt_trainer *t, bt_step_outcome *out, bt_err *err) {
    bt_island_state state;
    bt_place_enter(t->place, BT_AT_HUB, t->at.step);
    bt_span_begin(BT_MR_COMM_EXPOSED);
    t->island_stop_ns = out->control.verbs & BT_REQ_STOP ? bt_now_ns() : 0;
    bt_code code = bt_island_ahead(t->island, ++t->island_ahead, &state, err);
    bt_span_end();
    if (code != BT_OK) return end_here(t, out, code, err);
    if (state == BT_ISLAND_AHEAD) return BT_OK;
    const int64_t ahead = t->island_ahead;
    t->island_ahead = -1;
    BT_TRY(answer(t, out, state == BT_ISLAND_REJOINED, err));
    if (state == BT_ISLAND_SETTLED) t->island_left -= ahead;
    return BT_OK;
}

bt_code bt_trainer_island_exchange(bt_trainer *t, bt_step_outcome *out, bool apply, bt_err *err) {
    const bool at_hub = bt_trainer_island_steps_at_hub(t);
    if (t->island_ahead >= 0)
        BT_TRY(after_ahead(t, out, err));
    else
        t->island_left--;
    if (t->island_left > 0 || t->island_ahead >= 0) bt_island_beat(t->island);
    if (t->island_left > 0 || t->island_ahead >= 0 || t->stop || out->left ||
        bt_island_now(t->island)->steps == 0)
        return BT_OK;
    return to_hub(t, out, apply, at_hub, err);
}

/* " (2 late, 1 poisoned)"; "" where nothing was left out */
static void put_reasons(const bt_island_count *n, char *out, size_t size) {
    size_t at = 0;
    out[0] = 0;
    for (int o = 0; o < BT_UPDATE_OUTCOMES && at < size; o++)
        if (n->by_outcome[o])
            at += (size_t)snprintf(out + at, size - at, "%s%" PRId64 " %s", at ? ", " : " (",
                                   n->by_outcome[o], bt_update_outcome_name((bt_update_outcome)o));
    if (at && at < size) snprintf(out + at, size - at, ")");
}

bt_code bt_trainer_island_end(bt_trainer *t, bt_err *err) {
    char reasons[160];
    if (!t->island) return BT_OK;
    bt_island_end(t->island);
    const bt_island_count n = bt_island_counted(t->island);
    put_reasons(&n, reasons, sizeof reasons);
    bt_telemetry_event(&t->telemetry, BT_EVENT_HUB, t->at.step - 1, NULL,
                       "hub '%s' has applied %" PRId64 " updates of this island, %" PRId64
                       " tokens; %" PRId64 " left out%s",
                       t->cfg.hub, n.applied, n.tokens, n.left_out, reasons);
    if (t->hub_lost.code == BT_OK) return BT_OK;
    return bt_fail(err, t->hub_lost.code, "hub '%s': %.150s; checkpoint: '%s'", t->cfg.hub,
                   t->hub_lost.msg, t->saver.path);
}
