/* norm.h - the global gradient norm for any distribution of the elements over ranks.
 *
 * Every element is counted by exactly one rank. Two ways to add:
 *  by blocks of BT_SUM_BLOCK elements of the flat array, whose sums are added in order: the
 *  same bits whether one rank holds the array or many hold pieces of it
 *  exactly sums without rounding (kernels/table/exact.h): the same bits for any layout,
 *  tensor parallelism and pipelines included (reproducible training)
 * Order: create -> compute* -> destroy. compute is collective over shard, tp and pp.
 * Threads: the training thread; blocks are split over the pool. No allocation after create. */
#ifndef BT_ENGINE_OPTIM_NORM_H
#define BT_ENGINE_OPTIM_NORM_H

#include "engine/base/range.h"
#include "engine/base/tp_group.h"
#include "engine/parallel/mpi/mesh.h"

typedef struct bt_norm bt_norm;

typedef struct bt_norm_cfg {
    const bt_mesh *mesh;   /* borrowed, like all below */
    bt_tp_group *tp_group; /* NULL: no tensor parallelism */
    bool sharded;          /* other ranks of the shard axis hold other pieces */
    bool exact;
    size_t total;           /* elements of the flat array */
    double whole_elements;  /* elements of the whole model */
    const bt_range *pieces; /* (n_pieces) pieces that this rank holds, ascending */
    size_t n_pieces;
    /* (n_counted) elements of them that this rank counts, ascending, one range per tensor and piece */
    const bt_range *counted;
    size_t n_counted;
    /* (n_excluded) elements that another rank of the tensor-parallel group counts */
    const bt_range *excluded;
    size_t n_excluded;
} bt_norm_cfg;

bt_code bt_norm_create(bt_norm **out, const bt_norm_cfg *cfg, bt_err *err) BT_MUST_CHECK;
void bt_norm_destroy(bt_norm *n); /* accepts NULL */
size_t bt_norm_bytes(size_t total,
                     int ranks); /* memory used by create; ranks: the larger of tp and pp */
/* Computes the L2 norm of all ranks' gradients times `unscale`; not finite if one of them is not. */
bt_code bt_norm_compute(bt_norm *n, const float *grads, double unscale, double *norm, bt_err *err)
    BT_MUST_CHECK;

#endif
