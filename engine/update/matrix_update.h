/* matrix_update.h - updates that need whole matrices (Muon), for any distribution of their elements.
 *
 *     momentum of own pieces     -> owner of the matrix        bf16, from the ranks of one replica
 *     owner: direction of the whole matrix (muon.h)
 *     direction of these pieces  <- owner                      bf16, to all ranks that hold some
 *     weights -= lr (scale direction + decay weights)
 *
 * The ranks of a pipeline stage divide the matrices by work (matrix_map.h). In each wave every rank owns at most one
 * matrix, so that all ranks compute at the same time with the memory of one matrix. Momentum and direction are always
 * rounded to bf16, also without communication, and a direction is a function of the whole matrix. All layouts therefore
 * give the same bits if their gradients have the same bits.
 *
 * Bytes that all ranks of a stage together send per step, for E elements in matrices and R replicas of D ranks
 * each:     gather 2 E (1 - 1/D)     scatter 2 E (R - 1/D)
 *
 * Order:    create -> meet -> { (the rules' step: momentum) -> apply }* -> destroy.
 * Ranks:    meet is collective over all ranks, after each has called create; apply over those of a stage.
 * Threads:  the training thread. No allocation after meet. */
#ifndef BT_ENGINE_UPDATE_MATRIX_UPDATE_H
#define BT_ENGINE_UPDATE_MATRIX_UPDATE_H

#include "engine/config/rank_setup.h"
#include "engine/optim/optim.h"

typedef struct bt_matrix_update bt_matrix_update;

typedef struct bt_matrix_update_cfg {
    const bt_rank_setup *setup; /* read by create only; all other members are borrowed */
    const bt_mesh *mesh;
    bt_model *model;
    bt_optim *const *optims; /* (pieces) */
    const bt_range *pieces;  /* (n_pieces) */
    size_t n_pieces;
    const bt_optim_span *spans; /* (tensors of this rank's model) */
} bt_matrix_update_cfg;

/* *out is NULL if no rule needs whole matrices. */
bt_code bt_matrix_update_create(bt_matrix_update **out, const bt_matrix_update_cfg *cfg,
                                bt_err *err) BT_MUST_CHECK;
/* Accepts NULL; all ranks return the same code. */
bt_code bt_matrix_update_synchronise(bt_matrix_update *m, bt_err *err) BT_MUST_CHECK;
void bt_matrix_update_destroy(bt_matrix_update *m);    /* accepts NULL */
size_t bt_matrix_update_bytes(const bt_rank_setup *s); /* memory that create uses */
bt_code bt_matrix_update_apply(bt_matrix_update *m, const bt_optim_update *u, bt_err *err)
    BT_MUST_CHECK;
/* Adds the squares of the changes that the newest apply made to elements of tensor k inside r (a range of the flat
 * array in one piece of this rank), and the squares of the weights before it. */
void bt_matrix_update_change(bt_matrix_update *m, size_t k, bt_range r, const bt_optim_update *u,
                             double *change, double *before);
int64_t bt_matrix_update_take_busy_ns(bt_matrix_update *m); /* NULL: 0 */

#endif
