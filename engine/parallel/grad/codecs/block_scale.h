/* block_scale.h - the scale of a block of integers, for the codecs that round to such with error feedback. */
#ifndef BT_ENGINE_PARALLEL_GRAD_CODECS_BLOCK_SCALE_H
#define BT_ENGINE_PARALLEL_GRAD_CODECS_BLOCK_SCALE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/table/noise.h"

/* v[i] = x[i] + owed[i], n of them; returns max|v| / most, where `most` is the largest integer. NaN: a
 * value is infinite or no number. 0: all are zeros, or too small for a float's full precision */
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

#endif
