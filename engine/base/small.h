/* small.h - the few one-line helpers that many files need. Any thread. */
#ifndef BT_ENGINE_BASE_SMALL_H
#define BT_ENGINE_BASE_SMALL_H

#include <stddef.h>

static inline size_t bt_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t bt_max_size(size_t a, size_t b) { return a > b ? a : b; }

/* for qsort over doubles: ascending; NaN must not be among them */
static inline int bt_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
