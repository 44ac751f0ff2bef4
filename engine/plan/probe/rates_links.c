/* rates_links.c - messages in groups of ranks, as the axes of a mesh make them: neighbours (tensor
 * parallelism, data parallelism beside it) and ranks far apart (replicas of a tensor-parallel group,
 * stages). */
#include <math.h>
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/cpu.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/probe/rates_probe.h"

/* LINK_MEMORY: more than a core's caches hold, as the gradients of a model are */
enum {
    LINK_BYTES = 4 << 20,
    LINK_MEMORY = 32 << 20,
    LINK_ROUNDS = 40,
    ROWS = 2048,
    COLS = 512,
    ROUNDS = 32,
    TP_MOST = 16,
    STEPS = 64,
    SHARED_ELEMS = 1 << 14, /* which a core's first caches hold */
    SHARED_ROUNDS = 3
};
static const double SHARED_S = 0.2, OFTEN_S = 0.02;

/* Of what is waited for: the shortest. In all others may be what other programs took. */
static double shortest(double *samples, size_t n) {
    (void)bt_probe_typical(samples, n); /* sorted now */
    return samples[0];
}

typedef struct tp_times {
    double meet[ROUNDS], rows[ROUNDS];
} tp_times;

/* One layer's way of exchanging: every rank has just written what the others will add, and rows that
 * they will read. Copying and adding are processor time, whoever else runs; a meeting is wall time. */
static void one_exchange(bt_tp_group *t, float *x, tp_times *took, int i) {
    const size_t elems = (size_t)ROWS * COLS;
    char mine[64] = {0}, all[64 * TP_MOST];
    bt_tp_rows rows = {x, COLS * sizeof *x};
    for (size_t k = 0; k < elems; k++) t->partial[k] = (float)i;
    for (size_t k = 0; k < elems / (size_t)t->size; k++) x[k] = (float)i;
    t->all_gather(t, mine, all, sizeof mine);
    double moved = bt_probe_clock();
    t->reduce_scatter_rows(t, ROWS, COLS);
    t->all_gather_rows(t, &rows, 1, ROWS);
    took->rows[i] = bt_probe_clock() - moved;
    t->all_gather(t, mine, all, sizeof mine);
    int64_t at = bt_now_ns();
    t->all_gather(t, mine, all, sizeof mine);
    took->meet[i] = (double)(bt_now_ns() - at) / 1e9;
}

/* All groups at once: they share what the machine has. */
static bt_code probe_tp(bt_link_rate *l, bt_comm *group, bt_err *err) {
    bt_tp_group *t = NULL;
    tp_times took;
    float *x = calloc((size_t)ROWS * COLS, sizeof *x);
    bt_code code = x ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the rows of a layer");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) code = bt_tp_group_create(&t, group, ROWS, COLS, err);
    for (int i = 0; code == BT_OK && i < ROUNDS; i++) {
        one_exchange(t, x, &took, i);
        code = bt_tp_group_check(t, err);
    }
    bt_tp_group_destroy(t);
    free(x);
    if (code != BT_OK) return code;
    l->meet_s = shortest(took.meet, ROUNDS);
    double moved_s = shortest(took.rows, ROUNDS) - 2 * l->meet_s,
           bytes = 2.0 * ROWS * COLS * sizeof(float) * (l->n - 1) / l->n;
    l->rows_bytes_per_s = moved_s > 0 ? bytes / moved_s : 0;
    return BT_OK;
}

static bt_code probe_agreement(bt_comm *group, double *out, bt_err *err) {
    double took[STEPS];
    for (int i = 0; i < STEPS; i++) {
        int64_t said[5] = {0}, start = bt_now_ns();
        BT_TRY(bt_all_reduce_i64(group, said, 5, BT_MAX, err));
        took[i] = (double)(bt_now_ns() - start) / 1e9;
    }
    *out = shortest(took, STEPS);
    return BT_OK;
}

/* ---- ranks that share cores ------------------------------------------------------------------- */

static void compute(const float *x, int64_t passes) {
    volatile double sum = 0;
    for (int64_t i = 0; i < passes; i++) sum = sum + bt_op_sum_squares(x, SHARED_ELEMS);
}

/* of rounds of `passes`, each with a meeting of all after it: what a rank's core gave it over what it computed */
static bt_code share(double *out, const float *x, int64_t passes, int64_t rounds, bt_err *err) {
    double s[] = {0, 0}; /* computing; all of it */
    BT_TRY(bt_barrier(bt_comm_world(), err));
    const double began = bt_probe_clock();
    for (int64_t i = 0; i < rounds; i++) {
        const double start = bt_probe_clock();
        compute(x, passes);
        s[0] += bt_probe_clock() - start;
        BT_TRY(bt_barrier(bt_comm_world(), err));
    }
    s[1] = bt_probe_clock() - began;
    BT_TRY(bt_all_reduce_f64(bt_comm_world(), s, 2, BT_SUM, err));
    *out = s[0] > 0 ? s[1] / s[0] : 0;
    return BT_OK;
}

/* The kernel shares out cores among ranks, and one that waits yields its core and does not sleep: where their
 * numbers do not divide, cores are without work now and then. */
static bt_code probe_sharing(bt_link_rate *l, bt_err *err) {
    float *x = calloc(SHARED_ELEMS, sizeof *x);
    bt_code code = x ? BT_OK : bt_fail(err, BT_NOMEM, "no memory to compute with");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) {
        double pass_s = bt_probe_clock();
        compute(x, 64);
        pass_s = (bt_probe_clock() - pass_s) / 64;
        code = bt_all_reduce_f64(bt_comm_world(), &pass_s, 1, BT_MAX, err);
        const int64_t often = (int64_t)(OFTEN_S / fmax(pass_s, 1e-7)) + 1,
                      seldom = (int64_t)(SHARED_S / OFTEN_S + 0.5);
        if (code == BT_OK) code = share(&l->shared_x, x, often * seldom, SHARED_ROUNDS, err);
        if (code == BT_OK) code = share(&l->shared_often_x, x, often, SHARED_ROUNDS * seldom, err);
    }
    free(x);
    return code;
}

static bt_code probe_group(bt_rates *r, int n, int stride, bt_err *err) {
    bt_comm *world = bt_comm_world(), *group = NULL;
    int me = bt_comm_rank(world), block = n * stride;
    bt_link link;
    const bt_link_work work = {.bytes = LINK_BYTES,
                               .memory = LINK_MEMORY,
                               .rounds = LINK_ROUNDS,
                               .processor = bt_comm_local_size() == bt_comm_size(world) &&
                                            bt_comm_local_size() * bt_threads_count() >
                                                bt_cpu_get()->cores};
    if (r->n_links == BT_RATES_LINKS) return BT_OK;
    BT_TRY(bt_comm_split(&group, world, me / block * stride + me % stride, me, err));
    bt_link_rate l = {.world = bt_comm_size(world), .n = n, .stride = stride};
    bt_code code = bt_link_measure_long(&link, group, &work, err);
    double v[] = {link.latency_s, link.bytes_per_s};
    if (code == BT_OK) code = probe_agreement(group, &l.agree_s, err);
    /* the slowest group's; a link that could not be measured in one group is not known */
    if (code == BT_OK) code = bt_all_reduce_f64(world, &v[0], 1, BT_MAX, err);
    if (code == BT_OK) code = bt_all_reduce_f64(world, &v[1], 1, BT_MIN, err);
    l.latency_s = v[0];
    l.bytes_per_s = v[1];
    if (code == BT_OK && stride == 1 && n <= TP_MOST) code = probe_tp(&l, group, err);
    if (code == BT_OK && n == l.world && work.processor && bt_threads_count() == 1)
        code = probe_sharing(&l, err);
    bt_comm_free(group);
    if (code != BT_OK) return code;
    /* rank 0's group's; it is rank 0 that tells */
    r->links[r->n_links++] = l;
    return BT_OK;
}

bt_code bt_rates_probe_links(bt_rates *r, bt_err *err) {
    int world = bt_comm_size(bt_comm_world());
    bt_span_reset();
    r->n_links = 0;
    for (int n = 2; n <= world; n++) {
        if (world % n != 0) continue;
        BT_TRY(probe_group(r, n, 1, err));
        if (n < world) BT_TRY(probe_group(r, n, world / n, err));
    }
    bt_span_reset();
    return BT_OK;
}
