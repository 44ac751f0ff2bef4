/* Exact sums give the same bits in any order and any division into pieces, and are near the true value for values of
 * all magnitudes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/kernels/table/exact.h"

enum { N = 100003 };
static float x[N], y[N];

static double sum_of(const float *v, size_t step, bt_exact_of of, const bt_exact *u) {
    double sum[2] = {0, 0};
    for (size_t i = 0; i < N; i += step)
        bt_exact_add(sum, v + i, N - i < step ? N - i : step, of, u);
    return sum[0] + sum[1];
}

static void order_and_pieces_do_not_matter(void **state) {
    (void)state;
    static const size_t steps[] = {1, 7, 8, 4096, 33331, N};
    for (int spread = 0; spread < 3; spread++) {
        float most = 0;
        long double truth[3] = {0, 0, 0};
        for (size_t i = 0; i < N; i++) {
            double magnitude = spread == 0   ? 1
                               : spread == 1 ? exp2(-20 * bt_rng_unit(2, 0, i))
                               : i == 77     ? 1e6
                                             : 1e-5;
            x[i] = (float)((bt_rng_unit(1, 0, i) - 0.3) * magnitude);
            if (fabsf(x[i]) > most) most = fabsf(x[i]);
            truth[BT_EXACT_VALUE] += (long double)x[i];
            truth[BT_EXACT_ABS] += (long double)fabsf(x[i]);
            truth[BT_EXACT_SQUARE] += (long double)x[i] * (long double)x[i];
        }
        for (size_t i = 0; i < N; i++) y[i] = x[(i * 7919 + 5) % N];
        for (int of = 0; of < 3; of++) {
            double each = of == BT_EXACT_SQUARE ? (double)most * (double)most : (double)most;
            bt_exact u = bt_exact_units(each, N);
            double want = sum_of(x, N, (bt_exact_of)of, &u);
            for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
                assert_true(sum_of(x, steps[k], (bt_exact_of)of, &u) == want);
                assert_true(sum_of(y, steps[k], (bt_exact_of)of, &u) == want);
            }
            assert_true(fabsl((long double)want - truth[of]) <= 1e-14L * truth[BT_EXACT_ABS] ||
                        fabsl((long double)want - truth[of]) <= 1e-14L * fabsl(truth[of]));
        }
        float top;
        uint32_t bits = bt_exact_most(x, N);
        memcpy(&top, &bits, sizeof top);
        assert_true(top == most);
    }
}

/* The sum uses only coarse units, as for the scales of weights. */
static void one_unit_is_close_enough_for_a_mean(void **state) {
    (void)state;
    long double truth = 0;
    bt_exact u = bt_exact_units(4, N);
    double sum[2] = {0, 0};
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)((bt_rng_unit(3, 0, i) - 0.5) * 0.04);
        truth += (long double)fabsf(x[i]);
    }
    bt_exact_add(sum, x, N, BT_EXACT_ABS, &u);
    assert_true(fabsl((long double)sum[0] / truth - 1) < 1e-8L);
}

static void nonfinite_values_show(void **state) {
    (void)state;
    for (size_t i = 0; i < 20; i++) x[i] = 1;
    float top;
    uint32_t bits;
    x[13] = -INFINITY;
    bits = bt_exact_most(x, 20);
    memcpy(&top, &bits, sizeof top);
    assert_true(isinf(top));
    x[19] = NAN;
    bits = bt_exact_most(x, 20);
    memcpy(&top, &bits, sizeof top);
    assert_true(isnan(top));
    assert_true(bt_exact_most(x, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_and_pieces_do_not_matter),
        cmocka_unit_test(one_unit_is_close_enough_for_a_mean),
        cmocka_unit_test(nonfinite_values_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
