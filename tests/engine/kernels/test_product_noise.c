/* Products with stochastically rounded operands: the mean over many draws is the exact product, and a gradient that is
 * not finite makes the result not finite. The means are computed with the generic set, which test_products.c compares
 * with all sets. */
#include "tests/engine/kernels/isa_util.h"

static const bt_kernels *const G = &bt_kernels_generic;

static void the_mean_over_the_noise_is_the_product(void **state) {
    (void)state;
    enum { M = 8, N = 96, K = 5, DRAWS = 4000 };
    int8_t *w = bytes_in(N * K, -1, 1), *x = bytes_in(M * K, -127, 127);
    float *dy = floats(M * N), *dq = filled(M, 0.02f), *exact = filled(M * K, 0),
          *exact_dw = filled(N * K, 0), *tmp = filled(256, 0);
    double mean[M * K] = {0}, mean_dw[N * K] = {0};
    G->tern_dx(exact, K, dy, N, w, 1, 0, M, N, K, BT_PREC_FP32, 0, tmp);
    G->tern_dw(exact_dw, dy, N, x, dq, M, N, K, 0, N, BT_PREC_FP32, tmp);
    for (int d = 0; d < DRAWS; d++) {
        float dx[M * K] = {0}, dw[N * K] = {0};
        uint32_t rows[M];
        for (uint32_t m = 0; m < M; m++) rows[m] = bt_noise_word((uint32_t)d, m);
        bt_noise noise = {rows, 5, 0};
        G->tern_dx8(dx, K, bt_grads_f32(dy, N), w, 1, 0, M, N, K, &noise, 0, tmp);
        G->tern_dw8(dw, bt_grads_f32(dy, N), x, dq, M, N, K, 0, N, &noise, tmp);
        for (int i = 0; i < M * K; i++) mean[i] += (double)dx[i] / DRAWS;
        for (int i = 0; i < N * K; i++) mean_dw[i] += (double)dw[i] / DRAWS;
    }
    /* The largest |dy| is 4, so a step is 4/127, with a deviation of at most half a step; 64 of N codes are not 0. The
     * tolerance is 6 deviations of the mean. */
    for (int i = 0; i < M * K; i++)
        assert_true(fabs(mean[i] - (double)exact[i]) < 6 * 4.0 / 127 / 2 * sqrt(N) / sqrt(DRAWS));
    for (int i = 0; i < N * K; i++)
        assert_true(fabs(mean_dw[i] - (double)exact_dw[i]) <
                    6 * 4.0 * 0.02 / 127 / 2 * 127 * sqrt(M) / sqrt(DRAWS));
    drop_all("noise");
}

/* Every set is checked; no other row or column is affected. */
static void gradients_that_are_not_finite_remain_so(void **state) {
    (void)state;
    enum { M = 8, N = 96, K = 5 };
    const char *isa;
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; (isa = bt_kernels_isa_name(i)) != NULL; i++) {
        if (bt_kernels_select(isa, &err) != BT_OK) continue;
        const bt_kernels *k = bt_active_kernels();
        int8_t *w = bytes_in(N * K, -1, 1), *x = bytes_in(M * K, -127, 127);
        float *dy = floats(M * N), *dq = filled(M, 0.02f);
        void *packed = take(k->tern_bytes(N, K), 4), *tmp = scratch_for(k, M, N, K, 1, 1);
        uint32_t rows[M] = {0};
        bt_noise noise = {rows, 5, 0};
        k->tern_pack(packed, w, N, K, 0, N);
        for (int bad = 0; bad < 2; bad++) {
            float dx[M * K] = {0}, dw[N * K] = {0};
            dy[3 * N + 7] = bad ? INFINITY : NAN;
            k->tern_dx8(dx, K, bt_grads_f32(dy, N), packed, 1, 0, M, N, K, &noise, 0, tmp);
            k->tern_dw8(dw, bt_grads_f32(dy, N), x, dq, M, N, K, 0, N, &noise, tmp);
            for (size_t at = 0; at < M * K; at++)
                if (isfinite((double)dx[at]) == (at / K == 3))
                    fail_msg("%s: dx of row %zu is %g", isa, at / K, (double)dx[at]);
            for (size_t at = 0; at < N * K; at++)
                if (isfinite((double)dw[at]) == (at / K == 7))
                    fail_msg("%s: dw of output %zu is %g", isa, at / K, (double)dw[at]);
        }
        drop_all("not finite");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_mean_over_the_noise_is_the_product),
                                       cmocka_unit_test(gradients_that_are_not_finite_remain_so)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
