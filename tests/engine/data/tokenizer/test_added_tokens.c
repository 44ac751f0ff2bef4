/* test_added_tokens.c - added tokens in text: 280 texts, half of which contain names of added tokens, get the ids of
 * Hugging Face's library (added_tokens.py), with and without special tokens and the tokens around a text. The cases
 * cover the flags special, lstrip, rstrip, single_word and normalized, a name of white space, and a name that merges
 * also produce. The ids are equal after the tokenizer was written in Hugging Face's format and in ours, and when the
 * text is processed in pieces. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/data/tokenizer/tokenizer.h"
#include "engine/data/tokenizer/tokenizer_build.h"

static json_t *hostile, *golden;

static json_t *load_added_tokenizer(const char *file) {
    char path[600];
    json_error_t e;
    snprintf(path, sizeof path, "%s/tests/engine/data/%s",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".", file);
    return json_load_file(path, 0, &e);
}

static int open_golden(void **state) {
    (void)state;
    hostile = load_added_tokenizer("hostile_tokens.json");
    golden = load_added_tokenizer("tokenizer/added_tokens.json");
    return hostile && golden ? 0 : -1;
}

static int close_golden(void **state) {
    (void)state;
    json_decref(hostile);
    json_decref(golden);
    return 0;
}

/* Formats the FNV-1a hash of the ids as little-endian int32. */
static void put_hash(char out[20], const int32_t *ids, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 4; k++) h = (h ^ ((uint32_t)ids[i] >> 8 * k & 0xff)) * 0x100000001B3u;
    snprintf(out, 20, "%016llx", (unsigned long long)h);
}

static json_t *text_at(size_t i) {
    json_t *first = json_object_get(hostile, "texts"), *mixed = json_object_get(golden, "texts");
    return i < json_array_size(first) ? json_array_get(first, i)
                                      : json_array_get(mixed, i - json_array_size(first));
}

static void check_added_token_ids(const bt_tokenizer *t, json_t *row, const char *mode,
                                  const char *form) {
    const unsigned how = strcmp(mode, "prompt") == 0 ? BT_ENCODE_SPECIAL | BT_ENCODE_WHOLE
                                                     : BT_ENCODE_TEXT;
    json_t *want;
    size_t i;
    assert_int_equal(json_array_size(json_object_get(row, mode)), 280);
    json_array_foreach(json_object_get(row, mode), i, want) {
        json_t *text = text_at(i);
        int32_t *ids = NULL;
        size_t n = 0, cap = 0;
        char hash[20];
        bt_err err = BT_ERR_INIT;
        if (bt_tokenizer_encode_as(t, how, json_string_value(text), json_string_length(text), &ids,
                                   &n, &cap, &err) != BT_OK)
            fail_msg("%s", err.msg);
        put_hash(hash, ids, n);
        if (strcmp(hash, json_string_value(want)) != 0)
            fail_msg("'%s', %s, %s: other ids for text %zu, '%s'",
                     json_string_value(json_object_get(row, "name")), mode, form, i,
                     json_string_value(text));
        free(ids);
    }
}

static json_t *tree_of(json_t *row) {
    char file[64];
    snprintf(file, sizeof file, "hostile_%s.json", json_string_value(json_object_get(row, "base")));
    json_t *root = load_added_tokenizer(file);
    assert_non_null(root);
    assert_int_equal(json_object_update(root, json_object_get(row, "members")), 0);
    return root;
}

static bt_tokenizer *build_added_tokenizer(json_t *root) {
    bt_tokenizer *t = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_tokenizer_build(&t, root, &err) != BT_OK) fail_msg("%s", err.msg);
    json_decref(root);
    return t;
}

static void check_added_texts(const bt_tokenizer *t, json_t *row, const char *form) {
    check_added_token_ids(t, row, "text", form);
    check_added_token_ids(t, row, "prompt", form);
}

static void equals_hugging_face(void **state) {
    json_t *row;
    size_t i;
    (void)state;
    assert_int_equal(json_array_size(json_object_get(golden, "tokenizers")), 8);
    json_array_foreach(json_object_get(golden, "tokenizers"), i, row) {
        bt_tokenizer *t = build_added_tokenizer(tree_of(row)), *parsed = NULL;
        bt_text json = {0};
        bt_err err = BT_ERR_INIT;
        json_error_t e;
        check_added_texts(t, row, "built");
        if (bt_tokenizer_export(t, &json, &err) != BT_OK) fail_msg("%s", err.msg);
        bt_tokenizer *again = build_added_tokenizer(json_loadb(json.data, json.len, 0, &e));
        check_added_texts(again, row, "exported");
        assert_true(bt_tokenizer_hash(t) == bt_tokenizer_hash(again));
        bt_text_clear(&json);
        bt_tokenizer_save(t, &json);
        if (bt_tokenizer_parse(&parsed, json.data, json.len, &err) != BT_OK)
            fail_msg("%s", err.msg);
        check_added_texts(parsed, row, "saved");
        bt_text_release(&json);
        bt_tokenizer_free(parsed);
        bt_tokenizer_free(again);
        bt_tokenizer_free(t);
    }
}

/* A text cut at any permitted place gives the ids of the whole text. */
static void cuts_change_no_token(void **state) {
    json_t *row = json_array_get(json_object_get(golden, "tokenizers"), 7);
    bt_tokenizer *t = build_added_tokenizer(tree_of(row));
    bt_text text = {0};
    bt_err err = BT_ERR_INIT;
    size_t cuts = 0;
    (void)state;
    assert_true(bt_tokenizer_spans_space(t));
    for (size_t i = 0; i < 40; i++)
        bt_text_put(&text, i % 2 ? "a the two words b\nx <both>\ny the c" : "a <both> z\nword q ");
    int32_t *ids[3] = {NULL, NULL, NULL};
    size_t n[3], cap[3] = {0, 0, 0};
    for (size_t given = 1; given <= text.len; given++) {
        const size_t cut = bt_tokenizer_cut(t, text.data, given);
        if (!cut) continue;
        cuts++;
        assert_true(cut < given);
        const struct {
            const char *at;
            size_t n;
        } parts[3] = {{text.data, text.len}, {text.data, cut}, {text.data + cut, text.len - cut}};
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(bt_tokenizer_encode(t, parts[k].at, parts[k].n, &ids[k], &n[k],
                                                 &cap[k], &err),
                             BT_OK);
        assert_int_equal(n[0], n[1] + n[2]);
        assert_memory_equal(ids[0], ids[1], n[1] * sizeof(int32_t));
        assert_memory_equal(ids[0] + n[1], ids[2], n[2] * sizeof(int32_t));
    }
    assert_true(cuts > 100);
    for (size_t k = 0; k < 3; k++) free(ids[k]);
    bt_text_release(&text);
    bt_tokenizer_free(t);
}

/* Checks which tokens are displayed and which are recognized by name. */
static void kinds_of_tokens(void **state) {
    json_t *row = json_array_get(json_object_get(golden, "tokenizers"), 6);
    bt_tokenizer *t = build_added_tokenizer(tree_of(row));
    (void)state;
    const int32_t think = bt_tokenizer_named(t, "<think>", 7),
                  end = bt_tokenizer_named(t, "<|im_end|>", 10);
    assert_true(think > 0 && end > 0);
    assert_false(bt_tokenizer_is_special(t, think));
    assert_true(bt_tokenizer_is_added(t, think));
    assert_true(bt_tokenizer_is_special(t, end));
    assert_false(bt_tokenizer_is_added(t, end));
    assert_false(bt_tokenizer_is_added(t, 40));
    assert_int_equal(bt_tokenizer_named(t, "<thin", 5), -1);
    bt_tokenizer_free(t);
}

static void unknown_post_processors_are_refused(void **state) {
    static const struct {
        const char *json, *says;
    } rows[] = {
        {"{\"type\": \"Odd\"}", "'Odd'"},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<q>\"}}, "
         "{\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {}}",
         "'<q>'"},
        {"{\"type\": \"TemplateProcessing\", \"single\": [], \"special_tokens\": {}}", "omits"},
        {"{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<q>\"}}, "
         "{\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"<q>\": {\"ids\": [9999]}}}",
         "9999"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_error_t e;
        bt_tokenizer *t = NULL;
        bt_err err = BT_ERR_INIT;
        json_t *root = load_added_tokenizer("hostile_512.json");
        json_object_set_new(root, "post_processor", json_loads(rows[i].json, 0, &e));
        assert_int_not_equal(bt_tokenizer_build(&t, root, &err), BT_OK);
        if (!strstr(err.msg, rows[i].says)) fail_msg("'%s' has no '%s'", err.msg, rows[i].says);
        json_decref(root);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_hugging_face),
                                       cmocka_unit_test(cuts_change_no_token),
                                       cmocka_unit_test(kinds_of_tokens),
                                       cmocka_unit_test(unknown_post_processors_are_refused)};
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
