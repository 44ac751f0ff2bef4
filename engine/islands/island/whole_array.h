/* whole_array.h - gathers weights or gradients of all ranks of a job into one flat array, and distributes it again.
 * With any layout in the job, the array that an island sends to its hub equals that of one rank with the whole model.
 * The slices for checkpoints determine which elements a rank holds (update.h). Ranks: bt_whole_array_weights,
 * _gradients and _place are collective over the world. Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_WHOLE_ARRAY_H
#define BT_ENGINE_ISLANDS_ISLAND_WHOLE_ARRAY_H

#include "engine/update/update.h"

typedef struct bt_whole_array {
    bt_update *update; /* borrowed, like the next member */
    bt_comm *world;
    bt_params params;    /* layout of the whole model */
    float *x;            /* (params.total) the array, equal on all ranks after a collective call */
    bt_slices own, held; /* slices that only this rank contributes; slices with which it computes */
    size_t *own_at, *held_at; /* offsets of these slices in the array */
} bt_whole_array;

bt_code bt_whole_array_create(bt_whole_array *a, bt_update *update, bt_comm *world, bt_err *err)
    BT_MUST_CHECK;
void bt_whole_array_release(bt_whole_array *a); /* accepts an all-zero struct */

/* Set x to the latent weights, or to the gradients times `by`. */
bt_code bt_whole_array_weights(bt_whole_array *a, bt_err *err) BT_MUST_CHECK;
bt_code bt_whole_array_gradients(bt_whole_array *a, float by, bt_err *err) BT_MUST_CHECK;
/* Copies x of rank 0 to all ranks and into the latent weights (bf16: to nearest). The caller must quantise them. */
bt_code bt_whole_array_place(bt_whole_array *a, bt_err *err) BT_MUST_CHECK;
/* Copies state k of the optimizer to all ranks, for tensors whose update rule has this state (optim/optim.h). */
bt_code bt_whole_array_place_state(bt_whole_array *a, size_t k, bt_err *err) BT_MUST_CHECK;

#endif
