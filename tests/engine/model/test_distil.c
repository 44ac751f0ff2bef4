/* test_distil.c - distillation: the gradient is the slope of the loss, a teacher with the same weights gives no
 * gradient, and with share 0 the loss is that of the data. With relations of a layer too (relation.c), whose twenty
 * losses equal PyTorch's in float64 (golden_relations.txt). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/golden.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 70, V = 37, M = B * T };

static int32_t inputs[M], targets[M], positions[M];

static bt_model *model_of(int width, uint64_t seed) {
    bt_model_setup s = small_setup(B, T, V, width, 40);
    s.documents = true;
    s.taught = true;
    bt_model *m = small_model(&s, seed);
    bt_model_quantise(m);
    bt_model_documents(m, positions);
    return m;
}

/* Copies the weights of `full`, which it destroys, into a new base of adapters that are not used. */
static bt_model *teacher_with(bt_model_setup s, bt_model *full) {
    s.taught = false;
    s.cfg.lora = (bt_lora){.rank = 1, .scale = 1, .targets = BT_LORA_Q};
    bt_model *t = small_model(&s, 1);
    const bt_params *p = bt_model_params(full);
    for (size_t i = 0; i < p->n; i++)
        bt_model_base_put(t, i, 0, p->tensors[i].count,
                          bt_model_weights(full) + p->tensors[i].offset, 0);
    bt_model_base_done(t);
    bt_model_documents(t, s.documents ? positions : NULL);
    bt_model_destroy(full);
    return t;
}

static bt_model *teacher_of(int width, uint64_t seed) {
    bt_model_setup s = small_setup(B, T, V, width, 40);
    s.documents = true;
    return teacher_with(s, model_of(width, seed));
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
    bt_model *m = model_of(24, 5), *t = teacher_of(32, 6);
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
    bt_model *m = model_of(24, 5), *same = teacher_of(24, 5), *other = teacher_of(32, 6);
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
    bt_model *m = model_of(24, 5), *t = teacher_of(32, 6), *plain = model_of(32, 6);
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

static bt_model *related_of(int width, bool taught, bool qk_norm, uint64_t seed) {
    bt_model_setup s = small_setup(B, T, V, width, 40);
    s.documents = true;
    s.taught = true;
    s.relation_layer = 2;
    s.cfg.qk_norm = qk_norm;
    bt_model *m = small_model(&s, seed);
    bt_model_quantise(m);
    bt_model_documents(m, positions);
    return taught ? m : teacher_with(s, m);
}

static void relations_have_the_slope_of_their_loss(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        const bool qk_norm = k % 2;
        bt_model *m = related_of(24, true, qk_norm, 5), *t = related_of(32, false, qk_norm, 6),
                 *same = related_of(24, false, qk_norm, 5);
        bt_distil how = {.teacher = t, .mix = 0.5, .tau = 1};
        how.relation_heads = 1 + k / 2;
        if (k > 1) bt_model_documents(m, NULL); /* whole sequences */
        bt_model_distil(m, how);
        const double plain = loss_of_distillation(m);
        how.relation = 3;
        bt_model_distil(m, how);
        assert_true(loss_of_distillation(m) > 1.01 * plain);
        small_slope(m, scaled_loss, 0.3f, 2e-4, 5e-3);
        how = (bt_distil){.teacher = same,
                          .mix = 1,
                          .tau = 1,
                          .relation = 3,
                          .relation_heads = how.relation_heads};
        bt_model_distil(m, how);
        assert_true(fabs(loss_of_distillation(m)) < 1e-5 * plain);
        bt_model_destroy(m);
        bt_model_destroy(t);
        bt_model_destroy(same);
    }
}

/* The values are those of make_golden.py. */
enum { GOLDEN_ROWS = 2, GOLDEN_T = 90, GOLDEN_STEPS = 20 };

static bt_model *golden_model(bool teacher) {
    bt_model_setup s = small_setup(GOLDEN_ROWS, GOLDEN_T, 48, 32, 48);
    bt_model *m;
    s.cfg.norm = teacher ? BT_NORM_PRE : BT_NORM_SUBLN;
    s.cfg.act = BT_ACT_SILU;
    s.cfg.qk_norm = true;
    s.cfg.rope_theta = 10000;
    s.cfg.init_std = teacher ? 0.2 : 0.08;
    s.taught = true;
    s.relation_layer = 2;
    if (teacher) s.cfg.D = 12;
    m = small_model(&s, teacher ? 4 : 3);
    bt_model_quantise(m);
    return teacher ? teacher_with(s, m) : m;
}

static void relations_learn_as_in_pytorch(void **state) {
    (void)state;
    static int32_t in[GOLDEN_ROWS * GOLDEN_T], out[GOLDEN_ROWS * GOLDEN_T];
    bt_optim_span *spans;
    bt_model *m = golden_model(false), *t = golden_model(true);
    bt_optim *o = model_optim(m, &spans);
    chain data = {.seed = 9, .V = 48};
    FILE *f = golden_open("golden_relations.txt");
    char line[1024] = "#";
    assert_non_null(f);
    while (*line == '#') assert_non_null(fgets(line, sizeof line, f));
    (void)fclose(f);
    bt_model_distil(
        m, (bt_distil){.teacher = t, .mix = 0.5, .tau = 2, .relation = 4, .relation_heads = 2});
    char *at = line;
    for (int step = 1; step <= GOLDEN_STEPS; step++) {
        const double want = strtod(at, &at),
                     got = train_step(m, o, &data, in, out, GOLDEN_ROWS, 1, step, 2e-3f);
        print_message("step %d: %.9f, PyTorch %.9f, relative difference %+.1e\n", step, got, want,
                      got / want - 1);
        if (!(fabs(got / want - 1) < 1e-5)) fail_msg("step %d: loss %.9f", step, got);
    }
    bt_optim_destroy(o);
    free(spans);
    bt_model_destroy(m);
    bt_model_destroy(t);
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
        cmocka_unit_test(relations_have_the_slope_of_their_loss),
        cmocka_unit_test(relations_learn_as_in_pytorch),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}
