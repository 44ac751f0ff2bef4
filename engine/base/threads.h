/* threads.h - the only interface to compute threads: a fixed pool that divides ranges.
 *
 * Order:    init once per process, then bt_parallel_for from the training thread only, release at the end.
 * Split:    [0, n) is cut at multiples of `grain` into one part per thread; a thread that has finished its own
 *           part takes units from other parts. So `fn` may be called several times by a thread, and the assignment
 *           is not deterministic: a core that other programs use does less of the work, and a thread that gets no
 *           core is not waited for. Kernels compute results that do not depend on it: a range owns its outputs,
 *           sums over divided dimensions use fixed blocks, `thread` selects scratch memory only.
 * Idle:     while the training thread waits for workers it calls the idle hooks (MPI needs polling to progress);
 *           other waiting code calls `poll`. At most four hooks; adding the same twice has no effect.
 * Cost:     about a microsecond per call while the workers spin; they sleep after ~50 us without work. */
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
