/* time_model.h - the time of one training step of a layout, from the rates of a machine: a walk
 * (walk.h) whose durations come from measured rates and from the bytes that the engine sends.
 *
 * What is charged where follows the phases of a real step (engine/base/tables/phases.def). Links
 * within a host move bytes by copying: that is processor time, which nothing hides. Links between
 * hosts move them while a rank computes.
 * Sources of the byte counts: exchange_route.h, weights.h, tp_exchange.c, pipe.c.
 * Threads: none shared. */
#ifndef BT_ENGINE_PLAN_TIME_MODEL_H
#define BT_ENGINE_PLAN_TIME_MODEL_H

#include "engine/config/run_cfg.h"
#include "engine/plan/cluster.h"
#include "engine/plan/rates.h"
#include "engine/plan/walk/walk.h"

typedef struct bt_prediction {
    bt_step_time step;
    double tokens_per_s;
    /* what it was made of, of the first stage: processor time of a micro-batch, gradient bytes that
     * a rank sends, share of a host's threads that have a core */
    double fwd_s, bwd_s, grad_bytes, crowd;
    double ckpt_s; /* one checkpoint */
    bool scaled;   /* some rate is another shape's, scaled */
} bt_prediction;

/* how many of a host's ranks one core must serve: 1, or more where threads are more than cores */
double bt_cluster_crowd(const bt_cluster *c, const bt_run_cfg *cfg);

/* cfg is resolved for c->ranks. BT_NOTFOUND: the rates know no layer or head */
bt_code bt_time_predict(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                        bt_prediction *out, bt_err *err) BT_MUST_CHECK;

/* Seconds that no step of this layout is shorter than, for next to nothing: its computing, shared out evenly over
 * the stages, with everything else for free. Errors as above */
bt_code bt_time_least(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                      double *least_s, bt_err *err) BT_MUST_CHECK;

#endif
