/* rank_threads.h - ranks as threads of one process, on hosts of any layout: defines the functions of comm.h
 * and mailbox.h that engine/ckpt uses, instead of MPI. Tests of several hosts thus take milliseconds, and
 * each collective can be made to fail. Include it in one test program only. A failure in a thread ends the
 * process. Collectives are counted over all communicators; a failing one fails on all its ranks. A message
 * is copied when it is received, so a wrong order is a deadlock. */
#ifndef BT_TESTS_RANK_THREADS_H
#define BT_TESTS_RANK_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/parallel/mpi/mailbox.h"

enum { RANKS_MOST = 8 };

#define CHECK(x) \
    do { \
        if (!(x)) { \
            fprintf(stderr, "%s:%d: rank %d: %s\n", __FILE__, __LINE__, bt_comm_rank(rank_world), \
                    #x); \
            abort(); \
        } \
    } while (0)

typedef struct rank_group {
    pthread_barrier_t all;
    atomic_int members;
    int size;
    bool fails, damages;
    const void *slot[RANKS_MOST];
} rank_group;

struct bt_comm {
    rank_group *g;
    int rank;
};

typedef struct rank_message {
    const bt_comm *by; /* NULL: none */
    int from, to;
    const void *data;
    size_t bytes;
} rank_message;

struct bt_mailbox {
    bt_comm *c;
    size_t max, n;
    struct {
        int from;
        void *data;
        size_t bytes;
    } want[64];
    size_t n_want;
};

static _Thread_local bt_comm *rank_world;
static int rank_host[RANKS_MOST], rank_count; /* host: its lowest rank */
static atomic_long collectives, collective_that_fails;
/* index among broadcasts above 64 KiB of the one that is damaged in transit; 0: none */
static int broadcast_that_damages, long_broadcasts;
/* message operation that fails, and the rank on which it fails */
typedef enum { MAIL_WORKS, MAIL_CREATE, MAIL_SEND, MAIL_RECV, MAIL_WAIT } mail_operation;
static mail_operation mail_fails;
static int mail_fails_at;

/* Communicators and mailboxes use static memory, because tests refuse allocations. */
typedef union rank_object {
    bt_comm comm;
    rank_group group;
    bt_mailbox mailbox;
} rank_object;
enum { OBJECTS = 256 };
static rank_object objects[OBJECTS];
static atomic_bool object_used[OBJECTS];

static void *take_object(void) {
    for (int i = 0; i < OBJECTS; i++)
        if (!atomic_exchange(&object_used[i], true))
            return memset(&objects[i], 0, sizeof objects[i]);
    abort();
}

static void drop_object(void *object) { object_used[(rank_object *)object - objects] = false; }

static inline int live_objects(void) {
    int n = 0;
    for (int i = 0; i < OBJECTS; i++) n += object_used[i];
    return n;
}

/* ---- collectives --------------------------------------------------------------------------------- */

bt_comm *bt_comm_world(void) { return rank_world; }
int bt_comm_rank(const bt_comm *c) { return c->rank; }
int bt_comm_size(const bt_comm *c) { return c->g->size; }
int bt_comm_host(int rank) {
    CHECK(rank >= 0 && rank < rank_count);
    return rank_host[rank];
}

static bool meet(bt_comm *c, const void *mine) {
    c->g->slot[c->rank] = mine;
    if (c->rank == 0) c->g->fails = ++collectives == collective_that_fails;
    pthread_barrier_wait(&c->g->all);
    return c->g->fails;
}

static bt_code leave(bt_comm *c, bool failed, bt_err *err) {
    pthread_barrier_wait(&c->g->all);
    return failed ? bt_fail(err, BT_MPI, "this collective fails") : BT_OK;
}

bt_code bt_barrier(bt_comm *c, bt_err *err) { return leave(c, meet(c, NULL), err); }

bt_code bt_broadcast(bt_comm *c, void *x, size_t bytes, int root, bt_err *err) {
    CHECK(root >= 0 && root < c->g->size);
    const struct {
        void *x;
        size_t bytes;
    } mine = {x, bytes}, *from;
    if (c->rank == root && bytes > 65536)
        c->g->damages = ++long_broadcasts == broadcast_that_damages;
    const bool failed = meet(c, &mine);
    from = c->g->slot[root];
    CHECK(from->bytes == bytes);
    if (!failed && c->rank != root) memcpy(x, from->x, bytes);
    if (c->rank != root && bytes > 65536 && c->g->damages) ((char *)x)[bytes / 2] ^= 1;
    return leave(c, failed, err);
}

bt_code bt_all_gather(bt_comm *c, const void *x, size_t bytes, void *all, bt_err *err) {
    const bool failed = meet(c, x);
    for (int r = 0; r < c->g->size && !failed; r++)
        memcpy((char *)all + (size_t)r * bytes, c->g->slot[r], bytes);
    return leave(c, failed, err);
}

bt_code bt_gather(bt_comm *c, const void *x, size_t bytes, void *all, int root, bt_err *err) {
    CHECK(root >= 0 && root < c->g->size);
    const bool failed = meet(c, x);
    for (int r = 0; r < c->g->size && !failed && c->rank == root; r++)
        memcpy((char *)all + (size_t)r * bytes, c->g->slot[r], bytes);
    return leave(c, failed, err);
}

bt_code bt_all_reduce_i64(bt_comm *c, int64_t *x, size_t n, bt_reduce_op op, bt_err *err) {
    int64_t sum = 0;
    CHECK(n == 1 && op == BT_SUM);
    const bool failed = meet(c, x);
    for (int r = 0; r < c->g->size; r++) sum += *(const int64_t *)c->g->slot[r];
    const bt_code code = leave(c, failed, err);
    if (code == BT_OK) *x = sum;
    return code;
}

bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *err) {
    bt_err said = BT_ERR_INIT;
    if (err) said = *err;
    said.code = mine;
    if (said.rank < 0) said.rank = c->rank;
    const bool failed = meet(c, &said);
    bt_err all = BT_ERR_INIT;
    for (int r = c->g->size - 1; r >= 0; r--) {
        const bt_err *e = c->g->slot[r];
        if (e->code != BT_OK) all = *e;
    }
    BT_TRY(leave(c, failed, err));
    if (all.code != BT_OK && err) *err = all;
    return all.code;
}

static bt_comm *member_of(rank_group *g, int rank) {
    bt_comm *c = take_object();
    *c = (bt_comm){g, rank};
    return c;
}

static rank_group *group_of(int size) {
    rank_group *g = take_object();
    CHECK(pthread_barrier_init(&g->all, NULL, (unsigned)size) == 0);
    g->size = size;
    g->members = size;
    return g;
}

bt_code bt_comm_split(bt_comm **out, bt_comm *parent, int color, int key, bt_err *err) {
    *out = NULL;
    const int mine[] = {color, key};
    int rank = 0, size = 0, first = -1;
    const bool failed = meet(parent, mine);
    for (int r = 0; r < parent->g->size; r++) {
        const int *other = parent->g->slot[r];
        if (other[0] != color) continue;
        if (first < 0) first = r;
        size++;
        rank += other[1] < key || (other[1] == key && r < parent->rank);
    }
    BT_TRY(leave(parent, failed, err));
    rank_group *g = first == parent->rank ? group_of(size) : NULL;
    parent->g->slot[parent->rank] = g;
    pthread_barrier_wait(&parent->g->all);
    *out = member_of((rank_group *)(uintptr_t)parent->g->slot[first], rank);
    pthread_barrier_wait(&parent->g->all);
    return BT_OK;
}

void bt_comm_free(bt_comm *c) {
    if (!c) return;
    if (--c->g->members == 0) {
        pthread_barrier_destroy(&c->g->all);
        drop_object(c->g);
    }
    drop_object(c);
}

/* ---- messages ------------------------------------------------------------------------------------ */

static pthread_mutex_t mail_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mail_moved = PTHREAD_COND_INITIALIZER;
static rank_message mail[256]; /* messages of one test in the order of sending */
static size_t n_mail;
static bool mail_broken;

static bt_code mail_fault(mail_operation what, const bt_mailbox *b, bt_err *err) {
    if (mail_fails != what || mail_fails_at != b->c->rank) return BT_OK;
    pthread_mutex_lock(&mail_lock);
    mail_broken = true; /* Ranks that wait for this one fail as well. */
    pthread_cond_broadcast(&mail_moved);
    pthread_mutex_unlock(&mail_lock);
    return bt_fail(err, BT_MPI, "this message fails");
}

bt_code bt_mailbox_create(bt_mailbox **out, bt_comm *comm, size_t max, bt_err *err) {
    *out = NULL;
    if (mail_fails == MAIL_CREATE && mail_fails_at == comm->rank)
        return bt_fail(err, BT_NOMEM, "there are no messages");
    bt_mailbox *b = *out = take_object();
    CHECK(max <= sizeof b->want / sizeof *b->want);
    b->c = comm;
    b->max = max;
    return BT_OK;
}

void bt_mailbox_destroy(bt_mailbox *b) {
    if (b) drop_object(b);
}

void bt_mailbox_begin(bt_mailbox *b) { b->n = b->n_want = 0; }

bt_code bt_mailbox_send(bt_mailbox *b, int to, const void *data, size_t bytes, size_t logical_bytes,
                        bt_err *err) {
    CHECK(b->n++ < b->max && to >= 0 && to < b->c->g->size && to != b->c->rank);
    CHECK(logical_bytes == bytes && bytes > 0);
    BT_TRY(mail_fault(MAIL_SEND, b, err));
    pthread_mutex_lock(&mail_lock);
    CHECK(n_mail < sizeof mail / sizeof *mail);
    mail[n_mail++] = (rank_message){b->c, b->c->rank, to, data, bytes};
    pthread_cond_broadcast(&mail_moved);
    pthread_mutex_unlock(&mail_lock);
    return BT_OK;
}

bt_code bt_mailbox_recv(bt_mailbox *b, int from, void *data, size_t bytes, bt_err *err) {
    CHECK(b->n++ < b->max && from >= 0 && from < b->c->g->size && from != b->c->rank && bytes > 0);
    BT_TRY(mail_fault(MAIL_RECV, b, err));
    b->want[b->n_want].from = from;
    b->want[b->n_want].data = data;
    b->want[b->n_want++].bytes = bytes;
    return BT_OK;
}

/* Returns the oldest message from that rank to this one. The caller of this function and of the next holds
 * the lock. */
static rank_message *message_from(const bt_mailbox *b, int from) {
    for (size_t i = 0; i < n_mail; i++)
        if (mail[i].by && mail[i].by->g == b->c->g && mail[i].from == from &&
            mail[i].to == b->c->rank)
            return &mail[i];
    return NULL;
}

static bool has_sent(const bt_mailbox *b) {
    for (size_t i = 0; i < n_mail; i++)
        if (mail[i].by == b->c) return true;
    return false;
}

bt_code bt_mailbox_wait(bt_mailbox *b, bt_err *err) {
    BT_TRY(mail_fault(MAIL_WAIT, b, err));
    size_t got = 0;
    pthread_mutex_lock(&mail_lock);
    while (!mail_broken && (got < b->n_want || has_sent(b))) {
        rank_message *m = got < b->n_want ? message_from(b, b->want[got].from) : NULL;
        if (!m) {
            pthread_cond_wait(&mail_moved, &mail_lock);
            continue;
        }
        CHECK(m->bytes == b->want[got].bytes);
        memcpy(b->want[got++].data, m->data, m->bytes);
        m->by = NULL;
        pthread_cond_broadcast(&mail_moved);
    }
    const bool failed = mail_broken;
    pthread_mutex_unlock(&mail_lock);
    return failed ? bt_fail(err, BT_MPI, "a rank is gone") : BT_OK;
}

/* ---- ranks --------------------------------------------------------------------------------------- */

typedef struct rank_thread {
    pthread_t thread;
    bt_comm *world;
    void (*run)(void *ctx);
    void *ctx;
} rank_thread;

static void *in_rank(void *arg) {
    rank_thread *t = arg;
    rank_world = t->world;
    t->run(t->ctx);
    bt_comm_free(rank_world);
    return NULL;
}

/* Runs `run` on every rank of consecutive hosts with these numbers of ranks: "2,2". */
static void with_ranks(const char *hosts, void (*run)(void *ctx), void *ctx) {
    /* SIGALRM ends the process after this time; the tests take milliseconds. */
    enum { DEADLOCK_S = 20 };
    rank_thread t[RANKS_MOST];
    alarm(DEADLOCK_S);
    rank_count = 0;
    for (const char *p = hosts; *p; p += p[0] && p[1] == ',' ? 2 : 1)
        for (int k = 0, first = rank_count; k < *p - '0'; k++) rank_host[rank_count++] = first;
    rank_group *g = group_of(rank_count);
    collectives = 0;
    long_broadcasts = 0;
    n_mail = 0;
    mail_broken = false;
    for (int r = 0; r < rank_count; r++) {
        t[r] = (rank_thread){.world = member_of(g, r), .run = run, .ctx = ctx};
        if (pthread_create(&t[r].thread, NULL, in_rank, &t[r]) != 0) abort();
    }
    for (int r = 0; r < rank_count; r++) pthread_join(t[r].thread, NULL);
    alarm(0);
}

#endif
