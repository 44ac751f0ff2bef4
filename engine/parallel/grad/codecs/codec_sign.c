/* codec_sign.c - the signs of gradients, in blocks of 256, each with its own scale, with error feedback: v = x +
 * e; c = mean|v| sign(v); e becomes v - c (1-bit Adam, arXiv:2102.02888; the mean magnitude is the scale of least
 * error). 1.125 bits per gradient. A zero has a sign as well: a block of zeros has the scale zero and decodes to
 * zeros; otherwise error feedback corrects it. Sums are encoded by codec_ternary.c: signs of sums of signs have
 * several times as much noise.
 *
 *     payload   | scale, fp32, of each block | sign, a bit of each gradient: 1 is minus |
 *
 * A block with an infinity or a NaN becomes all NaN, and its state is unchanged. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/codec.h"
#include "engine/parallel/grad/codecs/block_scale.h"

enum { BLOCK = 256 };

static size_t sign_blocks(size_t n) { return (n + BLOCK - 1) / BLOCK; }
static size_t sign_bound(size_t n) { return sign_blocks(n) * sizeof(float) + (n + 7) / 8; }

/* Byte i of eight, each 0 or 1, becomes bit i: the product moves it to bit 56 + i. */
static unsigned char pack_eight_bits(const unsigned char *ones) {
    uint64_t bytes;
    memcpy(&bytes, ones, sizeof bytes);
    return (unsigned char)(bytes * UINT64_C(0x0102040810204080) >> 56);
}

static void sign_encode_block(unsigned char *bits, const float *v, float *owed, size_t n,
                              float scale) {
    unsigned char minus[BLOCK + 8] = {0};
    for (size_t k = 0; k < n; k++) {
        owed[k] = v[k] - (v[k] < 0 ? -scale : scale);
        minus[k] = v[k] < 0;
    }
    for (size_t k = 0; k < n; k += 8) bits[k / 8] = pack_eight_bits(minus + k);
}

static size_t sign_encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *scales = payload, *bits = scales + sign_blocks(n) * sizeof(float);
    float *owed = state, v[BLOCK];
    memset(bits, 0, (n + 7) / 8);
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        float scale = bt_block_mean(v, x + i, owed + i, m);
        memcpy(scales + i / BLOCK * sizeof scale, &scale, sizeof scale);
        if (scale == scale) sign_encode_block(bits + i / 8, v, owed + i, m, scale);
    }
    return sign_bound(n);
}

#define MINUS(bit) ((bit) ? UINT32_C(0x80000000) : 0)
#define FOUR(n) \
    { MINUS((n)&1), MINUS((n)&2), MINUS((n)&4), MINUS((n)&8) }
/* sign bits of four gradients */
static const uint32_t minus_of[16][4] = {FOUR(0),  FOUR(1),  FOUR(2),  FOUR(3), FOUR(4),  FOUR(5),
                                         FOUR(6),  FOUR(7),  FOUR(8),  FOUR(9), FOUR(10), FOUR(11),
                                         FOUR(12), FOUR(13), FOUR(14), FOUR(15)};

/* Decodes the whole block that begins at element i; elements beyond the last one are included. */
static void sign_decode_block(float y[BLOCK], const unsigned char *payload, size_t n, size_t i) {
    const unsigned char *bits = payload + sign_blocks(n) * sizeof(float) + i / 8;
    const size_t bytes = (bt_min_size(BLOCK, n - i) + 7) / 8;
    uint32_t scale, signed_scale[8];
    memcpy(&scale, payload + i / BLOCK * sizeof scale, sizeof scale);
    for (size_t k = 0; k < bytes; k++) {
        for (size_t e = 0; e < 4; e++) signed_scale[e] = scale ^ minus_of[bits[k] & 15][e];
        for (size_t e = 0; e < 4; e++) signed_scale[4 + e] = scale ^ minus_of[bits[k] >> 4][e];
        memcpy(y + 8 * k, signed_scale, sizeof signed_scale);
    }
}

static bool sign_decode(float *x, size_t n, const void *payload, size_t bytes) {
    float y[BLOCK];
    if (bytes != sign_bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        sign_decode_block(y, payload, n, i);
        memcpy(x + i, y, bt_min_size(BLOCK, n - i) * sizeof *y);
    }
    return true;
}

static bool sign_decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    float y[BLOCK];
    if (bytes != sign_bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        sign_decode_block(y, payload, n, i);
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
    .back = &bt_codec_ternary,
    .bound = sign_bound,
    .encode = sign_encode,
    .decode = sign_decode,
    .decode_add = sign_decode_add,
};
