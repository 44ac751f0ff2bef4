/* unit_accumulator.h - adds this rank's units (logical micro-batches) in the fixed tree of tree_sum.h.
 *
 * The backward pass of a model adds gradients to one array. In reproducible training every unit starts from zero and
 * its gradient is added to its sibling's, which needs a few more arrays of that size. A unit that must wait for its
 * sibling has an array of its own; all other units, and the last one, use the array of gradients. The last unit is
 * added range by range as backward finishes it.
 * Lanes:    parts of the array in which units arrive at different times (chunks of layers of an interleaved
 *           pipeline): each has all units, in order, in the same buffers.
 * Order:    create -> { begin -> (unit -> unit_done)* (all units but the last, in every lane) -> range* }* ->
 *           destroy.
 * Threads:  the training thread; passes over whole arrays use the pool. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_GRAD_UNIT_ACCUMULATOR_H
#define BT_ENGINE_PARALLEL_GRAD_UNIT_ACCUMULATOR_H

#include "engine/base/status.h"
#include "engine/parallel/grad/bucket.h"
#include "engine/parallel/grad/tree_sum.h"
#include "engine/parallel/grad/unit_rounding.h"

typedef struct bt_unit_accumulator bt_unit_accumulator;

typedef struct bt_accumulator_cfg {
    float *grads; /* (n) borrowed */
    size_t n;
    int64_t first_unit, n_units;
    bt_unit_rounding
        *rounding; /* rounds every unit before it is added; NULL: no rounding. Borrowed */
    const bt_range
        *lanes; /* (n_lanes) consecutive ranges that cover 0 .. n; n_lanes 0: one lane. Copied */
    int n_lanes;
} bt_accumulator_cfg;

bt_code bt_accumulator_create(bt_unit_accumulator **out, const bt_accumulator_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_accumulator_destroy(bt_unit_accumulator *p); /* accepts NULL */
size_t bt_accumulator_bytes(size_t n, int64_t first_unit, int64_t n_units);
void bt_accumulator_begin(bt_unit_accumulator *p);
/* Returns the array (from its beginning) to which the gradients of a lane's next unit are added, zeroed in the
 * lane's range: `grads` or a further array. */
float *bt_accumulator_unit(bt_unit_accumulator *p, int lane);
/* Declares the unit in that array complete; zeroes the lane's range of `grads`. */
void bt_accumulator_unit_done(bt_unit_accumulator *p, int lane);
/* Adds the last unit's finished range to its siblings; bt_accumulator_nodes is then valid for this range. */
void bt_accumulator_range(bt_unit_accumulator *p, bt_range r);
/* Nodes with arrays from their beginnings; the last node's array is `grads`. Valid once the last lane has reached
 * its last unit. */
bt_tree_sum bt_accumulator_nodes(const bt_unit_accumulator *p);

#endif
