/* residual.h - what this rank's codec has lost of the gradients so far, and has yet to send (error
 * feedback): one fp32 for each element of the flat array, in units of the gradient (so multiplied by
 * the loss scale). The exchange adds to it and takes from it (codec.h).
 *
 * Checkpoints hold every data-parallel rank's residual, as states "residual.0", "residual.1", ... of
 * the tensors. A run that goes on with the same ranks, shards and hosts takes up each rank's own, and
 * has the bits of a run that was not interrupted. In any other layout, or with another codec that
 * keeps nothing, who encodes what is another: then the residuals are shared out among the ranks,
 * which add them to the gradients of the first step, so that nothing of a gradient is lost. (Reproducible
 * training has no residuals and takes none up.)
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
    float *owed;    /* (params.total); NULL: this run's codec keeps nothing, or the rank is alone */
    float *before;  /* (params.total) as it was when the step began; NULL as owed */
    double scale;   /* loss scale of the residuals */
    int64_t layout; /* hash of all that decides who encodes what */
    char (*names)[32]; /* (n_names) of states */
    int n_names;
    float **
        carried; /* (n_carried) residuals of a checkpoint of another layout, until a step had them */
    int n_carried;
    bool given; /* a step had them */
    /* nothing is owed: a step without error feedback had all of it */
    bool paid;
    bool kept;   /* `before` is of the step that began last; else nothing was owed then */
    bool *plain; /* (params.n) of which nothing is ever owed */
} bt_residual;

/* of a rank, for the memory plan; it takes twice as much */
size_t bt_residual_bytes(const bt_rank_setup *s);
bt_code bt_residual_create(bt_residual *r, const bt_rank_setup *s, bt_err *err) BT_MUST_CHECK;
void bt_residual_release(bt_residual *r); /* accepts an all-zero struct */
/* row "residual" */
void bt_residual_add_state(bt_residual *r, bt_state *s);
/* A step begins, its gradients are zero: gives them what was carried over, and, where the codec that
 * is in use has no error feedback, what is owed. */
void bt_residual_begin(bt_residual *r, float *grads, double loss_scale, bool feedback);
/* The step that began last is not applied, or computed again: what it sent is owed again. */
void bt_residual_undo(bt_residual *r);
/* adds the squares of what is owed of each tensor of this rank's model to squares (of all stages'
 * tensors, by number),
 * divided by the square of the loss scale */
void bt_residual_squares(const bt_residual *r, double *squares);

#endif
