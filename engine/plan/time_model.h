/* time_model.h - predicts the time of one training step of a layout: a simulation (step_simulator.h) whose durations
 * are computed from measured rates and from the bytes that the engine sends.
 *
 * Costs are assigned to the phases of a real step (engine/base/tables/phases.def). Links within a host copy bytes,
 * which is processor time that nothing hides. Links between hosts send while a rank computes.
 * Sources of the byte counts: exchange_route.h, weights.h, tp_exchange.c, pipe.c.
 * Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_TIME_MODEL_H
#define BT_ENGINE_PLAN_TIME_MODEL_H

#include "engine/config/run_cfg.h"
#include "engine/plan/cluster.h"
#include "engine/plan/rates.h"
#include "engine/plan/step_simulator/step_simulator.h"

typedef struct bt_prediction {
    bt_step_time step;
    double tokens_per_s;
    /* Inputs of the first stage: processor time of a micro-batch, gradient bytes that a rank sends, threads per core
     * of a host. */
    double fwd_s, bwd_s, grad_bytes, crowd;
    double ckpt_s; /* seconds of one checkpoint */
    bool scaled;   /* true if some rate was scaled from another shape */
} bt_prediction;

/* Threads of a host per core, at least 1. */
double bt_cluster_crowd(const bt_cluster *c, const bt_run_cfg *cfg);

/* cfg is resolved for c->ranks. Fails with BT_NOTFOUND if the rates contain no layer or no head. */
bt_code bt_time_predict(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                        bt_prediction *out, bt_err *err) BT_MUST_CHECK;

/* Lower bound of a step's seconds at little cost: its computing, divided evenly among the stages, without any other
 * cost. Errors as above. */
bt_code bt_time_least(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                      double *least_s, bt_err *err) BT_MUST_CHECK;

#endif
