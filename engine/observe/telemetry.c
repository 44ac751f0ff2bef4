/* telemetry.c - gathers the values of all ranks, combines them and passes them to the sink. */
#include "engine/observe/telemetry.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/tables/derived.h"

bt_code bt_telemetry_init(bt_telemetry *t, bt_comm *comm, const bt_sink *sink, bt_err *err) {
    memset(t, 0, sizeof *t);
    t->comm = comm;
    t->last_loss = NAN;
    bool root = bt_comm_rank(comm) == 0;
    if (sink && root) t->sink = *sink;
    t->mine = calloc(BT_MR_COUNT, sizeof *t->mine);
    if (root) {
        t->all = calloc((size_t)bt_comm_size(comm) * BT_MR_COUNT, sizeof *t->all);
        t->history = calloc(BT_HISTORY, sizeof *t->history);
    }
    if (!t->mine || (root && (!t->all || !t->history)))
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the measurements of %d ranks",
                       bt_comm_size(comm));
    return BT_OK;
}

void bt_telemetry_release(bt_telemetry *t) {
    free(t->mine);
    free(t->all);
    free(t->history);
    memset(t, 0, sizeof *t);
}

static void combine_rank_values(bt_telemetry *t, double *step, double *mean) {
    int n = bt_comm_size(t->comm), overlapping = 0;
    double loss = 0, share = 0, slowest = 0, lost = 0, spent = 0, overlap = 0, logical = 0,
           wire = 0, largest = 0, energy = NAN;
    memset(mean, 0, BT_MR_COUNT * sizeof *mean);
    for (int r = 0; r < n; r++) {
        const double *v = t->all + (size_t)r * BT_MR_COUNT;
        double weight = isnan(v[BT_MR_COUNTED]) ? v[BT_MR_MICRO_BATCHES] : v[BT_MR_COUNTED];
        loss += v[BT_MR_LOSS] * weight;
        share += weight;
        slowest = fmax(slowest, v[BT_MR_STEP_TIME]);
        lost += bt_derived_lost(v[BT_MR_COMM_EXPOSED], v[BT_MR_WAIT]);
        spent += v[BT_MR_STEP_TIME];
        double hidden = bt_derived_overlap(v[BT_MR_COMM_EXPOSED], v[BT_MR_COMM_BUSY]);
        if (!isnan(hidden)) {
            overlap += hidden;
            overlapping++;
        }
        logical += v[BT_MR_BYTES_LOGICAL];
        wire += v[BT_MR_BYTES_WIRE];
        largest = fmax(largest, v[BT_MR_RSS]);
        if (!isnan(v[BT_MR_ENERGY])) energy = (isnan(energy) ? 0 : energy) + v[BT_MR_ENERGY];
        for (int m = 0; m < BT_MR_COUNT; m++) mean[m] += v[m] / n;
    }
    mean[BT_MR_STEP_TIME] = slowest;
    if (isnan(step[BT_MS_LOSS])) step[BT_MS_LOSS] = loss / share;
    step[BT_MS_STEP_TIME] = slowest;
    step[BT_MS_STEP_MEAN] = spent / n;
    step[BT_MS_TOKENS_PER_S] = bt_derived_tokens_per_s((double)t->step_tokens, slowest);
    step[BT_MS_PLAN_RATIO] = t->predicted_ms > 0 ? slowest / t->predicted_ms : NAN;
    step[BT_MS_MFU] = bt_telemetry_mfu(t, step[BT_MS_TOKENS_PER_S]);
    step[BT_MS_COMM_OVERHEAD] = bt_derived_comm_overhead(lost, 0, spent);
    step[BT_MS_OVERLAP] = overlapping ? overlap / overlapping : NAN;
    step[BT_MS_BYTES_LOGICAL] = logical;
    step[BT_MS_BYTES_WIRE] = wire;
    step[BT_MS_RSS_MAX] = largest;
    step[BT_MS_ENERGY] = energy;
}

static void pass_to_sink(bt_telemetry *t) {
    t->pending = false;
    if (bt_comm_rank(t->comm) != 0) return;
    double mean[BT_MR_COUNT];
    combine_rank_values(t, t->step_values, mean);
    if (t->seen >= t->warmup)
        memcpy(t->history[(t->seen - t->warmup) % BT_HISTORY], mean, sizeof mean);
    t->last_loss = t->step_values[BT_MS_LOSS];
    t->seen++;
    if (!t->sink.step) return;
    bt_step_record record = {.step = t->step,
                             .wall_us = t->wall_us,
                             .values = t->step_values,
                             .n_ranks = bt_comm_size(t->comm),
                             .rank_values = t->all};
    t->sink.step(t->sink.ctx, &record);
}

bt_code bt_telemetry_post(bt_telemetry *t, int64_t step, const double step_values[BT_MS_COUNT],
                          const double rank_values[BT_MR_COUNT], bt_err *err) {
    BT_TRY(bt_telemetry_flush(t, err));
    t->step = step;
    t->wall_us = bt_wall_us();
    memcpy(t->step_values, step_values, sizeof t->step_values);
    memcpy(t->mine, rank_values, BT_MR_COUNT * sizeof *t->mine);
    BT_TRY(bt_gather_start(t->comm, t->mine, BT_MR_COUNT * sizeof *t->mine, t->all, 0, &t->gather,
                           err));
    t->pending = true;
    return bt_telemetry_poll(t, err);
}

bt_code bt_telemetry_poll(bt_telemetry *t, bt_err *err) {
    if (!t->pending) return BT_OK;
    bool done = false;
    BT_TRY(bt_request_test(&t->gather, &done, err));
    if (done) pass_to_sink(t);
    return BT_OK;
}

bt_code bt_telemetry_flush(bt_telemetry *t, bt_err *err) {
    if (!t->pending) return BT_OK;
    BT_TRY(bt_request_wait(&t->gather, err));
    pass_to_sink(t);
    return BT_OK;
}

static int64_t history_length(const bt_telemetry *t) {
    int64_t n = t->history ? t->seen - t->warmup : 0;
    return n < 0 ? 0 : n > BT_HISTORY ? BT_HISTORY : n;
}

void bt_telemetry_extremes(const bt_telemetry *t, bt_rank_metric metric, double *least,
                           double *most) {
    *least = *most = NAN;
    for (int64_t i = 0; i < history_length(t); i++) {
        *least = fmin(*least, t->history[i][metric]); /* fmin(NaN, x) is x */
        *most = fmax(*most, t->history[i][metric]);
    }
}

double bt_telemetry_median(const bt_telemetry *t, bt_rank_metric metric) {
    int64_t n = history_length(t);
    double values[BT_HISTORY];
    for (int64_t i = 0; i < n; i++) values[i] = t->history[i][metric];
    return bt_median_known(values, (size_t)n);
}

void bt_telemetry_event_of(const bt_telemetry *t, bt_event_kind kind, int rank, int64_t step,
                           const char *body, const char *title) {
    if (!t->sink.event) return;
    bt_event e = {.kind = kind,
                  .step = step,
                  .rank = rank,
                  .wall_us = bt_wall_us(),
                  .title = title,
                  .body = body};
    t->sink.event(t->sink.ctx, &e);
}

void bt_telemetry_event(const bt_telemetry *t, bt_event_kind kind, int64_t step, const char *body,
                        const char *fmt, ...) {
    if (!t->sink.event) return;
    char title[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(title, sizeof title, fmt, ap);
    va_end(ap);
    bt_telemetry_event_of(t, kind, -1, step, body, title);
}
