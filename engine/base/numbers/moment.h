/* moment.h - stores an optimizer's state in fewer bytes: the upper bits of an fp32, rounded stochastically.
 *
 *     form    bits                     least magnitude   largest
 *     f32     32                       as fp32
 *     bf16    1 + 8 + 7                as fp32
 *     log8    1 + 5 + 2 (sign)         2^-29             14       first moment, momentum
 *     ulog8   6 + 2 (never negative)   2^-58             112      second moment
 *
 * The 8-bit forms have four codes per octave, evenly spaced, and below their first octave (2^-27 or 2^-56) equal steps
 * down to zero. A value that is not finite, or too large for the form, is stored as the largest code; the trainer never
 * applies gradients that are not finite.
 *
 * Stochastic rounding chooses between the two neighbouring codes so that the expected result is the value. A code is
 * (bits + noise) >> shift, because values between two neighbouring codes are evenly spaced in the bits of an fp32. With
 * 16 bits of noise the bias is below 2^-16 of the distance between codes. A value that a code represents exactly is
 * unchanged by any noise. Noise 0x8000 rounds to nearest.
 *
 * Elements share no scale, so the bits of a state do not depend on the division of tensors. Plain loops over these
 * functions compile to vector code. Any thread. */
#ifndef BT_ENGINE_BASE_NUMBERS_MOMENT_H
#define BT_ENGINE_BASE_NUMBERS_MOMENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum {
    BT_MOMENT_F32,
    BT_MOMENT_BF16,
    BT_MOMENT_LOG8,
    BT_MOMENT_ULOG8,
    BT_MOMENT_FORMS
} bt_moment_form;

static inline size_t bt_moment_bytes(bt_moment_form f) {
    return f == BT_MOMENT_F32 ? 4 : f == BT_MOMENT_BF16 ? 2 : 1;
}

#define BT_MOMENT_NEAREST 0x8000u

enum {
    BT_MOMENT_SHIFT = 21,  /* 8-bit forms: number of fraction bits dropped; two remain */
    BT_MOMENT_FIRST = 100, /* biased exponent of log8's first octave: 2^-27 */
    BT_MOMENT_UFIRST = 71  /* biased exponent of ulog8's first octave: 2^-56 */
};

static inline float bt_moment_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t bt_moment_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns all ones if the condition is true, else 0, without a branch, so that compilers vectorise it. */
static inline uint32_t bt_moment_if(int holds) { return 0u - (uint32_t)holds; }
static inline uint32_t bt_moment_pick(uint32_t mask, uint32_t yes, uint32_t no) {
    return (yes & mask) | (no & ~mask);
}

/* noise: 16 bits; NaN is preserved */
static inline uint16_t bt_moment_to_bf16(float x, uint32_t noise) {
    const uint32_t bits = bt_moment_bits(x);
    uint32_t size = bits & 0x7fffffffu;
    size = bt_moment_pick(bt_moment_if((int32_t)size > 0x7fc00000), 0x7fc00000u, size);
    return (uint16_t)((size + noise) >> 16 | (bits >> 16 & 0x8000u));
}
static inline float bt_moment_of_bf16(uint16_t x) { return bt_moment_float((uint32_t)x << 16); }

/* Converts a magnitude to a code from 0 to `last`, evenly below the first octave. first: exponent of that octave. */
static inline uint32_t bt_moment_code(uint32_t size, uint32_t noise, uint32_t first,
                                      uint32_t last) {
    const uint32_t begin = first << 23, low = bt_moment_if((int32_t)size < (int32_t)begin);
    const uint32_t x = bt_moment_bits(bt_moment_float(size) + bt_moment_float(begin & low));
    const uint32_t code = ((x + (noise << 5) + 16u) >> BT_MOMENT_SHIFT) - ((first - 1) << 2) -
                          (low & 4u);
    return bt_moment_pick(bt_moment_if((int32_t)code > (int32_t)last), last, code);
}
static inline uint32_t bt_moment_size(uint32_t code, uint32_t first) {
    const uint32_t low = bt_moment_if((int32_t)code < 4);
    const uint32_t x = (code + (low & 4u) + ((first - 1) << 2)) << BT_MOMENT_SHIFT;
    return bt_moment_bits(bt_moment_float(x) - bt_moment_float((first << 23) & low));
}

static inline uint8_t bt_moment_to_log8(float x, uint32_t noise) {
    const uint32_t bits = bt_moment_bits(x);
    return (uint8_t)(bt_moment_code(bits & 0x7fffffffu, noise, BT_MOMENT_FIRST, 0x7f) |
                     (bits >> 24 & 0x80u));
}
static inline float bt_moment_of_log8(uint8_t x) {
    return bt_moment_float(bt_moment_size(x & 0x7fu, BT_MOMENT_FIRST) | (uint32_t)(x & 0x80u)
                                                                            << 24);
}
/* A negative number is stored as its magnitude. */
static inline uint8_t bt_moment_to_ulog8(float x, uint32_t noise) {
    return (uint8_t)bt_moment_code(bt_moment_bits(x) & 0x7fffffffu, noise, BT_MOMENT_UFIRST, 0xff);
}
static inline float bt_moment_of_ulog8(uint8_t x) {
    return bt_moment_float(bt_moment_size(x, BT_MOMENT_UFIRST));
}

/* Converts n elements and rounds to the nearest. */
void bt_moment_convert(void *to, bt_moment_form to_form, const void *from, bt_moment_form from_form,
                       size_t n);

#endif
