/* codec_bf16.c - gradients rounded to bf16, half to even: half the bytes. The error of a value is at most 2^-8 of
 * it (8 significant bits), or 2^-134 if it is subnormal. Infinities and NaN are preserved, and a value that rounds
 * above the largest bf16 becomes infinite. No error feedback: the rounding error of a step is far below the noise
 * of a batch. The layout determines which sums are rounded, so the codec is not order-exact. The bits are the same
 * on every kernel set. */
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/codec.h"

/* number of elements that are decoded before they are added; they fit in the first-level cache */
enum { BLOCK = 1024 };

static size_t bf16_bound(size_t n) { return n * sizeof(uint16_t); }

static size_t bf16_encode(void *payload, const float *x, size_t n, void *state) {
    (void)state;
    bt_active_kernels()->to_bf16(payload, x, n);
    return bf16_bound(n);
}

static bool bf16_decode(float *x, size_t n, const void *payload, size_t bytes) {
    if (bytes != bf16_bound(n)) return false;
    bt_active_kernels()->from_bf16(x, payload, n);
    return true;
}

static bool bf16_decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    const uint16_t *from = payload;
    float block[BLOCK];
    if (bytes != bf16_bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        bt_active_kernels()->from_bf16(block, from + i, m);
        bt_active_kernels()->add(into + i, block, m);
    }
    return true;
}

const bt_codec bt_codec_bf16 = {
    .name = "bf16",
    .bound = bf16_bound,
    .encode = bf16_encode,
    .decode = bf16_decode,
    .decode_add = bf16_decode_add,
};
