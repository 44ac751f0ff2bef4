/* rates_links.c - measures messages and exchanges in the groups of a mesh: neighbouring ranks (tensor parallelism, or
 * data parallelism inside it) and distant ranks (replicas of a tensor-parallel group, stages). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "engine/base/span.h"
#include "engine/base/threads.h"
#include "engine/kernels/ops/ops.h"
#include "engine/kernels/table/cpu.h"
#include "engine/parallel/grad/reducer.h"
#include "engine/parallel/mpi/link.h"
#include "engine/parallel/tp/tp_group_create.h"
#include "engine/plan/probe/probe_clock.h"
#include "engine/plan/probe/rates_probe.h"

/* LINK_MEMORY is larger than the caches of a core, like the gradients of a model. */
enum {
    LINK_BYTES = 4 << 20,
    LINK_MEMORY = 32 << 20,
    LINK_ROUNDS = 40,
    ROWS = 2048,
    COLS = 512,
    ROUNDS = 32,
    TP_MOST = 16,
    STEPS = 64,
    GRAD_ROUNDS = 24,
    GRAD_LEAST = 3,
    GRAD_BUCKET = 4 << 20,
    SHARED_ELEMS = 1 << 14, /* fits the first-level cache of a core */
    SHARED_ROUNDS = 3
};
static const double GRADS_S = 0.3;

/* The shortest sample is taken for waiting times, because other programs may lengthen every other sample. */
static double shortest_sample(double *samples, size_t n) {
    (void)bt_probe_typical(samples, n); /* sorts */
    return samples[0];
}

typedef struct tp_times {
    double meet[ROUNDS], rows[ROUNDS];
} tp_times;

/* Exchanges as in a layer: every rank has just written the values that other ranks add, and the rows that they read.
 * Copying and adding are measured as processor time, synchronisation as wall time. */
static void time_one_exchange(bt_tp_group *t, float *x, tp_times *took, int i) {
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

/* All groups are measured at once, because they share the machine. */
static bt_code probe_tp(bt_link_rate *l, bt_comm *group, bt_err *err) {
    bt_tp_group *t = NULL;
    tp_times took;
    float *x = calloc((size_t)ROWS * COLS, sizeof *x);
    bt_code code = x ? BT_OK
                     : bt_fail(err, BT_NOMEM, "cannot allocate memory for the rows of a layer");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) code = bt_tp_group_create(&t, group, ROWS, COLS, err);
    for (int i = 0; code == BT_OK && i < ROUNDS; i++) {
        time_one_exchange(t, x, &took, i);
        code = bt_tp_group_check(t, err);
    }
    bt_tp_group_destroy(t);
    free(x);
    if (code != BT_OK) return code;
    l->meet_s = shortest_sample(took.meet, ROUNDS);
    double moved_s = shortest_sample(took.rows, ROUNDS) - 2 * l->meet_s,
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
    *out = shortest_sample(took, STEPS);
    return BT_OK;
}

/* Returns the processor time of this thread, the only one that exchanges. Other programs hardly affect it. */
static double processor_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The gradient exchange of training, without computation at the same time. */
typedef struct exchange {
    bt_mesh mesh;
    bt_shards shards;
    bt_reducer *reducer;
} exchange;

/* Opens an exchange of zero gradients, either for replicas, which receive the sums, or for shards and their owners. */
static bt_code open_exchange(exchange *e, const bt_mesh_shape *shape, float *x, bt_err *err) {
    const size_t n = LINK_MEMORY / sizeof *x;
    *e = (exchange){0};
    bt_shards_init(&e->shards, n, GRAD_BUCKET, shape->dp_replicate, shape->dp_shard);
    BT_TRY(bt_mesh_create(&e->mesh, shape, bt_comm_world(), err));
    const bt_reducer_cfg cfg = {.mesh = &e->mesh,
                                .grads = x,
                                .n = n,
                                .bucket_bytes = GRAD_BUCKET,
                                .shards = shape->dp_shard > 1 ? &e->shards : NULL};
    return bt_reducer_create(&e->reducer, &cfg, err);
}

static void close_exchange(exchange *e) {
    bt_reducer_destroy(e->reducer);
    bt_mesh_release(&e->mesh);
}

static bt_code run_exchange(exchange *e, double *took_s, bt_err *err) {
    bt_reduce_times times;
    BT_TRY(bt_barrier(bt_comm_world(), err));
    const double start = processor_s();
    bt_reducer_begin(e->reducer);
    bt_reducer_last(e->reducer);
    BT_TRY(bt_reducer_finish(e->reducer, NULL, 0, &times, err));
    *took_s = processor_s() - start;
    return BT_OK;
}

/* Times two exchanges alternately, after one warm-up round. out_s: means over the ranks. */
static bt_code time_exchanges(exchange all[2], double out_s[2], bt_err *err) {
    double took[2][GRAD_ROUNDS];
    double first[] = {(double)bt_now_ns() / 1e9, 0};
    for (int k = 0; k < 2; k++) BT_TRY(run_exchange(&all[k], &took[k][0], err));
    first[1] = (double)bt_now_ns() / 1e9 - first[0];
    BT_TRY(bt_all_reduce_f64(bt_comm_world(), &first[1], 1, BT_MAX, err));
    const size_t n = (size_t)fmin(GRAD_ROUNDS, fmax(GRAD_LEAST, GRADS_S / first[1]));
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) BT_TRY(run_exchange(&all[k], &took[k][i], err));
    const double ranks = bt_comm_size(bt_comm_world());
    for (int k = 0; k < 2; k++) out_s[k] = bt_probe_typical(took[k], n) / ranks;
    return bt_all_reduce_f64(bt_comm_world(), out_s, 2, BT_SUM, err);
}

static bool axis_on_one_host(const bt_mesh_shape *shape, int rank, int *hosts) {
    bt_mesh_dp_hosts(shape, rank, hosts);
    for (int i = 1; i < shape->dp_replicate; i++)
        if (hosts[i] != hosts[0]) return false;
    return true;
}

/* Measures only if each group is on one host and all its ranks share memory. */
static bt_code probe_gradients(bt_link_rate *l, bt_err *err) {
    bt_comm *world = bt_comm_world();
    const bt_mesh_shape replicas = {l->world / (l->n * l->stride), l->n, 1, l->stride},
                        owners = {replicas.pp, 1, l->n, l->stride};
    float *x = malloc(LINK_MEMORY);
    int *hosts = calloc((size_t)l->n, sizeof *hosts);
    exchange both[2];
    double took_s[2] = {0};
    int64_t near = hosts && axis_on_one_host(&replicas, bt_comm_rank(world), hosts);
    bt_code code = x && hosts ? BT_OK
                              : bt_fail(err, BT_NOMEM, "cannot allocate memory for gradients");
    memset(both, 0, sizeof both);
    if (x) memset(x, 0, LINK_MEMORY);
    code = bt_agree(world, code, err);
    if (code == BT_OK) code = bt_all_reduce_i64(world, &near, 1, BT_MIN, err);
    if (code == BT_OK && near) {
        code = open_exchange(&both[0], &replicas, x, err);
        if (code == BT_OK) code = open_exchange(&both[1], &owners, x, err);
        near = code == BT_OK && bt_reducer_shares_memory(both[0].reducer) &&
               bt_reducer_shares_memory(both[1].reducer);
        if (code == BT_OK) code = bt_all_reduce_i64(world, &near, 1, BT_MIN, err);
        if (code == BT_OK && near) code = time_exchanges(both, took_s, err);
        close_exchange(&both[0]);
        close_exchange(&both[1]);
    }
    free(x);
    free(hosts);
    const double elems = (double)LINK_MEMORY / sizeof *x;
    l->grads_sum_s = fmin(took_s[0], took_s[1]) / elems;
    l->grads_back_s = took_s[0] / elems - l->grads_sum_s;
    return code;
}

static void compute_passes(const float *x, int64_t passes) {
    volatile double sum = 0;
    for (int64_t i = 0; i < passes; i++) sum = sum + bt_op_sum_squares(x, SHARED_ELEMS);
}

/* Computes `rounds` times `passes` passes with a barrier after each round. *out: processor time during which the ranks
 * occupied their cores over the time in which they computed. */
static bt_code measure_core_occupation(double *out, const float *x, int64_t passes, int64_t rounds,
                                       bt_err *err) {
    double s[] = {0, 0}; /* computing time; total time */
    BT_TRY(bt_barrier(bt_comm_world(), err));
    const double began = bt_probe_clock();
    for (int64_t i = 0; i < rounds; i++) {
        const double start = bt_probe_clock();
        compute_passes(x, passes);
        s[0] += bt_probe_clock() - start;
        BT_TRY(bt_barrier(bt_comm_world(), err));
    }
    s[1] = bt_probe_clock() - began;
    BT_TRY(bt_all_reduce_f64(bt_comm_world(), s, 2, BT_SUM, err));
    *out = s[0] > 0 ? s[1] / s[0] : 0;
    return BT_OK;
}

/* Measures the loss by cores that idle because the number of ranks is not a multiple of the cores. A waiting rank
 * yields its core and does not sleep. */
static bt_code probe_sharing(bt_link_rate *l, bt_err *err) {
    float *x = calloc(SHARED_ELEMS, sizeof *x);
    bt_code code = x ? BT_OK : bt_fail(err, BT_NOMEM, "cannot allocate memory to compute with");
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) {
        double pass_s = bt_probe_clock();
        compute_passes(x, 64);
        pass_s = (bt_probe_clock() - pass_s) / 64;
        code = bt_all_reduce_f64(bt_comm_world(), &pass_s, 1, BT_MAX, err);
        const int64_t often = (int64_t)(BT_SHARED_OFTEN_S / fmax(pass_s, 1e-7)) + 1,
                      seldom = (int64_t)(BT_SHARED_S / BT_SHARED_OFTEN_S + 0.5);
        if (code == BT_OK)
            code = measure_core_occupation(&l->shared_x, x, often * seldom, SHARED_ROUNDS, err);
        if (code == BT_OK)
            code = measure_core_occupation(&l->shared_often_x, x, often, SHARED_ROUNDS * seldom,
                                           err);
    }
    free(x);
    return code;
}

static bt_code probe_link_group(bt_rates *r, int n, int stride, bt_err *err) {
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
    /* The slowest group determines the rate; a link that could not be measured in one group is unknown. */
    if (code == BT_OK) code = bt_all_reduce_f64(world, &v[0], 1, BT_MAX, err);
    if (code == BT_OK) code = bt_all_reduce_f64(world, &v[1], 1, BT_MIN, err);
    l.latency_s = v[0];
    l.bytes_per_s = v[1];
    if (code == BT_OK) code = probe_gradients(&l, err);
    if (code == BT_OK && stride == 1 && n <= TP_MOST) code = probe_tp(&l, group, err);
    if (code == BT_OK && n == l.world && work.processor && bt_threads_count() == 1)
        code = probe_sharing(&l, err);
    bt_comm_free(group);
    if (code != BT_OK) return code;
    /* rank 0 stores the rates, so those of its group are used */
    r->links[r->n_links++] = l;
    return BT_OK;
}

bt_code bt_rates_probe_links(bt_rates *r, bt_err *err) {
    int world = bt_comm_size(bt_comm_world());
    bt_span_reset();
    r->n_links = 0;
    for (int n = 2; n <= world; n++) {
        if (world % n != 0) continue;
        BT_TRY(probe_link_group(r, n, 1, err));
        if (n < world) BT_TRY(probe_link_group(r, n, world / n, err));
    }
    bt_span_reset();
    return BT_OK;
}
