/* matrix_map.h - assigns the elements of a pipeline stage's matrices to ranks, and each matrix to an owner.
 *
 *     ranks of the stage     g = (replica * shards + shard) * tp + tp_rank
 *     replica                all replicas hold the same elements
 *     stream     the elements of (shard, tp_rank) in one matrix, packed in ascending order of its block. Its `counted`
 *                part lacks the elements that another rank of the tensor-parallel group counts (params.h,
 *                first_counted)
 *     wave                   one matrix per rank of the stage; rank j owns the j-th
 *
 * Matrices are assigned to waves by work, the largest first, so that those of a wave take about equally long. The
 * counted streams of one replica together contain the whole matrix.
 * Pure arithmetic for any rank. Threads: constant after init. */
#ifndef BT_ENGINE_UPDATE_MATRIX_MAP_H
#define BT_ENGINE_UPDATE_MATRIX_MAP_H

#include "engine/config/rank_setup.h"

typedef struct bt_matrix_map {
    int replicas, shards, tp, ranks; /* numbers in the stage; ranks is their product */
    bt_params *params;               /* (tp) the tensors of each tensor-parallel rank */
    bt_shards *cuts;                 /* (tp) their shards */
    size_t *order; /* (n) indices of the tensors that are matrices, wave by wave */
    size_t n;
    size_t max_short,
        max_long; /* maximum over all matrices of the shorter and of the longer side */
} bt_matrix_map;

bt_code bt_matrix_map_init(bt_matrix_map *m, const bt_rank_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_matrix_map_release(bt_matrix_map *m); /* accepts an all-zero struct */

/* Elements of matrix k on one rank of the stage: all that it holds, or those that it counts. */
typedef struct bt_matrix_share {
    size_t k;
    int shard, tp_rank;
    bool counted;
} bt_matrix_share;

/* Number of elements of the stream. */
size_t bt_matrix_map_elems(const bt_matrix_map *m, bt_matrix_share who);
/* Copies between the stream and the whole matrix of (whole_rows, whole_cols). */
void bt_matrix_map_unpack(const bt_matrix_map *m, bt_matrix_share who, const uint16_t *stream,
                          uint16_t *whole);
void bt_matrix_map_pack(const bt_matrix_map *m, bt_matrix_share who, uint16_t *stream,
                        const uint16_t *whole);
/* Maximum over all matrices of the number of elements in the streams of one replica. */
size_t bt_matrix_map_most(const bt_matrix_map *m);

#endif
