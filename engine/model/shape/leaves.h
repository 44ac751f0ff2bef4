/* leaves.h - the leaves of a model: equal parts of its heads, feed-forward width, vocabulary and rows, whose partial
 * sums are added as a tree (reproducible training). Each tensor-parallel rank has a whole branch of the tree, so that
 * the sums have the same bits in every tensor-parallel size.
 * Threads: any; pure functions. */
#ifndef BT_ENGINE_MODEL_SHAPE_LEAVES_H
#define BT_ENGINE_MODEL_SHAPE_LEAVES_H

#include "engine/model/shape/params.h"

enum { BT_LEAVES_MAX = 64, BT_LEAVES_AUTO = 8 };

/* Returns true if the model can be divided into n equal leaves (whose vocabularies may differ by one token), and each
 * kv head is
 * in one leaf or is shared evenly. */
bool bt_leaves_fit(const bt_model_cfg *whole, int n);
/* Returns the largest power of two up to BT_LEAVES_AUTO that fits. */
int bt_leaves_auto(const bt_model_cfg *whole);
/* Returns true if each of `ranks` ranks can have a whole branch of the tree: 1, 2, 4, ... leaves; or all. */
bool bt_leaves_divide(int leaves, int ranks);

/* Returns the number of leaves in a slice, of `leaves` in the whole model; at least 1. */
static inline size_t bt_slice_leaves(bt_model_slice slice, int leaves) {
    return leaves > 1 ? (size_t)(leaves / (slice.tp_size > 1 ? slice.tp_size : 1)) : 1;
}

/* Returns the first kv head whose queries begin in this leaf or later: a divided head belongs to the leaf before. */
size_t bt_leaves_first_kv(const bt_model_cfg *cfg, bt_model_slice slice, int leaves, size_t leaf);
/* Returns true if leaves begin inside kv heads, so that k and v are packed separately for each head. */
bool bt_leaves_split_kv(const bt_model_cfg *cfg, bt_model_slice slice, int leaves);
/* Returns the number of arrays of dk and dv to add: several if leaves share a kv head. */
size_t bt_leaves_kv_runs(const bt_model_cfg *cfg, bt_model_slice slice, int leaves);
/* Returns the number of ranges of a weight's outputs that are packed separately, and over some of which dx can be
 * summed: one for each leaf, or whole kv heads. */
size_t bt_leaves_packed(const bt_model_cfg *cfg, bt_model_slice slice, int leaves,
                        const bt_tensor *t);

#endif
