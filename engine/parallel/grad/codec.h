/* codec.h - how gradients are encoded on the wire: one interface; a codec is a file and a row of codec.def.
 *
 * A payload is the encoding of n gradients, a part of a bucket. The exchange encodes data between host groups
 * (exchange_route.h): on one host the gradients of every rank, on several hosts the sums of hosts, whose ranks
 * exchange fp32 among themselves. Receivers add decoded values in fp32. The owner of a sum encodes it once, sends
 * this payload to all ranks and keeps its decoded values, so that all ranks hold the same bits.
 * So a rank encodes every element of the gradient array at most once a step, either as an addend or as a sum, and
 * error feedback needs one state per element: the accumulated encoding error, which the next encoding adds
 * (update/residual.h keeps it, in checkpoints too). A payload of a codec with error feedback is cut at tensors and
 * sealed (payload.h).
 * Threads: the training thread, also from the pool's idle hook: a codec does not use the pool and does not
 *          allocate. */
#ifndef BT_ENGINE_PARALLEL_GRAD_CODEC_H
#define BT_ENGINE_PARALLEL_GRAD_CODEC_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bt_codec {
    const char *name;
    /* The order and place of encoding do not change the bits of sums of decoded values, so the codec may be used in
     * reproducible training. */
    bool order_exact;
    /* error feedback: bytes of state per element, zero at first; 0: no error feedback */
    size_t state_bytes;
    /* a payload is sealed with its length and a checksum, and cut at tensors (payload.h) */
    bool sealed;
    /* the initial error is so large that a run begins without the codec (parallel.codec_warmup) */
    bool warms_up;
    /* decoded values have little information about each gradient's magnitude, so AdamW keeps the second moment of
     * the warm-up (1-bit Adam, arXiv:2102.02888) */
    bool holds_variance;
    /* codec used instead in reproducible training; NULL: none */
    const struct bt_codec *reproducible;
    /* codec of the sums, with the same state; NULL: the codec itself. A sum contains the noise of the first encoding
     * and is encoded once for all ranks, so it deserves more bits. */
    const struct bt_codec *back;

    /* maximum size of a payload of n gradients; exact with error feedback */
    size_t (*bound)(size_t n);
    /* Returns the size of the payload. state: that of x[0]; NULL without error feedback. If several tree nodes
     * (tree_sum.h) of one part are sent, successive calls use the same state. */
    size_t (*encode)(void *payload, const float *x, size_t n, void *state);
    /* Returns false if these bytes are not a payload of n gradients. */
    bool (*decode)(float *x, size_t n, const void *payload, size_t bytes);
    bool (*decode_add)(float *into, size_t n, const void *payload, size_t bytes); /* into += */
} bt_codec;

#define BT_CODEC(id, name) BT_CODEC_##id,
typedef enum bt_codec_id {
#include "engine/parallel/grad/codec.def"
    BT_CODEC_COUNT
} bt_codec_id;
#undef BT_CODEC
#define BT_CODEC(id, name) extern const bt_codec bt_codec_##name;
#include "engine/parallel/grad/codec.def"
#undef BT_CODEC
extern const bt_codec bt_codec_exact; /* replaces int8 in reproducible training; has no row */

const bt_codec *bt_codec_at(bt_codec_id id);
/* Returns the codec that encodes sums; `id` if it has no other. */
bt_codec_id bt_codec_back(bt_codec_id id);

#endif
