/* small.h - one-line helpers that many files need. Any thread. */
#ifndef BT_ENGINE_BASE_SMALL_H
#define BT_ENGINE_BASE_SMALL_H

#include <stddef.h>

/* BT_WIDEST before a function of plain loops also compiles it for wider vectors; the version for the processor is
 * chosen at program start. All versions compute the same bits, because the compiler may not reorder sums. With clang it
 * is empty, because clang uses the same symbol for clones of static functions with equal names in two files. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define BT_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BT_WIDEST
#endif

static inline size_t bt_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t bt_max_size(size_t a, size_t b) { return a > b ? a : b; }

/* Comparison for qsort: doubles in ascending order; NaN is not allowed. */
static inline int bt_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
