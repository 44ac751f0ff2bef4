/* threads.h - the only interface to compute threads: a fixed pool that divides ranges.
 *
 * Order:    init once per process, then bt_parallel_for from the training thread only, release at the end.
 * Split:    [0, n) is divided at multiples of `grain` into one part per thread. A thread that has finished its part
 *           takes units from other parts, so `fn` may be called several times by a thread. The assignment is not
 *           deterministic: a thread whose core is busy with other programs does less work. Results do not depend on it,
 *           because a range computes its outputs completely, sums over divided dimensions use fixed blocks, and
 *           `thread` only selects scratch memory.
 * Idle:     while the training thread waits for workers, it calls the idle hooks (MPI progresses by polling). Other
 *           code that waits calls bt_threads_poll. At most four hooks; adding one twice has no effect.
 * Cost:     about a microsecond per call while the workers spin; they sleep after about 50 us without work. */
#ifndef BT_ENGINE_BASE_THREADS_H
#define BT_ENGINE_BASE_THREADS_H

#include <stddef.h>

#include "engine/base/status.h"

typedef void (*bt_range_fn)(void *ctx, int thread, size_t begin, size_t end);

/* count >= 1; the caller is thread 0. Another call changes the number of threads. */
bt_code bt_threads_init(int count, bt_err *err) BT_MUST_CHECK;
void bt_threads_release(void);
int bt_threads_count(void); /* 1 before bt_threads_init */
void bt_parallel_for(size_t n, size_t grain, bt_range_fn fn, void *ctx);
/* Calls fn once on every thread, with [thread, thread + 1). */
void bt_threads_each(bt_range_fn fn, void *ctx);
void bt_threads_on_idle(void (*poll)(void *ctx), void *ctx);
/* has no effect if the hook is absent */
void bt_threads_off_idle(void (*poll)(void *ctx), void *ctx);
int bt_threads_poll(void); /* calls the hooks and returns how many there are */

#endif
