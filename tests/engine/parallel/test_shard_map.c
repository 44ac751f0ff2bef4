/* test_shard_map.c - stripes and pieces of ZeRO shards: some sizes computed by hand, and for many sizes the guarantees
 * of shard_map.h: pieces are consecutive and disjoint, begin at blocks of sums, and in large models at huge pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/arena.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/shard/shard_map.h"

enum { B = BT_SUM_BLOCK, PAGE = BT_ARENA_PAGE / sizeof(float) }; /* elements */

static void sizes_equal_those_computed_by_hand(void **state) {
    (void)state;
    static const struct {
        size_t total, stripe_bytes;
        int replicate, shard;
        size_t stripe, piece, n_stripes;
    } rows[] = {
        {0, 4 * B, 1, 4, 0, 0, 0},
        {0, 4 * B, 1, 1, 0, 0, 0},
        {12345, 4 * B, 1, 1, 12345, 12345, 1}, /* one piece with everything */
        {12345, 4 * B, 8, 1, 12345, 12345, 1},
        {1, 4 * B, 1, 4, 4 * B, B, 1},
        {4 * B, 4, 1, 4, 4 * B, B, 1},
        {4 * B + 1, 4, 1, 4, 4 * B, B, 2},
        {100 * B, 32 * B * sizeof(float), 1, 4, 28 * B, 7 * B, 4},
        {100 * B, 32 * B * sizeof(float), 2, 4, 32 * B, 8 * B, 4},
        {100 * B, 32 * B * sizeof(float), 3, 2, 30 * B, 15 * B, 4},
        {8 * PAGE, 2 * BT_ARENA_PAGE, 1, 2, 2 * PAGE, PAGE, 4},
        {8 * PAGE, BT_ARENA_PAGE, 1, 2, 2 * PAGE, PAGE, 4},
        {8 * PAGE, BT_ARENA_PAGE - 1, 1, 2, 114 * B, 57 * B, 9}, /* stripes too short for pages */
        {8 * PAGE - 2, BT_ARENA_PAGE, 1, 2, PAGE, PAGE / 2, 8},  /* too few stripes */
        {64 * PAGE, 16 * BT_ARENA_PAGE, 1, 16, 16 * PAGE, PAGE, 4},
        {68 * PAGE, BT_ARENA_PAGE, 1, 17, 136 * B, 8 * B, 64}, /* too many shards for pages */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_shards s;
        bt_shards_init(&s, rows[i].total, rows[i].stripe_bytes, rows[i].replicate, rows[i].shard);
        if (s.stripe != rows[i].stripe || s.piece != rows[i].piece ||
            s.n_stripes != rows[i].n_stripes)
            fail_msg("row %zu: %zu stripes of %zu blocks, pieces of %zu", i, s.n_stripes,
                     s.stripe / B, s.piece / B);
    }
}

static void pieces_are_complete_and_disjoint(void **state) {
    (void)state;
    static const size_t totals[] = {1,
                                    B - 1,
                                    B,
                                    B + 1,
                                    7 * B + 5,
                                    100 * B,
                                    4 * PAGE,
                                    64 * PAGE + 3,
                                    96 * PAGE - 1,
                                    200 * PAGE + B};
    static const size_t bytes[] = {1, 5 * B, BT_ARENA_PAGE - 4, BT_ARENA_PAGE, 10 * BT_ARENA_PAGE};
    for (size_t t = 0; t < sizeof totals / sizeof *totals; t++)
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
            for (int replicate = 1; replicate <= 3; replicate++)
                for (int shard = 1; shard <= 20; shard++) {
                    bt_shards s;
                    size_t at = 0, each[20] = {0};
                    bt_shards_init(&s, totals[t], bytes[k], replicate, shard);
                    assert_int_equal(s.n, shard);
                    assert_int_equal(s.total, totals[t]);
                    for (size_t i = 0; i < s.n_stripes; i++)
                        for (int d = 0; d < shard; d++) {
                            const bt_range r = bt_shards_piece(&s, i, d);
                            assert_true(r.begin == at && r.end >= r.begin);
                            at = r.end;
                            each[d] += r.end - r.begin;
                        }
                    assert_int_equal(at, totals[t]);
                    for (int d = 0; d < shard; d++)
                        assert_int_equal(bt_shards_elems(&s, d), each[d]);
                    if (shard == 1) continue;
                    assert_int_equal(s.piece % ((size_t)B * (size_t)replicate), 0);
                    /* The last stripe is not empty, and stripes are aligned to pages if they are long enough. */
                    assert_true((s.n_stripes - 1) * s.stripe < totals[t]);
                    assert_int_equal(bt_shards_ragged(&s), s.piece % PAGE != 0);
                    if (bytes[k] >= BT_ARENA_PAGE && shard <= 16 &&
                        totals[t] >= 4 * (size_t)PAGE * (size_t)shard)
                        assert_false(bt_shards_ragged(&s));
                }
}

static void stripes_of_a_range_overlap_it(void **state) {
    (void)state;
    bt_shards s;
    bt_shards_init(&s, 1000003, 1 << 16, 1, 4);
    assert_true(s.n_stripes > 8);
    const bt_range ranges[] = {{0, 1},
                               {0, s.total},
                               {s.stripe - 1, s.stripe},
                               {s.stripe, s.stripe + 1},
                               {s.stripe - 1, 3 * s.stripe + 1},
                               {s.total - 1, s.total}};
    for (size_t k = 0; k < sizeof ranges / sizeof *ranges; k++) {
        const bt_range found = bt_shards_stripes(&s, ranges[k]);
        for (size_t i = 0; i < s.n_stripes; i++) {
            bool meets = false;
            for (int shard = 0; shard < s.n; shard++) {
                const bt_range r = bt_shards_piece(&s, i, shard);
                meets |= r.begin < ranges[k].end && ranges[k].begin < r.end;
            }
            assert_int_equal(meets, i >= found.begin && i < found.end);
        }
    }
    bt_shards_init(&s, 0, 1 << 16, 1, 4);
    assert_int_equal(bt_shards_stripes(&s, (bt_range){0, 0}).end, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stripes_of_a_range_overlap_it),
                                       cmocka_unit_test(sizes_equal_those_computed_by_hand),
                                       cmocka_unit_test(pieces_are_complete_and_disjoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
