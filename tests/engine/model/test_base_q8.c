/* test_base_q8.c - a dense base in blocks of int8 values with one scale each: values that such blocks represent exactly
 * compute as in fp32, other values are near, and 32 values take 34 bytes. */
#include "engine/base/small.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { B = 2, T = 70, V = BT_TABLE8_ROWS + 28, M = B * T };

static int32_t inputs[M], targets[M];

static bt_model_setup setup_of(int rank, bool q8) {
    bt_model_setup s = small_setup(B, T, V, 64, 96);
    s.cfg.init_std = 0.1;
    if (rank) s.cfg.lora = (bt_lora){.rank = rank, .scale = 2, .targets = BT_LORA_ALL};
    s.base_q8 = q8;
    return s;
}

static void to_blocks_and_back(float *x, size_t n) {
    int8_t *codes = malloc(n);
    uint16_t *scales = malloc(n / BT_Q8_BLOCK * sizeof *scales);
    assert_true(codes && scales);
    bt_op_q8_put(codes, scales, x, n);
    const bt_table t = {.i8 = codes, .half_scale = scales, .width = n};
    bt_table_read(x, &t, 0, n);
    free(codes);
    free(scales);
}

/* Only matrices are rounded; norms remain fp32. */
static void round_weights(bt_model *full) {
    const bt_params *p = bt_model_params(full);
    for (size_t i = 0; i < p->n; i++)
        if (p->tensors[i].rows > 1)
            to_blocks_and_back(bt_model_weights(full) + p->tensors[i].offset, p->tensors[i].count);
}

/* Returns adapters whose B is not zero, on the weights of `full`. */
static bt_model *adapters_on_base(bt_model *full, bool q8) {
    const bt_model_setup s = setup_of(4, q8);
    const bt_params *base = bt_model_params(full);
    bt_model *m = small_model(&s, 5);
    for (size_t i = 0; i < base->n; i++)
        bt_model_base_put(m, i, 0, base->tensors[i].count,
                          bt_model_weights(full) + base->tensors[i].offset, 0);
    bt_model_base_done(m);
    bt_rng_normal(bt_model_weights(m), bt_model_params(m)->total, 0, 0.1f, 9, 1);
    return m;
}

static double train_once(bt_model *m) {
    bt_model_zero_grads(m);
    return bt_model_train_micro(m, inputs, targets, 0.01, NULL, NULL);
}

static double scaled_loss(bt_model *m) { return 0.01 * bt_model_eval_micro(m, inputs, targets); }

static double difference_of(bt_model *a, bt_model *b) {
    double diff = 0, norm = 0;
    for (size_t i = 0; i < bt_model_params(a)->total; i++) {
        const double x = (double)bt_model_grads(a)[i], y = (double)bt_model_grads(b)[i];
        diff += (x - y) * (x - y);
        norm += x * x;
    }
    return sqrt(diff / norm);
}

static void blocks_represent_their_values(void **state) {
    enum { N = 4 * BT_Q8_BLOCK };
    float x[N], y[N];
    (void)state;
    bt_rng_normal(x, N, 0, 0.02f, 3, 1);
    for (int i = 0; i < BT_Q8_BLOCK; i++) x[BT_Q8_BLOCK + i] = 0; /* a block of zeros */
    memcpy(y, x, sizeof y);
    to_blocks_and_back(y, N);
    for (size_t b = 0; b < N; b += BT_Q8_BLOCK) {
        float most = 0;
        for (size_t i = b; i < b + BT_Q8_BLOCK; i++) most = fmaxf(most, fabsf(x[i]));
        for (size_t i = b; i < b + BT_Q8_BLOCK; i++)
            /* half a step, plus the rounding of the scale to fp16 over 127 steps */
            assert_true(fabsf(x[i] - y[i]) <= most / 127 * (0.5f + 127.0f / 2048 + 1e-3f));
    }
    memcpy(x, y, sizeof x);
    to_blocks_and_back(y, N);
    assert_memory_equal(x, y, sizeof x); /* Rounding again changes no bit. */
}

static void blocks_compute_as_their_values_do(void **state) {
    (void)state;
    const bt_model_setup s = setup_of(0, false);
    bt_model *full = small_model(&s, 5);
    round_weights(full);
    bt_model *plain = adapters_on_base(full, false), *q8 = adapters_on_base(full, true);
    const double want = train_once(plain), got = train_once(q8);
    /* The head adds dx over 512 rows at a time, which is another order. */
    if (!(fabs(got / want - 1) < 1e-6)) fail_msg("%.9g, in blocks %.9g", want, got);
    const double far = difference_of(plain, q8);
    if (!(far < 1e-5)) fail_msg("gradients are %.2e apart", far);
    bt_model_destroy(full);
    bt_model_destroy(plain);
    bt_model_destroy(q8);
}

static void other_values_are_near(void **state) {
    (void)state;
    const bt_model_setup s = setup_of(0, false);
    bt_model *full = small_model(&s, 5), *plain = adapters_on_base(full, false),
             *q8 = adapters_on_base(full, true);
    const double want = train_once(plain), got = train_once(q8);
    if (!(fabs(got / want - 1) < 5e-3 && got < want + 1e9 && got != want))
        fail_msg("%.9g, in blocks %.9g", want, got);
    const double far = difference_of(plain, q8);
    if (!(far > 1e-5 && far < 0.05)) fail_msg("gradients are %.2e apart", far);
    small_slope(q8, scaled_loss, 1.0f, 2e-4, 3e-3);
    bt_model_destroy(full);
    bt_model_destroy(plain);
    bt_model_destroy(q8);
}

static void a_value_uses_a_byte_and_a_sixteenth(void **state) {
    (void)state;
    const bt_model_setup q8 = setup_of(4, true), plain = setup_of(0, false);
    bt_params p;
    bt_err err = BT_ERR_INIT;
    size_t values = 0, matrices = 0;
    assert_int_equal(bt_params_init(&p, &plain.cfg, (bt_model_slice){0}, &err), BT_OK);
    for (size_t i = 0; i < p.n; i++)
        if (p.tensors[i].rows > 1) values += p.tensors[i].count, matrices++;
    const size_t bytes = bt_model_base_bytes(&q8);
    assert_true(bytes >= values + values / 16 && bytes <= values + values / 16 + 128 * matrices);
    bt_params_release(&p);
    /* The widths end within a block. */
    bt_model_setup odd = q8;
    assert_true(bt_model_fits_q8(&odd));
    odd.cfg.F = 100;
    assert_false(bt_model_fits_q8(&odd));
    odd.cfg.F = 96;
    odd.leaves = 2; /* 48 inputs of ffn_down per leaf */
    assert_false(bt_model_fits_q8(&odd));
}

static int setup(void **state) {
    for (int i = 0; i < M; i++) {
        inputs[i] = (int32_t)(bt_rng_u64(3, 0, (uint64_t)i) % V);
        targets[i] = i % 5 ? (int32_t)(bt_rng_u64(3, 1, (uint64_t)i) % V) : -1;
    }
    return engine_start(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_represent_their_values),
        cmocka_unit_test(blocks_compute_as_their_values_do),
        cmocka_unit_test(other_values_are_near),
        cmocka_unit_test(a_value_uses_a_byte_and_a_sixteenth),
    };
    return cmocka_run_group_tests(tests, setup, engine_stop);
}
