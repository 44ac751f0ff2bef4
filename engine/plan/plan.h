/* plan.h - computes the memory of one rank of any layout before anything is allocated, for --dry-run, the facts of a
 * run and the README's table. It is the sum of the `_bytes` functions of all objects and of the rows that optional
 * features of training declare. Pure arithmetic, so any rank of any world can be planned. */
#ifndef BT_ENGINE_PLAN_PLAN_H
#define BT_ENGINE_PLAN_PLAN_H

#include "engine/config/rank_setup.h"
#include "engine/model/net/model.h"

enum { BT_PLAN_MAX = 40, BT_PLAN_PARTS = 16 };

/* Appends a row for each optional feature that needs memory on the rank `s`, at most BT_PLAN_PARTS, and returns their
 * number. It is bt_parts_memory (engine/train/trainer.h), or NULL for a training without optional features. */
typedef size_t bt_plan_parts(const bt_rank_setup *s, bt_arena_row *rows);

/* Writes the rows and returns their number: those of bt_model_plan, then optimizer, exchange, partial sums, code
 * history (if any), those of `parts`, program. cfg must be resolved. Packed weights have the form of the selected
 * kernel set. */
size_t bt_plan_memory(const bt_run_cfg *cfg, int rank, bt_plan_parts *parts,
                      bt_arena_row rows[BT_PLAN_MAX]);
size_t bt_plan_bytes(const bt_run_cfg *cfg, int rank, bt_plan_parts *parts); /* sum of all rows */

#endif
