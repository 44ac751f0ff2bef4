/* tensor_slices.h - describes a range of a tensor's block as slices of a checkpoint.
 *
 * A rank holds a block of a tensor (with tensor parallelism: some rows or columns), of which one owner may hold any
 * range (ZeRO). A block of columns is not contiguous in the tensor: its whole rows become one slice with a stride, and
 * the incomplete rows at both ends become slices of their own.
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_UPDATE_TENSOR_SLICES_H
#define BT_ENGINE_UPDATE_TENSOR_SLICES_H

#include "engine/base/range.h"
#include "engine/ckpt/state.h"
#include "engine/model/net/model.h"

/* Appends elements [r.begin, r.end) of the block of x; data: address of the first of them. */
void bt_tensor_slices(const bt_tensor *x, const char *state, float *data, bt_range r,
                      bt_slices *out);
void bt_tensor_slices_in(const bt_tensor *x, const char *state, void *data, bt_moment_form form,
                         bt_range r, bt_slices *out);

#endif
