/* test_text.c - text buffers, error messages, JSON, nearest names, plain text, durations. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/text.h"

static void test_text_grows_as_needed(void **state) {
    (void)state;
    bt_text t;
    bt_text_init(&t);
    assert_string_equal(bt_text_str(&t), "");
    for (int i = 0; i < 1000; i++) bt_text_printf(&t, "%d,", i);
    assert_int_equal(t.len, 10 * 2 + 90 * 3 + 900 * 4);
    char big[5000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    bt_text_clear(&t);
    bt_text_printf(&t, "<%s>", big);
    assert_int_equal(t.len, sizeof big + 1);
    assert_int_equal(bt_text_str(&t)[t.len - 1], '>');
    assert_false(t.failed);
    bt_text_release(&t);
    bt_text_release(&t);
}

static void test_refused_allocation(void **state) {
    (void)state;
    bt_text t;
    bt_text_init(&t);
    bt_text_put(&t, "a");
    bt_text_putn(&t, "b", SIZE_MAX / 2);
    assert_true(t.failed);
    bt_text_put(&t, "c");
    assert_string_equal(bt_text_str(&t), "a");
    bt_text_release(&t);
}

static void test_json(void **state) {
    (void)state;
    bt_text t;
    bt_json j;
    bt_text_init(&t);
    bt_json_begin(&j, &t);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "name", "a\"b\\c\n\x01\xff\xc3\xa9");
    bt_json_num(&j, "tenth", 0.1);
    bt_json_num(&j, "nan", NAN);
    bt_json_num(&j, "inf", -INFINITY);
    bt_json_int(&j, "least", INT64_MIN);
    bt_json_array(&j, "list");
    bt_json_bool(&j, NULL, true);
    bt_json_null(&j, NULL);
    bt_json_object(&j, NULL);
    bt_json_end(&j, '}');
    bt_json_str(&j, NULL, NULL);
    bt_json_end(&j, ']');
    bt_json_raw(&j, "raw", "{\"x\":1}");
    bt_json_end(&j, '}');
    assert_string_equal(
        bt_text_str(&t),
        "{\"name\":\"a\\\"b\\\\c\\n\\u0001\xEF\xBF\xBD\xc3\xa9\",\"tenth\":0.1,\"nan\":null,"
        "\"inf\":null,"
        "\"least\":-9223372036854775808,\"list\":[true,null,{},null],\"raw\":{\"x\":1}}");
    bt_text_release(&t);
}

/* A path consists of bytes: those that JSON cannot represent are escaped and restored. */
static void test_json_bytes(void **state) {
    (void)state;
    static const char *const paths[] = {"",
                                        "a/b.txt",
                                        "\xe9t\xe9/a.txt",
                                        "\xff\x80\xc3",
                                        "\xc3\xa9/\"",
                                        "\xf4\x8f\xbe\x80",
                                        "\xf4\x8f\xbf\xbf\xfe",
                                        "a\nb\x7f\x01"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        bt_text json = {0}, back = {0};
        bt_json j;
        bt_json_begin(&j, &json);
        bt_json_bytes(&j, NULL, paths[i]);
        json_t *v = json_loads(bt_text_str(&json), JSON_DECODE_ANY, NULL);
        if (!v) fail_msg("path %zu is no JSON: %s", i, bt_text_str(&json));
        bt_text_put_bytes(&back, json_string_value(v));
        assert_string_equal(bt_text_str(&back), paths[i]);
        json_decref(v);
        bt_text_release(&json);
        bt_text_release(&back);
    }
}

/* However long a path is, the reason and the remedy at the end of a message are kept. */
static void test_long_messages_lose_their_middle(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    char path[4000];
    for (size_t i = 0; i + 2 < sizeof path; i += 2) memcpy(path + i, "\xc3\xa9", 3);
    (void)bt_fail_errno(&err, BT_NOTFOUND, ENOENT, "cannot open '%s'", path);
    const size_t n = strlen(err.msg);
    assert_in_range(n, sizeof err.msg - 4, sizeof err.msg - 1);
    assert_memory_equal(err.msg, "cannot open '\xc3\xa9", 15);
    assert_string_equal(err.msg + n - 32, "\xc3\xa9\xc3\xa9': No such file or directory");
    for (size_t i = 0; i < n; i++)
        if ((err.msg[i] & 0x80) && err.msg[i] == '\xc3') assert_int_equal(err.msg[i + 1], '\xa9');
    assert_non_null(strstr(err.msg, "\xa9 ... \xc3"));
    (void)bt_fail(&err, BT_ARG, "short '%s'", "a");
    assert_string_equal(err.msg, "short 'a'");
}

static void test_json_numbers_read_back(void **state) {
    (void)state;
    const double values[] = {
        0, 1, -1, 1.0 / 3, 2e-3, 1e300, 5e-324, 123456789.125, 0.1 + 0.2, 9007199254740993.0};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        bt_text t;
        bt_json j;
        bt_text_init(&t);
        bt_json_begin(&j, &t);
        bt_json_num(&j, NULL, values[i]);
        assert_true(strtod(bt_text_str(&t), NULL) == values[i]);
        bt_text_release(&t);
    }
}

static void test_json_too_deep(void **state) {
    (void)state;
    bt_text t;
    bt_json j;
    bt_text_init(&t);
    bt_json_begin(&j, &t);
    for (int i = 0; i < 100; i++) bt_json_array(&j, NULL);
    assert_true(t.failed);
    bt_text_release(&t);
}

static void test_nearest_name_is_suggested(void **state) {
    (void)state;
    const char *const names[] = {"train", "top", "runs", "show", NULL, "optim.lr", "optim.lr_min"};
    const size_t n = sizeof names / sizeof names[0];
    assert_string_equal(bt_nearest("tarin", names, n), "train");
    assert_string_equal(bt_nearest("run", names, n), "runs");
    assert_string_equal(bt_nearest("optim.lrr", names, n), "optim.lr");
    assert_null(bt_nearest("zebra", names, n));
    assert_null(bt_nearest("x", names, n));
    assert_null(bt_nearest("", names, n));
    char lengthy[300];
    memset(lengthy, 't', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    assert_null(bt_nearest(lengthy, names, n));
}

static void test_name_ok(void **state) {
    (void)state;
    assert_true(bt_name_ok("a"));
    assert_true(bt_name_ok("0.run_x-9"));
    assert_false(bt_name_ok(""));
    assert_false(bt_name_ok("-a"));
    assert_true(bt_name_ok("mpsINT"));
    assert_false(bt_name_ok("\u00e4"));
    assert_false(bt_name_ok("a b"));
    assert_false(bt_name_ok("../a"));
    char name[66]; /* 64 characters and the terminator fit into BT_NAME_MAX */
    memset(name, 'a', 65);
    name[64] = '\0';
    assert_true(bt_name_ok(name));
    name[64] = 'a';
    name[65] = '\0';
    assert_false(bt_name_ok(name));
}

static void test_plain_text_has_no_control_characters(void **state) {
    (void)state;
    char out[64];
    bt_text_plain(out, sizeof out,
                  "a\x1b[31mb\nc\x07\xc2\x9b"
                  "d\xff\xe2\x80\xae"
                  "e\xc3\xa9");
    assert_string_equal(out, "a[31mb cd\xef\xbf\xbd"
                             "e\xc3\xa9");
    bt_text_plain(out, 4, "ab\xc3\xa9"); /* A multi-byte character is removed as a whole. */
    assert_string_equal(out, "ab");
    /* overlong, surrogate, too large */
    bt_text_plain(out, sizeof out, "\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80");
    assert_int_equal(strlen(out), 9 * 3); /* Each byte becomes U+FFFD, as in JSON. */
    for (int i = 0; i < 9; i++) assert_memory_equal(out + 3 * i, "\xef\xbf\xbd", 3);
}

static void test_durations_are_formatted(void **state) {
    (void)state;
    const struct {
        double s;
        const char *text;
    } cases[] = {
        {0, "0.0 s"},    {12.34, "12.3 s"},  {59.94, "59.9 s"}, {59.97, "1m 00s"},
        {192, "3m 12s"}, {3599.7, "1h 00m"}, {3840, "1h 04m"},  {90000, "1d 01h"},
        {-1, "-"},       {NAN, "-"},         {INFINITY, "-"},
    };
    char buf[32];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(bt_duration(buf, sizeof buf, cases[i].s), cases[i].text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_grows_as_needed),
        cmocka_unit_test(test_refused_allocation),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_bytes),
        cmocka_unit_test(test_long_messages_lose_their_middle),
        cmocka_unit_test(test_json_numbers_read_back),
        cmocka_unit_test(test_json_too_deep),
        cmocka_unit_test(test_nearest_name_is_suggested),
        cmocka_unit_test(test_name_ok),
        cmocka_unit_test(test_plain_text_has_no_control_characters),
        cmocka_unit_test(test_durations_are_formatted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
