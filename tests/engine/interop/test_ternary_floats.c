/* test_ternary_floats.c - models of other programs whose floats are ternary are recognised, and predict what the
 * program behind them computes; a model with one weight of another size is dense (make_ternary_golden.py). */
#include "engine/interop/init_from.h"
#include "engine/interop/native.h"
#include "tests/engine/interop/malformed.h"

static void predicts_as(const char *name, const char *expected_of, bt_scale_kind scale,
                        bool recognised) {
    char path[128];
    expected e;
    (void)snprintf(path, sizeof path, "ternary/%s", name);
    bt_model_file *s = open_golden(path);
    assert_int_equal(s->cfg.linear, BT_LIN_BITNET158);
    assert_int_equal(s->cfg.scale, scale);
    assert_int_equal(s->recognised, recognised);
    if (recognised)
        assert_non_null(strstr(bt_text_str(&s->notes),
                               scale == BT_SCALE_ROW ? "ternary with one scale for each row"
                                                     : "ternary with one scale for each tensor"));
    (void)snprintf(path, sizeof path, "ternary/%s", expected_of);
    expected_read(&e, path);
    const double worst = worst_difference(s, &e, true);
    print_message("%s: %g\n", name, worst);
    if (!(worst < 1e-4)) fail_msg("%s: log probabilities differ by %g", name, worst);
    expected_release(&e);
    bt_model_file_close(s);
}

static void forms_of_ternary_models_predict_what_their_program_computes(void **state) {
    (void)state;
    predicts_as("tensor-bf16", "tensor-bf16", BT_SCALE_TENSOR, true);
    predicts_as("row-f16", "row-f16", BT_SCALE_ROW, true);
    predicts_as("row-f16.gguf", "row-f16", BT_SCALE_ROW, true);
    predicts_as("packed", "packed", BT_SCALE_TENSOR, false);
    predicts_as("packed-rows", "packed-rows", BT_SCALE_ROW, false);
}

/* Adds `bits` to the last element of a matrix that is not 0, in a copy of row-f16; returns the folder. */
static const char *change_last_element(const char *name, int bits) {
    char path[600], key[128], *at;
    unsigned long long begin, end;
    uint64_t length;
    size_t n;
    const char *folder = fixture_path("changed");
    (void)snprintf(path, sizeof path, "rm -rf %s && cp -r %s %s", folder,
                   golden_path("ternary/row-f16"), folder);
    assert_int_equal(system(path), 0);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    char *file = slurp(path, &n);
    memcpy(&length, file, sizeof length);
    (void)snprintf(key, sizeof key, "\"%s\"", name);
    at = strstr(file + 8, key);
    assert_non_null(at);
    at = strstr(at, "data_offsets\":[");
    assert_int_equal(sscanf(at, "data_offsets\":[%llu,%llu", &begin, &end), 2);
    uint16_t x = 0;
    char *element = file + 8 + length + end;
    while ((x & 0x7fff) == 0) memcpy(&x, element -= 2, 2);
    x = (uint16_t)(x + bits);
    memcpy(element, &x, 2);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(file, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(file);
    return folder;
}

/* The smallest change of one weight, in the last row of the last matrix, makes a dense model. */
static void a_weight_of_another_size_makes_a_dense_model(void **state) {
    (void)state;
    for (int bits = 0; bits < 2; bits++) {
        bt_model_file *s = NULL;
        bt_err err = BT_ERR_INIT;
        const char *folder = change_last_element("model.layers.1.mlp.down_proj.weight", bits);
        if (bt_model_file_open(&s, folder, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(s->recognised, bits == 0);
        assert_int_equal(s->cfg.linear, bits ? BT_LIN_DENSE : BT_LIN_BITNET158);
        assert_int_equal(strstr(bt_text_str(&s->notes), "ternary") != NULL, bits == 0);
        for (size_t i = 0; i < s->params.n && bits; i++) {
            static float w[96 * 64];
            const bt_tensor *t = &s->params.tensors[i];
            assert_false(t->tern || s->places[i].coded || s->places[i].inputs);
            assert_int_equal(bt_model_file_read(s, i, 0, t->count, w, &err), BT_OK);
        }
        bt_model_file_close(s);
    }
}

/* A training that asks for dense layers begins with the values of the file, not with latent weights. */
static void keeps_values(const char *name, const char *tensor) {
    static float w[256 * 512], scales[512];
    bt_text notes = {0};
    bt_err err = BT_ERR_INIT;
    bt_model_file *s = open_golden(name);
    bt_model_cfg dense = s->cfg;
    size_t i = 0;
    while (!strstr(s->params.tensors[i].name, tensor)) i++;
    const size_t count = s->params.tensors[i].count, n = bt_model_file_scales(s, i);
    assert_true(n <= sizeof scales / sizeof *scales && count <= sizeof w / sizeof *w);
    assert_int_equal(bt_model_file_scale(s, i, scales, &err), BT_OK);
    dense.linear = BT_LIN_DENSE;
    dense.scale = BT_SCALE_TENSOR;
    assert_int_equal(bt_init_from_check(s, &dense, &notes, &err), BT_OK);
    assert_int_equal(s->cfg.linear, BT_LIN_DENSE);
    assert_int_equal(bt_model_file_read(s, i, 0, count, w, &err), BT_OK);
    for (size_t k = 0; k < count; k++)
        assert_true(w[k] == 0 || fabsf(w[k]) == scales[k / (count / n)]);
    bt_text_release(&notes);
    bt_model_file_close(s);
}

static void dense_layers_keep_the_floats(void **state) {
    (void)state;
    keeps_values("ternary/row-f16", "ffn_up");
    keeps_values("bitnet-tq/bitnet-tq-tq1_0.gguf", "ffn_up");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_ternary_models_predict_what_their_program_computes),
        cmocka_unit_test(a_weight_of_another_size_makes_a_dense_model),
        cmocka_unit_test(dense_layers_keep_the_floats),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
