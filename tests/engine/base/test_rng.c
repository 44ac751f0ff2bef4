/* Counter-based random numbers: known values (computed with numpy by make_golden.py), slices that equal the whole,
 * moments, permutations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"

static void first_numbers_are_known(void **state) {
    (void)state;
    assert_true(bt_splitmix64(0) == 0xe220a8397b1dcdafu);
    assert_true(bt_rng_u64(1, 2, 0) == 0xe68e6fc01df08360u);
    assert_true(bt_rng_u64(1, 2, 12345678901u) == 0x11cd44c47f22abddu);
    assert_true(bt_hash_name("layers.0.attn_q") == 0x86f58805fee7db56u);
    const float want[] = {-0x1.44d594p-7f, 0x1.9541eep-14f, -0x1.3fc922p-6f,
                          0x1.6ca1d4p-6f,  -0x1.ba96c8p-7f, 0x1.46d5d8p-7f};
    float got[6];
    bt_rng_normal(got, 6, 0, 0.02f, 1, bt_hash_name("embed"));
    /* libm may differ in the last bit. */
    for (int i = 0; i < 6; i++) assert_true(fabsf(got[i] - want[i]) <= 2e-9f);
}

static void any_slice_equals_the_slice_of_the_whole(void **state) {
    (void)state;
    float whole[101], part[101];
    bt_rng_normal(whole, 101, 0, 1.0f, 3, 4);
    for (size_t first = 0; first < 101; first += 7) {
        for (size_t n = 0; first + n <= 101; n += 5) {
            bt_rng_normal(part, n, first, 1.0f, 3, 4);
            assert_memory_equal(part, whole + first, n * sizeof *part);
        }
    }
}

/* The vectorized polynomials give the same floats as libm. */
static void normals_are_those_of_libm(void **state) {
    (void)state;
    enum { N = 1 << 21 };
    float *got = malloc(N * sizeof *got);
    assert_non_null(got);
    for (uint64_t stream = 1; stream < 3; stream++) {
        const float sigma = stream == 1 ? 0.02f : 1.0f;
        bt_rng_normal(got, N, 0, sigma, 11, stream);
        size_t differing = 0;
        for (size_t i = 0; i < N; i += 2) {
            double u = bt_rng_unit(11, stream, i), v = bt_rng_unit(11, stream, i + 1);
            double r = sqrt(-2.0 * log(1.0 - u)), a = 6.283185307179586 * v;
            differing += got[i] != (float)(r * cos(a) * (double)sigma);
            differing += got[i + 1] != (float)(r * sin(a) * (double)sigma);
        }
        assert_int_equal(differing, 0);
    }
    free(got);
}

static void moments_of_the_distributions(void **state) {
    (void)state;
    enum { N = 200000 };
    float *x = malloc(N * sizeof *x);
    assert_non_null(x);
    bt_rng_normal(x, N, 1000001, 2.0f, 9, 9);
    double mean = 0, square = 0, fourth = 0, mixed = 0, unit = 0;
    for (size_t i = 0; i < N; i++) {
        double v = (double)x[i] / 2;
        mean += v / N;
        square += v * v / N;
        fourth += v * v * v * v / N;
        if (i > 0) mixed += v * (double)x[i - 1] / 2 / N;
        double u = bt_rng_unit(5, 6, i);
        assert_true(u >= 0 && u < 1);
        unit += u / N;
    }
    free(x);
    assert_true(fabs(mean) < 0.012); /* The tolerances are five standard errors. */
    assert_true(fabs(square - 1) < 0.016);
    assert_true(fabs(fourth - 3) < 0.11);
    assert_true(fabs(mixed) < 0.012);
    assert_true(fabs(unit - 0.5) < 0.0033);
}

static void permutations_visit_everything_once(void **state) {
    (void)state;
    const uint64_t sizes[] = {1, 2, 3, 7, 64, 65, 1000, 4097};
    unsigned char seen[4097];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (uint64_t key = 1; key < 4; key++) {
            uint64_t moved = 0;
            memset(seen, 0, sizeof seen);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                uint64_t at = bt_rng_permute(i, sizes[s], key);
                assert_true(at < sizes[s] && !seen[at]);
                seen[at] = 1;
                moved += at != i;
            }
            if (sizes[s] >= 64) assert_true(moved > sizes[s] * 9 / 10);
        }
    }
    assert_int_not_equal(bt_rng_permute(5, 1000, 1), bt_rng_permute(5, 1000, 2));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_numbers_are_known),
        cmocka_unit_test(any_slice_equals_the_slice_of_the_whole),
        cmocka_unit_test(normals_are_those_of_libm),
        cmocka_unit_test(moments_of_the_distributions),
        cmocka_unit_test(permutations_visit_everything_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
