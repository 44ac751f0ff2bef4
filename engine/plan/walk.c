/* walk.c - the events of a step in the order of their causes. */
#include "engine/plan/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/reducer.h"

typedef struct walker { /* one rank */
    double now;
    double phase[BT_PHASE_COUNT];
    double began, last_bwd_s; /* the last micro-batch's backward pass */
    int64_t forwards, backwards;
} walker;

typedef struct walk_state {
    const bt_walk *w;
    walker *ranks;     /* (dp, pp) */
    double *down, *up; /* (pp, micros) when a stage's input of a micro-batch is there; < 0: not
                            known yet. Of the replica that is walked */
} walk_state;

static walker *rank_at(const walk_state *s, int d, int stage) {
    return &s->ranks[(size_t)d * (size_t)s->w->pp + (size_t)stage];
}

static double slow_of(const walk_state *s, int d, int stage) {
    return s->w->slow ? s->w->slow[(size_t)d * (size_t)s->w->pp + (size_t)stage] : 1;
}

static void spend(walker *r, bt_phase phase, double seconds) {
    r->phase[phase] += seconds;
    r->now += seconds;
}

static void wait_until(walker *r, double then) {
    if (then > r->now) spend(r, BT_PH_WAIT, then - r->now);
}

/* ---- the pipeline ---------------------------------------------------------------------------- */

static double *message(double *at, const walk_state *s, int stage, int64_t i) {
    return &at[(size_t)stage * (size_t)s->w->micros + (size_t)i];
}

static void receive(const walk_state *s, walker *r, double there) {
    wait_until(r, there);
    spend(r, BT_PH_COMM_EXPOSED, s->w->copy_s);
}

static void send(const walk_state *s, walker *r, double *there) {
    spend(r, BT_PH_COMM_EXPOSED, s->w->copy_s);
    *there = r->now + s->w->flight_s;
}

static void forward(walk_state *s, int d, int k) {
    walker *r = rank_at(s, d, k);
    const bt_stage_work *work = &s->w->stage[k];
    if (k > 0) receive(s, r, *message(s->down, s, k, r->forwards));
    spend(r, BT_PH_FWD, work->fwd_s * slow_of(s, d, k));
    spend(r, BT_PH_COMM_EXPOSED, work->fwd_comm_s);
    if (k < s->w->pp - 1) send(s, r, message(s->down, s, k + 1, r->forwards));
    r->forwards++;
}

/* The last stage stands in its send until the first comes for it. */
static void tie(walk_state *s, int d) {
    walker *first = rank_at(s, d, 0), *last = rank_at(s, d, s->w->pp - 1);
    wait_until(first, last->now);
    wait_until(last, first->now);
    spend(first, BT_PH_COMM_EXPOSED, s->w->tied_s);
    spend(last, BT_PH_COMM_EXPOSED, s->w->tied_s);
}

static void backward(walk_state *s, int d, int k) {
    walker *r = rank_at(s, d, k);
    const bt_stage_work *work = &s->w->stage[k];
    bool last = k == s->w->pp - 1, final = r->backwards == s->w->micros - 1;
    if (!last) receive(s, r, *message(s->up, s, k, r->backwards));
    if (k == 0 && !last && final && s->w->tied_s > 0) tie(s, d);
    double begin = r->now;
    spend(r, BT_PH_BWD, work->bwd_s * slow_of(s, d, k));
    spend(r, BT_PH_COMM_EXPOSED, work->bwd_comm_s);
    r->last_bwd_s = r->now - begin;
    if (k > 0) send(s, r, message(s->up, s, k - 1, r->backwards));
    r->backwards++;
}

/* the next pass of a stage, when its input is known; false: not yet, or none is left */
static bool advance(walk_state *s, int d, int k) {
    walker *r = rank_at(s, d, k);
    int64_t m = s->w->micros, behind = s->w->pp - 1 - k;
    if (r->backwards == m) return false;
    /* as many forward passes ahead as stages lie behind; then one and one */
    bool fwd = r->forwards < m && r->forwards <= r->backwards + behind;
    if (fwd) {
        if (k > 0 && *message(s->down, s, k, r->forwards) < 0) return false;
        forward(s, d, k);
        /* forward and backward at once */
        if (behind == 0) backward(s, d, k);
        return true;
    }
    if (behind > 0 && *message(s->up, s, k, r->backwards) < 0) return false;
    backward(s, d, k);
    return true;
}

static void walk_pipeline(walk_state *s, int d) {
    size_t n = (size_t)s->w->pp * (size_t)s->w->micros;
    for (size_t i = 0; i < n; i++) s->down[i] = s->up[i] = -1;
    for (int k = 0; k < s->w->pp; k++) {
        walker *r = rank_at(s, d, k);
        spend(r, BT_PH_DATA, s->w->data_s);
        spend(r, BT_PH_BWD, s->w->stage[k].begin_s * slow_of(s, d, k));
        r->began = r->now;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < s->w->pp; k++)
            while (advance(s, d, k)) moved = true;
    }
}

/* ---- the exchange of gradients --------------------------------------------------------------- */

/* Gradients are made evenly over the last backward pass. */
static double ready_at(const walk_state *s, const walker *r, int64_t bucket, int64_t n) {
    double left = s->w->overlap ? 1 - (double)(bucket + 1) / (double)n : 0;
    return r->now - r->last_bwd_s * left;
}

/* when the last bucket of a stage has arrived with all its data-parallel ranks */
static double exchange_stage(walk_state *s, int k) {
    const bt_stage_work *work = &s->w->stage[k];
    double sent = 0, arrived[BT_STRIPES_IN_FLIGHT] = {0}, end = 0;
    for (int64_t b = 0; b < work->buckets; b++) {
        double start = fmax(sent, arrived[b % BT_STRIPES_IN_FLIGHT]);
        for (int d = 0; d < s->w->dp; d++)
            start = fmax(start, ready_at(s, rank_at(s, d, k), b, work->buckets));
        sent = start + work->bucket_wire_s;
        end = arrived[b % BT_STRIPES_IN_FLIGHT] = sent + work->bucket_latency_s;
    }
    return end;
}

static double walk_exchange(walk_state *s) {
    double exposed = 0;
    for (int k = 0; k < s->w->pp; k++) {
        const bt_stage_work *work = &s->w->stage[k];
        double end = exchange_stage(s, k), latest = 0;
        for (int d = 0; d < s->w->dp; d++) latest = fmax(latest, rank_at(s, d, k)->now);
        for (int d = 0; d < s->w->dp && work->buckets > 0; d++) {
            walker *r = rank_at(s, d, k);
            double cpu = work->bucket_cpu_s * (double)work->buckets;
            wait_until(r, latest);
            spend(r, BT_PH_COMM_EXPOSED, fmax(0, end - latest) + cpu);
            exposed += fmax(0, end - latest) + cpu;
        }
    }
    return exposed / ((double)s->w->pp * s->w->dp);
}

/* ---- a step ---------------------------------------------------------------------------------- */

static double latest_of(const walk_state *s) {
    double latest = 0;
    for (int i = 0; i < s->w->pp * s->w->dp; i++) latest = fmax(latest, s->ranks[i].now);
    return latest;
}

static void meet_all(walk_state *s, double then) {
    for (int i = 0; i < s->w->pp * s->w->dp; i++) wait_until(&s->ranks[i], then);
}

static void walk_update(walk_state *s) {
    for (int d = 0; d < s->w->dp; d++) {
        for (int k = 0; k < s->w->pp; k++) {
            walker *r = rank_at(s, d, k);
            bool ends = s->w->pp > 1 && (k == 0 || k == s->w->pp - 1);
            spend(r, BT_PH_OPTIM, s->w->stage[k].optim_s * slow_of(s, d, k));
            spend(r, BT_PH_COMM_EXPOSED, s->w->stage[k].optim_comm_s + (ends ? s->w->tied_s : 0));
            spend(r, BT_PH_MONITOR, s->w->monitor_s);
            spend(r, BT_PH_CKPT, s->w->ckpt_s);
        }
    }
}

static double bubble(const walk_state *s) {
    double waited = 0, all = 0;
    for (int i = 0; i < s->w->pp * s->w->dp; i++) waited += s->ranks[i].phase[BT_PH_WAIT];
    for (int d = 0; d < s->w->dp; d++) {
        double begin = INFINITY, end = 0;
        for (int k = 0; k < s->w->pp; k++) {
            begin = fmin(begin, rank_at(s, d, k)->began);
            end = fmax(end, rank_at(s, d, k)->now);
        }
        for (int k = 0; k < s->w->pp; k++) {
            all += end - begin;
            waited += end - rank_at(s, d, k)->now;
        }
    }
    return all > 0 ? waited / all : 0;
}

static void sum_up(const walk_state *s, bt_step_time *out) {
    int n = s->w->pp * s->w->dp;
    for (int i = 0; i < n; i++)
        for (int p = 0; p < BT_PHASE_COUNT; p++) out->phase_s[p] += s->ranks[i].phase[p] / n;
}

bt_code bt_walk_step(const bt_walk *w, bt_step_time *out, bt_err *err) {
    size_t ranks = (size_t)w->pp * (size_t)w->dp, messages = (size_t)w->pp * (size_t)w->micros;
    walk_state s = {.w = w,
                    .ranks = calloc(ranks, sizeof *s.ranks),
                    .down = malloc(messages * sizeof *s.down),
                    .up = malloc(messages * sizeof *s.up)};
    *out = (bt_step_time){0};
    bt_code code = BT_OK;
    if (s.ranks && s.down && s.up) {
        for (int d = 0; d < w->dp; d++) walk_pipeline(&s, d);
        out->bubble_frac = bubble(&s);
        out->exchange_s = walk_exchange(&s);
        meet_all(&s, latest_of(&s));
        for (size_t i = 0; i < ranks; i++) spend(&s.ranks[i], BT_PH_COMM_EXPOSED, w->agree_s);
        walk_update(&s);
        out->step_s = latest_of(&s);
        meet_all(&s, out->step_s);
        sum_up(&s, out);
    } else {
        code = bt_fail(err, BT_NOMEM, "no memory to walk %zu ranks and %lld micro-batches", ranks,
                       (long long)w->micros);
    }
    free(s.ranks);
    free(s.down);
    free(s.up);
    return code;
}
