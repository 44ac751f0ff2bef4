/* base_weights.h - the frozen base of low-rank adapters: it is read from its own model file, and identified by a hash
 * of its weights.
 *
 * Order:    load -> (resume: add_state before it, check after it). The model computes with the base from load on.
 * Ranks:    load reads the file on every rank and keeps the part in the rank's slice of the model; the hash covers the
 *           whole base.
 *           The caller must compare the result and the hash of all ranks.
 * Threads:  the training thread. */
#ifndef BT_ENGINE_TUNE_BASE_WEIGHTS_H
#define BT_ENGINE_TUNE_BASE_WEIGHTS_H

#include "engine/ckpt/state.h"
#include "engine/interop/model_file.h"
#include "engine/model/net/model.h"

typedef struct bt_base_weights {
    /* The hash of every tensor of the base, and of the base with which the adapters were trained; 0: unknown. It has 53
     * bits, because checkpoints store whole numbers as JSON. */
    int64_t hash, trained_on;
    bt_model_watch watch; /* progress of load */
} bt_base_weights;

bt_code bt_base_weights_hash(bt_base_weights *b, bt_model_file *file, bt_err *err) BT_MUST_CHECK;
/* Reads the base of m from a checkpoint, a folder of Hugging Face or a GGUF file, and quantises it. Does nothing for a
 * model without adapters. notes: receives a line for each harmless difference. BT_ARG: the file contains a model with
 * another shape, or adapters. */
bt_code bt_base_weights_load(bt_base_weights *b, bt_model *m, const char *path, bt_text *notes,
                             bt_err *err) BT_MUST_CHECK;
void bt_base_weights_add_state(bt_base_weights *b, bt_state *s);
/* Returns the hash that a checkpoint of adapters records, like trained_on. */
int64_t bt_base_weights_of(const bt_ckpt_meta *m);
/* Called after a resume: BT_ARG unless the adapters were trained with this base. */
bt_code bt_base_weights_check(const bt_base_weights *b, const char *path, bt_err *err)
    BT_MUST_CHECK;

#endif
