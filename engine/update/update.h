/* update.h - the sharded update: gradient norm, optimizer step, exchange of weights, quantisation; one interface
 * for ZeRO 0 to 3 and tensor parallelism.
 *
 * The flat arrays are divided into stripes, and each stripe into one piece per shard (shard_map.h). A rank updates its
 * own pieces from the last stripe to the first; while it updates one, the previous piece is sent to the ranks that
 * need it (weights.h). If the optimizer needs whole matrices, all pieces are updated first (matrix_update.h) and then
 * sent.
 *
 * Order:    create -> meet -> (init_weights or loading) -> quantise -> { zero_grads -> ... gradients ... -> norm
 *           -> apply }* -> destroy.
 * Ranks:    meet (after all ranks have called create), norm, apply, quantise and tensor_squares are collective.
 * Threads:  the training thread. No allocation after meet. */
#ifndef BT_ENGINE_UPDATE_UPDATE_H
#define BT_ENGINE_UPDATE_UPDATE_H

#include "engine/ckpt/state.h"
#include "engine/config/rank_setup.h"
#include "engine/model/net/model.h"
#include "engine/optim/norm.h"
#include "engine/optim/optim.h"
#include "engine/parallel/shard/shard_map.h"
#include "engine/update/matrix_update.h"
#include "engine/update/weights.h"

typedef struct bt_update {
    bt_model *model; /* borrowed, like the next two members */
    const bt_mesh *mesh;
    bt_tp_group *tp_group; /* NULL: no tensor parallelism */
    bt_params table;       /* the tensors of all stages */
    bt_optim_span *spans;  /* one per tensor of this rank's model */
    bt_shards shards;      /* one shard: a single piece contains everything */
    bt_range *pieces;      /* (n_pieces) pieces of this rank, one per stripe; may be empty */
    bt_optim **optims;     /* (n_pieces) optimizer states of the pieces */
    size_t n_pieces;
    float *const *
        for_use; /* (n_pieces) weights for uses of the model other than training, see below; borrowed. NULL: none */
    bt_range *counted, *excluded; /* see bt_norm_cfg */
    bt_weights *weights;
    bt_matrix_update *matrices; /* NULL: no rule needs whole matrices */
    bt_norm *norm;
    double *tensor_squares; /* (table.n) */
    bool keep_others_zero;  /* ZeRO-2: the exchange frees gradients owned by other ranks */
    bt_optim_id optimizer;
    bt_states_kind states, latent; /* optim.states, optim.weights */
    bt_optim_update last;          /* the newest update applied; t = 0: none */
} bt_update;

typedef struct bt_update_cfg {
    const bt_rank_setup *setup; /* read by create only; all other members are borrowed */
    bt_model *model;
    const bt_mesh *mesh;
    bt_tp_group *tp_group;
} bt_update_cfg;

bt_code bt_update_create(bt_update *u, const bt_update_cfg *cfg, bt_err *err) BT_MUST_CHECK;
bt_code bt_update_synchronise(bt_update *u, bt_err *err)
    BT_MUST_CHECK;                    /* all ranks return the same code */
void bt_update_release(bt_update *u); /* accepts an all-zero struct */

/* memory of a rank's optimizer states and of its weight exchange, for the memory plan */
typedef struct bt_update_sizes {
    size_t optimizer, exchange, work; /* bytes */
} bt_update_sizes;
bt_update_sizes bt_update_bytes(const bt_rank_setup *s);

bool bt_update_sharded(const bt_update *u);
void bt_update_zero_grads(bt_update *u);
/* Initialises the weights that this rank holds, as a function of the seed and of the element's position alone. */
void bt_update_init_weights(bt_update *u, uint64_t seed);
/* Computes scales, codes and packed weights from the latent weights, before the first step; apply includes it. */
bt_code bt_update_quantise(bt_update *u, bt_err *err) BT_MUST_CHECK;
/* Norm of the gradients divided by the loss scale; unscale: 1 / loss scale. */
bt_code bt_update_norm(bt_update *u, double unscale, double *norm, bt_err *err) BT_MUST_CHECK;
bt_code bt_update_apply(bt_update *u, const bt_optim_update *how, bt_err *err) BT_MUST_CHECK;
/* Returns the time that exchanges of weights and of whole matrices took since the last call, hidden or not. */
int64_t bt_update_take_busy_ns(bt_update *u);
/* out: (table.n) sums of squares of the gradients of all stages, each element counted once. */
bt_code bt_update_tensor_squares(bt_update *u, double unscale, const double **out, bt_err *err)
    BT_MUST_CHECK;
/* Raises the second moments of tensor k on this rank to at least `share` of their mean in each of its pieces; has no
 * effect if the tensor's rule has none. */
void bt_update_raise_second_moments(bt_update *u, size_t k, double share);
/* Adds the squares of the changes that the newest update made to elements of tensor k inside r, and the squares of the
 * weights before it. */
void bt_update_change(const bt_update *u, size_t k, bt_range r, double *change, double *before);

/* If `for_use` is set, exchanges it with the weights, and sends and quantises the result (collective). The statistics
 * of the newest update are kept. A second call restores the weights of the training. */
bt_code bt_update_swap_for_use(bt_update *u, bt_err *err) BT_MUST_CHECK;

/* Adds the rows "weights", "optimizer" and, with `for_use`, "for_use". The state "weight" of a checkpoint, which all
 * programs read, is then for_use, and "latest" contains the weights with which training continues. */
void bt_update_add_state(bt_update *u, bt_state *s);

#endif
