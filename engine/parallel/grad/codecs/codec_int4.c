/* codec_int4.c - gradients, or what own steps changed (engine/islands), as 4-bit integers in blocks of 128
 * under a scale of their own, with error feedback: v = x + e; q = round(v 7 / max|v|); e becomes
 * v - q max|v| / 7. 4.25 bits an element. A value is off by half a step of its block at most, and the next
 * encoding sends what it was off. Blocks are half as long as int8's: one large value spoils fewer others.
 *
 *     payload   | scale, fp32 | 64 bytes of two q, the first in the low bits, two's complement | scale | ...
 *
 * A block with an infinity or a NaN becomes NaN as a whole, and its state stays. */
#include <stdint.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/codec.h"
#include "engine/parallel/grad/codecs/block_scale.h"

enum { BLOCK = 128 };

/* added to a float below 2^22 it leaves the rounded integer (half to even) in the low bits */
#define ROUNDER 12582912.0f

static size_t block_bytes(size_t n) { return sizeof(float) + (n + 1) / 2; }

static size_t bound(size_t n) {
    return n / BLOCK * block_bytes(BLOCK) + (n % BLOCK ? block_bytes(n % BLOCK) : 0);
}

static void encode_block(unsigned char *bytes, const float *v, float *owed, size_t n, float scale) {
    const float over = scale > 0 ? 1 / scale : 0;
    unsigned char q[BLOCK + 1] = {0};
    for (size_t i = 0; i < n; i++) {
        const float shifted = v[i] * over + ROUNDER;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        q[i] = (unsigned char)(bits & 0xf);
        owed[i] = v[i] - (shifted - ROUNDER) * scale;
    }
    for (size_t i = 0; i < n; i += 2) bytes[i / 2] = (unsigned char)(q[i] | q[i + 1] << 4);
}

static size_t encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *to = payload;
    float *owed = state, v[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        const float scale = bt_block_scale(v, x + i, owed + i, m, 7.0f);
        memcpy(to, &scale, sizeof scale);
        if (scale == scale)
            encode_block(to + sizeof scale, v, owed + i, m, scale);
        else
            memset(to + sizeof scale, 0, (m + 1) / 2);
        to += block_bytes(m);
    }
    return bound(n);
}

/* of an element of the block at `from` */
static inline float value(const unsigned char *from, size_t k, float scale) {
    const int q = from[sizeof(float) + k / 2] >> (k % 2 * 4) & 0xf;
    return (float)((q ^ 8) - 8) * scale;
}

static bool decode(float *x, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    if (bytes != bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        float scale;
        memcpy(&scale, from, sizeof scale);
        for (size_t k = 0; k < m; k++) x[i + k] = value(from, k, scale);
        from += block_bytes(m);
    }
    return true;
}

static bool decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    if (bytes != bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        float scale;
        memcpy(&scale, from, sizeof scale);
        for (size_t k = 0; k < m; k++) into[i + k] += value(from, k, scale);
        from += block_bytes(m);
    }
    return true;
}

const bt_codec bt_codec_int4 = {
    .name = "int4",
    .state_bytes = sizeof(float),
    .sealed = true,
    .warms_up = true,
    .bound = bound,
    .encode = encode,
    .decode = decode,
    .decode_add = decode_add,
};
