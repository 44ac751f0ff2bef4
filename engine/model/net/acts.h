/* acts.h - the activations of one layer, which acts.def plans in one arena.
 *
 * Order:    plan (adds to the arena) -> the caller commits the arena -> point (fills one bt_acts for each layer).
 * Layout:   a saved value has a buffer for each layer of a chunk and each pass in flight (layer l of any chunk in
 *           buffer chunk_L*slot + l). A shared value has one buffer, to which the structs of all layers point. */
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

/* Returns the number of rows of one feed-forward block, whose intermediate floats fit the cache. It is a multiple of
 * BT_GLU_BLOCK, or M. Sums over rows use these blocks, so that they do not depend on the number of threads. */
size_t bt_acts_block(const bt_model_setup *s, size_t M);

/* Returns true if backward reads activations rounded to bf16. */
bool bt_acts_half(const bt_model_setup *s);
/* Returns true if all layers share the array of their input residual and each saves it as bf16 (setup.lean). */
bool bt_acts_lean(const bt_model_setup *s);
/* Returns true if full recompute computes the feed-forward part in blocks of bt_acts_wide rows. */
bool bt_acts_again(const bt_model_setup *s);
/* Returns true if the gradients of gate and up are rounded to bf16, in whatever format they are stored. */
bool bt_acts_rounds_dy(const bt_model_setup *s);
/* Returns the number of rows of dgate and dup: backward processes the feed-forward part in blocks of this size. */
size_t bt_acts_wide(const bt_model_setup *s, size_t M);

/* Returns the number of passes in flight, whose saved buffers follow one another. */
size_t bt_acts_slots(const bt_model_setup *s);
void bt_acts_reserve(bt_acts_plan *p, bt_arena *arena, const bt_model_setup *s);
void bt_acts_point(bt_acts *a, const bt_acts_plan *p, const bt_arena *arena, size_t layer);

/* Stores a layer's value as bf16 if it has such a field. Backward reads it there, or recomputes the same bits. */
void bt_acts_save(uint16_t *saved, const float *x, size_t n);
void bt_acts_load(const bt_model_setup *s, float *x, const uint16_t *saved, size_t n);

#endif
