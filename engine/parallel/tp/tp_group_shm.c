/* tp_group_shm.c - a tensor-parallel group on one host: a mapping shared by all its ranks.
 *
 *  | a line per rank | common (M, C) | rank 0: partial (M, C), two outboxes | rank 1:... |
 *
 * An exchange is one barrier: a rank writes its data before it and reads the data of other ranks after it. There is no
 * second barrier for readers: `partial` and `common` are written again after the next barrier
 * only, by the contract of base/tp_group.h, and two outboxes alternate, so that one is written again after two
 * barriers. */
#include "engine/parallel/tp/tp_group_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/base/os/memory_wait.h"
#include "engine/base/small.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"

enum {
    PAGE = 4096,
    OUTBOX_LEAST = 64 << 10,
    SPIN_NS = 50000,
    POLL_NS = 200000,
    NAP_NS = 100000000,
    SUM_ELEMS = 1024,
    SUM_LEVELS = 16
};

typedef struct line {          /* state of one rank, on cache lines of its own */
    _Atomic uint32_t arrived;  /* futex: number of barriers at which this rank has arrived */
    _Atomic uint32_t sleepers; /* number of ranks that sleep */
    char rest[120];
} line;

typedef struct shm_group {
    bt_tp_group t; /* first member */
    bt_host_memory memory;
    unsigned char *base; /* beginning of the mapping */
    size_t bytes, common_at, ranks_at, per_rank, outbox_at, outbox_bytes;
    uint32_t meetings;
} shm_group;

static shm_group *shm_group_of(bt_tp_group *t) { return (shm_group *)t; }
static size_t paged(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* ---- layout ---------------------------------------------------------------------------------- */

static void lay_out_shm(shm_group *m, int size, size_t rows, size_t cols) {
    size_t matrix = paged(rows * cols * sizeof(float)),
           own = ((rows + (size_t)size - 1) / (size_t)size) *
                 (cols * sizeof(float) + sizeof(float));
    size_t stats = rows * sizeof(bt_row_stat);
    m->outbox_bytes = paged(own > stats ? own : stats);
    if (m->outbox_bytes < OUTBOX_LEAST) m->outbox_bytes = OUTBOX_LEAST;
    m->common_at = paged((size_t)size * sizeof(line));
    m->ranks_at = m->common_at + matrix;
    m->outbox_at = matrix;
    m->per_rank = matrix + 2 * m->outbox_bytes;
    m->bytes = m->ranks_at + (size_t)size * m->per_rank;
}

static line *rank_line(const shm_group *m, int rank) { return (line *)(void *)m->base + rank; }
static float *partial_of(const shm_group *m, int rank) {
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a group that exists
    return (float *)(void *)(m->base + m->ranks_at + (size_t)rank * m->per_rank);
}

/* Returns the outbox for the next barrier. */
static unsigned char *outbox_of(const shm_group *m, int rank) {
    return m->base + m->ranks_at + (size_t)rank * m->per_rank + m->outbox_at +
           (m->meetings & 1) * m->outbox_bytes;
}

/* ---- meeting --------------------------------------------------------------------------------- */

static bool has_arrived(const line *l, uint32_t meeting) {
    return (int32_t)(atomic_load_explicit(&l->arrived, memory_order_acquire) - meeting) >= 0;
}

/* A sleeping rank increases the count before the kernel compares the word. So the waking rank either finds it
 * counted, or the sleeper reads the new word and does not sleep. */
static void wait_for_meeting(line *l, uint32_t meeting) {
    int64_t until = bt_now_ns() + SPIN_NS;
    while (!has_arrived(l, meeting)) {
        for (int i = 0; i < 64 && !has_arrived(l, meeting); i++) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        /* polls, because the awaited rank may itself wait for messages of this rank */
        int polled = bt_threads_poll();
        if (bt_now_ns() < until) continue;
        uint32_t seen = atomic_load(&l->arrived);
        if ((int32_t)(seen - meeting) >= 0) return;
        atomic_fetch_add(&l->sleepers, 1);
        bt_memory_wait(&l->arrived, seen, polled > 0 ? POLL_NS : NAP_NS, BT_WAIT_SHARED);
        atomic_fetch_sub(&l->sleepers, 1);
    }
}

static void arrive_and_wait(shm_group *m) {
    uint32_t meeting = ++m->meetings;
    line *mine = rank_line(m, m->t.rank);
    int64_t start = bt_now_ns();
    atomic_store(&mine->arrived, meeting);
    if (atomic_load(&mine->sleepers)) bt_memory_wake(&mine->arrived, BT_WAIT_SHARED);
    bt_span_begin(BT_MR_WAIT);
    for (int k = 0; k < m->t.size; k++)
        if (k != m->t.rank) wait_for_meeting(rank_line(m, k), meeting);
    bt_span_end();
    m->t.busy_ns -= bt_now_ns() - start;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void count_shm_bytes(uint64_t bytes) { bt_comm_count(bytes, bytes); }

/* Copies bytes [from, from + n) of a rank's own rows of the arrays, one array after another, into or out of the box. */
static void copy_group_rows(const bt_tp_rows *arrays, size_t n_arrays, size_t first, size_t end,
                            size_t from, size_t n, unsigned char *box, bool out) {
    size_t at = 0;
    for (size_t i = 0; i < n_arrays; i++) {
        size_t w = arrays[i].row_bytes, len = (end - first) * w, begin = at > from ? at : from,
               stop = bt_min_size(at + len, from + n);
        if (begin < stop) {
            unsigned char *x = (unsigned char *)arrays[i].x + first * w + (begin - at),
                          *b = box + (begin - from);
            if (out)
                memcpy(x, b, stop - begin);
            else
                memcpy(b, x, stop - begin);
        }
        at += len;
    }
}

static void gather_shm_rows(shm_group *m, const bt_tp_rows *arrays, size_t n_arrays, size_t rows) {
    int size = m->t.size, me = m->t.rank;
    size_t width = 0, longest = 0, mine = 0;
    for (size_t i = 0; i < n_arrays; i++) width += arrays[i].row_bytes;
    for (int k = 0; k < size; k++) {
        size_t bytes = (bt_tp_first_row(rows, k + 1, size) - bt_tp_first_row(rows, k, size)) *
                       width;
        if (bytes > longest) longest = bytes;
        if (k == me) mine = bytes;
    }
    count_shm_bytes((uint64_t)(size - 1) * mine);
    if (n_arrays == 1 && arrays[0].x == m->t.common) {
        arrive_and_wait(m);
        return;
    }
    for (size_t from = 0; from < longest; from += m->outbox_bytes) {
        uint32_t box = m->meetings;
        copy_group_rows(arrays, n_arrays, bt_tp_first_row(rows, me, size),
                        bt_tp_first_row(rows, me + 1, size), from, m->outbox_bytes,
                        outbox_of(m, me), false);
        arrive_and_wait(m);
        m->meetings = box; /* boxes of this barrier */
        for (int d = 1; d < size; d++) {
            int k = (me + d) % size;
            copy_group_rows(arrays, n_arrays, bt_tp_first_row(rows, k, size),
                            bt_tp_first_row(rows, k + 1, size), from, m->outbox_bytes,
                            outbox_of(m, k), true);
        }
        m->meetings = box + 1;
    }
}

typedef struct add_job {
    const shm_group *m;
    float *x;
    size_t begin;
} add_job;

static const float *box_of(const shm_group *m, int rank) {
    return (const float *)(const void *)outbox_of(m, rank);
}
static const float *matrix_of(const shm_group *m, int rank) { return partial_of(m, rank); }

/* Sets sum to the elements `at` of n ranks from `first` on, added as a tree. The memory behind the sum has space
 * for one sum of each level. */
static void add_ranks_as_tree(const shm_group *m, const float *(*of_rank)(const shm_group *, int),
                              int first, int n, size_t at, size_t elems, float *sum) {
    if (n == 1) {
        memcpy(sum, of_rank(m, first) + at, elems * sizeof *sum);
        return;
    }
    int left = bt_tp_left(n);
    add_ranks_as_tree(m, of_rank, first, left, at, elems, sum);
    if (n - left > 1)
        add_ranks_as_tree(m, of_rank, first + left, n - left, at, elems, sum + SUM_ELEMS);
    bt_active_kernels()->add(sum, n - left > 1 ? sum + SUM_ELEMS : of_rank(m, first + left) + at,
                             elems);
}

/* The bits do not depend on the owner of the rows. */
static void add_row_range(void *ctx, int thread, size_t from, size_t to) {
    const add_job *j = ctx;
    const shm_group *m = j->m;
    (void)thread;
    if (m->t.size == 2) { /* with two summands the order does not matter */
        bt_active_kernels()->add(j->x + j->begin + from,
                                 partial_of(m, 1 - m->t.rank) + j->begin + from, to - from);
        return;
    }
    for (size_t i = from; i < to; i += SUM_ELEMS) {
        float sum[SUM_LEVELS * SUM_ELEMS];
        size_t n = bt_min_size(SUM_ELEMS, to - i), at = j->begin + i;
        add_ranks_as_tree(m, matrix_of, 0, m->t.size, at, n, sum);
        memcpy(j->x + at, sum, n * sizeof *sum);
    }
}

/* ---- bt_tp_group ----------------------------------------------------------------------------- */

static void shm_all_gather_rows(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays,
                                size_t rows) {
    bt_traffic_mark mark = bt_tp_group_start();
    gather_shm_rows(shm_group_of(t), arrays, n_arrays, rows);
    bt_tp_group_done(t, &mark, BT_COLL_ALL_GATHER);
}

static void shm_reduce_scatter_rows(bt_tp_group *t, size_t rows, size_t cols) {
    bt_traffic_mark mark = bt_tp_group_start();
    size_t first = bt_tp_first_row(rows, t->rank, t->size) * cols,
           n = bt_tp_first_row(rows, t->rank + 1, t->size) * cols - first;
    count_shm_bytes((rows * cols - n) * sizeof(float));
    arrive_and_wait(shm_group_of(t));
    add_job j = {shm_group_of(t), t->partial, first};
    bt_parallel_for(n, BT_SUM_BLOCK, add_row_range, &j);
    bt_tp_group_done(t, &mark, BT_COLL_REDUCE_SCATTER);
}

static void shm_all_gather(bt_tp_group *t, const void *mine, void *all, size_t bytes) {
    bt_traffic_mark mark = bt_tp_group_start();
    memcpy((unsigned char *)all + (size_t)t->rank * bytes, mine, bytes);
    bt_tp_rows rows = {all, bytes};
    gather_shm_rows(shm_group_of(t), &rows, 1, (size_t)t->size);
    bt_tp_group_done(t, &mark, BT_COLL_ALL_GATHER);
}

static void shm_all_reduce(bt_tp_group *t, float *x, size_t n, int group_size) {
    bt_traffic_mark mark = bt_tp_group_start();
    shm_group *m = shm_group_of(t);
    size_t most = m->outbox_bytes / sizeof(float);
    int first = t->rank / group_size * group_size;
    count_shm_bytes(2 * (uint64_t)(group_size - 1) * n * sizeof(float) / (uint64_t)group_size);
    for (size_t at = 0; at < n; at += most) {
        size_t k = bt_min_size(most, n - at);
        uint32_t box = m->meetings;
        memcpy(outbox_of(m, t->rank), x + at, k * sizeof *x);
        arrive_and_wait(m);
        m->meetings = box;
        for (size_t i = 0; i < k; i += SUM_ELEMS) {
            float sum[SUM_LEVELS * SUM_ELEMS];
            size_t some = bt_min_size(SUM_ELEMS, k - i);
            add_ranks_as_tree(m, box_of, first, group_size, i, some, sum);
            memcpy(x + at + i, sum, some * sizeof *sum);
        }
        m->meetings = box + 1;
    }
    bt_tp_group_done(t, &mark, BT_COLL_ALL_REDUCE);
}

static void shm_group_destroy(bt_tp_group *t) {
    bt_host_memory_release(&shm_group_of(t)->memory);
    free(t);
}

/* ---- create ---------------------------------------------------------------------------------- */

size_t bt_tp_group_shm_bytes(int size, size_t rows, size_t cols) {
    shm_group m;
    lay_out_shm(&m, size, rows, cols);
    return m.bytes;
}

bt_code bt_tp_group_shm_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols,
                               bt_err *err) {
    *out = NULL;
    shm_group *m = calloc(1, sizeof *m);
    shm_group plan;
    lay_out_shm(&plan, tp->size, rows, cols);
    bt_host_memory memory;
    bt_code code = bt_host_memory_create(&memory, tp, plan.bytes, "bitrain-tp", err);
    int64_t seen = m && memory.at;
    if (code == BT_OK) code = bt_all_reduce_i64(tp, &seen, 1, BT_MIN, err);
    if (code != BT_OK || !seen) {
        bt_host_memory_release(&memory);
        free(m);
        return code;
    }
    *m = plan;
    m->memory = memory;
    m->base = memory.at;
    m->t = (bt_tp_group){.rank = tp->rank,
                         .size = tp->size,
                         .why = BT_ERR_INIT,
                         .all_gather_rows = shm_all_gather_rows,
                         .reduce_scatter_rows = shm_reduce_scatter_rows,
                         .all_gather = shm_all_gather,
                         .all_reduce = shm_all_reduce,
                         .destroy = shm_group_destroy,
                         .partial = partial_of(m, tp->rank),
                         .common = (float *)(void *)(m->base + m->common_at)};
    *out = &m->t;
    return BT_OK;
}
