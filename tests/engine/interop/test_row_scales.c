/* test_row_scales.c - ternary models with a scale for each row or group of inputs (model.scale): every format that can
 * hold them gives back codes and scales, files of other programs are read as such models, and the rest is refused by
 * name. */
#include <sys/stat.h>

#include "engine/kernels/ops/ops.h"
#include "engine/model/net/model.h"
#include "tests/engine/interop/malformed.h"

enum { MOST = 512 * 512, SCALES = MOST / 64 };

static bt_scale_kind kind = BT_SCALE_ROW; /* scales of models opened from now on */

/* Multiplies rows or groups by 1/8 to 5/8, and makes number 7 zeros. */
static bt_code rows_of_several_sizes(void *ctx, bt_model_file *s, size_t i, uint64_t first,
                                     uint64_t count, float *out, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    (void)ctx;
    BT_TRY(bt_model_file_read_own(s, i, first, count, out, err));
    for (uint64_t k = 0; t->tern && k < count; k++) {
        const uint64_t unit = (first + k) / bt_scale_inputs(s->cfg.scale, t->cols);
        out[k] *= unit == 7 ? 0 : (float)(1 + unit % 5) / 8;
    }
    return BT_OK;
}

static bt_code no_scales(void *ctx, bt_model_file *s, size_t i, float *scale, bt_err *err) {
    (void)ctx, (void)s, (void)i, (void)scale, (void)err;
    return BT_OK;
}

static bt_model_file *open_with_rows(void) {
    bt_model_file *s = open_golden("bitnet-tq/bitnet-tq-tq2_0-scale.gguf");
    s->cfg.scale = kind;
    s->view = (bt_model_view){.read = rows_of_several_sizes, .scale = no_scales};
    return s;
}

typedef struct quantised {
    int8_t codes[MOST];
    float scales[SCALES];
    size_t n; /* number of scales */
} quantised;

/* Quantises a tensor as the model does that reads it. */
static void quantise_tensor(bt_model_file *s, size_t i, quantised *q) {
    static float w[MOST];
    const bt_tensor *t = &s->params.tensors[i];
    bt_err err = BT_ERR_INIT;
    const size_t inputs = bt_scale_inputs(kind, t->cols);
    q->n = t->count / inputs;
    assert_true(t->count <= MOST && q->n <= SCALES);
    if (bt_model_file_read(s, i, 0, t->count, w, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_scale_rows(q->scales, w, q->n, inputs);
    for (size_t r = 0; r < q->n; r++)
        (void)bt_op_tern_codes(q->codes + r * inputs, w + r * inputs, 0, 1 / q->scales[r], 0,
                               inputs);
}

static void same_tensors(bt_model_file *a, bt_model_file *b, float tolerance) {
    static quantised x, y;
    size_t seen = 0;
    assert_int_equal(b->cfg.linear, BT_LIN_BITNET158);
    /* all rows have 256 inputs */
    assert_int_equal(b->cfg.scale, kind == BT_SCALE_GROUP256 ? BT_SCALE_ROW : kind);
    assert_int_equal(a->params.n, b->params.n);
    for (size_t i = 0; i < a->params.n; i++) {
        const bt_tensor *t = &a->params.tensors[i];
        if (!t->tern) continue;
        quantise_tensor(a, i, &x);
        quantise_tensor(b, i, &y);
        assert_memory_equal(x.codes, y.codes, t->count);
        for (size_t r = 0; r < x.n; r++)
            if (!(fabsf(x.scales[r] - y.scales[r]) <= tolerance * x.scales[r]))
                fail_msg("%s, scale %zu: %g, written %g", t->name, r, (double)y.scales[r],
                         (double)x.scales[r]);
        assert_true(x.scales[1] != x.scales[2]);
        seen++;
    }
    assert_true(seen > 0);
}

static bt_code convert_rows(bt_convert_job job, bt_text *notes, bt_err *err) {
    bt_model_file *s = open_with_rows();
    int64_t bytes;
    const bt_code code = bt_convert(s, &job, notes, &bytes, err);
    bt_model_file_close(s);
    return code;
}

static void log_probs_of(bt_model_file *s, float *got) {
    static const int32_t ids[] = {3, 1, 4, 1, 5, 9, 2, 6};
    bt_err err = BT_ERR_INIT;
    if (bt_model_file_log_probs(s, ids, 8, got, &err) != BT_OK) fail_msg("%s", err.msg);
}

static double mean_difference(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += fabs((double)a[i] - (double)b[i]);
    return sum / n;
}

/* The scales of blocks are fp16, those of floats have the type's precision. */
static void formats_give_back_codes_and_scales(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bt_convert_job job;
        float tolerance;
        bt_scale_kind scale;
    } rows[] = {
        {"tq1_0.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_TQ1_0}, 6e-4F, BT_SCALE_ROW},
        {"tq2_0.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_COUNT}, 6e-4F, BT_SCALE_ROW},
        {"q2_0.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_Q2_0}, 6e-4F, BT_SCALE_ROW},
        {"f16.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_F16}, 6e-4F, BT_SCALE_ROW},
        {"f32.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_F32}, 1e-6F, BT_SCALE_ROW},
        {"q8_0.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_Q8_0}, 6e-4F, BT_SCALE_ROW},
        {"q8_0-64.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_Q8_0}, 6e-4F, BT_SCALE_GROUP64},
        {"packed", {.to = BT_TO_HF, .number = BT_NUM_PACKED}, 1e-6F, BT_SCALE_ROW},
        {"divided",
         {.to = BT_TO_HF, .number = BT_NUM_PACKED, .inverse_scale = true},
         1e-6F,
         BT_SCALE_ROW},
        {"floats", {.to = BT_TO_HF, .number = BT_NUM_F16}, 6e-4F, BT_SCALE_ROW},
        {"native", {.to = BT_TO_BITRAIN, .number = BT_NUM_COUNT}, 0, BT_SCALE_ROW},
        {"q2_0-64.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_COUNT}, 6e-4F, BT_SCALE_GROUP64},
        {"q2_0-128.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_Q2_0}, 6e-4F, BT_SCALE_GROUP128},
        {"f32-64.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_F32}, 1e-6F, BT_SCALE_GROUP64},
        {"f16-64.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_F16}, 6e-4F, BT_SCALE_GROUP64},
        {"tq1_0-256.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_TQ1_0}, 6e-4F, BT_SCALE_GROUP256},
        {"tq2_0-256.gguf", {.to = BT_TO_GGUF, .number = BT_NUM_COUNT}, 6e-4F, BT_SCALE_GROUP256},
        {"floats-64", {.to = BT_TO_HF, .number = BT_NUM_F32}, 1e-6F, BT_SCALE_GROUP64},
        {"native-64", {.to = BT_TO_BITRAIN, .number = BT_NUM_COUNT}, 0, BT_SCALE_GROUP64},
    };
    static float want[1 << 18], got[1 << 18];
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        kind = rows[k].scale;
        bt_model_file *a = open_with_rows();
        assert_true(a->cfg.V <= 1 << 18);
        log_probs_of(a, want);
        bt_convert_job job = rows[k].job;
        bt_model_file *b = NULL;
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        job.dest = fixture_path(rows[k].name);
        job.any_activation = true;
        if (convert_rows(job, &notes, &err) != BT_OK) fail_msg("%s: %s", rows[k].name, err.msg);
        bt_text_release(&notes);
        if (bt_model_file_open(&b, job.dest, &err) != BT_OK) fail_msg("%s", err.msg);
        print_message("%s\n", rows[k].name);
        same_tensors(a, b, rows[k].tolerance);
        log_probs_of(b, got);
        const double apart = mean_difference(want, got, a->cfg.V);
        print_message("  log probabilities differ by %g\n", apart);
        const double bound = job.number == BT_NUM_Q8_0   ? 0.1 /* of the embedding too */
                             : rows[k].tolerance > 1e-6F ? 0.05
                             : rows[k].tolerance > 0     ? 0.005
                                                         : 0;
        if (!(apart <= bound)) fail_msg("%s: log probabilities differ by %g", rows[k].name, apart);
        bt_model_file_close(b);
        bt_model_file_close(a);
    }
    kind = BT_SCALE_ROW;
}

/* Floats of Hugging Face are codes times scales. Dense layers compute them with the same predictions, except for inputs
 * that are not rounded to int8. */
static void dense_layers_of_the_same_weights_agree(void **state) {
    (void)state;
    static float want[1 << 18], got[1 << 18];
    bt_text notes = {0};
    bt_err err = BT_ERR_INIT;
    bt_model_file *a = open_with_rows(), *b = NULL;
    const bt_convert_job job = {
        .to = BT_TO_HF, .dest = fixture_path("dense"), .number = BT_NUM_F32};
    if (convert_rows(job, &notes, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_non_null(strstr(bt_text_str(&notes), "a scale for each row"));
    bt_text_release(&notes);
    if (bt_model_file_open(&b, job.dest, &err) != BT_OK) fail_msg("%s", err.msg);
    same_tensors(a, b, 1e-6F);
    assert_int_equal(bt_model_file_keep_floats(b, &err), BT_OK);
    assert_int_equal(b->cfg.linear, BT_LIN_DENSE);
    log_probs_of(a, want);
    log_probs_of(b, got);
    const double apart = mean_difference(want, got, a->cfg.V);
    print_message("log probabilities differ by %g\n", apart);
    assert_true(apart < 0.05);
    bt_model_file_close(b);
    a->cfg.scale = BT_SCALE_TENSOR; /* One scale gives other predictions. */
    log_probs_of(a, want);
    print_message("with one scale by %g\n", mean_difference(want, got, a->cfg.V));
    assert_true(mean_difference(want, got, a->cfg.V) > 4 * apart);
    bt_model_file_close(a);
}

static void formats_with_one_scale_refuse(void **state) {
    (void)state;
    static const struct {
        bt_scale_kind scale;
        bt_convert_job job;
        const char *says;
    } rows[] = {
        {BT_SCALE_ROW,
         {.to = BT_TO_GGUF, .number = BT_NUM_I2_S},
         "choose tq1_0, tq2_0, q2_0 or floats"},
        {BT_SCALE_ROW,
         {.to = BT_TO_GGUF, .number = BT_NUM_TQ2_0, .scale_tensors = true},
         "choose tq1_0, tq2_0, q2_0 or floats"},
        {BT_SCALE_GROUP64,
         {.to = BT_TO_GGUF, .number = BT_NUM_I2_S},
         "choose tq1_0, tq2_0, q2_0 or floats"},
        {BT_SCALE_GROUP64, {.to = BT_TO_GGUF, .number = BT_NUM_TQ1_0}, "choose q2_0 or floats"},
        {BT_SCALE_GROUP32, {.to = BT_TO_GGUF, .number = BT_NUM_Q2_0}, "one scale for 64 weights"},
        {BT_SCALE_GROUP64, {.to = BT_TO_HF, .number = BT_NUM_PACKED}, "one for each group"},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bt_convert_job job = rows[k].job;
        kind = rows[k].scale;
        job.any_activation = true;
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        struct stat st;
        job.dest = fixture_path("refused.gguf");
        assert_int_equal(convert_rows(job, &notes, &err), BT_UNSUPPORTED);
        if (!strstr(err.msg, rows[k].says)) fail_msg("%s: %s", rows[k].says, err.msg);
        assert_int_equal(stat(job.dest, &st), -1);
        bt_text_release(&notes);
    }
    kind = BT_SCALE_ROW;
}

/* Exchanges two names of equal length in the header of a file. */
static void exchange_names(char *file, size_t n, const char *a, const char *b) {
    const size_t length = strlen(a);
    int seen = 0;
    for (size_t i = 0; i + length < n; i++) {
        const bool is_a = memcmp(file + i, a, length) == 0;
        if (!is_a && memcmp(file + i, b, length) != 0) continue;
        memcpy(file + i, is_a ? b : a, length);
        seen++;
    }
    assert_int_equal(seen, 2);
}

static void negate_a_scale(char *file, size_t n) {
    uint64_t length;
    char *at = NULL;
    unsigned long long begin;
    (void)n;
    memcpy(&length, file, sizeof length);
    const char last = file[8 + length - 1];
    file[8 + length - 1] = '\0';
    at = strstr(file + 8, "up_proj.weight_scale");
    assert_non_null(at);
    at = strstr(at, "data_offsets\":[");
    assert_int_equal(sscanf(at, "data_offsets\":[%llu", &begin), 1);
    file[8 + length - 1] = last;
    file[8 + length + begin + 4 * 5 + 3] ^= (char)0x80; /* the sign of row 5 */
}

/* A folder is refused whose scales are not one for each row, or are not positive. */
static void bad_scales_are_refused(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        char path[600];
        const char *folder = fixture_path(k ? "negative" : "other_rows");
        bt_text notes = {0};
        bt_err err = BT_ERR_INIT;
        bt_model_file *b = NULL;
        size_t n;
        const bt_convert_job job = {.to = BT_TO_HF, .dest = folder, .number = BT_NUM_PACKED};
        if (convert_rows(job, &notes, &err) != BT_OK) fail_msg("%s", err.msg);
        bt_text_release(&notes);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        char *file = slurp(path, &n);
        if (k)
            negate_a_scale(file, n);
        else
            exchange_names(file, n, "v_proj.weight_scale", "q_proj.weight_scale");
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(file, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
        free(file);
        const bt_code code = bt_model_file_open(&b, folder, &err);
        if (!k) {
            assert_int_equal(code, BT_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "one scale for each tensor, or for each of its"));
            continue;
        }
        assert_int_equal(code, BT_OK);
        float *all = malloc(b->params.total * sizeof *all);
        assert_non_null(all);
        assert_int_equal(bt_model_file_weights(b, all, &err), BT_FORMAT);
        assert_non_null(strstr(err.msg, "not a positive number"));
        free(all);
        bt_model_file_close(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_give_back_codes_and_scales),
        cmocka_unit_test(dense_layers_of_the_same_weights_agree),
        cmocka_unit_test(formats_with_one_scale_refuse),
        cmocka_unit_test(bad_scales_are_refused),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
