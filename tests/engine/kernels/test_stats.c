/* Statistics of every kernel set compared with plain loops, for lengths around every block of the vector loops:
 * histories of codes, weights near a threshold, and the last AdamW update reconstructed from its moments. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/kernels/table/kernels.h"

enum { N = 20011, STEPS = 5 };
static const size_t lengths[] = {0, 1, 2, 3, 63, 64, 65, 127, 128, 129, 257, 16383, 16384, N};
static const char *const sets[] = {"generic", "avx2", "avx512", "neon"};

static int code_at(size_t step, size_t i) { return (int)(bt_rng_u64(5, step, i) % 3) - 1; }

static void histories_remember_two_codes(void **state) {
    (void)state;
    static uint8_t history[N];
    static int8_t codes[N];
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        bt_err err = BT_ERR_INIT;
        if (bt_kernels_select(sets[s], &err) != BT_OK) continue;
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            size_t n = lengths[l];
            memset(history, 0, sizeof history);
            history[(n + 1) / 2] = 0xa5; /* a byte outside the updated range */
            for (size_t step = 2; step < 2 + STEPS; step++) {
                bt_code_seen seen = {0, 0, 0}, want = {0, 0, 0};
                for (size_t i = 0; i < n; i++) {
                    int now = code_at(step, i), last = step > 2 ? code_at(step - 1, i) : 0,
                        before = step > 3 ? code_at(step - 2, i) : 0;
                    codes[i] = (int8_t)now;
                    want.flips += now != last;
                    want.sign_flips += now * last == -1;
                    want.back += now != last && now == before;
                }
                bt_active_kernels()->code_history(history, codes, n, &seen);
                assert_int_equal(seen.flips, want.flips);
                assert_int_equal(seen.sign_flips, want.sign_flips);
                assert_int_equal(seen.back, want.back);
            }
            assert_int_equal(history[(n + 1) / 2], 0xa5);
        }
    }
}

static void weights_near_a_threshold_are_counted(void **state) {
    (void)state;
    static float w[N];
    for (size_t i = 0; i < N; i++) w[i] = (float)bt_rng_unit(6, 0, i) - 0.5f;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        bt_err err = BT_ERR_INIT;
        if (bt_kernels_select(sets[s], &err) != BT_OK) continue;
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            size_t want = 0;
            for (size_t i = 0; i < lengths[l]; i++)
                want += fabsf(fabsf((w[i] - 0.01f) * 4.0f) - 0.5f) < 0.05f;
            assert_int_equal(
                bt_active_kernels()->code_near(w, lengths[l], 0.01f, 4.0f, 0.5f, 0.05f), want);
        }
    }
}

static void an_update_is_undone(void **state) {
    (void)state;
    static float w0[N], w[N], g[N], m[N], v[N], change[N], before[N];
    const float lr = 2e-3f, decay = 0.1f, c1 = 1.0f - 0.9f, c2 = 1.0f - 0.95f, eps = 1e-8f;
    for (size_t s = 0; s < sizeof sets / sizeof *sets; s++) {
        bt_err err = BT_ERR_INIT;
        if (bt_kernels_select(sets[s], &err) != BT_OK) continue;
        for (size_t i = 0; i < N; i++) {
            w0[i] = w[i] = (float)bt_rng_unit(7, 0, i) - 0.5f;
            g[i] = (float)bt_rng_unit(8, 0, i) - 0.5f;
            m[i] = v[i] = 0;
        }
        bt_active_kernels()->adamw(w, g, m, v, 1.0f, lr, 0.9f, 0.95f, eps, decay, c1, c2, N);
        bt_active_kernels()->adamw_undo(change, before, w, m, v, N, 1.0f - lr * decay, lr / c1,
                                        1.0f / sqrtf(c2), eps);
        for (size_t i = 0; i < N; i++) {
            assert_true(fabsf(before[i] - w0[i]) < 2e-7f);
            assert_true(fabsf(change[i] - (w0[i] - w[i])) < 2e-7f);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(histories_remember_two_codes),
        cmocka_unit_test(weights_near_a_threshold_are_counted),
        cmocka_unit_test(an_update_is_undone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
