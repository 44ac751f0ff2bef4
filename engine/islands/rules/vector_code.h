/* vector_code.h - encodes a flat array of a whole model as the bytes that hub and island exchange.
 *
 * Tensors follow one another without padding. Weight matrices are encoded by a codec of the gradient exchange
 * (parallel/grad/codec.h); tensors of one row (norm gains), and all tensors if there is no codec, are fp32. Model and
 * codec determine the length, so both ends can compute it. The code of a fragment has only the bytes of its tensors.
 * Threads: one caller; no allocation. */
#ifndef BT_ENGINE_ISLANDS_RULES_VECTOR_CODE_H
#define BT_ENGINE_ISLANDS_RULES_VECTOR_CODE_H

#include "engine/model/shape/params.h"
#include "engine/parallel/grad/codec.h"

typedef struct bt_vector_code {
    const bt_params *params; /* layout of the whole model; borrowed */
    const bt_codec *codec;   /* a codec without functions encodes as fp32 */
    size_t first, end;       /* range of tensors; end 0: all */
} bt_vector_code;

/* Selects fragment k of DiLoCo (arXiv:2501.18512): `of` runs of whole tensors with about equal numbers of elements,
 * none of them empty; `of` is at most the number of tensors. The fragment's elements in the flat array are [*begin,
 * *begin + *n), with the padding between tensors. */
void bt_vector_fragment(bt_vector_code *c, int64_t k, int64_t of, size_t *begin, size_t *n);

size_t bt_vector_bytes(const bt_vector_code *c);
/* residual: accumulated encoding error of a codec with error feedback, else NULL. Returns the number of bytes. */
size_t bt_vector_encode(const bt_vector_code *c, void *out, const float *x, float *residual);
/* Decodes into x and sets all elements outside the fragment to zero. false: not such an array. */
bool bt_vector_decode(const bt_vector_code *c, float *x, const void *bytes, size_t n);
/* Like bt_vector_decode, but leaves elements outside the fragment unchanged. */
bool bt_vector_decode_into(const bt_vector_code *c, float *x, const void *bytes, size_t n);

#endif
