/* quantised.c - converts blocks of llama.cpp's quantised types to floats.
 *
 *     Q4_0, Q5_0   32: fp16 d, [4 bytes of fifth bits], 16 bytes of two elements: x = d (q - 8 or 16)
 *     Q4_1, Q5_1   32: fp16 d, fp16 m, likewise: x = d q + m
 *     Q2_K to Q6_K 256, in groups of 16 or 32 with an integer scale (and minimum) each: x = d scale q - dmin minimum
 *
 *     I2_S         128, of bitnet.cpp: byte j holds codes j, 32 + j, 64 + j, 96 + j from the upper bits on, 0, 1, 2
 *                  for -1, 0, 1. The scale of the tensor follows its codes (gguf.c)
 *
 *     Q2_0         64: fp16 d, then two bits for each element q in order, the first ones in the lower bits:
 *                  x = d (q - 1); 128 in files of PrismML's fork of llama.cpp, under the same number (gguf.c)
 *     Q1_0         128: fp16 d, then one bit for each element likewise: x = d (2 q - 1)
 *
 * Values equal those of the function `dequantize` of the package gguf (tests/engine/interop). */
#include "engine/interop/formats/quantised.h"

#include <string.h>

#include "engine/kernels/table/half.h"

enum { SMALL = 32, K = 256 };

static float half_at(const unsigned char *p) {
    return bt_half_to_float((uint16_t)(p[0] | p[1] << 8));
}

/* Decodes Q4_0, Q4_1, Q5_0 and Q5_1. fifth: the fifth bits of 32 elements; 0 for types of 4 bits. */
static void decode_nibbles(float *y, const unsigned char *q, uint32_t fifth, float d, float add,
                           int zero) {
    for (int j = 0; j < 16; j++) {
        const int low = (q[j] & 15) | (int)(fifth >> j & 1) << 4,
                  high = q[j] >> 4 | (int)(fifth >> (j + 16) & 1) << 4;
        y[j] = (float)(low - zero) * d + add;
        y[j + 16] = (float)(high - zero) * d + add;
    }
}

static uint32_t u32_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void q4_0(float *y, const unsigned char *b) {
    decode_nibbles(y, b + 2, 0, half_at(b), 0, 8);
}
static void q4_1(float *y, const unsigned char *b) {
    decode_nibbles(y, b + 4, 0, half_at(b), half_at(b + 2), 0);
}
static void q5_0(float *y, const unsigned char *b) {
    decode_nibbles(y, b + 6, u32_at(b + 2), half_at(b), 0, 16);
}
static void q5_1(float *y, const unsigned char *b) {
    decode_nibbles(y, b + 8, u32_at(b + 4), half_at(b), half_at(b + 2), 0);
}

static void q2_k(float *y, const unsigned char *b) {
    const unsigned char *scales = b, *q = b + 16;
    const float d = half_at(b + 80), least = half_at(b + 82);
    for (int i = 0; i < K; i++) { /* two halves of 128 elements, four shifts, groups of 16 */
        const int half = i / 128, shift = i % 128 / 32 * 2, s = scales[i / 16];
        y[i] = d * (float)(s & 15) * (float)(q[32 * half + i % 32] >> shift & 3) -
               least * (float)(s >> 4);
    }
}

/* Returns scale i of 16, of 6 bits: the lower four bits of scales 0..7 and 8..15 are in 8 bytes, the others in 4. */
static int unpack_q3_scale(const unsigned char *p, int i) {
    const int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4, high = p[8 + i % 4] >> (i / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

static void q3_k(float *y, const unsigned char *b) {
    const unsigned char *mask = b, *q = b + 32, *scales = b + 96;
    const float d = half_at(b + 108);
    for (int i = 0; i < K; i++) {
        const int half = i / 128, shift = i % 128 / 32 * 2, bit = i / 32;
        const int low = q[32 * half + i % 32] >> shift & 3, high = mask[i % 32] >> bit & 1;
        y[i] = d * (float)unpack_q3_scale(scales, i / 16) * (float)(low - (high ? 0 : 4));
    }
}

/* Reads the scale and the minimum, 6 bits each, of group i of 8. */
static void unpack_q4_scale(const unsigned char *p, int i, int *scale, int *least) {
    *scale = i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
    *least = i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4;
}

/* Decodes a block of Q4_K or Q5_K. high: the fifth bit of each element; NULL for Q4_K. */
static void decode_q4_or_q5(float *y, const unsigned char *b, const unsigned char *high,
                            const unsigned char *q) {
    const float d = half_at(b), dmin = half_at(b + 2);
    for (int g = 0; g < 8; g++) {
        int scale, least;
        unpack_q4_scale(b + 4, g, &scale, &least);
        const float by = d * (float)scale, minus = dmin * (float)least;
        for (int l = 0; l < 32; l++) {
            const int low = q[g / 2 * 32 + l] >> (g % 2 * 4) & 15,
                      fifth = high ? (high[l] >> g & 1) << 4 : 0;
            y[32 * g + l] = by * (float)(low + fifth) - minus;
        }
    }
}

static void q4_k(float *y, const unsigned char *b) { decode_q4_or_q5(y, b, NULL, b + 16); }
static void q5_k(float *y, const unsigned char *b) { decode_q4_or_q5(y, b, b + 16, b + 48); }

static void q6_k(float *y, const unsigned char *b) {
    const float d = half_at(b + 208);
    for (int i = 0; i < K; i++) {
        const int half = i / 128, part = i % 128 / 32, l = i % 32;
        const unsigned char low = b[64 * half + part % 2 * 32 + l], high = b[128 + 32 * half + l];
        const int q = ((part < 2 ? low & 15 : low >> 4) | (high >> 2 * part & 3) << 4) - 32;
        y[i] = d * (float)(signed char)b[192 + i / 16] * (float)q;
    }
}

static void decode_q2_0(float *y, const unsigned char *b, int n) {
    const float d = half_at(b);
    for (int i = 0; i < n; i++) y[i] = d * (float)((int)(b[2 + i / 4] >> i % 4 * 2 & 3) - 1);
}
static void q2_0(float *y, const unsigned char *b) { decode_q2_0(y, b, 64); }
static void q2_0_128(float *y, const unsigned char *b) { decode_q2_0(y, b, 128); }

static void q1_0(float *y, const unsigned char *b) {
    const float d = half_at(b);
    for (int i = 0; i < 128; i++) y[i] = b[2 + i / 8] >> i % 8 & 1 ? d : -d;
}

/* The code 3 is invalid. */
static bool i2_s(float *y, const unsigned char *b, size_t n) {
    unsigned wrong = 0;
    for (size_t i = 0; i < n; i++) {
        const unsigned q = b[i / 128 * 32 + i % 32] >> (6 - i % 128 / 32 * 2) & 3u;
        wrong |= q == 3;
        y[i] = (float)q - 1.0f;
    }
    return !wrong;
}

bool bt_quantised_decode(bt_number t, float *out, const unsigned char *in, size_t n) {
    static void (*const blocks[BT_NUM_COUNT])(float *, const unsigned char *) = {
        [BT_NUM_Q1_0] = q1_0, [BT_NUM_Q2_0] = q2_0, [BT_NUM_Q2_0_128] = q2_0_128,
        [BT_NUM_Q4_0] = q4_0, [BT_NUM_Q4_1] = q4_1, [BT_NUM_Q5_0] = q5_0,
        [BT_NUM_Q5_1] = q5_1, [BT_NUM_Q2_K] = q2_k, [BT_NUM_Q3_K] = q3_k,
        [BT_NUM_Q4_K] = q4_k, [BT_NUM_Q5_K] = q5_k, [BT_NUM_Q6_K] = q6_k};
    const bt_number_row *row = bt_number_at(t);
    if (t == BT_NUM_I2_S) return i2_s(out, in, n);
    if (!blocks[t]) return false;
    for (size_t i = 0; i < n; i += row->block, in += row->bytes) blocks[t](out + i, in);
    return true;
}
