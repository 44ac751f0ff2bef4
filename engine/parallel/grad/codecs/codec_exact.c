/* codec_exact.c - encodes gradients without loss, in few bits if they are small multiples of a power of two. It
 * replaces `--codec int8` in reproducible training, whose units are rounded to such multiples (unit_rounding.h). Blocks
 * of 256, each
 *
 *   | exponent e and width w, 16 bits | 256 integers q of w bits, two's complement |   x = q 2^e
 *
 * with the largest e of which every value of the block is a multiple, and the least w. A block that needs more than 24
 * bits, or has an infinity, a NaN or a -0, is sent as fp32 (w 32). A block of zeros has only its 16 bits. Sums of
 * decoded values have the same bits as sums of the originals, in any order. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/codec.h"

enum { BLOCK = 256, WIDEST = 24, RAW = 32, EXPONENT_BITS = 10, EXPONENT_BIAS = 200 };

static size_t exact_bound(size_t n) {
    return n * sizeof(float) + (n + BLOCK - 1) / BLOCK * sizeof(uint16_t);
}

typedef struct shape {
    int exponent;
    unsigned width;
} shape;

static uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns the exponents of the lowest and the highest set bit of x, which is not zero. */
static void bit_span(uint32_t bits, int *low, int *high) {
    int exponent = (int)(bits >> 23 & 0xff);
    uint32_t mantissa = (bits & 0x7fffff) | (exponent ? 0x800000 : 0);
    int unit = (exponent ? exponent : 1) - 150;
    *low = unit + __builtin_ctz(mantissa);
    *high = unit + 31 - __builtin_clz(mantissa);
}

static shape block_shape(const float *x, size_t n) {
    int low = 1000, high = -1000;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(x[i]);
        int a, b;
        if (bits == 0) continue;
        if (bits << 1 == 0 || (bits >> 23 & 0xff) == 0xff) return (shape){0, RAW};
        bit_span(bits, &a, &b);
        low = a < low ? a : low;
        high = b > high ? b : high;
    }
    if (low > high) return (shape){0, 0};
    unsigned width = (unsigned)(high - low) + 2; /* plus the sign */
    return width > WIDEST ? (shape){0, RAW} : (shape){low, width};
}

/* Returns 2^e; e is at least that of the least subnormal. */
static float power_of_two(int e) {
    uint32_t bits = e < -126 ? 1u << (e + 149) : (uint32_t)(e + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static size_t exact_packed_bytes(size_t n, unsigned width) { return (n * width + 7) / 8; }

/* Returns q = x / 2^e, exactly; in two steps if 1 / 2^e is not an fp32. */
static int32_t rounded_quotient(float x, int e) {
    return (int32_t)(e < -126 ? x * power_of_two(126) * power_of_two(-e - 126)
                              : x * power_of_two(-e));
}

static unsigned char *pack_exact_block(unsigned char *to, const float *x, size_t n, shape s) {
    uint64_t bits = 0, mask = (UINT64_C(1) << s.width) - 1;
    unsigned have = 0;
    for (size_t i = 0; i < n; i++) {
        bits |= ((uint64_t)(int64_t)rounded_quotient(x[i], s.exponent) & mask) << have;
        for (have += s.width; have >= 8; have -= 8, bits >>= 8) *to++ = (unsigned char)bits;
    }
    if (have > 0) *to++ = (unsigned char)bits;
    return to;
}

static void unpack_exact_block(float *x, const unsigned char *from, size_t n, shape s) {
    uint64_t bits = 0;
    unsigned have = 0;
    float unit = power_of_two(s.exponent);
    uint32_t mask = (UINT32_C(1) << s.width) - 1, sign = UINT32_C(1) << (s.width - 1);
    for (size_t i = 0; i < n; i++) {
        for (; have < s.width; have += 8) bits |= (uint64_t)*from++ << have;
        uint32_t q = (uint32_t)bits & mask;
        x[i] = (float)(int32_t)((q ^ sign) - sign) * unit;
        bits >>= s.width;
        have -= s.width;
    }
}

static size_t exact_encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *to = payload;
    (void)state;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        shape s = block_shape(x + i, m);
        uint16_t head = (uint16_t)(s.width << EXPONENT_BITS |
                                   (unsigned)(s.exponent + EXPONENT_BIAS));
        memcpy(to, &head, sizeof head);
        to += sizeof head;
        if (s.width == RAW)
            to = (unsigned char *)memcpy(to, x + i, m * sizeof *x) + m * sizeof *x;
        else if (s.width > 0)
            to = pack_exact_block(to, x + i, m, s);
    }
    return (size_t)(to - (unsigned char *)payload);
}

/* Reads the head of a block of n values; returns false if it is missing, or the block is longer than the remaining
 * bytes. */
static bool read_block_head(const unsigned char **from, size_t *left, size_t n, shape *s) {
    uint16_t head;
    if (*left < sizeof head) return false;
    memcpy(&head, *from, sizeof head);
    *from += sizeof head;
    *left -= sizeof head;
    *s = (shape){(int)(head & ((1u << EXPONENT_BITS) - 1)) - EXPONENT_BIAS, head >> EXPONENT_BITS};
    if (s->width == 1 || (s->width > WIDEST && s->width != RAW)) return false;
    if (s->exponent < -149 || s->exponent > 127) return false;
    return *left >= exact_packed_bytes(n, s->width);
}

static bool is_valid_exact_payload(size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    shape s;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        if (!read_block_head(&from, &bytes, m, &s)) return false;
        from += exact_packed_bytes(m, s.width);
        bytes -= exact_packed_bytes(m, s.width);
    }
    return bytes == 0;
}

/* Decodes a block into y and returns the address of the next block. */
static const unsigned char *exact_decode_block(float *y, size_t n, const unsigned char *from) {
    size_t left = SIZE_MAX;
    shape s;
    (void)read_block_head(&from, &left, n, &s);
    if (s.width == RAW)
        memcpy(y, from, n * sizeof *y);
    else if (s.width == 0)
        memset(y, 0, n * sizeof *y);
    else
        unpack_exact_block(y, from, n, s);
    return from + exact_packed_bytes(n, s.width);
}

static bool exact_decode(float *x, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    if (!is_valid_exact_payload(n, payload, bytes)) return false;
    for (size_t i = 0; i < n; i += BLOCK)
        from = exact_decode_block(x + i, bt_min_size(BLOCK, n - i), from);
    return true;
}

static bool exact_decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    float y[BLOCK];
    if (!is_valid_exact_payload(n, payload, bytes)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        from = exact_decode_block(y, m, from);
        for (size_t k = 0; k < m; k++) into[i + k] += y[k];
    }
    return true;
}

const bt_codec bt_codec_exact = {
    .name = "int8",
    .order_exact = true,
    .sealed = true,
    .bound = exact_bound,
    .encode = exact_encode,
    .decode = exact_decode,
    .decode_add = exact_decode_add,
};
