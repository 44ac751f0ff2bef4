/* shared_cores.c - simulates the passes of a pipeline whose ranks have more threads than there are cores. A rank's
 * speed depends on the number of ranks that compute at that moment, so the simulation advances from event to event.
 *
 * A waiting rank yields its core but does not sleep, so it remains a task of that core, and the kernel moves no
 * computing rank from a shared core to it. All cores therefore have equal numbers of tasks, in random order, and a
 * computing rank shares its core with the other computing ranks there: for n ranks on c cores, a of which compute, with
 * (n/c - 1) (a - 1) / (n - 1) of them on average.
 * If ranks are bound, rank r to core r % c, the sharing is exact: a stage is as slow as its rank on the core with most
 * computing ranks. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "engine/plan/step_simulator/simulator_state.h"

typedef enum { RECEIVE, WORK, SEND, SEND_TABLE, TIE } op_kind;

typedef struct op {
    op_kind kind;
    bt_phase phase;  /* phase to which its time is added */
    double seconds;  /* WORK: processor time, which shared cores lengthen */
    double *message; /* RECEIVE, SEND */
} op;

enum { OPS_MOST = 16 };

typedef struct runner { /* one stage */
    bt_simulated_rank *rank;
    op ops[OPS_MOST]; /* operations of the current pass, or of a forward and a backward pass */
    int n, at;
    double left; /* rest of the current WORK */
    bool came;   /* has reached the exchange of the tied embedding's gradients */
    double bwd_began;
    int final; /* chunk of the current pass if it is the last micro-batch's backward pass, else -1 */
} runner;

typedef struct shared {
    bt_simulator_state *s;
    int d;
    runner *runs;
    bool *works;   /* (pp) stages that compute at this moment */
    double *crowd; /* (pp) their slow-down */
} shared;

/* number of the ranks 0 .. n - 1 that are bound to this core */
static int bound_before(int n, int core, int cores) {
    return n > core ? (n - core + cores - 1) / cores : 0;
}

static double bound_crowding(const bt_step_simulation *w, const bool *works, int k) {
    const int each = w->ranks / w->pp, c = w->cores;
    int most = 1;
    for (int j = 0; j < each && j < c; j++) {
        int here = 0;
        for (int i = 0; i < w->pp; i++)
            if (works[i])
                here += bound_before((i + 1) * each, (k * each + j) % c, c) -
                        bound_before(i * each, (k * each + j) % c, c);
        if (here > most) most = here;
    }
    return most;
}

double bt_simulated_crowding(const bt_step_simulation *w, const bool *works, int k) {
    if (!(w->crowd > 1)) return 1;
    if (w->cores > 0 && w->ranks >= w->pp) return bound_crowding(w, works, k);
    int active = 0;
    for (int i = 0; i < w->pp; i++) active += works[i];
    double ranks = w->ranks > w->pp ? w->ranks : w->pp, computing = active * ranks / w->pp;
    return ranks > 1 ? 1 + (w->crowd - 1) * (computing - 1) / (ranks - 1) : w->crowd;
}

static void put_op(runner *r, op o) {
    assert(r->n < OPS_MOST);
    r->ops[r->n++] = o;
}

static void put_receive(const shared *x, runner *r, double *message) {
    put_op(r, (op){.kind = RECEIVE, .phase = BT_PH_WAIT, .message = message});
    put_op(r, (op){.kind = WORK, .phase = BT_PH_COMM_EXPOSED, .seconds = x->s->w->copy_s});
}

static void put_send(const shared *x, runner *r, double *message) {
    put_op(r, (op){.kind = WORK, .phase = BT_PH_COMM_EXPOSED, .seconds = x->s->w->copy_s});
    put_op(r, (op){.kind = SEND, .message = message});
}

static void put_compute(const shared *x, runner *r, int k, const bt_simulated_pass *p) {
    const bt_stage_work *work = p->work;
    const bool forward = !p->pass.backward;
    put_op(r, (op){.kind = WORK,
                   .phase = forward ? BT_PH_FWD : BT_PH_BWD,
                   .seconds = (forward ? work->fwd_s : work->bwd_s) *
                              bt_simulated_slow_down(x->s, x->d, k)});
    put_op(r, (op){.kind = WORK,
                   .phase = BT_PH_COMM_EXPOSED,
                   .seconds = forward ? work->fwd_comm_s : work->bwd_comm_s});
    put_op(r, (op){.kind = WORK,
                   .phase = BT_PH_WAIT,
                   .seconds = forward ? work->fwd_tp_wait_s : work->bwd_tp_wait_s});
}

static void put_forward(const shared *x, runner *r, int k, const bt_simulated_pass *p) {
    bt_simulator_state *s = x->s;
    if (!p->begins) put_receive(x, r, bt_simulated_message(s->down, s, p->at, p->pass.micro));
    put_compute(x, r, k, p);
    if (!p->ends) put_send(x, r, bt_simulated_message(s->down, s, p->at + 1, p->pass.micro));
}

/* same as tie and send_tied of step_simulator.c */
static void put_tie(const shared *x, runner *r, bool first) {
    const bt_step_simulation *w = x->s->w;
    const bool meet = !w->tied_wired && x->s->chunks == 1;
    const op copy = {.kind = WORK, .phase = BT_PH_COMM_EXPOSED, .seconds = w->tied_s};
    if (meet) put_op(r, (op){.kind = TIE, .phase = BT_PH_WAIT});
    if (!meet && first)
        put_op(r, (op){.kind = RECEIVE, .phase = BT_PH_WAIT, .message = &x->s->tied_at});
    if (!w->tied_wired) put_op(r, copy);
    if (meet || first) return;
    put_op(r, (op){.kind = w->tied_wired ? SEND_TABLE : SEND, .message = &x->s->tied_at});
    if (x->s->chunks == 1)
        put_op(r, (op){.kind = RECEIVE, .phase = BT_PH_COMM_EXPOSED, .message = &x->s->tied_at});
}

static void put_backward(const shared *x, runner *r, int k, const bt_simulated_pass *p) {
    bt_simulator_state *s = x->s;
    const bool ties = p->final && s->w->tied_s > 0 && s->w->pp > 1;
    r->final = p->final ? p->pass.chunk : -1;
    if (!p->ends) put_receive(x, r, bt_simulated_message(s->up, s, p->at, p->pass.micro));
    if (ties && p->begins) put_tie(x, r, true);
    put_compute(x, r, k, p);
    if (!p->begins) put_send(x, r, bt_simulated_message(s->up, s, p->at - 1, p->pass.micro));
    if (ties && p->ends) put_tie(x, r, false);
}

/* Queues the operations of the next pass; for the last virtual stage of a forward and a backward pass. */
static void next_pass(const shared *x, int k) {
    runner *r = &x->runs[k];
    bt_simulated_pass p;
    r->n = r->at = 0;
    r->final = -1;
    if (!bt_simulated_next(x->s, r->rank, k, &p)) return;
    r->rank->done++;
    if (!p.pass.backward) {
        put_forward(x, r, k, &p);
        if (!p.ends || !bt_simulated_next(x->s, r->rank, k, &p)) return;
        r->rank->done++;
    }
    put_backward(x, r, k, &p);
}

static bool is_runner_done(const runner *r) { return r->at == r->n; }

static void begin_op(const shared *x, int k) {
    runner *r = &x->runs[k];
    if (is_runner_done(r)) next_pass(x, k);
    if (is_runner_done(r)) return;
    const op *o = &r->ops[r->at];
    r->left = o->kind == WORK ? o->seconds : 0;
    if (o->kind == WORK && o->phase == BT_PH_BWD) r->bwd_began = r->rank->now;
}

static bool both_came(const shared *x) { return x->runs[0].came && x->runs[x->s->w->pp - 1].came; }

/* true if the operation needs no further time */
static bool is_op_over(const shared *x, runner *r) {
    const op *o = &r->ops[r->at];
    switch (o->kind) {
    case RECEIVE: return *o->message >= 0 && *o->message <= r->rank->now;
    case WORK: return !(r->left > 0);
    case SEND: bt_simulated_post(x->s, r->rank, o->message); return true;
    case SEND_TABLE: bt_simulated_post_table(x->s, r->rank); return true;
    case TIE: r->came = true; return both_came(x);
    }
    return false;
}

static void execute_due_events(const shared *x) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < x->s->w->pp; k++) {
            runner *r = &x->runs[k];
            while (!is_runner_done(r) && is_op_over(x, r)) {
                const op *o = &r->ops[r->at];
                if (o->kind == WORK && o->phase != BT_PH_FWD && r->final >= 0 && r->bwd_began >= 0)
                    *bt_simulated_final(x->s, x->d, k, r->final) =
                        (bt_final_pass){r->rank->now, r->rank->now - r->bwd_began};
                r->at++;
                begin_op(x, k);
                moved = true;
            }
        }
    }
}

static double until_event(const shared *x) {
    double next = INFINITY;
    for (int k = 0; k < x->s->w->pp; k++) {
        const runner *r = &x->runs[k];
        if (is_runner_done(r)) continue;
        const op *o = &r->ops[r->at];
        if (o->kind == WORK) next = fmin(next, r->left * x->crowd[k]);
        if (o->kind == RECEIVE && *o->message >= 0) next = fmin(next, *o->message - r->rank->now);
    }
    return next;
}

static void pass_time(const shared *x, double seconds) {
    for (int k = 0; k < x->s->w->pp; k++) {
        runner *r = &x->runs[k];
        if (is_runner_done(r)) continue;
        const op *o = &r->ops[r->at];
        r->rank->phase[o->phase] += seconds;
        r->rank->now += seconds;
        if (o->kind == WORK && o->phase == BT_PH_WAIT) r->rank->tp_wait_s += seconds;
        /* avoid a remainder from rounding */
        if (o->kind == WORK)
            r->left = r->left * x->crowd[k] <= seconds * (1 + 1e-12)
                          ? 0
                          : r->left - seconds / x->crowd[k];
        else if (o->kind == RECEIVE && *o->message >= 0 &&
                 *o->message - r->rank->now < 1e-12 * r->rank->now)
            r->rank->now = fmax(r->rank->now, *o->message);
    }
}

static void update_core_shares(const shared *x) {
    for (int k = 0; k < x->s->w->pp; k++)
        x->works[k] = !is_runner_done(&x->runs[k]) && x->runs[k].ops[x->runs[k].at].kind == WORK;
    for (int k = 0; k < x->s->w->pp; k++) x->crowd[k] = bt_simulated_crowding(x->s->w, x->works, k);
}

static void advance_to_next_event(const shared *x) {
    for (;;) {
        execute_due_events(x);
        update_core_shares(x);
        double next = until_event(x);
        if (!isfinite(next)) return;
        pass_time(x, next);
    }
}

static void release_runners(shared *x) {
    free(x->runs);
    free(x->works);
    free(x->crowd);
}

bt_code bt_simulate_shared_pipeline(bt_simulator_state *s, int d, bt_err *err) {
    const size_t n = (size_t)s->w->pp;
    shared x = {.s = s,
                .d = d,
                .runs = calloc(n, sizeof *x.runs),
                .works = calloc(n, sizeof *x.works),
                .crowd = calloc(n, sizeof *x.crowd)};
    if (!x.runs || !x.works || !x.crowd) {
        release_runners(&x);
        return bt_fail(err, BT_NOMEM, "no memory to simulate %d stages", s->w->pp);
    }
    /* All start at the same time, because the work before had every core busy. */
    double began = 0;
    for (int k = 0; k < s->w->pp; k++) began = fmax(began, bt_simulated_rank_at(s, d, k)->now);
    for (int k = 0; k < s->w->pp; k++) {
        x.runs[k] = (runner){.rank = bt_simulated_rank_at(s, d, k), .bwd_began = -1, .final = -1};
        bt_simulated_rank *r = x.runs[k].rank;
        r->phase[BT_PH_WAIT] += began - r->now;
        r->now = began;
        begin_op(&x, k);
    }
    advance_to_next_event(&x);
    release_runners(&x);
    return BT_OK;
}
