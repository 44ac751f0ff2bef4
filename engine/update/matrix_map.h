/* matrix_map.h - which rank holds which elements of a pipeline stage's matrices, and which rank owns which matrix.
 *
 *     ranks of the stage     g = (replica * shards + shard) * tp + tp_rank
 *     replica                all replicas hold the same elements
 *     stream                 the elements of (shard, tp_rank) in one matrix, in ascending order of its
 *                            block, packed; `counted`: its end, without elements that another rank of the
 *                            tensor-parallel group counts (params.h, first_counted)
 *     wave                   as many matrices as the stage has ranks; the j-th belongs to rank j
 *
 * Matrices are assigned to waves by work, the largest first, so that those of a wave are about equal. The counted
 * streams of one replica make up the matrix.
 * Pure arithmetic for any rank. Threads: constant after init. */
#ifndef BT_ENGINE_UPDATE_MATRIX_MAP_H
#define BT_ENGINE_UPDATE_MATRIX_MAP_H

#include "engine/config/rank_setup.h"

typedef struct bt_matrix_map {
    int replicas, shards, tp, ranks; /* numbers in the stage; ranks is their product */
    bt_params *params;               /* (tp) the tensors of each tensor-parallel rank */
    bt_shards *cuts;                 /* (tp) their shards */
    size_t *order;                   /* (n) the tensors that are matrices, wave by wave */
    size_t n;
    size_t max_short, max_long; /* over all matrices: the shorter and the longer side */
} bt_matrix_map;

bt_code bt_matrix_map_init(bt_matrix_map *m, const bt_rank_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_matrix_map_release(bt_matrix_map *m); /* accepts an all-zero struct */

/* a rank of the stage, and what of matrix k: all it holds, or what counts */
typedef struct bt_matrix_share {
    size_t k;
    int shard, tp_rank;
    bool counted;
} bt_matrix_share;

/* elements of the stream */
size_t bt_matrix_map_elems(const bt_matrix_map *m, bt_matrix_share who);
/* between the stream and the whole matrix (whole_rows, whole_cols) */
void bt_matrix_map_unpack(const bt_matrix_map *m, bt_matrix_share who, const uint16_t *stream,
                          uint16_t *whole);
void bt_matrix_map_pack(const bt_matrix_map *m, bt_matrix_share who, uint16_t *stream,
                        const uint16_t *whole);
/* most elements that the streams of one replica have together, over all matrices */
size_t bt_matrix_map_most(const bt_matrix_map *m);

#endif
