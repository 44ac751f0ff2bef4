/* peak.c - bursts of register-only multiply-adds, and a memory triad. */
#include "engine/bench/peak.h"

#include "engine/base/arena.h"
#include "engine/base/clock.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"

/* Short bursts: on a busy machine few of them are not interrupted. A rank measures at its start, so it stops after
 * REPEATED bursts without a better one. */
enum { BURSTS = 40, REPEATED = 8 };
static const int64_t BURST_NS = 1000000;

typedef struct burst {
    bt_peak kind;
    size_t rounds;
    int threads;
    double ops[1024]; /* by thread */
} burst;

static void run_burst(void *ctx, int thread, size_t begin, size_t end) {
    burst *b = ctx;
    (void)begin;
    (void)end;
    if (thread < b->threads) b->ops[thread] = bt_active_kernels()->peak_ops(b->kind, b->rounds);
}

static double time_burst(burst *b, int64_t *ns) {
    for (int i = 0; i < b->threads; i++) b->ops[i] = 0;
    int64_t t = bt_now_ns();
    bt_threads_each(run_burst, b);
    *ns = bt_now_ns() - t;
    double ops = 0;
    for (int i = 0; i < b->threads; i++) ops += b->ops[i];
    return ops;
}

double bt_peak_rate(bt_peak kind, int threads) {
    static burst b;
    if (threads > bt_threads_count()) threads = bt_threads_count();
    b.kind = kind;
    b.rounds = 64;
    b.threads = threads;
    int64_t ns = 0;
    for (;;) { /* find the length of a burst */
        if (time_burst(&b, &ns) == 0) return 0;
        if (ns > BURST_NS / 4) break;
        b.rounds *= ns > BURST_NS / 32 ? 4 : 16;
    }
    b.rounds = (size_t)((double)b.rounds * (double)BURST_NS / (double)ns) + 1;
    double best = 0;
    for (int i = 0, since = 0; i < BURSTS && since < REPEATED; i++, since++) {
        double ops = time_burst(&b, &ns), rate = ns > 0 ? ops * 1e9 / (double)ns : 0;
        if (rate > 1.005 * best) since = 0;
        if (rate > best) best = rate;
    }
    return best;
}

double bt_peak_flops(int threads) {
    double bf16 = bt_peak_rate(BT_PEAK_BF16, threads);
    return bf16 > 0 ? bf16 : bt_peak_rate(BT_PEAK_FP32, threads);
}

typedef struct triad {
    float *a, *b, *c;
} triad;

static void run_triad(void *ctx, int thread, size_t begin, size_t end) {
    const triad *t = ctx;
    (void)thread;
    for (size_t i = begin; i < end; i++) t->a[i] = t->b[i] + 3.0f * t->c[i];
}

double bt_peak_triad(size_t mib) {
    bt_arena mem;
    size_t n = mib * 1048576 / 12 / 4096 * 4096;
    bt_arena_plan(&mem, "triad");
    size_t a = bt_arena_reserve(&mem, n, 4), b = bt_arena_reserve(&mem, n, 4),
           c = bt_arena_reserve(&mem, n, 4);
    if (bt_arena_commit(&mem, NULL) != BT_OK) return 0;
    triad t = {bt_arena_at(&mem, a), bt_arena_at(&mem, b), bt_arena_at(&mem, c)};
    for (size_t i = 0; i < n; i++) t.b[i] = t.c[i] = 1.0f;
    double best = 0;
    for (int i = 0; i < 6; i++) {
        int64_t from = bt_now_ns();
        bt_parallel_for(n, 4096, run_triad, &t);
        double rate = 16.0 * (double)n * 1e9 / (double)(bt_now_ns() - from);
        if (i > 0 && rate > best) best = rate;
    }
    bt_arena_release(&mem);
    return best;
}

double bt_peak_read(size_t mib) {
    bt_arena mem;
    size_t n = mib * 1048576 / 4;
    bt_arena_plan(&mem, "read");
    size_t at = bt_arena_reserve(&mem, n, 4);
    if (bt_arena_commit(&mem, NULL) != BT_OK) return 0;
    float *x = bt_arena_at(&mem, at);
    double best = 0, sum = 0;
    for (size_t i = 0; i < n; i++) x[i] = 1.0f;
    for (int i = 0; i < 6; i++) {
        int64_t from = bt_now_ns();
        sum += bt_op_sum(x, n);
        double rate = 4.0 * (double)n * 1e9 / (double)(bt_now_ns() - from);
        if (i > 0 && rate > best) best = rate;
    }
    bt_arena_release(&mem);
    return sum > 0 ? best : 0;
}
