/* half.h - a float rounded to the nearest fp16 value (IEEE 754 binary16, ties to even), without an
 * instruction for it. Beyond 65504 infinity, below 2^-14 multiples of 2^-24; NaN stays NaN. */
#ifndef BT_ENGINE_KERNELS_TABLE_HALF_H
#define BT_ENGINE_KERNELS_TABLE_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float bt_half(float x) {
    uint32_t bits, size;
    memcpy(&bits, &x, sizeof bits);
    size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) return x;                      /* infinity, NaN */
    if (size >= 0x477ff000u) return copysignf(INFINITY, x); /* 65520 rounds up */
    /* the sum's last bit is worth 2^-24 */
    if (size < 0x38800000u) return copysignf((fabsf(x) + 0.5f) - 0.5f, x);
    bits += 0xfffu + (bits >> 13 & 1u);
    bits &= ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
