/* histogram.h - bins of the distributions of weights and gradients. The engine fills them, views draw them.
 *
 *     weights     latent weights of a ternary tensor as (w - mean) / scale, in quarters of a scale:
 *                 bin i holds [i - 16, i - 15) / 4. The thresholds of rounding, -0.5 and 0.5, are edges.
 *     gradients   |g| in octaves: bin i holds [2^(i - 28), 2^(i - 27))
 *
 * The first and the last bin also contain all values beyond. A gradient of 0 is in the first bin, a gradient that is
 * not finite in the last. Threads: any; pure functions. */
#ifndef BT_ENGINE_BASE_TABLES_HISTOGRAM_H
#define BT_ENGINE_BASE_TABLES_HISTOGRAM_H

#include <stdint.h>
#include <string.h>

enum { BT_HIST_BINS = 32, BT_HIST_MIDDLE = 16, BT_HIST_PER_SCALE = 4, BT_HIST_OCTAVE = -28 };

static inline int bt_hist_weight_bin(float scaled) {
    const float x = scaled * BT_HIST_PER_SCALE; /* exact: a power of two */
    if (x < -BT_HIST_MIDDLE) return 0;
    if (!(x < BT_HIST_BINS - BT_HIST_MIDDLE)) return BT_HIST_BINS - 1; /* NaN, too */
    const int cut = (int)x;
    return BT_HIST_MIDDLE + cut - (x < (float)cut);
}

static inline int bt_hist_gradient_bin(float g) {
    uint32_t bits;
    memcpy(&bits, &g, sizeof bits);
    const int i = (int)(bits >> 23 & 0xff) - 127 - BT_HIST_OCTAVE;
    return i < 0 ? 0 : i < BT_HIST_BINS ? i : BT_HIST_BINS - 1;
}

#endif
