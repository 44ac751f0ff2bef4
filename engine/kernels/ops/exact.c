/* exact.c - sums without rounding over whole arrays, divided over threads. The loops are slots of the kernel
 * table (isa_exact.h). */
#include "engine/kernels/table/exact.h"

#include <math.h>

#include "engine/kernels/table/kernels.h"

static double anchor_of_unit(double unit) { return 6755399441055744.0 * unit; }

bt_exact bt_exact_units(double most, double n) {
    int top, many;
    (void)frexp(most > 0 ? most : 1, &top); /* most < 2^top */
    (void)frexp(n > 1 ? n : 1, &many);
    /* 2^many values below 2^top have a sum below 2^(top + many), which is 2^51 units */
    bt_exact u = {ldexp(1, top + many - 51), 0};
    /* rounding to a coarse unit leaves at most half a unit */
    u.fine = ldexp(u.coarse, many - 51);
    return u;
}

void bt_exact_add(double sum[2], const float *x, size_t n, bt_exact_of of, const bt_exact *units) {
    bt_active_kernels()->exact_add(sum, x, n, of, anchor_of_unit(units->coarse),
                                   anchor_of_unit(units->fine));
}

uint32_t bt_exact_most(const float *x, size_t n) { return bt_active_kernels()->exact_most(x, n); }
