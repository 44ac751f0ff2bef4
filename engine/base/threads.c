/* threads.c - a fixed pool of threads with one generation counter, one count of remaining units, and one span of units
 * per thread. A waiting thread spins briefly and then sleeps on a futex, because on a busy machine it would occupy the
 * core that a late thread needs. A thread takes units from the front of its own span, then from the back of other
 * spans. A region ends when all its units are done, so a late thread finds no units and does not delay it. A thread
 * reads fn, ctx and grain of a region only after it has taken units, which keep the region from ending. */
#include "engine/base/threads.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_wait.h"

/* POLL_NS: interval of calls of the idle hooks while the training thread sleeps. */
enum { SPIN_NS = 50000, POLL_NS = 200000, HOOKS = 4 };

typedef struct hook {
    void (*poll)(void *);
    void *ctx;
} hook;

/* While threads are uneven, a thread takes half of the rest of its span at a time, but at least an eighth of the span
 * (SHARE). Smaller parts would cost time, because each part unpacks the weights of its products again. Threads count as
 * uneven after two signs (note_unevenness) within NEAR regions, until CALM regions pass without a sign. */
enum { SHARE = 8, NEAR = 64, CALM = 256, UNEVEN_NS = 20000 };

/* Flag in the begin of a span: only its own thread may take the units. */
static const uint32_t OWN_ONLY = 1u << 31;

typedef struct
    slot { /* state of one thread: its span (begin << 32 | end, in units) and its progress */
    _Alignas(64) _Atomic uint64_t span;
    _Atomic int64_t done_ns; /* time at which it last found no units */
} slot;

static struct {
    int count;
    pthread_t *threads;          /* count - 1 workers */
    slot *slots;                 /* (count) */
    _Atomic uint32_t generation; /* futex; changes with each new region, and at the end */
    _Atomic uint32_t left;       /* futex; number of units that are not done */
    /* Number of sleeping workers and callers; at 0 the system call that wakes them is omitted. */
    _Atomic uint32_t asleep;
    _Atomic int quit;
    _Atomic int uneven;      /* number of regions until threads take whole spans again */
    _Atomic uint32_t stolen; /* units taken from spans of other threads in this region */
    int since;               /* regions since the last sign of unevenness */
    size_t n, grain;
    bt_range_fn fn;
    void *ctx;
    hook hooks[HOOKS];
    int n_hooks;
} pool = {.count = 1};

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t timeout_ns) {
    atomic_fetch_add(&pool.asleep, 1);
    bt_memory_wait(word, seen, timeout_ns, BT_WAIT_PROCESS);
    atomic_fetch_sub(&pool.asleep, 1);
}

/* Called after the word has changed. A sleeping thread increments `asleep` before the kernel compares the word. Both
 * accesses are sequentially consistent, so either this call sees the sleeper, or the sleeper sees the new word. */
static void futex_wake_all(_Atomic uint32_t *word) {
    if (atomic_load(&pool.asleep)) bt_memory_wake(word, BT_WAIT_PROCESS);
}

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

static uint64_t pack_span(uint64_t begin, uint64_t end) { return begin << 32 | end; }
static uint32_t span_begin(uint64_t s) { return (uint32_t)(s >> 32); }
static uint32_t span_end(uint64_t s) { return (uint32_t)s; }

/* Returns how many units to take at once from a span of `units`, of which `left` remain. */
static uint32_t units_to_take(uint32_t units, uint32_t left) {
    if (atomic_load_explicit(&pool.uneven, memory_order_relaxed) == 0) return left;
    return left / 2 > units / SHARE ? left / 2 : units / SHARE ? units / SHARE : 1;
}

/* Takes units [*begin, *end) from the front of a span of `units`, or half of the rest from its back. */
static bool take_units(slot *from, bool back, uint32_t units, uint32_t *begin, uint32_t *end) {
    uint64_t s = atomic_load_explicit(&from->span, memory_order_acquire), rest;
    do {
        const uint32_t own_only = span_begin(s) & OWN_ONLY, b = span_begin(s) & ~OWN_ONLY,
                       e = span_end(s);
        if (b >= e || (back && own_only)) return false;
        uint32_t n = back ? (e - b + 1) / 2 : e - b;
        const uint32_t most = units_to_take(units, n);
        if (n > most) n = most;
        *begin = back ? e - n : b;
        *end = *begin + n;
        rest = back ? pack_span(b, e - n) : pack_span((b + n) | own_only, e);
    } while (!atomic_compare_exchange_weak_explicit(&from->span, &s, rest, memory_order_acq_rel,
                                                    memory_order_acquire));
    return true;
}

static void do_units(int thread, uint32_t begin, uint32_t end) {
    size_t first = begin * pool.grain, last = end * pool.grain;
    pool.fn(pool.ctx, thread, first, last < pool.n ? last : pool.n);
    if (atomic_fetch_sub(&pool.left, end - begin) == end - begin) futex_wake_all(&pool.left);
}

static void run_units(int thread) {
    slot *own = &pool.slots[thread];
    uint32_t begin, end;
    const uint64_t first = atomic_load_explicit(&own->span, memory_order_relaxed);
    const uint32_t units = span_end(first) - (span_begin(first) & ~OWN_ONLY);
    while (take_units(own, false, units, &begin, &end)) do_units(thread, begin, end);
    for (int i = 1; i < pool.count; i++) {
        slot *other = &pool.slots[(thread + i) % pool.count];
        while (take_units(other, true, units, &begin, &end)) {
            atomic_fetch_add_explicit(&pool.stolen, end - begin, memory_order_relaxed);
            do_units(thread, begin, end);
        }
    }
    atomic_store_explicit(&own->done_ns, bt_now_ns(), memory_order_relaxed);
}

static void *run_worker(void *arg) {
    int thread = (int)(intptr_t)arg;
    /* bt_threads_init resets the generation to this value before it starts workers */
    uint32_t seen = 0;
    for (;;) {
        wait_change(&pool.generation, seen, 0, 0);
        seen = atomic_load_explicit(&pool.generation, memory_order_acquire);
        if (atomic_load(&pool.quit)) return NULL;
        run_units(thread);
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
    free(pool.slots);
    pool.slots = NULL;
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
    pool.slots = aligned_alloc(64, (size_t)count * sizeof *pool.slots);
    if (!pool.threads || !pool.slots) {
        bt_threads_release();
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %d threads", count);
    }
    memset(pool.slots, 0, (size_t)count * sizeof *pool.slots);
    atomic_store(&pool.left, 0);
    pool.count = count; /* before the workers start, which read it */
    for (int i = 0; i < count - 1; i++) {
        int rc = pthread_create(&pool.threads[i], NULL, run_worker, (void *)(intptr_t)(i + 1));
        if (rc) {
            pool.count = i + 1;
            bt_threads_release();
            return bt_fail_errno(err, BT_NOMEM, rc, "cannot start compute thread %d of %d", i + 1,
                                 count);
        }
    }
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

/* A core is used by something else if another thread waited for a quarter of the region, or ran for a quarter. */
static void note_unevenness(int64_t began, int64_t ended, uint64_t units) {
    int64_t first = ended;
    for (int i = 0; i < pool.count; i++) {
        int64_t at = atomic_load_explicit(&pool.slots[i].done_ns, memory_order_relaxed);
        if (at > began && at < first) first = at;
    }
    const int64_t waited = ended - first;
    int left = atomic_load_explicit(&pool.uneven, memory_order_relaxed);
    if ((waited > UNEVEN_NS && waited > (ended - began) / 4) ||
        4 * (uint64_t)pool.count * atomic_load_explicit(&pool.stolen, memory_order_relaxed) >
            units) {
        if (pool.since <= NEAR || left > 0) left = CALM;
        pool.since = 0;
    } else if (left > 0)
        left--;
    if (pool.since <= NEAR) pool.since++;
    atomic_store_explicit(&pool.uneven, left, memory_order_relaxed);
}

static void run_region(size_t n, size_t grain, bool each, bt_range_fn fn, void *ctx) {
    while ((n + grain - 1) / grain >= OWN_ONLY) grain *= 2;
    const uint64_t units = (n + grain - 1) / grain, count = (uint64_t)pool.count;
    const int64_t began = bt_now_ns();
    pool.n = n;
    pool.grain = grain;
    pool.fn = fn;
    pool.ctx = ctx;
    atomic_store_explicit(&pool.left, (uint32_t)units, memory_order_relaxed);
    atomic_store_explicit(&pool.stolen, 0, memory_order_relaxed);
    for (uint64_t t = 0; t < count; t++)
        atomic_store_explicit(&pool.slots[t].span,
                              pack_span(units * t / count | (each ? OWN_ONLY : 0),
                                        units * (t + 1) / count),
                              memory_order_release);
    atomic_fetch_add(&pool.generation, 1);
    futex_wake_all(&pool.generation);
    run_units(0);
    wait_change(&pool.left, 0, 1, 1);
    if (!each) note_unevenness(began, bt_now_ns(), units);
}

void bt_parallel_for(size_t n, size_t grain, bt_range_fn fn, void *ctx) {
    if (n == 0) return;
    if (grain == 0) grain = 1;
    if (pool.count == 1 || n <= grain) {
        fn(ctx, 0, 0, n);
        return;
    }
    run_region(n, grain, false, fn, ctx);
}

void bt_threads_each(bt_range_fn fn, void *ctx) {
    if (pool.count == 1)
        fn(ctx, 0, 0, 1);
    else
        run_region((size_t)pool.count, 1, true, fn, ctx);
}
