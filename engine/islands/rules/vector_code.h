/* vector_code.h - a flat array of a whole model as the bytes that travel between hub and island.
 *
 * Tensor after tensor, without the padding: weight matrices by a codec of the gradient exchange
 * (parallel/grad/codec.h), tensors of one row (norm gains) and everything without a codec as fp32. Which
 * bytes are whose follows from the model and the codec alone, so both ends know the length.
 * A code of a fragment has the bytes of its tensors alone.
 * Threads: one caller; no allocation. */
#ifndef BT_ENGINE_ISLANDS_RULES_VECTOR_CODE_H
#define BT_ENGINE_ISLANDS_RULES_VECTOR_CODE_H

#include "engine/model/shape/params.h"
#include "engine/parallel/grad/codec.h"

typedef struct bt_vector_code {
    const bt_params *params; /* of the whole model; borrowed */
    const bt_codec *codec;   /* one without functions: fp32 */
    size_t first, end;       /* tensors; end 0: all */
} bt_vector_code;

/* DiLoCo's fragments (arXiv:2501.18512): `of` runs of whole tensors, of about equal elements and none empty;
 * `of` is at most the number of tensors. Elements [*begin, *begin + *n) of the flat array are its */
void bt_vector_fragment(bt_vector_code *c, int64_t k, int64_t of, size_t *begin, size_t *n);

/* What of these tensors belongs to process k of a hub of `of` processes, whose runs are cut as fragments are;
 * first == end: nothing */
void bt_vector_part(bt_vector_code *c, int64_t k, int64_t of);
/* how many elements of the flat array, padding between its tensors included, from *begin on */
size_t bt_vector_elements(const bt_vector_code *c, size_t *begin);

size_t bt_vector_bytes(const bt_vector_code *c);
/* x: (params.total). residual: (params.total) what earlier encodings lost, for a codec with error
 * feedback; NULL otherwise. Returns the bytes */
size_t bt_vector_encode(const bt_vector_code *c, void *out, const float *x, float *residual);
/* into x, whose other elements become zero; false: these bytes are no such array */
bool bt_vector_decode(const bt_vector_code *c, float *x, const void *bytes, size_t n);
/* the same, and the other elements stay as they are */
bool bt_vector_decode_into(const bt_vector_code *c, float *x, const void *bytes, size_t n);

#endif
