/* tp_group_messages.c - a tensor-parallel group over MPI: messages between each pair of ranks; both sides process
 * the same chunks in the same order. */
#include "engine/parallel/tp/tp_group_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { TAG = 30100, SLOTS = 8, CHUNK_BYTES = 256 << 10 };
/* SLOTS: maximum number of chunks in flight. A chunk is below the eager limit that bt_comm_init sets between
 * hosts: it is sent without a handshake, so that a receiver that computes, or waits for a core, delays the sender
 * only once. */

typedef struct message_group {
    bt_tp_group t; /* first member */
    bt_comm *comm;
    size_t slots;          /* at most SLOTS; a sum has no more chunks */
    float *staging;        /* (slots, size, CHUNK_BYTES) */
    float **parts;         /* (size) parts of a sum */
    MPI_Request *requests; /* (SLOTS, 2 size BT_TP_ARRAYS) */
    int n_requests[SLOTS];
} message_group;

typedef struct group {
    int first, n;
} group; /* neighbouring ranks that exchange */

enum { CHUNK_ELEMS = CHUNK_BYTES / sizeof(float) };

static message_group *message_group_of(bt_tp_group *t) { return (message_group *)t; }
static group everybody(const bt_tp_group *t) { return (group){0, t->size}; }

static void check_message_mpi(message_group *m, int rc) {
    if (m->t.failed == BT_OK)
        m->t.failed = bt_mpi_check(rc, "exchange of a tensor-parallel group", &m->t.why);
}

static MPI_Request *next_request(message_group *m, int slot) {
    return &m->requests[(size_t)slot * 2 * BT_TP_ARRAYS * (size_t)m->t.size +
                        (size_t)m->n_requests[slot]++];
}

static void receive_from_peer(message_group *m, int slot, void *to, size_t bytes, int from) {
    if (bytes == 0 || m->t.failed != BT_OK) return;
    /* tp is the fastest axis of the mesh, so the world ranks of a group are consecutive */
    bt_pair_add(bt_comm_rank(bt_comm_world()) - m->comm->rank + from,
                &(bt_pair){.messages = 1, .bytes = (int64_t)bytes});
    check_message_mpi(m, MPI_Irecv(to, (int)bytes, MPI_BYTE, from, TAG, m->comm->mpi,
                                   next_request(m, slot)));
}

static void send_to_peer(message_group *m, int slot, const void *from, size_t bytes, int to) {
    if (bytes == 0 || m->t.failed != BT_OK) return;
    bt_comm_count(bytes, bytes);
    check_message_mpi(m, MPI_Isend(from, (int)bytes, MPI_BYTE, to, TAG, m->comm->mpi,
                                   next_request(m, slot)));
}

static void finish_slot(message_group *m, int slot) {
    MPI_Request *all = &m->requests[(size_t)slot * 2 * BT_TP_ARRAYS * (size_t)m->t.size];
    if (m->n_requests[slot] > 0 && m->t.failed == BT_OK)
        check_message_mpi(m, MPI_Waitall(m->n_requests[slot], all, MPI_STATUSES_IGNORE));
    m->n_requests[slot] = 0;
}

static void gather_among(message_group *m, group g, const bt_tp_rows *arrays, size_t n_arrays,
                         size_t rows) {
    int me = m->t.rank - g.first;
    size_t most = 0, mine = bt_tp_first_row(rows, me, g.n),
           end = bt_tp_first_row(rows, me + 1, g.n), widest = 1;
    for (int k = 0; k < g.n; k++) {
        size_t n = bt_tp_first_row(rows, k + 1, g.n) - bt_tp_first_row(rows, k, g.n);
        if (n > most) most = n;
    }
    for (size_t i = 0; i < n_arrays; i++)
        if (arrays[i].row_bytes > widest) widest = arrays[i].row_bytes;
    /* rows per message */
    size_t step = CHUNK_BYTES / widest ? CHUNK_BYTES / widest : 1, window = 0;
    for (size_t r = 0; r < most; r += step, window++) {
        int slot = (int)(window % m->slots);
        finish_slot(m, slot);
        for (int d = 1; d < g.n; d++) {
            int from = (me + d) % g.n, to = (me - d + g.n) % g.n;
            size_t theirs = bt_tp_first_row(rows, from, g.n),
                   theirs_end = bt_tp_first_row(rows, from + 1, g.n);
            for (size_t i = 0; i < n_arrays; i++) {
                size_t w = arrays[i].row_bytes;
                unsigned char *x = arrays[i].x;
                if (theirs + r < theirs_end)
                    receive_from_peer(m, slot, x + (theirs + r) * w,
                                      bt_min_size(step, theirs_end - theirs - r) * w,
                                      g.first + from);
                if (mine + r < end)
                    send_to_peer(m, slot, x + (mine + r) * w, bt_min_size(step, end - mine - r) * w,
                                 g.first + to);
            }
        }
    }
    for (size_t s = 0; s < m->slots; s++) finish_slot(m, (int)s);
}

/* elements [begin, end) of x that rank k owns; c: index of the chunk */
typedef struct span {
    size_t begin, n;
} span;

static span row_chunk(group g, int k, size_t rows, size_t cols, size_t c) {
    size_t begin = bt_tp_first_row(rows, k, g.n) * cols + c * CHUNK_ELEMS,
           end = bt_tp_first_row(rows, k + 1, g.n) * cols;
    return (span){begin, begin < end ? bt_min_size(CHUNK_ELEMS, end - begin) : 0};
}

static float *staging_chunk(const message_group *m, int slot, int k) {
    return m->staging + ((size_t)slot * (size_t)m->t.size + (size_t)k) * CHUNK_ELEMS;
}

static void start_chunk(message_group *m, group g, float *x, size_t rows, size_t cols, size_t c) {
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a group has a rank at least
    int me = m->t.rank - g.first, slot = (int)(c % m->slots);
    span own = row_chunk(g, me, rows, cols, c);
    for (int d = 1; d < g.n; d++)
        receive_from_peer(m, slot, staging_chunk(m, slot, (me + d) % g.n), own.n * sizeof(float),
                          g.first + (me + d) % g.n);
    for (int d = 1; d < g.n; d++) {
        int to = (me - d + g.n) % g.n;
        span theirs = row_chunk(g, to, rows, cols, c);
        send_to_peer(m, slot, x + theirs.begin, theirs.n * sizeof(float), g.first + to);
    }
}

/* Adds n parts from `first` on as a tree into the first part's array and returns it. */
static float *add_parts_as_tree(float *const *parts, int first, int n, size_t elems) {
    if (n == 1) return parts[first];
    int left = bt_tp_left(n);
    float *sum = add_parts_as_tree(parts, first, left, elems);
    bt_op_add(sum, add_parts_as_tree(parts, first + left, n - left, elems), elems);
    return sum;
}

/* The bits do not depend on the owner of the chunk. */
static void add_chunk(message_group *m, group g, float *x, size_t rows, size_t cols, size_t c) {
    int me = m->t.rank - g.first, slot = (int)(c % m->slots);
    span own = row_chunk(g, me, rows, cols, c);
    if (own.n == 0) return;
    for (int k = 0; k < g.n; k++) m->parts[k] = k == me ? x + own.begin : staging_chunk(m, slot, k);
    float *sum;
    /* With two summands the order does not matter, and the sum is in place. */
    if (g.n == 2) {
        bt_op_add(sum = x + own.begin, m->parts[1 - me], own.n);
    } else {
        sum = add_parts_as_tree(m->parts, 0, g.n, own.n);
    }
    if (sum != x + own.begin) memcpy(x + own.begin, sum, own.n * sizeof(float));
}

static void reduce_among(message_group *m, group g, float *x, size_t rows, size_t cols) {
    size_t chunks = 0;
    for (int k = 0; k < g.n; k++) {
        size_t n = (bt_tp_first_row(rows, k + 1, g.n) - bt_tp_first_row(rows, k, g.n)) * cols;
        if ((n + CHUNK_ELEMS - 1) / CHUNK_ELEMS > chunks)
            chunks = (n + CHUNK_ELEMS - 1) / CHUNK_ELEMS;
    }
    for (size_t c = 0; c < chunks && c < m->slots; c++) start_chunk(m, g, x, rows, cols, c);
    for (size_t c = 0; c < chunks; c++) {
        // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a group has a rank at least
        finish_slot(m, (int)(c % m->slots));
        if (m->t.failed == BT_OK) add_chunk(m, g, x, rows, cols, c);
        if (c + m->slots < chunks) start_chunk(m, g, x, rows, cols, c + m->slots);
    }
}

static void message_all_gather_rows(bt_tp_group *t, const bt_tp_rows *arrays, size_t n_arrays,
                                    size_t rows) {
    bt_traffic_mark mark = bt_tp_group_start();
    gather_among(message_group_of(t), everybody(t), arrays, n_arrays, rows);
    bt_tp_group_done(t, &mark, BT_COLL_ALL_GATHER);
}

static void message_reduce_scatter_rows(bt_tp_group *t, size_t rows, size_t cols) {
    bt_traffic_mark mark = bt_tp_group_start();
    reduce_among(message_group_of(t), everybody(t), t->partial, rows, cols);
    bt_tp_group_done(t, &mark, BT_COLL_REDUCE_SCATTER);
}

static void message_all_gather(bt_tp_group *t, const void *mine, void *all, size_t bytes) {
    bt_traffic_mark mark = bt_tp_group_start();
    unsigned char *x = all;
    memcpy(x + (size_t)t->rank * bytes, mine, bytes);
    bt_tp_rows rows = {all, bytes};
    gather_among(message_group_of(t), everybody(t), &rows, 1, (size_t)t->size);
    bt_tp_group_done(t, &mark, BT_COLL_ALL_GATHER);
}

static void message_all_reduce(bt_tp_group *t, float *x, size_t n, int size) {
    bt_traffic_mark mark = bt_tp_group_start();
    group g = {t->rank / size * size, size};
    bt_tp_rows rows = {x, sizeof(float)};
    reduce_among(message_group_of(t), g, x, n, 1);
    gather_among(message_group_of(t), g, &rows, 1, n);
    bt_tp_group_done(t, &mark, BT_COLL_ALL_REDUCE);
}

static void message_group_destroy(bt_tp_group *t) {
    free(t->partial);
    free(t->common);
    free(message_group_of(t)->staging);
    free(message_group_of(t)->parts);
    free(message_group_of(t)->requests);
    free(t);
}

static size_t slots_for(int size, size_t rows, size_t cols) {
    size_t own = (rows + (size_t)size - 1) / (size_t)size * cols * sizeof(float),
           chunks = (own + CHUNK_BYTES - 1) / CHUNK_BYTES;
    return chunks < 2 ? 2 : bt_min_size(chunks, SLOTS);
}

size_t bt_tp_group_messages_bytes(int size, size_t rows, size_t cols) {
    return 2 * rows * cols * sizeof(float) +
           slots_for(size, rows, cols) * (size_t)size * CHUNK_BYTES;
}

bt_code bt_tp_group_messages_create(bt_tp_group **out, bt_comm *tp, size_t rows, size_t cols,
                                    bt_err *err) {
    int n = bt_comm_size(tp);
    *out = NULL;
    message_group *m = calloc(1, sizeof *m);
    if (!m) return bt_fail(err, BT_NOMEM, "cannot take memory for a tensor-parallel group");
    m->t = (bt_tp_group){.rank = bt_comm_rank(tp),
                         .size = n,
                         .why = BT_ERR_INIT,
                         .all_gather_rows = message_all_gather_rows,
                         .reduce_scatter_rows = message_reduce_scatter_rows,
                         .all_gather = message_all_gather,
                         .all_reduce = message_all_reduce,
                         .destroy = message_group_destroy};
    m->comm = tp;
    m->t.partial = aligned_alloc(64, (rows * cols + 16) / 16 * 64);
    m->t.common = aligned_alloc(64, (rows * cols + 16) / 16 * 64);
    m->slots = slots_for(n, rows, cols);
    m->staging = malloc(m->slots * (size_t)n * CHUNK_BYTES);
    m->parts = calloc((size_t)n, sizeof *m->parts);
    m->requests = calloc(m->slots * 2 * BT_TP_ARRAYS * (size_t)n, sizeof *m->requests);
    if (!m->t.partial || !m->t.common || !m->staging || !m->parts || !m->requests) {
        message_group_destroy(&m->t);
        return bt_fail(err, BT_NOMEM,
                       "cannot take %.1f MiB for the exchanges of %d tensor-parallel ranks",
                       (double)bt_tp_group_messages_bytes(n, rows, cols) / 1048576.0, n);
    }
    *out = &m->t;
    return BT_OK;
}
