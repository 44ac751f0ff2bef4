// ctest: timeout=300
/* test_malformed.c - untrusted files: each kind of damage is refused with its own message, and every size
 * that is read is compared with the size of the file. */
#include "engine/interop/formats/gguf.h"
#include "engine/interop/hf_config.h"
#include "tests/engine/interop/malformed.h"

/* ---- safetensors ------------------------------------------------------------------------------- */

/* Writes a file with this header, the stated header length `length` (0: the true one) and this number of
 * data bytes. */
static bt_code safetensors(const char *header, uint64_t length, size_t data, bt_err *err) {
    char file[8192] = {0};
    const size_t n = strlen(header);
    bt_stored_list l = {0};
    if (!length) length = n;
    for (int i = 0; i < 8; i++) file[i] = (char)(length >> 8 * i);
    memcpy(file + 8, header, n);
    bt_code code = bt_safetensors_read(&l, fixture_write("x.safetensors", file, 8 + n + data), err);
    bt_stored_release(&l);
    return code;
}

#define T(name, dtype, shape, offsets) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void headers_of_safetensors(void **state) {
    (void)state;
    static const struct {
        const char *header;
        uint64_t length;
        size_t data;
        const char *words;
    } bad[] = {
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 1000, 8, "has a length of 1000 bytes"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", UINT64_MAX, 8, "has a length of"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 1, 8, "but 2 to"},
        {" {" T("a", "F32", "[2]", "[0,8]") "}", 0, 8, "does not begin with '{'"},
        {"[1,2]", 0, 8, "does not begin with '{'"},
        {"{" T("a", "F32", "[2e0]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[-2]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[2.0]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[null]", "[0,8]") "}", 0, 8, "plain whole numbers"},
        {"{\"a\":{\"dtype\":\"F32", 0, 8, "plain whole numbers"},
        {"{" T("a", "F32", "[2]", "[0,8]") ",}", 0, 8, "not valid JSON"},
        {"{" T("a", "F32", "[2]", "[0,8]") "," T("a", "F32", "[2]", "[0,8]") "}", 0, 8,
         "duplicate"},
        {"{" T("a", "F32", "[2]", "[0,99999999999999999999]") "}", 0, 8, "not valid JSON"},
        {"{}", 0, 8, "contains no tensor"},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0, "contains no tensor"},
        {"{\"__metadata__\":{\"n\":1}," T("a", "F32", "[2]", "[0,8]") "}", 0, 8, "is not a text"},
        {"{\"__metadata__\":[]," T("a", "F32", "[2]", "[0,8]") "}", 0, 8, "is not an object"},
        {"{\"a\":[1]}", 0, 8, "does not have 'dtype'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 0, 8, "does not have 'dtype'"},
        {"{" T("a", "F33", "[2]", "[0,8]") "}", 0, 8, "has the type 'F33'"},
        {"{" T("a", "F32", "2", "[0,8]") "}", 0, 8, "0 dimensions"},
        {"{" T("a", "F32", "[]", "[0,4]") "}", 0, 4, "0 dimensions"},
        {"{" T("a", "F32", "[1,1,2]", "[0,8]") "}", 0, 8, "3 dimensions"},
        {"{" T("a", "F32", "[0]", "[0,0]") "}", 0, 0, "no elements"},
        {"{" T("a", "F32", "[\"2\"]", "[0,8]") "}", 0, 8, "a size of tensor 'a'"},
        {"{" T("a", "F32", "[2]", "[8,0]") "}", 0, 8, "is at bytes 8..0"},
        {"{" T("a", "F32", "[2]", "[0,12]") "}", 0, 8, "is at bytes 0..12"},
        {"{" T("a", "F32", "[3]", "[0,8]") "}", 0, 8, "(1 x 3, F32) has 8 bytes"},
        {"{" T("a", "F32", "[4611686018427387904,4]", "[0,8]") "}", 0, 8, "has 8 bytes"},
        {"{" T("a", "F32", "[2]", "[0,8]") "," T("b", "F32", "[1]", "[4,8]") "}", 0, 8,
         "overlaps the one before it"},
        {"{" T("a", "F32", "[1]", "[0,4]") "," T("b", "F32", "[1]", "[8,12]") "}", 0, 12,
         "leaves a hole"},
        {"{" T("a", "F32", "[1]", "[4,8]") "}", 0, 8, "leaves a hole"},
        {"{" T("a", "F32", "[2]", "[0,8]") "}", 0, 9, "end at byte"},
    };
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (bt_err)BT_ERR_INIT;
        says(safetensors(bad[i].header, bad[i].length, bad[i].data, &err), &err, bad[i].words);
    }
    assert_int_equal(safetensors("{" T("a", "F32", "[2]", "[0,8]") "}  ", 0, 8, &err), BT_OK);
    char deep[400] = "{\"a\":";
    for (int i = 0; i < 100; i++) strcat(deep, "[");
    says(safetensors(deep, 0, 0, &err), &err, "nested more than");
    char name[300];
    memset(name, 'n', sizeof name);
    snprintf(name + 120, 100, "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}");
    name[0] = '{';
    name[1] = '"';
    says(safetensors(name, 0, 4, &err), &err, "is longer than");
}

static void write_folder(const char *folder, const char *index) {
    char command[900], path[100];
    snprintf(command, sizeof command, "mkdir -p %s && cp %s/* %s", fixture_path(folder),
             golden_path("llama/hf"), fixture_path(folder));
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%.40s/model.safetensors.index.json", folder);
    if (index) fixture_text(path, index);
}

static void opens_not(const char *folder, const char *words) {
    bt_model_file *s = NULL;
    bt_err err = BT_ERR_INIT;
    says(bt_model_file_open(&s, fixture_path(folder), &err), &err, words);
    assert_null(s);
}

static void shards_and_their_index(void **state) {
    (void)state;
    size_t n;
    write_folder("s1", "{\"weight_map\":{\"a\":\"../x.safetensors\"}}");
    opens_not("s1", "the index does not name a file");
    write_folder("s2", "{\"weight_map\":{}}");
    opens_not("s2", "no 'weight_map'");
    write_folder("s3", "{\"weight_map\":");
    opens_not("s3", "not valid JSON");
    write_folder("s4", "{\"weight_map\":{\"a\":\"model-00001-of-00003.safetensors\"}}");
    opens_not("s4", "not in the file listed by the index");
    write_folder("s5", "{\"weight_map\":{\"a\":\"model-00009-of-00009.safetensors\"}}");
    opens_not("s5", "cannot open");
    write_folder("s6", NULL);
    unlink(fixture_path("s6/model-00002-of-00003.safetensors"));
    opens_not("s6", "model-00002-of-00003.safetensors");
    char *index = slurp(golden_path("llama/hf/model.safetensors.index.json"), &n), *map;
    index[n] = '\0';
    map = strstr(index, "\"weight_map\": {");
    assert_non_null(map);
    bt_text more = {0};
    bt_text_putn(&more, index, (size_t)(map - index) + 15);
    bt_text_put(&more, "\"ghost\": \"model-00001-of-00003.safetensors\", ");
    bt_text_put(&more, map + 15);
    write_folder("s7", bt_text_str(&more));
    opens_not("s7", "'ghost' of the index is not in");
    bt_text_release(&more);
    free(index);
    write_folder("s8", NULL);
    unlink(fixture_path("s8/model.safetensors.index.json"));
    opens_not("s8", "has neither");
    fixture_text("s8/pytorch_model.bin", "x");
    opens_not("s8", "are in 'pytorch_model.bin', whose format is not supported: convert it with");
}

/* Common kinds of files are recognized, and the error names the remedy. */
static void well_known_files_in_place_of_weights(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } rows[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n", 66,
         "is a Git LFS pointer and not the file itself: fetch the file with 'git lfs pull'"},
        {"PK\x03\x04\x08\0\0x/data.pkl\0\0\0", 20, "is a PyTorch checkpoint"},
        {"\x80\x04\x95\0\0\0\0\0\0\0\0\0", 12, "is a Python pickle"},
        {"\x1f\x8b\x08\0\0\0\0\0\0\0", 10, "is gzip-compressed"}};
    write_folder("s9", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture_write("s9/model.safetensors", rows[i].bytes, rows[i].n);
        opens_not("s9", rows[i].words);
    }
    fixture_write("s9/config.json", rows[0].bytes, rows[0].n);
    opens_not("s9", "the file is a Git LFS pointer and not the file itself, not JSON");
}

/* ---- config.json -------------------------------------------------------------------------------- */

static char *with(const char *text, const char *from, const char *to) {
    const char *at = strstr(text, from);
    if (!at) fail_msg("no '%s'", from);
    char *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    return out;
}

typedef struct bad_config {
    const char *from, *to, *words;
} bad_config;

static void refuse_configurations(const char *folder, const bad_config *bad, size_t n_bad) {
    size_t n;
    char *good = slurp(golden_path(folder), &n);
    good[n] = '\0';
    for (size_t i = 0; i < n_bad; i++) {
        bt_hf_config c;
        bt_err err = BT_ERR_INIT;
        char *text = with(good, bad[i].from, bad[i].to);
        const char *path = fixture_text("config.json", text);
        says(bt_hf_config_read(&c, path, NULL, &err), &err, bad[i].words);
        free(text);
    }
    free(good);
}

static void configurations_of_gemma(void **state) {
    (void)state;
    static const bad_config bad[] = {
        {"\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true",
         "'use_bidirectional_attention' is true"},
        {"\"full_attention\",", "\"full_attention\", \"full_attention\",",
         "is not in every Nth layer"},
        {"\"full_attention\",", "", "'layer_types' is not a list of 3 layers"},
        {"\"full_attention\",", "\"chunked_attention\",", "of the kind 'chunked_attention'"},
        {"\"query_pre_attn_scalar\": 8", "\"query_pre_attn_scalar\": -8",
         "'query_pre_attn_scalar' is not a positive number"},
        {"\"final_logit_softcapping\": null", "\"final_logit_softcapping\": \"30\"",
         "'final_logit_softcapping' is not a positive number"},
        {"\"gelu_pytorch_tanh\"", "\"quick_gelu\"", "'quick_gelu' is not supported"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"linear\", \"factor\": 8",
         "'rope_parameters.sliding_attention' is scaled"},
        {"\"Gemma3ForCausalLM\"", "\"Gemma3nForConditionalGeneration\"",
         "'Gemma3nForConditionalGeneration' is not supported"},
    };
    refuse_configurations("gemma3/hf/config.json", bad, sizeof bad / sizeof *bad);
}

#define LONGROPE "\"rope_type\": \"longrope\", \"short_factor\": "

static void configurations(void **state) {
    (void)state;
    static const bad_config bad[] = {
        {"\"LlamaForCausalLM\"", "\"MambaForCausalLM\"",
         "'MambaForCausalLM' is not supported (supported: BitNetForCausalLM, LlamaForCausalLM, "
         "Qwen2ForCausalLM, Qwen3ForCausalLM, SmolLM3ForCausalLM, Phi3ForCausalLM, "
         "MistralForCausalLM, GemmaForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, "
         "BitnetForCausalLM)"},
        {"\"model_type\": \"llama\"", "\"model_type\": \"mistral\"",
         "'model_type' is 'mistral', but 'architectures' is 'LlamaForCausalLM'"},
        {"\"use_cache\": true", "\"logit_scale\": 0.0625",
         "'logit_scale' is 0.0625, which changes"},
        {"\"use_cache\": true", "\"num_local_experts\": 8", "'num_local_experts' is 8"},
        {"\"use_cache\": true", "\"is_causal\": false", "only causal attention"},
        {"\"use_cache\": true", "\"rope_scaling\": {\"factor\": 4.0}", "but no 'rope_type'"},
        {"\"use_cache\": true", "\"rope_scaling\": [4]", "'rope_scaling' is not an object"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5",
         "is not 1"},
        {"\"attention_bias\": false", "\"attention_bias\": 1", "'attention_bias' is true"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": \"2\"", "'num_hidden_layers' is not"},
        {"\"num_hidden_layers\": 2", "\"n\": 2", "'num_hidden_layers' is missing"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": -1", "is -1, but must be 1 to 1024"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 100000", "is 100000"},
        {"\"hidden_size\": 32", "\"hidden_size\": 9223372036854775807", "is 9223372036854775807"},
        {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "must divide"},
        {"\"head_dim\": 8", "\"head_dim\": 7", "must be even"},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "'gelu' is not supported"},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0", "not a positive number"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"dynamic\"", "by the method 'dynamic'"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", "has no 'factor'"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": 0.5", "at least 1"},
        {"\"rope_type\": \"default\"",
         "\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4", "less than rope_high"},
        {"\"rope_type\": \"default\"",
         "\"rope_type\": \"yarn\", \"factor\": 2, \"truncate\": false", "'truncate' of yarn"},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"",
         "'short_factor' of longrope is missing"},
        {"\"rope_type\": \"default\"", LONGROPE "[1, 1, 1, 1]",
         "'long_factor' of longrope is missing"},
        {"\"rope_type\": \"default\"", LONGROPE "7", "'short_factor' of longrope is not a list"},
        {"\"rope_type\": \"default\"", LONGROPE "[1, -1], \"long_factor\": [1, 1]",
         "number 1 of 'short_factor' is not positive"},
        {"\"rope_type\": \"default\"", LONGROPE "[1, \"a\"], \"long_factor\": [1, 1]",
         "number 1 of 'short_factor' is not positive"},
        {"\"rope_type\": \"default\"", LONGROPE "[1, 1, 1], \"long_factor\": [1, 1, 1, 1]",
         "3 short factors and 4 long ones, but must have 4 of each"},
        {"\"rope_type\": \"default\"",
         LONGROPE "[1, 1, 1, 1], \"long_factor\": [1, 1, 1, 1], \"short_mscale\": 1.2",
         "'short_mscale' of longrope is not supported"},
        {"\"rope_type\": \"default\"",
         LONGROPE "[1, 1, 1, 1], \"long_factor\": [1, 1, 1, 1], "
                  "\"original_max_position_embeddings\": 1.5",
         "'original_max_position_embeddings' is not a whole number"},
        {"\"attention_bias\": false", "\"attention_bias\": true", "'attention_bias' is true"},
        {"\"mlp_bias\": false", "\"mlp_bias\": true", "'mlp_bias' is true"},
        {"\"tie_word_embeddings\": false", "\"tie_word_embeddings\": 1", "not true or false"},
        {"\"use_cache\": true", "\"quantization_config\": {\"quant_method\": \"gptq\"}",
         "method 'gptq'"},
        {"\"use_cache\": true",
         "\"quantization_config\": {\"quant_method\": \"bitnet\", \"use_rms_norm\": true}",
         "'use_rms_norm' is true"},
        {"\"use_cache\": true",
         "\"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": \"x\"}",
         "'linear_class' is 'x'"},
        {"\"use_cache\": true", "\"use_cache\": true, \"use_cache\": false", "duplicate"},
        {"\"use_cache\": true", "\"layer_types\": [\"sliding_attention\"]",
         "of the kind 'sliding_attention'"},
        {"{", "[", "not valid JSON"},
    };
    refuse_configurations("llama/hf/config.json", bad, sizeof bad / sizeof *bad);
}

/* a file with tensors of another shape or kind */
static void tensors_that_do_not_fit(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *words;
    } bad[] = {
        {"\"intermediate_size\": 64", "\"intermediate_size\": 96", "is 64 x 32, but should be"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
         "9 tensors of the model are missing"},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1",
         "does not have 9 tensors of the file: model.layers.1."},
        {"\"vocab_size\": 320", "\"vocab_size\": 321", "320 x 32, but"},
        {"\"vocab_size\": 320", "\"vocab_size\": 256", "320 x 32, but"},
        {"\"use_cache\": true",
         "\"quantization_config\": {\"quant_method\": \"bitnet\", \"linear_class\": "
         "\"bitlinear\"}",
         "not packed"},
    };
    size_t n;
    char *good = slurp(golden_path("llama/hf/config.json"), &n);
    good[n] = '\0';
    write_folder("fit", NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *text = with(good, bad[i].from, bad[i].to);
        fixture_text("fit/config.json", text);
        opens_not("fit", bad[i].words);
        free(text);
    }
    free(good);
}

/* ---- any damage --------------------------------------------------------------------------------- */

/* A truncated file is refused, or reading it fails; flipped bits in the head never cause invalid accesses. */
static void try_file(const char *s, size_t n) {
    bt_model_file *x = NULL;
    bt_err err = BT_ERR_INIT;
    bt_code code = bt_model_file_open(&x, fixture_write("d.gguf", s, n), &err);
    if (code == BT_OK && x->params.total < 1 << 20) {
        float *w = malloc(x->params.total * sizeof *w);
        assert_non_null(w);
        code = bt_model_file_weights(x, w, &err);
        free(w);
    }
    if (code != BT_OK) assert_true(err.msg[0] != '\0');
    bt_model_file_close(x);
}

static void cut_and_flipped(void **state) {
    (void)state;
    static const char *const files[] = {"llama/llama-q8_0.gguf", "bitnet/bitnet-f16.gguf"};
    for (size_t f = 0; f < 2; f++) {
        size_t n;
        char *s = slurp(golden_path(files[f]), &n);
        bt_model_file *x = NULL;
        bt_err err;
        uint32_t r = 5;
        for (size_t k = 0; k < n; k += k < 700 ? 1 : 997) {
            err = (bt_err)BT_ERR_INIT;
            assert_int_not_equal(bt_model_file_open(&x, fixture_write("c.gguf", s, k), &err),
                                 BT_OK);
            assert_true(err.msg[0] != '\0');
        }
        for (int i = 0; i < 1500; i++) {
            r = r * 1664525u + 1013904223u;
            const size_t at = (r >> 8) % (i % 2 ? 2000 : 14000);
            const char old = s[at];
            s[at] = (char)(old ^ (1 << (r >> 5) % 8));
            try_file(s, n);
            s[at] = old;
        }
        free(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_of_safetensors),
        cmocka_unit_test(shards_and_their_index),
        cmocka_unit_test(well_known_files_in_place_of_weights),
        cmocka_unit_test(configurations),
        cmocka_unit_test(configurations_of_gemma),
        cmocka_unit_test(tensors_that_do_not_fit),
        cmocka_unit_test(cut_and_flipped),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
