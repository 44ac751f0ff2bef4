/* tensor_slices.h - a stretch of a tensor's block as slices of a checkpoint.
 *
 * A rank holds a block of a tensor (rows, or columns, with tensor parallelism), of which one owner
 * may hold any stretch (ZeRO). A block of columns is not contiguous in the tensor: its whole rows
 * become one slice with a stride, what is left at both ends slices of their own.
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_UPDATE_TENSOR_SLICES_H
#define BT_ENGINE_UPDATE_TENSOR_SLICES_H

#include "engine/base/range.h"
#include "engine/ckpt/state.h"
#include "engine/model/net/model.h"

/* elements [r.begin, r.end) of the block of x; data: that of the first of them */
void bt_tensor_slices(const bt_tensor *x, const char *state, float *data, bt_range r,
                      bt_slices *out);
void bt_tensor_slices_in(const bt_tensor *x, const char *state, void *data, bt_moment_form form,
                         bt_range r, bt_slices *out);

#endif
