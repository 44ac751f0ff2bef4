/* test_hf_write.c - folders written here contain the bytes that transformers writes. */
#include <sys/stat.h>

#include "tests/engine/interop/interop_fixture.h"

static char *slurp(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    char *s = malloc(1 << 22);
    if (!f) fail_msg("cannot open '%s'", path);
    assert_non_null(s);
    *n = fread(s, 1, 1 << 22, f);
    s[*n < (1 << 22) ? *n : (1 << 22) - 1] = '\0';
    fclose(f);
    return s;
}

static void same_file(const char *a, const char *b) {
    size_t n, m;
    char *x = slurp(a, &n), *y = slurp(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static const char *in(const char *folder, const char *name) {
    char path[120];
    snprintf(path, sizeof path, "%.40s/%.70s", folder, name);
    return fixture_path(path);
}

static bt_code write_as(const char *from, const char *name, bt_convert_job job, bt_err *err) {
    bt_model_file *s = open_golden(from);
    bt_text notes = {0};
    int64_t bytes = 0;
    job.dest = fixture_path(name);
    bt_code code = bt_convert(s, &job, &notes, &bytes, err);
    bt_text_release(&notes);
    bt_model_file_close(s);
    return code;
}

static void must_write(const char *from, const char *name, bt_convert_job job) {
    bt_err err = BT_ERR_INIT;
    if (write_as(from, name, job, &err) != BT_OK) fail_msg("%s: %s", name, err.msg);
}

/* The written folder is read without notes, and its configuration is that of the golden one. */
static void must_read_as_golden(const char *folder, const char *golden) {
    bt_model_file *a = open_golden(golden), *b = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_model_file_open(&b, fixture_path(folder), &err) != BT_OK) fail_msg("%s", err.msg);
    assert_string_equal(bt_text_str(&b->notes), "");
    assert_memory_equal(&a->cfg, &b->cfg, sizeof a->cfg);
    bt_model_file_close(a);
    bt_model_file_close(b);
}

static void weights_have_the_bytes_of_transformers(void **state) {
    (void)state;
    must_write("bitnet/hf", "b", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_BF16});
    same_file(in("b", "model.safetensors"), golden_path("bitnet/hf/model.safetensors"));
    must_write("qwen3/hf", "q", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F16});
    same_file(in("q", "model.safetensors"), golden_path("qwen3/hf/model.safetensors"));
    same_file(in("b", "tokenizer.json"), in("q", "tokenizer.json"));
    /* norms of Gemma are stored minus 1 */
    must_write("gemma3/hf", "g", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_BF16});
    same_file(in("g", "model.safetensors"), golden_path("gemma3/hf/model.safetensors"));
    must_write("gemma2/hf", "g2", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_BF16});
    same_file(in("g2", "model.safetensors"), golden_path("gemma2/hf/model.safetensors"));
    must_read_as_golden("g", "gemma3/hf");
    must_read_as_golden("g2", "gemma2/hf");
    /* Phi-3 joins q, k, v and gate, up; a class with separate tensors computes it unless heads rotate in part */
    bt_model_file *s = open_golden("phi3/hf");
    bt_err err = BT_ERR_INIT;
    bt_text notes = {0};
    int64_t bytes;
    s->cfg.rotary_dim = 12;
    const bt_convert_job job = {.to = BT_TO_HF, .number = BT_NUM_F32, .dest = fixture_path("phi")};
    if (bt_convert(s, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
    same_file(in("phi", "model.safetensors"), golden_path("phi3/hf/model.safetensors"));
    bt_text_release(&notes);
    bt_model_file_close(s);
}

static bt_code as_floats(void *ctx, bt_model_file *s, size_t i, uint64_t first, uint64_t count,
                         float *out, bt_err *err) {
    ++*(int *)ctx;
    return bt_model_file_read_own(s, i, first, count, out, err);
}

/* Codes copied between files without floats give the same bytes as latent weights that are read as floats
 * and quantised again, here through a view. */
static void codes_have_the_bytes_of_latent_weights(void **state) {
    (void)state;
    static const char *const sources[] = {
        "bitnet-tq/bitnet-tq-tq1_0.gguf", "bitnet-tq/bitnet-tq-tq2_0-scale.gguf",
        "bitnet/bitnet-f32.gguf",         "bitnet/bitnet-f32-scale.gguf",
        "bitnet/bitnet-f16.gguf",         "bitnet/hf-packed-bitlinear",
        "bitnet/hf-packed-autobitlinear"};
    bt_err err = BT_ERR_INIT;
    for (size_t k = 0; k < sizeof sources / sizeof *sources; k++) {
        char name[2][16];
        for (int plain = 0; plain < 2; plain++) {
            int reads = 0;
            bt_text notes = {0};
            int64_t bytes;
            bt_model_file *s = open_golden(sources[k]);
            bt_convert_job job = {.to = BT_TO_HF, .number = BT_NUM_PACKED};
            if (plain) s->view = (bt_model_view){.ctx = &reads, .read = as_floats};
            snprintf(name[plain], sizeof name[plain], "codes%zu-%d", k, plain);
            job.dest = fixture_path(name[plain]);
            if (bt_convert(s, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
            assert_int_equal(plain, reads > 0);
            bt_text_release(&notes);
            bt_model_file_close(s);
        }
        same_file(in(name[0], "model.safetensors"), in(name[1], "model.safetensors"));
    }
}

typedef struct heard {
    int n;
    double last;
} heard;

static void check_progress_grows(void *ctx, double done) {
    heard *h = ctx;
    assert_true(done >= h->last && done <= 1);
    h->n++;
    h->last = done;
}

/* Progress counts each element once, in every format and form of codes, and ends at the total. */
static void progress_ends_at_the_total(void **state) {
    static const struct {
        const char *from, *name;
        bt_convert_job job;
    } rows[] = {{"qwen3/qwen3-f32.gguf", "w-hf", {.to = BT_TO_HF, .number = BT_NUM_F32}},
                {"qwen3/qwen3-f32.gguf", "w-gguf", {.to = BT_TO_GGUF, .number = BT_NUM_F32}},
                {"bitnet/bitnet-f32.gguf", "w-packed", {.to = BT_TO_HF, .number = BT_NUM_PACKED}}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bt_model_file *s = open_golden(rows[k].from);
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        int64_t bytes;
        heard h = {0};
        bt_convert_job job = rows[k].job;
        job.dest = fixture_path(rows[k].name);
        s->watch = (bt_model_watch){.progress = check_progress_grows, .ctx = &h};
        if (bt_convert(s, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_true(h.n >= (int)s->params.n && h.last == 1);
        uint64_t all = 0;
        for (size_t i = 0; i < s->params.n; i++) all += s->params.tensors[i].count;
        assert_int_equal(s->watch.elems, all);
        bt_text_release(&notes);
        bt_model_file_close(s);
    }
}

/* the source is a GGUF file, whose rows have another order */
static void a_file_becomes_the_folder(void **state) {
    (void)state;
    must_write("qwen3/qwen3-f32.gguf", "qg",
               (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F16});
    same_file(in("qg", "model.safetensors"), golden_path("qwen3/hf/model.safetensors"));
    must_write("llama/llama-f32.gguf", "lg",
               (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F32});
    must_write("llama/hf", "l", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F32});
    same_file(in("l", "model.safetensors"), in("lg", "model.safetensors"));
}

static void says_the_same(const char *from, const char *to, double bound) {
    bt_model_file *a = open_golden(from), *b = NULL;
    bt_err err = BT_ERR_INIT;
    bt_probe p, q;
    assert_int_equal(bt_model_file_open(&b, fixture_path(to), &err), BT_OK);
    assert_int_equal(bt_probe_source(a, 256, &p, &err), BT_OK);
    assert_int_equal(bt_probe_source(b, 256, &q, &err), BT_OK);
    const bt_probe_difference d = bt_probe_compare(&p, &q);
    if (!(d.largest <= bound)) fail_msg("%s: %g", to, d.largest);
    assert_int_equal(d.same_first, BT_PROBES);
    bt_probe_release(&p);
    bt_probe_release(&q);
    bt_model_file_close(a);
    bt_model_file_close(b);
}

static void shards_and_packed_codes_are_equal(void **state) {
    (void)state;
    struct stat st;
    must_write("llama/hf", "shards",
               (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F32, .shard_bytes = 50000});
    assert_int_equal(stat(in("shards", "model-00002-of-00004.safetensors"), &st), 0);
    says_the_same("llama/hf", "shards", 0);
    must_write("bitnet/hf", "p", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_PACKED});
    says_the_same("bitnet/hf", "p", 1e-5);
    must_write("bitnet/hf", "pd",
               (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_PACKED, .inverse_scale = true});
    says_the_same("bitnet/hf", "pd", 1e-5);
}

static void config_has_both_spellings(void **state) {
    (void)state;
    size_t n;
    must_write("bitnet/hf", "c", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_BF16});
    char *s = slurp(in("c", "config.json"), &n);
    static const char *const parts[] = {
        "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":500000.0}",
        ",\"rope_theta\":500000.0,",
        "\"dtype\":\"bfloat16\"",
        "\"torch_dtype\":\"bfloat16\"",
        ("\"quantization_config\":{\"quant_method\":\"bitnet\",\"linear_class\":\"autobitlinear\","
         "\"quantization_mode\":\"online\"}"),
        "\"hidden_act\":\"relu2\"",
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(s, parts[i])) fail_msg("no %s in %s", parts[i], s);
    free(s);
    /* A folder keeps its tokenizer files; a GGUF file has none. */
    must_write("bitnet/bitnet-f32.gguf", "cg",
               (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F32});
    s = slurp(in("cg", "tokenizer_config.json"), &n);
    assert_non_null(strstr(s, "PreTrainedTokenizerFast"));
    assert_non_null(strstr(s, "\"eos_token\":\"<|endoftext|>\""));
    free(s);
}

/* Longrope in both spellings: rope_scaling has the keys that transformers 4 permits. A factor on cosine
 * and sine is written if it is not that of the lengths. */
static void longrope_is_read_back(void **state) {
    (void)state;
    for (int given = 0; given < 2; given++) {
        const char *const folder = given ? "longrope-given" : "longrope";
        bt_model_file *a = open_golden("llama/hf"), *b = NULL;
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        int64_t bytes = 0;
        size_t n;
        a->cfg.rope = (bt_rope_scaling){.method = BT_ROPE_LONGROPE,
                                        .factor = 8,
                                        .context = 32,
                                        .low = 1,
                                        .high = 4,
                                        .attention = given ? 1.5 : 0,
                                        .shorter = {4, {1, 1.05F, 1.1F, 2}},
                                        .longer = {4, {1, 3.5F, 40, 64}}};
        const bt_convert_job job = {
            .to = BT_TO_HF, .number = BT_NUM_F32, .dest = fixture_path(folder)};
        if (bt_convert(a, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
        if (bt_model_file_open(&b, job.dest, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_string_equal(bt_text_str(&b->notes), "");
        assert_int_equal(b->cfg.T, 256);
        assert_memory_equal(&a->cfg.rope, &b->cfg.rope, sizeof a->cfg.rope);
        char *s = slurp(in(folder, "config.json"), &n);
        static const char *const parts[] = {
            "\"architectures\":[\"Phi3ForCausalLM\"]",
            "\"original_max_position_embeddings\":32,\"hidden_act\"",
            "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":["};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (!strstr(s, parts[i])) fail_msg("no %s in %s", parts[i], s);
        free(s);
        bt_text_release(&notes);
        bt_model_file_close(a);
        bt_model_file_close(b);
    }
}

/* The tokenizer is converted: tokenizer.json -> ours -> tokenizer.json -> ours. */
static void the_tokenizer_is_restored(void **state) {
    (void)state;
    static const char *const files[] = {"hf_gpt2.json", "hf_llama3.json", "hf_qwen2.json"};
    for (size_t i = 0; i < 3; i++) {
        char path[600];
        bt_tokenizer *a, *b;
        bt_text text = {0};
        bt_err err = BT_ERR_INIT;
        snprintf(path, sizeof path, "%s/tests/engine/data/%s", getenv("BT_SRC"), files[i]);
        if (bt_tokenizer_import(&a, path, &err) != BT_OK) fail_msg("%s", err.msg);
        if (bt_tokenizer_export(a, &text, &err) != BT_OK) fail_msg("%s", err.msg);
        fixture_text("t.json", bt_text_str(&text));
        if (bt_tokenizer_import(&b, fixture_path("t.json"), &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(bt_tokenizer_hash(a), bt_tokenizer_hash(b));
        assert_int_equal(bt_tokenizer_eot(a), bt_tokenizer_eot(b));
        bt_text_release(&text);
        bt_tokenizer_free(a);
        bt_tokenizer_free(b);
    }
}

static void assert_hf_refused(const char *from, bt_convert_job job, const char *says) {
    bt_err err = BT_ERR_INIT;
    struct stat st;
    assert_int_not_equal(write_as(from, "refused", job, &err), BT_OK);
    if (!strstr(err.msg, says)) fail_msg("'%s' does not contain '%s'", err.msg, says);
    assert_int_not_equal(stat(fixture_path("refused"), &st), 0);
}

static void unsupported_models_are_refused(void **state) {
    (void)state;
    assert_hf_refused("llama/hf", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_Q8_0},
                      "cannot have the type 'q8_0'");
    assert_hf_refused("llama/hf", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_PACKED},
                      "dense");
    bt_err err = BT_ERR_INIT;
    must_write("llama/hf", "there", (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F32});
    assert_int_equal(write_as("llama/hf", "there",
                              (bt_convert_job){.to = BT_TO_HF, .number = BT_NUM_F32}, &err),
                     BT_BUSY);
    assert_non_null(strstr(err.msg, "exists already"));
}

static void models_without_a_transformers_class(void **state) {
    (void)state;
    bt_arch a;
    bt_err err = BT_ERR_INIT;
    bt_model_cfg c = {.C = 64, .H = 4, .D = 16, .norm = BT_NORM_SUBLN};
    assert_int_equal(bt_arch_of_model(&a, &c, &err), BT_OK);
    assert_int_equal(a, BT_ARCH_BITNET);
    c.D = 32;
    assert_int_equal(bt_arch_of_model(&a, &c, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "4 x 32"));
    c.D = 16;
    c.qk_norm = true;
    assert_int_equal(bt_arch_of_model(&a, &c, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "QK-norm"));
    c.norm = BT_NORM_PRE;
    assert_int_equal(bt_arch_of_model(&a, &c, &err), BT_OK);
    assert_int_equal(a, BT_ARCH_QWEN3);
    c.norm = BT_NORM_BITLINEAR;
    assert_int_equal(bt_arch_of_model(&a, &c, &err), BT_UNSUPPORTED);
    c.norm = BT_NORM_PRE;
    c.linear = BT_LIN_BITNET1;
    assert_int_equal(bt_arch_of_model(&a, &c, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "bitnet1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_have_the_bytes_of_transformers),
        cmocka_unit_test(codes_have_the_bytes_of_latent_weights),
        cmocka_unit_test(progress_ends_at_the_total),
        cmocka_unit_test(a_file_becomes_the_folder),
        cmocka_unit_test(shards_and_packed_codes_are_equal),
        cmocka_unit_test(config_has_both_spellings),
        cmocka_unit_test(longrope_is_read_back),
        cmocka_unit_test(the_tokenizer_is_restored),
        cmocka_unit_test(unsupported_models_are_refused),
        cmocka_unit_test(models_without_a_transformers_class),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
