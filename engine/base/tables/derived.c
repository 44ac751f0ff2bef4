/* derived.c - descriptors of the rows of derived.def, and medians. */
#include "engine/base/tables/derived.h"

#include <stdlib.h>

#include "engine/base/small.h"

#define BT_OF2(a, b) \
    { #a, #b, NULL }
#define BT_OF3(a, b, c) \
    { #a, #b, #c }
#define BT_DERIVED(id, name, of, known, formula, help) {#name, of, #known, #formula, help},
const bt_derived_row bt_derived[] = {
#include "engine/base/tables/derived.def"
};
#undef BT_DERIVED
const size_t bt_derived_n = sizeof bt_derived / sizeof bt_derived[0];

double bt_median_known(double *v, size_t n) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) v[m++] = v[i];
    if (m == 0) return NAN;
    qsort(v, m, sizeof *v, bt_compare_doubles);
    return m % 2 ? v[m / 2] : (v[m / 2 - 1] + v[m / 2]) / 2;
}

double bt_share_of_time(const double *share, const double *time, size_t n) {
    double part = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(share[i]) || !(time[i] > 0)) continue;
        part += share[i] * time[i];
        all += time[i];
    }
    return all > 0 ? part / all : (double)NAN;
}
