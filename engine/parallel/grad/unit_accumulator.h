/* unit_accumulator.h - this rank's units (logical micro-batches) on their way into the fixed tree
 * of tree_sum.h.
 *
 * A model adds gradients to one array. In reproducible training every unit starts from zero and its
 * gradient is added to its sibling's, so a few arrays of that size are kept beside. A unit that
 * must wait for its sibling is written where it waits; the others, and the last one, in the array
 * of gradients. The last unit is added range by range as backward finishes it.
 * Lanes:    parts of the array in which units come at different times (chunks of layers of an interleaved
 *           pipeline): each sees all units, in order, and their buffers are the same.
 * Order:    create -> { begin -> (unit -> unit_done)* (all units but the last, in every lane) -> range* }* -> destroy.
 * Threads:  the training thread; passes over whole arrays use the pool. No allocation after
 *           create. */
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
    bt_unit_rounding *rounding; /* every unit is rounded before it is added; NULL: not. Borrowed */
    const bt_range
        *lanes; /* (n_lanes) that make up 0 .. n, in order; n_lanes 0: all is one. Copied */
    int n_lanes;
} bt_accumulator_cfg;

bt_code bt_accumulator_create(bt_unit_accumulator **out, const bt_accumulator_cfg *cfg, bt_err *err)
    BT_MUST_CHECK;
void bt_accumulator_destroy(bt_unit_accumulator *p); /* accepts NULL */
size_t bt_accumulator_bytes(size_t n, int64_t first_unit, int64_t n_units);
void bt_accumulator_begin(bt_unit_accumulator *p);
/* where the gradients of a lane's next unit are to be added, zeros in the lane's range: `grads` or an array
 * beside, from its beginning */
float *bt_accumulator_unit(bt_unit_accumulator *p, int lane);
/* it is written there; leaves zeros in the lane's range of `grads` */
void bt_accumulator_unit_done(bt_unit_accumulator *p, int lane);
/* joins the last unit's finished range to its siblings; afterwards bt_accumulator_nodes is true of
 * this range */
void bt_accumulator_range(bt_unit_accumulator *p, bt_range r);
/* arrays from their beginnings; the last node's is `grads`. Once the last lane has come to its last unit */
bt_tree_sum bt_accumulator_nodes(const bt_unit_accumulator *p);

#endif
