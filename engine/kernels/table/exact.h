/* exact.h - sums without rounding, so that they have the same bits in any order and over any pieces
 * (reproducible training).
 *
 * Every value is rounded to a multiple of a unit, a power of two so large that no sum of that many
 * values needs more than the 53 bits of a double; what was rounded off goes to a second sum of
 * finer units. The result is sum[0] + sum[1].
 * Threads: any. All sums being exact, any set of kernels gives the same bits. */
#ifndef BT_ENGINE_KERNELS_TABLE_EXACT_H
#define BT_ENGINE_KERNELS_TABLE_EXACT_H

#include <stddef.h>
#include <stdint.h>

typedef enum { BT_EXACT_VALUE, BT_EXACT_ABS, BT_EXACT_SQUARE } bt_exact_of;
typedef struct bt_exact {
    double coarse, fine;
} bt_exact; /* units */

/* for n values of magnitude `most` at most; larger ones, or not finite ones, make rounded sums or
 * not finite ones */
bt_exact bt_exact_units(double most, double n);
/* adds n values of x, of |x| or of x^2 */
void bt_exact_add(double sum[2], const float *x, size_t n, bt_exact_of of, const bt_exact *units);
/* the largest magnitude, as bits: a NaN is the largest of all */
uint32_t bt_exact_most(const float *x, size_t n);

#endif
