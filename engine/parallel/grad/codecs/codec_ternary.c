/* codec_ternary.c - gradients as -1, 0 or +1, in blocks of 256, each with its own scale, with error feedback: v =
 * x + e; c = s v / |v| where |v| > 0.7 mean|v|, else 0; e becomes v - c. s is the mean magnitude of the values
 * above this threshold (ternary weight networks, arXiv:1605.04711). 1.75 bits per gradient, half a bit more than
 * signs; values small relative to their neighbours are not sent as noise.
 *
 *     payload   | scale, fp32 | five gradients in a byte, in base 3: 0, 1, 2 for 0, +s, -s | scale | ...
 *
 * A block with an infinity or a NaN becomes all NaN, and its state is unchanged. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/parallel/grad/codec.h"
#include "engine/parallel/grad/codecs/block_scale.h"

enum { BLOCK = 256, DIGITS = 5, VALUES = 243 };
static const float THRESHOLD = 0.7f;

static size_t digit_bytes(size_t n) { return (n + DIGITS - 1) / DIGITS; }
static size_t ternary_block_bytes(size_t n) { return sizeof(float) + digit_bytes(n); }

static size_t ternary_bound(size_t n) {
    return n / BLOCK * ternary_block_bytes(BLOCK) +
           (n % BLOCK ? ternary_block_bytes(n % BLOCK) : 0);
}

/* Adds the residual to the block's values and returns the magnitude that represents the large ones. */
static float ternary_scale(float *v, const float *x, const float *owed, size_t n,
                           float *threshold) {
    const float mean = bt_block_mean(v, x, owed, n);
    float of_large[BLOCK + BT_BLOCK_LANES];
    double part[BT_BLOCK_LANES] = {0}, large = 0;
    int n_large = 0;
    if (mean != mean) return NAN;
    *threshold = THRESHOLD * mean;
    for (size_t i = 0; i < n; i++) {
        const float magnitude = fabsf(v[i]);
        of_large[i] = magnitude > *threshold ? magnitude : 0;
        n_large += magnitude > *threshold;
    }
    for (size_t k = 0; k < BT_BLOCK_LANES; k++) of_large[n + k] = 0;
    for (size_t i = 0; i < n; i += BT_BLOCK_LANES)
        for (size_t k = 0; k < BT_BLOCK_LANES; k++) part[k] += (double)of_large[i + k];
    for (size_t k = 0; k < BT_BLOCK_LANES; k++) large += part[k];
    return n_large ? (float)(large / n_large) : 0;
}

static void ternary_encode_block(unsigned char *bytes, const float *v, float *owed, size_t n,
                                 float scale, float threshold) {
    unsigned char digit[BLOCK + DIGITS] = {0};
    for (size_t k = 0; k < n; k++) {
        const int more = v[k] > threshold, less = v[k] < -threshold;
        digit[k] = (unsigned char)(more + 2 * less);
        owed[k] = v[k] - (float)(more - less) * scale;
    }
    for (size_t k = 0; k < n; k += DIGITS)
        bytes[k / DIGITS] = (unsigned char)(digit[k] + 3 * digit[k + 1] + 9 * digit[k + 2] +
                                            27 * digit[k + 3] + 81 * digit[k + 4]);
}

static size_t ternary_encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *to = payload;
    float *owed = state, v[BLOCK];
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        float threshold = 0;
        const float scale = ternary_scale(v, x + i, owed + i, m, &threshold);
        memcpy(to, &scale, sizeof scale);
        memset(to + sizeof scale, 0, digit_bytes(m));
        if (scale == scale)
            ternary_encode_block(to + sizeof scale, v, owed + i, m, scale, threshold);
        to += ternary_block_bytes(m);
    }
    return ternary_bound(n);
}

/* Checks n gradients in these bytes; digits beyond the last gradient are zero. */
static bool valid_digits(const unsigned char *bytes, size_t n) {
    static const unsigned char most[DIGITS] = {VALUES - 1, 2, 8, 26, 80};
    for (size_t k = 0; k < digit_bytes(n); k++)
        if (bytes[k] >= VALUES) return false;
    return n == 0 || bytes[digit_bytes(n) - 1] <= most[n % DIGITS];
}

static bool is_valid_ternary(const unsigned char *from, size_t n, size_t bytes) {
    if (bytes != ternary_bound(n)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        if (!valid_digits(from + sizeof(float), m)) return false;
        from += ternary_block_bytes(m);
    }
    return true;
}

#define DIGITS_OF(n) \
    { (n) % 3, (n) / 3 % 3, (n) / 9 % 3, (n) / 27 % 3, (n) / 81 % 3 }
#define OF_3(n) DIGITS_OF(n), DIGITS_OF((n) + 1), DIGITS_OF((n) + 2)
#define OF_9(n) OF_3(n), OF_3((n) + 3), OF_3((n) + 6)
#define OF_27(n) OF_9(n), OF_9((n) + 9), OF_9((n) + 18)
#define OF_81(n) OF_27(n), OF_27((n) + 27), OF_27((n) + 54)
/* a table, because divisions by 3 are slower */
static const unsigned char digits_of[VALUES][DIGITS] = {OF_81(0), OF_81(81), OF_81(162)};

static void ternary_decode_block(float y[BLOCK + DIGITS], const unsigned char *from, size_t n) {
    float scale;
    memcpy(&scale, from, sizeof scale);
    const float value[3] = {scale == scale ? 0 : NAN, scale, -scale};
    from += sizeof scale;
    for (size_t k = 0; k < n; k += DIGITS)
        for (size_t d = 0; d < DIGITS; d++) y[k + d] = value[digits_of[from[k / DIGITS]][d]];
}

static bool ternary_decode(float *x, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    float y[BLOCK + DIGITS];
    if (!is_valid_ternary(from, n, bytes)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        ternary_decode_block(y, from, m);
        memcpy(x + i, y, m * sizeof *y);
        from += ternary_block_bytes(m);
    }
    return true;
}

static bool ternary_decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    float y[BLOCK + DIGITS];
    if (!is_valid_ternary(from, n, bytes)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        const size_t m = bt_min_size(BLOCK, n - i);
        ternary_decode_block(y, from, m);
        for (size_t k = 0; k < m; k++) into[i + k] += y[k];
        from += ternary_block_bytes(m);
    }
    return true;
}

const bt_codec bt_codec_ternary = {
    .name = "ternary",
    .state_bytes = sizeof(float),
    .sealed = true,
    .warms_up = true,
    .holds_variance = true,
    .bound = ternary_bound,
    .encode = ternary_encode,
    .decode = ternary_decode,
    .decode_add = ternary_decode_add,
};
