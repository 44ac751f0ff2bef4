/* exchange_ranks.h - runs all ranks of a gradient exchange in one process. An exchange never blocks, so one thread
 * drives the exchanges of all ranks in any order of their steps. This header replaces MPI's messages, the shared memory
 * of a host, the clock and futexes, and keeps the counters of each rank. Only one file of a test program may include
 * it. */
#ifndef BT_TESTS_EXCHANGE_RANKS_H
#define BT_TESTS_EXCHANGE_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/mpi/comm_internal.h"
#include "engine/parallel/mpi/host_memory.h"

enum {
    RANKS_MOST = 6,
    MESSAGES = 4096,
    BUCKETS = 3,
    PAGE = 4096,
    ELEMS_MOST = 8 * PAGE / 4 * BUCKETS /* two parts of four pages each in a bucket */
};

typedef struct exchange_rank {
    bt_comm world, dp;
    bt_mesh mesh;
    bt_exchange *x;
    _Alignas(PAGE) float grads[ELEMS_MOST];
    float node[8][ELEMS_MOST];
    bt_tree_sum nodes;
    size_t asked, done;
    /* since the last call of count() */
    bt_traffic counted;
    bt_pair from[RANKS_MOST];
} exchange_rank;

static exchange_rank ranks[RANKS_MOST];
static int n_ranks, now_is; /* number of ranks, and the rank that runs now */
static int64_t now_ns;
static bt_err err;
static const char *call_fails; /* name of the MPI function that fails; NULL: none */
static int fails_at;           /* index of the failing call on this rank */
static bool memory_refused;

int64_t bt_now_ns(void) { return now_ns; }
int64_t bt_thread_cpu_ns(void) { return 0; }

/* Messages, each of which is delivered when its receiver tests for it. */

typedef struct message {
    bool posted, came, sends;
    int rank, other, tag;
    void *data;
    int bytes, arrived;
} message;
static message messages[MESSAGES];
static int n_messages;

static int outcome(const char *call) {
    return call_fails && now_is == fails_at && strcmp(call_fails, call) == 0 ? MPI_ERR_OTHER
                                                                             : MPI_SUCCESS;
}
int MPI_Error_string(int rc, char *text, int *n) {
    (void)rc;
    *n = sprintf(text, "the link is gone");
    return MPI_SUCCESS;
}
static MPI_Request post(bool sends, void *data, int bytes, int other, int tag) {
    assert_true(n_messages < MESSAGES && other >= 0 && other < n_ranks && other != now_is);
    messages[n_messages] = (message){.posted = true,
                                     .sends = sends,
                                     .rank = now_is,
                                     .other = other,
                                     .tag = tag,
                                     .data = data,
                                     .bytes = bytes};
    return (MPI_Request)(void *)&messages[n_messages++];
}
int MPI_Irecv(void *to, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Request *r) {
    assert_true(type == MPI_BYTE && c == ranks[now_is].dp.mpi);
    *r = post(false, to, n, from, tag);
    return outcome("irecv");
}
int MPI_Isend(const void *from, int n, MPI_Datatype type, int to, int tag, MPI_Comm c,
              MPI_Request *r) {
    assert_true(type == MPI_BYTE && c == ranks[now_is].dp.mpi);
    *r = post(true, (void *)(uintptr_t)from, n, to, tag);
    return outcome("isend");
}
/* Sends and receives with the same pair of ranks and tag match in their order. */
static void deliver(message *m) {
    for (int i = 0; i < n_messages && !m->came && !m->sends; i++) {
        message *s = &messages[i];
        if (!s->posted || !s->sends || s->came || s->rank != m->other || s->other != m->rank ||
            s->tag != m->tag)
            continue;
        assert_true(s->bytes <= m->bytes);
        memcpy(m->data, s->data, (size_t)s->bytes);
        m->arrived = s->bytes;
        m->came = s->came = true;
    }
}
int MPI_Testsome(int n, MPI_Request *r, int *done, int *which, MPI_Status *s) {
    int active = 0;
    *done = 0;
    for (int i = 0; i < n; i++) {
        message *m = (message *)(void *)r[i];
        if (r[i] == MPI_REQUEST_NULL) continue;
        active++;
        deliver(m);
        if (!m->came) continue;
        which[*done] = i;
        s[(*done)++]._ucount = (size_t)m->arrived;
        m->posted = false;
        r[i] = MPI_REQUEST_NULL;
    }
    if (active == 0) *done = MPI_UNDEFINED;
    return outcome("test");
}
int MPI_Get_count(const MPI_Status *s, MPI_Datatype type, int *n) {
    assert_ptr_equal(type, MPI_BYTE);
    *n = (int)s->_ucount;
    return outcome("count");
}

/* Collective creation: the ranks of a host receive the same memory one after the other. */

int MPI_Allreduce(const void *x, void *y, int n, MPI_Datatype type, MPI_Op op, MPI_Comm c) {
    (void)x, (void)y, (void)n, (void)type, (void)op, (void)c;
    return MPI_SUCCESS;
}
int MPI_Bcast(void *x, int n, MPI_Datatype type, int root, MPI_Comm c) {
    (void)x, (void)n, (void)type, (void)c;
    assert_int_equal(root, now_is); /* rank that reports the error */
    return MPI_SUCCESS;
}
int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm *out) {
    assert_true(c == ranks[now_is].dp.mpi && key == ranks[now_is].dp.rank);
    *out = (MPI_Comm)(uintptr_t)(100 + color);
    return outcome("split");
}
int MPI_Comm_rank(MPI_Comm c, int *rank) {
    (void)c;
    *rank = 0;
    return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm c, int *size) {
    (void)c;
    *size = 2;
    return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm c, MPI_Errhandler e) {
    (void)c, (void)e;
    return MPI_SUCCESS;
}
static struct {
    unsigned char *at;
    size_t bytes;
    int users;
} shared[RANKS_MOST]; /* one per host */
bt_code bt_host_memory_create(bt_host_memory *m, bt_comm *c, size_t bytes, const char *name,
                              bt_err *e) {
    const uintptr_t host = (uintptr_t)c->mpi - 100;
    assert_string_equal(name, "bitrain-gradients");
    *m = (bt_host_memory){0};
    if (outcome("memory") != MPI_SUCCESS) return bt_fail(e, BT_MPI, "no memory");
    if (memory_refused) return BT_OK;
    if (shared[host].users++ == 0) {
        shared[host].bytes = bytes;
        shared[host].at = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        assert_non_null(shared[host].at);
        memset(shared[host].at, 0, bytes);
    }
    assert_int_equal(bytes, shared[host].bytes);
    *m = (bt_host_memory){shared[host].at, bytes};
    return BT_OK;
}
void bt_host_memory_release(bt_host_memory *m) {
    for (int h = 0; m->at && h < RANKS_MOST; h++)
        if (shared[h].at == m->at && --shared[h].users == 0) {
            free(shared[h].at);
            shared[h].at = NULL;
        }
    *m = (bt_host_memory){0};
}

/* Memory that the ranks release to the system. */

static struct {
    unsigned char *at[16];
    size_t pages[16];
    int n;
    bool refused;
} given_back; /* ranges released by all ranks since it was cleared; ranges beyond its capacity are not counted */
long syscall(long number, ...);
int madvise(void *at, size_t bytes, int advice) {
    const uintptr_t begin = (uintptr_t)ranks[now_is].grads;
    if (advice != MADV_DONTNEED) return 0; /* smallest page size */
    /* Libraries of Open MPI 5 release memory of their own before main. */
    if ((uintptr_t)at < (uintptr_t)ranks || (uintptr_t)at >= (uintptr_t)(ranks + RANKS_MOST))
        return (int)syscall(SYS_madvise, at, bytes, advice);
    assert_true((uintptr_t)at % PAGE == 0 && bytes > 0 && bytes % PAGE == 0);
    assert_true((uintptr_t)at >= begin &&
                (uintptr_t)at + bytes <= begin + sizeof ranks[now_is].grads);
    if (given_back.n < 16) {
        given_back.at[given_back.n] = at;
        given_back.pages[given_back.n++] = bytes / PAGE;
    }
    if (given_back.refused) return -1;
    memset(at, 0, bytes);
    return 0;
}

/* Futexes: while a rank sleeps, `while_asleep` drives all other ranks. */

static struct {
    int sleeps, wakes;
    const void *slept_on, *woken;
    int64_t nap_ns;
    uint32_t seen;
} futex;
static void (*while_asleep)(void);

long syscall(long number, ...) {
    va_list ap;
    va_start(ap, number);
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = va_arg(ap, long);
    va_end(ap);
    /* Libraries of Open MPI 5 use private futexes before main. */
    if (number != SYS_futex || (a[1] & FUTEX_PRIVATE_FLAG)) {
        long (*real)(long, ...) = (long (*)(long, ...))(uintptr_t)dlsym(RTLD_NEXT, "syscall");
        return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    const uint32_t *at = (const uint32_t *)a[0];
    const int op = (int)a[1];
    const uint32_t value = (uint32_t)a[2];
    const struct timespec *nap = (const struct timespec *)a[3];
    if (op == FUTEX_WAKE) {
        assert_int_equal(value, INT32_MAX);
        futex.wakes++;
        futex.woken = at;
        return 0;
    }
    assert_int_equal(op, FUTEX_WAIT);
    futex.sleeps++;
    futex.slept_on = at;
    futex.seen = value;
    futex.nap_ns = nap->tv_sec * 1000000000 + nap->tv_nsec;
    if (while_asleep) while_asleep();
    return 0;
}

typedef struct layout {
    int ranks, shards;
    const char *hosts; /* number of ranks on each host */
    int64_t units;     /* 0: the gradient of a rank is one leaf */
    const bt_codec *codec;
    size_t piece_bytes; /* 0: the default size */
} layout;

static layout is;
static bt_buckets buckets;
static bt_mesh_shape shape;
static size_t usual_piece_bytes;

/* Returns element i of leaf u: small multiples of a power of two, which a lossless codec shortens, and values with
 * different exponents, whose sum depends on the order of additions. */
static float leaf(int64_t u, size_t i) {
    const uint64_t r = bt_rng_u64(11, (uint64_t)u, i);
    return i % 3 ? (float)((int)(r % 2001) - 1000) * 0x1p-10f
                 : (float)((int)(r % (1 << 22)) - (1 << 21)) * (r >> 40 & 1 ? 0x1p-14f : 0x1p-21f);
}
static int64_t leaves(void) { return is.units ? is.units : is.ranks; }
/* Returns the sum of leaves [first, first + width) of the tree; width is a power of two. */
static float sum_of(int64_t first, int64_t width, size_t i) {
    if (width == 1) return leaf(first, i);
    const float left = sum_of(first, width / 2, i);
    return first + width / 2 < leaves() ? left + sum_of(first + width / 2, width / 2, i) : left;
}
static inline float whole_sum(size_t i) {
    int64_t width = 1;
    while (width < leaves()) width *= 2;
    return sum_of(0, width, i);
}

/* Assigns the counts of a call to the rank that runs. */
static void count(void) {
    exchange_rank *r = &ranks[now_is];
    const bt_coll kind = is.shards > 1 ? BT_COLL_REDUCE_SCATTER : BT_COLL_ALL_REDUCE;
    const bt_traffic *t = bt_traffic_get(kind, BT_AXIS_DP);
    r->counted.calls += t->calls, r->counted.rounds += t->rounds;
    r->counted.bytes_logical += t->bytes_logical, r->counted.bytes_wire += t->bytes_wire;
    for (int d = 0; d < n_ranks; d++) {
        const bt_pair *p = bt_pair_get(d);
        r->from[d].messages += p->messages, r->from[d].bytes += p->bytes;
        r->from[d].timed += p->timed, r->from[d].flight_ns += p->flight_ns;
    }
    bt_traffic_reset();
    bt_pairs_reset();
}

static inline void destroy_all(void) {
    for (now_is = 0; now_is < n_ranks; now_is++) {
        bt_exchange_destroy(ranks[now_is].x);
        ranks[now_is].x = NULL;
    }
    for (int h = 0; h < RANKS_MOST; h++) assert_null(shared[h].at);
}

static inline bt_code create_one(int rank, bool discard) {
    exchange_rank *r = &ranks[rank];
    now_is = rank;
    r->world = (bt_comm){.mpi = (MPI_Comm)(uintptr_t)1, .rank = rank, .size = is.ranks};
    r->dp = (bt_comm){
        .mpi = (MPI_Comm)(uintptr_t)2, .rank = rank, .size = is.ranks, .axis = BT_AXIS_DP};
    r->mesh = (bt_mesh){.shape = shape, .me = bt_mesh_coord_of(&shape, rank)};
    r->mesh.world = &r->world, r->mesh.dp = &r->dp;
    const bt_exchange_cfg cfg = {.plan = {.shape = &shape,
                                          .rank = rank,
                                          .buckets = &buckets,
                                          .sharded = is.shards > 1,
                                          .form = {.codec = is.codec},
                                          .units = leaves()},
                                 .mesh = &r->mesh,
                                 .grads = r->grads,
                                 .discard = discard};
    return bt_exchange_create(&r->x, &cfg, &err);
}

/* Creates the exchanges of all ranks of a layout; elems is the size of the whole array, whose first bucket may be
 * short. */
static inline void create_all(const layout *l, size_t elems, bool discard) {
    is = *l;
    if (!is.codec) is.codec = bt_codec_at(BT_CODEC_NONE);
    if (!usual_piece_bytes) usual_piece_bytes = bt_exchange_piece_bytes;
    bt_exchange_piece_bytes = is.piece_bytes ? is.piece_bytes : usual_piece_bytes;
    n_ranks = is.ranks;
    n_messages = 0;
    now_ns = 1000;
    memset(&futex, 0, sizeof futex);
    while_asleep = NULL;
    err = (bt_err)BT_ERR_INIT;
    assert_int_equal(setenv("BITRAIN_TEST_HOSTS", is.hosts, 1), 0);
    shape = (bt_mesh_shape){1, is.ranks / is.shards, is.shards, 1};
    bt_buckets_init(&buckets, elems, elems / BUCKETS * sizeof(float), is.ranks);
    for (int k = 0; k < n_ranks; k++)
        if (create_one(k, discard) != BT_OK) fail_msg("%s", err.msg);
    bt_traffic_reset();
    bt_pairs_reset();
}

/* Begins a step: each rank adds its leaves as far as its nodes of the tree permit. */
static inline void begin_step(size_t elems) {
    for (now_is = 0; now_is < n_ranks; now_is++) {
        exchange_rank *r = &ranks[now_is];
        const int64_t first = leaves() * now_is / n_ranks, end = leaves() * (now_is + 1) / n_ranks;
        r->nodes = bt_tree_sum_shape(first, end - first);
        assert_true(r->nodes.n <= 8);
        for (size_t k = 0; k < r->nodes.n; k++) {
            bt_node *node = &r->nodes.at[k];
            node->x = is.units ? r->node[k] : r->grads;
            for (size_t i = 0; i < elems; i++)
                node->x[i] = sum_of(node->index << node->level, INT64_C(1) << node->level, i);
        }
        r->asked = r->done = 0;
        memset(&r->counted, 0, sizeof r->counted);
        memset(r->from, 0, sizeof r->from);
        bt_exchange_reset(r->x);
        bt_exchange_nodes(r->x, &r->nodes);
    }
}

/* Drives one rank until it has to wait; returns BT_OK unless a call fails. */
static inline bt_code turn_of(int rank) {
    exchange_rank *r = &ranks[rank];
    now_is = rank;
    now_ns += 7;
    bt_code code = BT_OK;
    if (r->asked < buckets.n && bt_exchange_has_room(r->x))
        code = bt_exchange_start(r->x, r->asked++, &err);
    if (code == BT_OK) code = bt_exchange_progress(r->x, &r->done, &err);
    count();
    return code;
}

/* Runs the ranks in an order drawn from the seed until all have finished; a rank that never finishes is a deadlock. */
static inline void finish_step(uint64_t seed) {
    int left = 0;
    for (uint64_t turn = 0; turn < 20000; turn++) {
        if (turn % 64 == 0) {
            left = 0;
            for (int k = 0; k < n_ranks; k++) left += ranks[k].done < buckets.n;
            if (!left) return;
        }
        if (turn_of((int)(bt_rng_u64(seed, 1, turn) % (uint64_t)n_ranks)) != BT_OK)
            fail_msg("%s", err.msg);
    }
    fail_msg("%d ranks of hosts of %s wait for ever", left, is.hosts);
}

#endif
