/* payload.h - a stretch of the gradient array as the bytes of one message.
 *
 * A codec that is not sealed encodes the stretch as it is. Of a sealed one a payload is
 *
 *     | hash of what follows, 4 bytes | length of what follows, 4 bytes | tensor | tensor | ...
 *
 * With error feedback it is cut at tensors, so that blocks that share a scale lie in one tensor, and
 * the padding between tensors (zeros) does not travel. Each tensor is encoded, or is plain: fp32. Plain
 * are norm gains, which are few, and whatever several tensor-parallel ranks hold alike: their copies
 * must stay equal, and blocks would mix them with different neighbours. A codec that loses nothing
 * encodes the stretch as one.
 * A payload that is cut short, or whose hash (XXH3) differs, is refused before anything is added.
 * Threads: pure. Private to engine/parallel; tables of tensors come from config/rank_setup.h. */
#ifndef BT_ENGINE_PARALLEL_GRAD_PAYLOAD_H
#define BT_ENGINE_PARALLEL_GRAD_PAYLOAD_H

#include "engine/base/range.h"
#include "engine/parallel/grad/codec.h"

typedef struct bt_payload_tensor {
    bt_range range; /* of the flat array */
    bool plain;     /* fp32 */
} bt_payload_tensor;

/* all that decides what payloads look like; the tensors are ascending and disjoint; none: the array
 * is one tensor. Borrowed */
typedef struct bt_payload_form {
    const bt_codec *codec;
    const bt_payload_tensor *tensors;
    size_t n_tensors;
} bt_payload_form;

/* the same of sums on their way back */
bt_payload_form bt_payload_form_back(const bt_payload_form *f);
/* bytes of a payload of the elements of r, at most */
size_t bt_payload_bound(const bt_payload_form *f, bt_range r);
/* x: the value of r.begin; state: of the whole array; NULL: none. Returns the payload's bytes */
size_t bt_payload_encode(const bt_payload_form *f, void *payload, const float *x, bt_range r,
                         void *state);
/* false: these bytes are no payload of r; x is as it was */
bool bt_payload_decode(const bt_payload_form *f, float *x, bt_range r, const void *payload,
                       size_t bytes);
bool bt_payload_decode_add(const bt_payload_form *f, float *into, bt_range r, const void *payload,
                           size_t bytes);

#endif
