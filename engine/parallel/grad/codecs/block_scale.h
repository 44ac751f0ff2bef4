/* block_scale.h - the scale of a block of gradients for codecs with error feedback: the largest magnitude, or the
 * mean. */
#ifndef BT_ENGINE_PARALLEL_GRAD_CODECS_BLOCK_SCALE_H
#define BT_ENGINE_PARALLEL_GRAD_CODECS_BLOCK_SCALE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/table/noise.h"

/* Computes v[i] = x[i] + owed[i] for n elements, where `owed` is the residual, and returns max|v| / most, where
 * `most` is the largest integer. NaN: a value is infinite or NaN. 0: all are zero, or too small for a float's full
 * precision. */
static inline float bt_block_scale(float *v, const float *x, const float *owed, size_t n,
                                   float most) {
    static const uint32_t not_finite = 0x7f800000;
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        v[i] = x[i] + owed[i];
        top = bt_noise_absmax(top, v[i]);
    }
    if (top >= not_finite) return NAN;
    return top < BT_NOISE_LEAST ? 0 : bt_noise_bits(top) / most;
}

enum { BT_BLOCK_LANES = 8 };

/* Computes v[i] = x[i] + owed[i] for n elements and returns the mean of |v|, summed in BT_BLOCK_LANES lanes. NaN: a
 * value is infinite or NaN. */
static inline float bt_block_mean(float *v, const float *x, const float *owed, size_t n) {
    double part[BT_BLOCK_LANES] = {0}, sum = 0;
    size_t whole = n / BT_BLOCK_LANES * BT_BLOCK_LANES;
    for (size_t i = 0; i < n; i++) v[i] = x[i] + owed[i];
    for (size_t i = 0; i < whole; i += BT_BLOCK_LANES)
        for (size_t k = 0; k < BT_BLOCK_LANES; k++) part[k] += (double)fabsf(v[i + k]);
    for (size_t i = whole; i < n; i++) part[i - whole] += (double)fabsf(v[i]);
    for (size_t k = 0; k < BT_BLOCK_LANES; k++) sum += part[k];
    return isfinite(sum) ? (float)(sum / (double)n) : NAN;
}

#endif
