/* codec_sign.c - the signs of gradients, in blocks of 256 under a scale of their own, with error
 * feedback: v = x + e; c = mean|v| sign(v); e becomes v - c (1-bit Adam, arXiv:2102.02888; the mean
 * magnitude is the scale that loses least). 1.125 bits a gradient. A zero has a sign as well: where a
 * whole block is zero, its scale is, and zeros arrive; elsewhere error feedback repays it.
 *
 *     payload   | scale, fp32, of each block | sign, a bit of each gradient: 1 is minus |
 *
 * A block with an infinity or a NaN becomes NaN as a whole, and its state stays. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/codec.h"

enum { BLOCK = 256 };

static size_t blocks(size_t n) { return (n + BLOCK - 1) / BLOCK; }
static size_t bound(size_t n) { return blocks(n) * sizeof(float) + (n + 7) / 8; }

/* the block's values with what is owed, and their mean magnitude */
static float scale_of(float *v, const float *x, const float *owed, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) v[i] = x[i] + owed[i];
    for (size_t i = 0; i < n; i++) sum += (double)fabsf(v[i]);
    return isfinite(sum) ? (float)(sum / (double)n) : NAN;
}

static void encode_block(unsigned char *bits, const float *v, float *owed, size_t n, float scale) {
    for (size_t k = 0; k < n; k++) owed[k] = v[k] - (v[k] < 0 ? -scale : scale);
    for (size_t k = 0; k < n; k += 8) {
        unsigned byte = 0;
        for (size_t i = 0; i < 8 && k + i < n; i++) byte |= (unsigned)(v[k + i] < 0) << i;
        bits[k / 8] = (unsigned char)byte;
    }
}

static size_t encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *scales = payload, *bits = scales + blocks(n) * sizeof(float);
    float *owed = state, v[BLOCK];
    memset(bits, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        float scale = scale_of(v, x + i, owed + i, m);
        memcpy(scales + i / BLOCK * sizeof scale, &scale, sizeof scale);
        if (scale == scale) encode_block(bits + i / 8, v, owed + i, m, scale);
    }
    return bound(n);
}

/* m values of the block that begins at element i */
static void decode_block(float *y, const unsigned char *payload, size_t n, size_t i, size_t m) {
    const unsigned char *bits = payload + blocks(n) * sizeof(float);
    float scale;
    memcpy(&scale, payload + i / BLOCK * sizeof scale, sizeof scale);
    for (size_t k = 0; k < m; k += 8) {
        unsigned byte = bits[(i + k) / 8];
        for (size_t b = 0; b < 8 && k + b < m; b++) y[k + b] = byte >> b & 1 ? -scale : scale;
    }
}

static bool decode(float *x, size_t n, const void *payload, size_t bytes) {
    if (bytes != bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK)
        decode_block(x + i, payload, n, i, bt_min_size(BLOCK, n - i));
    return true;
}

static bool decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    float y[BLOCK];
    if (bytes != bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        decode_block(y, payload, n, i, m);
        for (size_t k = 0; k < m; k++) into[i + k] += y[k];
    }
    return true;
}

const bt_codec bt_codec_sign = {
    .name = "sign",
    .state_bytes = sizeof(float),
    .sealed = true,
    .warms_up = true,
    .holds_variance = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
