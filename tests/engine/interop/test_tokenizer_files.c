/* test_tokenizer_files.c - HF -> bitrain -> HF and GGUF: the tokenizer's files have the same bytes,
 * config.json names the same tokens, texts get the same ids, and the chat template is unchanged. */
#include "engine/interop/formats/gguf.h"
#include "engine/interop/gguf_keys.h"
#include "tests/engine/interop/malformed.h"

static const char *in(const char *folder, const char *name) {
    char path[120];
    snprintf(path, sizeof path, "%.40s/%.70s", folder, name);
    return fixture_path(path);
}

static void put(const char *name, const char *text) {
    FILE *f = fopen(in("source", name), "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
}

static json_t *load(const char *path) {
    json_error_t why;
    json_t *root = json_load_file(path, 0, &why);
    if (!root) fail_msg("%s: %s", path, why.text);
    return root;
}

static json_t *token(int id, const char *content, bool special, bool lstrip) {
    return json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content,
                     "single_word", 0, "lstrip", (int)lstrip, "rstrip", 0, "normalized", 0,
                     "special", (int)special);
}

/* The golden folder with a tokenizer like Llama 3's: BOS by its post-processor, two end tokens, an added
 * token that is not special and strips the white space before it. The model's vocabulary is 320, of which
 * the tokenizer leaves the last three unused. */
static void make_source(void) {
    char command[1200], path[200];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", fixture_path("source"),
             golden_path("llama/hf"), fixture_path("source"));
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof path, "%s", in("source", "tokenizer.json"));
    json_t *root = load(path), *model = json_object_get(root, "model"),
           *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges"),
           *added = json_object_get(root, "added_tokens"), *id;
    const char *key;
    void *next;
    json_object_foreach_safe(vocab, next, key, id) if (json_integer_value(id) >= 317)
        json_object_del(vocab, key);
    for (int i = 0; i < 3; i++) json_array_remove(merges, json_array_size(merges) - 1);
    json_array_append_new(added, token(317, "<|begin|>", true, false));
    json_array_append_new(added, token(318, "<|turn_ends|>", true, false));
    json_array_append_new(added, token(319, "<think>", false, true));
    json_object_set_new(
        root, "post_processor",
        json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:[], s:{s:{s:s, s:[i], s:[s]}}}",
                  "type", "TemplateProcessing", "single", "SpecialToken", "id", "<|begin|>",
                  "type_id", 0, "Sequence", "id", "A", "type_id", 0, "pair", "special_tokens",
                  "<|begin|>", "id", "<|begin|>", "ids", 317, "tokens", "<|begin|>"));
    assert_int_equal(json_dump_file(root, path, JSON_INDENT(3)), 0);
    json_decref(root);
    snprintf(path, sizeof path, "%s", in("source", "config.json"));
    root = load(path);
    json_object_set_new(root, "bos_token_id", json_null());
    json_object_set_new(root, "eos_token_id", json_pack("[i, i]", 256, 65));
    assert_int_equal(json_dump_file(root, path, 0), 0);
    json_decref(root);
    put("generation_config.json", "{\"eos_token_id\":   [256, 318],\n \"temperature\": 0.5}");
    put("tokenizer_config.json", "{\"tokenizer_class\": \"PreTrainedTokenizerFast\",   "
                                 "\"eos_token\": \"<|endoftext|>\", \"unheard_of\": 1}\n\n");
    put("special_tokens_map.json", "{ \"eos_token\" : \"<|endoftext|>\" }");
    put("chat_template.jinja", "{{ bos_token }}\n{# as it was #}  ");
}

static void convert(const char *from, bt_convert_to to, const char *name) {
    bt_model_file *s;
    bt_text notes = {0};
    int64_t bytes = 0;
    bt_err err = BT_ERR_INIT;
    const bt_convert_job job = {.to = to, .dest = fixture_path(name), .number = BT_NUM_F32};
    if (bt_model_file_open(&s, fixture_path(from), &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_convert(s, &job, &notes, &bytes, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_text_release(&notes);
    bt_model_file_close(s);
}

static void same_ids(const bt_tokenizer *a, const bt_tokenizer *b) {
    static const char text[] = "<think> the<|turn_ends|>of</think><|begin|> and";
    for (unsigned how = 0; how < 4; how++) {
        int32_t *x = NULL, *y = NULL;
        size_t n, m, cap = 0, size = 0;
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_tokenizer_encode_as(a, how, text, strlen(text), &x, &n, &cap, &err),
                         BT_OK);
        assert_int_equal(bt_tokenizer_encode_as(b, how, text, strlen(text), &y, &m, &size, &err),
                         BT_OK);
        assert_int_equal(n, m);
        assert_memory_equal(x, y, n * sizeof *x);
        assert_int_equal(x[0], how & BT_ENCODE_WHOLE ? 317 : 319);
        free(x);
        free(y);
    }
}

/* GGUF cannot represent lstrip: llama.cpp finds added tokens by their text only. */
static void check_lstrip(const bt_tokenizer *t, bool kept) {
    static const char text[] = "  <think>";
    int32_t *ids = NULL;
    size_t n, cap = 0;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_tokenizer_encode_as(t, 0, text, strlen(text), &ids, &n, &cap, &err), BT_OK);
    assert_int_equal(ids[n - 1], 319);
    assert_int_equal(n == 1, kept);
    free(ids);
}

static void same_roles(const bt_tokenizer *t) {
    static const int32_t want[3] = {256, 65, 318};
    int32_t ends[BT_ENDS_MAX];
    assert_int_equal(bt_tokenizer_ends(t, ends), 3);
    assert_memory_equal(ends, want, sizeof want);
    assert_true(bt_tokenizer_is_end(t, 318) && bt_tokenizer_is_end(t, 65));
    assert_false(bt_tokenizer_is_end(t, 317));
    assert_false(bt_tokenizer_is_special(t, 319));
    assert_string_equal(bt_tokenizer_chat_template(t), "{{ bos_token }}\n{# as it was #}  ");
}

static void check_model(const char *name, const bt_tokenizer *source, int32_t bos, bool lstrip) {
    bt_model_file *s;
    bt_err err = BT_ERR_INIT;
    if (bt_model_file_open(&s, fixture_path(name), &err) != BT_OK) fail_msg("%s", err.msg);
    if (!s->tokenizer) fail_msg("%s: %s", name, s->no_tokenizer.msg);
    same_ids(source, s->tokenizer);
    same_roles(s->tokenizer);
    check_lstrip(s->tokenizer, lstrip);
    assert_int_equal(bt_tokenizer_roles(s->tokenizer)->bos, bos);
    bt_model_file_close(s);
}

static void folders_keep_their_tokenizer(void **state) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "chat_template.jinja",
                                        "generation_config.json"};
    bt_model_file *s;
    bt_err err = BT_ERR_INIT;
    (void)state;
    make_source();
    if (bt_model_file_open(&s, fixture_path("source"), &err) != BT_OK) fail_msg("%s", err.msg);
    /* Notes name the keys that are ignored. */
    assert_non_null(strstr(bt_text_str(&s->notes), "'unheard_of'"));
    assert_non_null(strstr(bt_text_str(&s->notes), "'temperature'"));
    same_roles(s->tokenizer);
    convert("source", BT_TO_BITRAIN, "native");
    convert("native", BT_TO_HF, "again");
    convert("native", BT_TO_GGUF, "again.gguf");
    convert("again.gguf", BT_TO_HF, "from_gguf");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n, m;
        char *x = slurp(in("source", files[i]), &n), *y = slurp(in("again", files[i]), &m);
        if (n != m || memcmp(x, y, n) != 0) fail_msg("'%s' has other bytes", files[i]);
        free(x);
        free(y);
    }
    check_model("native", s->tokenizer, -1, true);
    check_model("again", s->tokenizer, -1, true);
    check_model("again.gguf", s->tokenizer, 317,
                false); /* The file has no other field for the leading token. */
    check_model("from_gguf", s->tokenizer, 317, false);
    bt_model_file_close(s);
    json_t *config = load(in("again", "config.json"));
    assert_true(json_is_null(json_object_get(config, "bos_token_id")));
    assert_int_equal(json_array_size(json_object_get(config, "eos_token_id")), 3);
    json_decref(config);
}

static bt_code take_type(void *ctx, uint64_t i, const char *text, size_t n, int64_t value,
                         bt_err *err) {
    (void)text;
    (void)n;
    (void)err;
    if (i >= 317) ((int64_t *)ctx)[i - 317] = value;
    return BT_OK;
}

static void gguf_has_kinds_and_ends(void **state) {
    static const struct {
        const char *key;
        int64_t value;
    } rows[] = {{"tokenizer.ggml.eos_token_id", 256},   {"tokenizer.ggml.eot_token_id", 65},
                {"tokenizer.ggml.eom_token_id", 318},   {"tokenizer.ggml.bos_token_id", 317},
                {"tokenizer.ggml.add_bos_token", true}, {"tokenizer.ggml.add_eos_token", false}};
    bt_gguf g;
    bt_stored_list list = {0};
    bt_err err = BT_ERR_INIT;
    int64_t types[3] = {0};
    (void)state;
    if (bt_gguf_read(&g, &list, fixture_path("again.gguf"), &err) != BT_OK) fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bt_gguf_kv *kv = bt_gguf_find(&g, rows[i].key);
        assert_non_null(kv);
        assert_int_equal(kv->whole, rows[i].value);
    }
    const bt_gguf_kv *kv = bt_gguf_find(&g, "tokenizer.ggml.token_type");
    assert_non_null(kv);
    assert_int_equal(bt_gguf_walk(kv, &list.files[g.file], take_type, types, &err), BT_OK);
    assert_int_equal(types[0], BT_GGUF_CONTROL);
    assert_int_equal(types[1], BT_GGUF_CONTROL);
    assert_int_equal(types[2], BT_GGUF_USER_DEFINED);
    bt_gguf_release(&g);
    bt_stored_release(&list);
}

static void hostile_ids_are(const bt_tokenizer *t, const char *name) {
    char path[300];
    snprintf(path, sizeof path, "%.200s/../../data/hostile_tokens.json", golden_path(""));
    json_t *root = load(path), *texts = json_object_get(root, "texts"), *text,
           *all = json_object_get(json_object_get(root, "ids"), name);
    size_t i;
    json_array_foreach(texts, i, text) {
        int32_t *ids = NULL;
        size_t n, cap = 0;
        bt_err err = BT_ERR_INIT;
        json_t *want = json_array_get(all, i);
        assert_int_equal(bt_tokenizer_encode(t, json_string_value(text), json_string_length(text),
                                             &ids, &n, &cap, &err),
                         BT_OK);
        if (n != json_array_size(want)) fail_msg("text %zu: %zu ids", i, n);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(ids[k], json_integer_value(json_array_get(want, k)));
        free(ids);
    }
    json_decref(root);
}

/* SentencePiece's kind: a GGUF file has scores instead of merges. */
static void marked_spaces_pass_through_gguf(void **state) {
    static const char *const steps[] = {"marked", "marked.gguf", "marked_native", "marked_again"};
    (void)state;
    char command[1200];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", fixture_path("marked"),
             golden_path("marked/hf"), fixture_path("marked"));
    assert_int_equal(system(command), 0);
    convert("marked", BT_TO_GGUF, "marked.gguf");
    convert("marked.gguf", BT_TO_BITRAIN, "marked_native");
    convert("marked_native", BT_TO_HF, "marked_again");
    for (size_t i = 0; i < 4; i++) {
        bt_model_file *s;
        bt_err err = BT_ERR_INIT;
        if (bt_model_file_open(&s, fixture_path(steps[i]), &err) != BT_OK) fail_msg("%s", err.msg);
        if (!s->tokenizer) fail_msg("%s: %s", steps[i], s->no_tokenizer.msg);
        hostile_ids_are(s->tokenizer, "llama2");
        assert_string_equal(bt_tokenizer_spaces(s->tokenizer), "prepend");
        assert_int_equal(bt_tokenizer_roles(s->tokenizer)->bos, 1);
        assert_int_equal(bt_tokenizer_eot(s->tokenizer), 2);
        bt_model_file_close(s);
    }
}

/* transformers uses the description of an added token in tokenizer_config.json. */
static void descriptions_beside_the_file_count(void **state) {
    bt_model_file *s;
    bt_err err = BT_ERR_INIT;
    (void)state;
    make_source();
    put("tokenizer_config.json",
        "{\"add_bos_token\": false, \"added_tokens_decoder\": {\"319\": {\"content\": \"<think>\", "
        "\"special\": true, \"lstrip\": true, \"rstrip\": false, \"single_word\": false, "
        "\"normalized\": false}}}");
    if (bt_model_file_open(&s, fixture_path("source"), &err) != BT_OK) fail_msg("%s", err.msg);
    assert_true(bt_tokenizer_is_special(s->tokenizer, 319));
    assert_non_null(strstr(bt_text_str(&s->notes), "add_bos_token: false"));
    bt_model_file_close(s);
}

/* objects whose keys are data */
static bool is_map(const char *key) {
    return strcmp(key, "vocab") == 0 || strcmp(key, "special_tokens") == 0;
}

/* Returns the k-th object of a tree in depth-first order; NULL if there are fewer. */
static json_t *object_at(json_t *v, int *k) {
    const char *key;
    json_t *inner, *found = NULL;
    size_t i;
    if (json_is_object(v) && (*k)-- == 0) return v;
    json_object_foreach(v, key, inner) if (!found && !is_map(key) && strcmp(key, "single") != 0 &&
                                           strcmp(key, "pair") != 0) found = object_at(inner, k);
    json_array_foreach(v, i, inner) if (!found) found = object_at(inner, k);
    return found;
}

static void extra_keys_of_tokenizers_are_refused(void **state) {
    int objects = 0;
    (void)state;
    for (int at = 0;; at++, objects++) {
        bt_model_file *s;
        bt_err err = BT_ERR_INIT;
        char path[200];
        int k = at;
        make_source();
        snprintf(path, sizeof path, "%s", in("source", "tokenizer.json"));
        json_t *root = load(path), *o = object_at(root, &k);
        if (o) json_object_set_new(o, "unheard_of", json_true());
        assert_int_equal(json_dump_file(root, path, 0), 0);
        json_decref(root);
        if (!o) break;
        assert_int_equal(bt_model_file_open(&s, fixture_path("source"), &err), BT_OK);
        assert_null(s->tokenizer);
        if (!strstr(s->no_tokenizer.msg, "unheard_of'"))
            fail_msg("%d: %s", at, s->no_tokenizer.msg);
        bt_model_file_close(s);
    }
    assert_true(objects >= 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(folders_keep_their_tokenizer),
                                       cmocka_unit_test(gguf_has_kinds_and_ends),
                                       cmocka_unit_test(marked_spaces_pass_through_gguf),
                                       cmocka_unit_test(descriptions_beside_the_file_count),
                                       cmocka_unit_test(extra_keys_of_tokenizers_are_refused)};
    return cmocka_run_group_tests(tests, interop_setup, interop_teardown);
}
