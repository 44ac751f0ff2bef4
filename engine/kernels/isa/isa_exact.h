/* isa_exact.h - the sums of exact.h in plain loops, compiled once with the instructions of each set. No vector
 * types: without rounding any order gives the same bits, so the compiler may vectorise as it likes. */
#ifndef BT_ENGINE_KERNELS_ISA_ISA_EXACT_H
#define BT_ENGINE_KERNELS_ISA_ISA_EXACT_H

#include <math.h>
#include <string.h>

#include "engine/kernels/table/exact.h"

/* EXACT_LANES: independent chains that hide the latency of an addition */
enum { EXACT_LANES = 32, MOST_LANES = 64 };

static inline double exact_value(float x, const bt_exact_of of) {
    double d = (double)x;
    return of == BT_EXACT_SQUARE ? d * d : of == BT_EXACT_ABS ? fabs(d) : d;
}

/* d + c - c with c = 1.5 * 2^52 * unit rounds d to a multiple of the unit */
static inline void exact_partial_sums(double sum[2], const float *x, size_t n, const bt_exact_of of,
                                      double coarse, double fine) {
    double a[EXACT_LANES] = {0}, b[EXACT_LANES] = {0};
    size_t i = 0;
    for (; i + EXACT_LANES <= n; i += EXACT_LANES) {
        for (size_t k = 0; k < EXACT_LANES; k++) {
            double d = exact_value(x[i + k], of), r = (d + coarse) - coarse, rest = d - r;
            a[k] += r;
            b[k] += (rest + fine) - fine;
        }
    }
    for (; i < n; i++) {
        double d = exact_value(x[i], of), r = (d + coarse) - coarse, rest = d - r;
        a[0] += r;
        b[0] += (rest + fine) - fine;
    }
    for (size_t k = 0; k < EXACT_LANES; k++) {
        sum[0] += a[k];
        sum[1] += b[k];
    }
}

static void exact_add(double sum[2], const float *x, size_t n, bt_exact_of of, double coarse,
                      double fine) {
    switch (of) {
    case BT_EXACT_VALUE: exact_partial_sums(sum, x, n, BT_EXACT_VALUE, coarse, fine); break;
    case BT_EXACT_ABS: exact_partial_sums(sum, x, n, BT_EXACT_ABS, coarse, fine); break;
    case BT_EXACT_SQUARE: exact_partial_sums(sum, x, n, BT_EXACT_SQUARE, coarse, fine); break;
    }
}

static uint32_t exact_most(const float *x, size_t n) {
    int32_t top[MOST_LANES] = {0}, all = 0;
    size_t i = 0;
    for (; i + MOST_LANES <= n; i += MOST_LANES) {
        int32_t bits[MOST_LANES];
        memcpy(bits, x + i, sizeof bits);
        for (size_t k = 0; k < MOST_LANES; k++) {
            int32_t b = bits[k] & INT32_MAX;
            top[k] = b > top[k] ? b : top[k];
        }
    }
    for (; i < n; i++) {
        int32_t b;
        memcpy(&b, x + i, sizeof b);
        b &= INT32_MAX;
        top[0] = b > top[0] ? b : top[0];
    }
    for (size_t k = 0; k < MOST_LANES; k++) all = top[k] > all ? top[k] : all;
    return (uint32_t)all;
}

#define BT_EXACT_SLOTS .exact_add = exact_add, .exact_most = exact_most

#endif
