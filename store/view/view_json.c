/* view_json.c - writes the view as one JSON object. Names and units are a public contract (store/view/view.md): add,
 * never rename. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "engine/base/tables/derived.h"
#include "store/view/view_impl.h"

static const char *state_name(int s) { return bt_run_states[s].name; }
static const char *level_name(int l) { return bt_event_level_name((bt_event_level)l); }
static const char *phase_name(int p) { return p < BT_PHASE_COUNT ? bt_phases[p].name : NULL; }
static const char *verdict_name(int v) { return bt_verdict_name((bt_verdict)v); }

static void put_head_json(const bt_view *v, bt_json *j) {
    const bt_view_head *h = &v->head;
    bt_json_object(j, "head");
    BT_JSON_FIELDS(j, h, F(run), F_ENUM("state", state, state_name), F(live), F(hub), F(age_s),
                   F(host), F(preset), F(params), F(isa), F(note), F(exit_kind), F(attempt),
                   F_AS("attempts", n_attempts), F_AS("ranks", world_size), F(ranks_reporting),
                   F(step), F(newest_step));
    bt_json_at(j, "steps_total", h->steps_total > 0 ? h->steps_total : -1);
    BT_JSON_FIELDS(j, h, F(tokens), F(loss), F(loss_ema), F_AS("loss_trend_per_step", loss_trend),
                   F(val_loss), F_AS("best_val_loss", best_val), F(grad_norm), F(lr), F(loss_scale),
                   F(measured_load), F(tokens_per_s), F(mfu), F(step_p50_ms), F(step_p95_ms),
                   F(step_p99_ms), F(step_max_ms), F(overlap), F(comm_overhead), F(wait_frac),
                   F_AS("bytes_wire_per_step", bytes_wire),
                   F_AS("bytes_logical_per_step", bytes_logical), F(rss_mib), F(started_s),
                   F(elapsed_s), F(eta_s), F(eta_err_s), F(goodput),
                   /* fine-tuning only */ F_KIND("accuracy", accuracy, BT_JSON_KNOWN),
                   F_KIND("val_accuracy", val_accuracy, BT_JSON_KNOWN),
                   F_KIND("val_f1", val_f1, BT_JSON_KNOWN),
                   F_KIND("reward_margin", reward_margin, BT_JSON_KNOWN),
                   F_KIND("val_reward_margin", val_margin, BT_JSON_KNOWN));
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        char key[32];
        snprintf(key, sizeof key, "%s_s", bt_times[p].key);
        bt_json_num(j, key, h->time_s[p]);
    }
    /* earlier names */
    bt_json_num(j, "down_s", h->time_s[BT_TIME_LOST]);
    bt_json_num(j, "other_s",
                h->elapsed_s - h->time_s[BT_TIME_PRODUCTIVE] - h->time_s[BT_TIME_REDONE] -
                    h->time_s[BT_TIME_LOST]);
    BT_JSON_FIELDS(j, h, F(skipped), F(dropped), F(warnings), F(errors),
                   F_AS("unacknowledged", alerts), F(alerts), /* an earlier name */ F(restarts),
                   F(progress), F_AS("epoch", passes), F(val_gap),
                   F_KIND("memorising_step", memorising_step, BT_JSON_AT),
                   F_KIND("best_val_step", best_val_step, BT_JSON_AT),
                   F_KIND("grad_lost_step", grad_lost_step, BT_JSON_AT));
    bt_json_str(j, "crowded", v->ranks.crowded[0] ? v->ranks.crowded : NULL);
    bt_view_trouble_json(&h->trouble, j);
    bt_view_chips_json(h, j);
    bt_view_remarks_json(h, j);
    bt_json_end(j, '}');
}

static void put_numbers(bt_json *j, const char *key, const double *v, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) bt_json_num(j, NULL, v[i]);
    bt_json_end(j, ']');
}

/* Charts need no more than seven digits, which take a third of the bytes. Points of a single step keep every digit. */
enum { POINT_DIGITS = 7, SPARK_DIGITS = 4 };

static void put_counted_numbers(bt_json *j, const char *key, const double *v, const int64_t *count,
                                size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++)
        if (count[i] > 1)
            bt_json_rounded(j, NULL, v[i], POINT_DIGITS);
        else
            bt_json_num(j, NULL, v[i]);
    bt_json_end(j, ']');
}

static void put_series_json(const bt_view *v, bt_json *j) {
    bt_json_array(j, "series");
    for (int i = 0; i < v->n_series; i++) {
        const bt_view_series *s = &v->series[i];
        bt_json_object(j, NULL);
        bt_json_str(j, "metric", s->key);
        bt_json_at(j, "rank", s->what.rank);
        bt_json_str(j, "unit", bt_unit_name(s->unit));
        bt_json_str(j, "x_axis", bt_x_axis_name(v->x));
        BT_JSON_FIELDS(j, s, F(exact), F_AS("baseline", ghost), F(low), F(high), F(start), F(end),
                       F_KIND("least_step", least_step, BT_JSON_AT),
                       F_KIND("most_step", most_step, BT_JSON_AT),
                       F_KIND("lost_step", lost_step, BT_JSON_AT));
        put_numbers(j, "x", s->x, s->n);
        bt_json_ints(j, "step", s->step, s->n);
        put_counted_numbers(j, "first", s->first, s->count, s->n);
        put_counted_numbers(j, "last", s->last, s->count, s->n);
        put_counted_numbers(j, "min", s->min, s->count, s->n);
        put_counted_numbers(j, "max", s->max, s->count, s->n);
        put_counted_numbers(j, "mean", s->mean, s->count, s->n);
        bt_json_ints(j, "n", s->count, s->n);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void put_mean_phases(bt_json *j, const char *key, const double *mean) {
    bt_json_object(j, key);
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        bt_json_num(j, bt_rank_metrics[bt_phases[p].metric].key, mean[bt_phases[p].metric]);
    bt_json_end(j, '}');
}

/* Writes null without a prediction. */
static void put_predicted(const bt_predicted *p, bt_json *j) {
    bt_predicted all = *p;
    if (isnan(p->step_ms)) {
        bt_json_null(j, "predicted");
        return;
    }
    bt_json_object(j, "predicted");
    for (int i = 0; i < BT_PREDICTED_PARTS; i++)
        bt_json_num(j, bt_predicted_key(i), *bt_predicted_part(&all, i));
    bt_json_end(j, '}');
}

static void put_breakdown(const bt_view *v, bt_json *j) {
    const bt_view_ranks *r = &v->ranks;
    bt_json_object(j, "breakdown");
    BT_JSON_FIELDS(j, r, F(step0), F(step1), F(steps), F(step_ms), F(mean_ms));
    bt_json_object(j, "mean");
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        bt_json_num(j, bt_rank_metrics[bt_phases[p].metric].key, r->phase_ms[p]);
    bt_json_end(j, '}');
    BT_JSON_FIELDS(j, r, F(busy_median_ms), F(skew_p50_ms), F(skew_p95_ms),
                   F_KIND("crowded", crowded, BT_JSON_SAID));
    put_mean_phases(j, "median", r->median);
    put_predicted(&v->head.predicted, j);
    bt_json_array(j, "ranks");
    for (size_t k = 0; k < r->n; k++) {
        const bt_view_rank *x = &r->rank[k];
        bt_json_object(j, NULL);
        BT_JSON_FIELDS(j, x, F(rank), F_AS("step_ms", mean[BT_MR_STEP_TIME]), F(step_p50_ms),
                       F(step_p95_ms), F(step_p99_ms), F(step_max_ms));
        put_mean_phases(j, "phases", x->mean);
        bt_json_num(j, "comm_busy_ms", x->mean[BT_MR_COMM_BUSY]);
        bt_json_num(j, "comm_hidden_ms",
                    bt_derived_hidden(x->mean[BT_MR_COMM_EXPOSED], x->mean[BT_MR_COMM_BUSY]));
        bt_json_num(j, "bytes_logical", x->mean[BT_MR_BYTES_LOGICAL]);
        bt_json_num(j, "bytes_wire", x->mean[BT_MR_BYTES_WIRE]);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static double more_tokens_per_day(const bt_view_ranks *r, double step_ms) {
    return step_ms > 0 ? r->tokens_per_s * (r->step_ms / step_ms - 1) * 86400 : NAN;
}

/* "With the slowest 2 ranks at the median: 153 ms → 113 ms a step, 26.1 % less, 1.2 M tokens a day more." */
static void what_if_sentence(const bt_view_ranks *r, size_t n, double step_ms, char *out,
                             size_t size) {
    char now[40], then[40], less[40], more[40];
    const double tokens = more_tokens_per_day(r, step_ms);
    if (isnan(step_ms) || !(r->step_ms > 0)) return;
    snprintf(out, size, n == 1 ? "With the slowest rank" : "With the slowest %zu ranks", n);
    const size_t used = strlen(out);
    snprintf(out + used, size - used, " at the median: %s → %s a step, %s less%s%s%s.",
             bt_metric_format(now, sizeof now, r->step_ms, BT_UNIT_MS),
             bt_metric_format(then, sizeof then, step_ms, BT_UNIT_MS),
             bt_metric_format(less, sizeof less, (r->step_ms - step_ms) / r->step_ms, BT_UNIT_FRAC),
             isfinite(tokens) ? ", " : "",
             isfinite(tokens) ? bt_metric_format(more, sizeof more, tokens, BT_UNIT_COUNT) : "",
             isfinite(tokens) ? " tokens a day more" : "");
}

/* Mean step time if the k slowest ranks had the median busy time, k = 1, 2, ..., and a sentence about it. */
static void what_if_worst(const bt_view *v, bt_json *j) {
    enum { MOST = 16 };
    const size_t n = v->ranks.n < MOST ? v->ranks.n : MOST;
    double step_ms[MOST];
    for (size_t k = 0; k < n; k++) step_ms[k] = bt_view_what_if(v, v->ranks.order, k + 1);
    put_numbers(j, "what_if_worst", step_ms, n);
    bt_json_array(j, "what_if_worst_says");
    for (size_t k = 0; k < n; k++) {
        char sentence[200] = "";
        what_if_sentence(&v->ranks, k + 1, step_ms[k], sentence, sizeof sentence);
        bt_json_str(j, NULL, sentence);
    }
    bt_json_end(j, ']');
}

/* The slowest rank is first: `.stragglers[0]`. */
static void put_stragglers_json(const bt_view_ranks *r, bt_json *j) {
    bt_json_array(j, "stragglers");
    for (size_t i = 0; i < r->n; i++) {
        const bt_view_rank *x = &r->rank[r->order[i]];
        bt_json_object(j, NULL);
        BT_JSON_FIELDS(j, x, F(rank), F(host), F(busy_p50_ms), F(wait_p50_ms), F(excess_ms),
                       F(late_p50_ms), F(late_p95_ms), F(score), F(score_own),
                       F_AS("blame", blame_frac), F(lost_s), F_ENUM("phase", fault, phase_name),
                       F_AS("phase_frac", fault_frac), F_ENUM("verdict", verdict, verdict_name),
                       F_KIND("since_step", since_step, BT_JSON_AT));
        bt_json_object(j, "what_if");
        bt_json_num(j, "step_ms", x->what_if_ms);
        bt_json_num(j, "saved_ms", r->step_ms - x->what_if_ms);
        bt_json_num(j, "saved_frac",
                    r->step_ms > 0 ? (r->step_ms - x->what_if_ms) / r->step_ms : NAN);
        bt_json_num(j, "tokens_per_day", more_tokens_per_day(r, x->what_if_ms));
        bt_json_end(j, '}');
        bt_json_str(j, "says", x->says[0] ? x->says : NULL);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void put_system_json(const bt_view_ranks *r, bt_json *j) {
    BT_JSON_ROWS(j, "system", r->rank, r->n, F(rank), F(host), F(pid), F(isa), F(threads), F(pp),
                 F(dp_replicate), F(dp_shard), F(tp), F_AS("rss_mib", mean[BT_MR_RSS]),
                 F(rss_peak_mib), F(cpu_frac), F_AS("cpu_ms", mean[BT_MR_CPU]),
                 F_AS("micro_batches", mean[BT_MR_MICRO_BATCHES]));
}

static void put_heatmap(const bt_view_heat *h, bt_json *j) {
    bt_json_object(j, "heatmap");
    bt_json_str(j, "value", bt_heat_value_name(h->value));
    bt_json_str(j, "unit",
                h->against || h->value == BT_HEAT_BUSY ? "ratio"
                : h->value == BT_HEAT_RSS              ? "MiB"
                : h->value == BT_HEAT_LOSS             ? "nats"
                                                       : "ms");
    BT_JSON_FIELDS(j, h, F_AS("against_baseline", against), F(rows), F(cols), F(exact), F(low),
                   F(high));
    bt_json_ints(j, "step", h->step, h->cols);
    put_numbers(j, "time_s", h->time_s, h->cols);
    bt_json_array(j, "cells");
    for (size_t k = 0; k < h->rows; k++) put_numbers(j, NULL, h->cell + k * h->cols, h->cols);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void put_layers(const bt_view_layers *l, bt_json *j) {
    bt_json_object(j, "layers");
    static const struct {
        const char *key;
        bt_layer_metric metric;
    } told[] = {{"zero_history", BT_ML_ZERO},
                {"flip_history", BT_ML_FLIP},
                {"oscillation_history", BT_ML_OSCILLATION},
                {"boundary_history", BT_ML_BOUNDARY},
                {"grad_norm_history", BT_ML_GRAD_NORM},
                {"update_history", BT_ML_UPDATE}};
    bt_json_int(j, "step", l->step);
    bt_json_array(j, "sampled");
    for (int i = 0; i < BT_VIEW_SAMPLES; i++) bt_json_at(j, NULL, l->sampled[i]);
    bt_json_end(j, ']');
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n; i++) {
        const bt_view_layer *x = &l->layer[i];
        bt_json_object(j, NULL);
        bt_json_int(j, "layer", x->layer);
        bt_json_str(j, "tensor", x->tensor);
        for (int k = 0; k < BT_ML_COUNT; k++) bt_json_num(j, bt_layer_metrics[k].key, x->value[k]);
        bt_json_num(j, "neg_frac", x->neg_frac);
        bt_json_num(j, "entropy_bits", x->entropy_bits);
        for (size_t k = 0; k < sizeof told / sizeof told[0]; k++)
            put_numbers(j, told[k].key, x->history[told[k].metric], BT_VIEW_SAMPLES);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void put_pairs(const bt_view_comm *l, bt_json *j) {
    bt_json_object(j, "pairs");
    BT_JSON_FIELDS(j, l, F_AS("ranks", pair_ranks), F_AS("step0", pair0), F_AS("step1", pair1));
    BT_JSON_ROWS(j, "rows", l->pair, l->n_pairs, F(rank), F(peer), F(messages), F(bytes),
                 F(flight_ms));
    bt_json_end(j, '}');
}

static void put_comm_op(const bt_view_op *x, bt_json *j) {
    bt_json_object(j, NULL);
    BT_JSON_FIELDS(j, x, F(op), F(axis), F(ranks), F(calls), F(bytes_logical), F(bytes_wire),
                   F(busy_ms), F(exposed_ms));
    bt_json_num(j, "hidden_ms", bt_derived_hidden(x->exposed_ms, x->busy_ms));
    BT_JSON_FIELDS(j, x, F(wait_ms), F(overlap), F_AS("rate_bytes_per_s", rate), F(lost_max_ms),
                   F(model_ms), F(model_frac), F_KIND("lost_max_rank", lost_rank, BT_JSON_INDEX));
    bt_json_end(j, '}');
}

static void put_comm(const bt_view_comm *l, bt_json *j) {
    bt_json_object(j, "comm");
    bt_json_int(j, "step0", l->step0);
    bt_json_int(j, "step1", l->step1);
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n; i++) put_comm_op(&l->op[i], j);
    bt_json_end(j, ']');
    BT_JSON_ROWS(j, "links", l->link, l->n_links, F(axis), F(latency_us), F(bytes_per_s));
    put_pairs(l, j);
    bt_json_end(j, '}');
}

static void put_event_rows(bt_json *j, const char *key, const bt_view_event *rows, size_t n) {
    BT_JSON_ROWS(j, key, rows, n, F(seq), F(time_s), F(attempt), F_KIND("step", step, BT_JSON_AT),
                 F_KIND("rank", rank, BT_JSON_INDEX), F(kind), F_ENUM("level", level, level_name),
                 F(title));
}

static void put_events_json(const bt_view_events *e, bt_json *j) {
    bt_json_object(j, "events");
    bt_json_int(j, "total", e->total);
    put_event_rows(j, "rows", e->event, e->n);
    bt_json_int(j, "markable", e->markable);
    put_event_rows(j, "marks", e->mark, e->n_marks);
    BT_JSON_ROWS(j, "samples", e->text, (size_t)e->n_texts, F(step), F(prompt), F(text));
    bt_json_end(j, '}');
}

static void put_settings_json(const bt_view_settings *l, bt_json *j) {
    BT_JSON_ROWS(j, "settings", l->row, l->n, F(key), F(value), F(from));
}

static void put_view_runs(const bt_view_runs *l, bt_json *j) {
    bt_json_object(j, "runs");
    bt_json_int(j, "total", l->total);
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n; i++) {
        const bt_view_run *x = &l->run[i];
        bt_json_object(j, NULL);
        BT_JSON_FIELDS(j, x, F(run), F_ENUM("state", state, state_name), F(host), F(tags), F(note),
                       F(ranks), F(attempts), F(steps), F(tokens), F(loss),
                       F_AS("best_val_loss", best_val), F(tokens_per_s), F(step_ms), F(goodput),
                       F(comm_overhead), F(mfu), F(rss_mib), F(started_s), F(duration_s), F(age_s));
        bt_json_array(j, "loss_spark");
        for (int k = 0; k < x->n_spark; k++) bt_json_rounded(j, NULL, x->spark[k], SPARK_DIGITS);
        bt_json_end(j, ']');
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

void bt_view_json(const bt_view *v, unsigned parts, bt_json *j, const char *key) {
    bt_json_object(j, key);
    bt_json_str(j, "schema", "bitrain.view/1");
    if (parts & BT_VIEW_HEAD) put_head_json(v, j);
    if (parts & BT_VIEW_RANKS) {
        put_stragglers_json(&v->ranks, j);
        what_if_worst(v, j);
        put_breakdown(v, j);
        put_system_json(&v->ranks, j);
    }
    if (parts & BT_VIEW_SERIES) put_series_json(v, j);
    if (parts & BT_VIEW_HEAT) put_heatmap(&v->heat, j);
    if (parts & BT_VIEW_LAYERS) put_layers(&v->layers, j);
    if (parts & BT_VIEW_DISTRIBUTION) bt_view_distribution_json(&v->distribution, j);
    if (parts & BT_VIEW_COMM) put_comm(&v->comm, j);
    if (parts & BT_VIEW_PANEL) bt_view_panel_json(&v->panel, j);
    if (parts & BT_VIEW_EVENTS) put_events_json(&v->events, j);
    if (parts & BT_VIEW_ISLANDS) bt_view_islands_json(&v->islands, j);
    if (parts & BT_VIEW_SETTINGS) put_settings_json(&v->settings, j);
    if (parts & BT_VIEW_RUNS) put_view_runs(&v->runs, j);
    bt_json_end(j, '}');
}
