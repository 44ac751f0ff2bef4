/* test_gguf_read.c - GGUF files of the gguf package are read as the models from which they were made. */
#include "engine/model/net/model.h"
#include "tests/engine/interop/interop_fixture.h"

/* fp32 files contain the same bits as the folder, in any order of rows. */
static void same_weights(const char *a, const char *b, bool codes) {
    bt_model_file *x = open_golden(a), *y = open_golden(b);
    bt_err err = BT_ERR_INIT;
    assert_int_equal(x->params.n, y->params.n);
    assert_int_equal(bt_params_hash(&x->params), bt_params_hash(&y->params));
    float *u = malloc(x->params.total * sizeof *u), *v = malloc(y->params.total * sizeof *v);
    assert_non_null(u);
    assert_non_null(v);
    assert_int_equal(bt_model_file_weights(x, u, &err), BT_OK);
    assert_int_equal(bt_model_file_weights(y, v, &err), BT_OK);
    for (size_t i = 0; i < x->params.n; i++) {
        const bt_tensor *t = &x->params.tensors[i];
        for (size_t k = t->offset; k < t->offset + t->count; k++) {
            const bool same = codes && t->linear ? fabsf(u[k] - v[k]) <= 2e-7f * fabsf(u[k])
                                                 : memcmp(&u[k], &v[k], sizeof u[k]) == 0;
            if (!same)
                fail_msg("%s, element %zu: %.9g, %.9g", t->name, k - t->offset, (double)u[k],
                         (double)v[k]);
        }
    }
    free(u);
    free(v);
    bt_model_file_close(x);
    bt_model_file_close(y);
}

static void fp32_files_hold_the_folder(void **state) {
    (void)state;
    same_weights("llama/llama-f32.gguf", "llama/hf", false);
    same_weights("qwen3/qwen3-f32.gguf", "qwen3/hf", false);
    same_weights("bitnet/bitnet-f32-scale.gguf", "bitnet/hf-packed-autobitlinear", true);
    same_weights("bitnet/bitnet-f32.gguf", "bitnet/hf-packed-autobitlinear", true);
}

static void assert_golden_model(const char *file, const char *model, double bound) {
    expected e;
    bt_model_file *s = open_golden(file);
    expected_read(&e, model);
    const double worst = worst_difference(s, &e, s->cfg.linear != BT_LIN_DENSE);
    if (!(worst < bound)) fail_msg("%s: log probabilities differ by %g", file, worst);
    expected_release(&e);
    bt_model_file_close(s);
}

static void every_type_gives_the_same_output_within_rounding(void **state) {
    (void)state;
    assert_golden_model("llama/llama-f32.gguf", "llama", 1e-4);
    assert_golden_model("llama/llama-q8_0.gguf", "llama", 0.3);
    assert_golden_model("qwen3/qwen3-f32.gguf", "qwen3", 1e-4);
    assert_golden_model("qwen3/qwen3-bf16.gguf", "qwen3", 0.1);
    assert_golden_model("bitnet/bitnet-f32.gguf", "bitnet", 1e-4);
    assert_golden_model("bitnet/bitnet-f32-scale.gguf", "bitnet", 1e-4);
    assert_golden_model("bitnet/bitnet-f16.gguf", "bitnet", 0.1);
    assert_golden_model("bitnet-tq/bitnet-tq-tq2_0-scale.gguf", "bitnet-tq", 0.02);
    assert_golden_model("bitnet-tq/bitnet-tq-tq1_0.gguf", "bitnet-tq", 0.1);
}

static void keys_are_applied(void **state) {
    (void)state;
    bt_model_file *s = open_golden("bitnet/bitnet-f32.gguf");
    assert_int_equal(s->arch, BT_ARCH_BITNET);
    assert_int_equal(s->cfg.act, BT_ACT_RELU2);
    assert_true(s->cfg.tied);
    assert_true(s->cfg.rope_theta == 500000);
    assert_true(s->cfg.norm_eps == 1e-5);
    assert_non_null(strstr(bt_text_str(&s->notes), "relu2"));
    bt_model_file_close(s);
    s = open_golden("llama/llama-f32.gguf");
    assert_false(s->cfg.tied);
    assert_int_equal(s->cfg.linear, BT_LIN_DENSE);
    bt_model_file_close(s);
}

/* The vocabulary in the file equals that of the folder, except for properties that GGUF cannot represent. */
static void the_vocabulary_is_the_same(void **state) {
    (void)state;
    static const char text[] =
        "In the beginning God created 1234 heavens,  and \xc3\xa9\xe4\xb8\xad\n\n don't";
    bt_model_file *g = open_golden("qwen3/qwen3-f32.gguf"), *h = open_golden("qwen3/hf");
    int32_t *a = NULL, *b = NULL;
    size_t n = 0, m = 0, cap_a = 0, cap_b = 0;
    bt_err err = BT_ERR_INIT;
    assert_non_null(g->tokenizer);
    assert_int_equal(bt_tokenizer_vocab(g->tokenizer), bt_tokenizer_vocab(h->tokenizer));
    assert_int_equal(bt_tokenizer_hash(g->tokenizer), bt_tokenizer_hash(h->tokenizer));
    assert_int_equal(bt_tokenizer_eot(g->tokenizer), 256);
    assert_int_equal(bt_tokenizer_encode(g->tokenizer, text, sizeof text - 1, &a, &n, &cap_a, &err),
                     BT_OK);
    assert_int_equal(bt_tokenizer_encode(h->tokenizer, text, sizeof text - 1, &b, &m, &cap_b, &err),
                     BT_OK);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n * sizeof *a);
    free(a);
    free(b);
    bt_model_file_close(g);
    bt_model_file_close(h);
}

static void log_probs_of(const char *path, float got[32]) {
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9};
    bt_model_file *s;
    bt_err err = BT_ERR_INIT;
    if (bt_model_file_open(&s, path, &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_model_file_log_probs(s, ids, 6, got, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_file_close(s);
}

/* Codes (7 i + 3 row + k) mod 3 - 1 and the scale (k + 1) / 32 of matrix k, as make_quantised_golden.py wrote them. */
static void i2_s_has_codes_and_scales(void **state) {
    (void)state;
    static const char *const names[] = {"attn_q",   "attn_k", "attn_v",  "attn_o",
                                        "ffn_gate", "ffn_up", "ffn_down"};
    enum { N = 128 };
    static float w[N * N];
    float probabilities[32];
    bt_err err = BT_ERR_INIT;
    bt_model_file *s = open_golden("quantised/i2_s.gguf");
    assert_int_equal(s->cfg.linear, BT_LIN_BITNET158);
    for (int k = 0; k < 7; k++) {
        size_t t = 0;
        double sum = 0;
        while (!strstr(s->params.tensors[t].name, names[k])) t++;
        if (strstr(s->params.tensors[t].name, "norm")) t++;
        while (!s->params.tensors[t].linear || !strstr(s->params.tensors[t].name, names[k])) t++;
        assert_int_equal(bt_model_file_read(s, t, 0, N * N, w, &err), BT_OK);
        for (int i = 0; i < N * N; i++) {
            const int code = (i * 7 + i / N * 3 + k) % 3 - 1;
            assert_int_equal((w[i] > 0) - (w[i] < 0), code);
            sum += fabs((double)w[i]);
        }
        assert_true(fabs(sum / (N * N) / ((k + 1) / 32.0) - 1) < 1e-5);
    }
    bt_model_file_close(s);
    log_probs_of(golden_path("quantised/i2_s.gguf"), probabilities);
}

/* Ternary weights with a scale for each block are a model with a scale for each group: codes as above, and the scale
 * (1 + (2 row + block + k) mod 7) / 32 of a block in matrix k. Blocks have 64 elements in llama.cpp and 128 in a
 * fork, under one number; of the latter a row has one, so the model is ternary with a scale for each row. */
static void scales_of_blocks_are_kept(void **state) {
    (void)state;
    enum { N = 128 };
    static float w[N * N], scales[2 * N];
    for (int size = 64; size <= 128; size *= 2) {
        bt_err err = BT_ERR_INIT;
        float probabilities[32];
        bt_model_file *s = open_golden(size == 64 ? "quantised/q2_0-64.gguf"
                                                  : "quantised/q2_0-128.gguf");
        assert_int_equal(s->cfg.linear, BT_LIN_BITNET158);
        assert_int_equal(s->cfg.scale, size == 64 ? BT_SCALE_GROUP64 : BT_SCALE_ROW);
        assert_int_equal(s->number, size == 64 ? BT_NUM_Q2_0 : BT_NUM_Q2_0_128);
        int k = 0;
        for (size_t t = 0; t < s->params.n; t++) {
            if (!s->params.tensors[t].linear) continue;
            assert_int_equal(bt_model_file_read(s, t, 0, N * N, w, &err), BT_OK);
            bt_model_scale_rows(scales, w, (size_t)(N * N / size), (size_t)size);
            for (int i = 0; i < N * N; i++) /* of latent weights absmean gives the scales */
                w[i] = scales[i / size] * (float)((w[i] > 0) - (w[i] < 0));
            for (int i = 0; i < N * N; i++) {
                const int code = (i * 7 + i / N * 3 + k) % 3 - 1,
                          step = 1 + (2 * (i / N) + i % N / size + k) % 7;
                assert_true(fabsf(w[i] - (float)(code * step) / 32) <= 1e-6F * fabsf(w[i]));
            }
            k++;
        }
        assert_int_equal(k, 7);
        bt_model_file_close(s);
        log_probs_of(golden_path(size == 64 ? "quantised/q2_0-64.gguf" : "quantised/q2_0-128.gguf"),
                     probabilities);
    }
}

/* A split file is named by its first part. */
static void parts_are_one_model(void **state) {
    (void)state;
    static const char first[] = "part-00001-of-00002.gguf", second[] = "part-00002-of-00002.gguf";
    char command[1200], path[600];
    float whole[32], parts[32];
    bt_model_file *s;
    bt_err err = BT_ERR_INIT;
    log_probs_of(golden_path("quantised/whole.gguf"), whole);
    snprintf(path, sizeof path, "%s", golden_path("quantised/part-00001-of-00002.gguf"));
    log_probs_of(path, parts);
    assert_memory_equal(whole, parts, sizeof whole);
    assert_int_equal(
        bt_model_file_open(&s, golden_path("quantised/part-00002-of-00002.gguf"), &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "part 2 of 2 of a split file: give the first part"));
    snprintf(command, sizeof command, "cp %s %s", path, fixture_path(first));
    assert_int_equal(system(command), 0);
    assert_int_equal(bt_model_file_open(&s, fixture_path(first), &err), BT_NOTFOUND);
    assert_non_null(strstr(err.msg, second));
    snprintf(command, sizeof command, "cp %s %s", path, fixture_path(second));
    assert_int_equal(system(command), 0); /* the first part again, whose tensors are double */
    assert_int_equal(bt_model_file_open(&s, fixture_path(first), &err), BT_FORMAT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_one_model),
        cmocka_unit_test(i2_s_has_codes_and_scales),
        cmocka_unit_test(scales_of_blocks_are_kept),
        cmocka_unit_test(fp32_files_hold_the_folder),
        cmocka_unit_test(every_type_gives_the_same_output_within_rounding),
        cmocka_unit_test(keys_are_applied),
        cmocka_unit_test(the_vocabulary_is_the_same),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
