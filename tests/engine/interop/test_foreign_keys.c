/* foreign_keys: no unread key is ignored silently. One more key in any object of a golden config.json, or in
 * any part of a GGUF file, is refused or reported; a key that changes the numbers is refused; the golden
 * files have none. */
#include "engine/interop/native.h"
#include "tests/engine/interop/malformed.h"

#define EXTRA "unheard_of"

static json_t *load(const char *path) {
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why);
    if (!root) fail_msg("%s: %s", path, why.text);
    return root;
}

/* Returns the k-th object of a tree in depth-first order; NULL if there are fewer. */
static json_t *object_at(json_t *v, int *k) {
    const char *key;
    json_t *inner, *found = NULL;
    size_t i;
    if (json_is_object(v) && (*k)-- == 0) return v;
    json_object_foreach(v, key, inner) if (!found) found = object_at(inner, k);
    json_array_foreach(v, i, inner) if (!found) found = object_at(inner, k);
    return found;
}

static const char *copied_folder(const char *folder) {
    char command[1200];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", fixture_path("folder"),
             golden_path(folder), fixture_path("folder"));
    assert_int_equal(system(command), 0);
    return fixture_path("folder");
}

/* Checks that the error or a note names the key. */
static void is_named(bt_code code, const bt_model_file *s, const bt_err *err, const char *key) {
    const char *text = code == BT_OK ? bt_text_str(&s->notes) : err->msg;
    if (!strstr(text, key)) fail_msg("'%s' is not named: %s", key, text);
}

static void extra_keys_in_folders(void **state) {
    (void)state;
    static const char *const folders[] = {"bitnet/hf", "bitnet/hf-packed-bitlinear", "llama/hf",
                                          "qwen3/hf"};
    int objects = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        bt_err err = BT_ERR_INIT;
        bt_model_file *s = open_golden(folders[f]);
        assert_string_equal(bt_text_str(&s->notes), "");
        bt_model_file_close(s);
        for (int at = 0;; at++, objects++) {
            char path[200];
            int k = at;
            copied_folder(folders[f]);
            snprintf(path, sizeof path, "%s/config.json", fixture_path("folder"));
            json_t *root = load(path), *o = object_at(root, &k);
            if (o) json_object_set_new(o, EXTRA, json_real(0.5));
            assert_int_equal(json_dump_file(root, path, 0), 0);
            json_decref(root);
            if (!o) break;
            bt_code code = bt_model_file_open(&s, fixture_path("folder"), &err);
            is_named(code, s, &err, EXTRA);
            bt_model_file_close(s);
        }
    }
    assert_true(objects >= 8);
}

static void put(bt_text *b, uint64_t v, int bytes) {
    char raw[8];
    for (int i = 0; i < bytes; i++) raw[i] = (char)(v >> 8 * i);
    bt_text_putn(b, raw, (size_t)bytes);
}

static void put_key(bt_text *b, const char *key, uint32_t type) {
    put(b, strlen(key), 8);
    bt_text_put(b, key);
    put(b, type, 4);
}

typedef struct extra {
    const char *key;
    uint32_t type; /* 4 u32, 6 f32, 7 bool, 8 text */
    double number;
    const char *text;
} extra;

static void put_value(bt_text *b, const extra *x) {
    const float real = (float)x->number;
    put_key(b, x->key, x->type);
    if (x->type == 8) {
        put(b, strlen(x->text), 8);
        bt_text_put(b, x->text);
    } else if (x->type == 6) {
        bt_text_putn(b, (const char *)&real, 4);
    } else {
        put(b, (uint64_t)x->number, x->type == 7 ? 1 : 4);
    }
}

/* A golden file with one more key. A second one, a URL, pads to a multiple of the alignment of 32, so that
 * the tensors keep their offsets. */
static const char *gguf_with(const char *file, const extra *x) {
    static const char filler[] = "general.url";
    size_t n;
    char *s = slurp(golden_path(file), &n);
    bt_text out = {0};
    uint64_t keys;
    memcpy(&keys, s + 16, 8);
    bt_text_putn(&out, s, 16);
    put(&out, keys + 2, 8);
    put_value(&out, x);
    put_key(&out, filler, 8);
    const size_t room = (32 - (out.len + 8 - 24) % 32) % 32;
    put(&out, room, 8);
    for (size_t i = 0; i < room; i++) bt_text_put(&out, "u");
    bt_text_putn(&out, s + 24, n - 24);
    const char *path = fixture_write("extra.gguf", out.data, out.len);
    bt_text_release(&out);
    free(s);
    return path;
}

static void extra_keys_in_gguf(void **state) {
    (void)state;
    static const char *const keys[] = {EXTRA,
                                       "general." EXTRA,
                                       "llama." EXTRA,
                                       "llama.rope." EXTRA,
                                       "llama.rope.scaling." EXTRA,
                                       "llama.attention." EXTRA,
                                       "tokenizer." EXTRA,
                                       "tokenizer.ggml." EXTRA,
                                       "bitrain." EXTRA,
                                       "llama.logit_scale",
                                       "qwen3.block_count"};
    bt_model_file *s = open_golden("llama/llama-f32.gguf");
    assert_string_equal(bt_text_str(&s->notes), "");
    bt_model_file_close(s);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const extra x = {.key = keys[i], .type = 6, .number = 0.5};
        bt_err err = BT_ERR_INIT;
        bt_code code = bt_model_file_open(&s, gguf_with("llama/llama-f32.gguf", &x), &err);
        is_named(code, s, &err, keys[i]);
        bt_model_file_close(s);
    }
}

static void keys_that_change_the_numbers_are_refused(void **state) {
    (void)state;
    static const struct {
        extra x;
        const char *words; /* NULL: the value has no effect */
    } rows[] = {
        {{"llama.rope.scale_linear", 6, 4, NULL}, "'llama.rope.scale_linear' is 4"},
        {{"llama.rope.scaling.type", 8, 0, "longrope"}, "no tensors 'rope_factors_short.weight'"},
        {{"llama.rope.scaling.type", 4, 1, NULL}, "is not a text"},
        {{"llama.rope.scaling.attn_factor", 6, 0.5, NULL},
         "'llama.rope.scaling.attn_factor' is 0.5"},
        {{"llama.attention.causal", 7, 0, NULL}, "'llama.attention.causal' is 0"},
        {{"llama.attention.max_alibi_bias", 6, 8, NULL}, "max_alibi_bias' is 8"},
        {{"llama.expert_count", 4, 2, NULL}, "'llama.expert_count' is 2"},
        {{"llama.expert_count", 8, 0, "2"}, "is a list or a text"},
        {{"general.type", 8, 0, "adapter"}, "does not contain a model but 'adapter'"},
        {{"general.type", 4, 1, NULL}, "does not contain a model"},
        {{"split.count", 4, 2, NULL}, "must end in -00001-of-00002.gguf"},
        {{"llama.rope.scaling.factor", 6, 1, NULL}, NULL},
        {{"llama.rope.scaling.type", 8, 0, "none"}, NULL},
        {{"llama.attention.causal", 7, 1, NULL}, NULL},
        {{"llama.expert_count", 4, 0, NULL}, NULL},
        {{"general.type", 8, 0, "model"}, NULL},
        {{"split.count", 4, 1, NULL}, NULL},
        {{"general.base_model.0.name", 8, 0, "x"}, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_model_file *s = NULL;
        bt_err err = BT_ERR_INIT;
        bt_code code = bt_model_file_open(&s, gguf_with("llama/llama-f32.gguf", &rows[i].x), &err);
        if (rows[i].words) {
            says(code, &err, rows[i].words);
        } else {
            if (code != BT_OK) fail_msg("%s", err.msg);
            assert_string_equal(bt_text_str(&s->notes), "");
        }
        bt_model_file_close(s);
    }
}

static void settings_of_an_unknown_model_are_refused(void **state) {
    (void)state;
    static bt_run_cfg cfg;
    static const struct {
        const char *config, *words;
    } rows[] = {{"{\"model.layers\": \"3\", \"model." EXTRA "\": \"2\"}", "has model." EXTRA "=2"},
                {"{\"model.layers\": \"3\", \"model." EXTRA "\": \"false\"}", NULL},
                {"{\"model.layers\": \"3\", \"run." EXTRA "\": \"2\"}", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_ckpt_meta meta = {0};
        bt_err err = BT_ERR_INIT;
        bt_text_put(&meta.config, rows[i].config);
        const bt_code code = bt_native_settings(&cfg, &meta, "there", &err);
        if (rows[i].words)
            says(code, &err, rows[i].words);
        else
            assert_int_equal(code, BT_OK);
        if (code == BT_OK) assert_int_equal(cfg.model.layers, 3);
        bt_text_release(&meta.config);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extra_keys_in_folders),
        cmocka_unit_test(extra_keys_in_gguf),
        cmocka_unit_test(keys_that_change_the_numbers_are_refused),
        cmocka_unit_test(settings_of_an_unknown_model_are_refused),
    };
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
