/* Results of kernel benchmarks: rows are complete and plausible, filters select rows, unknown kernel sets are refused,
 * measured peaks are in the expected order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "engine/bench/kernel_rates.h"
#include "engine/bench/peak.h"

typedef struct seen {
    int rows, faults;
} seen;

static void check_bench_row(void *ctx, const bt_bench_row *r) {
    seen *s = ctx;
    s->rows++;
    if (strcmp(r->isa, "generic") != 0 || strncmp(r->slot, "quant_rows", 10) != 0 ||
        strcmp(r->size, "16384x768") != 0)
        s->faults++;
    if (!(r->best > 0 && r->median > 0 && r->best >= r->median && r->bound > 0) ||
        strcmp(r->unit, "GB/s") != 0)
        s->faults++;
}

static void rows_of_kernel_rates_are_complete(void **state) {
    (void)state;
    seen s = {0, 0};
    bt_err err = BT_ERR_INIT;
    bt_bench_kernels_cfg cfg = {
        .isa = "generic", .slot = "quant", .seconds = 0.01, .row = check_bench_row, .ctx = &s};
    assert_int_equal(bt_bench_kernels(&cfg, &err), BT_OK);
    assert_int_equal(s.rows, 1);
    assert_int_equal(s.faults, 0);
}

static void test_unknown_set(void **state) {
    (void)state;
    seen s = {0, 0};
    bt_err err = BT_ERR_INIT;
    bt_bench_kernels_cfg cfg = {
        .isa = "sse9", .slot = "quant", .seconds = 0.01, .row = check_bench_row, .ctx = &s};
    assert_int_equal(bt_bench_kernels(&cfg, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "sse9"));
    assert_int_equal(s.rows, 0);
}

static void measured_peaks_are_ordered(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_kernels_select("generic", &err), BT_OK);
    double plain = bt_peak_rate(BT_PEAK_FP32, 1);
    assert_true(plain > 1e8);
    assert_true(bt_peak_rate(BT_PEAK_BF16, 1) == 0);
    assert_true(bt_peak_flops(1) > 1e8);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    assert_true(bt_peak_flops(1) > 1e8);
    if (strcmp(bt_kernels_isa(), "generic") != 0 && strcmp(bt_kernels_isa(), "blas") != 0)
        assert_true(bt_peak_rate(BT_PEAK_FP32, 1) > plain / 2);
    assert_true(bt_peak_triad(12) > 1e8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_of_kernel_rates_are_complete),
                                       cmocka_unit_test(test_unknown_set),
                                       cmocka_unit_test(measured_peaks_are_ordered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
