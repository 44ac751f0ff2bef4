/* walk_state.h - state shared by the two simulations of a pipeline: walk.c (every rank has its own cores) and
 * walk_shared.c (ranks share cores). Private to engine/plan/walk. */
#ifndef BT_ENGINE_PLAN_WALK_WALK_STATE_H
#define BT_ENGINE_PLAN_WALK_WALK_STATE_H

#include "engine/parallel/schedule/pass_order.h"
#include "engine/plan/walk/walk.h"

typedef struct bt_walker { /* one rank */
    double now;
    double phase[BT_PHASE_COUNT];
    double began;
    double met; /* part of WAIT spent waiting for the tensor-parallel group */
    /* when the link to other hosts has sent all posted messages; when it has sent the tied embedding's gradients
     * (several chunks, last stage) */
    double link_free, table_sent;
    int64_t done; /* passes of pass_order.h */
} bt_walker;

typedef struct bt_final_pass { /* the last micro-batch's backward pass through a chunk */
    double end, took_s;
} bt_final_pass;

typedef struct bt_walk_state {
    const bt_walk *w;
    bt_walker *ranks; /* (dp, pp) */
    int chunks;
    bt_final_pass *finals; /* (dp, pp, chunks) */
    /* (chunks, pp, micros) arrival times of the micro-batches' inputs at the virtual stages of the simulated replica;
     * < 0 until known */
    double *down, *up;
    /* several chunks: arrival time of the head's gradients of a tied embedding; < 0 until known */
    double tied_at;
} bt_walk_state;

/* the next pass of a stage */
typedef struct bt_walk_pass {
    bt_pass pass;
    int at; /* virtual stage */
    const bt_stage_work *work;
    bool begins, ends; /* the first, the last virtual stage */
    bool final;        /* the last micro-batch's backward pass */
} bt_walk_pass;

static inline bt_walker *bt_walker_at(const bt_walk_state *s, int d, int stage) {
    return &s->ranks[(size_t)d * (size_t)s->w->pp + (size_t)stage];
}

/* straggler factor of a rank's computing, >= 1 */
static inline double bt_walker_slow(const bt_walk_state *s, int d, int stage) {
    return s->w->slow ? s->w->slow[(size_t)d * (size_t)s->w->pp + (size_t)stage] : 1;
}

static inline bt_final_pass *bt_walk_final(const bt_walk_state *s, int d, int stage, int chunk) {
    return &s->finals[((size_t)d * (size_t)s->w->pp + (size_t)stage) * (size_t)s->chunks +
                      (size_t)chunk];
}

/* entry of (virtual stage, micro-batch i) in `down` or `up` */
static inline double *bt_walk_message(double *at, const bt_walk_state *s, int stage, int64_t i) {
    return &at[(size_t)stage * (size_t)s->w->micros + (size_t)i];
}

/* Returns false if the stage has finished all its passes. */
bool bt_walk_next(const bt_walk_state *s, const bt_walker *r, int stage, bt_walk_pass *out);

/* Posts a message of rank r and stores its arrival time in *there. A link between hosts sends one message after
 * another. */
void bt_walk_post(bt_walk_state *s, bt_walker *r, double *there);
/* Posts the tied embedding's gradients, which cross a network. */
void bt_walk_post_table(bt_walk_state *s, bt_walker *r);
/* Slow-down of the ranks of stage k while the ranks of all stages i with works[i] compute. */
double bt_walk_crowding(const bt_walk *w, const bool *works, int k);
/* Simulates the passes of replica d from its ranks' present times. All entries of `down` and `up` are unknown at the
 * start. */
bt_code bt_walk_shared_pipeline(bt_walk_state *s, int d, bt_err *err) BT_MUST_CHECK;

#endif
