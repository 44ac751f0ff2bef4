/* decoder.h - forward passes over many sequences at once, each of which has its own key-value cache.
 *
 * A step processes tokens of several sequences: one token of each that is being written, many of a prompt that is being
 * read. Their rows pass through the layers together, so that weights are read once per step. Only attention is separate
 * for each sequence.
 *
 * Order:    create -> { step }* -> destroy; clear removes a sequence. The model must be quantised (bt_model_quantise)
 *           after the last change of its weights and before create, which copies the head as bf16 if products round it
 *           to bf16. The model is borrowed and its activations are overwritten, so no step may occur between forward
 *           and backward. A model created without training stores its ternary weights in 2 bits for single rows; one
 *           that trains decodes more slowly.
 * Owns:     one arena: keys and values (slots, L, T, KV*D) each, attention weights. The memory of a slot is touched
 *           when it is first used.
 * Ensemble: if the model has members (bt_model_add_member), each has its own cache of every slot, and the logits are
 *           logarithms of mean probabilities.
 * Rotation: with BT_ROPE_LONGROPE the length of a text decides its rotary frequencies. A text that becomes longer than
 *           the length at which they change is computed again from its beginning, as in transformers; so is one that
 *           was rewound below it.
 * Exact:    logits equal those of the training's forward pass within fp32 rounding, whatever else the step contains.
 * Threads:  the training thread; kernels split over the pool. No allocation after create. */
#ifndef BT_ENGINE_MODEL_NET_DECODER_H
#define BT_ENGINE_MODEL_NET_DECODER_H

#include "engine/model/net/model.h"

typedef struct bt_decoder bt_decoder;

typedef enum { BT_LOGITS_NONE, BT_LOGITS_LAST, BT_LOGITS_ALL } bt_logits_want;

typedef struct bt_decode_part { /* tokens of one slot in a step; a slot may occur once */
    int slot;
    const int32_t *tokens; /* (n) n >= 1, borrowed */
    size_t n;
    bt_logits_want want;
    /* length of the text so far as it is known, if this step computes only a part of it (bt_rope_scaling) */
    size_t known;
} bt_decode_part;

/* Called with the logits (V) after token i of part p, in order. They are valid during the call. */
typedef void (*bt_logits_fn)(void *ctx, size_t p, size_t i, const float *logits);

bt_code bt_decoder_create(bt_decoder **out, bt_model *m, int slots, bt_err *err) BT_MUST_CHECK;
void bt_decoder_destroy(bt_decoder *d);
/* Returns the bytes of a slot with a full context. */
size_t bt_decoder_slot_bytes(const bt_model *m);
size_t bt_decoder_length(const bt_decoder *d, int slot); /* number of tokens in the slot's cache */
/* Returns the minimum number of weight bytes that a step reads: the ternary layers in 2 bits, and the head. */
void bt_decoder_weight_bytes(const bt_decoder *d, size_t *ternary, size_t *head);
void bt_decoder_clear(bt_decoder *d, int slot);
/* Removes all but the first `keep` <= length tokens. */
void bt_decoder_rewind(bt_decoder *d, int slot, size_t keep);
/* Returns the maximum number of rows of a step, over all parts: B T of the model. */
size_t bt_decoder_rows(const bt_decoder *d);
/* Preconditions: every slot has room for its tokens (bt_decoder_length + n <= T), tokens are in the vocabulary, and the
 * rows fit. fn may be NULL if no part requests logits. */
void bt_decoder_step(bt_decoder *d, const bt_decode_part *parts, size_t n, bt_logits_fn fn,
                     void *ctx);

#endif
