/* simulator_state.h - state shared by the two simulations of a pipeline: step_simulator.c (every rank has its own
 * cores) and shared_cores.c (ranks share cores). Private to engine/plan/step_simulator. */
#ifndef BT_ENGINE_PLAN_STEP_SIMULATOR_SIMULATOR_STATE_H
#define BT_ENGINE_PLAN_STEP_SIMULATOR_SIMULATOR_STATE_H

#include "engine/parallel/schedule/pass_order.h"
#include "engine/plan/step_simulator/step_simulator.h"

typedef struct bt_simulated_rank {
    double now;
    double phase[BT_PHASE_COUNT];
    double began;
    double tp_wait_s; /* part of WAIT spent waiting for the tensor-parallel group */
    /* when the link to other hosts has sent all posted messages; when it has sent the tied embedding's gradients
     * (several chunks, last stage) */
    double link_free, table_sent;
    int64_t done; /* passes of pass_order.h */
} bt_simulated_rank;

typedef struct bt_final_pass { /* the last micro-batch's backward pass through a chunk */
    double end, took_s;
} bt_final_pass;

typedef struct bt_simulator_state {
    const bt_step_simulation *w;
    bt_simulated_rank *ranks; /* (dp, pp) */
    int chunks;
    bt_final_pass *finals; /* (dp, pp, chunks) */
    /* (chunks, pp, micros) arrival times of the micro-batches' inputs at the virtual stages of the simulated replica;
     * < 0 until known */
    double *down, *up;
    /* several chunks: arrival time of the head's gradients of a tied embedding; < 0 until known */
    double tied_at;
} bt_simulator_state;

/* the next pass of a stage */
typedef struct bt_simulated_pass {
    bt_pass pass;
    int at; /* virtual stage */
    const bt_stage_work *work;
    bool begins, ends; /* the first, the last virtual stage */
    bool final;        /* the last micro-batch's backward pass */
} bt_simulated_pass;

static inline bt_simulated_rank *bt_simulated_rank_at(const bt_simulator_state *s, int d,
                                                      int stage) {
    return &s->ranks[(size_t)d * (size_t)s->w->pp + (size_t)stage];
}

/* straggler factor of a rank's computing, >= 1 */
static inline double bt_simulated_slow_down(const bt_simulator_state *s, int d, int stage) {
    return s->w->slow ? s->w->slow[(size_t)d * (size_t)s->w->pp + (size_t)stage] : 1;
}

static inline bt_final_pass *bt_simulated_final(const bt_simulator_state *s, int d, int stage,
                                                int chunk) {
    return &s->finals[((size_t)d * (size_t)s->w->pp + (size_t)stage) * (size_t)s->chunks +
                      (size_t)chunk];
}

/* entry of (virtual stage, micro-batch i) in `down` or `up` */
static inline double *bt_simulated_message(double *at, const bt_simulator_state *s, int stage,
                                           int64_t i) {
    return &at[(size_t)stage * (size_t)s->w->micros + (size_t)i];
}

/* Returns false if the stage has finished all its passes. */
bool bt_simulated_next(const bt_simulator_state *s, const bt_simulated_rank *r, int stage,
                       bt_simulated_pass *out);

/* Posts a message of rank r and stores its arrival time in *there. A link between hosts sends one message after
 * another. */
void bt_simulated_post(bt_simulator_state *s, bt_simulated_rank *r, double *there);
/* Posts the tied embedding's gradients, which cross a network. */
void bt_simulated_post_table(bt_simulator_state *s, bt_simulated_rank *r);
/* Slow-down of the ranks of stage k while the ranks of all stages i with works[i] compute. */
double bt_simulated_crowding(const bt_step_simulation *w, const bool *works, int k);
/* Simulates the passes of replica d from its ranks' present times. All entries of `down` and `up` are unknown at the
 * start. */
bt_code bt_simulate_shared_pipeline(bt_simulator_state *s, int d, bt_err *err) BT_MUST_CHECK;

#endif
