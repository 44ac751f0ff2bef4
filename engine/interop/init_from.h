/* init_from.h - the initial weights of a training from a checkpoint with another shape or a model of another program.
 * Threads: one caller, which has the thread pool. */
#ifndef BT_ENGINE_INTEROP_INIT_FROM_H
#define BT_ENGINE_INTEROP_INIT_FROM_H

#include "engine/interop/model_file.h"

/* Checks that the file has every matrix of the model, in its shape (otherwise BT_ARG, with its name). notes: one line
 * each for
 * norms that are missing and begin at one, for tensors that the model does not have, and for settings that differ. */
bt_code bt_init_from_check(bt_model_file *s, const bt_model_cfg *model, bt_text *notes, bt_err *err)
    BT_MUST_CHECK;
/* slices: the parts of weights that this rank holds. Those that the file does not have keep their values. */
bt_code bt_init_from_fill(bt_model_file *s, const bt_ckpt_slice *slices, size_t n, bt_err *err)
    BT_MUST_CHECK;

#endif
