/* residual.h - this rank's accumulated encoding error of the gradients (error feedback): one fp32 for each element
 * of the flat array, in units of the gradient (so multiplied by the loss scale). The exchange reads and updates it
 * (codec.h).
 *
 * Checkpoints hold every data-parallel rank's residual, as states "residual.0", "residual.1", ... of the tensors.
 * A run resumed with the same ranks, shards and hosts restores each rank's own, and has the bits of an
 * uninterrupted run. In any other layout, or with a codec without residual, other ranks encode other elements:
 * then the residuals are divided among the ranks, which add them to the gradients of the first step, so that no
 * part of a gradient is lost. (Reproducible training has no residuals and ignores them.)
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
    float *owed; /* (params.total); NULL: this run's codec has no residual, or the rank is alone */
    float *before;     /* (params.total) copy from the beginning of the step; NULL as `owed` */
    double scale;      /* loss scale of the residuals */
    int64_t layout;    /* hash of all settings that determine which rank encodes which element */
    char (*names)[32]; /* (n_names) names of states */
    int n_names;
    float **
        carried; /* (n_carried) residuals of a checkpoint of another layout, until a step had them */
    int n_carried;
    bool given; /* a step had them */
    /* the residual is zero: a step without error feedback has sent all of it */
    bool paid;
    bool kept; /* `before` is valid for the step that began last; else the residual was zero then */
    bool *plain; /* (params.n) tensors that never have a residual */
} bt_residual;

/* bytes of a residual, for the memory plan; a rank needs twice as much */
size_t bt_residual_bytes(const bt_rank_setup *s);
bt_code bt_residual_create(bt_residual *r, const bt_rank_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_residual_release(bt_residual *r); /* accepts an all-zero struct */
/* row "residual" */
void bt_residual_add_state(bt_residual *r, bt_state *s);
/* Begins a step, whose gradients are zero: adds carried residuals to them and, if the current codec has no error
 * feedback, the residual. */
void bt_residual_begin(bt_residual *r, float *grads, double loss_scale, bool feedback);
/* Restores the residual of the last step, which is not applied, or computed again. */
void bt_residual_undo(bt_residual *r);
/* adds the squares of the residual of each tensor of this rank's model to squares (of all stages' tensors, by
 * number), divided by the square of the loss scale */
void bt_residual_squares(const bt_residual *r, double *squares);

#endif
