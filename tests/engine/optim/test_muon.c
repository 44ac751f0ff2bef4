/* Muon's direction equals Newton-Schulz iterations as plain loops in double precision; its singular values are near
 * one; the transpose of a matrix has the transposed direction; the number of threads changes no bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/optim/muon.h"
#include "engine/optim/optim.h"

enum { ROWS = 48, COLS = 112, N = ROWS * COLS };

static void random_matrix(uint16_t *half, uint64_t seed, size_t n) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    bt_rng_normal(x, n, 0, 1e-3f, seed, 1);
    for (size_t i = 0; i < n; i += 7) x[i] *= 10;
    bt_active_kernels()->to_bf16(half, x, n);
    free(x);
}

static void muon_direction(uint16_t *half, size_t rows, size_t cols) {
    bt_err err = BT_ERR_INIT;
    bt_muon *m;
    size_t s = rows < cols ? rows : cols, l = rows < cols ? cols : rows;
    assert_int_equal(bt_muon_create(&m, s, l, &err), BT_OK);
    bt_muon_direction(m, half, rows, cols);
    bt_muon_destroy(m);
}

/* Computes c (n, n) = a (n, k) b (n, k)^T. */
static void times_transposed(double *c, const double *a, const double *b, size_t n, size_t k) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t e = 0; e < k; e++) sum += a[i * k + e] * b[j * k + e];
            c[i * n + j] = sum;
        }
}

static void plain_direction(double *x) { /* x (ROWS, COLS) is replaced by its direction */
    static double gram[ROWS * ROWS], b[ROWS * ROWS], y[N];
    double norm = 0;
    for (size_t i = 0; i < N; i++) norm += x[i] * x[i];
    for (size_t i = 0; i < N; i++) x[i] /= sqrt(norm);
    for (int step = 0; step < 5; step++) {
        times_transposed(gram, x, x, ROWS, COLS);
        times_transposed(b, gram, gram, ROWS, ROWS); /* symmetric: gram gram^T = gram gram */
        for (size_t i = 0; i < ROWS * ROWS; i++) b[i] = -4.7750 * gram[i] + 2.0315 * b[i];
        for (size_t i = 0; i < ROWS; i++)
            for (size_t c = 0; c < COLS; c++) {
                double sum = 3.4445 * x[i * COLS + c];
                for (size_t k = 0; k < ROWS; k++) sum += b[i * ROWS + k] * x[k * COLS + c];
                y[i * COLS + c] = sum;
            }
        memcpy(x, y, sizeof y);
    }
}

static void the_direction_is_that_of_plain_loops(void **state) {
    (void)state;
    static uint16_t half[N];
    static float before[N], got[N];
    static double want[N];
    double error = 0, size = 0;
    random_matrix(half, 1, N);
    bt_active_kernels()->from_bf16(before, half, N);
    for (size_t i = 0; i < N; i++) want[i] = before[i];
    plain_direction(want);
    muon_direction(half, ROWS, COLS);
    bt_active_kernels()->from_bf16(got, half, N);
    for (size_t i = 0; i < N; i++) {
        error += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    /* five iterations of products in bf16, with 8 bits of mantissa */
    if (!(sqrt(error / size) < 0.03)) fail_msg("relative error %g", sqrt(error / size));
}

/* Computes the largest singular value by power iteration, and the mean of the squares. */
static void singular_values_are_near_one(void **state) {
    (void)state;
    static uint16_t half[N];
    static float got[N];
    static double x[N], gram[ROWS * ROWS], v[ROWS], w[ROWS];
    random_matrix(half, 2, N);
    muon_direction(half, ROWS, COLS);
    bt_active_kernels()->from_bf16(got, half, N);
    for (size_t i = 0; i < N; i++) x[i] = got[i];
    times_transposed(gram, x, x, ROWS, COLS);
    double trace = 0, largest = 0;
    for (size_t i = 0; i < ROWS; i++) trace += gram[i * ROWS + i], v[i] = 1;
    for (int k = 0; k < 200; k++) {
        double norm = 0;
        for (size_t i = 0; i < ROWS; i++) {
            w[i] = 0;
            for (size_t j = 0; j < ROWS; j++) w[i] += gram[i * ROWS + j] * v[j];
            norm += w[i] * w[i];
        }
        largest = sqrt(norm);
        for (size_t i = 0; i < ROWS; i++) v[i] = w[i] / largest;
    }
    assert_true(sqrt(largest) < 1.25 && sqrt(largest) > 0.9);
    assert_true(trace / ROWS > 0.5 && trace / ROWS < 1.3);
}

static void a_transpose_has_the_transposed_direction(void **state) {
    (void)state;
    static uint16_t wide[N], tall[N];
    random_matrix(wide, 3, N);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++) tall[c * ROWS + r] = wide[r * COLS + c];
    muon_direction(wide, ROWS, COLS);
    muon_direction(tall, COLS, ROWS);
    /* The norm is added in another order, which changes one unit in the last place of bf16. */
    static float a[N], b[N];
    bt_active_kernels()->from_bf16(a, wide, N);
    bt_active_kernels()->from_bf16(b, tall, N);
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLS; c++)
            assert_true(fabsf(a[r * COLS + c] - b[c * ROWS + r]) < 0.01f);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    static uint16_t one[N], three[N];
    bt_err err = BT_ERR_INIT;
    random_matrix(one, 4, N);
    memcpy(three, one, sizeof one);
    muon_direction(one, ROWS, COLS);
    bt_threads_release();
    assert_int_equal(bt_threads_init(3, &err), BT_OK);
    muon_direction(three, ROWS, COLS);
    assert_memory_equal(one, three, sizeof one);
}

static void zeros_remain_zeros(void **state) {
    (void)state;
    static uint16_t half[N];
    muon_direction(half, ROWS, COLS);
    for (size_t i = 0; i < N; i++) assert_int_equal(half[i], 0);
}

/* Two steps of the rule, and the matrix given to the exchange, equal the formulas. */
static void momentum_is_nesterovs(void **state) {
    (void)state;
    enum { ELEMS = 1000 };
    static float w[ELEMS], g[ELEMS], m[ELEMS], got[ELEMS];
    static uint16_t half[ELEMS];
    double want_m = 0;
    const bt_optim_cfg cfg = {.momentum = 0.95};
    for (int t = 1; t <= 2; t++) {
        for (size_t i = 0; i < ELEMS; i++) g[i] = (float)t * 3.0f;
        bt_optim_elems e = {.w = w, .g = g, .state = {m}, .n = ELEMS};
        bt_rule_muon.step(&e, &cfg, &(bt_optim_update){.t = t, .grad_scale = 0.5f, .lr = 1});
        bt_muon_momentum(half, g, m, 0.5f, 0.95f, ELEMS);
        bt_active_kernels()->from_bf16(got, half, ELEMS);
        want_m = 0.95 * want_m + 0.05 * 0.5 * t * 3;
        double want = 0.95 * want_m + 0.05 * 0.5 * t * 3;
        for (size_t i = 0; i < ELEMS; i++) {
            assert_true(fabs((double)m[i] - want_m) < 1e-6);
            assert_true(fabs((double)got[i] - want) < want / 256);
            assert_true(w[i] == 0); /* The weights change only after the matrix is complete. */
        }
    }
}

static int setup(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    return bt_kernels_select("auto", &err) != BT_OK || bt_threads_init(1, &err) != BT_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_direction_is_that_of_plain_loops),
        cmocka_unit_test(singular_values_are_near_one),
        cmocka_unit_test(a_transpose_has_the_transposed_direction),
        cmocka_unit_test(zeros_remain_zeros),
        cmocka_unit_test(momentum_is_nesterovs),
        cmocka_unit_test(threads_change_no_bit),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
