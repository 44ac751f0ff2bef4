/* step_simulator.c - simulates the events of a step in causal order. */
#include "engine/plan/step_simulator/step_simulator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/schedule/pass_order.h"

typedef struct simulated_rank {
    double now;
    double phase[BT_PHASE_COUNT];
    double began;
    double tp_wait_s; /* part of WAIT spent waiting for the tensor-parallel group */
    /* link_free: time at which the link to other hosts has sent all posted messages. table_sent: time at which it has
     * sent the gradients of a tied embedding (several chunks, last stage). */
    double link_free, table_sent;
    int64_t done; /* number of passes that the rank has executed, in the order of pass_order.h */
} simulated_rank;

typedef struct final_pass { /* backward pass of the last micro-batch through a chunk */
    double end, took_s;
} final_pass;

typedef struct simulator {
    const bt_step_simulation *w;
    simulated_rank *ranks; /* (dp, pp) */
    int chunks;
    final_pass *finals; /* (dp, pp, chunks) */
    /* (chunks, pp, micros) times at which the input of a micro-batch arrives at a virtual stage: activations in `down`,
     * gradients in `up`; < 0: not known yet. */
    double *down, *up;
    /* With several chunks: time at which the head's gradients of a tied embedding arrive; < 0: not known yet. */
    double tied_at;
} simulator;

/* The next pass of a stage. */
typedef struct simulated_pass {
    bt_pass pass;
    int at; /* virtual stage */
    const bt_stage_work *work;
    bool begins, ends; /* it is the first, or the last, virtual stage */
    bool final;        /* it is the backward pass of the last micro-batch */
} simulated_pass;

static simulated_rank *rank_at(const simulator *s, int d, int stage) {
    return &s->ranks[(size_t)d * (size_t)s->w->pp + (size_t)stage];
}

/* Returns the factor by which a rank computes more slowly, at least 1. */
static double straggler_factor(const simulator *s, int d, int stage) {
    return s->w->slow ? s->w->slow[(size_t)d * (size_t)s->w->pp + (size_t)stage] : 1;
}

static final_pass *final_pass_of(const simulator *s, int d, int stage, int chunk) {
    return &s->finals[((size_t)d * (size_t)s->w->pp + (size_t)stage) * (size_t)s->chunks +
                      (size_t)chunk];
}

/* Returns the entry of a virtual stage and micro-batch i in `down` or `up`. */
static double *message_at(double *at, const simulator *s, int stage, int64_t i) {
    return &at[(size_t)stage * (size_t)s->w->micros + (size_t)i];
}

/* Posts a message of rank r and stores its arrival time in *there. A link between hosts sends one message after
 * another. While it also sends the gradients of a tied embedding, a message has half of its rate. */
static void post_message(simulator *s, simulated_rank *r, double *there) {
    const double wire_s = s->w->wire_s, begin = wire_s > 0 ? fmax(r->now, r->link_free) : r->now,
                 beside = fmin(wire_s, fmax(0, r->table_sent - begin));
    if (wire_s > 0) r->link_free = begin + wire_s + beside;
    if (beside > 0) s->tied_at = r->table_sent += beside;
    *there = begin + s->w->flight_s + beside;
}

/* Posts the gradients of a tied embedding on the link between hosts. */
static void post_tied_gradients(simulator *s, simulated_rank *r) {
    const double before = fmin(s->w->tied_s, fmax(0, r->link_free - r->now));
    s->tied_at = r->table_sent = r->now + s->w->tied_s + before;
}

static bool next_pass(const simulator *s, const simulated_rank *r, int stage, simulated_pass *out) {
    const bt_pass_order order = {s->w->pp, stage, s->chunks, s->w->micros};
    if (r->done == bt_pass_count(&order)) return false;
    const bt_pass pass = bt_pass_at(&order, r->done);
    const int at = pass.chunk * s->w->pp + stage;
    *out = (simulated_pass){.pass = pass,
                            .at = at,
                            .work = &s->w->stage[at],
                            .begins = at == 0,
                            .ends = at == s->chunks * s->w->pp - 1,
                            .final = pass.backward && pass.micro == s->w->micros - 1};
    return true;
}

static void spend_phase(simulated_rank *r, bt_phase phase, double seconds) {
    r->phase[phase] += seconds;
    r->now += seconds;
}

/* Slow-down by shared cores while every rank computes. */
static double crowded_slow_down(const simulator *s) { return s->w->crowd > 1 ? s->w->crowd : 1; }

static void advance_clock_to(simulated_rank *r, double then) {
    if (then > r->now) spend_phase(r, BT_PH_WAIT, then - r->now);
}

static void simulate_receive(const simulator *s, simulated_rank *r, double there) {
    advance_clock_to(r, there);
    spend_phase(r, BT_PH_COMM_EXPOSED, s->w->copy_s * crowded_slow_down(s));
}

static void simulate_send(simulator *s, simulated_rank *r, double *there) {
    spend_phase(r, BT_PH_COMM_EXPOSED, s->w->copy_s * crowded_slow_down(s));
    post_message(s, r, there);
}

/* Adds the time of waiting for the slowest rank in a tensor-parallel group. */
static void synchronise_group(const simulator *s, simulated_rank *r, double seconds) {
    spend_phase(r, BT_PH_WAIT, seconds * crowded_slow_down(s));
    r->tp_wait_s += seconds * crowded_slow_down(s);
}

static void simulate_forward(simulator *s, int d, int k, const simulated_pass *x) {
    simulated_rank *r = rank_at(s, d, k);
    const bt_stage_work *work = x->work;
    if (!x->begins) simulate_receive(s, r, *message_at(s->down, s, x->at, x->pass.micro));
    spend_phase(r, BT_PH_FWD, work->fwd_s * straggler_factor(s, d, k) * crowded_slow_down(s));
    spend_phase(r, BT_PH_COMM_EXPOSED, work->fwd_comm_s * crowded_slow_down(s));
    synchronise_group(s, r, work->fwd_tp_wait_s);
    if (!x->ends) simulate_send(s, r, message_at(s->down, s, x->at + 1, x->pass.micro));
}

/* The first stage receives the gradients of a tied embedding. Between hosts they are sent while the first stage
 * computes. Within a host, ranks copy them; with one chunk per stage, the last stage blocks in its send until the first
 * stage receives. */
static void simulate_tied_embedding(simulator *s, int d) {
    simulated_rank *first = rank_at(s, d, 0), *last = rank_at(s, d, s->w->pp - 1);
    const bool copied = !s->w->tied_wired, meet = copied && s->chunks == 1;
    advance_clock_to(first, meet ? last->now : s->tied_at);
    if (meet) advance_clock_to(last, first->now);
    if (copied) spend_phase(first, BT_PH_COMM_EXPOSED, s->w->tied_s);
    if (meet) spend_phase(last, BT_PH_COMM_EXPOSED, s->w->tied_s);
}

/* Sends the gradients of a tied embedding from the last stage, unless simulate_tied_embedding accounts for a blocking
 * send. With one chunk the last stage has nothing else to do and waits. */
static void send_tied(simulator *s, simulated_rank *last) {
    if (s->w->tied_wired) {
        post_tied_gradients(s, last);
        if (s->chunks == 1) spend_phase(last, BT_PH_COMM_EXPOSED, s->tied_at - last->now);
    } else if (s->chunks > 1) {
        spend_phase(last, BT_PH_COMM_EXPOSED, s->w->tied_s);
        s->tied_at = last->now + s->w->flight_s;
    }
}

static void simulate_backward(simulator *s, int d, int k, const simulated_pass *x) {
    simulated_rank *r = rank_at(s, d, k);
    const bt_stage_work *work = x->work;
    const bool ties = x->final && s->w->tied_s > 0 && s->w->pp > 1;
    if (!x->ends) simulate_receive(s, r, *message_at(s->up, s, x->at, x->pass.micro));
    if (ties && x->begins) simulate_tied_embedding(s, d);
    double begin = r->now;
    spend_phase(r, BT_PH_BWD, work->bwd_s * straggler_factor(s, d, k) * crowded_slow_down(s));
    spend_phase(r, BT_PH_COMM_EXPOSED, work->bwd_comm_s * crowded_slow_down(s));
    synchronise_group(s, r, work->bwd_tp_wait_s);
    if (x->final) *final_pass_of(s, d, k, x->pass.chunk) = (final_pass){r->now, r->now - begin};
    if (!x->begins) simulate_send(s, r, message_at(s->up, s, x->at - 1, x->pass.micro));
    if (ties && x->ends) send_tied(s, r);
}

/* Executes the next pass of a stage. Returns false if its input has not arrived or no pass is left. */
static bool advance_stage(simulator *s, int d, int k) {
    simulated_rank *r = rank_at(s, d, k);
    simulated_pass x;
    if (!next_pass(s, r, k, &x)) return false;
    const bool waits = x.pass.backward ? !x.ends : !x.begins;
    double *in = x.pass.backward ? s->up : s->down;
    if (waits && *message_at(in, s, x.at, x.pass.micro) < 0) return false;
    if (x.pass.backward)
        simulate_backward(s, d, k, &x);
    else
        simulate_forward(s, d, k, &x);
    r->done++;
    return true;
}

static void simulate_pipeline(simulator *s, int d) {
    size_t n = (size_t)s->chunks * (size_t)s->w->pp * (size_t)s->w->micros;
    for (size_t i = 0; i < n; i++) s->down[i] = s->up[i] = -1;
    s->tied_at = -1;
    for (int k = 0; k < s->w->pp; k++) {
        simulated_rank *r = rank_at(s, d, k);
        spend_phase(r, BT_PH_DATA, s->w->data_s);
        spend_phase(r, BT_PH_BWD,
                    s->w->stage[k].begin_s * straggler_factor(s, d, k) * crowded_slow_down(s));
        r->began = r->now;
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < s->w->pp; k++)
            while (advance_stage(s, d, k)) moved = true;
    }
}

/* Returns the time at which a bucket of gradients is complete. Gradients complete evenly over the last backward pass;
 * with several chunks over the last backward pass of each chunk, the last chunk first. */
static double bucket_complete_s(const simulator *s, int d, int k, int64_t bucket, int64_t n) {
    const simulated_rank *r = rank_at(s, d, k);
    const double made = (double)(bucket + 1) / (double)n * s->chunks;
    const int passed = (int)fmin(ceil(made), s->chunks) - 1, chunk = s->chunks - 1 - passed;
    const final_pass *f = final_pass_of(s, d, k, chunk);
    double left = s->w->overlap ? 1 + passed - made : 0;
    return (chunk == 0 || !s->w->overlap ? r->now : f->end) - f->took_s * left;
}

/* Returns the time at which the last bucket of a stage has arrived at all its data-parallel ranks. */
static double exchange_stage(simulator *s, int k) {
    const bt_stage_work *work = &s->w->stage[k];
    double sent = 0, arrived[BT_STRIPES_IN_FLIGHT] = {0}, end = 0;
    for (int64_t b = 0; b < work->buckets; b++) {
        double start = fmax(sent, arrived[b % BT_STRIPES_IN_FLIGHT]);
        for (int d = 0; d < s->w->dp; d++)
            start = fmax(start, bucket_complete_s(s, d, k, b, work->buckets));
        sent = start + work->bucket_wire_s;
        end = arrived[b % BT_STRIPES_IN_FLIGHT] = sent + work->bucket_latency_s;
    }
    return end;
}

static double simulate_exchange(simulator *s) {
    double exposed = 0;
    for (int k = 0; k < s->w->pp; k++) {
        const bt_stage_work *work = &s->w->stage[k];
        double end = exchange_stage(s, k), latest = 0;
        for (int d = 0; d < s->w->dp; d++) latest = fmax(latest, rank_at(s, d, k)->now);
        for (int d = 0; d < s->w->dp && work->buckets > 0; d++) {
            simulated_rank *r = rank_at(s, d, k);
            double each = work->bucket_cpu_s * crowded_slow_down(s),
                   cpu = each * (double)work->buckets, meanwhile = s->w->overlap ? cpu - each : 0;
            spend_phase(r, BT_PH_BWD, meanwhile);
            advance_clock_to(r, latest + meanwhile);
            spend_phase(r, BT_PH_COMM_EXPOSED, fmax(0, end - latest) + cpu - meanwhile);
            exposed += fmax(0, end - latest) + cpu;
        }
    }
    return exposed / ((double)s->w->pp * s->w->dp);
}

static double latest_rank_time(const simulator *s) {
    double latest = 0;
    for (int i = 0; i < s->w->pp * s->w->dp; i++) latest = fmax(latest, s->ranks[i].now);
    return latest;
}

static void synchronise_all(simulator *s, double then) {
    for (int i = 0; i < s->w->pp * s->w->dp; i++) advance_clock_to(&s->ranks[i], then);
}

static void simulate_update(simulator *s) {
    for (int d = 0; d < s->w->dp; d++) {
        for (int k = 0; k < s->w->pp; k++) {
            simulated_rank *r = rank_at(s, d, k);
            bool ends = s->w->pp > 1 && (k == 0 || k == s->w->pp - 1);
            spend_phase(r, BT_PH_OPTIM,
                        s->w->stage[k].optim_s * straggler_factor(s, d, k) * crowded_slow_down(s));
            spend_phase(r, BT_PH_COMM_EXPOSED, s->w->stage[k].optim_comm_s * crowded_slow_down(s));
            if (ends)
                spend_phase(r, BT_PH_COMM_EXPOSED,
                            s->w->tied_back_s * (s->w->tied_wired ? 1 : crowded_slow_down(s)));
            spend_phase(r, BT_PH_MONITOR, s->w->monitor_s * crowded_slow_down(s));
            spend_phase(r, BT_PH_CKPT, s->w->ckpt_s);
        }
    }
}

static double bubble_fraction(const simulator *s) {
    double waited = 0, all = 0;
    for (int i = 0; i < s->w->pp * s->w->dp; i++)
        waited += s->ranks[i].phase[BT_PH_WAIT] - s->ranks[i].tp_wait_s;
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

static void sum_simulated_ranks(const simulator *s, bt_step_time *out) {
    int n = s->w->pp * s->w->dp;
    for (int i = 0; i < n; i++)
        for (int p = 0; p < BT_PHASE_COUNT; p++) out->phase_s[p] += s->ranks[i].phase[p] / n;
}

static void average_processor_time(const bt_step_simulation *w, int chunks,
                                   double out[BT_PHASE_COUNT]) {
    double m = (double)w->micros;
    const int stages = w->pp * chunks;
    for (int k = 0; k < stages; k++) {
        const bt_stage_work *x = &w->stage[k];
        const double copies = (w->pp > 1 ? k > 0 && k < stages - 1 ? 4 : 2 : 0) * m * w->copy_s;
        out[BT_PH_FWD] += m * x->fwd_s / w->pp;
        out[BT_PH_BWD] += m * x->bwd_s / w->pp;
        out[BT_PH_COMM_EXPOSED] += (m * (x->fwd_comm_s + x->bwd_comm_s) + copies) / w->pp;
    }
    for (int k = 0; k < w->pp; k++) {
        const bt_stage_work *x = &w->stage[k];
        double n = (double)x->buckets,
               meanwhile = w->overlap && n > 0 ? (n - 1) * x->bucket_cpu_s : 0,
               tied = w->pp > 1 && !w->tied_wired && (k == 0 || k == w->pp - 1)
                          ? w->tied_s + w->tied_back_s
                          : 0;
        out[BT_PH_BWD] += (x->begin_s + meanwhile) / w->pp;
        out[BT_PH_COMM_EXPOSED] += (n * x->bucket_cpu_s - meanwhile + x->optim_comm_s + tied) /
                                   w->pp;
        out[BT_PH_OPTIM] += x->optim_s / w->pp;
    }
    out[BT_PH_DATA] = w->data_s;
    out[BT_PH_MONITOR] = w->monitor_s;
}

bt_code bt_simulate_step(const bt_step_simulation *w, bt_step_time *out, bt_err *err) {
    const int chunks = w->pp > 1 && w->chunks > 1 ? w->chunks : 1;
    size_t ranks = (size_t)w->pp * (size_t)w->dp,
           messages = (size_t)w->pp * (size_t)chunks * (size_t)w->micros;
    simulator s = {.w = w,
                   .chunks = chunks,
                   .ranks = calloc(ranks, sizeof *s.ranks),
                   .finals = calloc(ranks * (size_t)chunks, sizeof *s.finals),
                   .down = malloc(messages * sizeof *s.down),
                   .up = malloc(messages * sizeof *s.up)};
    *out = (bt_step_time){0};
    bt_code code = BT_OK;
    if (s.ranks && s.finals && s.down && s.up) {
        for (int d = 0; d < w->dp; d++) simulate_pipeline(&s, d);
        out->bubble_frac = bubble_fraction(&s);
        out->exchange_s = simulate_exchange(&s);
        synchronise_all(&s, latest_rank_time(&s));
        for (size_t i = 0; i < ranks; i++) spend_phase(&s.ranks[i], BT_PH_COMM_EXPOSED, w->agree_s);
        simulate_update(&s);
        out->step_s = latest_rank_time(&s);
        synchronise_all(&s, out->step_s);
        sum_simulated_ranks(&s, out);
        average_processor_time(w, chunks, out->processor_s);
    } else {
        code = bt_fail(err, BT_NOMEM,
                       "cannot allocate memory to simulate %zu ranks and %lld micro-batches", ranks,
                       (long long)w->micros);
    }
    free(s.ranks);
    free(s.finals);
    free(s.down);
    free(s.up);
    return code;
}
