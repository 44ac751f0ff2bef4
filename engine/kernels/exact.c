/* exact.c - see exact.h. */
#include "engine/kernels/exact.h"

#include <math.h>
#include <string.h>

enum { LANES = 8 };

/* d + (1.5 * 2^52 * unit) - (the same) rounds d to a multiple of the unit */
static double anchor(double unit) { return 6755399441055744.0 * unit; }

bt_exact bt_exact_units(double most, double n) {
    int top, many;
    (void)frexp(most > 0 ? most : 1, &top);                 /* most < 2^top */
    (void)frexp(n > 1 ? n : 1, &many);
    bt_exact u = {ldexp(1, top + many - 51), 0};            /* sums below 2^(top + many): 2^51 units */
    u.fine = ldexp(u.coarse, many - 51);                    /* what is left of a value is half a unit at most */
    return u;
}

static inline double value(float x, const bt_exact_of of) {
    double d = (double)x;
    return of == BT_EXACT_SQUARE ? d * d : of == BT_EXACT_ABS ? fabs(d) : d;
}

static inline void add(double sum[2], const float *x, size_t n, const bt_exact_of of, double coarse, double fine) {
    double a[LANES] = {0}, b[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            double d = value(x[i + k], of), r = (d + coarse) - coarse, rest = d - r;
            a[k] += r;
            b[k] += (rest + fine) - fine;
        }
    }
    for (; i < n; i++) {
        double d = value(x[i], of), r = (d + coarse) - coarse, rest = d - r;
        a[0] += r;
        b[0] += (rest + fine) - fine;
    }
    for (size_t k = 0; k < LANES; k++) {
        sum[0] += a[k];
        sum[1] += b[k];
    }
}

void bt_exact_add(double sum[2], const float *x, size_t n, bt_exact_of of, const bt_exact *units) {
    double coarse = anchor(units->coarse), fine = anchor(units->fine);
    switch (of) {
    case BT_EXACT_VALUE: add(sum, x, n, BT_EXACT_VALUE, coarse, fine); break;
    case BT_EXACT_ABS: add(sum, x, n, BT_EXACT_ABS, coarse, fine); break;
    case BT_EXACT_SQUARE: add(sum, x, n, BT_EXACT_SQUARE, coarse, fine); break;
    }
}

uint32_t bt_exact_most(const float *x, size_t n) {
    int32_t top[LANES] = {0}, all = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        int32_t bits[LANES];
        memcpy(bits, x + i, sizeof bits);
        for (size_t k = 0; k < LANES; k++) {
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
    for (size_t k = 0; k < LANES; k++) all = top[k] > all ? top[k] : all;
    return (uint32_t)all;
}
