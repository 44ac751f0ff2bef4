/* test_distil.c - distillation: the gradient is the slope of the loss, a teacher with the same weights gives no
 * gradient, and with share 0 the loss is that of the data. */
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 70, V = 37, M = B * T };

static int32_t inputs[M], targets[M], positions[M];

static bt_model *model_of(int width, unsigned lora, uint64_t seed) {
    bt_model_setup s = small_setup(B, T, V, width, 40);
    s.documents = true;
    s.taught = !lora;
    if (lora) s.cfg.lora = (bt_lora){.rank = 1, .scale = 1, .targets = lora};
    bt_model *m = small_model(&s, seed);
    if (!lora) bt_model_quantise(m);
    bt_model_documents(m, positions);
    return m;
}

/* Creates a teacher of this width and seed, as the base of adapters that are not used. */
static bt_model *teacher_of(int width, uint64_t seed) {
    bt_model *full = model_of(width, 0, seed), *t = model_of(width, BT_LORA_Q, seed);
    const bt_params *p = bt_model_params(full);
    for (size_t i = 0; i < p->n; i++)
        bt_model_base_put(t, i, 0, p->tensors[i].count,
                          bt_model_weights(full) + p->tensors[i].offset, 0);
    bt_model_base_done(t);
    bt_model_destroy(full);
    return t;
}

static double loss_of_distillation(bt_model *m) {
    bt_model_zero_grads(m);
    return bt_model_train_micro(m, inputs, targets, 0.01, NULL, NULL);
}

static double scaled_loss(bt_model *m) {
    bt_model_quantise(m);
    return 0.01 * loss_of_distillation(m);
}

static void the_gradient_is_the_slope_of_the_loss(void **state) {
    (void)state;
    bt_model *m = model_of(24, 0, 5), *t = teacher_of(32, 6);
    bt_model_distil(m, (bt_distil){.teacher = t, .mix = 0.7, .tau = 2});
    loss_of_distillation(m);
    small_slope(m, scaled_loss, 0.3f, 2e-4, 5e-3);
    bt_model_add_member(t, teacher_of(24, 7)); /* The teacher is an ensemble. */
    loss_of_distillation(m);
    small_slope(m, scaled_loss, 0.3f, 2e-4, 5e-3);
    bt_model_destroy(m);
    bt_model_destroy(t);
}

static double norm_of_gradients(bt_model *m) {
    double sum = 0;
    for (size_t i = 0; i < bt_model_params(m)->total; i++)
        sum += (double)bt_model_grads(m)[i] * (double)bt_model_grads(m)[i];
    return sqrt(sum);
}

static void shares_of_the_loss(void **state) {
    (void)state;
    bt_model *m = model_of(24, 0, 5), *same = teacher_of(24, 5), *other = teacher_of(32, 6);
    const double plain = loss_of_distillation(m), plain_norm = norm_of_gradients(m);
    bt_model_distil(m, (bt_distil){.teacher = same, .mix = 1, .tau = 2});
    assert_true(fabs(loss_of_distillation(m)) < 1e-5 * plain &&
                norm_of_gradients(m) < 1e-5 * plain_norm);
    bt_model_add_member(same, teacher_of(24, 5)); /* The mean of equal models is the model. */
    assert_true(fabs(loss_of_distillation(m)) < 1e-5 * plain &&
                norm_of_gradients(m) < 1e-5 * plain_norm);
    bt_model_distil(m, (bt_distil){.teacher = same, .mix = 0.25, .tau = 2});
    assert_true(fabs(loss_of_distillation(m) - 0.75 * plain) < 1e-5 * plain);
    assert_true(fabs(norm_of_gradients(m) - 0.75 * plain_norm) < 1e-5 * plain_norm);
    bt_model_distil(m, (bt_distil){.teacher = other, .mix = 0, .tau = 2});
    assert_true(fabs(loss_of_distillation(m) - plain) < 1e-5 * plain);
    bt_model_distil(m, (bt_distil){.teacher = other, .mix = 1, .tau = 2});
    assert_true(fabs(loss_of_distillation(m) - plain) > 1e-2 * plain);
    bt_model_destroy(m);
    bt_model_destroy(same);
    bt_model_destroy(other);
}

/* saved logits of a teacher, as in a file: k tokens and fp16 */
typedef struct kept {
    uint32_t ids[M * V];
    uint16_t logs[M * V];
    bt_top_row rows[M];
} kept;

static void store_teacher_logits(kept *f, bt_model *t, size_t k) {
    static float logs[M * V];
    bt_model_eval_micro(t, inputs, targets);
    bt_model_top_logits(t, targets, k, f->ids, logs);
    bt_active_kernels()->to_half(f->logs, logs, M * k);
    for (size_t i = 0; i < M; i++)
        f->rows[i] = (bt_top_row){targets[i] < 0 ? NULL : f->ids + i * k, f->logs + i * k};
    for (size_t i = 0; i < M; i++)
        for (size_t r = 1; targets[i] >= 0 && r < k; r++)
            assert_true(logs[i * k + r] <= logs[i * k + r - 1]);
}

static void kept_logits_teach_as_their_teacher(void **state) {
    (void)state;
    static kept f;
    static float want[1 << 16];
    bt_model *m = model_of(24, 0, 5), *t = teacher_of(32, 6), *plain = model_of(32, 0, 6);
    const size_t n = bt_model_params(m)->total;
    assert_true(n <= sizeof want / sizeof *want);
    bt_model_distil(m, (bt_distil){.teacher = t, .mix = 0.7, .tau = 2});
    const double loss = loss_of_distillation(m), norm = norm_of_gradients(m);
    memcpy(want, bt_model_grads(m), n * sizeof *want);
    store_teacher_logits(&f, plain, V);
    bt_model_distil(m, (bt_distil){.rows = f.rows, .k = V, .mix = 0.7, .tau = 2});
    assert_true(fabs(loss_of_distillation(m) - loss) < 1e-4 * loss);
    double apart = 0;
    for (size_t i = 0; i < n; i++) apart += pow((double)bt_model_grads(m)[i] - (double)want[i], 2);
    assert_true(sqrt(apart) < 2e-3 * norm);
    /* Only some tokens are saved: the loss differs, and the gradient is still its slope. */
    store_teacher_logits(&f, plain, 5);
    bt_model_distil(m, (bt_distil){.rows = f.rows, .k = 5, .mix = 0.7, .tau = 2});
    assert_true(fabs(loss_of_distillation(m) - loss) > 1e-3 * loss);
    small_slope(m, scaled_loss, 0.3f, 2e-4, 5e-3);
    bt_model_destroy(m);
    bt_model_destroy(t);
    bt_model_destroy(plain);
}

static int setup(void **state) {
    for (int i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(3, 1, (uint64_t)i) % V);
        targets[i] = i % 3 ? (int32_t)(bt_rng_u64(3, 2, (uint64_t)i) % V) : -1;
        positions[i] = i % T < 40 ? i % T : i % T < 62 ? i % T - 40 : -1;
        if (positions[i] < 0) targets[i] = -1;
    }
    return engine_start(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gradient_is_the_slope_of_the_loss),
        cmocka_unit_test(shares_of_the_loss),
        cmocka_unit_test(kept_logits_teach_as_their_teacher),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}
