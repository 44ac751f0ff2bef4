/* acts.h - the activations of one layer, planned from acts.def into one arena.
 *
 * Order:    plan (adds to the arena) -> commit by the caller -> point (fills one bt_acts per layer).
 * Layout:   saved rows get one buffer per layer of a chunk and pass in flight (layer l of a chunk in
 *           chunk_L*slot + l, whichever chunk), shared rows one that every layer's struct points to. */
#ifndef BT_ENGINE_MODEL_NET_ACTS_H
#define BT_ENGINE_MODEL_NET_ACTS_H

#include "engine/base/arena.h"
#include "engine/model/net/model.h"
#include "engine/model/shape/config.h"

typedef struct bt_acts {
#define BT_ACTV(field, type, rows, cols, when, keep, what) type *field;
#include "engine/model/net/acts.def"
#undef BT_ACTV
} bt_acts;

enum {
    BT_ACTS_FIELDS = 0
#define BT_ACTV(field, type, rows, cols, when, keep, what) +1
#include "engine/model/net/acts.def"
#undef BT_ACTV
};

typedef struct bt_acts_plan {
    size_t first[BT_ACTS_FIELDS];  /* offset of layer 0's buffer */
    size_t stride[BT_ACTS_FIELDS]; /* bytes from layer to layer, 0 when shared */
    bool present[BT_ACTS_FIELDS];
} bt_acts_plan;

/* rows of one feed-forward block, so that its intermediate floats fit the cache. A multiple of BT_GLU_BLOCK, or M:
 * sums over rows use these blocks and do not depend on the number of threads */
size_t bt_acts_block(const bt_model_setup *s, size_t M);

/* Returns true if backward reads activations rounded to bf16. */
bool bt_acts_half(const bt_model_setup *s);
/* Returns true if layers share the array of their input residual, of which each saves bf16 (setup.lean). */
bool bt_acts_lean(const bt_model_setup *s);
/* Returns true if full recompute computes the feed-forward part in blocks of bt_acts_wide rows instead of whole
 * layers. */
bool bt_acts_again(const bt_model_setup *s);
/* Returns true if the gradients of gate and up are rounded to bf16; they have the same bits in every storage format. */
bool bt_acts_rounds_dy(const bt_model_setup *s);
/* rows of dgate and dup: backward processes the feed-forward part in blocks of this size */
size_t bt_acts_wide(const bt_model_setup *s, size_t M);

/* Returns the number of passes in flight, whose saved buffers are consecutive. */
size_t bt_acts_slots(const bt_model_setup *s);
void bt_acts_reserve(bt_acts_plan *p, bt_arena *arena, const bt_model_setup *s);
void bt_acts_point(bt_acts *a, const bt_acts_plan *p, const bt_arena *arena, size_t layer);

/* Stores a layer's value as bf16, if it has such a field (acts.def); backward reads it from there, or, recomputed,
 * gets the same bits. */
void bt_acts_save(uint16_t *saved, const float *x, size_t n);
void bt_acts_load(const bt_model_setup *s, float *x, const uint16_t *saved, size_t n);

#endif
