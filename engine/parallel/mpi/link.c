/* link.c - measures rounds of messages between all ranks. */
#include "engine/parallel/mpi/link.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "engine/parallel/mpi/comm_internal.h"

enum { TAG = 30200, ROUNDS = 5, SMALL_BYTES = 64, LEAST_BYTES = 4096, MOST_BYTES = 1 << 28 };
/* FASTEST: bytes per second, above the memory bandwidth of a rank. */
static const double FASTEST = 1e12, JITTER = 0.02;

typedef struct room {
    unsigned char *out, *in;
    MPI_Request *requests;
    size_t bytes, places; /* `out` has `places` buffers of `bytes` bytes each */
    int rounds;
    bool processor;
} room;

static int64_t clock_ns(const room *r) {
    struct timespec t;
    if (!r->processor) return bt_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bt_code one_round(const bt_comm *c, const room *r, int round, int part, double *took_s,
                         bt_err *err) {
    const unsigned char *out = r->out + (size_t)round % r->places * r->bytes;
    int n = 0;
    BT_TRY(bt_mpi_check(MPI_Barrier(c->mpi), "barrier", err));
    int64_t start = clock_ns(r);
    for (int k = 1; k < c->size; k++) {
        int from = (c->rank + k) % c->size;
        BT_TRY(bt_mpi_check(MPI_Irecv(r->in + (size_t)(k - 1) * (size_t)part, part, MPI_BYTE, from,
                                      TAG, c->mpi, &r->requests[n++]),
                            "measuring of links", err));
    }
    for (int k = 1; k < c->size; k++) {
        int to = (c->rank - k + c->size) % c->size;
        BT_TRY(bt_mpi_check(MPI_Isend(out + (size_t)(k - 1) * (size_t)part, part, MPI_BYTE, to, TAG,
                                      c->mpi, &r->requests[n++]),
                            "measuring of links", err));
    }
    BT_TRY(
        bt_mpi_check(MPI_Waitall(n, r->requests, MPI_STATUSES_IGNORE), "measuring of links", err));
    *took_s = (double)(clock_ns(r) - start) / 1e9;
    return BT_OK;
}

/* Minimum over several rounds of the slowest rank's time. The first round is excluded, because it may include
 * connecting. */
static bt_code time_rounds(bt_comm *c, const room *r, int part, double *best, bt_err *err) {
    double took;
    BT_TRY(one_round(c, r, 0, part, &took, err));
    *best = INFINITY;
    for (int i = 1; i <= r->rounds; i++) {
        BT_TRY(one_round(c, r, i, part, &took, err));
        *best = fmin(*best, took);
    }
    return bt_all_reduce_f64(c, best, 1, BT_MAX, err);
}

bt_link bt_link_of(double small_s, double large_s, double small_bytes, double more) {
    bt_link l = {.tried = true};
    const double rate = more / (large_s - small_s);
    if (!(large_s > (1 + JITTER) * small_s) || rate > FASTEST) return l;
    l.bytes_per_s = rate;
    l.latency_s = fmax(1e-9, small_s - small_bytes / rate);
    return l;
}

size_t bt_link_bytes_each(size_t bytes, int ranks) {
    const size_t each = bytes / ((size_t)ranks - 1);
    return each < LEAST_BYTES ? LEAST_BYTES : each > MOST_BYTES ? MOST_BYTES : each;
}

bt_code bt_link_measure(bt_link *out, bt_comm *c, size_t bytes, bt_err *err) {
    return bt_link_measure_long(
        out, c, &(bt_link_work){.bytes = bytes, .memory = bytes, .rounds = ROUNDS}, err);
}

bt_code bt_link_measure_long(bt_link *out, bt_comm *c, const bt_link_work *work, bt_err *err) {
    *out = (bt_link){0};
    if (c->size == 1) return BT_OK;
    const size_t others = (size_t)c->size - 1, each = bt_link_bytes_each(work->bytes, c->size);
    size_t places = work->memory / work->bytes > 1 ? work->memory / work->bytes : 1;
    room r = {.out = malloc(each * others * places),
              .in = malloc(each * others),
              .requests = calloc(2 * others, sizeof *r.requests),
              .bytes = each * others,
              .places = places,
              .rounds = work->rounds,
              .processor = work->processor};
    bt_code code = r.out && r.in && r.requests
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot take %.1f MiB to measure the links",
                                 (double)(each * others * (1 + places)) / 1048576.0);
    code = bt_agree(c, code, err);
    double small = 0, large = 0;
    if (code == BT_OK) {
        memset(r.out, 0, each * others * places);
        memset(r.in, 0, each * others);
        code = time_rounds(c, &r, SMALL_BYTES, &small, err);
    }
    if (code == BT_OK) code = time_rounds(c, &r, (int)each, &large, err);
    free(r.out);
    free(r.in);
    free(r.requests);
    if (code != BT_OK) return code;
    *out = bt_link_of(small, large, (double)(SMALL_BYTES * others),
                      (double)((each - SMALL_BYTES) * others));
    return BT_OK;
}

double bt_link_s(const bt_link *l, double rounds, double bytes) {
    return l->bytes_per_s > 0 ? rounds * l->latency_s + bytes / l->bytes_per_s : NAN;
}
