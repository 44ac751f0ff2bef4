/* test_cpu_binding.c - machines described by hwloc, and properties of every placement: disjoint shares, ranks within
 * one memory domain, groups within one socket, a core for each thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "monitor/job/machine/cpu_binding.h"

static bt_hardware_thread places[BT_HARDWARE_THREADS_MAX];

/* Returns the number of different values of the field `what` among the processors of a set. */
typedef enum { PACKAGE, DOMAIN, CORE } part;

static int parts_of(size_t n, const cpu_set_t *set, part what) {
    int sum = 0, last = -1;
    for (size_t i = 0; i < n; i++) {
        if (!CPU_ISSET((size_t)places[i].cpu, set)) continue;
        const int at = what == PACKAGE  ? places[i].package
                       : what == DOMAIN ? places[i].domain
                                        : places[i].core;
        sum += at != last;
        last = at;
    }
    return sum;
}

/* If hwloc is missing no machine can be described, and there is no placement. */
static bool without_hwloc(size_t n) {
#ifdef BITRAIN_HAVE_HWLOC
    assert_true(n > 0);
    return false;
#else
    assert_int_equal(n, 0);
    return true;
#endif
}

static void machines_are_read(void **state) {
    (void)state;
    char words[128];
    size_t n = bt_hardware_threads(places, "pack:2 numa:2 core:4 pu:2");
    if (without_hwloc(n)) return;
    assert_int_equal(n, 32);
    assert_string_equal(bt_hardware_threads_text(places, n, words, sizeof words),
                        "2 sockets, 4 memory domains, 16 cores, 32 hardware threads");
    for (size_t i = 1; i < n; i++) {
        assert_true(places[i].core == places[i - 1].core + (i % 2 == 0));
        assert_true(places[i].domain == places[i - 1].domain + (i % 8 == 0));
        assert_true(places[i].package == places[i - 1].package + (i % 16 == 0));
    }
    /* Usual numbers: the first hardware threads of all cores, then the second ones. */
    static const int numbers[] = {0, 4, 1, 5, 2, 6, 3, 7};
    n = bt_hardware_threads(places, "core:4 pu:2(indexes=0,4,1,5,2,6,3,7)");
    assert_int_equal(n, 8);
    for (size_t i = 0; i < n; i++) assert_int_equal(places[i].cpu, numbers[i]);
    n = bt_hardware_threads(places, "pu:1");
    assert_string_equal(bt_hardware_threads_text(places, n, words, sizeof words),
                        "1 socket, 1 memory domain, 1 core, 1 hardware thread");
    assert_int_equal(bt_hardware_threads(places, "pack:two"), 0);
}

static void this_machine_consists_of_the_permitted_processors(void **state) {
    (void)state;
    cpu_set_t may, seen;
    const size_t n = bt_hardware_threads(places, NULL);
    CPU_ZERO(&seen);
    for (size_t i = 0; i < n; i++) CPU_SET((size_t)places[i].cpu, &seen);
    assert_int_equal(sched_getaffinity(0, sizeof may, &may), 0);
    assert_true(CPU_EQUAL(&may, &seen));
    assert_int_equal(CPU_COUNT(&seen), n);
}

typedef struct row {
    const char *machine;
    int ranks, threads, group;
    int cpus; /* processors of every rank */
    bool bound;
} row;

/* Cores are numbered consecutively, with their second hardware threads in between. */
static const row rows[] = {
    {"pack:1 numa:1 core:2 pu:1", 2, 1, 1, 1, true},
    {"pack:1 numa:1 core:8 pu:1", 2, 4, 1, 4, true},
    {"pack:1 numa:1 core:8 pu:2", 2, 4, 1, 4, true}, /* one core each: second threads are idle */
    /* both hardware threads if there are more software threads */
    {"pack:1 numa:1 core:8 pu:2", 2, 8, 1, 8, true},
    {"pack:1 numa:1 core:4 pu:2", 8, 1, 1, 1, true},  /* neighbouring ranks share a core */
    {"pack:1 numa:1 core:4 pu:1", 6, 1, 1, 0, false}, /* fewer processors than ranks, unevenly */
    {"pack:1 numa:1 core:4 pu:1", 8, 2, 1, 0, false}, /* the same, with threads */
    {"pack:1 numa:1 core:4 pu:1", 2, 3, 1, 2, false}, /* fewer processors than threads */
    {"pack:2 numa:1 core:8 pu:2", 4, 4, 2, 4, true},
    {"pack:2 numa:1 core:8 pu:1", 1, 16, 1, 16, true},
    {"pack:2 numa:2 core:6 pu:1", 4, 6, 4, 6, true},
    {"pack:2 numa:1 core:12 pu:1", 8, 3, 4, 3, true},
    {"pack:4 numa:1 core:4 pu:1", 2, 8, 1, 8, true}, /* two sockets per rank */
    {"pack:8 numa:4 core:16 pu:2", 64, 8, 8, 8, true},
};

static void every_rank_has_its_share(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *x = &rows[i];
        const size_t n = bt_hardware_threads(places, x->machine);
        cpu_set_t all, mine, both;
        if (without_hwloc(n)) return;
        CPU_ZERO(&all);
        for (int r = 0; r < x->ranks; r++) {
            const bt_binding_job job = {x->ranks, r, x->threads, x->group};
            assert_int_equal(bt_cpus_of_rank(places, n, &job, &mine), x->bound);
            assert_int_equal(CPU_COUNT(&mine), x->cpus);
            CPU_AND(&both, &all, &mine);
            assert_int_equal(CPU_COUNT(&both), 0);
            CPU_OR(&all, &all, &mine);
        }
    }
}

/* k times as many ranks as hardware threads: k ranks on each, neighbouring ranks on different ones. */
static void ranks_beyond_them_share_evenly(void **state) {
    (void)state;
    const size_t n = bt_hardware_threads(places, "pack:2 numa:1 core:2 pu:2");
    cpu_set_t mine;
    if (without_hwloc(n)) return;
    assert_int_equal(n, 8);
    for (int r = 0; r < 24; r++) {
        const bt_binding_job job = {24, r, 1, 2};
        assert_true(bt_cpus_of_rank(places, n, &job, &mine));
        assert_int_equal(CPU_COUNT(&mine), 1);
        assert_true(CPU_ISSET((size_t)places[r % 8].cpu, &mine));
    }
}

/* For every machine and job whose numbers divide: a rank in one domain, a group in one socket, a core per thread. */
static void ranks_are_within_one_domain(void **state) {
    (void)state;
    static const char *const machines[] = {"pack:2 numa:1 core:6 pu:2", "pack:2 numa:2 core:6 pu:1",
                                           "pack:1 numa:4 core:3 pu:2",
                                           "pack:4 numa:1 core:3 pu:1"};
    int seen = 0;
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        const size_t n = bt_hardware_threads(places, machines[m]);
        cpu_set_t mine, group;
        if (without_hwloc(n)) return;
        const int domains = places[n - 1].domain + 1, cores = places[n - 1].core + 1,
                  sockets = places[n - 1].package + 1;
        for (int ranks = domains; ranks <= cores; ranks++) {
            for (int g = 1; g <= ranks; g *= 2) {
                CPU_ZERO(&group);
                for (int r = 0; r < ranks; r++) {
                    const bt_binding_job job = {ranks, r, 1, g};
                    assert_true(bt_cpus_of_rank(places, n, &job, &mine));
                    if (g == 1) assert_int_equal(parts_of(n, &mine, DOMAIN), 1);
                    assert_int_equal(parts_of(n, &mine, CORE), CPU_COUNT(&mine));
                    if (r % g == 0) CPU_ZERO(&group);
                    CPU_OR(&group, &group, &mine);
                    /* Groups too large for a socket are split. */
                    const int groups = ranks / g, most = (groups + sockets - 1) / sockets;
                    if (r % g != g - 1 || ranks % g || groups < sockets) continue;
                    if (most * g > cores / sockets) continue;
                    assert_int_equal(parts_of(n, &group, PACKAGE), 1);
                    seen++;
                }
            }
        }
    }
    assert_true(seen > 100);
}

/* Another job uses half of one socket: the ranks divide the other processors, and no core has two ranks. */
static void free_processors_are_shared(void **state) {
    (void)state;
    size_t n = bt_hardware_threads(places, "pack:2 numa:1 core:8 pu:1");
    cpu_set_t all, mine, both;
    if (without_hwloc(n)) return;
    memmove(places, places + 5, (n -= 5) * sizeof *places); /* 3 and 8 cores remain */
    for (int ranks = 2; ranks <= 11; ranks++) {
        CPU_ZERO(&all);
        for (int r = 0; r < ranks; r++) {
            const bt_binding_job job = {ranks, r, 1, 1};
            assert_true(bt_cpus_of_rank(places, n, &job, &mine));
            CPU_AND(&both, &all, &mine);
            assert_int_equal(CPU_COUNT(&both), 0);
            CPU_OR(&all, &all, &mine);
            if (ranks == 2) assert_int_equal(CPU_COUNT(&mine), r ? 8 : 3); /* one socket each */
        }
        if (ranks == 11) assert_int_equal(CPU_COUNT(&all), 11);
    }
}

/* Returns the processors of a child that was bound as a rank. */
static void bound_as(const bt_binding_job *job, const cpu_set_t *first, cpu_set_t *after) {
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        bool ok = sched_setaffinity(0, sizeof *first, first) == 0 && bt_bind_rank(job) &&
                  sched_getaffinity(0, sizeof *after, after) == 0;
        _exit(ok && write(ends[1], after, sizeof *after) == (ssize_t)sizeof *after ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], after, sizeof *after), sizeof *after);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* A rank takes its share of the available processors; a single rank, or a rank that is already bound to at most its
 * share, is left unchanged. */
static void a_rank_is_bound_to_its_share(void **state) {
    (void)state;
    cpu_set_t all, half, mine, after;
    const size_t n = bt_hardware_threads(places, NULL);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (without_hwloc(n)) return;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    bound_as(&(bt_binding_job){1, 0, 1, 1}, &all, &after);
    assert_true(CPU_EQUAL(&after, &all));
    if (n < 2 || (long)n * 2 <= online) return;
    for (int r = 0; r < 2; r++) {
        const bt_binding_job job = {2, r, 1, 1};
        assert_true(bt_cpus_of_rank(places, n, &job, &mine));
        bound_as(&job, &all, &after);
        assert_true(CPU_EQUAL(&after, &mine) && CPU_COUNT(&after) < CPU_COUNT(&all));
        CPU_ZERO(&half);
        for (long i = 0; i < online / 2; i++) CPU_SET((size_t)places[i].cpu, &half);
        bound_as(&job, &half, &after);
        assert_true(CPU_EQUAL(&after, &half));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_are_read),
        cmocka_unit_test(this_machine_consists_of_the_permitted_processors),
        cmocka_unit_test(every_rank_has_its_share),
        cmocka_unit_test(ranks_beyond_them_share_evenly),
        cmocka_unit_test(ranks_are_within_one_domain),
        cmocka_unit_test(free_processors_are_shared),
        cmocka_unit_test(a_rank_is_bound_to_its_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
