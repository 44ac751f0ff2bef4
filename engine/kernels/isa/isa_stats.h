/* isa_stats.h - statistics of a training, and Lion, in plain loops: one source that every set compiles with its
 * own instructions.
 *
 *     code_history   n codes and the history of two codes each, two weights a byte: byte i has
 *                    weight i in the low bits and weight (n + 1) / 2 + i in the high bits. A weight's four bits:
 *                    the code before the last << 2 | the last one, two bits each
 *     code_near      number of weights whose |w - mean| / scale is within `band` of a threshold
 *     adamw_undo     the last update of AdamW from the moments after it: w was (w + step m /
 *                    (sqrt(v) root + eps)) / keep */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_STATS_H
#define BT_ENGINE_KERNELS_ISA_ISA_STATS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/table/kernels.h"

enum { STATS_LANES = 64 };

/* Computes the new history (four bits) from the old one and a code, and adds to the three counts. */
#define STATS_LOOK(seen, code, flips, signs, back, next) \
    do { \
        uint8_t seen_ = (uint8_t)(seen), last_ = seen_ & 3, now_ = (uint8_t)(code)&3, \
                flip_ = now_ != last_; \
        (flips) = (uint8_t)((flips) + flip_); \
        (signs) = (uint8_t)((signs) + ((now_ ^ last_) == 2)); /* 01 and 11 */ \
        (back) = (uint8_t)((back) + (flip_ & (now_ == seen_ >> 2))); \
        (next) = (uint8_t)(last_ << 2 | now_); \
    } while (0)

static void stats_code_history(uint8_t *history, const int8_t *codes, size_t n,
                               bt_code_seen *seen) {
    size_t half = (n + 1) / 2, whole = n / 2, i = 0;
    while (i < whole) {
        uint8_t flips[STATS_LANES] = {0}, signs[STATS_LANES] = {0}, back[STATS_LANES] = {0};
        /* two a turn: below 256 */
        for (size_t turn = 0; turn < 120 && i + STATS_LANES <= whole; turn++, i += STATS_LANES) {
            for (size_t k = 0; k < STATS_LANES; k++) {
                uint8_t byte = history[i + k], low, high;
                STATS_LOOK(byte & 15, codes[i + k], flips[k], signs[k], back[k], low);
                STATS_LOOK(byte >> 4, codes[half + i + k], flips[k], signs[k], back[k], high);
                history[i + k] = (uint8_t)(high << 4 | low);
            }
        }
        for (; i < whole && whole - i < STATS_LANES; i++) {
            uint8_t byte = history[i], low, high;
            STATS_LOOK(byte & 15, codes[i], flips[i % 8], signs[i % 8], back[i % 8], low);
            STATS_LOOK(byte >> 4, codes[half + i], flips[i % 8], signs[i % 8], back[i % 8], high);
            history[i] = (uint8_t)(high << 4 | low);
        }
        for (size_t k = 0; k < STATS_LANES; k++)
            seen->flips += flips[k], seen->sign_flips += signs[k], seen->back += back[k];
    }
    if (half > whole) {
        uint8_t flips = 0, signs = 0, back = 0, low;
        STATS_LOOK(history[whole] & 15, codes[whole], flips, signs, back, low);
        history[whole] = low;
        seen->flips += flips, seen->sign_flips += signs, seen->back += back;
    }
}

static size_t stats_code_near(const float *w, size_t n, float mean, float inv_scale,
                              float threshold, float band) {
    uint32_t near[STATS_LANES] = {0};
    size_t i = 0, sum = 0;
    for (; i + STATS_LANES <= n; i += STATS_LANES) {
        for (size_t k = 0; k < STATS_LANES; k++)
            near[k] += fabsf(fabsf((w[i + k] - mean) * inv_scale) - threshold) < band;
    }
    for (; i < n; i++) sum += fabsf(fabsf((w[i] - mean) * inv_scale) - threshold) < band;
    for (size_t k = 0; k < STATS_LANES; k++) sum += near[k];
    return sum;
}

static void stats_adamw_undo(float *restrict change, float *restrict before,
                             const float *restrict w, const float *restrict m,
                             const float *restrict v, size_t n, float keep, float step, float root,
                             float eps) {
    for (size_t k = 0; k < n; k++) {
        float adam = step * m[k] / (sqrtf(v[k]) * root + eps), old = (w[k] + adam) / keep;
        before[k] = old;
        change[k] = adam + (1.0f - keep) * old;
    }
}

/* Lion: Chen et al., arXiv:2302.06675; without fused multiply-add, so that every set gives the same bits */
static void stats_lion(float *restrict w, const float *restrict g, float *restrict m,
                       const bt_lion *h, size_t n) {
    float keep = 1.0f - h->lr * h->decay;
    for (size_t i = 0; i < n; i++) {
        float grad = g[i] * h->grad_scale, c = h->b1 * m[i] + (1.0f - h->b1) * grad;
        w[i] = w[i] * keep - h->lr * (float)((c > 0) - (c < 0));
        m[i] = h->b2 * m[i] + (1.0f - h->b2) * grad;
    }
}

#define BT_STATS_SLOTS \
    .code_history = stats_code_history, .code_near = stats_code_near, \
    .adamw_undo = stats_adamw_undo, .lion = stats_lion

#endif
