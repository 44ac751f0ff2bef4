/* step_simulator.c - simulates the events of a step in causal order. */
#include "engine/plan/step_simulator/simulator_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/reducer.h"

static void spend_phase(bt_simulated_rank *r, bt_phase phase, double seconds) {
    r->phase[phase] += seconds;
    r->now += seconds;
}

/* slow-down while every rank computes */
static double all_at_work(const bt_simulator_state *s) { return s->w->crowd > 1 ? s->w->crowd : 1; }

static void advance_clock_to(bt_simulated_rank *r, double then) {
    if (then > r->now) spend_phase(r, BT_PH_WAIT, then - r->now);
}

static void receive_at(const bt_simulator_state *s, bt_simulated_rank *r, double there) {
    advance_clock_to(r, there);
    spend_phase(r, BT_PH_COMM_EXPOSED, s->w->copy_s * all_at_work(s));
}

static void send_at(bt_simulator_state *s, bt_simulated_rank *r, double *there) {
    spend_phase(r, BT_PH_COMM_EXPOSED, s->w->copy_s * all_at_work(s));
    bt_simulated_post(s, r, there);
}

/* waiting for the slowest rank of a tensor-parallel group */
static void synchronise_group(const bt_simulator_state *s, bt_simulated_rank *r, double seconds) {
    spend_phase(r, BT_PH_WAIT, seconds * all_at_work(s));
    r->tp_wait_s += seconds * all_at_work(s);
}

static void simulate_forward(bt_simulator_state *s, int d, int k, const bt_simulated_pass *x) {
    bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
    const bt_stage_work *work = x->work;
    if (!x->begins) receive_at(s, r, *bt_simulated_message(s->down, s, x->at, x->pass.micro));
    spend_phase(r, BT_PH_FWD, work->fwd_s * bt_simulated_slow_down(s, d, k) * all_at_work(s));
    spend_phase(r, BT_PH_COMM_EXPOSED, work->fwd_comm_s * all_at_work(s));
    synchronise_group(s, r, work->fwd_tp_wait_s);
    if (!x->ends) send_at(s, r, bt_simulated_message(s->down, s, x->at + 1, x->pass.micro));
}

/* Receives the gradients of a tied embedding at the first stage. Between hosts they travel while the first stage
 * computes. Within a host, ranks copy them; with one chunk a stage, the last stage blocks in its send until the
 * first receives. */
static void simulate_tied_embedding(bt_simulator_state *s, int d) {
    bt_simulated_rank *first = bt_simulated_rank_at(s, d, 0),
                      *last = bt_simulated_rank_at(s, d, s->w->pp - 1);
    const bool copied = !s->w->tied_wired, meet = copied && s->chunks == 1;
    advance_clock_to(first, meet ? last->now : s->tied_at);
    if (meet) advance_clock_to(last, first->now);
    if (copied) spend_phase(first, BT_PH_COMM_EXPOSED, s->w->tied_s);
    if (meet) spend_phase(last, BT_PH_COMM_EXPOSED, s->w->tied_s);
}

/* Sends the gradients from the last stage unless it blocks (see tie); with one chunk it has nothing else to do. */
static void send_tied(bt_simulator_state *s, bt_simulated_rank *last) {
    if (s->w->tied_wired) {
        bt_simulated_post_table(s, last);
        if (s->chunks == 1) spend_phase(last, BT_PH_COMM_EXPOSED, s->tied_at - last->now);
    } else if (s->chunks > 1) {
        spend_phase(last, BT_PH_COMM_EXPOSED, s->w->tied_s);
        s->tied_at = last->now + s->w->flight_s;
    }
}

static void simulate_backward(bt_simulator_state *s, int d, int k, const bt_simulated_pass *x) {
    bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
    const bt_stage_work *work = x->work;
    const bool ties = x->final && s->w->tied_s > 0 && s->w->pp > 1;
    if (!x->ends) receive_at(s, r, *bt_simulated_message(s->up, s, x->at, x->pass.micro));
    if (ties && x->begins) simulate_tied_embedding(s, d);
    double begin = r->now;
    spend_phase(r, BT_PH_BWD, work->bwd_s * bt_simulated_slow_down(s, d, k) * all_at_work(s));
    spend_phase(r, BT_PH_COMM_EXPOSED, work->bwd_comm_s * all_at_work(s));
    synchronise_group(s, r, work->bwd_tp_wait_s);
    if (x->final)
        *bt_simulated_final(s, d, k, x->pass.chunk) = (bt_final_pass){r->now, r->now - begin};
    if (!x->begins) send_at(s, r, bt_simulated_message(s->up, s, x->at - 1, x->pass.micro));
    if (ties && x->ends) send_tied(s, r);
}

/* Executes the next pass of a stage if its input is known. Returns false if it is not, or if no pass is left. */
static bool advance_stage(bt_simulator_state *s, int d, int k) {
    bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
    bt_simulated_pass x;
    if (!bt_simulated_next(s, r, k, &x)) return false;
    const bool waits = x.pass.backward ? !x.ends : !x.begins;
    double *in = x.pass.backward ? s->up : s->down;
    if (waits && *bt_simulated_message(in, s, x.at, x.pass.micro) < 0) return false;
    if (x.pass.backward)
        simulate_backward(s, d, k, &x);
    else
        simulate_forward(s, d, k, &x);
    r->done++;
    return true;
}

static bt_code simulate_pipeline(bt_simulator_state *s, int d, bt_err *err) {
    size_t n = (size_t)s->chunks * (size_t)s->w->pp * (size_t)s->w->micros;
    for (size_t i = 0; i < n; i++) s->down[i] = s->up[i] = -1;
    s->tied_at = -1;
    for (int k = 0; k < s->w->pp; k++) {
        bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
        spend_phase(r, BT_PH_DATA, s->w->data_s);
        spend_phase(r, BT_PH_BWD,
                    s->w->stage[k].begin_s * bt_simulated_slow_down(s, d, k) * all_at_work(s));
        r->began = r->now;
    }
    if (s->w->crowd > 1 && s->w->pp > 1) return bt_simulate_shared_pipeline(s, d, err);
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < s->w->pp; k++)
            while (advance_stage(s, d, k)) moved = true;
    }
    return BT_OK;
}

/* Gradients complete evenly over the last backward pass; with several chunks over the last one of each chunk,
 * beginning with the last chunk. */
static double ready_at(const bt_simulator_state *s, int d, int k, int64_t bucket, int64_t n) {
    const bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
    const double made = (double)(bucket + 1) / (double)n * s->chunks;
    const int passed = (int)fmin(ceil(made), s->chunks) - 1, chunk = s->chunks - 1 - passed;
    const bt_final_pass *f = bt_simulated_final(s, d, k, chunk);
    double left = s->w->overlap ? 1 + passed - made : 0;
    return (chunk == 0 || !s->w->overlap ? r->now : f->end) - f->took_s * left;
}

/* arrival time of a stage's last bucket at all its data-parallel ranks */
static double exchange_stage(bt_simulator_state *s, int k) {
    const bt_stage_work *work = &s->w->stage[k];
    double sent = 0, arrived[BT_STRIPES_IN_FLIGHT] = {0}, end = 0;
    for (int64_t b = 0; b < work->buckets; b++) {
        double start = fmax(sent, arrived[b % BT_STRIPES_IN_FLIGHT]);
        for (int d = 0; d < s->w->dp; d++) start = fmax(start, ready_at(s, d, k, b, work->buckets));
        sent = start + work->bucket_wire_s;
        end = arrived[b % BT_STRIPES_IN_FLIGHT] = sent + work->bucket_latency_s;
    }
    return end;
}

static double simulate_exchange(bt_simulator_state *s) {
    double exposed = 0;
    for (int k = 0; k < s->w->pp; k++) {
        const bt_stage_work *work = &s->w->stage[k];
        double end = exchange_stage(s, k), latest = 0;
        for (int d = 0; d < s->w->dp; d++)
            latest = fmax(latest, bt_simulated_rank_at(s, d, k)->now);
        for (int d = 0; d < s->w->dp && work->buckets > 0; d++) {
            bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
            double each = work->bucket_cpu_s * all_at_work(s), cpu = each * (double)work->buckets,
                   meanwhile = s->w->overlap ? cpu - each : 0;
            spend_phase(r, BT_PH_BWD, meanwhile);
            advance_clock_to(r, latest + meanwhile);
            spend_phase(r, BT_PH_COMM_EXPOSED, fmax(0, end - latest) + cpu - meanwhile);
            exposed += fmax(0, end - latest) + cpu;
        }
    }
    return exposed / ((double)s->w->pp * s->w->dp);
}

static double latest_of(const bt_simulator_state *s) {
    double latest = 0;
    for (int i = 0; i < s->w->pp * s->w->dp; i++) latest = fmax(latest, s->ranks[i].now);
    return latest;
}

static void synchronise_all(bt_simulator_state *s, double then) {
    for (int i = 0; i < s->w->pp * s->w->dp; i++) advance_clock_to(&s->ranks[i], then);
}

static void simulate_update(bt_simulator_state *s) {
    for (int d = 0; d < s->w->dp; d++) {
        for (int k = 0; k < s->w->pp; k++) {
            bt_simulated_rank *r = bt_simulated_rank_at(s, d, k);
            bool ends = s->w->pp > 1 && (k == 0 || k == s->w->pp - 1);
            spend_phase(r, BT_PH_OPTIM,
                        s->w->stage[k].optim_s * bt_simulated_slow_down(s, d, k) * all_at_work(s));
            spend_phase(r, BT_PH_COMM_EXPOSED, s->w->stage[k].optim_comm_s * all_at_work(s));
            if (ends)
                spend_phase(r, BT_PH_COMM_EXPOSED,
                            s->w->tied_back_s * (s->w->tied_wired ? 1 : all_at_work(s)));
            spend_phase(r, BT_PH_MONITOR, s->w->monitor_s * all_at_work(s));
            spend_phase(r, BT_PH_CKPT, s->w->ckpt_s);
        }
    }
}

static double bubble(const bt_simulator_state *s) {
    double waited = 0, all = 0;
    for (int i = 0; i < s->w->pp * s->w->dp; i++)
        waited += s->ranks[i].phase[BT_PH_WAIT] - s->ranks[i].tp_wait_s;
    for (int d = 0; d < s->w->dp; d++) {
        double begin = INFINITY, end = 0;
        for (int k = 0; k < s->w->pp; k++) {
            begin = fmin(begin, bt_simulated_rank_at(s, d, k)->began);
            end = fmax(end, bt_simulated_rank_at(s, d, k)->now);
        }
        for (int k = 0; k < s->w->pp; k++) {
            all += end - begin;
            waited += end - bt_simulated_rank_at(s, d, k)->now;
        }
    }
    return all > 0 ? waited / all : 0;
}

static void sum_simulated_ranks(const bt_simulator_state *s, bt_step_time *out) {
    int n = s->w->pp * s->w->dp;
    for (int i = 0; i < n; i++)
        for (int p = 0; p < BT_PHASE_COUNT; p++) out->phase_s[p] += s->ranks[i].phase[p] / n;
}

static void sum_up_processor(const bt_step_simulation *w, int chunks, double out[BT_PHASE_COUNT]) {
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
    bt_simulator_state s = {.w = w,
                            .chunks = chunks,
                            .ranks = calloc(ranks, sizeof *s.ranks),
                            .finals = calloc(ranks * (size_t)chunks, sizeof *s.finals),
                            .down = malloc(messages * sizeof *s.down),
                            .up = malloc(messages * sizeof *s.up)};
    *out = (bt_step_time){0};
    bt_code code = BT_OK;
    if (s.ranks && s.finals && s.down && s.up) {
        for (int d = 0; code == BT_OK && d < w->dp; d++) code = simulate_pipeline(&s, d, err);
        out->bubble_frac = bubble(&s);
        out->exchange_s = simulate_exchange(&s);
        synchronise_all(&s, latest_of(&s));
        for (size_t i = 0; i < ranks; i++) spend_phase(&s.ranks[i], BT_PH_COMM_EXPOSED, w->agree_s);
        simulate_update(&s);
        out->step_s = latest_of(&s);
        synchronise_all(&s, out->step_s);
        sum_simulated_ranks(&s, out);
        sum_up_processor(w, chunks, out->processor_s);
    } else {
        code = bt_fail(err, BT_NOMEM, "no memory to simulate %zu ranks and %lld micro-batches",
                       ranks, (long long)w->micros);
    }
    free(s.ranks);
    free(s.finals);
    free(s.down);
    free(s.up);
    return code;
}
