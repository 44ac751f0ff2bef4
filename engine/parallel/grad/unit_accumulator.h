/* unit_accumulator.h - this rank's units (logical micro-batches) on their way into the fixed tree of tree_sum.h.
 *
 * A model adds gradients to one array. In reproducible training every unit starts from zero and its gradient is added to its
 * sibling's, so a few arrays of that size are kept beside. A unit that must wait for its sibling is written where it waits; the
 * others, and the last one, in the array of gradients. The last unit is added range by range as backward finishes it.
 * Order:    create -> { begin -> (unit -> unit_done)* (all units but the last) -> range* }* -> destroy.
 * Threads:  the training thread; passes over whole arrays use the pool. No allocation after create. */
#ifndef BT_ENGINE_PARALLEL_GRAD_UNIT_ACCUMULATOR_H
#define BT_ENGINE_PARALLEL_GRAD_UNIT_ACCUMULATOR_H

#include "engine/base/status.h"
#include "engine/parallel/grad/bucket.h"
#include "engine/parallel/grad/tree_sum.h"

typedef struct bt_partial bt_partial;

bt_code bt_partial_create(bt_partial **out, float *grads, size_t n, int64_t first_unit, int64_t n_units, bt_err *err) BT_MUST_CHECK;
void bt_partial_destroy(bt_partial *p);                 /* accepts NULL */
size_t bt_partial_bytes(size_t n, int64_t first_unit, int64_t n_units);
void bt_partial_begin(bt_partial *p);
float *bt_partial_unit(bt_partial *p);                  /* where the next unit's gradients are to be added, zeros: `grads` or an array beside */
void bt_partial_unit_done(bt_partial *p);               /* it is written there; leaves zeros in `grads` */
/* joins the last unit's finished range to its siblings; afterwards bt_partial_nodes is true of this range */
void bt_partial_range(bt_partial *p, bt_range r);
bt_fold bt_partial_nodes(const bt_partial *p);          /* arrays from their beginnings; the last node's is `grads` */

#endif
