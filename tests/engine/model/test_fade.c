/* test_fade.c - layers between full precision and ternary: lambda 0 equals the dense model bit for bit, 1 the ternary
 * model; between them the loss changes gradually, and earlier values of lambda have no influence. */
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 96, V = 37, M = B * T };

static int32_t inputs[M], targets[M];

static bt_scale_kind scale; /* scales of ternary models created from now on */

static bt_model *model_of(bt_linear_kind linear, bt_norm_kind norm, bt_prec prec, bool fades) {
    /* feed_forward: two groups */
    bt_model_setup s = small_setup(B, T, V, 32, scale > BT_SCALE_ROW ? 64 : 48);
    s.cfg.linear = linear;
    s.cfg.scale = linear == BT_LIN_BITNET158 ? scale : BT_SCALE_TENSOR;
    s.cfg.norm = norm;
    s.prec = prec;
    s.fades = fades;
    bt_model *m = small_model(&s, 5);
    bt_model_quantise(m);
    return m;
}

/* Returns the loss, and a copy of the gradients that the caller frees. */
static double loss_and_gradients(bt_model *m, float **grads) {
    const size_t n = bt_model_params(m)->total;
    bt_model_zero_grads(m);
    const double loss = bt_model_train_micro(m, inputs, targets, 1.0 / M, NULL, NULL);
    *grads = malloc(n * sizeof **grads);
    memcpy(*grads, bt_model_grads(m), n * sizeof **grads);
    return loss;
}

static double largest_change(const float *a, const float *b, size_t n) {
    double diff = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return sqrt(diff / all);
}

static void ends_are_the_dense_and_the_ternary_model(void **state) {
    (void)state;
    for (int norm = BT_NORM_SUBLN; norm <= BT_NORM_PRE; norm++) {
        for (int prec = 0; prec < 2; prec++) {
            const bt_prec p = prec ? BT_PREC_BF16 : BT_PREC_FP32;
            static const bt_scale_kind scales[] = {BT_SCALE_TENSOR, BT_SCALE_GROUP32, BT_SCALE_ROW};
            scale = scales[norm];
            bt_model *fading = model_of(BT_LIN_BITNET158, (bt_norm_kind)norm, p, true);
            const bt_linear_kind kinds[] = {BT_LIN_DENSE, BT_LIN_BITNET158};
            for (int k = 0; k < 2; k++) {
                bt_model *want = model_of(kinds[k], (bt_norm_kind)norm, p, false);
                float *a, *b;
                bt_model_lambda(fading, 0.4); /* Earlier values have no influence. */
                (void)bt_model_eval_micro(fading, inputs, targets);
                bt_model_lambda(fading, k);
                const double x = loss_and_gradients(want, &a), y = loss_and_gradients(fading, &b);
                if (memcmp(&x, &y, sizeof x) != 0)
                    fail_msg("norm %d, lambda %d: loss %.17g, not %.17g", norm, k, y, x);
                assert_memory_equal(a, b, bt_model_params(want)->total * sizeof *a);
                free(a);
                free(b);
                bt_model_destroy(want);
            }
            bt_model_destroy(fading);
        }
    }
}

static void loss_changes_gradually(bt_scale_kind kind) {
    scale = kind;
    bt_model *m = model_of(BT_LIN_BITNET158, BT_NORM_SUBLN, BT_PREC_FP32, true);
    const size_t n = bt_model_params(m)->total;
    float *ternary, *almost, *half, *again, *dense;
    const double one = loss_and_gradients(m, &ternary);
    bt_model_lambda(m, 1 - 1e-6);
    const double near_one = loss_and_gradients(m, &almost);
    bt_model_lambda(m, 0);
    const double zero = loss_and_gradients(m, &dense);
    bt_model_lambda(m, 0.5);
    const double middle = loss_and_gradients(m, &half);
    assert_true(fabs(near_one - one) < 1e-4 * one);
    assert_true(largest_change(almost, ternary, n) < 1e-3);
    assert_true(largest_change(half, ternary, n) > 0.02 && largest_change(half, dense, n) > 0.02);
    assert_true(middle != zero && middle != one);
    bt_model_quantise(m); /* The next pass reads the weights again. */
    const double same = loss_and_gradients(m, &again);
    assert_true(same == middle);
    assert_memory_equal(again, half, n * sizeof *half);
    float *w = bt_model_weights(m);
    for (size_t i = 0; i < n; i++) w[i] *= 1.5f;
    bt_model_quantise(m);
    free(again);
    assert_true(loss_and_gradients(m, &again) != middle);
    free(ternary), free(almost), free(half), free(again), free(dense);
    bt_model_destroy(m);
}

static void the_loss_changes_gradually(void **state) {
    (void)state;
    loss_changes_gradually(BT_SCALE_TENSOR);
    loss_changes_gradually(BT_SCALE_ROW);
    loss_changes_gradually(BT_SCALE_GROUP32);
    scale = BT_SCALE_TENSOR;
}

static int setup(void **state) {
    for (int i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(3, 1, (uint64_t)i) % V);
        targets[i] = (int32_t)(bt_rng_u64(3, 2, (uint64_t)i) % V);
    }
    return engine_start(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_are_the_dense_and_the_ternary_model),
        cmocka_unit_test(the_loss_changes_gradually),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}
