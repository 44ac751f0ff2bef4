/* micro_plan.h - assigns the micro-batches of a step to data-parallel ranks.
 *
 * A step's micro-batches have one order; rank d takes one contiguous range of them. The plan is even, as given
 * (parallel.balance=3,1), or follows measured speed (balance.h). The samples of a step and their weights never
 * depend on the plan.
 *
 * Order:    create -> { adjust, collective, after a step }* -> release.
 * Threads:  the training thread. No allocation after create. */
#ifndef BT_ENGINE_MICRO_MICRO_PLAN_H
#define BT_ENGINE_MICRO_MICRO_PLAN_H

#include "engine/config/settings/train_settings.h"
#include "engine/parallel/mpi/mesh.h"
#include "engine/parallel/schedule/balance.h"

typedef struct bt_micro_plan {
    int64_t sequences, micros; /* per step, all ranks */
    int64_t first, n;          /* this rank's micro-batches, in the step's order */
    size_t dp;                 /* data-parallel ranks */
    int64_t *shares;           /* (2, dp) micro-batches of each rank; room for the next plan */
    double *costs;             /* (dp) seconds a micro-batch */
    bt_balance_kind balance;
    bt_balance_meter pace;
    const bt_mesh *mesh; /* borrowed */
} bt_micro_plan;

/* balance: parallel.balance */
bt_code bt_micro_plan_create(bt_micro_plan *p, const bt_train_settings *train, int64_t seq_len,
                             const char *balance, const bt_mesh *mesh, bt_err *err) BT_MUST_CHECK;
void bt_micro_plan_release(bt_micro_plan *p); /* accepts an all-zero struct */
size_t bt_micro_plan_bytes(size_t dp);        /* memory used by create */

/* parallel.balance=auto: takes this rank's seconds a micro-batch of the step just done; every
 * BT_BALANCE_EVERY steps all ranks make the next plan from all ranks' speeds. *gain: 0, or the
 * fraction by which the plan that holds from now on shortens a step */
bt_code bt_micro_plan_adjust(bt_micro_plan *p, double seconds_per_micro, double *gain, bt_err *err)
    BT_MUST_CHECK;

#endif
