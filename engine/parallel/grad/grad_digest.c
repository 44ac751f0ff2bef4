/* grad_digest.c - sum and maximum of bits, range by range. */
#include "engine/parallel/grad/grad_digest.h"

#include <stdatomic.h>
#include <string.h>

#include "engine/base/threads.h"

enum { CHUNK = 1 << 16 }; /* in elements: 256 KiB, processed by one thread at a time */
#define MAGNITUDE 0x7fffffffu
#define INFINITE 0x7f800000u

typedef struct job {
    const float *x;
    size_t n;
    _Atomic uint32_t sum, largest;
} job;

static void raise_to_at_least(_Atomic uint32_t *largest, uint32_t v) {
    uint32_t seen = atomic_load_explicit(largest, memory_order_relaxed);
    while (seen < v && !atomic_compare_exchange_weak_explicit(
                           largest, &seen, v, memory_order_relaxed, memory_order_relaxed)) {}
}

static void read_chunks(void *ctx, int thread, size_t begin, size_t end) {
    job *j = ctx;
    const size_t first = begin * CHUNK, last = end * CHUNK < j->n ? end * CHUNK : j->n;
    uint32_t sum = 0, bits;
    int32_t largest = 0; /* signed, because SSE2 compares no other integers */
    (void)thread;
    for (size_t i = first; i < last; i++) {
        memcpy(&bits, j->x + i, sizeof bits);
        const int32_t magnitude = (int32_t)(bits & MAGNITUDE);
        sum += bits;
        largest = magnitude > largest ? magnitude : largest;
    }
    atomic_fetch_add_explicit(&j->sum, sum, memory_order_relaxed);
    raise_to_at_least(&j->largest, (uint32_t)largest);
}

void bt_grad_digest_add(bt_grad_digest *d, const float *x, size_t n) {
    job j = {.x = x, .n = n};
    bt_parallel_for((n + CHUNK - 1) / CHUNK, 1, read_chunks, &j);
    d->sum += j.sum;
    if (j.largest > d->largest) d->largest = j.largest;
}

bool bt_grad_digest_finite(const bt_grad_digest *d) { return d->largest < INFINITE; }
