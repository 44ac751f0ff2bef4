/* half.h - conversions between floats and fp16 (IEEE 754 binary16) or bf16 in plain C, rounded to the nearest, ties to
 * even. In fp16, magnitudes beyond 65504 become infinity, and those below 2^-14 become multiples of 2^-24. NaN is
 * preserved. Threads: any; pure functions. */
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
    /* the last bit of the sum has the value 2^-24 */
    if (size < 0x38800000u) return copysignf((fabsf(x) + 0.5f) - 0.5f, x);
    bits += 0xfffu + (bits >> 13 & 1u);
    bits &= ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float bt_float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t bt_float_to_half(float x) {
    const float near = bt_half(x);
    uint32_t b;
    memcpy(&b, &near, sizeof b);
    const uint32_t size = b & 0x7fffffffu, sign = b >> 16 & 0x8000u;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (size == 0x7f800000u) return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u) return (uint16_t)(sign | (uint32_t)(bt_float_of_bits(size) * 0x1p24f));
    return (uint16_t)(sign | (size - 0x38000000u) >> 13);
}

static inline float bt_half_to_float(uint16_t x) {
    const uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = x & 0x7fffu;
    if (size > 0x7c00u) /* a NaN becomes quiet, as in the conversion instructions of processors */
        return bt_float_of_bits(sign | 0x7fc00000u | (size & 0x3ffu) << 13);
    if (size == 0x7c00u) return bt_float_of_bits(sign | 0x7f800000u);
    if (size < 0x400u)
        return copysignf((float)size * 0x1p-24f, bt_float_of_bits(sign | 0x3f800000u));
    return bt_float_of_bits(sign | ((size << 13) + 0x38000000u));
}

static inline uint16_t bt_float_to_bf16(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

static inline float bt_bf16_to_float(uint16_t x) { return bt_float_of_bits((uint32_t)x << 16); }

#endif
