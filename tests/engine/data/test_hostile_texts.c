/* test_hostile_texts.c - 140 texts that tokenizers often split differently (contractions in any case, all kinds of
 * white space, combining marks, digits of other scripts, emoji, the last code points): the ids equal those of Hugging
 * Face's library (hostile_tokens.py) for each word pattern and for tokenizers that mark spaces, also after the
 * tokenizer was written in Hugging Face's format and in ours; decoding restores the texts. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/data/tokenizer/tokenizer.h"

static json_t *texts, *ids, *decoded;

static const char *path_of(const char *file) {
    static char path[600];
    snprintf(path, sizeof path, "%s/tests/engine/data/%s",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".", file);
    return path;
}

static int open_texts(void **state) {
    json_error_t e;
    json_t *root = json_load_file(path_of("hostile_tokens.json"), 0, &e);
    (void)state;
    if (!root) return -1;
    texts = json_incref(json_object_get(root, "texts"));
    ids = json_incref(json_object_get(root, "ids"));
    decoded = json_incref(json_object_get(root, "decoded"));
    json_decref(root);
    return 0;
}

static int close_texts(void **state) {
    (void)state;
    json_decref(texts);
    json_decref(ids);
    json_decref(decoded);
    return 0;
}

static void check_decoding(const bt_tokenizer *t, const char *name, const char *form, size_t i,
                           const int32_t *got, size_t n) {
    char index[16];
    bt_text out = {0};
    snprintf(index, sizeof index, "%zu", i);
    json_t *other = json_object_get(json_object_get(decoded, name), index);
    if (!other) other = json_array_get(texts, i);
    bt_tokenizer_decode(t, got, n, &out);
    if (out.len != json_string_length(other) ||
        memcmp(bt_text_str(&out), json_string_value(other), out.len) != 0)
        fail_msg("%s, %s, text %zu: decoded '%s', not '%s'", name, form, i, bt_text_str(&out),
                 json_string_value(other));
    bt_text_release(&out);
}

static void check_ids(const bt_tokenizer *t, const char *name, const char *form) {
    json_t *all = json_object_get(ids, name), *want, *text;
    size_t i, k;
    assert_int_equal(json_array_size(texts), 140);
    assert_int_equal(json_array_size(all), 140);
    json_array_foreach(texts, i, text) {
        int32_t *got = NULL;
        size_t n = 0, cap = 0;
        bt_err err = BT_ERR_INIT;
        want = json_array_get(all, i);
        if (bt_tokenizer_encode(t, json_string_value(text), json_string_length(text), &got, &n,
                                &cap, &err) != BT_OK)
            fail_msg("%s, %s, text %zu: %s", name, form, i, err.msg);
        if (n != json_array_size(want))
            fail_msg("%s, %s, text %zu: %zu ids, not %zu", name, form, i, n, json_array_size(want));
        for (k = 0; k < n; k++)
            if (got[k] != json_integer_value(json_array_get(want, k)))
                fail_msg("%s, %s, text %zu: id %zu is %d, not %d", name, form, i, k, got[k],
                         (int)json_integer_value(json_array_get(want, k)));
        check_decoding(t, name, form, i, got, n);
        free(got);
    }
}

static void equals_hugging_face(void **state) {
    static const char *const names[] = {"512",           "gpt2",         "llama3", "qwen2",
                                        "smollm",        "deepseek",     "o200k",  "llama2",
                                        "mistral",       "metaspace",    "gemma",  "unigram",
                                        "unigram_words", "unigram_whole"};
    char file[64], copy[] = "/tmp/hostile-XXXXXX";
    const int fd = mkstemp(copy);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bt_tokenizer *t = NULL, *again = NULL, *parsed = NULL;
        bt_text json = {0};
        bt_err err = BT_ERR_INIT;
        snprintf(file, sizeof file, "%shostile_%s.json", i < 4 ? "" : "tokenizer/", names[i]);
        if (bt_tokenizer_import(&t, path_of(file), &err) != BT_OK) fail_msg("%s", err.msg);
        check_ids(t, names[i], "imported");
        if (bt_tokenizer_export(t, &json, &err) != BT_OK) fail_msg("%s", err.msg);
        FILE *f = fopen(copy, "w");
        assert_non_null(f);
        assert_int_equal(fwrite(json.data, 1, json.len, f), json.len);
        assert_int_equal(fclose(f), 0);
        if (bt_tokenizer_import(&again, copy, &err) != BT_OK) fail_msg("%s", err.msg);
        check_ids(again, names[i], "exported");
        bt_text_clear(&json);
        bt_tokenizer_save(t, &json);
        if (bt_tokenizer_parse(&parsed, json.data, json.len, &err) != BT_OK)
            fail_msg("%s", err.msg);
        check_ids(parsed, names[i], "saved");
        bt_text_release(&json);
        bt_tokenizer_free(t);
        bt_tokenizer_free(again);
        bt_tokenizer_free(parsed);
    }
    remove(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_hugging_face)};
    return cmocka_run_group_tests(tests, open_texts, close_texts);
}
