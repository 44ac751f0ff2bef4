/* threads.h - the one place that knows about compute threads: a fixed pool and a static split.
 *
 * Order:    init once per process, then bt_parallel_for from the training thread only, release at the end.
 * Split:    [0, n) is cut into `count` contiguous ranges at multiples of `grain`; range i always goes to thread i.
 *           The cut depends on n, grain and count alone. Kernels keep results independent of it: a
 *           range owns its outputs, sums over what is split go through fixed blocks.
 * Idle:     while the training thread waits for the others it calls the idle hooks (MPI needs
 *           polling to progress); so does whoever else lets it wait, with `poll`. At most four
 *           hooks; the same twice is one.
 * Cost:     about a microsecond per call when the workers spin; they sleep after ~50 us without work. */
#ifndef BT_ENGINE_BASE_THREADS_H
#define BT_ENGINE_BASE_THREADS_H

#include <stddef.h>

#include "engine/base/status.h"

typedef void (*bt_range_fn)(void *ctx, int thread, size_t begin, size_t end);

/* count >= 1, the caller is thread 0; again: resizes */
bt_code bt_threads_init(int count, bt_err *err) BT_MUST_CHECK;
void bt_threads_release(void);
int bt_threads_count(void); /* 1 before init */
void bt_parallel_for(size_t n, size_t grain, bt_range_fn fn, void *ctx);
void bt_threads_on_idle(void (*poll)(void *ctx), void *ctx);
void bt_threads_off_idle(void (*poll)(void *ctx), void *ctx); /* may be absent */
int bt_threads_poll(void);                                    /* calls them; how many there are */

#endif
