/* train_time.c - estimates the time of a run on this machine from trials, recorded runs or measured rates, for
 * `plan` and `train --dry-run`. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/train/train_parts.h"
#include "engine/base/tables/metric.h"
#include "engine/config/tune_cfg.h"

/* Maximum ratio of model or batch size between this run and a recorded one whose speed is used: small models and
 * steps reach fewer operations per second than large ones. */
#define NEAR "2.0"

/* ?1 host, ?2 ranks, ?3 threads, ?4 operations per token, ?5 tokens per step. Prefers runs with equal ?4
 * and ?5 to runs in which each differs by at most the factor NEAR, then runs that were not held back, then newer
 * runs. */
static const char newest_alike[] =
    "SELECT run, flop, same, tokens_per_s FROM (SELECT r.run AS run, r.started_s AS started_s, "
    "r.tokens_per_s AS tokens_per_s, CAST(flop.value AS REAL) AS flop, CAST(batch.value AS REAL) "
    "AS "
    "tokens, CAST(flop.value AS REAL) = CAST(?4 AS REAL) AND CAST(batch.value AS INTEGER) = "
    "CAST(?5 AS INTEGER) AS same, EXISTS (SELECT 1 FROM events e WHERE e.run = r.run AND e.kind IN "
    "('paused', 'stalled', 'slow')) AS waited"
    " FROM runs r JOIN facts flop ON flop.run = r.run AND flop.key = 'flop_token'"
    " JOIN facts batch ON batch.run = r.run AND batch.key = 'batch_tokens'"
    " JOIN facts ranks ON ranks.run = r.run AND ranks.key = 'world_size'"
    " JOIN facts threads ON threads.run = r.run AND threads.key = 'threads'"
    " WHERE r.host = ?1 AND CAST(ranks.value AS INTEGER) = CAST(?2 AS INTEGER) AND "
    "CAST(threads.value AS INTEGER) = CAST(?3 AS INTEGER) AND r.steps >= 5 AND r.tokens_per_s > 0)"
    " WHERE same OR (NOT waited AND max(flop, CAST(?4 AS REAL)) <= " NEAR
    " * min(flop, CAST(?4 AS REAL)) AND max(tokens, CAST(?5 AS REAL)) <= " NEAR
    " * min(tokens, CAST(?5 AS REAL)))"
    " ORDER BY same DESC, waited, started_s DESC LIMIT 1";

static bool copy_recorded_time(void *ctx, const bt_row *row) {
    bt_train_speed *s = ctx;
    const double flop = row->nums[1], tokens_per_s = row->nums[3];
    if (!row->cells[0] || !(flop > 0) || !(tokens_per_s > 0)) return false;
    snprintf(s->run, sizeof s->run, "%s", row->cells[0]);
    s->same = row->nums[2] > 0;
    s->flop_per_s = flop * tokens_per_s;
    return false;
}

void bt_train_speed_here(const bt_train_plan *p, bt_train_speed *out) {
    char host[BT_HOST_MAX] = "", text[4][32];
    bt_db *db = NULL;
    bt_err ignored = BT_ERR_INIT; /* there may be no database yet */
    *out = (bt_train_speed){0};
    if (p->cfg.launch.hosts[0] || p->cfg.launch.threads < 1) return;
    gethostname(host, sizeof host - 1);
    const double flop = bt_tune_count(&p->cfg).flop_token;
    snprintf(text[0], sizeof text[0], "%d", p->ranks);
    snprintf(text[1], sizeof text[1], "%lld", (long long)p->cfg.launch.threads);
    snprintf(text[2], sizeof text[2], "%.17g", flop);
    snprintf(text[3], sizeof text[3], "%lld", (long long)p->cfg.train.batch_tokens);
    const char *const params[] = {host, text[0], text[1], text[2], text[3]};
    if (bt_db_open(&db, p->store, &ignored) == BT_OK &&
        bt_db_query(
            db,
            &(bt_query){
                .sql = newest_alike, .params = params, .n_params = 5, .max_rows = 1, .max_s = 5},
            copy_recorded_time, out, &ignored) != BT_OK)
        *out = (bt_train_speed){0};
    bt_db_close(db);
    if (!(out->flop_per_s > 0)) return;
    out->tokens_per_s = out->flop_per_s / flop;
    out->seconds = (double)(p->cfg.train.steps - p->from.step) * (double)p->cfg.train.batch_tokens /
                   out->tokens_per_s;
}

void bt_train_time_of(const bt_train_plan *p, double predicted_s, const bt_trial_rate *tried,
                      bt_train_time *out) {
    const double steps = (double)(p->cfg.train.steps - p->from.step),
                 tokens = (double)p->cfg.train.batch_tokens;
    *out = (bt_train_time){.step_s = NAN,
                           .predicted_s = predicted_s > 0 ? predicted_s : NAN,
                           .trial_load = tried ? tried->load : NAN};
    bt_train_speed_here(p, &out->speed);
    const double run_s = out->speed.run[0] ? tokens / out->speed.tokens_per_s : NAN;
    if (tried && tried->step_s > 0) {
        out->source = BT_TIME_TRIED;
        out->step_s = tried->step_s;
    } else if (out->speed.run[0] && out->speed.same) {
        out->source = BT_TIME_SAME_RUN;
        out->step_s = run_s;
    } else if (predicted_s > 0) {
        out->source = BT_TIME_PREDICTED;
        out->step_s = predicted_s;
    } else if (out->speed.run[0]) {
        out->source = BT_TIME_OTHER_RUN;
        out->step_s = run_s;
    }
    out->seconds = steps * out->step_s;
    out->tokens_per_s = tokens / out->step_s;
}

const char *bt_train_time_source(const bt_train_time *t) {
    switch (t->source) {
    case BT_TIME_TRIED: return "trial";
    case BT_TIME_PREDICTED: return "rates";
    default: return t->speed.run;
    }
}

void bt_train_time_put(const bt_train_time *t, int64_t steps, const char *rates, bt_text *out) {
    char time[32], rate[32], step[32], predicted[32];
    if (t->source == BT_TIME_UNKNOWN) return;
    bt_text_printf(out, "time       %s %s for %" PRId64 " steps of %s at %s tokens/s",
                   t->source == BT_TIME_OTHER_RUN ? "roughly" : "about",
                   bt_duration(time, sizeof time, t->seconds), steps,
                   bt_metric_format(step, sizeof step, 1e3 * t->step_s, BT_UNIT_MS),
                   bt_metric_format(rate, sizeof rate, t->tokens_per_s, BT_UNIT_COUNT));
    switch (t->source) {
    case BT_TIME_TRIED:
        bt_text_put(out, ": measured in a trial");
        if (isfinite(t->trial_load))
            bt_text_printf(out, " under load %.2g of other programs", t->trial_load);
        if (isfinite(t->predicted_s))
            bt_text_printf(out, " (predicted: %s)",
                           bt_metric_format(predicted, sizeof predicted, 1e3 * t->predicted_s,
                                            BT_UNIT_MS));
        break;
    case BT_TIME_SAME_RUN: bt_text_printf(out, ", the speed of run '%s' here", t->speed.run); break;
    case BT_TIME_PREDICTED:
        bt_text_printf(out, ": a prediction, by this machine's measured rates%s%s%s",
                       rates[0] ? " (" : "", rates, rates[0] ? ")" : "");
        break;
    default:
        bt_text_printf(out, ", if it computes as fast as run '%s', another model, did here",
                       t->speed.run);
    }
    bt_text_put(out, "\n");
}
