/* norm.h - computes the global gradient norm for any distribution of the elements over ranks.
 *
 * Exactly one rank counts each element. There are two ways to add:
 *  by blocks  sums of BT_SUM_BLOCK elements of the flat array are added in order; the bits do not depend on
 *             whether one rank or several ranks hold the array
 *  exactly    without rounding (kernels/table/exact.h), for reproducible training; the bits do not depend on the
 *             layout, including tensor parallelism and pipelines
 * Order: create -> compute* -> destroy. compute is collective over shard, tp and pp.
 * Threads: the training thread; the thread pool divides the blocks. No allocation after create. */
#ifndef BT_ENGINE_OPTIM_NORM_H
#define BT_ENGINE_OPTIM_NORM_H

#include "engine/base/range.h"
#include "engine/base/tp_group.h"
#include "engine/parallel/mpi/mesh.h"

typedef struct bt_norm bt_norm;

typedef struct bt_norm_cfg {
    const bt_mesh *mesh;   /* borrowed, like all following members */
    bt_tp_group *tp_group; /* NULL: no tensor parallelism */
    bool sharded;          /* other ranks of the shard axis hold other pieces */
    bool exact;
    size_t total;           /* elements of the flat array */
    double whole_elements;  /* elements of the whole model */
    const bt_range *pieces; /* (n_pieces) pieces that this rank holds, ascending */
    size_t n_pieces;
    /* (n_counted) elements of the pieces that this rank counts, ascending, one range per tensor and piece. */
    const bt_range *counted;
    size_t n_counted;
    /* (n_excluded) elements that another rank of the tensor-parallel group counts. */
    const bt_range *excluded;
    size_t n_excluded;
} bt_norm_cfg;

bt_code bt_norm_create(bt_norm **out, const bt_norm_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_norm_destroy(bt_norm *n); /* accepts NULL */
/* memory of create; ranks: the larger of tp and pp */
size_t bt_norm_bytes(size_t total, int ranks);
/* Computes the L2 norm of the gradients of all ranks times `unscale`; not finite if any gradient is not. */
bt_code bt_norm_compute(bt_norm *n, const float *grads, double unscale, double *norm, bt_err *err)
    BT_MUST_CHECK;

#endif
