/* synth_run.h - writes runs with known properties: a slow rank and phase, repeated steps, downtime. Every rank has the
 * same phases, except that `phase` of rank `straggler` takes (1 + excess) times as long. All ranks synchronize once a
 * step: busy_r = data + fwd + bwd + comm_exposed + optim; step = max busy; wait_r = step - busy_r; overlap = 1 -
 * exposed/busy = 0.5. Every 100th step ends with a checkpoint of 40 ms. The run fails after step `fail_at` and resumes
 * from `resume_from`, `down_s` later. */
#ifndef BT_TESTS_SYNTH_RUN_H
#define BT_TESTS_SYNTH_RUN_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/tables/histogram.h"
#include "store/store.h"

typedef struct bt_synth {
    const char *name;
    const char *out_dir;  /* NULL: "/nowhere" */
    int ranks, straggler; /* straggler -1: no slow rank */
    bt_rank_metric phase; /* phase of the straggler */
    double excess;        /* 0.2: 20 % longer */
    /* relative variation of each phase of each rank; its mean is zero */
    double jitter;
    double slow;                         /* factor on all times */
    double load;                         /* load of every machine; 0: not recorded */
    int64_t steps, fail_at, resume_from; /* fail_at 0: never */
    double down_s;
    int64_t start_us;
    int64_t layers_every; /* 0: no ternary statistics */
    bool planned;         /* record the planner's prediction of a step */
    /* leave the run without an end, as during training */
    bool live;
    /* above 0: write live, one step per interval, and print "step N MICROSECONDS" at each commit */
    double pace_ms;
} bt_synth;

static inline bt_synth bt_synth_default(const char *name) {
    return (bt_synth){.name = name,
                      .ranks = 4,
                      .straggler = -1,
                      .phase = BT_MR_DATA,
                      .slow = 1,
                      .steps = 200,
                      .start_us = INT64_C(1700000000000000),
                      .layers_every = 20};
}

/* Returns the milliseconds that a phase takes on a rank that is not slow. */
static inline double bt_synth_base(bt_rank_metric m) {
    switch (m) {
    case BT_MR_DATA: return 10;
    case BT_MR_FWD: return 30;
    case BT_MR_BWD: return 60;
    case BT_MR_COMM_EXPOSED: return 8;
    case BT_MR_OPTIM: return 5;
    default: return 0;
    }
}

static inline double bt_synth_loss(int64_t step) { return 2 + 3 * exp(-(double)step / 100); }

static inline double bt_synth_noise(int64_t step, int rank, int m) { /* between -1 and 1 */
    uint64_t x = (uint64_t)step * 1000003u + (uint64_t)rank * 997u + (uint64_t)m * 31u + 7u;
    x ^= x >> 31;
    x *= 0x7fb5d329728ea185u;
    x ^= x >> 27;
    x *= 0x81dadef4bc2dd44du;
    x ^= x >> 33;
    return (double)(x >> 11) / 4503599627370496.0 - 1;
}

static inline double bt_synth_step(const bt_synth *s, int64_t step, double *values, double *ranks) {
    static const bt_rank_metric phases[] = {BT_MR_DATA, BT_MR_FWD, BT_MR_BWD, BT_MR_COMM_EXPOSED,
                                            BT_MR_OPTIM};
    double slowest = 0, overhead = 0, wire = 0;
    for (int r = 0; r < s->ranks; r++) {
        double *v = ranks + (size_t)r * BT_MR_COUNT, busy = 0;
        memset(v, 0, sizeof *v * BT_MR_COUNT);
        for (size_t p = 0; p < 5; p++) {
            double ms = bt_synth_base(phases[p]) * s->slow *
                        (1 + s->jitter * bt_synth_noise(step, r, (int)p));
            if (r == s->straggler && phases[p] == s->phase) ms *= 1 + s->excess;
            v[phases[p]] = ms;
            busy += ms;
        }
        v[BT_MR_LOSS] = bt_synth_loss(step);
        v[BT_MR_STEP_TIME] = busy; /* The caller replaces it by the time of the step. */
        v[BT_MR_COMM_BUSY] = 2 * v[BT_MR_COMM_EXPOSED];
        v[BT_MR_BYTES_LOGICAL] = 4000000;
        v[BT_MR_BYTES_WIRE] = 1000000;
        v[BT_MR_RSS] = 100 + r;
        v[BT_MR_CPU] = busy;
        v[BT_MR_LOAD] = s->load > 0 ? s->load : NAN;
        v[BT_MR_MICRO_BATCHES] = 1;
        slowest = fmax(slowest, busy);
    }
    for (int r = 0; r < s->ranks; r++) {
        double *v = ranks + (size_t)r * BT_MR_COUNT;
        v[BT_MR_WAIT] = slowest - v[BT_MR_STEP_TIME];
        v[BT_MR_STEP_TIME] = slowest;
        overhead += (v[BT_MR_WAIT] + v[BT_MR_COMM_EXPOSED]) / slowest / s->ranks;
        wire += v[BT_MR_BYTES_WIRE];
    }
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
    values[BT_MS_TOKENS] = (double)(step + 1) * 4096;
    values[BT_MS_LOSS] = bt_synth_loss(step);
    values[BT_MS_GRAD_NORM] = 1 / (1 + (double)step / 50);
    values[BT_MS_LR] = 2e-3 * (step < 20 ? (double)(step + 1) / 20 : 1);
    values[BT_MS_SKIPPED] = 0;
    values[BT_MS_TOKENS_PER_S] = 4096 / (slowest / 1e3);
    values[BT_MS_STEP_TIME] = slowest;
    values[BT_MS_MFU] = 0.4;
    values[BT_MS_COMM_OVERHEAD] = overhead;
    values[BT_MS_OVERLAP] = 0.5;
    values[BT_MS_BYTES_LOGICAL] = 4 * wire;
    values[BT_MS_BYTES_WIRE] = wire;
    values[BT_MS_RSS_MAX] = 100 + s->ranks - 1;
    if ((step + 1) % 50 == 0) values[BT_MS_VAL_LOSS] = bt_synth_loss(step) + 0.05;
    return slowest;
}

static inline void bt_synth_layers(const bt_sink *sink, int64_t step) {
    static const char *const tensors[] = {"attn_q", "attn_o", "ffn_up", "ffn_down"};
    bt_key keys[8][2];
    double v[8][BT_ML_COUNT];
    for (int i = 0; i < 8; i++) {
        const double row[BT_ML_COUNT] = {0.31 + 0.01 * i,
                                         0.345 - 0.005 * i,
                                         0.1 / (1 + (double)step / 40),
                                         0.02,
                                         0.5,
                                         0.002 / (1 + (double)step / 40),
                                         0.01 / (1 + (double)step / 40),
                                         0.059 + 0.002 * i,
                                         1e-3 * (1 + i)};
        memcpy(v[i], row, sizeof row);
        keys[i][0].i = i / 4;
        keys[i][1].s = tensors[i % 4];
    }
    sink->rows(sink->ctx,
               &(bt_row_record){
                   .scope = BT_SCOPE_LAYER, .step = step, .n = 8, .keys = keys[0], .values = v[0]});
}

/* Records attn_o and ffn_up of layer 0: weights in bins 12 to 19, twice as many in the middle bins, and gradients that
 * halve every hundred steps. ffn_up has gradients only. */
static inline void bt_synth_distributions(const bt_sink *sink, int64_t step) {
    bt_key keys[2 * BT_HIST_BINS][3];
    double v[2 * BT_HIST_BINS][BT_MD_COUNT];
    size_t n = 0;
    const int gradient = 18 - (int)(step / 100);
    for (int tensor = 0; tensor < 2; tensor++)
        for (int b = 0; b < BT_HIST_BINS; b++) {
            const bool middle = b >= 14 && b < 18, weights = b >= 12 && b < 20;
            if (!weights && b != gradient) continue;
            keys[n][0].i = 0;
            keys[n][1].s = tensor ? "ffn_up" : "attn_o";
            keys[n][2].i = b;
            v[n][BT_MD_WEIGHTS] = tensor ? NAN : weights ? (middle ? 200 : 100) : 0;
            v[n++][BT_MD_GRADIENTS] = b == gradient ? 1200 : 0;
        }
    sink->rows(
        sink->ctx,
        &(bt_row_record){
            .scope = BT_SCOPE_DISTRIBUTION, .step = step, .n = n, .keys = keys[0], .values = v[0]});
}

/* Records the exchanges of `steps` steps: gradients (40 ms in flight, 8 ms exposed, the last rank waits as many ms as
 * its number), weights, and small exchanges. */
static inline void bt_synth_comm(const bt_sink *sink, const bt_synth *s, int64_t step,
                                 double steps) {
    bt_key(*keys)[3] = calloc((size_t)s->ranks * 3, sizeof *keys);
    double(*v)[BT_MC_COUNT] = calloc((size_t)s->ranks * 3, sizeof *v);
    for (int r = 0; r < s->ranks; r++) {
        const double rows[3][BT_MC_COUNT] = {{[BT_MC_STEPS] = 1,
                                              [BT_MC_CALLS] = 4,
                                              [BT_MC_BYTES_LOGICAL] = 3200000,
                                              [BT_MC_BYTES_WIRE] = 800000,
                                              [BT_MC_BUSY] = 40,
                                              [BT_MC_EXPOSED] = 8,
                                              [BT_MC_WAIT] = r,
                                              [BT_MC_MODEL] = 10},
                                             {[BT_MC_STEPS] = 1,
                                              [BT_MC_CALLS] = 2,
                                              [BT_MC_BYTES_LOGICAL] = 800000,
                                              [BT_MC_BYTES_WIRE] = 200000,
                                              [BT_MC_BUSY] = 0.5,
                                              [BT_MC_EXPOSED] = 0.5,
                                              [BT_MC_MODEL] = 0.25},
                                             {[BT_MC_STEPS] = 1,
                                              [BT_MC_CALLS] = 1,
                                              [BT_MC_BYTES_LOGICAL] = 48,
                                              [BT_MC_BYTES_WIRE] = 48,
                                              [BT_MC_MODEL] = NAN}};
        static const char *const names[3][2] = {
            {"all_reduce", "dp"}, {"all_gather", "shard"}, {"all_reduce", "world"}};
        for (int k = 0; k < 3; k++) {
            int at = 3 * r + k;
            for (int m = 0; m < BT_MC_COUNT; m++) v[at][m] = rows[k][m] * steps;
            keys[at][0].i = r;
            keys[at][1].s = names[k][0];
            keys[at][2].s = names[k][1];
        }
    }
    sink->rows(sink->ctx, &(bt_row_record){.scope = BT_SCOPE_COMM,
                                           .step = step,
                                           .n = (size_t)s->ranks * 3,
                                           .keys = keys[0],
                                           .values = v[0]});
    free(keys);
    free(v);
}

/* Each rank receives 100 kB a step from every other rank in 4 messages of 2 ms, or 10 ms if the straggler sends
 * them. */
static inline void bt_synth_pairs(const bt_sink *sink, const bt_synth *s, int64_t step,
                                  double steps) {
    size_t n = 0;
    bt_key(*keys)[2] = calloc((size_t)(s->ranks * s->ranks), sizeof *keys);
    double(*v)[BT_MP_COUNT] = calloc((size_t)(s->ranks * s->ranks), sizeof *v);
    for (int r = 0; r < s->ranks; r++) {
        for (int p = 0; p < s->ranks; p++) {
            if (p == r) continue;
            const double row[BT_MP_COUNT] = {[BT_MP_STEPS] = steps,
                                             [BT_MP_MESSAGES] = 4 * steps,
                                             [BT_MP_BYTES] = 1e5 * steps,
                                             [BT_MP_TIMED] = 4 * steps,
                                             [BT_MP_FLIGHT] = (p == s->straggler ? 40 : 8) * steps};
            memcpy(v[n], row, sizeof row);
            keys[n][0].i = r;
            keys[n][1].i = p;
            n++;
        }
    }
    if (n > 0)
        sink->rows(
            sink->ctx,
            &(bt_row_record){
                .scope = BT_SCOPE_PAIR, .step = step, .n = n, .keys = keys[0], .values = v[0]});
    free(keys);
    free(v);
}

/* Waits until the step is committed, prints it, and waits until the next step is due. */
static inline void bt_synth_pace(const bt_synth *s, bt_writer *w, int64_t step) {
    int64_t until = bt_now_ns() + (int64_t)(s->pace_ms * 1e6);
    while (bt_writer_committed_step(w) < step) bt_sleep_ns(200000);
    printf("step %lld %lld\n", (long long)step, (long long)bt_wall_us());
    fflush(stdout);
    if (until > bt_now_ns()) bt_sleep_ns(until - bt_now_ns());
}

static inline int64_t bt_synth_attempt(const bt_synth *s, bt_writer *w, int64_t from, int64_t to,
                                       int64_t clock_us) {
    const bt_sink *sink = bt_writer_sink(w);
    double *values = malloc(sizeof *values * BT_MS_COUNT),
           *ranks = malloc(sizeof *ranks * BT_MR_COUNT * (size_t)s->ranks);
    bt_rank_info *info = calloc((size_t)s->ranks, sizeof *info);
    for (int r = 0; r < s->ranks; r++) {
        info[r] = (bt_rank_info){
            .rank = r, .pid = 1000 + r, .threads = 2, .isa = "generic", .dp_replicate = r};
        snprintf(info[r].host, sizeof info[r].host, "node%d", r / 8);
    }
    sink->ranks(sink->ctx, info, (size_t)s->ranks);
    sink->fact(sink->ctx, "params", "3144384");
    char number[40];
    snprintf(number, sizeof number, "%d", s->ranks);
    sink->fact(sink->ctx, "world_size", number);
    snprintf(number, sizeof number, "%.17g", 1e12 / 3 * (1 + 0.02 * s->ranks));
    sink->fact(sink->ctx, "peak_flops", number);
    /* the plan for steps without waiting time */
    static const char *const plan[][2] = {{"plan.step_ms", "120"},        {"plan.fwd_ms", "30"},
                                          {"plan.bwd_ms", "60"},          {"plan.optim_ms", "5"},
                                          {"plan.comm_exposed_ms", "20"}, {"plan.wait_ms", "5"}};
    for (size_t i = 0; s->planned && i < sizeof plan / sizeof *plan; i++)
        sink->fact(sink->ctx, plan[i][0], plan[i][1]);
    sink->fact(sink->ctx, "link.dp.latency_s", "2e-05");
    sink->fact(sink->ctx, "link.dp.bytes_per_s", "80000000");
    sink->event(sink->ctx, &(bt_event){.kind = from ? BT_EVENT_RESUMED : BT_EVENT_STARTED,
                                       .step = from - 1,
                                       .rank = -1,
                                       .wall_us = clock_us,
                                       .title = from ? "resumed" : "training"});
    for (int64_t step = from; step < to; step++) {
        clock_us += llround(bt_synth_step(s, step, values, ranks) * 1e3);
        if (s->pace_ms > 0) clock_us = bt_wall_us();
        sink->step(sink->ctx, &(bt_step_record){.step = step,
                                                .wall_us = clock_us,
                                                .values = values,
                                                .n_ranks = s->ranks,
                                                .rank_values = ranks});
        if (s->layers_every && step % s->layers_every == 0) bt_synth_layers(sink, step);
        if (s->layers_every && step % (2 * s->layers_every) == 0)
            bt_synth_distributions(sink, step);
        if (s->layers_every && step % s->layers_every == 0)
            bt_synth_comm(sink, s, step, (double)(step > from ? s->layers_every : 1));
        if (s->layers_every && step % s->layers_every == 0 && s->ranks <= 32)
            bt_synth_pairs(sink, s, step, (double)(step > from ? s->layers_every : 1));
        if (s->pace_ms > 0) bt_synth_pace(s, w, step);
        if ((step + 1) % 100 == 0) {
            sink->checkpoint(sink->ctx, &(bt_ckpt_record){.step = step + 1,
                                                          .wall_us = clock_us,
                                                          .path = "/nowhere/step",
                                                          .bytes = 12 << 20,
                                                          .took_us = 40000,
                                                          .hash = "c0ffee"});
            sink->event(sink->ctx, &(bt_event){.kind = BT_EVENT_CHECKPOINT,
                                               .step = step,
                                               .rank = -1,
                                               .wall_us = clock_us,
                                               .title = "checkpoint"});
        }
    }
    free(values);
    free(ranks);
    free(info);
    return clock_us;
}

static inline bt_code bt_synth_make(const char *path, const bt_synth *s, bt_err *err) {
    bt_writer *w = NULL;
    int attempt;
    int64_t clock_us = s->start_us;
    bt_run_start start = {
        .name = s->name,
        .reason = "start",
        .argv = "bitrain train --name synth",
        .host = "nodes",
        .user = "nobody",
        .build = "synth",
        .mpi = "none",
        .config_json =
            "{\"optim.lr\":{\"value\":0.002,\"origin\":\"preset\",\"where\":\"preset "
            "nano\"},\"train.steps\":{\"value\":200,\"origin\":\"flag\",\"where\":\"--steps\"}}",
        .out_dir = s->out_dir ? s->out_dir : "/nowhere",
        .world_size = s->ranks,
        .seed = 1,
        .pid = 1,
        .started_us = clock_us};
    char here[BT_HOST_MAX] = "nodes";
    if (s->pace_ms > 0) {
        gethostname(here, sizeof here - 1);
        start.host = here;
        start.pid = (int)getpid();
        start.started_us = clock_us = bt_wall_us();
    }
    BT_TRY(bt_writer_open(&w, path, 10, err));
    bt_code code = bt_writer_begin(w, &start, &attempt, err);
    if (code == BT_OK && s->fail_at > 0) {
        clock_us = bt_synth_attempt(s, w, 0, s->fail_at, clock_us);
        code = bt_writer_end(w, "failed", "rank 1 died (signal 9)", 1, err);
        clock_us += llround(s->down_s * 1e6);
        start.resume = true;
        start.from_step = s->resume_from;
        start.reason = "restart after rank 1 died (signal 9)";
        start.started_us = clock_us;
        if (code == BT_OK) code = bt_writer_begin(w, &start, &attempt, err);
    }
    if (code == BT_OK) {
        bt_synth_attempt(s, w, s->fail_at > 0 ? s->resume_from : 0, s->steps, clock_us);
        code = s->live ? bt_writer_flush(w, err) : bt_writer_end(w, "done", "finished", 0, err);
    }
    bt_writer_close(w);
    return code;
}

#endif
