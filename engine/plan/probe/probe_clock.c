/* probe_clock.c - chooses the clock of the probes and the typical value of samples. */
#include "engine/plan/probe/probe_clock.h"

#include <stdlib.h>
#include <time.h>

#include "engine/base/small.h"
#include "engine/base/threads.h"

double bt_probe_clock(void) {
    struct timespec t;
    clock_gettime(bt_threads_count() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

double bt_probe_typical(double *samples, size_t n) {
    qsort(samples, n, sizeof *samples, bt_compare_doubles);
    if (n == 0) return 0;
    /* Other programs compete for the caches and only lengthen a sample. If several threads wait for the slowest one, a
     * delay of any thread lengthens the sample, so a lower quantile is used. */
    return bt_threads_count() == 1 ? samples[n / 4] : samples[n / 8];
}
