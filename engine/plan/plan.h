/* plan.h - memory of one rank of any layout, computed before anything is allocated, for --dry-run, the run's facts
 * and the README's table. It is the sum of the `_bytes` functions of all objects. Pure arithmetic; every rank of
 * every world can be computed. */
#ifndef BT_ENGINE_PLAN_PLAN_H
#define BT_ENGINE_PLAN_PLAN_H

#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"

enum { BT_PLAN_MAX = 16 };

/* Fills rows and returns their number: those of bt_model_plan, then optimizer, exchange, residual, partial sums,
 * code history (if any), program. cfg is resolved. Packed weights have the form of the selected kernel set. */
size_t bt_plan_memory(const bt_run_cfg *cfg, int rank, bt_arena_row rows[BT_PLAN_MAX]);
size_t bt_plan_bytes(const bt_run_cfg *cfg, int rank); /* sum of all rows */

#endif
