// ctest: ranks=6 timeout=200
/* The gradient exchange on simulated hosts gives the bits of one host for any groups of ranks, shards, units and
 * shares. Between hosts a part is sent once per group, and the bytes follow the formula. With a codec: half the bytes,
 * sums within the bound of bf16, equal bits when repeated and on all ranks, error feedback, refusal of invalid
 * payloads. */
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
#include "engine/base/testing/testing.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/exchange.h"
#include "engine/parallel/grad/reducer.h"

#ifndef RANKS
#define RANKS 6
#endif

/* The array is so long that all buckets and parts are full. */
enum { STRIPES = 5, N = RANKS * BT_SUM_BLOCK * STRIPES };

typedef struct job {
    int shards;        /* 1: all ranks are replicas */
    const char *hosts; /* number of ranks on each host; NULL: the real machine */
    int64_t units;     /* 0: the gradient of a rank is one leaf */
    int64_t shares[RANKS];
    const bt_codec *codec;
} job;

static bt_comm *w;
static int rank, size;
static float *grads, *one_host, *several;

/* All units have the same gradient, shifted by SHIFT elements per unit. */
enum { SHIFT = 1009, UNITS = 32 };
static float numbers[N + UNITS * SHIFT];
static void make(float *x, int64_t u) { memcpy(x, numbers + u * SHIFT, N * sizeof *x); }

static void add_unit(float *into, int64_t u) {
    for (size_t i = 0; i < N; i++) into[i] += numbers[u * SHIFT + (int64_t)i];
}

static bool gradient_element(const job *j) { return j->shares[0] > 0; }

/* The leaves of the addition tree that belong to rank d are [first, end). */
static int64_t first_leaf(const job *j, int d) {
    if (!j->units) return d;
    if (!gradient_element(j)) return j->units * d / size;
    int64_t first = 0;
    for (int i = 0; i < d; i++) first += j->shares[i];
    return first;
}

static bt_mesh_shape shape_of(const job *j) {
    return (bt_mesh_shape){1, size / j->shards, j->shards, 1};
}

typedef struct setup {
    bt_mesh mesh;
    bt_mesh_shape shape;
    bt_shards shards;
    bt_reducer *r;
} setup;

static void create_setup(setup *s, const job *j) {
    bt_err err = BT_ERR_INIT;
    *s = (setup){.shape = shape_of(j)};
    if (j->hosts)
        assert_int_equal(setenv("BITRAIN_TEST_HOSTS", j->hosts, 1), 0);
    else
        assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
    assert_int_equal(bt_mesh_create(&s->mesh, &s->shape, w, &err), BT_OK);
    bt_shards_init(&s->shards, N, N / STRIPES * sizeof(float), s->shape.dp_replicate, j->shards);
    assert_true(j->shards == 1 || s->shards.n_stripes == STRIPES);
    bt_reducer_cfg cfg = {.mesh = &s->mesh,
                          .grads = grads,
                          .n = N,
                          .bucket_bytes = N / STRIPES * sizeof(float),
                          .overlap = true,
                          .form.codec = j->codec,
                          .shards = &s->shards,
                          .units = j->units,
                          .shares = gradient_element(j) ? j->shares : NULL};
    if (bt_reducer_create(&s->r, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
}

static void destroy_setup(setup *s) {
    bt_reducer_destroy(s->r);
    bt_mesh_release(&s->mesh);
}

/* bytes that this rank sent in the last step, including arrival times */
static struct { uint64_t logical, wire; } of_step;

/* Exchanges one step; out receives this rank's part of the sum and zeros elsewhere. */
static void exchange_step(setup *s, const job *j, float *out) {
    bt_reduce_times times;
    bt_err err = BT_ERR_INIT;
    const uint64_t logical = bt_comm_bytes_logical(), wire = bt_comm_bytes_wire();
    memset(grads, 0, N * sizeof *grads);
    bt_reducer_begin(s->r);
    int64_t u = first_leaf(j, rank), last = first_leaf(j, rank + 1) - 1;
    for (; u < last; u++) {
        add_unit(bt_reducer_unit(s->r, 0), u);
        bt_reducer_unit_done(s->r, 0);
    }
    add_unit(bt_reducer_unit(s->r, 0), last);
    bt_reducer_last(s->r);
    for (size_t at = N; at > 0; at -= N / STRIPES / 2)
        bt_reducer_ready(s->r, at - N / STRIPES / 2, at);
    if (bt_reducer_finish(s->r, NULL, 0, &times, &err) != BT_OK) fail_msg("%s", err.msg);
    of_step.logical = bt_comm_bytes_logical() - logical;
    of_step.wire = bt_comm_bytes_wire() - wire;
    memset(out, 0, N * sizeof *out);
    for (size_t i = 0; i < s->shards.n_stripes; i++) {
        bt_range p = bt_shards_piece(&s->shards, i, j->shards > 1 ? s->mesh.me.dp_shard : 0);
        memcpy(out + p.begin, grads + p.begin, (p.end - p.begin) * sizeof *out);
    }
}

static void exchange_job(const job *j, float *out) {
    setup s;
    create_setup(&s, j);
    exchange_step(&s, j, out);
    destroy_setup(&s);
}

static double sum_over_ranks(double x) {
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_all_reduce_f64(w, &x, 1, BT_SUM, &err), BT_OK);
    return x;
}

static int host_of(const char *hosts, int d) {
    int host = 0;
    for (long first = 0, ranks = 0;; host++) {
        if (*hosts) ranks = strtol(hosts, (char **)(uintptr_t)&hosts, 10);
        if (*hosts == ',') hosts++;
        first += ranks;
        if (d < first) return host;
    }
}

/* Counts the largest aligned runs of 2^k leaves within [first, end). They are the partial sums that remain after a
 * group has added everything it can. */
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

/* Returns the bytes between hosts if every group of ranks [first[g], first[g + 1]) sends its partial sums of each part
 * once, and receives once each sum that one of its ranks needs. */
static double predicted_bytes_between_hosts(const job *j, const char *hosts, const int *first,
                                            int groups) {
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

/* Returns the bytes that all ranks received from other hosts since the counters were reset. */
static double bytes_between_hosts(const char *hosts) {
    double bytes = 0;
    for (int d = 0; d < size; d++)
        if (host_of(hosts, d) != host_of(hosts, rank)) bytes += (double)bt_pair_get(d)->bytes;
    return sum_over_ranks(bytes);
}

static const char *const hosts[] = {"3", "2", "4,2", "1,5", "2,1,3", "1,2,2,1", "1", "6", "5,1,2"};
enum { N_HOSTS = sizeof hosts / sizeof *hosts };

static const job jobs[] = {
    {.shards = 1},
    {.shards = 2},
    {.shards = 0}, /* one shard per rank */
    {.shards = 1, .units = 7},
    {.shards = 2, .units = 16},
    {.shards = 0, .units = 11},
    {.shards = 1, .units = 13, .shares = {3, 1, 4, 5}},
    {.shards = 0, .units = 13, .shares = {1, 7, 1, 4}},
    {.shards = 2, .units = 13, .shares = {5, 1, 6, 1}},
};
enum { N_JOBS = sizeof jobs / sizeof *jobs, N_WITHOUT_UNITS = 3 };

/* Makes a job for four ranks, with additional units for more ranks. */
static job job_at(size_t k, const char *hosts_of) {
    job j = jobs[k];
    j.hosts = hosts_of;
    if (j.shards == 0) j.shards = size;
    for (int d = 4; d < size && gradient_element(&j); d++) j.units += j.shares[d] = d - 2;
    return j;
}

static void hosts_change_no_bit(void **state) {
    (void)state;
    for (size_t k = 0; k < N_JOBS; k++) {
        job near = job_at(k, NULL);
        exchange_job(&near, one_host);
        for (size_t h = 0; h < N_HOSTS; h++) {
            job far = job_at(k, hosts[h]);
            exchange_job(&far, several);
            for (size_t i = 0; i < N; i++)
                if (memcmp(&one_host[i], &several[i], sizeof *several) != 0)
                    fail_msg("job %zu, hosts of %s: element %zu is %.9g, %.9g on one host", k,
                             hosts[h], i, (double)several[i], (double)one_host[i]);
        }
    }
}

static bool maps_memory_of_others(void) {
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found |= strstr(line, "bitrain-gradients") != NULL;
    assert_int_equal(fclose(f), 0);
    return found;
}

/* Returns the bytes that this rank received from each rank since the counters were reset. */
static void received_bytes(int64_t bytes[RANKS], int64_t messages[RANKS]) {
    for (int d = 0; d < size; d++) {
        bytes[d] = bt_pair_get(d)->bytes;
        messages[d] = bt_pair_get(d)->messages;
    }
}

/* Messages, and shared memory with one and with several pieces per part, give equal bits and equal counters for each
 * pair of ranks. Several steps reuse the memory. */
static void shared_memory_changes_no_bit(void **state) {
    (void)state;
    static const char *const groups[] = {NULL, "4,2", "2,1,3"};
    const size_t whole = bt_exchange_piece_bytes, sizes[] = {0, whole, 1088};
    for (size_t k = 0; k < N_JOBS * 3; k++) {
        const job j = job_at(k / 3, groups[k % 3]);
        uint64_t bytes = 0, logical = 0;
        int64_t came[RANKS], messages[RANKS], came_here[RANKS], messages_here[RANKS];
        const size_t ways = j.hosts
                                ? 2
                                : 3; /* Jobs on several hosts do not divide parts into pieces. */
        for (size_t i = 0; i < ways; i++) {
            setup s;
            bt_testing_exchange_messages = i == 0;
            bt_exchange_piece_bytes = i == 0 ? whole : sizes[i];
            create_setup(&s, &j);
            bool alone = j.hosts && host_of(j.hosts, rank) != host_of(j.hosts, (rank + 1) % size) &&
                         host_of(j.hosts, rank) != host_of(j.hosts, (rank + size - 1) % size);
            assert_int_equal(maps_memory_of_others(), i > 0 && !alone);
            for (int again = 0; again < 2; again++) {
                bt_pairs_reset();
                exchange_step(&s, &j, i ? several : one_host);
                if (i == 0) bytes = of_step.wire, logical = of_step.logical;
                assert_int_equal(of_step.wire, bytes);
                assert_int_equal(of_step.logical, logical);
                received_bytes(came_here, messages_here);
                if (i == 0) received_bytes(came, messages);
                for (int d = 0; d < size; d++)
                    if (came[d] != came_here[d] || (i < 2 && messages[d] != messages_here[d]))
                        fail_msg(
                            "job %zu, way %zu: %lld bytes in %lld messages from rank %d, not %lld "
                            "in %lld",
                            k, i, (long long)came_here[d], (long long)messages_here[d], d,
                            (long long)came[d], (long long)messages[d]);
            }
            destroy_setup(&s);
            if (i > 0) assert_memory_equal(one_host, several, N * sizeof *several);
        }
    }
    bt_testing_exchange_messages = false;
    bt_exchange_piece_bytes = whole;
}

/* Returns the sum of all units in double precision, and the sum of their magnitudes. */
static void exact_sum(const job *j, double *sum, double *magnitude) {
    memset(sum, 0, N * sizeof *sum);
    memset(magnitude, 0, N * sizeof *magnitude);
    for (int64_t u = 0; u < first_leaf(j, size); u++) {
        for (size_t i = 0; i < N; i++) {
            double x = (double)numbers[u * SHIFT + (int64_t)i];
            sum[i] += x;
            magnitude[i] += fabs(x);
        }
    }
}

/* Compares the sums with a plain loop in double precision. */
static void sums_are_those_of_all_units(void **state) {
    (void)state;
    static double want[N], magnitude[N];
    const job j = job_at(6, "1,2");
    exchange_job(&j, several);
    exact_sum(&j, want, magnitude);
    for (size_t i = 0; i < N; i++) assert_true(fabs((double)several[i] - want[i]) < 1e-5);
}

static void bytes_between_hosts_follow_the_formula(void **state) {
    (void)state;
    int first[RANKS + 1];
    for (size_t k = 0; k < N_JOBS; k++) {
        for (size_t h = 0; h < N_HOSTS; h++) {
            job far = job_at(k, hosts[h]);
            bt_pairs_reset();
            exchange_job(&far, several);
            double got = bytes_between_hosts(hosts[h]),
                   want = predicted_bytes_between_hosts(&far, hosts[h], first,
                                                        groups_of(hosts[h], first));
            if (got != want)
                fail_msg("job %zu, hosts of %s: %.0f bytes between hosts, %.0f by the formula", k,
                         hosts[h], got, want);
        }
    }
}

/* On two hosts with equal numbers of ranks, traffic between hosts is divided by the number of ranks per host if each
 * host has whole subtrees of the addition tree, and no rank sends more than on one host. */
static void bytes_between_hosts_are_reduced(void **state) {
    (void)state;
    char half[16];
    int first[RANKS + 1], k = size / 2;
    snprintf(half, sizeof half, "%d", k);
    job near = job_at(0, NULL), far = job_at(0, half);
    double crossing[2], sent[2];
    for (int i = 0; i < 2; i++) {
        bt_pairs_reset();
        exchange_job(i ? &far : &near, several);
        sent[i] = (double)of_step.wire;
        crossing[i] = bytes_between_hosts(half);
    }
    double whole = N * sizeof(float), nodes = nodes_within(0, k) + nodes_within(k, size);
    for (int d = 0; d <= size; d++) first[d] = d;
    assert_true(crossing[0] == predicted_bytes_between_hosts(&near, half, first, size) &&
                crossing[0] == 2 * k * whole);
    assert_true(crossing[1] == (nodes / 2 + 1) * whole);
    if (nodes == 2) {
        assert_true(crossing[0] == k * crossing[1]);
        assert_true(sent[0] == sent[1]);
    }
}

static bool holds_element(const setup *s, const job *j, size_t i) {
    size_t piece = i % s->shards.stripe / s->shards.piece;
    return j->shards == 1 || piece == (size_t)s->mesh.me.dp_shard;
}

/* Every gradient and every returned sum has a relative error of at most 2^-8; sums of a host are smaller than all
 * gradients of its ranks. A second run and all replicas give the same bits. */
static void bf16_is_within_its_bound(void **state) {
    (void)state;
    double *sum = malloc(N * sizeof *sum), *magnitude = malloc(N * sizeof *magnitude);
    assert_true(sum && magnitude);
    for (size_t k = 0; k < N_WITHOUT_UNITS; k++) {
        const job rows = job_at(k, NULL);
        exact_sum(&rows, sum, magnitude);
        for (size_t h = 0; h <= N_HOSTS; h++) {
            job j = job_at(k, h < N_HOSTS ? hosts[h] : NULL);
            setup s;
            j.codec = bt_codec_at(BT_CODEC_BF16);
            create_setup(&s, &j);
            exchange_step(&s, &j, one_host);
            exchange_step(&s, &j, several);
            assert_memory_equal(one_host, several, N * sizeof *several);
            double worst = 0;
            for (size_t i = 0; i < N; i++) {
                if (!holds_element(&s, &j, i)) continue;
                double off = fabs((double)several[i] - sum[i]);
                if (!(off <= 0x1.01p-8 * (magnitude[i] + fabs(sum[i]))))
                    fail_msg("job %zu, element %zu is %.9g, not %.9g", k, i, (double)several[i],
                             sum[i]);
                if (off > worst) worst = off;
            }
            assert_true(worst > 1e-4); /* Some value was rounded. */
            bt_err err = BT_ERR_INIT;
            bt_comm *copies = j.shards == 1 ? s.mesh.dp : s.mesh.replicate;
            assert_int_equal(bt_broadcast(copies, several, N * sizeof *several, 0, &err), BT_OK);
            assert_memory_equal(one_host, several, N * sizeof *several);
            destroy_setup(&s);
        }
    }
    free(sum);
    free(magnitude);
}

/* bf16 halves the bytes between groups of ranks; the logical bytes are those of fp32. */
static void bf16_halves_what_travels_between_groups(void **state) {
    (void)state;
    int first[RANKS + 1];
    for (size_t k = 0; k < N_WITHOUT_UNITS; k++) {
        for (size_t h = 0; h < N_HOSTS; h++) {
            job fp32 = job_at(k, hosts[h]), bf16 = fp32;
            bf16.codec = bt_codec_at(BT_CODEC_BF16);
            exchange_job(&fp32, several);
            const uint64_t whole = of_step.logical;
            assert_int_equal(of_step.wire, whole);
            bt_pairs_reset();
            bt_traffic_reset();
            exchange_job(&bf16, several);
            const bt_traffic *t = bt_traffic_get(
                bf16.shards == 1 ? BT_COLL_ALL_REDUCE : BT_COLL_REDUCE_SCATTER, BT_AXIS_DP);
            double got = bytes_between_hosts(hosts[h]),
                   want = predicted_bytes_between_hosts(&bf16, hosts[h], first,
                                                        groups_of(hosts[h], first)) /
                          2;
            if (got != want)
                fail_msg("job %zu, hosts of %s: %.0f bytes between hosts, %.0f by the formula", k,
                         hosts[h], got, want);
            assert_int_equal(of_step.logical, whole);
            /* Only the exchange reduces the bytes. */
            assert_int_equal(of_step.logical - of_step.wire, t->bytes_logical - t->bytes_wire);
            /* Every rank is its own group, so nothing is sent as fp32. */
            if (groups_of(hosts[h], first) == size || strcmp(hosts[h], "6") == 0)
                assert_int_equal(t->bytes_logical, 2 * t->bytes_wire);
        }
    }
}

/* A codec for these tests: multiples of a quarter in 16 bits; the rounding error is added to the next step. */
static size_t quarters_bound(size_t n) { return n * sizeof(int16_t); }

static size_t quarters_encode(void *payload, const float *x, size_t n, void *state) {
    int16_t *to = payload;
    float *lost = state;
    for (size_t i = 0; i < n; i++) {
        float want = x[i] + (lost ? lost[i] : 0);
        to[i] = (int16_t)lrintf(want * 4);
        if (lost) lost[i] = want - (float)to[i] / 4;
    }
    return quarters_bound(n);
}

static bool refuse;

static bool quarters_decode(float *x, size_t n, const void *payload, size_t bytes) {
    const int16_t *from = payload;
    if (bytes != quarters_bound(n) || refuse) return false;
    for (size_t i = 0; i < n; i++) x[i] = (float)from[i] / 4;
    return true;
}

static bool quarters_decode_add(float *x, size_t n, const void *payload, size_t bytes) {
    const int16_t *from = payload;
    if (bytes != quarters_bound(n) || refuse) return false;
    for (size_t i = 0; i < n; i++) x[i] += (float)from[i] / 4;
    return true;
}

static bt_codec quarters_codec(size_t state_bytes) {
    return (bt_codec){.name = "quarters",
                      .state_bytes = state_bytes,
                      .bound = quarters_bound,
                      .encode = quarters_encode,
                      .decode = quarters_decode,
                      .decode_add = quarters_decode_add};
}

/* Returns the largest difference between the sum of many equal steps and their exact sum. */
static double drift_of_sum(job *j, int steps) {
    static double sum[N], magnitude[N], total[N];
    double worst = 0;
    setup s;
    exact_sum(j, sum, magnitude);
    memset(total, 0, sizeof total);
    create_setup(&s, j);
    for (int t = 0; t < steps; t++) {
        exchange_step(&s, j, several);
        for (size_t i = 0; i < N; i++) total[i] += (double)several[i];
    }
    for (size_t i = 0; i < N; i++)
        if (holds_element(&s, j, i)) worst = fmax(worst, fabs(total[i] - steps * sum[i]));
    destroy_setup(&s);
    return worst;
}

/* Error feedback makes the sum over many steps as accurate as one step: within half a quarter for each rank that
 * encodes. Without it the error grows. */
static void error_feedback_repays_what_rounding_lost(void **state) {
    (void)state;
    enum { STEPS = 16 };
    const bt_codec with = quarters_codec(sizeof(float)), without = quarters_codec(0);
    static const size_t rows[] = {
        0, 1, 2, 6}; /* In the last of these jobs each rank has several partial sums. */
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        for (int h = 0; h < 2; h++) {
            job j = job_at(rows[k], h ? "2" : NULL);
            j.codec = &with;
            double kept = drift_of_sum(&j, STEPS), bound = 0.125 * (size + 1) + 1e-3;
            j.codec = &without;
            double lost = drift_of_sum(&j, STEPS);
            if (!(kept <= bound && lost > 2 * bound))
                fail_msg("job %zu: %g off with error feedback, %g without", rows[k], kept, lost);
        }
    }
}

/* If there are shards and no replicas, each rank refuses the first payload it decodes after all its messages were
 * exchanged, and adds none. */
static void invalid_payloads_are_never_added(void **state) {
    (void)state;
    const bt_codec codec = quarters_codec(0);
    const job j = {.shards = size};
    setup s;
    bt_exchange *x = NULL;
    bt_buckets b;
    bt_err err = BT_ERR_INIT;
    size_t done = 0;
    bt_code code = BT_OK;
    create_setup(&s, &j);
    bt_buckets_init(&b, N, N * sizeof(float), size);
    const bt_exchange_cfg cfg = {.plan = {.shape = &s.shape,
                                          .rank = rank,
                                          .buckets = &b,
                                          .sharded = true,
                                          .form.codec = &codec,
                                          .units = size},
                                 .mesh = &s.mesh,
                                 .grads = grads};
    const bt_tree_sum mine = {.at = {{rank, 0, grads}}, .n = 1};
    make(grads, rank);
    make(several, rank);
    assert_int_equal(bt_exchange_create(&x, &cfg, &err), BT_OK);
    bt_exchange_reset(x);
    bt_exchange_nodes(x, &mine);
    refuse = true;
    code = bt_exchange_start(x, 0, &err);
    while (code == BT_OK && done == 0) code = bt_exchange_progress(x, &done, &err);
    refuse = false;
    assert_int_equal(code, BT_CHECK);
    assert_non_null(strstr(err.msg, "gradients encoded by --codec quarters"));
    assert_memory_equal(grads, several, N * sizeof *grads);
    assert_int_equal(bt_barrier(w, &err), BT_OK);
    bt_exchange_destroy(x);
    destroy_setup(&s);
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
    bt_rng_normal(numbers, sizeof numbers / sizeof *numbers, 0, 1, 11, 0);
    if (size != RANKS || !grads || !one_host || !several) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_change_no_bit),
        cmocka_unit_test(shared_memory_changes_no_bit),
        cmocka_unit_test(sums_are_those_of_all_units),
        cmocka_unit_test(bytes_between_hosts_follow_the_formula),
        cmocka_unit_test(bytes_between_hosts_are_reduced),
        cmocka_unit_test(bf16_is_within_its_bound),
        cmocka_unit_test(bf16_halves_what_travels_between_groups),
        cmocka_unit_test(error_feedback_repays_what_rounding_lost),
        cmocka_unit_test(invalid_payloads_are_never_added),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(grads);
    free(one_host);
    free(several);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
