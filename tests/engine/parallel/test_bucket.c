/* Buckets of gradients cover the array once, from its end to its beginning; a bucket is ready only when all its
 * elements are finished. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/parallel/grad/bucket.h"

static const size_t totals[] = {0, 1, 15, 16, 17, 1000, 4096, 65537};
static const size_t bytes[] = {4, 64, 100, 4096, 1 << 20};

static void buckets_cover_the_array_once(void **state) {
    (void)state;
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 5; j++) {
            bt_buckets b;
            bt_buckets_init(&b, totals[i], bytes[j], 1);
            size_t end = totals[i];
            for (size_t k = 0; k < b.n; k++) {
                bt_range r = bt_bucket_at(&b, k);
                assert_int_equal(r.end, end);
                assert_true(r.begin < r.end);
                assert_true(r.end - r.begin == b.elems || k == 0);
                end = r.begin;
            }
            assert_int_equal(end, 0);
            assert_int_equal(b.elems % 16, 0);
            assert_true(b.elems * 4 <= bytes[j] || b.elems == 16);
        }
}

static void ready_means_wholly_finished(void **state) {
    (void)state;
    for (size_t i = 1; i < 8; i++)
        for (size_t piece = 1; piece < 3000; piece = piece * 3 + 1) {
            bt_buckets b;
            bt_buckets_init(&b, totals[i], 256, 2);
            for (int round = 0; round < 2; round++) {
                bt_buckets_reset(&b);
                assert_int_equal(bt_buckets_ready(&b), 0);
                for (size_t low = totals[i]; low > 0;) {
                    size_t begin = low > piece ? low - piece : 0;
                    bt_buckets_finished(&b, begin, low);
                    low = begin;
                    size_t ready = bt_buckets_ready(&b);
                    if (ready > 0) assert_true(bt_bucket_at(&b, ready - 1).begin >= low);
                    if (ready < b.n) assert_true(bt_bucket_at(&b, ready).begin < low);
                }
                assert_int_equal(bt_buckets_ready(&b), b.n);
            }
        }
}

static void gaps_between_tensors_are_padding(void **state) {
    (void)state;
    bt_buckets b;
    bt_buckets_init(&b, 64, 64, 1);  /* buckets of 16 */
    bt_buckets_finished(&b, 50, 60); /* Elements 60 to 64 are padding. */
    assert_int_equal(bt_buckets_ready(&b), 0);
    bt_buckets_finished(&b, 20, 40); /* includes elements 40 to 50 */
    assert_int_equal(bt_buckets_ready(&b), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_the_array_once),
        cmocka_unit_test(ready_means_wholly_finished),
        cmocka_unit_test(gaps_between_tensors_are_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
