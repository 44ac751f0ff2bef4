/* Stochastic rounding of the gradients of units: equal to a plain loop, independent of the division into ranges or
 * tensor-parallel slices, unbiased; the rounding step (quantum) follows the largest gradient. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/kernels/table/noise.h"
#include "engine/parallel/grad/unit_rounding.h"

enum { ROWS = 130, COLS = 72, GAP = 8, SMALL = 5, N = ROWS * COLS + GAP + SMALL };

/* Makes the rounding of a matrix and a vector with padding between them; slice: columns [col0, col0 + cols) of the
 * matrix. */
static void make_slice_rounding(bt_unit_rounding *r, size_t col0, size_t cols) {
    bt_rounding_tensor *t = calloc(2, sizeof *t);
    bt_err err = BT_ERR_INIT;
    assert_non_null(t);
    t[0] = (bt_rounding_tensor){.rows = ROWS,
                                .cols = cols,
                                .col0 = col0,
                                .whole_rows = ROWS,
                                .name = bt_hash_name("matrix")};
    t[1] = (bt_rounding_tensor){.offset = ROWS * cols + GAP,
                                .rows = 1,
                                .cols = SMALL,
                                .whole_rows = 1,
                                .first_group = bt_rounding_groups(ROWS),
                                .name = bt_hash_name("vector")};
    assert_int_equal(bt_rounding_create(r, t, 2, bt_rounding_groups(ROWS) + 1, 42, &err), BT_OK);
}

static float first[N], x[N], y[N];

/* rows of very different magnitudes */
static void fill_rows(float *to) {
    bt_rng_normal(to, N, 0, 1, 9, 1);
    for (size_t i = 0; i < ROWS * COLS; i++) to[i] *= ldexpf(1, (int)(i / COLS) % 11 - 20);
    memset(to + ROWS * COLS, 0, GAP * sizeof *to);
}

/* Simulates a step whose largest gradients are those of `first`. */
static void learn_quanta(bt_unit_rounding *r) {
    bt_err err = BT_ERR_INIT;
    fill_rows(first);
    memcpy(x, first, sizeof x);
    bt_rounding_begin(r, 0, 1);
    bt_rounding_range(r, x, (bt_range){0, N}, 0);
    /* No group has had a gradient, so nothing is rounded. */
    assert_memory_equal(x, first, sizeof x);
    assert_int_equal(bt_rounding_agree(r, bt_comm_world(), &err), BT_OK);
}

/* Returns the quantum of a row from its group's largest value in `first`. */
static float quantum_of(size_t row) {
    float top = 0;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t c = 0; c < COLS; c++)
            if (i * BT_ROUNDING_GROUPS / ROWS == row * BT_ROUNDING_GROUPS / ROWS)
                top = fmaxf(top, fabsf(first[i * COLS + c]));
    return exp2f(floorf(log2f(top)) - 6);
}

static void values_are_those_of_a_plain_loop(void **state) {
    (void)state;
    bt_unit_rounding r;
    make_slice_rounding(&r, 0, COLS);
    learn_quanta(&r);
    fill_rows(x);
    bt_rounding_begin(&r, 5, 1);
    bt_rounding_range(&r, x, (bt_range){0, N}, 3);
    for (size_t i = 0; i < ROWS * COLS; i++) {
        size_t row = i / COLS, col = i % COLS;
        float q = quantum_of(row);
        uint32_t key = (uint32_t)bt_rng_u64(42 ^ bt_hash_name("matrix"), (5u << 20) ^ 3, row);
        uint32_t u =
            bt_noise_word(key, (uint32_t)(col / 64 * 16 + col % 16)) >> (col / 16 % 4 * 8) & 0xff;
        double want = floor(rint((double)(first[i] / q) * 256) / 256 + u / 256.0) * (double)q;
        if ((double)x[i] != want) fail_msg("element %zu is %a, not %a", i, (double)x[i], want);
        assert_true(fabsf(first[i]) <= 128 * q);
    }
    for (size_t i = 0; i < GAP; i++) assert_true(x[ROWS * COLS + i] == 0);
    bt_rounding_release(&r);
}

static void no_cut_changes_a_bit(void **state) {
    (void)state;
    bt_unit_rounding r, half[2];
    make_slice_rounding(&r, 0, COLS);
    learn_quanta(&r);
    fill_rows(x);
    bt_rounding_begin(&r, 7, 1);
    bt_rounding_range(&r, x, (bt_range){0, N}, 1);
    fill_rows(y);
    bt_rounding_begin(&r, 7, 1);
    for (size_t at = 0, n = 1; at < N; at += n, n = n * 3 % 101) {
        size_t end = at + n < N ? at + n : N;
        bt_rounding_range(&r, y + at, (bt_range){at, end}, 1);
        n = end - at;
    }
    assert_memory_equal(x, y, sizeof x);
    /* Two ranks divide the columns and agree on the quanta. */
    for (size_t k = 0; k < 2; k++) {
        make_slice_rounding(&half[k], k * COLS / 2, COLS / 2);
        memcpy(half[k].exponents, r.exponents, r.n_groups * sizeof *r.exponents);
        fill_rows(first);
        for (size_t i = 0; i < ROWS * COLS / 2; i++)
            y[i] = first[i / (COLS / 2) * COLS + k * COLS / 2 + i % (COLS / 2)];
        bt_rounding_begin(&half[k], 7, 1);
        bt_rounding_range(&half[k], y, (bt_range){0, ROWS * COLS / 2}, 1);
        for (size_t i = 0; i < ROWS * COLS / 2; i++)
            assert_true(y[i] == x[i / (COLS / 2) * COLS + k * COLS / 2 + i % (COLS / 2)]);
        bt_rounding_release(&half[k]);
    }
    bt_rounding_release(&r);
}

static void the_mean_is_the_gradient(void **state) {
    (void)state;
    enum { TRIES = 4000 };
    static double sum[N];
    bt_unit_rounding r;
    double off = 0, other = 0;
    make_slice_rounding(&r, 0, COLS);
    learn_quanta(&r);
    memset(sum, 0, sizeof sum);
    for (int64_t k = 0; k < TRIES; k++) {
        memcpy(x, first, sizeof x);
        bt_rounding_begin(&r, 1 + k / 16, 1);
        bt_rounding_range(&r, x, (bt_range){0, N}, k % 16);
        for (size_t i = 0; i < ROWS * COLS; i++) sum[i] += (double)x[i];
    }
    /* Tolerance of one element: the deviation of half a quantum divided by sqrt(tries), and the bias of 8 bits. */
    for (size_t i = 0; i < ROWS * COLS; i++) {
        double q = (double)quantum_of(i / COLS), d = (sum[i] / TRIES - (double)first[i]) / q;
        off = fmax(off, fabs(d));
        other += d;
        if (!(fabs(d) < 6 * 0.5 / sqrt(TRIES) + 0x1p-9))
            fail_msg("element %zu: %g quanta off", i, d);
    }
    assert_true(off > 0.002 && fabs(other) / (ROWS * COLS) < 0x1p-9);
    bt_rounding_release(&r);
}

static void quanta_follow_the_largest_gradient(void **state) {
    (void)state;
    bt_unit_rounding r;
    bt_err err = BT_ERR_INIT;
    static const struct {
        float largest;
        double loss_scale;
        int exponent;
    } steps[] = {
        {1.5f, 1, -6},   {1.99f, 1, -6},    {0.1f, 1, -7},  {0.1f, 1, -8},
        {0, 1, -8},      {INFINITY, 1, -8}, {NAN, 1, -8},   {1024, 1, 4},
        {1024, 1024, 3}, {0x1p13f, 8, 4},   {1e-40f, 1, 3}, {0x1p40f, 1, 34},
    };
    make_slice_rounding(&r, 0, COLS);
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        memset(x, 0, sizeof x);
        x[4] = steps[k].largest;
        bt_rounding_begin(&r, (int64_t)k, steps[k].loss_scale);
        bt_rounding_range(&r, x, (bt_range){0, N}, 0);
        assert_int_equal(bt_rounding_agree(&r, bt_comm_world(), &err), BT_OK);
        if (r.exponents[0] != steps[k].exponent)
            fail_msg("step %zu: quantum 2^%d, not 2^%d", k, r.exponents[0], steps[k].exponent);
        assert_int_equal(r.exponents[1], BT_ROUNDING_NONE);
    }
    bt_rounding_release(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_those_of_a_plain_loop),
        cmocka_unit_test(no_cut_changes_a_bit),
        cmocka_unit_test(the_mean_is_the_gradient),
        cmocka_unit_test(quanta_follow_the_largest_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
