/* payload.h - encodes a range of the gradient array as the bytes of one message.
 *
 * A codec that is not sealed encodes the range as it is. A sealed payload is
 *
 *     | hash of the rest, 4 bytes | length of the rest, 4 bytes | tensor | tensor | ...
 *
 * With error feedback it is cut at tensors, so that blocks with a common scale are in one tensor, and the padding
 * between tensors (zeros) is not sent. Each tensor is encoded, or is plain: fp32. Norm gains are plain, because
 * they are few, and so are all tensors replicated over tensor-parallel ranks: their copies must be equal, and
 * blocks would mix them with different neighbours. A lossless codec encodes the whole range as one tensor.
 * A payload that is truncated, or whose hash (XXH3) differs, is refused before anything is added.
 * Threads: pure. Private to engine/parallel; tables of tensors are made by config/rank_setup.h. */
#ifndef BT_ENGINE_PARALLEL_GRAD_PAYLOAD_H
#define BT_ENGINE_PARALLEL_GRAD_PAYLOAD_H

#include "engine/base/range.h"
#include "engine/parallel/grad/codec.h"

typedef struct bt_payload_tensor {
    bt_range range; /* elements of the flat array */
    bool plain;     /* sent as fp32 */
} bt_payload_tensor;

/* determines the form of payloads; the tensors are ascending and disjoint; none: the array is one tensor. Borrowed */
typedef struct bt_payload_form {
    const bt_codec *codec;
    const bt_payload_tensor *tensors;
    size_t n_tensors;
} bt_payload_form;

/* Returns the payload format of sums. */
bt_payload_form bt_payload_form_back(const bt_payload_form *f);
/* Returns the maximum size of a payload of the elements of r. */
size_t bt_payload_bound(const bt_payload_form *f, bt_range r);
/* x: value of element r.begin; state: that of the whole array; NULL: none. Returns the payload's size. */
size_t bt_payload_encode(const bt_payload_form *f, void *payload, const float *x, bt_range r,
                         void *state);
/* Returns false, with x unchanged, if these bytes are not a payload of r. */
bool bt_payload_decode(const bt_payload_form *f, float *x, bt_range r, const void *payload,
                       size_t bytes);
bool bt_payload_decode_add(const bt_payload_form *f, float *into, bt_range r, const void *payload,
                           size_t bytes);

#endif
