/* time_model.h - predicts the time of one training step of a layout: a simulation (step_simulator.h) whose durations
 * are computed from measured rates and from the bytes that the engine sends.
 *
 * Costs are assigned to the phases of a real step (engine/base/tables/phases.def). A link within a host copies bytes,
 * which takes processor time that nothing hides; a link between hosts sends while a rank computes. The byte counts are
 * those of exchange_route.h, weights.h, tp_exchange.c and pipe.c. Threads: no shared state. */
#ifndef BT_ENGINE_PLAN_TIME_MODEL_H
#define BT_ENGINE_PLAN_TIME_MODEL_H

#include "engine/config/run_cfg.h"
#include "engine/plan/cluster.h"
#include "engine/plan/rates.h"
#include "engine/plan/step_simulator/step_simulator.h"

typedef struct bt_prediction {
    bt_step_time step;
    double tokens_per_s;
    /* Inputs for the first stage: processor time of a micro-batch, gradient bytes of a rank, threads per core of a
     * host. */
    double fwd_s, bwd_s, grad_bytes, crowd;
    double ckpt_s; /* seconds of one checkpoint */
    bool scaled;   /* some rate was scaled from another shape */
} bt_prediction;

/* Returns the threads of a host per core, at least 1. */
double bt_cluster_crowd(const bt_cluster *c, const bt_run_cfg *cfg);

/* cfg must be resolved for c->ranks. BT_NOTFOUND: the rates contain no layer or no head. */
bt_code bt_time_predict(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                        bt_prediction *out, bt_err *err) BT_MUST_CHECK;

/* Computes a lower bound of a step's seconds quickly: its computation, divided evenly among the stages, without any
 * other cost. Errors are those of bt_time_predict. */
bt_code bt_time_least(const bt_run_cfg *cfg, const bt_rates *r, const bt_cluster *c,
                      double *least_s, bt_err *err) BT_MUST_CHECK;

#endif
