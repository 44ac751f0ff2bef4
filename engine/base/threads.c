/* threads.c - a fixed pool: one generation counter, one countdown. Whoever waits spins a little,
 * then sleeps on a futex: a waiter that spins on holds the very core its late partner needs when
 * the machine has other work. */
#include "engine/base/threads.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"

/* POLL_NS: between two polls of the idle hooks while asleep */
enum { SPIN_NS = 50000, POLL_NS = 200000, HOOKS = 4 };

typedef struct hook {
    void (*poll)(void *);
    void *ctx;
} hook;

static struct {
    int count;
    pthread_t *threads;          /* count - 1 workers */
    _Atomic uint32_t generation; /* futex: a new job, or quit */
    _Atomic uint32_t pending;    /* futex: workers still running the job */
    /* workers in futex_wait, and the caller: nobody asleep saves the system call */
    _Atomic uint32_t asleep;
    _Atomic int quit;
    size_t n, grain;
    bt_range_fn fn;
    void *ctx;
    hook hooks[HOOKS];
    int n_hooks;
} pool = {.count = 1};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns) {
    struct timespec t = {.tv_nsec = timeout_ns};
    atomic_fetch_add(&pool.asleep, 1);
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, timeout_ns > 0 ? &t : NULL, NULL, 0);
    atomic_fetch_sub(&pool.asleep, 1);
}

/* After the word has changed. The sleeper counts itself before the kernel compares the word, so
 * either it is counted here or it sees the new word: both are sequentially consistent. */
static void futex_wake_all(_Atomic uint32_t *word) {
    if (atomic_load(&pool.asleep))
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Returns when *word no longer is `seen` (until_zero: when it is 0). */
static void wait_change(_Atomic uint32_t *word, uint32_t seen, int until_zero, int idle) {
    int64_t until = bt_now_ns() + SPIN_NS;
    for (;;) {
        for (int i = 0; i < 64; i++) {
            uint32_t now = atomic_load_explicit(word, memory_order_acquire);
            if (until_zero ? now == 0 : now != seen) return;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        if (idle) (void)bt_threads_poll();
        if (bt_now_ns() < until) continue;
        uint32_t now = atomic_load_explicit(word, memory_order_acquire);
        if (until_zero ? now == 0 : now != seen) return;
        futex_wait(word, now, idle && pool.n_hooks > 0 ? POLL_NS : 0);
    }
}

static void run_range(int thread) {
    size_t units = (pool.n + pool.grain - 1) / pool.grain, c = (size_t)pool.count,
           t = (size_t)thread;
    size_t begin = units * t / c * pool.grain, end = units * (t + 1) / c * pool.grain;
    if (end > pool.n) end = pool.n;
    if (begin < end) pool.fn(pool.ctx, thread, begin, end);
}

static void *worker(void *arg) {
    int thread = (int)(intptr_t)arg;
    /* generation at creation; bt_threads_init resets it before starting workers */
    uint32_t seen = 0;
    for (;;) {
        wait_change(&pool.generation, seen, 0, 0);
        seen = atomic_load_explicit(&pool.generation, memory_order_acquire);
        if (atomic_load(&pool.quit)) return NULL;
        run_range(thread);
        if (atomic_fetch_sub(&pool.pending, 1) == 1) futex_wake_all(&pool.pending);
    }
}

void bt_threads_release(void) {
    if (pool.threads) {
        atomic_store(&pool.quit, 1);
        atomic_fetch_add(&pool.generation, 1);
        futex_wake_all(&pool.generation);
        for (int i = 0; i < pool.count - 1; i++) pthread_join(pool.threads[i], NULL);
        free(pool.threads);
        pool.threads = NULL;
    }
    pool.count = 1;
}

bt_code bt_threads_init(int count, bt_err *err) {
    if (count < 1 || count > 1024)
        return bt_fail(err, BT_ARG, "threads must be 1..1024, not %d", count);
    bt_threads_release();
    atomic_store(&pool.quit, 0);
    atomic_store(&pool.generation, 0);
    if (count == 1) return BT_OK;
    pool.threads = calloc((size_t)count - 1, sizeof *pool.threads);
    if (!pool.threads) return bt_fail(err, BT_NOMEM, "cannot take memory for %d threads", count);
    for (int i = 0; i < count - 1; i++) {
        int rc = pthread_create(&pool.threads[i], NULL, worker, (void *)(intptr_t)(i + 1));
        if (rc) {
            pool.count = i + 1;
            bt_threads_release();
            return bt_fail_errno(err, BT_NOMEM, rc, "cannot start compute thread %d of %d", i + 1,
                                 count);
        }
    }
    pool.count = count;
    return BT_OK;
}

int bt_threads_count(void) { return pool.count; }

void bt_threads_on_idle(void (*poll)(void *), void *ctx) {
    bt_threads_off_idle(poll, ctx);
    assert(pool.n_hooks < HOOKS);
    pool.hooks[pool.n_hooks++] = (hook){poll, ctx};
}

void bt_threads_off_idle(void (*poll)(void *), void *ctx) {
    int n = 0;
    for (int i = 0; i < pool.n_hooks; i++)
        if (pool.hooks[i].poll != poll || pool.hooks[i].ctx != ctx) pool.hooks[n++] = pool.hooks[i];
    pool.n_hooks = n;
}

int bt_threads_poll(void) {
    for (int i = 0; i < pool.n_hooks; i++) pool.hooks[i].poll(pool.hooks[i].ctx);
    return pool.n_hooks;
}

void bt_parallel_for(size_t n, size_t grain, bt_range_fn fn, void *ctx) {
    if (n == 0) return;
    if (grain == 0) grain = 1;
    if (pool.count == 1 || n <= grain) {
        fn(ctx, 0, 0, n);
        return;
    }
    pool.n = n;
    pool.grain = grain;
    pool.fn = fn;
    pool.ctx = ctx;
    atomic_store_explicit(&pool.pending, (uint32_t)pool.count - 1, memory_order_relaxed);
    atomic_fetch_add(&pool.generation, 1);
    futex_wake_all(&pool.generation);
    run_range(0);
    wait_change(&pool.pending, 0, 1, 1);
}
