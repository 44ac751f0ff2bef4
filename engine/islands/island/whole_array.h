/* whole_array.h - weights or gradients of all ranks of a job as one flat array, and back: what an island
 * sends to its hub is that of one rank with the whole model, whatever the layout inside.
 *
 * Which elements a rank holds is known from the slices that checkpoints are made of (update.h).
 * Ranks:   collect and place are collective over the world.
 * Threads: the training thread. No allocation after create. */
#ifndef BT_ENGINE_ISLANDS_ISLAND_WHOLE_ARRAY_H
#define BT_ENGINE_ISLANDS_ISLAND_WHOLE_ARRAY_H

#include "engine/update/update.h"

typedef struct bt_whole_array {
    bt_update *update; /* borrowed, as the next */
    bt_comm *world;
    bt_params params; /* layout of the whole model */
    float *x;         /* (params.total) the array; the same on all ranks after collect and place */
    bt_slices own,
        held; /* elements that only this rank contributes; elements that it computes with */
    size_t *own_at, *held_at; /* their offsets in the array */
} bt_whole_array;

bt_code bt_whole_array_create(bt_whole_array *a, bt_update *update, bt_comm *world, bt_err *err)
    BT_MUST_CHECK;
void bt_whole_array_release(bt_whole_array *a); /* accepts an all-zero struct */

/* x = the latent weights; the gradients times `by` */
bt_code bt_whole_array_weights(bt_whole_array *a, bt_err *err) BT_MUST_CHECK;
bt_code bt_whole_array_gradients(bt_whole_array *a, float by, bt_err *err) BT_MUST_CHECK;
/* x of rank 0 becomes every rank's, and the latent weights (of bf16: to the nearest); quantise afterwards */
bt_code bt_whole_array_place(bt_whole_array *a, bt_err *err) BT_MUST_CHECK;
/* the same into state k of the optimizer, for tensors whose rule has such a state (optim/optim.h) */
bt_code bt_whole_array_place_state(bt_whole_array *a, size_t k, bt_err *err) BT_MUST_CHECK;

#endif
