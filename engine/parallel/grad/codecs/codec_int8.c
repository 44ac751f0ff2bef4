/* codec_int8.c - gradients as int8 in blocks of 256, each with its own scale, with error feedback: v = x + e; q =
 * round(v 127 / max|v|); e becomes v - q max|v| / 127 (numerics: the error-feedback scheme of 1-bit SGD, Seide et
 * al. 2014, with 8 bits). 8.125 bits per gradient. The error of a value is at most half a quantization step of its
 * block, and is added to the next gradient.
 *
 *     payload   | scale, fp32, of each block | q, int8, of each gradient |
 *
 * A block with an infinity or a NaN becomes all NaN, and its state is unchanged: all ranks must detect a step that
 * overflows, and it must not affect later steps. */
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/codec.h"
#include "engine/parallel/grad/codecs/block_scale.h"

enum { BLOCK = 256 };

/* Adding this number to a float below 2^22 leaves the rounded integer (ties to even) in the low bits. */
#define ROUNDER 12582912.0f

static size_t int8_blocks(size_t n) { return (n + BLOCK - 1) / BLOCK; }
static size_t int8_bound(size_t n) { return int8_blocks(n) * sizeof(float) + n; }

static void int8_encode_block(int8_t *q, const float *v, float *owed, size_t n, float scale) {
    float over = scale > 0 ? 1 / scale : 0;
    for (size_t i = 0; i < n; i++) {
        float shifted = v[i] * over + ROUNDER;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        q[i] = (int8_t)(bits & 0xff);
        owed[i] = v[i] - (shifted - ROUNDER) * scale;
    }
}

static size_t int8_encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *scales = payload;
    int8_t *q = (int8_t *)payload + int8_blocks(n) * sizeof(float);
    float *owed = state, v[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        float scale = bt_block_scale(v, x + i, owed + i, m, 127.0f);
        memcpy(scales + i / BLOCK * sizeof scale, &scale, sizeof scale);
        if (scale == scale)
            int8_encode_block(q + i, v, owed + i, m, scale);
        else
            memset(q + i, 0, m);
    }
    return int8_bound(n);
}

static float scale_at(const void *payload, size_t i) {
    float scale;
    memcpy(&scale, (const unsigned char *)payload + i / BLOCK * sizeof scale, sizeof scale);
    return scale;
}

static bool int8_decode(float *x, size_t n, const void *payload, size_t bytes) {
    const int8_t *q = (const int8_t *)payload + int8_blocks(n) * sizeof(float);
    if (bytes != int8_bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        float scale = scale_at(payload, i);
        for (size_t k = i, end = bt_min_size(i + BLOCK, n); k < end; k++)
            x[k] = (float)q[k] * scale;
    }
    return true;
}

static bool int8_decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    const int8_t *q = (const int8_t *)payload + int8_blocks(n) * sizeof(float);
    if (bytes != int8_bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        float scale = scale_at(payload, i);
        for (size_t k = i, end = bt_min_size(i + BLOCK, n); k < end; k++)
            into[k] += (float)q[k] * scale;
    }
    return true;
}

const bt_codec bt_codec_int8 = {
    .name = "int8",
    .state_bytes = sizeof(float),
    .sealed = true,
    .reproducible = &bt_codec_exact,
    .bound = int8_bound,
    .encode = int8_encode,
    .decode = int8_decode,
    .decode_add = int8_decode_add,
};
