/* view_json.c - the view as one JSON object. Names and units are a contract (store/view/view.md):
 * add, never rename. */
#include <math.h>
#include <stdio.h>

#include "engine/base/tables/derived.h"
#include "store/view/view_impl.h"

static void state(bt_json *j, bt_run_state s) { bt_json_str(j, "state", bt_run_states[s].name); }

static void put_head_json(const bt_view *v, bt_json *j) {
    const bt_view_head *h = &v->head;
    bt_json_object(j, "head");
    bt_json_str(j, "run", h->run);
    state(j, h->state);
    bt_json_bool(j, "live", h->live);
    bt_json_bool(j, "hub", h->hub);
    bt_json_num(j, "age_s", h->age_s);
    bt_json_str(j, "host", h->host);
    bt_json_str(j, "preset", h->preset);
    bt_json_str(j, "params", h->params);
    bt_json_str(j, "isa", h->isa);
    bt_json_str(j, "note", h->note);
    bt_json_str(j, "exit_kind", h->exit_kind);
    bt_json_int(j, "attempt", h->attempt);
    bt_json_int(j, "attempts", h->n_attempts);
    bt_json_int(j, "ranks", h->world_size);
    bt_json_int(j, "ranks_reporting", h->ranks_reporting);
    bt_json_int(j, "step", h->step);
    bt_json_int(j, "newest_step", h->newest_step);
    if (h->steps_total > 0)
        bt_json_int(j, "steps_total", h->steps_total);
    else
        bt_json_null(j, "steps_total");
    const struct {
        const char *key;
        double v;
    } nums[] = {{"tokens", h->tokens},
                {"loss", h->loss},
                {"loss_ema", h->loss_ema},
                {"loss_trend_per_step", h->loss_trend},
                {"val_loss", h->val_loss},
                {"best_val_loss", h->best_val},
                {"grad_norm", h->grad_norm},
                {"lr", h->lr},
                {"loss_scale", h->loss_scale},
                {"measured_load", h->measured_load},
                {"tokens_per_s", h->tokens_per_s},
                {"mfu", h->mfu},
                {"step_p50_ms", h->step_p50_ms},
                {"step_p95_ms", h->step_p95_ms},
                {"step_p99_ms", h->step_p99_ms},
                {"step_max_ms", h->step_max_ms},
                {"overlap", h->overlap},
                {"comm_overhead", h->comm_overhead},
                {"wait_frac", h->wait_frac},
                {"bytes_wire_per_step", h->bytes_wire},
                {"bytes_logical_per_step", h->bytes_logical},
                {"rss_mib", h->rss_mib},
                {"started_s", h->started_s},
                {"elapsed_s", h->elapsed_s},
                {"eta_s", h->eta_s},
                {"eta_err_s", h->eta_err_s},
                {"goodput", h->goodput}};
    for (size_t i = 0; i < sizeof nums / sizeof nums[0]; i++)
        bt_json_num(j, nums[i].key, nums[i].v);
    /* members of a run that is fine-tuned, as far as it records them */
    const struct {
        const char *key;
        double v;
    } tuned[] = {{"accuracy", h->accuracy},
                 {"val_accuracy", h->val_accuracy},
                 {"val_f1", h->val_f1},
                 {"reward_margin", h->reward_margin},
                 {"val_reward_margin", h->val_margin}};
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++)
        if (!isnan(tuned[i].v)) bt_json_num(j, tuned[i].key, tuned[i].v);
    for (int p = 0; p < BT_TIME_PARTS; p++) {
        char key[32];
        snprintf(key, sizeof key, "%s_s", bt_times[p].key);
        bt_json_num(j, key, h->time_s[p]);
    }
    /* names of before */
    bt_json_num(j, "down_s", h->time_s[BT_TIME_LOST]);
    bt_json_num(j, "other_s",
                h->elapsed_s - h->time_s[BT_TIME_PRODUCTIVE] - h->time_s[BT_TIME_REDONE] -
                    h->time_s[BT_TIME_LOST]);
    bt_json_int(j, "skipped", h->skipped);
    bt_json_int(j, "dropped", h->dropped);
    bt_json_int(j, "warnings", h->warnings);
    bt_json_int(j, "errors", h->errors);
    bt_json_int(j, "unacknowledged", h->alerts);
    bt_json_int(j, "alerts", h->alerts); /* name of before */
    bt_json_int(j, "restarts", h->restarts);
    bt_json_num(j, "progress", h->progress);
    bt_json_num(j, "epoch", h->passes);
    bt_json_num(j, "val_gap", h->val_gap);
    if (h->memorising_step >= 0)
        bt_json_int(j, "memorising_step", h->memorising_step);
    else
        bt_json_null(j, "memorising_step");
    if (h->best_val_step >= 0)
        bt_json_int(j, "best_val_step", h->best_val_step);
    else
        bt_json_null(j, "best_val_step");
    if (h->grad_lost_step >= 0)
        bt_json_int(j, "grad_lost_step", h->grad_lost_step);
    else
        bt_json_null(j, "grad_lost_step");
    bt_json_str(j, "crowded", v->ranks.crowded[0] ? v->ranks.crowded : NULL);
    bt_view_trouble_json(&h->trouble, j);
    bt_view_chips_json(h, j);
    bt_view_remarks_json(h, j);
    bt_json_end(j, '}');
}

static void numbers(bt_json *j, const char *key, const double *v, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) bt_json_num(j, NULL, v[i]);
    bt_json_end(j, ']');
}

/* A point that aggregates several steps is only drawn: seven digits exceed any screen's
 * resolution and take a third of the bytes. Single steps keep every digit. */
enum { POINT_DIGITS = 7, SPARK_DIGITS = 4 };

static void points(bt_json *j, const char *key, const double *v, const int64_t *count, size_t n) {
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
        if (s->what.rank >= 0)
            bt_json_int(j, "rank", s->what.rank);
        else
            bt_json_null(j, "rank");
        bt_json_str(j, "unit", bt_unit_name(s->unit));
        bt_json_str(j, "x_axis", bt_x_axis_name(v->x));
        bt_json_bool(j, "exact", s->exact);
        bt_json_bool(j, "baseline", s->ghost);
        bt_json_num(j, "low", s->low);
        bt_json_num(j, "high", s->high);
        bt_json_num(j, "start", s->start);
        bt_json_num(j, "end", s->end);
        const int64_t steps[] = {s->least_step, s->most_step, s->lost_step};
        static const char *const keys[] = {"least_step", "most_step", "lost_step"};
        for (int k = 0; k < 3; k++) {
            if (steps[k] >= 0)
                bt_json_int(j, keys[k], steps[k]);
            else
                bt_json_null(j, keys[k]);
        }
        numbers(j, "x", s->x, s->n);
        bt_json_ints(j, "step", s->step, s->n);
        points(j, "first", s->first, s->count, s->n);
        points(j, "last", s->last, s->count, s->n);
        points(j, "min", s->min, s->count, s->n);
        points(j, "max", s->max, s->count, s->n);
        points(j, "mean", s->mean, s->count, s->n);
        bt_json_ints(j, "n", s->count, s->n);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void phases(bt_json *j, const char *key, const double *mean) {
    bt_json_object(j, key);
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        bt_json_num(j, bt_rank_metrics[bt_phases[p].metric].key, mean[bt_phases[p].metric]);
    bt_json_end(j, '}');
}

/* null: nothing was predicted */
static void predicted(const bt_predicted *p, bt_json *j) {
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

static void breakdown(const bt_view *v, bt_json *j) {
    const bt_view_ranks *r = &v->ranks;
    bt_json_object(j, "breakdown");
    bt_json_int(j, "step0", r->step0);
    bt_json_int(j, "step1", r->step1);
    bt_json_int(j, "steps", (int64_t)r->steps);
    bt_json_num(j, "step_ms", r->step_ms);
    bt_json_num(j, "mean_ms", r->mean_ms);
    bt_json_object(j, "mean");
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        bt_json_num(j, bt_rank_metrics[bt_phases[p].metric].key, r->phase_ms[p]);
    bt_json_end(j, '}');
    bt_json_num(j, "busy_median_ms", r->busy_median_ms);
    bt_json_num(j, "skew_p50_ms", r->skew_p50_ms);
    bt_json_num(j, "skew_p95_ms", r->skew_p95_ms);
    bt_json_str(j, "crowded", r->crowded[0] ? r->crowded : NULL);
    phases(j, "median", r->median);
    predicted(&v->head.predicted, j);
    bt_json_array(j, "ranks");
    for (size_t k = 0; k < r->n; k++) {
        const bt_view_rank *x = &r->rank[k];
        bt_json_object(j, NULL);
        bt_json_int(j, "rank", x->rank);
        bt_json_num(j, "step_ms", x->mean[BT_MR_STEP_TIME]);
        bt_json_num(j, "step_p50_ms", x->step_p50_ms);
        bt_json_num(j, "step_p95_ms", x->step_p95_ms);
        bt_json_num(j, "step_p99_ms", x->step_p99_ms);
        bt_json_num(j, "step_max_ms", x->step_max_ms);
        phases(j, "phases", x->mean);
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

/* mean step time had the k worst ranks been at the median, k = 1, 2, ... */
static void what_if_worst(const bt_view *v, bt_json *j) {
    enum { MOST = 16 };
    size_t n = v->ranks.n < MOST ? v->ranks.n : MOST;
    bt_json_array(j, "what_if_worst");
    for (size_t k = 1; k <= n; k++) bt_json_num(j, NULL, bt_view_what_if(v, v->ranks.order, k));
    bt_json_end(j, ']');
}

/* worst first, so that `.stragglers[0]` is the slowest rank */
static void put_stragglers_json(const bt_view_ranks *r, bt_json *j) {
    bt_json_array(j, "stragglers");
    for (size_t i = 0; i < r->n; i++) {
        const bt_view_rank *x = &r->rank[r->order[i]];
        bt_json_object(j, NULL);
        bt_json_int(j, "rank", x->rank);
        bt_json_str(j, "host", x->host);
        bt_json_num(j, "busy_p50_ms", x->busy_p50_ms);
        bt_json_num(j, "wait_p50_ms", x->wait_p50_ms);
        bt_json_num(j, "excess_ms", x->excess_ms);
        bt_json_num(j, "late_p50_ms", x->late_p50_ms);
        bt_json_num(j, "late_p95_ms", x->late_p95_ms);
        bt_json_num(j, "score", x->score);
        bt_json_num(j, "score_own", x->score_own);
        bt_json_num(j, "blame", x->blame_frac);
        bt_json_num(j, "lost_s", x->lost_s);
        bt_json_str(j, "phase", x->fault < BT_PHASE_COUNT ? bt_phases[x->fault].name : NULL);
        bt_json_num(j, "phase_frac", x->fault_frac);
        bt_json_str(j, "verdict", bt_verdict_name(x->verdict));
        if (x->since_step >= 0)
            bt_json_int(j, "since_step", x->since_step);
        else
            bt_json_null(j, "since_step");
        bt_json_object(j, "what_if");
        bt_json_num(j, "step_ms", x->what_if_ms);
        bt_json_num(j, "saved_ms", r->step_ms - x->what_if_ms);
        bt_json_num(j, "saved_frac",
                    r->step_ms > 0 ? (r->step_ms - x->what_if_ms) / r->step_ms : NAN);
        bt_json_num(j, "tokens_per_day",
                    x->what_if_ms > 0 ? r->tokens_per_s * (r->step_ms / x->what_if_ms - 1) * 86400
                                      : NAN);
        bt_json_end(j, '}');
        bt_json_str(j, "says", x->says[0] ? x->says : NULL);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void system_part(const bt_view_ranks *r, bt_json *j) {
    bt_json_array(j, "system");
    for (size_t k = 0; k < r->n; k++) {
        const bt_view_rank *x = &r->rank[k];
        bt_json_object(j, NULL);
        bt_json_int(j, "rank", x->rank);
        bt_json_str(j, "host", x->host);
        bt_json_int(j, "pid", x->pid);
        bt_json_str(j, "isa", x->isa);
        bt_json_int(j, "threads", x->threads);
        bt_json_int(j, "pp", x->pp);
        bt_json_int(j, "dp_replicate", x->dp_replicate);
        bt_json_int(j, "dp_shard", x->dp_shard);
        bt_json_int(j, "tp", x->tp);
        bt_json_num(j, "rss_mib", x->mean[BT_MR_RSS]);
        bt_json_num(j, "rss_peak_mib", x->rss_peak_mib);
        bt_json_num(j, "cpu_frac", x->cpu_frac);
        bt_json_num(j, "cpu_ms", x->mean[BT_MR_CPU]);
        bt_json_num(j, "micro_batches", x->mean[BT_MR_MICRO_BATCHES]);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void heatmap(const bt_view_heat *h, bt_json *j) {
    bt_json_object(j, "heatmap");
    bt_json_str(j, "value", bt_heat_value_name(h->value));
    bt_json_str(j, "unit",
                h->against || h->value == BT_HEAT_BUSY ? "ratio"
                : h->value == BT_HEAT_RSS              ? "MiB"
                : h->value == BT_HEAT_LOSS             ? "nats"
                                                       : "ms");
    bt_json_bool(j, "against_baseline", h->against);
    bt_json_int(j, "rows", (int64_t)h->rows);
    bt_json_int(j, "cols", (int64_t)h->cols);
    bt_json_bool(j, "exact", h->exact);
    bt_json_num(j, "low", h->low);
    bt_json_num(j, "high", h->high);
    bt_json_ints(j, "step", h->step, h->cols);
    numbers(j, "time_s", h->time_s, h->cols);
    bt_json_array(j, "cells");
    for (size_t k = 0; k < h->rows; k++) numbers(j, NULL, h->cell + k * h->cols, h->cols);
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void layers(const bt_view_layers *l, bt_json *j) {
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
    for (int i = 0; i < BT_VIEW_SAMPLES; i++) {
        if (l->sampled[i] >= 0)
            bt_json_int(j, NULL, l->sampled[i]);
        else
            bt_json_null(j, NULL);
    }
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
            numbers(j, told[k].key, x->history[told[k].metric], BT_VIEW_SAMPLES);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void links(const bt_view_comm *l, bt_json *j) {
    bt_json_array(j, "links");
    for (size_t i = 0; i < l->n_links; i++) {
        bt_json_object(j, NULL);
        bt_json_str(j, "axis", l->link[i].axis);
        bt_json_num(j, "latency_us", l->link[i].latency_us);
        bt_json_num(j, "bytes_per_s", l->link[i].bytes_per_s);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void pairs(const bt_view_comm *l, bt_json *j) {
    bt_json_object(j, "pairs");
    bt_json_int(j, "ranks", l->pair_ranks);
    bt_json_int(j, "step0", l->pair0);
    bt_json_int(j, "step1", l->pair1);
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n_pairs; i++) {
        const bt_view_pair *x = &l->pair[i];
        bt_json_object(j, NULL);
        bt_json_int(j, "rank", x->rank);
        bt_json_int(j, "peer", x->peer);
        bt_json_num(j, "messages", x->messages);
        bt_json_num(j, "bytes", x->bytes);
        bt_json_num(j, "flight_ms", x->flight_ms);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void comm(const bt_view_comm *l, bt_json *j) {
    bt_json_object(j, "comm");
    bt_json_int(j, "step0", l->step0);
    bt_json_int(j, "step1", l->step1);
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n; i++) {
        const bt_view_op *x = &l->op[i];
        const struct {
            const char *key;
            double v;
        } nums[] = {{"calls", x->calls},
                    {"bytes_logical", x->bytes_logical},
                    {"bytes_wire", x->bytes_wire},
                    {"busy_ms", x->busy_ms},
                    {"exposed_ms", x->exposed_ms},
                    {"hidden_ms", bt_derived_hidden(x->exposed_ms, x->busy_ms)},
                    {"wait_ms", x->wait_ms},
                    {"overlap", x->overlap},
                    {"rate_bytes_per_s", x->rate},
                    {"lost_max_ms", x->lost_max_ms},
                    {"model_ms", x->model_ms},
                    {"model_frac", x->model_frac}};
        bt_json_object(j, NULL);
        bt_json_str(j, "op", x->op);
        bt_json_str(j, "axis", x->axis);
        bt_json_int(j, "ranks", x->ranks);
        for (size_t k = 0; k < sizeof nums / sizeof nums[0]; k++)
            bt_json_num(j, nums[k].key, nums[k].v);
        if (x->lost_rank >= 0)
            bt_json_int(j, "lost_max_rank", x->lost_rank);
        else
            bt_json_null(j, "lost_max_rank");
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    links(l, j);
    pairs(l, j);
    bt_json_end(j, '}');
}

static void event_rows(bt_json *j, const char *key, const bt_view_event *rows, size_t n) {
    bt_json_array(j, key);
    for (size_t i = 0; i < n; i++) {
        const bt_view_event *x = &rows[i];
        bt_json_object(j, NULL);
        bt_json_int(j, "seq", x->seq);
        bt_json_num(j, "time_s", x->time_s);
        bt_json_int(j, "attempt", x->attempt);
        if (x->step >= 0)
            bt_json_int(j, "step", x->step);
        else
            bt_json_null(j, "step");
        if (x->rank >= 0)
            bt_json_int(j, "rank", x->rank);
        else
            bt_json_null(j, "rank");
        bt_json_str(j, "kind", x->kind);
        bt_json_str(j, "level", bt_event_level_name(x->level));
        bt_json_str(j, "title", x->title);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void put_events_json(const bt_view_events *e, bt_json *j) {
    bt_json_object(j, "events");
    bt_json_int(j, "total", e->total);
    event_rows(j, "rows", e->event, e->n);
    bt_json_int(j, "markable", e->markable);
    event_rows(j, "marks", e->mark, e->n_marks);
    bt_json_array(j, "samples");
    for (int i = 0; i < e->n_texts; i++) {
        bt_json_object(j, NULL);
        bt_json_int(j, "step", e->text[i].step);
        bt_json_str(j, "prompt", e->text[i].prompt);
        bt_json_str(j, "text", e->text[i].text);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

static void put_settings_json(const bt_view_settings *l, bt_json *j) {
    bt_json_array(j, "settings");
    for (size_t i = 0; i < l->n; i++) {
        bt_json_object(j, NULL);
        bt_json_str(j, "key", l->row[i].key);
        bt_json_str(j, "value", l->row[i].value);
        bt_json_str(j, "from", l->row[i].from);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

static void runs(const bt_view_runs *l, bt_json *j) {
    bt_json_object(j, "runs");
    bt_json_int(j, "total", l->total);
    bt_json_array(j, "rows");
    for (size_t i = 0; i < l->n; i++) {
        const bt_view_run *x = &l->run[i];
        bt_json_object(j, NULL);
        bt_json_str(j, "run", x->run);
        state(j, x->state);
        bt_json_str(j, "host", x->host);
        bt_json_str(j, "tags", x->tags);
        bt_json_str(j, "note", x->note);
        bt_json_int(j, "ranks", x->ranks);
        bt_json_int(j, "attempts", x->attempts);
        bt_json_int(j, "steps", x->steps);
        const struct {
            const char *key;
            double v;
        } nums[] = {{"tokens", x->tokens},
                    {"loss", x->loss},
                    {"best_val_loss", x->best_val},
                    {"tokens_per_s", x->tokens_per_s},
                    {"step_ms", x->step_ms},
                    {"goodput", x->goodput},
                    {"comm_overhead", x->comm_overhead},
                    {"mfu", x->mfu},
                    {"rss_mib", x->rss_mib},
                    {"started_s", x->started_s},
                    {"duration_s", x->duration_s},
                    {"age_s", x->age_s}};
        for (size_t k = 0; k < sizeof nums / sizeof nums[0]; k++)
            bt_json_num(j, nums[k].key, nums[k].v);
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
        breakdown(v, j);
        system_part(&v->ranks, j);
    }
    if (parts & BT_VIEW_SERIES) put_series_json(v, j);
    if (parts & BT_VIEW_HEAT) heatmap(&v->heat, j);
    if (parts & BT_VIEW_LAYERS) layers(&v->layers, j);
    if (parts & BT_VIEW_DISTRIBUTION) bt_view_distribution_json(&v->distribution, j);
    if (parts & BT_VIEW_COMM) comm(&v->comm, j);
    if (parts & BT_VIEW_PANEL) bt_view_panel_json(&v->panel, j);
    if (parts & BT_VIEW_EVENTS) put_events_json(&v->events, j);
    if (parts & BT_VIEW_ISLANDS) bt_view_islands_json(&v->islands, j);
    if (parts & BT_VIEW_SETTINGS) put_settings_json(&v->settings, j);
    if (parts & BT_VIEW_RUNS) runs(&v->runs, j);
    bt_json_end(j, '}');
}
