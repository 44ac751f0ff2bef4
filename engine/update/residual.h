/* residual.h - this rank's accumulated encoding error of the gradients (error feedback): one fp32 value for each
 * element of the flat array, in units of the gradient (including the loss scale). The exchange reads and updates it
 * (codec.h).
 *
 * A checkpoint contains the residual of every data-parallel rank, as states "residual.0", "residual.1", ... of the
 * tensors. A run resumed with the same ranks, shards and hosts restores each rank's own residual, and gives the bits of
 * an uninterrupted run. In another layout the ranks encode other elements, and a codec may have no residual. The
 * residuals are then divided among the ranks, which add them to the gradients of the first step, so that no part of a
 * gradient is lost. (Reproducible training has no residuals and ignores them.)
 *
 * Order:    create -> (state rows: save, load) -> { begin -> exchange [-> undo] }* -> release.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_UPDATE_RESIDUAL_H
#define BT_ENGINE_UPDATE_RESIDUAL_H

#include "engine/base/arena.h"
#include "engine/ckpt/state.h"
#include "engine/config/rank_setup.h"

typedef struct bt_residual {
    const bt_rank_setup *setup; /* borrowed */
    bt_arena arena;
    float *
        owed; /* (params.total) accumulated error; NULL: the codec has no residual, or the rank is alone */
    float *before;     /* (params.total) copy from the beginning of the step; NULL if `owed` is */
    double scale;      /* loss scale contained in the residuals */
    int64_t layout;    /* hash of all settings that determine which rank encodes which element */
    char (*names)[32]; /* (n_names) names of states */
    int n_names;
    float **
        carried; /* (n_carried) residuals from a checkpoint of another layout, until a step has added them */
    int n_carried;
    bool given; /* a step has added the carried residuals */
    /* the residual is zero, because a step without error feedback has sent all of it */
    bool paid;
    bool
        kept; /* `before` is valid for the newest step; false: the residual was zero when it began */
    bool *plain; /* (params.n) tensors that never have a residual */
} bt_residual;

/* Bytes of one residual, for the memory plan; a rank needs two. */
size_t bt_residual_bytes(const bt_rank_setup *s);
bt_code bt_residual_create(bt_residual *r, const bt_rank_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_residual_release(bt_residual *r); /* accepts an all-zero struct */
/* Adds the row "residual". */
void bt_residual_add_state(bt_residual *r, bt_state *s);
/* Begins a step, whose gradients are zero: adds carried residuals to them and, if the current codec has no error
 * feedback, the residual. */
void bt_residual_begin(bt_residual *r, float *grads, double loss_scale, bool feedback);
/* Restores the residual from before the newest step, if that step is not applied or is computed again. */
void bt_residual_undo(bt_residual *r);
/* Adds the squares of the residual of each tensor of this rank's model, divided by the square of the loss scale, to
 * squares (of the tensors of all stages, by number). */
void bt_residual_squares(const bt_residual *r, double *squares);

#endif
