/* exact.h - sums without rounding, whose bits do not depend on the order and the division of the values
 * (reproducible training).
 *
 * Every value is rounded to a multiple of a coarse unit. The unit is a power of two so large that the sum of the
 * given number of values fits the 53 bits of a double. The remainders are added to a second sum in finer units. The
 * result is sum[0] + sum[1]. All kernel sets give the same bits, because the sums are exact.
 * Threads: any. */
#ifndef BT_ENGINE_KERNELS_TABLE_EXACT_H
#define BT_ENGINE_KERNELS_TABLE_EXACT_H

#include <stddef.h>
#include <stdint.h>

typedef enum { BT_EXACT_VALUE, BT_EXACT_ABS, BT_EXACT_SQUARE } bt_exact_of;
typedef struct bt_exact {
    double coarse, fine;
} bt_exact; /* the units of both sums */

/* Chooses units for n values of magnitude at most `most`. With larger values sums are rounded; with values that are not
 * finite they are not finite. */
bt_exact bt_exact_units(double most, double n);
/* Adds n values of x, |x| or x^2. */
void bt_exact_add(double sum[2], const float *x, size_t n, bt_exact_of of, const bt_exact *units);
/* Returns the bits of the largest magnitude. A NaN counts as larger than all numbers. */
uint32_t bt_exact_most(const float *x, size_t n);

#endif
