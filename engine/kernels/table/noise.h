/* noise.h - stochastic rounding of gradients to int8, the same on every kernel set: q = floor(v + u), u uniform in
 * [0, 1), so that the expected q is v. u has 8 bits; v is rounded to nearest in steps of 1/256 first, so the bias
 * is below 2^-9 of a step.
 *
 * u is a function of (row key, salt, column) alone. A row key represents a token of the global batch in one step,
 * the salt a tensor: the noise does not depend on threads, blocking or kernel set. A 32-bit word gives four
 * values:
 *     dx (rows of dy):     word of (row m, lane n / 64 * 16 + n % 16), byte n / 16 % 4
 *     dw (columns of dy):  word of (row m / 4 * 4, lane first + n), salt flipped, byte m % 4 */
#ifndef BT_ENGINE_KERNELS_TABLE_NOISE_H
#define BT_ENGINE_KERNELS_TABLE_NOISE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct bt_noise {
    const uint32_t *rows; /* (rows) a key for each row */
    uint32_t salt;
    uint32_t first; /* dw: number of the first output in its tensor */
} bt_noise;

/* number of tokens that share a scale in tern_dw8 */
enum { BT_GRAD_BLOCK = 512 };

#define BT_NOISE_DW 0x5bd1e995u /* inverts bits of the salt for dw */
#define BT_NOISE_LANE 0x9e3779b9u
#define BT_NOISE_MUL1 0x7feb352du /* C. Wellons, lowbias32 */
#define BT_NOISE_MUL2 0x846ca68bu

static inline uint32_t bt_noise_word(uint32_t key, uint32_t lane) {
    uint32_t x = key + lane * BT_NOISE_LANE;
    x = (x ^ x >> 16) * BT_NOISE_MUL1;
    x = (x ^ x >> 15) * BT_NOISE_MUL2;
    return x ^ x >> 16;
}

/* u: 0 .. 255; |v| <= 127 */
static inline int bt_noise_round(float v, uint32_t u) {
    return ((int)rintf(v * 256.0f) + (int)u) >> 8;
}

/* Maximum of `top` and |x|, as bits. NaN is larger than all numbers, so it is preserved. */
static inline uint32_t bt_noise_absmax(uint32_t top, float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    bits &= 0x7fffffffu;
    return bits > top ? bits : top;
}
#define BT_NOISE_LEAST \
    0x0da24260u /* bits of 1e-30f, the smallest absmax used, which keeps 127 / absmax finite */

static inline float bt_noise_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

#endif
