/* unit_rounding.h - rounds gradients of units (logical micro-batches) stochastically to multiples of a power of
 * two, identically for any number of ranks: this makes `--codec int8` short in reproducible training
 * (codec_exact.c).
 *
 * The rows of a whole tensor are cut into groups. The quantum of a group is a power of two, the same on all ranks:
 * the largest recent gradient of a unit in the group is 64 to 127 quanta. A gradient x of a unit becomes
 *
 *     floor(x / quantum + u) quantum        u in [0, 1), a function of (seed, step, unit, tensor, row, column)
 *
 * so its mean is x (within 2^-9 of a quantum: noise.h), and the sum of units is a sum of integers, exact in fp32
 * below 2^24 quanta. Gradients much larger than usual are not rounded: they cost bits, not range. Groups without a
 * gradient so far are not rounded.
 *
 * After a step all ranks agree on each group's largest gradient. A quantum follows a larger one immediately, a
 * smaller one by a factor of two per step. Quanta are saved state, so that a resumed run computes the same bits.
 *
 * Order:    create -> { begin -> range* -> agree }* -> release.
 * Ranks:    agree is collective over the world; all ranks have the groups of all tensors.
 * Threads:  range may be called from the pool's threads for disjoint ranges. */
#ifndef BT_ENGINE_PARALLEL_GRAD_UNIT_ROUNDING_H
#define BT_ENGINE_PARALLEL_GRAD_UNIT_ROUNDING_H

#include <stdatomic.h>

#include "engine/base/range.h"
#include "engine/parallel/mpi/comm.h"

enum { BT_ROUNDING_GROUPS = 64 }; /* maximum number per tensor */

/* block of a tensor in the flat array of this rank */
typedef struct bt_rounding_tensor {
    size_t offset, rows, cols;     /* offset in the flat array; size in rows and columns */
    size_t row0, col0, whole_rows; /* position of the block in the tensor; rows of the tensor */
    size_t first_group;            /* index among the groups of all tensors of all ranks */
    uint64_t name;                 /* hash of its name */
} bt_rounding_tensor;

typedef struct bt_unit_rounding {
    bt_rounding_tensor *tensors; /* (n_tensors) ascending; owned */
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
/* x: gradient of element r.begin. */
void bt_rounding_range(bt_unit_rounding *r, float *x, bt_range range, int64_t unit);
bt_code bt_rounding_agree(bt_unit_rounding *r, bt_comm *world, bt_err *err) BT_MUST_CHECK;

#endif
