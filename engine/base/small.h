/* small.h - the few one-line helpers that many files need. Any thread. */
#ifndef BT_ENGINE_BASE_SMALL_H
#define BT_ENGINE_BASE_SMALL_H

#include <stddef.h>

/* in front of a function of plain loops: compiled for wide vectors as well, of which the processor's are
 * chosen when the program starts. The same bits each way: the compiler may not reorder sums. Not with
 * clang, whose clones of static functions of two files have one name. */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define BT_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define BT_WIDEST
#endif

static inline size_t bt_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t bt_max_size(size_t a, size_t b) { return a > b ? a : b; }

/* for qsort over doubles: ascending; NaN must not be among them */
static inline int bt_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif
