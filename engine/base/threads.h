/* threads.h - the one place that knows about compute threads: a fixed pool that shares out ranges.
 *
 * Order:    init once per process, then bt_parallel_for from the training thread only, release at the end.
 * Split:    [0, n) is cut at multiples of `grain` into as many stretches as there are threads, one for each; a
 *           thread that has done its own takes of the others'. So `fn` may be called several times for a
 *           thread, and which thread does what is not known before: a core that other programs use does
 *           less of the work, and a thread that does not come to a core at all is not waited for.
 *           Kernels keep results independent of it: a range owns its outputs, sums over what is split go
 *           through fixed blocks, `thread` chooses scratch memory alone.
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
/* fn once on every thread, with [thread, thread + 1) */
void bt_threads_each(bt_range_fn fn, void *ctx);
void bt_threads_on_idle(void (*poll)(void *ctx), void *ctx);
void bt_threads_off_idle(void (*poll)(void *ctx), void *ctx); /* may be absent */
int bt_threads_poll(void);                                    /* calls them; how many there are */

#endif
