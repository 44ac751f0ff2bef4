/* test_memory_ring.c - the rank that keeps a copy of each rank's part, for every distribution of up to seven ranks over
 * up to seven hosts, compared with a plain search. A host has the number of its lowest rank, as in bt_comm_host; its
 * ranks need not be consecutive. */
#include "engine/ckpt/memory/memory_ring.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/parallel/mpi/comm.h"

enum { MOST = 7 };
static int host[MOST], size;

/* Replaces the function that uses MPI. */
int bt_comm_host(int rank) {
    assert_in_range(rank, 0, size - 1);
    return host[rank];
}

static int ranks_of(int h, int out[MOST]) {
    int n = 0;
    for (int r = 0; r < size; r++)
        if (host[r] == h) out[n++] = r;
    return n;
}

/* Lists the numbers of all hosts in ascending order. */
static int list_hosts(int out[MOST]) {
    int n = 0;
    for (int r = 0; r < size; r++)
        if (host[r] == r) out[n++] = r;
    return n;
}

static void hosts_follow_one_another(const int *all, int n) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(bt_memory_neighbour(all[i], 1, size), all[(i + 1) % n]);
        assert_int_equal(bt_memory_neighbour(all[i], -1, size), all[(i + n - 1) % n]);
    }
}

/* The k-th rank of a host sends its part to the k-th rank of the next host, modulo the number of ranks there. */
static void parts_go_to_the_next_host(const int *all, int n) {
    int kept[MOST] = {0};
    for (int i = 0; i < n; i++) {
        int from[MOST], to[MOST];
        const int n_from = ranks_of(all[i], from), n_to = ranks_of(all[(i + 1) % n], to);
        for (int k = 0; k < n_from; k++) {
            const int keeper = i == 0 ? -1 : to[k % n_to];
            assert_int_equal(bt_memory_keeper(from[k], size), keeper);
            if (keeper >= 0) kept[keeper]++;
        }
    }
    for (int r = 0; r < size; r++) assert_int_equal(bt_memory_kept(r, size), kept[r]);
}

/* Enumerates the layouts in which rank `at` and each later rank share a host with an earlier rank or have a new one. */
static void all_layouts(int at) {
    int all[MOST];
    if (at == size) {
        const int n = list_hosts(all);
        hosts_follow_one_another(all, n);
        parts_go_to_the_next_host(all, n);
        return;
    }
    for (int h = 0; h <= at; h++)
        if (h == at || host[h] == h) {
            host[at] = h;
            all_layouts(at + 1);
        }
}

static void parts_are_kept_by_the_next_host(void **state) {
    (void)state;
    for (size = 1; size <= MOST; size++) all_layouts(0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_kept_by_the_next_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
