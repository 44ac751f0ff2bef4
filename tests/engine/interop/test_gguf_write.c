/* test_gguf_write.c - GGUF files written here contain the bytes that the gguf package writes; files that
 * llama.cpp would reject or compute wrongly are refused. */
#include <sys/stat.h>

#include "engine/interop/formats/gguf.h"
#include "engine/interop/gguf_keys.h"
#include "tests/engine/interop/interop_fixture.h"

typedef struct made {
    bt_code code;
    bt_err err;
    char notes[2000];
} made;

static made write_as(const char *from, const char *name, bt_convert_job job) {
    made m = {.err = BT_ERR_INIT};
    bt_model_file *s = open_golden(from);
    bt_text notes = {0};
    int64_t bytes = 0;
    struct stat st;
    job.to = BT_TO_GGUF;
    job.dest = fixture_path(name);
    unlink(job.dest);
    m.code = bt_convert(s, &job, &notes, &bytes, &m.err);
    snprintf(m.notes, sizeof m.notes, "%.1999s", bt_text_str(&notes));
    if (m.code == BT_OK) {
        assert_int_equal(stat(job.dest, &st), 0);
        assert_int_equal(st.st_size, bytes);
    }
    bt_text_release(&notes);
    bt_model_file_close(s);
    return m;
}

static unsigned char *bytes_of(const bt_stored_list *l, const bt_stored *t) {
    unsigned char *b = malloc(t->bytes);
    bt_err err = BT_ERR_INIT;
    assert_non_null(b);
    assert_int_equal(bt_foreign_read(&l->files[t->file], b, t->bytes, t->at, &err), BT_OK);
    return b;
}

/* A negative value that rounds to zero is -0 in numpy. */
static bool same_but_for_signs_of_zero(const bt_stored *t, const unsigned char *u,
                                       const unsigned char *v) {
    const size_t n = (size_t)(t->rows * t->cols);
    float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
    bool same = t->number == BT_NUM_F32 || t->number == BT_NUM_F16;
    bt_err err = BT_ERR_INIT;
    assert_non_null(x);
    assert_non_null(y);
    assert_int_equal(bt_number_decode(t->number, x, u, n, &err), BT_OK);
    assert_int_equal(bt_number_decode(t->number, y, v, n, &err), BT_OK);
    for (size_t i = 0; i < n; i++) same &= x[i] == y[i];
    free(x);
    free(y);
    return same;
}

/* Compares type, shape and bytes of every tensor. */
static void same_tensors(const char *ours, const char *golden) {
    bt_gguf a, b;
    bt_stored_list x = {0}, y = {0};
    bt_err err = BT_ERR_INIT;
    if (bt_gguf_read(&a, &x, fixture_path(ours), &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_gguf_read(&b, &y, golden_path(golden), &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < x.n; i++) {
        assert_string_equal(x.at[i].name, y.at[i].name);
        assert_int_equal(x.at[i].number, y.at[i].number);
        assert_int_equal(x.at[i].n_dims, y.at[i].n_dims);
        assert_int_equal(x.at[i].bytes, y.at[i].bytes);
        unsigned char *u = bytes_of(&x, &x.at[i]), *v = bytes_of(&y, &y.at[i]);
        if (memcmp(u, v, x.at[i].bytes) != 0 && !same_but_for_signs_of_zero(&x.at[i], u, v))
            fail_msg("%s, %s: '%s' has other bytes", ours, golden, x.at[i].name);
        free(u);
        free(v);
    }
    bt_gguf_release(&a);
    bt_gguf_release(&b);
    bt_stored_release(&x);
    bt_stored_release(&y);
}

static void tensors_have_the_bytes_of_the_package(void **state) {
    (void)state;
    static const struct {
        const char *from, *golden;
        bt_number number;
        bool scale_tensors;
    } all[] = {
        {"llama/hf", "llama/llama-f32.gguf", BT_NUM_F32, false},
        {"llama/hf", "llama/llama-q8_0.gguf", BT_NUM_Q8_0, false},
        {"qwen3/hf", "qwen3/qwen3-f32.gguf", BT_NUM_F32, false},
        {"qwen3/hf", "qwen3/qwen3-bf16.gguf", BT_NUM_BF16, false},
        {"bitnet/hf", "bitnet/bitnet-f32.gguf", BT_NUM_F32, false},
        {"bitnet/hf", "bitnet/bitnet-f16.gguf", BT_NUM_F16, false},
        {"bitnet/hf", "bitnet/bitnet-f32-scale.gguf", BT_NUM_F32, true},
        {"bitnet/hf-packed-autobitlinear", NULL, BT_NUM_F32, false},
        {"bitnet-tq/bitnet-tq-tq2_0-scale.gguf", "bitnet-tq/bitnet-tq-tq2_0-scale.gguf",
         BT_NUM_TQ2_0, true},
        {"bitnet-tq/bitnet-tq-tq1_0.gguf", "bitnet-tq/bitnet-tq-tq1_0.gguf", BT_NUM_TQ1_0, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const made m = write_as(all[i].from, "x.gguf",
                                (bt_convert_job){.number = all[i].number,
                                                 .scale_tensors = all[i].scale_tensors,
                                                 .any_activation = true});
        if (!all[i].golden) { /* The source has no tokenizer. */
            assert_int_equal(m.code, BT_NOTFOUND);
            assert_non_null(strstr(m.err.msg, "without a vocabulary"));
            continue;
        }
        if (m.code != BT_OK) fail_msg("%s: %s", all[i].golden, m.err.msg);
        same_tensors("x.gguf", all[i].golden);
    }
}

/* The keys have the types that llama.cpp requires and the values of the package. */
static void keys_are_those_of_the_package(void **state) {
    (void)state;
    static const char *const files[][2] = {{"llama/hf", "llama/llama-f32.gguf"},
                                           {"bitnet/hf", "bitnet/bitnet-f32.gguf"}};
    for (size_t f = 0; f < 2; f++) {
        bt_gguf a, b;
        bt_stored_list x = {0}, y = {0};
        bt_err err = BT_ERR_INIT;
        assert_int_equal(write_as(files[f][0], "k.gguf",
                                  (bt_convert_job){.number = BT_NUM_F32, .any_activation = true})
                             .code,
                         BT_OK);
        assert_int_equal(bt_gguf_read(&a, &x, fixture_path("k.gguf"), &err), BT_OK);
        assert_int_equal(bt_gguf_read(&b, &y, golden_path(files[f][1]), &err), BT_OK);
        for (size_t i = 0; i < b.n; i++) {
            const bt_gguf_kv *want = &b.kv[i], *got = bt_gguf_find(&a, want->key);
            if (strcmp(want->key, "general.name") == 0 || strstr(want->key, "rope.scaling"))
                continue;
            if (!got) fail_msg("no key '%s'", want->key);
            assert_int_equal(got->type, want->type);
            if (want->type == BT_GGUF_TEXT) assert_string_equal(got->text, want->text);
            if (want->type == BT_GGUF_ARRAY) {
                assert_int_equal(got->element, want->element);
                assert_int_equal(got->count, want->count);
            } else {
                assert_int_equal(got->whole, want->whole);
                assert_true(got->real == want->real);
            }
        }
        bt_gguf_release(&a);
        bt_gguf_release(&b);
        bt_stored_release(&x);
        bt_stored_release(&y);
    }
}

/* Round trip: model, vocabulary, chat template, and settings without a key in llama.cpp. */
static void everything_is_restored(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_model_file *a = open_golden("llama/hf"), *b = NULL;
    assert_int_equal(write_as("llama/hf", "r.gguf", (bt_convert_job){.number = BT_NUM_COUNT}).code,
                     BT_OK);
    assert_int_equal(bt_model_file_open(&b, fixture_path("r.gguf"), &err), BT_OK);
    assert_int_equal(b->number, BT_NUM_F32);
    assert_int_equal(b->cfg.T, a->cfg.T);
    assert_true(b->cfg.norm_eps == a->cfg.norm_eps);
    assert_true(b->cfg.rope_theta == a->cfg.rope_theta);
    assert_int_equal(bt_tokenizer_hash(a->tokenizer), bt_tokenizer_hash(b->tokenizer));
    assert_string_equal(bt_tokenizer_chat_template(a->tokenizer),
                        bt_tokenizer_chat_template(b->tokenizer));
    bt_model_file_close(a);
    bt_model_file_close(b);
    assert_int_equal(write_as("bitnet/hf", "r.gguf",
                              (bt_convert_job){.number = BT_NUM_COUNT, .any_activation = true})
                         .code,
                     BT_OK);
    assert_int_equal(bt_model_file_open(&b, fixture_path("r.gguf"), &err), BT_OK);
    assert_int_equal(b->cfg.act, BT_ACT_RELU2);
    assert_int_equal(b->cfg.linear, BT_LIN_BITNET158);
    assert_int_equal(b->number, BT_NUM_F32); /* Rows of 32 elements fit no ternary type. */
    bt_model_file_close(b);
    assert_int_equal(write_as("bitnet-tq/bitnet-tq-tq1_0.gguf", "r.gguf",
                              (bt_convert_job){.number = BT_NUM_COUNT})
                         .code,
                     BT_OK);
    assert_int_equal(bt_model_file_open(&b, fixture_path("r.gguf"), &err), BT_OK);
    assert_int_equal(b->number, BT_NUM_TQ2_0);
    bt_model_file_close(b);
}

/* a model of llama/hf with this scaling, written and read again */
static bt_rope_scaling written(const bt_rope_scaling *s) {
    bt_err err = BT_ERR_INIT;
    bt_model_file *from = open_golden("llama/hf"), *again = NULL;
    bt_text notes = {0};
    int64_t bytes;
    from->cfg.rope = *s;
    from->cfg.rope_theta =
        500000; /* the slowest frequency is below Llama 3's range, as in its models */
    const bt_convert_job job = {
        .to = BT_TO_GGUF, .dest = fixture_path("rope.gguf"), .number = BT_NUM_F32};
    unlink(job.dest);
    if (bt_convert(from, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_model_file_open(&again, job.dest, &err) != BT_OK) fail_msg("%s", err.msg);
    const bt_rope_scaling got = again->cfg.rope;
    assert_string_equal(bt_text_str(&again->notes), "");
    bt_text_release(&notes);
    bt_model_file_close(from);
    bt_model_file_close(again);
    return got;
}

static void scaling_of_frequencies_comes_back(void **state) {
    (void)state;
    static const bt_rope_scaling rows[] = {
        {0},
        {.method = BT_ROPE_LINEAR, .factor = 4},
        {.method = BT_ROPE_LLAMA3, .factor = 32, .context = 8192, .low = 1, .high = 4},
        {.method = BT_ROPE_YARN, .factor = 4, .context = 32768, .low = 1, .high = 32},
        {.method = BT_ROPE_YARN, .factor = 8, .context = 100, .low = 2, .high = 16, .attention = 2},
        {.method = BT_ROPE_LONGROPE,
         .factor = 32,
         .context = 4096,
         .low = 1,
         .high = 4,
         .shorter = {4, {1, 1.05F, 1.1F, 2}},
         .longer = {4, {1, 3.5F, 40, 64}}},
        {.method = BT_ROPE_LONGROPE,
         .factor = 2,
         .context = 100,
         .low = 1,
         .high = 4,
         .attention = 1.5,
         .shorter = {4, {1, 1, 1, 1}},
         .longer = {4, {1, 2, 3, 4}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_rope_scaling got = written(&rows[i]);
        assert_int_equal(got.method, rows[i].method);
        assert_true(got.factor == rows[i].factor && got.context == rows[i].context);
        assert_true(got.low == rows[i].low && got.high == rows[i].high);
        assert_true(fabs(got.attention - rows[i].attention) < 1e-6);
        assert_memory_equal(&got.shorter, &rows[i].shorter, sizeof got.shorter);
        assert_memory_equal(&got.longer, &rows[i].longer, sizeof got.longer);
    }
}

/* Q2_0 of llama.cpp: the scale is in a tensor of its own, or rounded to fp16 in each block. */
static void q2_0_is_read_back(void **state) {
    (void)state;
    static float want[256 * 256], got[256 * 256];
    for (int scale_tensors = 0; scale_tensors < 2; scale_tensors++) {
        bt_model_file *a = open_golden("bitnet-tq/bitnet-tq-tq2_0-scale.gguf"), *b;
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        int64_t bytes;
        const bt_convert_job job = {.to = BT_TO_GGUF,
                                    .dest = fixture_path("q2_0.gguf"),
                                    .number = BT_NUM_Q2_0,
                                    .scale_tensors = scale_tensors};
        unlink(job.dest);
        if (bt_convert(a, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_non_null(strstr(bt_text_str(&notes), "July 2026"));
        bt_text_release(&notes);
        if (bt_model_file_open(&b, job.dest, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(b->number, BT_NUM_Q2_0);
        assert_int_equal(b->cfg.linear, BT_LIN_BITNET158);
        for (size_t i = 0; i < a->params.n; i++) {
            const bt_tensor *t = &a->params.tensors[i];
            if (!t->linear) continue;
            assert_int_equal(bt_model_file_read(a, i, 0, t->count, want, &err), BT_OK);
            assert_int_equal(bt_model_file_read(b, i, 0, t->count, got, &err), BT_OK);
            for (size_t k = 0; k < t->count; k++)
                assert_true(fabsf(got[k] - want[k]) <=
                            (scale_tensors ? 0 : 6e-4F * fabsf(want[k])));
        }
        bt_model_file_close(a);
        bt_model_file_close(b);
    }
}

/* Codes and scales of a file of bitnet.cpp are those of its source. A model with relu2 has the architecture for which
 * that program computes it. */
static void i2_s_is_read_back(void **state) {
    (void)state;
    static float want[256 * 256], got[256 * 256];
    for (int relu2 = 0; relu2 < 2; relu2++) {
        bt_model_file *a = open_golden("bitnet-tq/bitnet-tq-tq2_0-scale.gguf"), *b;
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        int64_t bytes;
        const bt_convert_job job = {
            .to = BT_TO_GGUF, .dest = fixture_path("i2_s.gguf"), .number = BT_NUM_I2_S};
        unlink(job.dest);
        if (relu2) a->cfg.act = BT_ACT_RELU2;
        if (bt_convert(a, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_null(strstr(bt_text_str(&notes), "silu"));
        bt_text_release(&notes);
        if (bt_model_file_open(&b, fixture_path("i2_s.gguf"), &err) != BT_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(b->cfg.act, a->cfg.act);
        assert_int_equal(b->cfg.linear, BT_LIN_BITNET158);
        assert_int_equal(a->params.n, b->params.n);
        for (size_t i = 0; i < a->params.n; i++) {
            const bt_tensor *t = &a->params.tensors[i];
            if (!t->linear) continue;
            assert_true(t->count <= sizeof want / sizeof *want);
            assert_int_equal(bt_model_file_read(a, i, 0, t->count, want, &err), BT_OK);
            assert_int_equal(bt_model_file_read(b, i, 0, t->count, got, &err), BT_OK);
            assert_memory_equal(want, got, t->count * sizeof *want);
        }
        bt_gguf g;
        bt_stored_list l = {0};
        assert_int_equal(bt_gguf_read(&g, &l, fixture_path("i2_s.gguf"), &err), BT_OK);
        assert_string_equal(bt_gguf_text(&g, "general.architecture"),
                            relu2 ? "bitnet-b1.58" : "bitnet");
        assert_int_equal(bt_gguf_find(&g, "general.file_type")->whole, 40);
        bt_gguf_release(&g);
        bt_stored_release(&l);
        bt_model_file_close(a);
        bt_model_file_close(b);
    }
}

static void assert_gguf_refused(const char *from, bt_convert_job job, const char *words) {
    const made m = write_as(from, "no.gguf", job);
    struct stat st;
    assert_int_not_equal(m.code, BT_OK);
    if (!strstr(m.err.msg, words)) fail_msg("'%s' does not contain '%s'", m.err.msg, words);
    assert_int_not_equal(stat(fixture_path("no.gguf"), &st), 0);
}

static void traps_are_refused_or_reported(void **state) {
    (void)state;
    assert_gguf_refused("bitnet/hf", (bt_convert_job){.number = BT_NUM_F32},
                        "llama.cpp computes silu");
    assert_gguf_refused("bitnet/hf", (bt_convert_job){.number = BT_NUM_F32},
                        "train with --set model.act=silu");
    assert_gguf_refused("bitnet/hf",
                        (bt_convert_job){.number = BT_NUM_TQ2_0, .any_activation = true},
                        "rows of 32 elements, but tq2_0 needs multiples of 256");
    assert_gguf_refused("bitnet-tq/bitnet-tq-tq1_0.gguf",
                        (bt_convert_job){.number = BT_NUM_I2_S, .scale_tensors = true},
                        "stores the scale of a tensor after its codes");
    assert_gguf_refused("llama/hf", (bt_convert_job){.number = BT_NUM_TQ2_0},
                        "is for ternary models");
    assert_gguf_refused("llama/hf", (bt_convert_job){.number = BT_NUM_PACKED},
                        "GGUF files cannot have the type 'packed'");
    made m = write_as("bitnet/hf", "t.gguf",
                      (bt_convert_job){.number = BT_NUM_F32, .any_activation = true});
    assert_non_null(strstr(m.notes, "computes silu where this model has relu2"));
    assert_non_null(strstr(m.notes, "does not round the inputs"));
    m = write_as("bitnet-tq/bitnet-tq-tq1_0.gguf", "t.gguf",
                 (bt_convert_job){.number = BT_NUM_TQ1_0});
    assert_non_null(strstr(m.notes, "int8 by 256"));
    bt_model_file *s = open_golden("bitnet-tq/bitnet-tq-tq1_0.gguf");
    bt_err err = BT_ERR_INIT;
    int64_t bytes;
    bt_text notes = {0};
    const bt_convert_job job = {
        .to = BT_TO_GGUF, .dest = fixture_path("u.gguf"), .number = BT_NUM_F32};
    s->cfg.tied = false;
    assert_int_equal(bt_convert(s, &job, &notes, &bytes, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "head is not the embedding"));
    bt_model_file_close(s);
    bt_text_release(&notes);
}

/* two tokens with one text: a special one spelled like a plain one */
/* Read again, the file has the same configuration and weights. */
static void gemma_is_read_as_it_was_written(void **state) {
    (void)state;
    static const char *const models[] = {"gemma2/hf", "gemma3/hf"};
    for (size_t k = 0; k < 2; k++) {
        bt_err err = BT_ERR_INIT;
        bt_model_file *a = open_golden(models[k]), *b = NULL;
        const made m = write_as(models[k], "g.gguf", (bt_convert_job){.number = BT_NUM_F32});
        if (m.code != BT_OK) fail_msg("%s: %s", models[k], m.err.msg);
        if (bt_model_file_open(&b, fixture_path("g.gguf"), &err) != BT_OK) fail_msg("%s", err.msg);
        const bt_model_cfg *x = &a->cfg, *y = &b->cfg;
        assert_int_equal(x->window, 12);
        assert_int_equal(x->window_every, 2);
        assert_true(x->post_norm && x->embed_scale && x->act == BT_ACT_GELU && x->tied);
        assert_true(x->attention_cap == (k ? 0 : 3) && x->logit_cap == (k ? 0 : 5));
        assert_true(x->rope_local_theta == (k ? 10000 : 0) && x->query_scale == 8);
        assert_int_equal(bt_params_hash(&a->params), bt_params_hash(&b->params));
        assert_true(y->window == x->window && y->window_every == x->window_every);
        assert_true(y->post_norm && y->embed_scale && y->act == BT_ACT_GELU && y->tied);
        assert_true(y->attention_cap == x->attention_cap && y->logit_cap == x->logit_cap);
        assert_true(y->rope_local_theta == x->rope_local_theta && y->query_scale == 8);
        assert_true(y->rope_theta == x->rope_theta && y->rope.factor == x->rope.factor);
        for (size_t i = 0; i < a->params.n; i++) {
            const size_t n = a->params.tensors[i].count;
            float *u = malloc(n * sizeof *u), *v = malloc(n * sizeof *v);
            assert_true(u && v);
            assert_int_equal(bt_model_file_read(a, i, 0, n, u, &err), BT_OK);
            assert_int_equal(bt_model_file_read(b, i, 0, n, v, &err), BT_OK);
            assert_memory_equal(u, v, n * sizeof *u);
            free(u);
            free(v);
        }
        bt_model_file_close(a);
        bt_model_file_close(b);
    }
}

/* The file has the joined tensors of the package gguf, in any order. */
static void heads_that_rotate_in_part_are_written_as_phi3(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_text notes = {0};
    int64_t bytes;
    const bt_convert_job job = {
        .to = BT_TO_GGUF, .dest = fixture_path("x.gguf"), .number = BT_NUM_F32};
    bt_model_file *s = open_golden("phi3/hf"), *t = open_golden("gemma3/hf"), *back = NULL;
    s->tokenizer = t->tokenizer; /* the golden folder has none */
    t->tokenizer = NULL;
    s->cfg.rotary_dim = 12;
    unlink(job.dest);
    if (bt_convert(s, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
    same_tensors("x.gguf", "phi3/phi3-f32.gguf");
    if (bt_model_file_open(&back, job.dest, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(back->cfg.rotary_dim, 12);
    s->cfg.window = 9;
    assert_int_equal(bt_gguf_arch_check(BT_ARCH_PHI3, &s->cfg, false, &err), BT_UNSUPPORTED);
    bt_text_release(&notes);
    bt_model_file_close(back);
    bt_model_file_close(t);
    bt_model_file_close(s);
}

/* llama.cpp has no keys for these properties of Gemma. */
static void gemma_that_llama_cpp_computes_otherwise_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *model, *words;
        size_t member;
        double value;
    } bad[] = {
        {"gemma2/hf", "by the square root of 8, but this model by that of 9",
         offsetof(bt_model_cfg, query_scale), 9},
        {"gemma2/hf", "limits attention scores of gemma2", offsetof(bt_model_cfg, attention_cap),
         0},
        {"gemma3/hf", "does not limit attention scores", offsetof(bt_model_cfg, attention_cap), 9},
        {"gemma2/hf", "limits logits of gemma2", offsetof(bt_model_cfg, logit_cap), 0},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bt_model_file *s = open_golden(bad[i].model);
        bt_err err = BT_ERR_INIT;
        bt_arch arch;
        memcpy((char *)&s->cfg + bad[i].member, &bad[i].value, sizeof bad[i].value);
        assert_int_equal(bt_arch_of_model(&arch, &s->cfg, &err), BT_OK);
        assert_int_equal(bt_gguf_arch_check(arch, &s->cfg, false, &err), BT_UNSUPPORTED);
        if (!strstr(err.msg, bad[i].words)) fail_msg("%s", err.msg);
        bt_model_file_close(s);
    }
    bt_model_file *s = open_golden("gemma2/hf");
    bt_err err = BT_ERR_INIT;
    s->cfg.window_every = 3;
    assert_int_equal(bt_gguf_arch_check(BT_ARCH_GEMMA2, &s->cfg, false, &err), BT_UNSUPPORTED);
    assert_non_null(
        strstr(err.msg, "every layer 2 of gemma2 is global, but in this model every layer 3"));
    s->cfg.window_every = 2;
    s->cfg.act = BT_ACT_SILU;
    assert_int_equal(bt_gguf_arch_check(BT_ARCH_GEMMA2, &s->cfg, false, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "computes gelu in every file of gemma2; this model has silu"));
    bt_model_file_close(s);
}

static void tokens_with_one_text_are_refused(void **state) {
    (void)state;
    bt_model_file *s = open_golden("llama/hf");
    bt_text json = {0};
    bt_err err = BT_ERR_INIT;
    int64_t bytes;
    bt_text notes = {0};
    const bt_convert_job job = {
        .to = BT_TO_GGUF, .dest = fixture_path("d.gguf"), .number = BT_NUM_F32};
    bt_tokenizer_save(s->tokenizer, &json);
    char *at = strstr(json.data, "<|endoftext|>"), *hash = strstr(json.data, "\"hash\":\"");
    assert_non_null(at);
    assert_non_null(hash);
    memcpy(at, "th\"}           ", 15); /* including the quote and brace behind it */
    bt_tokenizer *t = NULL;
    assert_int_not_equal(bt_tokenizer_parse(&t, json.data, json.len, &err), BT_OK);
    const char *gives = strstr(err.msg, "its content has the hash ");
    if (!gives) fail_msg("%s", err.msg);
    memcpy(hash + 8, gives + 25, 16);
    if (bt_tokenizer_parse(&t, json.data, json.len, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_tokenizer_free(s->tokenizer);
    s->tokenizer = t;
    assert_int_equal(bt_convert(s, &job, &notes, &bytes, &err), BT_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "two tokens would have the text 'th'"));
    bt_text_release(&json);
    bt_text_release(&notes);
    bt_model_file_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(i2_s_is_read_back),
        cmocka_unit_test(q2_0_is_read_back),
        cmocka_unit_test(tensors_have_the_bytes_of_the_package),
        cmocka_unit_test(keys_are_those_of_the_package),
        cmocka_unit_test(scaling_of_frequencies_comes_back),
        cmocka_unit_test(everything_is_restored),
        cmocka_unit_test(traps_are_refused_or_reported),
        cmocka_unit_test(gemma_is_read_as_it_was_written),
        cmocka_unit_test(heads_that_rotate_in_part_are_written_as_phi3),
        cmocka_unit_test(gemma_that_llama_cpp_computes_otherwise_is_refused),
        cmocka_unit_test(tokens_with_one_text_are_refused),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
