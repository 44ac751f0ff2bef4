/* walk_state.h - what the two ways through a pipeline share: walk.c (every rank has its cores) and
 * walk_shared.c (ranks share them). Private to engine/plan/walk. */
#ifndef BT_ENGINE_PLAN_WALK_WALK_STATE_H
#define BT_ENGINE_PLAN_WALK_WALK_STATE_H

#include "engine/parallel/schedule/pass_order.h"
#include "engine/plan/walk/walk.h"

typedef struct bt_walker { /* one rank */
    double now;
    double phase[BT_PHASE_COUNT];
    double began;
    double met; /* of phase WAIT: for its own tensor-parallel group, not for a stage */
    /* its link to other hosts: when it has taken all messages between stages that it was given; and the
     * tied embedding's gradients, of the last of several chunks, which leave beside them */
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
    double *down,
        *up; /* (chunks, pp, micros) when a virtual stage's input of a micro-batch is there; < 0: not
                            known yet. Of the replica that is walked */
    double
        tied_at; /* several chunks: when the head's gradients of a tied embedding are there; < 0: likewise */
} bt_walk_state;

/* what a stage does with its next pass */
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

/* a rank's own factor on computing */
static inline double bt_walker_slow(const bt_walk_state *s, int d, int stage) {
    return s->w->slow ? s->w->slow[(size_t)d * (size_t)s->w->pp + (size_t)stage] : 1;
}

static inline bt_final_pass *bt_walk_final(const bt_walk_state *s, int d, int stage, int chunk) {
    return &s->finals[((size_t)d * (size_t)s->w->pp + (size_t)stage) * (size_t)s->chunks +
                      (size_t)chunk];
}

/* of a virtual stage */
static inline double *bt_walk_message(double *at, const bt_walk_state *s, int stage, int64_t i) {
    return &at[(size_t)stage * (size_t)s->w->micros + (size_t)i];
}

/* false: the stage has made all its passes */
bool bt_walk_next(const bt_walk_state *s, const bt_walker *r, int stage, bt_walk_pass *out);

/* A message of a rank leaves: *there is when it arrives. On a link between hosts messages follow each other. */
void bt_walk_post(bt_walk_state *s, bt_walker *r, double *there);
/* the same of the tied embedding's gradients, which cross a network */
void bt_walk_post_table(bt_walk_state *s, bt_walker *r);
/* how many times as long the ranks of stage k compute while those of all stages k with works[k] do */
double bt_walk_crowding(const bt_walk *w, const bool *works, int k);
/* The passes of replica d, from where its ranks are, with all `down` and `up` unknown. */
bt_code bt_walk_shared_pipeline(bt_walk_state *s, int d, bt_err *err) BT_MUST_CHECK;

#endif
