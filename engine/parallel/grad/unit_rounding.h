/* unit_rounding.h - gradients of units (logical micro-batches) rounded at random to multiples of a
 * power of two, the same on any number of ranks: what makes `--codec int8` short in reproducible
 * training (codec_exact.c).
 *
 * A whole tensor's rows are cut into groups. The quantum of a group is a power of two that all ranks
 * know before the step: the largest gradient of a unit that the group has had lately is 64 to 127 of
 * them. A gradient x of a unit becomes
 *
 *     floor(x / quantum + u) quantum        u in [0, 1), a function of (seed, step, unit, tensor, row, column)
 *
 * so its mean is x (but for 2^-9 of a quantum: noise.h), and the sum of units is a sum of integers,
 * exact in fp32 below 2^24 quanta. Larger gradients than usual stay what they are: they cost bits, not
 * range. Groups that had no gradient yet are not rounded.
 *
 * After a step all ranks learn each group's largest gradient. A quantum follows a larger one at once, a
 * smaller one by a factor of two a step. Quanta are state: with them a run goes on bit for bit.
 *
 * Order:    create -> { begin -> range* -> agree }* -> release.
 * Ranks:    agree is collective over the world; all ranks have the groups of all tensors.
 * Threads:  range may be called from the pool's threads for disjoint ranges. */
#ifndef BT_ENGINE_PARALLEL_GRAD_UNIT_ROUNDING_H
#define BT_ENGINE_PARALLEL_GRAD_UNIT_ROUNDING_H

#include <stdatomic.h>

#include "engine/base/range.h"
#include "engine/parallel/mpi/comm.h"

enum { BT_ROUNDING_GROUPS = 64 }; /* of a tensor */

/* a tensor's block in the flat array of this rank */
typedef struct bt_rounding_tensor {
    size_t offset, rows, cols;     /* of the block, row after row */
    size_t row0, col0, whole_rows; /* where in the tensor it begins; rows of the tensor */
    size_t first_group;            /* among those of all tensors of all ranks */
    uint64_t name;                 /* hash of its name */
} bt_rounding_tensor;

typedef struct bt_unit_rounding {
    bt_rounding_tensor *tensors; /* (n_tensors) ascending; taken */
    size_t n_tensors, n_groups;
    uint64_t seed;
    int16_t *exponents;        /* (n_groups) log2 of quanta; BT_ROUNDING_NONE: not rounded yet */
    _Atomic uint32_t *largest; /* (n_groups) bits of the largest magnitude of this step */
    int64_t *agreed;           /* (n_groups) scratch */
    uint64_t step;
    int scale; /* log2 of the loss scale; quanta are those of gradients without it */
} bt_unit_rounding;

#define BT_ROUNDING_NONE INT16_MIN

size_t bt_rounding_groups(size_t whole_rows);
bt_code bt_rounding_create(bt_unit_rounding *r, bt_rounding_tensor *tensors, size_t n_tensors,
                           size_t n_groups, uint64_t seed, bt_err *err) BT_MUST_CHECK;
void bt_rounding_release(bt_unit_rounding *r); /* accepts an all-zero struct */
void bt_rounding_begin(bt_unit_rounding *r, int64_t step, double loss_scale);
/* x: the gradient of r.begin */
void bt_rounding_range(bt_unit_rounding *r, float *x, bt_range range, int64_t unit);
bt_code bt_rounding_agree(bt_unit_rounding *r, bt_comm *world, bt_err *err) BT_MUST_CHECK;

#endif
