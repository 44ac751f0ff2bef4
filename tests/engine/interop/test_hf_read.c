/* test_hf_read.c - folders of Hugging Face give the same outputs as in transformers. */
#include "tests/engine/interop/malformed.h"

static void says_the_same(const char *model, const char *folder, double bound) {
    char name[128];
    expected e;
    snprintf(name, sizeof name, "%s/%s", model, folder);
    bt_model_file *s = open_golden(name);
    expected_read(&e, model);
    const double worst = worst_difference(s, &e, s->cfg.linear != BT_LIN_DENSE);
    if (!(worst < bound)) fail_msg("%s: log probabilities differ by %g", name, worst);
    expected_release(&e);
    bt_model_file_close(s);
}

static void latent_weights_of_bitnet(void **state) {
    (void)state;
    says_the_same("bitnet", "hf", 1e-4);
}

/* Wrong conventions would change the output by nats. */
static void packed_codes_with_either_scale(void **state) {
    (void)state;
    says_the_same("bitnet", "hf-packed-bitlinear", 1e-4);
    says_the_same("bitnet", "hf-packed-autobitlinear", 1e-4);
}

static void llama_in_shards_untied(void **state) {
    (void)state;
    bt_model_file *s = open_golden("llama/hf");
    assert_false(s->cfg.tied);
    assert_int_equal(s->stored.n_files, 3);
    assert_non_null(strstr(bt_tokenizer_chat_template(s->tokenizer), "<assistant>"));
    bt_model_file_close(s);
    says_the_same("llama", "hf", 1e-4);
}

static void qwen3_with_wide_heads_and_padded_vocabulary(void **state) {
    (void)state;
    bt_model_file *s = open_golden("qwen3/hf");
    assert_int_equal(s->cfg.H * s->cfg.D, 2 * s->cfg.C);
    assert_int_equal(s->cfg.V, 384);
    assert_int_equal(bt_tokenizer_vocab(s->tokenizer), 320);
    assert_int_equal(bt_tokenizer_eot(s->tokenizer), 256);
    bt_model_file_close(s);
    says_the_same("qwen3", "hf", 1e-4);
}

/* Opens a copy of a golden folder whose config.json has these members added. */
static bt_model_file *open_edited(const char *folder, const char *members) {
    char command[1200], path[600];
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    json_error_t why;
    snprintf(path, sizeof path, "%s/edited", fixture_dir);
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", path, golden_path(folder), path);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s/edited/config.json", fixture_dir);
    json_t *root = json_load_file(path, 0, &why);
    assert_non_null(root);
    json_t *more = json_loads(members, 0, &why);
    if (!more) fail_msg("%s: %s", members, why.text);
    json_object_update(root, more);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(more);
    json_decref(root);
    snprintf(path, sizeof path, "%s/edited", fixture_dir);
    if (bt_model_file_open(&s, path, &err) != BT_OK) fail_msg("%s: %s", members, err.msg);
    return s;
}

static void predicts_as(bt_model_file *s, const char *model) {
    expected e;
    expected_read(&e, model);
    const double worst = worst_difference(s, &e, false);
    if (!(worst < 1e-4)) fail_msg("log probabilities differ by %g", worst);
    expected_release(&e);
}

static void head_of_its_own_is_used_though_config_ties_it(void **state) {
    (void)state;
    bt_model_file *s = open_edited("llama/hf", "{\"tie_word_embeddings\": true}");
    assert_false(s->cfg.tied);
    assert_non_null(strstr(bt_text_str(&s->notes), "'lm_head.weight' holds other values"));
    predicts_as(s, "llama");
    bt_model_file_close(s);
}

/* NAME/variants.json: other rope_parameters (and other members of config.json, if there are any) over the weights of
 * NAME/hf, and what transformers computes. gguf: a file with the weights of the first variant, or NULL */
static void compare_variants(const char *name, size_t n, const char *gguf) {
    json_error_t why;
    bt_err err = BT_ERR_INIT;
    char path[64];
    (void)snprintf(path, sizeof path, "%s/variants.json", name);
    json_t *rows = json_load_file(golden_path(path), 0, &why), *row, *prompt;
    size_t k, i;
    (void)snprintf(path, sizeof path, "%s/hf", name);
    assert_int_equal(json_array_size(rows), n);
    json_array_foreach(rows, k, row) {
        json_t *edit = json_pack("{s:O}", "rope_parameters",
                                 json_object_get(row, "rope_parameters"));
        json_object_update(edit, json_object_get(row, "members"));
        char *members = json_dumps(edit, 0);
        bt_model_file *s = open_edited(path, members);
        expected e = {.n = json_array_size(json_object_get(row, "prompts"))};
        json_array_foreach(json_object_get(row, "prompts"), i, prompt)
            expected_prompt(&e, i, prompt);
        const double worst = worst_difference(s, &e, false);
        if (!(worst < 1e-4))
            fail_msg("%s: log probabilities differ by %g",
                     json_string_value(json_object_get(row, "name")), worst);
        bt_model_file_close(s);
        if (gguf && k == 0) {
            if (bt_model_file_open(&s, golden_path(gguf), &err) != BT_OK) fail_msg("%s", err.msg);
            assert_int_equal(s->cfg.window, 200);
            assert_true(worst_difference(s, &e, false) < 1e-4);
            bt_model_file_close(s);
        }
        expected_release(&e);
        free(members);
        json_decref(edit);
    }
    json_decref(rows);
}

static void models_compute_what_transformers_does(void **state) {
    (void)state;
    compare_variants("qwen2", 6, NULL);
    compare_variants("smollm3", 1, NULL);
    compare_variants("mistral", 1, NULL); /* prompts longer than the window */
    compare_variants("phi3", 4, "phi3/phi3-f32.gguf");
    compare_variants("gemma2", 1, NULL);
    compare_variants("gemma3", 1, NULL);
}

static void layers_without_rope_must_be_every_nth(void **state) {
    (void)state;
    static const struct {
        const char *members;
        int every;
    } good[] = {{"{\"no_rope_layers\": [1, 1, 1, 0]}", 4},
                {"{\"no_rope_layers\": [1, 0, 1, 0]}", 2},
                {"{\"no_rope_layers\": null, \"no_rope_layer_interval\": 3}", 3},
                {"{\"no_rope_layers\": [1, 1, 1, 1]}", 0}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        bt_model_file *s = open_edited("smollm3/hf", good[i].members);
        assert_int_equal(s->cfg.no_rope_every, good[i].every);
        bt_model_file_close(s);
    }
}

static void mistral_without_a_window_is_llama(void **state) {
    (void)state;
#define MISTRAL "\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\""
    bt_model_file *s = open_edited("llama/hf", "{" MISTRAL ", \"sliding_window\": null}");
    assert_int_equal(s->cfg.T, 128);
    predicts_as(s, "llama");
    bt_model_file_close(s);
    s = open_edited("llama/hf", "{" MISTRAL "}"); /* The default window is 4096. */
    assert_string_equal(bt_text_str(&s->notes), "");
    bt_model_file_close(s);
    s = open_edited("llama/hf", "{" MISTRAL ", \"sliding_window\": 8}");
    assert_int_equal(s->cfg.window, 8);
    assert_int_equal(s->cfg.T, 128);
    bt_model_file_close(s);
}

/* Any range of a tensor equals the same range of the whole. */
static void stretches(bt_model_file *s, size_t i) {
    const bt_tensor *t = &s->params.tensors[i];
    float *all = malloc(t->count * sizeof *all), *part = malloc(t->count * sizeof *part);
    bt_err err = BT_ERR_INIT;
    assert_non_null(all);
    assert_non_null(part);
    assert_int_equal(bt_model_file_read(s, i, 0, t->count, all, &err), BT_OK);
    for (size_t step = 1; step < t->count; step = step * 3 + 1)
        for (size_t first = 0; first < t->count; first += step * 7 + 5) {
            const size_t n = t->count - first < step ? t->count - first : step;
            assert_int_equal(bt_model_file_read(s, i, first, n, part, &err), BT_OK);
            assert_memory_equal(part, all + first, n * sizeof *part);
        }
    free(all);
    free(part);
}

static void any_stretch_can_be_read(void **state) {
    (void)state;
    static const char *const models[] = {"bitnet/hf-packed-bitlinear", "llama/hf", "qwen2/hf",
                                         "llama/llama-q8_0.gguf", "bitnet/bitnet-f32-scale.gguf"};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        bt_model_file *s = open_golden(models[m]);
        for (size_t i = 0; i < 8; i++) stretches(s, i);
        bt_model_file_close(s);
    }
}

/* Latent weights constructed from codes quantize to the same codes and scale. */
static void latents_of_codes_have_the_scale(void **state) {
    (void)state;
    bt_model_file *s = open_golden("bitnet/hf-packed-bitlinear");
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        if (!t->linear) continue;
        float *x = malloc(t->count * sizeof *x), scale;
        double sum = 0;
        assert_non_null(x);
        assert_int_equal(bt_model_file_read(s, i, 0, t->count, x, &err), BT_OK);
        assert_int_equal(bt_model_file_scale(s, i, &scale, &err), BT_OK);
        for (size_t k = 0; k < t->count; k++) sum += fabs((double)x[k]);
        assert_true(fabs(sum / (double)t->count / (double)scale - 1) < 1e-6);
        free(x);
    }
    bt_model_file_close(s);
}

/* Renames the sub-norms in the header of a safetensors file to those of 1bitLLM. */
static void rename_sub_norms(const char *path) {
    static const char *const names[][2] = {{"attn_sub_norm", "inner_attn_ln"},
                                           {"ffn_sub_norm", "ffn_layernorm"}};
    size_t n;
    char *file = slurp(path, &n);
    uint64_t length;
    memcpy(&length, file, 8);
    bt_text header = {0};
    for (size_t i = 0; i < length;) {
        size_t k = 0;
        while (k < 2 && strncmp(file + 8 + i, names[k][0], strlen(names[k][0])) != 0) k++;
        if (k < 2)
            bt_text_put(&header, names[k][1]);
        else
            bt_text_putn(&header, file + 8 + i, 1);
        i += k < 2 ? strlen(names[k][0]) : 1;
    }
    while (header.len % 8 != 0) bt_text_put(&header, " ");
    FILE *f = fopen(path, "w");
    const uint64_t longer = header.len;
    assert_non_null(f);
    assert_true(longer > length);
    assert_int_equal(fwrite(&longer, 1, 8, f), 8);
    assert_int_equal(fwrite(header.data, 1, header.len, f), header.len);
    assert_int_equal(fwrite(file + 8 + length, 1, n - 8 - length, f), n - 8 - length);
    assert_int_equal(fclose(f), 0);
    bt_text_release(&header);
    free(file);
}

/* 1bitLLM's BitnetForCausalLM: the same layers with other names of the sub-norms, without quantization_config. */
static void older_bitnet_is_the_same_model(void **state) {
    (void)state;
    static const char config[] = "{\"architectures\": [\"BitnetForCausalLM\"], \"model_type\": "
                                 "\"llama\", \"weight_bits\": 1, "
                                 "\"input_bits\": 8, \"quantization_config\": null}";
    char path[600];
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    bt_model_file_close(open_edited("bitnet/hf", "{}"));
    snprintf(path, sizeof path, "%s/edited/model.safetensors", fixture_dir);
    rename_sub_norms(path);
    snprintf(path, sizeof path, "%s/edited/config.json", fixture_dir);
    json_t *root = json_load_file(path, 0, NULL), *changes = json_loads(config, 0, NULL);
    json_object_update(root, changes);
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(changes);
    json_decref(root);
    snprintf(path, sizeof path, "%s/edited", fixture_dir);
    if (bt_model_file_open(&s, path, &err) != BT_OK) fail_msg("%s", err.msg);
    expected e;
    expected_read(&e, "bitnet");
    const double worst = worst_difference(s, &e, true);
    if (!(worst < 1e-4)) fail_msg("log probabilities differ by %g", worst);
    expected_release(&e);
    bt_model_file_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(older_bitnet_is_the_same_model),
        cmocka_unit_test(latent_weights_of_bitnet),
        cmocka_unit_test(packed_codes_with_either_scale),
        cmocka_unit_test(llama_in_shards_untied),
        cmocka_unit_test(qwen3_with_wide_heads_and_padded_vocabulary),
        cmocka_unit_test(head_of_its_own_is_used_though_config_ties_it),
        cmocka_unit_test(models_compute_what_transformers_does),
        cmocka_unit_test(layers_without_rope_must_be_every_nth),
        cmocka_unit_test(mistral_without_a_window_is_llama),
        cmocka_unit_test(any_stretch_can_be_read),
        cmocka_unit_test(latents_of_codes_have_the_scale),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
