/* plan.h - the memory of one rank, for any layout, before anything is taken: --dry-run, the run's
 * facts, the README's table. It adds up what each object says it will take (their `_bytes`). Pure
 * arithmetic; any rank of any world can be asked for. */
#ifndef BT_ENGINE_PLAN_PLAN_H
#define BT_ENGINE_PLAN_PLAN_H

#include "engine/config/run_cfg.h"
#include "engine/model/net/model.h"

enum { BT_PLAN_MAX = 16 };

/* cfg is resolved; rows as in bt_model_plan, then optimizer, exchange, residual, partial sums, code
 * history (where there are any), program. Packed forms are those of the kernel set selected. Returns their
 * number */
size_t bt_plan_memory(const bt_run_cfg *cfg, int rank, bt_arena_row rows[BT_PLAN_MAX]);
size_t bt_plan_bytes(const bt_run_cfg *cfg, int rank); /* of all rows */

#endif
