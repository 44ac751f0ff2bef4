/* codec_topk.c - the 16 gradients of largest magnitude in every block of 512 (in a shorter block one in 32,
 * rounded up), as an index and a bf16 value, with error feedback: v = x + e; e becomes the values not sent and the
 * rounding error of bf16 (deep gradient compression, arXiv:1712.01887, without its momentum terms). 1 bit per
 * gradient.
 *
 *     payload   | of each value sent: index in its block, 16 bits; value, 16 bits | in ascending order
 *
 * Of equal magnitudes the first are sent. A block with an infinity or a NaN sends those first, and its state is
 * unchanged. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/noise.h"
#include "engine/parallel/grad/codec.h"

enum { BLOCK = 512, ONE_IN = 32, FINITE = 0x7f800000 };

typedef struct sent {
    uint16_t index, value;
} sent;

static size_t topk_count(size_t block) { return (block + ONE_IN - 1) / ONE_IN; }
static size_t topk_bound(size_t n) {
    return (n / BLOCK * topk_count(BLOCK) + topk_count(n % BLOCK)) * sizeof(sent);
}

/* Returns the k-th largest of n magnitudes, by its bits. */
static uint32_t kth_largest(const uint32_t *magnitude, size_t n, size_t k) {
    uint32_t t = 0;
    for (uint32_t bit = 0x40000000; bit; bit >>= 1) {
        uint32_t at_least = 0;
        for (size_t i = 0; i < n; i++) at_least += magnitude[i] >= (t | bit);
        if (at_least >= k) t |= bit;
    }
    return t;
}

/* Finds the indices of the k largest of a block's values v; returns whether all values are finite. */
static bool choose_largest(uint16_t *places, const float *v, size_t n, size_t k) {
    uint32_t magnitude[BLOCK], top = 0;
    size_t above = 0;
    for (size_t i = 0; i < n; i++) {
        magnitude[i] = bt_noise_absmax(0, v[i]);
        top = magnitude[i] > top ? magnitude[i] : top;
    }
    uint32_t least = kth_largest(magnitude, n, k);
    for (size_t i = 0; i < n; i++) above += magnitude[i] > least;
    size_t equal = k - above, s = 0;
    for (size_t i = 0; i < n && s < k; i++) {
        if (magnitude[i] < least || (magnitude[i] == least && equal == 0)) continue;
        equal -= magnitude[i] == least;
        places[s++] = (uint16_t)i;
    }
    return top < FINITE;
}

static size_t topk_encode(void *payload, const float *x, size_t n, void *state) {
    unsigned char *to = payload;
    float *owed = state, v[BLOCK], chosen[BLOCK / ONE_IN], arrives[BLOCK / ONE_IN];
    uint16_t places[BLOCK / ONE_IN], values[BLOCK / ONE_IN];
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i), k = topk_count(m);
        for (size_t e = 0; e < m; e++) v[e] = x[i + e] + owed[i + e];
        bool finite = choose_largest(places, v, m, k);
        for (size_t s = 0; s < k; s++) chosen[s] = v[places[s]];
        bt_active_kernels()->to_bf16(values, chosen, k);
        bt_active_kernels()->from_bf16(arrives, values, k);
        for (size_t s = 0; s < k; s++, to += sizeof(sent)) {
            const sent one = {places[s], values[s]};
            memcpy(to, &one, sizeof one);
            v[places[s]] -= arrives[s];
        }
        if (finite) memcpy(owed + i, v, m * sizeof *v);
    }
    return topk_bound(n);
}

static bool indices_fit(size_t n, const unsigned char *from) {
    sent one;
    for (size_t i = 0; i < n; i += BLOCK) {
        size_t m = bt_min_size(BLOCK, n - i);
        for (size_t s = 0; s < topk_count(m); s++, from += sizeof one) {
            memcpy(&one, from, sizeof one);
            if (one.index >= m) return false;
        }
    }
    return true;
}

static bool topk_decode_add(float *into, size_t n, const void *payload, size_t bytes) {
    const unsigned char *from = payload;
    sent one;
    if (bytes != topk_bound(n) || !indices_fit(n, from)) return false;
    for (size_t i = 0; i < n; i += BLOCK) {
        for (size_t s = 0; s < topk_count(bt_min_size(BLOCK, n - i)); s++, from += sizeof one) {
            memcpy(&one, from, sizeof one);
            float value;
            bt_active_kernels()->from_bf16(&value, &one.value, 1);
            into[i + one.index] += value;
        }
    }
    return true;
}

static bool topk_decode(float *x, size_t n, const void *payload, size_t bytes) {
    if (bytes != topk_bound(n) || !indices_fit(n, payload)) return false;
    memset(x, 0, n * sizeof *x);
    return topk_decode_add(x, n, payload, bytes);
}

const bt_codec bt_codec_topk = {
    .name = "topk",
    .state_bytes = sizeof(float),
    .sealed = true,
    .warms_up = true,
    .bound = topk_bound,
    .encode = topk_encode,
    .decode = topk_decode,
    .decode_add = topk_decode_add,
};
