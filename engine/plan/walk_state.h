/* walk_state.h - what the two ways through a pipeline share: walk.c (every rank has its cores) and
 * walk_shared.c (ranks share them). Private to engine/plan. */
#ifndef BT_ENGINE_PLAN_WALK_STATE_H
#define BT_ENGINE_PLAN_WALK_STATE_H

#include "engine/plan/walk.h"

typedef struct bt_walker { /* one rank */
    double now;
    double phase[BT_PHASE_COUNT];
    double began, last_bwd_s; /* the last micro-batch's backward pass */
    double met; /* of phase WAIT: for its own tensor-parallel group, not for a stage */
    int64_t forwards, backwards;
} bt_walker;

typedef struct bt_walk_state {
    const bt_walk *w;
    bt_walker *ranks;  /* (dp, pp) */
    double *down, *up; /* (pp, micros) when a stage's input of a micro-batch is there; < 0: not
                            known yet. Of the replica that is walked */
} bt_walk_state;

static inline bt_walker *bt_walker_at(const bt_walk_state *s, int d, int stage) {
    return &s->ranks[(size_t)d * (size_t)s->w->pp + (size_t)stage];
}

/* a rank's own factor on computing */
static inline double bt_walker_slow(const bt_walk_state *s, int d, int stage) {
    return s->w->slow ? s->w->slow[(size_t)d * (size_t)s->w->pp + (size_t)stage] : 1;
}

static inline double *bt_walk_message(double *at, const bt_walk_state *s, int stage, int64_t i) {
    return &at[(size_t)stage * (size_t)s->w->micros + (size_t)i];
}

/* whether a stage's next pass is a forward one: as many ahead as stages lie behind, then one and
 * one */
static inline bool bt_walk_goes_forward(const bt_walk_state *s, const bt_walker *r, int stage) {
    return r->forwards < s->w->micros && r->forwards <= r->backwards + s->w->pp - 1 - stage;
}

/* how many times as long the ranks of stage k compute while those of all stages k with works[k] do */
double bt_walk_crowding(const bt_walk *w, const bool *works, int k);
/* The passes of replica d, from where its ranks are, with all `down` and `up` unknown. */
bt_code bt_walk_shared_pipeline(bt_walk_state *s, int d, bt_err *err) BT_MUST_CHECK;

#endif
