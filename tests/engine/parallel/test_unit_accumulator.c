/* test_unit_accumulator.c - the units of a rank, whose gradients are computed one after the other in one array, are
 * accumulated to the sums of the fixed addition tree, for any first unit and any order of the last unit's ranges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/unit_accumulator.h"
#include "engine/parallel/grad/unit_rounding.h"

enum { N = 41, MOST_UNITS = 13, MOST_FIRST = 9 };

/* leaves: of the trees; given: gradients of units, which differ from their leaves if units are rounded */
static float leaves[MOST_FIRST + MOST_UNITS][N], given[MOST_FIRST + MOST_UNITS][N];

/* Computes a node of the tree in tree_sum.h whose units are all present. */
static void node_by_definition(float out[N], int64_t index, int level) {
    if (level == 0) {
        memcpy(out, leaves[index], sizeof leaves[0]);
        return;
    }
    float right[N];
    node_by_definition(out, 2 * index, level - 1);
    node_by_definition(right, 2 * index + 1, level - 1);
    for (int i = 0; i < N; i++) out[i] += right[i];
}

static void is_zero(const float *x) {
    for (int i = 0; i < N; i++) assert_true(x[i] == 0);
}

/* Adds a unit's gradients to their destination, as a backward pass does; the destination must be zero before. */
static void add_gradients(float *into, int64_t unit, bt_range r) {
    for (size_t i = r.begin; i < r.end; i++) into[i] += given[unit][i];
}

static void nodes_are_the_trees(const bt_unit_accumulator *p, const float *grads, int64_t first,
                                int64_t count) {
    const bt_tree_sum got = bt_accumulator_nodes(p), shape = bt_tree_sum_shape(first, count);
    assert_int_equal(got.n, shape.n);
    for (size_t k = 0; k < got.n; k++) {
        float want[N];
        assert_int_equal(got.at[k].index, shape.at[k].index);
        assert_int_equal(got.at[k].level, shape.at[k].level);
        node_by_definition(want, got.at[k].index, got.at[k].level);
        assert_memory_equal(got.at[k].x, want, sizeof want);
        for (size_t m = 0; m < k; m++) assert_ptr_not_equal(got.at[k].x, got.at[m].x);
    }
    assert_ptr_equal(got.at[got.n - 1].x, grads);
}

static void accumulate_step(bt_unit_accumulator *p, float grads[N], int64_t first, int64_t count) {
    bt_accumulator_begin(p);
    memset(grads, 0, N * sizeof *grads);
    for (int64_t u = 0; u + 1 < count; u++) {
        float *at = bt_accumulator_unit(p, 0);
        is_zero(at);
        add_gradients(at, first + u, (bt_range){0, N});
        bt_accumulator_unit_done(p, 0);
        is_zero(grads);
    }
    assert_ptr_equal(bt_accumulator_unit(p, 0), grads);
    static const bt_range ranges[] = {{30, N}, {7, 30}, {7, 7}, {0, 7}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        add_gradients(grads, first + count - 1, ranges[i]);
        bt_accumulator_range(p, ranges[i]);
    }
    nodes_are_the_trees(p, grads, first, count);
}

/* Makes the rounding of one tensor in one group with the quantum 1/16. */
static void make_rounding(bt_unit_rounding *r) {
    bt_err err = BT_ERR_INIT;
    bt_rounding_tensor *t = calloc(1, sizeof *t);
    assert_non_null(t);
    *t = (bt_rounding_tensor){.rows = 1, .cols = N, .whole_rows = 1, .name = 7};
    assert_int_equal(bt_rounding_create(r, t, 1, 1, 42, &err), BT_OK);
    r->exponents[0] = -4;
    bt_rounding_begin(r, 3, 1);
}

/* r: rounds the units before they enter the tree; may be NULL */
static void make_leaves(bt_unit_rounding *r) {
    for (int u = 0; u < MOST_FIRST + MOST_UNITS; u++) {
        bt_rng_normal(given[u], N, 0, 1, 11, (uint64_t)u);
        memcpy(leaves[u], given[u], sizeof leaves[u]);
        if (r) bt_rounding_range(r, leaves[u], (bt_range){0, N}, u);
    }
}

static void units_leave_the_sums_of_the_tree(void **state) {
    (void)state;
    float grads[N];
    bt_err err = BT_ERR_INIT;
    make_leaves(NULL);
    for (int64_t first = 0; first < MOST_FIRST; first++) {
        for (int64_t count = 1; count <= MOST_UNITS; count++) {
            bt_unit_accumulator *p;
            const bt_accumulator_cfg cfg = {
                .grads = grads, .n = N, .first_unit = first, .n_units = count};
            assert_int_equal(bt_accumulator_create(&p, &cfg, &err), BT_OK);
            accumulate_step(p, grads, first, count);
            accumulate_step(p, grads, first, count); /* No state remains for the next step. */
            bt_accumulator_destroy(p);
        }
    }
    bt_accumulator_destroy(NULL);
}

/* Each unit is rounded once, separately, before it is added. */
static void units_are_rounded_before_they_are_added(void **state) {
    (void)state;
    float grads[N];
    bt_err err = BT_ERR_INIT;
    bt_unit_rounding r;
    make_rounding(&r);
    make_leaves(&r);
    assert_memory_not_equal(leaves, given, sizeof leaves);
    for (int64_t first = 0; first < MOST_FIRST; first++) {
        for (int64_t count = 1; count <= MOST_UNITS; count++) {
            bt_unit_accumulator *p;
            const bt_accumulator_cfg cfg = {
                .grads = grads, .n = N, .first_unit = first, .n_units = count, .rounding = &r};
            assert_int_equal(bt_accumulator_create(&p, &cfg, &err), BT_OK);
            accumulate_step(p, grads, first, count);
            bt_accumulator_destroy(p);
        }
    }
    bt_rounding_release(&r);
    make_leaves(NULL);
}

/* If one of two lanes is some units behind the other, the sums are the same, in the same arrays. */
static void lanes_may_finish_at_different_times(void **state) {
    (void)state;
    static const bt_range lanes[] = {{0, 11}, {11, N}};
    float grads[N];
    bt_err err = BT_ERR_INIT;
    for (int64_t first = 0; first < MOST_FIRST; first++) {
        for (int64_t count = 1; count <= MOST_UNITS; count++) {
            const bt_accumulator_cfg cfg = {.grads = grads,
                                            .n = N,
                                            .first_unit = first,
                                            .n_units = count,
                                            .lanes = lanes,
                                            .n_lanes = 2};
            bt_unit_accumulator *p;
            assert_int_equal(bt_accumulator_create(&p, &cfg, &err), BT_OK);
            memset(grads, 0, sizeof grads);
            bt_accumulator_begin(p);
            for (int64_t u = 0; u < count + 2; u++) {
                for (int lane = 0; lane < 2; lane++) {
                    const int64_t at = lane == 1 ? u : u - 2;
                    if (at < 0 || at >= count) continue;
                    add_gradients(bt_accumulator_unit(p, lane), first + at, lanes[lane]);
                    if (at < count - 1) bt_accumulator_unit_done(p, lane);
                }
            }
            bt_accumulator_range(p, (bt_range){20, N});
            bt_accumulator_range(p, (bt_range){5, 20}); /* completes both lanes */
            bt_accumulator_range(p, (bt_range){0, 5});
            nodes_are_the_trees(p, grads, first, count);
            bt_accumulator_destroy(p);
        }
    }
}

/* There are as many arrays as nodes that wait at the same time; the first few numbers are counted by hand. */
static void memory_is_that_of_the_nodes_that_wait(void **state) {
    (void)state;
    static const struct {
        int64_t first, count;
        size_t arrays;
    } rows[] = {{0, 1, 0}, {0, 2, 1}, {0, 3, 1}, {0, 4, 2}, {0, 8, 3}, {1, 2, 1}, {1, 3, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(bt_accumulator_bytes(N, rows[i].first, rows[i].count),
                         rows[i].arrays * N * sizeof(float));
}

static int setup(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    return bt_kernels_select("auto", &err) != BT_OK || bt_threads_init(1, &err) != BT_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_leave_the_sums_of_the_tree),
        cmocka_unit_test(units_are_rounded_before_they_are_added),
        cmocka_unit_test(lanes_may_finish_at_different_times),
        cmocka_unit_test(memory_is_that_of_the_nodes_that_wait),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
