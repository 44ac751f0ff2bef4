/* Mesh of ranks: the formula of mesh.h in both directions over many shapes; error messages contain the numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/parallel/mpi/mesh.h"

enum { MAX_RANKS = 4096 };

static void every_rank_is_unique_and_follows_the_formula(void **state) {
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 8};
    int shapes = 0;
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++)
            for (size_t c = 0; c < 6; c++)
                for (size_t d = 0; d < 6; d++) {
                    bt_mesh_shape s = {.pp = sizes[a],
                                       .dp_replicate = sizes[b],
                                       .dp_shard = sizes[c],
                                       .tp = sizes[d]};
                    int P = s.pp, R = s.dp_replicate, S = s.dp_shard, T = s.tp, expect = 0;
                    static bool dp_seen[MAX_RANKS];
                    memset(dp_seen, 0, sizeof dp_seen);
                    for (int p = 0; p < P; p++)
                        for (int r = 0; r < R; r++)
                            for (int sh = 0; sh < S; sh++)
                                for (int t = 0; t < T; t++, expect++) {
                                    int rank = ((p * R + r) * S + sh) * T + t;
                                    /* Row-major with tp fastest: every rank occurs once, in order. */
                                    assert_int_equal(rank, expect);
                                    bt_mesh_coord me = bt_mesh_coord_of(&s, rank);
                                    assert_int_equal(me.pp, p);
                                    assert_int_equal(me.dp_replicate, r);
                                    assert_int_equal(me.dp_shard, sh);
                                    assert_int_equal(me.tp, t);
                                    assert_int_equal(me.dp, r * S + sh);
                                    assert_int_equal(bt_mesh_rank_of(&s, &me), rank);
                                    if (p == 0 && t == 0) {
                                        assert_false(dp_seen[me.dp]);
                                        dp_seen[me.dp] = true;
                                    }
                                }
                    assert_int_equal(expect, P * R * S * T);
                    for (int i = 0; i < R * S; i++) assert_true(dp_seen[i]);
                    shapes++;
                }
    assert_int_equal(shapes, 1296);
}

static void remaining_ranks_become_replicas(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_mesh_shape s = {.pp = 2, .dp_replicate = 0, .dp_shard = 2, .tp = 4};
    assert_int_equal(bt_mesh_resolve(&s, 48, &err), BT_OK);
    assert_int_equal(s.dp_replicate, 3);
}

static void a_shape_that_does_not_fit_names_its_numbers(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_mesh_shape s = {.pp = 1, .dp_replicate = 0, .dp_shard = 3, .tp = 2};
    assert_int_equal(bt_mesh_resolve(&s, 8, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "dp_shard 3"));
    assert_non_null(strstr(err.msg, "6 or 12 ranks"));
    s = (bt_mesh_shape){.pp = 1, .dp_replicate = 2, .dp_shard = 1, .tp = 1};
    assert_int_equal(bt_mesh_resolve(&s, 4, &err), BT_ARG);
    assert_non_null(
        strstr(err.msg, "= 2 ranks, but the job has 4 (use 2 ranks, or --dp-replicate 4)"));
    s = (bt_mesh_shape){.pp = 1, .dp_replicate = 2, .dp_shard = 1, .tp = 3};
    assert_int_equal(bt_mesh_resolve(&s, 4, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "= 6 ranks, but the job has 4 (use 6 ranks)"));
}

static void an_axis_has_at_least_one_rank(void **state) {
    (void)state;
    for (int axis = 0; axis < 4; axis++)
        for (int n = -2; n <= 1; n++) {
            bt_err err = BT_ERR_INIT;
            bt_mesh_shape s = {1, 1, 1, 1};
            int *const sizes[] = {&s.pp, &s.dp_shard, &s.tp, &s.dp_replicate};
            *sizes[axis] = n;
            /* 0 replicas: as many as fit */
            const bool good = n == 1 || (axis == 3 && n == 0);
            assert_int_equal(bt_mesh_resolve(&s, 1, &err), good ? BT_OK : BT_ARG);
            if (!good)
                assert_non_null(strstr(err.msg, "every axis of the mesh must be at least 1"));
        }
    for (int ranks = -1; ranks <= 0; ranks++) {
        bt_err err = BT_ERR_INIT;
        bt_mesh_shape s = {1, 0, 1, 1};
        assert_int_equal(bt_mesh_resolve(&s, ranks, &err), BT_ARG);
        assert_non_null(strstr(err.msg, "needs at least one rank"));
    }
}

static void one_process_makes_a_mesh_without_mpi(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_mesh m;
    bt_mesh_shape s = {1, 0, 1, 1};
    assert_int_equal(bt_comm_init(&err), BT_OK);
    assert_int_equal(bt_mesh_resolve(&s, bt_comm_size(bt_comm_world()), &err), BT_OK);
    assert_int_equal(bt_mesh_create(&m, &s, bt_comm_world(), &err), BT_OK);
    float x = 3;
    assert_int_equal(bt_all_reduce_f32(m.dp, &x, 1, BT_SUM, &err), BT_OK);
    assert_true(x == 3.0f);
    assert_int_equal(bt_comm_bytes_logical(), 0);
    bt_mesh_release(&m);
    bt_comm_finalize();
}

/* A mesh of 2 replicas of 2 shards with 2 tensor-parallel ranks each; the first host has the given number of ranks. */
static void ranks_with_equal_state(void **state) {
    (void)state;
    const bt_mesh_shape s = {.pp = 1, .dp_replicate = 2, .dp_shard = 2, .tp = 2};
    static const struct {
        const char *hosts;
        int rank;
        bool sharded, first_host;
        int n, which;
    } rows[] = {{"8", 6, false, false, 4, 3}, {"8", 6, true, false, 2, 1},
                {"8", 6, true, true, 2, 1},   {"3", 0, false, true, 2, 0},
                {"3", 2, false, true, 2, 1},  {"3", 1, false, true, 1, 0},
                {"3", 6, false, true, 2, -1}, {"3", 6, true, true, 1, -1},
                {"2", 3, true, true, 0, -1},  {"3", 6, true, false, 2, 1},
                {"3", 7, false, false, 4, 3}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int which = -9;
        const bt_mesh_coord me = bt_mesh_coord_of(&s, rows[i].rank);
        assert_int_equal(setenv("BITRAIN_TEST_HOSTS", rows[i].hosts, 1), 0);
        assert_int_equal(bt_mesh_sharers(&s, &me, rows[i].sharded, rows[i].first_host, &which),
                         rows[i].n);
        assert_int_equal(which, rows[i].which);
    }
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
}

/* A mesh of 2 replicas of 2 shards with 2 tensor-parallel ranks each. */
static void state_on_the_first_host(void **state) {
    (void)state;
    const bt_mesh_shape s = {.pp = 1, .dp_replicate = 2, .dp_shard = 2, .tp = 2},
                        stages = {.pp = 2, .dp_replicate = 2, .dp_shard = 1, .tp = 1},
                        shards = {.pp = 1, .dp_replicate = 1, .dp_shard = 2, .tp = 1};
    static const struct {
        const char *hosts;
        bool pipeline, sharded, all;
    } rows[] = {{"8", false, true, true},  {"4", false, true, true},  {"3", false, true, false},
                {"2", false, true, false}, {"2", false, false, true}, {"1", false, false, false},
                {"4", true, false, true},  {"3", true, false, true},  {"2", true, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(setenv("BITRAIN_TEST_HOSTS", rows[i].hosts, 1), 0);
        assert_int_equal(bt_mesh_first_host_has_all(rows[i].pipeline ? &stages : &s,
                                                    rows[i].sharded),
                         rows[i].all);
    }
    for (int on_first = 1; on_first <= 2; on_first++) {
        assert_int_equal(setenv("BITRAIN_TEST_HOSTS", on_first == 2 ? "2" : "1", 1), 0);
        assert_int_equal(bt_mesh_first_host_has_all(&shards, true), on_first == 2);
    }
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
}

/* The plan of a job that has not been started. */
static void expected_hosts_are_used_before_the_start(void **state) {
    (void)state;
    static const int slots[] = {3, 1, 2};
    assert_int_equal(bt_comm_host(5), 0);
    bt_comm_expect_hosts(slots, 3);
    assert_int_equal(bt_comm_host(2), 0);
    assert_int_equal(bt_comm_host(3), 3);
    assert_int_equal(bt_comm_host(4), 4);
    assert_int_equal(bt_comm_host(5), 4);
    assert_int_equal(bt_comm_host(9), 4); /* There are more ranks than slots. */
    bt_comm_expect_hosts(NULL, 0);
    assert_int_equal(bt_comm_host(5), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_is_unique_and_follows_the_formula),
        cmocka_unit_test(remaining_ranks_become_replicas),
        cmocka_unit_test(a_shape_that_does_not_fit_names_its_numbers),
        cmocka_unit_test(an_axis_has_at_least_one_rank),
        cmocka_unit_test(ranks_with_equal_state),
        cmocka_unit_test(state_on_the_first_host),
        cmocka_unit_test(expected_hosts_are_used_before_the_start),
        cmocka_unit_test(one_process_makes_a_mesh_without_mpi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
