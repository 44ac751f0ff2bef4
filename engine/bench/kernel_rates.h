/* kernel_rates.h - every slot of every kernel set at model-shaped sizes, compared with the machine's measured peak.
 *
 * `bound` is the rate that limits a kernel: for products the rate of their instruction on registers alone (int8, bf16
 * or fp32 of that set), for all other kernels that of the memory triad. Runs on the pool as it is; the kernel choice is
 * "auto" afterwards.
 * Threads: the training thread. Cost: about 0.1 s a row, more for slow sets. */
#ifndef BT_ENGINE_BENCH_KERNEL_RATES_H
#define BT_ENGINE_BENCH_KERNEL_RATES_H

#include "engine/base/status.h"

typedef struct bt_bench_row {
    /* "avx512", "tern_dx bf16", "4096x512x512"; slot "peak ...": a bound itself */
    const char *isa, *slot, *size;
    const char *unit;       /* "GOP/s" or "GB/s" */
    double best, median;    /* over the repetitions, in unit */
    double bound;           /* in unit; 0 when unknown */
    const char *bound_name; /* "int8 peak", "triad", ... */
} bt_bench_row;

typedef struct bt_bench_kernels_cfg {
    /* one set only; NULL or "all": every set this machine has */
    const char *isa;
    /* only slots whose name begins with this; NULL: all */
    const char *slot;
    double seconds; /* spent on each row, at least 3 repetitions */
    /* called before a row is measured, and with slot "peaks" and size "" before the rates of a set are; may
     * be NULL */
    void (*before)(void *ctx, const char *isa, const char *slot, const char *size);
    /* called as soon as a row is measured; texts live until it returns */
    void (*row)(void *ctx, const bt_bench_row *row);
    void *ctx;
} bt_bench_kernels_cfg;

bt_code bt_bench_kernels(const bt_bench_kernels_cfg *cfg, bt_err *err) BT_MUST_CHECK;

#endif
