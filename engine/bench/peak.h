/* peak.h - measured peak rates of this machine: the denominator of mfu and of every "percent of peak".
 *
 * Call after bt_kernels_select and bt_threads_init, from the training thread while the pool is idle. The result is
 * the best of several short bursts on all threads at once, so that other programs' load has little effect. */
#ifndef BT_ENGINE_BENCH_PEAK_H
#define BT_ENGINE_BENCH_PEAK_H

#include "engine/kernels/table/kernels.h"

/* operations per second of `threads` threads (at most the pool's) doing one kind of multiply-add; 0
 * when no set in use has it */
double bt_peak_rate(bt_peak kind, int threads);
/* the peak FLOP/s of which MFU is a fraction: bf16 (AMX if the processor has it), else fp32 vectors. Under 0.15
 * s. */
double bt_peak_flops(int threads);
/* bytes per second of a[i] = b[i] + s c[i] over `mib` MiB in all on the whole pool, 16 bytes an
 * element: a line that is written is read first. 0 when memory is refused */
double bt_peak_triad(size_t mib);
/* bytes per second of only reading `mib` MiB on the whole pool; 0 when memory is refused */
double bt_peak_read(size_t mib);

#endif
