/* test_classes.c - a classifier: its gradient is the slope of the loss, a zero head predicts uniformly, only the last
 * token of a text is classified, and predictions are counted. */
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 70, V = 37, M = B * T, K = 5, TEXTS = 4 };

static int32_t inputs[M], targets[M], positions[M];

static bt_model *classifier(int width) {
    bt_model_setup s = small_setup(B, T, V, width, 40);
    s.documents = true;
    s.cfg.tied = true;
    s.cfg.classes = K;
    bt_model *m = small_model(&s, 5);
    bt_model_quantise(m);
    bt_model_documents(m, positions);
    return m;
}

static const bt_tensor *score_of(bt_model *m) {
    return bt_params_get(bt_model_params(m), -1, BT_P_SCORE);
}

static void draw_score(bt_model *m) {
    bt_rng_normal(bt_model_weights(m) + score_of(m)->offset, score_of(m)->count, 0, 0.2f, 9, 1);
}

static double loss_of_pass(bt_model *m) {
    bt_model_zero_grads(m);
    return bt_model_train_micro(m, inputs, targets, 0.25, NULL, NULL);
}

static void a_zero_head_predicts_uniformly(void **state) {
    (void)state;
    bt_model *m = classifier(24);
    const bt_tensor *score = score_of(m);
    assert_int_equal(score->rows, K);
    for (size_t i = 0; i < score->count; i++)
        assert_true(bt_model_weights(m)[score->offset + i] == 0);
    assert_true(fabs(loss_of_pass(m) - TEXTS * log(K)) < 1e-5);
    /* Only the head has a gradient, because it is zero. */
    for (size_t i = 0; i < score->offset; i++) assert_true(bt_model_grads(m)[i] == 0);
    double largest = 0;
    for (size_t i = 0; i < score->count; i++)
        largest = fmax(largest, fabs((double)bt_model_grads(m)[score->offset + i]));
    assert_true(largest > 1e-3);
    bt_model_destroy(m);
}

static double scaled_loss(bt_model *m) {
    bt_model_quantise(m);
    return 0.25 * loss_of_pass(m);
}

static void the_gradient_is_the_slope_of_the_loss(void **state) {
    (void)state;
    bt_model *m = classifier(24);
    draw_score(m);
    loss_of_pass(m);
    small_slope(m, scaled_loss, 0.3f, 2e-4, 5e-3);
    bt_model_destroy(m);
}

/* Tokens after the end of a text and tokens of other texts do not influence its class. */
static void only_the_last_token_is_classified(void **state) {
    (void)state;
    bt_model *m = classifier(24);
    draw_score(m);
    const double whole = bt_model_eval_micro(m, inputs, targets);
    for (int i = 0; i < M; i++) /* the class is the last token of the text */
        if (i > 0 && targets[i - 1] >= 0) inputs[i] = (inputs[i] + 7) % V;
    assert_true(bt_model_eval_micro(m, inputs, targets) == whole);
    double sum = 0;
    for (int k = 0; k < M; k++) { /* each text alone */
        int32_t one[M];
        for (int i = 0; i < M; i++) one[i] = i == k ? targets[i] : -1;
        if (targets[k] >= 0) sum += bt_model_eval_micro(m, inputs, one);
    }
    assert_true(fabs(sum - whole) < 1e-6 * whole);
    bt_model_destroy(m);
}

static void predictions_are_counted(void **state) {
    (void)state;
    bt_model *m = classifier(24);
    float p[K];
    draw_score(m);
    (void)bt_model_take_score(m);
    bt_model_eval_micro(m, inputs, targets);
    const double *table = bt_model_confusion(m);
    double right = 0, all = 0;
    for (int i = 0; i < K * K; i++) all += table[i];
    for (int i = 0; i < K; i++) right += table[i * K + i];
    for (int i = 0, n; i < M; i++) { /* A text alone gets the same prediction. */
        if (targets[i] < 0) continue;
        n = positions[i] + 1;
        bt_model_forward_tokens(m, inputs + i + 1 - n, (size_t)n);
        bt_model_class_probabilities(m, (size_t)n, p);
        int best = 0;
        double sum = 0;
        for (int k = 0; k < K; k++) {
            sum += (double)p[k];
            if (p[k] > p[best]) best = k;
        }
        assert_true(fabs(sum - 1) < 1e-5);
        assert_true(table[targets[i] * K + best] > 0);
    }
    const bt_score s = bt_model_take_score(m);
    assert_true(s.n == TEXTS && all == TEXTS && s.right == right);
    for (int i = 0; i < K * K; i++) assert_true(table[i] == 0);
    bt_model_destroy(m);
}

static int setup(void **state) {
    for (int i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(3, 1, (uint64_t)i) % V);
        positions[i] = i % T < 40 ? i % T : i % T < 62 ? i % T - 40 : -1;
        targets[i] = i % T == 38 || i % T == 60 ? (i + i / T) % K : -1;
    }
    return engine_start(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zero_head_predicts_uniformly),
        cmocka_unit_test(the_gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(only_the_last_token_is_classified),
        cmocka_unit_test(predictions_are_counted),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}
