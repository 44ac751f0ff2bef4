/* unit_accumulator.h - this rank's units (logical micro-batches) on their way into the fixed tree
 * of tree_sum.h.
 *
 * A model adds gradients to one array. In reproducible training every unit starts from zero and its
 * gradient is added to its sibling's, so a few arrays of that size are kept beside. A unit that
 * must wait for its sibling is written where it waits; the others, and the last one, in the array
 * of gradients. The last unit is added range by range as backward finishes it.
 * Order:    create -> { begin -> (unit -> unit_done)* (all units but the last) -> range* }* -> destroy.
 * Threads:  the training thread; passes over whole arrays use the pool. No allocation after
 *           create. */
#ifndef BT_ENGINE_PARALLEL_GRAD_UNIT_ACCUMULATOR_H
#define BT_ENGINE_PARALLEL_GRAD_UNIT_ACCUMULATOR_H

#include "engine/base/status.h"
#include "engine/parallel/grad/bucket.h"
#include "engine/parallel/grad/tree_sum.h"
#include "engine/parallel/grad/unit_rounding.h"

typedef struct bt_unit_accumulator bt_unit_accumulator;

/* rounding: every unit is rounded before it is added; NULL: not. Borrowed */
bt_code bt_accumulator_create(bt_unit_accumulator **out, float *grads, size_t n, int64_t first_unit,
                              int64_t n_units, bt_unit_rounding *rounding, bt_err *err)
    BT_MUST_CHECK;
void bt_accumulator_destroy(bt_unit_accumulator *p); /* accepts NULL */
size_t bt_accumulator_bytes(size_t n, int64_t first_unit, int64_t n_units);
void bt_accumulator_begin(bt_unit_accumulator *p);
/* where the next unit's gradients are to be added, zeros: `grads` or an array beside */
float *bt_accumulator_unit(bt_unit_accumulator *p);
/* it is written there; leaves zeros in `grads` */
void bt_accumulator_unit_done(bt_unit_accumulator *p);
/* joins the last unit's finished range to its siblings; afterwards bt_accumulator_nodes is true of
 * this range */
void bt_accumulator_range(bt_unit_accumulator *p, bt_range r);
/* arrays from their beginnings; the last node's is `grads` */
bt_tree_sum bt_accumulator_nodes(const bt_unit_accumulator *p);

#endif
