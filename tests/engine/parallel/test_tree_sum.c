/* The tree sum has the same bits for every division of the units over ranks; shards cover the array once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/grad/tree_sum.h"
#include "engine/parallel/shard/shard_map.h"

enum { N = 37, MAX_UNITS = 24 };

static float leaves[MAX_UNITS][N];

static void add_leaf(float *into, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) into[i] += x[i];
}

/* Computes the definition in tree_sum.h. */
static void sum_by_definition(float *out, int64_t first, int64_t width, int64_t units) {
    if (width == 1) {
        memcpy(out, leaves[first], sizeof leaves[0]);
        return;
    }
    sum_by_definition(out, first, width / 2, units);
    if (first + width / 2 >= units) return;
    float right[N];
    sum_by_definition(right, first + width / 2, width / 2, units);
    add_leaf(out, right, N);
}

static void any_cut_gives_the_same_bits(void **state) {
    (void)state;
    for (int u = 0; u < MAX_UNITS; u++) bt_rng_normal(leaves[u], N, 0, 1, 7, (uint64_t)u);
    for (int64_t units = 1; units <= MAX_UNITS; units++) {
        float want[N];
        int64_t width = 1;
        while (width < units) width *= 2;
        sum_by_definition(want, 0, width, units);
        for (int64_t ranks = 1; ranks <= units && ranks <= 9; ranks++) {
            static float work[MAX_UNITS][N];
            memcpy(work, leaves, sizeof work);
            bt_tree_sum all = {.n = 0};
            /* Each rank adds its own units; then its nodes are combined with those of the other ranks. */
            for (int64_t r = 0; r < ranks; r++) {
                bt_tree_sum mine = {.n = 0};
                int64_t a = units * r / ranks, b = units * (r + 1) / ranks;
                for (int64_t u = a; u < b; u++)
                    bt_tree_sum_push(&mine, (bt_node){u, 0, work[u]}, u == b - 1 ? work[u] : NULL,
                                     N, add_leaf);
                bt_tree_sum shape = bt_tree_sum_shape(a, b - a);
                assert_int_equal(shape.n, mine.n);
                for (size_t i = 0; i < mine.n; i++) {
                    assert_int_equal(shape.at[i].index, mine.at[i].index);
                    assert_int_equal(shape.at[i].level, mine.at[i].level);
                    bt_tree_sum_push(&all, mine.at[i], NULL, N, add_leaf);
                }
            }
            assert_memory_equal(bt_tree_sum_root(&all, NULL, N, add_leaf), want, sizeof want);
        }
    }
}

static void the_kept_array_receives_the_sum(void **state) {
    (void)state;
    static float work[7][N];
    memcpy(work, leaves, sizeof work);
    bt_tree_sum f = {.n = 0};
    for (int u = 0; u < 7; u++)
        bt_tree_sum_push(&f, (bt_node){u, 0, work[u]}, work[6], N, add_leaf);
    assert_ptr_equal(bt_tree_sum_root(&f, work[6], N, add_leaf), work[6]);
    f.n = 0;
    assert_null(bt_tree_sum_root(&f, NULL, N, add_leaf));
}

static void shards_cover_the_array_once(void **state) {
    (void)state;
    static const size_t totals[] = {1, 4095, 4096, 100000, 1234567, 27811328};
    for (size_t i = 0; i < 12; i++)
        for (int R = 1; R <= 4; R++)
            for (int S = 1; S <= 20; S++) {
                bt_shards s;
                size_t total = totals[i / 2];
                bt_shards_init(&s, total, i % 2 ? 64 * 1024 : 4 << 20, R, S);
                if (S > 1 && S <= 4 && i == 10) assert_false(bt_shards_ragged(&s));
                size_t at = 0, elems = 0;
                for (size_t k = 0; k < s.n_stripes; k++) {
                    assert_int_equal(at, k * s.stripe);
                    for (int d = 0; d < S; d++) {
                        bt_range p = bt_shards_piece(&s, k, d);
                        assert_int_equal(p.begin, at);
                        assert_true(p.begin % BT_SUM_BLOCK == 0 || p.begin == total);
                        at = p.end;
                    }
                    assert_int_equal(at, bt_min_size((k + 1) * s.stripe, total));
                }
                assert_int_equal(at, total);
                for (int d = 0; d < S; d++) elems += bt_shards_elems(&s, d);
                assert_int_equal(elems, total);
                if (S == 1)
                    assert_int_equal(s.n_stripes, 1);
                else
                    assert_int_equal(s.piece % ((size_t)BT_SUM_BLOCK * (size_t)R), 0);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cut_gives_the_same_bits),
        cmocka_unit_test(the_kept_array_receives_the_sum),
        cmocka_unit_test(shards_cover_the_array_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
