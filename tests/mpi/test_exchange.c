/* mpi: 6
 * The exchange of gradients on pretended hosts: the bits of one host, for any groups of ranks,
 * shards, units and shares; between hosts a part travels once for a group, and the bytes are those
 * of the formula. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/reducer.h"

/* elements: of a part at least, and of the array, whose buckets and parts are all full */
enum { STRIPES = 5, N = 12 * BT_SUM_BLOCK * STRIPES, MAX_RANKS = 8 };

typedef struct job {
    int shards;        /* 1: all ranks are replicas */
    const char *hosts; /* ranks of each; NULL: what the machine is */
    int64_t units;     /* 0: a rank's gradient is one leaf */
    int64_t shares[MAX_RANKS];
} job;

static bt_comm *w;
static int rank, size;
static float *grads, *one_host, *several;

/* unit u's gradient */
static void make(float *x, int64_t u) { bt_rng_normal(x, N, 0, 1, 11, (uint64_t)u); }

static void add_unit(float *into, int64_t u) {
    static float x[N];
    make(x, u);
    for (size_t i = 0; i < N; i++) into[i] += x[i];
}

static bool given(const job *j) { return j->shares[0] > 0; }

/* the leaves of rank d: [first, end) */
static int64_t first_leaf(const job *j, int d) {
    if (!j->units) return d;
    if (!given(j)) return j->units * d / size;
    int64_t first = 0;
    for (int i = 0; i < d; i++) first += j->shares[i];
    return first;
}

static bt_mesh_shape shape_of(const job *j) {
    return (bt_mesh_shape){1, size / j->shards, j->shards, 1};
}

/* One step's exchange; out: what this rank then holds of the sum, elsewhere zero. */
static void exchange(const job *j, float *out) {
    bt_mesh mesh;
    bt_mesh_shape shape = shape_of(j);
    bt_shards shards;
    bt_reducer *r = NULL;
    bt_reduce_times times;
    bt_err err = BT_ERR_INIT;
    if (j->hosts)
        assert_int_equal(setenv("BITRAIN_TEST_HOSTS", j->hosts, 1), 0);
    else
        assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
    assert_int_equal(bt_mesh_create(&mesh, &shape, w, &err), BT_OK);
    bt_shards_init(&shards, N, N / STRIPES * sizeof(float), shape.dp_replicate, j->shards);
    assert_true(j->shards == 1 || shards.n_stripes == STRIPES);
    bt_reducer_cfg cfg = {.mesh = &mesh,
                          .grads = grads,
                          .n = N,
                          .bucket_bytes = N / STRIPES * sizeof(float),
                          .overlap = true,
                          .shards = &shards,
                          .units = j->units,
                          .shares = given(j) ? j->shares : NULL};
    if (bt_reducer_create(&r, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
    memset(grads, 0, N * sizeof *grads);
    bt_reducer_begin(r);
    int64_t u = first_leaf(j, rank), end = first_leaf(j, rank + 1);
    for (; u < end - 1; u++) {
        add_unit(bt_reducer_unit(r), u);
        bt_reducer_unit_done(r);
    }
    add_unit(bt_reducer_unit(r), u);
    bt_reducer_last(r);
    for (size_t at = N; at > 0; at -= N / STRIPES / 2)
        bt_reducer_ready(r, at - N / STRIPES / 2, at);
    if (bt_reducer_finish(r, NULL, 0, &times, &err) != BT_OK) fail_msg("%s", err.msg);
    memset(out, 0, N * sizeof *out);
    for (size_t i = 0; i < shards.n_stripes; i++) {
        bt_range p = bt_shards_piece(&shards, i, j->shards > 1 ? mesh.me.dp_shard : 0);
        memcpy(out + p.begin, grads + p.begin, (p.end - p.begin) * sizeof *out);
    }
    bt_reducer_destroy(r);
    bt_mesh_release(&mesh);
}

static double sum_over_ranks(double x) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_all_reduce_f64(w, &x, 1, BT_SUM, &err), BT_OK);
    return x;
}

/* ---- which hosts there are, by counting ------------------------------------------------------ */

static int host_of(const char *hosts, int d) {
    int host = 0;
    for (long first = 0, ranks = 0;; host++) {
        if (*hosts) ranks = strtol(hosts, (char **)(uintptr_t)&hosts, 10);
        if (*hosts == ',') hosts++;
        first += ranks;
        if (d < first) return host;
    }
}

/* the largest aligned runs of 2^k leaves that lie wholly within [first, end): what is left of a group
 * that has added all it can */
static int nodes_within(int64_t first, int64_t end) {
    int nodes = 0;
    while (first < end) {
        int64_t width = 1;
        while (first % (2 * width) == 0 && first + 2 * width <= end) width *= 2;
        first += width;
        nodes++;
    }
    return nodes;
}

/* bytes that cross from host to host, where every group of ranks [first[g], first[g + 1]) sends its
 * nodes of each part, and gets each sum that one of its ranks needs, once */
static double formula(const job *j, const char *hosts, const int *first, int groups) {
    double parts = 0;
    for (int owner = 0; owner < size; owner++) {
        for (int g = 0; g < groups; g++) {
            bool needs = false;
            for (int d = first[g]; d < first[g + 1]; d++)
                needs |= j->shards == 1 || d % j->shards == owner % j->shards;
            if (host_of(hosts, first[g]) == host_of(hosts, owner)) continue;
            parts += nodes_within(first_leaf(j, first[g]), first_leaf(j, first[g + 1])) + needs;
        }
    }
    return parts * N / size * sizeof(float);
}

static int groups_of(const char *hosts, int *first) {
    int groups = 0;
    for (int d = 0; d < size; d++)
        if (d == 0 || host_of(hosts, d) != host_of(hosts, d - 1)) first[groups++] = d;
    first[groups] = size;
    return groups;
}

/* what all ranks received from ranks of other hosts since the pairs were reset */
static double crossed(const char *hosts) {
    double bytes = 0;
    for (int d = 0; d < size; d++)
        if (host_of(hosts, d) != host_of(hosts, rank)) bytes += (double)bt_pair_get(d)->bytes;
    return sum_over_ranks(bytes);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const char *const hosts[] = {"3", "2", "4,2", "1,5", "2,1,3", "1,2,2,1", "1", "6", "5,1,2"};
enum { N_HOSTS = sizeof hosts / sizeof *hosts };

static const job jobs[] = {
    {1, NULL, 0, {0}},           {2, NULL, 0, {0}},
    {0, NULL, 0, {0}}, /* 0: as many shards as ranks */
    {1, NULL, 7, {0}},           {2, NULL, 16, {0}},
    {0, NULL, 11, {0}},          {1, NULL, 13, {3, 1, 4, 5}},
    {0, NULL, 13, {1, 7, 1, 4}}, {2, NULL, 13, {5, 1, 6, 1}},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs };

/* of four ranks; more have some units besides */
static job job_at(size_t k, const char *hosts_of) {
    job j = jobs[k];
    j.hosts = hosts_of;
    if (j.shards == 0) j.shards = size;
    for (int d = 4; d < size && given(&j); d++) j.units += j.shares[d] = d - 2;
    return j;
}

static void hosts_change_no_bit(void **state) {
    (void)state;
    for (size_t k = 0; k < N_JOBS; k++) {
        job near = job_at(k, NULL);
        exchange(&near, one_host);
        for (size_t h = 0; h < N_HOSTS; h++) {
            job far = job_at(k, hosts[h]);
            exchange(&far, several);
            for (size_t i = 0; i < N; i++)
                if (memcmp(&one_host[i], &several[i], sizeof *several) != 0)
                    fail_msg("job %zu, hosts of %s: element %zu is %.9g, %.9g on one host", k,
                             hosts[h], i, (double)several[i], (double)one_host[i]);
        }
    }
}

/* against a plain loop in double precision */
static void sums_are_those_of_all_units(void **state) {
    (void)state;
    job j = job_at(6, "1,2");
    double *want = calloc(N, sizeof *want);
    float *x = malloc(N * sizeof *x);
    assert_true(want && x);
    exchange(&j, several);
    for (int64_t u = 0; u < j.units; u++) {
        make(x, u);
        for (size_t i = 0; i < N; i++) want[i] += (double)x[i];
    }
    for (size_t i = 0; i < N; i++) assert_true(fabs((double)several[i] - want[i]) < 1e-5);
    free(want);
    free(x);
}

static void bytes_between_hosts_follow_the_formula(void **state) {
    (void)state;
    int first[MAX_RANKS + 1];
    for (size_t k = 0; k < N_JOBS; k++) {
        for (size_t h = 0; h < N_HOSTS; h++) {
            job far = job_at(k, hosts[h]);
            bt_pairs_reset();
            exchange(&far, several);
            double got = crossed(hosts[h]),
                   want = formula(&far, hosts[h], first, groups_of(hosts[h], first));
            if (got != want)
                fail_msg("job %zu, hosts of %s: %.0f bytes between hosts, the formula says %.0f", k,
                         hosts[h], got, want);
        }
    }
}

/* Two hosts of equally many ranks: as many times less between them as a host has ranks, where its
 * ranks are whole subtrees; and no rank sends more than it did. */
static void bytes_between_hosts_fall(void **state) {
    (void)state;
    char half[16];
    int first[MAX_RANKS + 1], k = size / 2;
    snprintf(half, sizeof half, "%d", k);
    job near = job_at(0, NULL), far = job_at(0, half);
    double crossing[2], sent[2];
    for (int i = 0; i < 2; i++) {
        double before = (double)bt_comm_bytes_wire();
        bt_pairs_reset();
        exchange(i ? &far : &near, several);
        crossing[i] = crossed(half);
        /* besides, in both: arrival times, the clocks' offsets, agreement */
        sent[i] = (double)bt_comm_bytes_wire() - before;
    }
    double whole = N * sizeof(float), nodes = nodes_within(0, k) + nodes_within(k, size);
    for (int d = 0; d <= size; d++) first[d] = d;
    assert_true(crossing[0] == formula(&near, half, first, size) && crossing[0] == 2 * k * whole);
    assert_true(crossing[1] == (nodes / 2 + 1) * whole);
    if (nodes == 2) {
        assert_true(crossing[0] == k * crossing[1]);
        assert_true(sent[0] == sent[1]);
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    w = bt_comm_world();
    rank = bt_comm_rank(w);
    size = bt_comm_size(w);
    grads = malloc(N * sizeof *grads);
    one_host = malloc(N * sizeof *grads);
    several = malloc(N * sizeof *grads);
    if (size < 4 || size > MAX_RANKS || !grads || !one_host || !several) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_change_no_bit),
        cmocka_unit_test(sums_are_those_of_all_units),
        cmocka_unit_test(bytes_between_hosts_follow_the_formula),
        cmocka_unit_test(bytes_between_hosts_fall),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(grads);
    free(one_host);
    free(several);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
