/* view_tools.c - growing arrays, and statistics of short arrays, for all parts of the view. */
#include <math.h>
#include <stdlib.h>

#include "engine/base/small.h"
#include "store/view/view_impl.h"

bt_code bt_view_grow(void **p, size_t *cap, size_t need, size_t elem, bt_err *err) {
    if (need <= *cap) return BT_OK;
    size_t n = need + need / 2;
    void *q = realloc(*p, n * elem);
    if (!q) return bt_fail(err, BT_NOMEM, "cannot hold %zu values of the view", n);
    *p = q;
    *cap = n;
    return BT_OK;
}

/* Shell sort for short arrays, because this runs thousands of times a second, and qsort calls a function for each
 * comparison. */
void bt_sort_doubles(double *v, size_t n) {
    if (n > 512) {
        qsort(v, n, sizeof *v, bt_compare_doubles);
        return;
    }
    for (size_t gap = n < 8    ? 1
                      : n < 64 ? 7
                               : 57;
         ; gap = gap == 57   ? 23
                 : gap == 23 ? 10
                 : gap == 10 ? 4
                 : gap == 7  ? 3
                             : 1) {
        for (size_t i = gap; i < n; i++) {
            double x = v[i];
            size_t j = i;
            for (; j >= gap && v[j - gap] > x; j -= gap) v[j] = v[j - gap];
            v[j] = x;
        }
        if (gap == 1) return;
    }
}

/* quickselect (Hoare) */
double bt_lower_median(double *v, size_t n) {
    if (n == 0) return NAN;
    size_t k = (n - 1) / 2, lo = 0, hi = n - 1;
    while (lo < hi) {
        double pivot = v[lo + (hi - lo) / 2];
        size_t i = lo, j = hi;
        for (;;) {
            while (v[i] < pivot) i++;
            while (v[j] > pivot) j--;
            if (i >= j) break;
            double x = v[i];
            v[i++] = v[j];
            v[j--] = x;
        }
        if (k <= j)
            hi = j;
        else
            lo = j + 1;
    }
    return v[k];
}

double bt_quantile(double *sorted, size_t n, double q) {
    if (n == 0) return NAN;
    size_t i = (size_t)ceil(q * (double)n);
    return sorted[i == 0 ? 0 : i > n ? n - 1 : i - 1];
}
