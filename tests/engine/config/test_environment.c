/* test_environment.c - known variables BITRAIN_*, and suggestions for unknown ones, in every locale. */
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/system/ascii.h"
#include "engine/base/system/locale.h"
#include "engine/config/environment.h"

static void test_known_variables(void **state) {
    (void)state;
    static const struct {
        const char *entry;
        bool known;
        const char *nearest;
    } cases[] = {
        {"PATH=/bin", true, ""},
        {"BITRAIN=/bin/bitrain", true, ""},
        {"BITRAIN_OPTIM_LR=1", true, ""},
        {"BITRAIN_LR=1", true, ""},
        {"BITRAIN_MICRO_BATCH=1", true, ""},
        {"BITRAIN_STORE=x", true, ""},
        {"BITRAIN_THEME=dark", true, ""},
        {"BITRAIN_SERVE_TOKEN=", true, ""},
        {"BITRAIN_ALERT=said to a command", true, ""},
        {"BITRAIN_TEST_SLOW=0:2", true, ""},
        {"BITRAIN_OPTIM_LRR=0.1", false, "BITRAIN_OPTIM_LR"},
        {"BITRAIN_STROE=x", false, "BITRAIN_STORE"},
        {"BITRAIN_optim_lr=1", false, ""},
        {"BITRAIN_QQQQQQQQQ", false, ""},
        {"BITRAIN_=", false, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bt_environment_name out;
        assert_int_equal(bt_environment_read(cases[i].entry, &out), cases[i].known);
        assert_string_equal(out.nearest, cases[i].nearest);
        if (!cases[i].known)
            assert_int_equal(strncmp(out.name, cases[i].entry, strcspn(cases[i].entry, "=")), 0);
    }
}

static void test_hostile_name(void **state) {
    (void)state;
    char entry[600] = "BITRAIN_\033[2J\302\233";
    memset(entry + strlen(entry), 'A', 500);
    bt_environment_name out;
    assert_false(bt_environment_read(entry, &out));
    for (const char *p = out.name; *p; p++) assert_true(*p >= ' ' && *p <= '~');
}

/* In every locale the process compares letters as in "C" and prints a decimal point. */
static void test_locales(void **state) {
    (void)state;
    static const char *const names[] = {"tr_TR.UTF-8",  "az_AZ.UTF-8", "de_DE.UTF-8",
                                        "nosuch.UTF-8", "C.UTF-8",     "C"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        setenv("LC_ALL", names[i], 1);
        (void)bt_locale_follow();
        const char *now = setlocale(LC_CTYPE, NULL);
        assert_true(strncmp(now, "C", 1) == 0 && (now[1] == '\0' || now[1] == '.'));
        assert_string_equal(setlocale(LC_NUMERIC, NULL), "C");
    }
    unsetenv("LC_ALL");
}

static void test_ascii_classification(void **state) {
    (void)state;
    assert_true(bt_ascii_equal("Gzip", "gZIP") && !bt_ascii_equal("gzip", "gzip2"));
    assert_true(bt_ascii_equal_n("q=0.5", "Q=", 2) && !bt_ascii_equal_n("q", "q=", 2));
    assert_true(bt_ascii_equal_n("ab", "AB\0x", 9) && bt_ascii_equal_n("x", "y", 0));
    assert_string_equal(bt_ascii_find("a Warning", "wARN"), "Warning");
    assert_string_equal(bt_ascii_find("abc", ""), "abc");
    assert_string_equal(bt_ascii_find("", ""), "");
    assert_null(bt_ascii_find("abc", "abcd"));
    for (int c = -128; c < 128; c++) {
        const char x = (char)c;
        assert_int_equal(bt_ascii_digit(x), c >= '0' && c <= '9');
        assert_int_equal(bt_ascii_space(x), c == ' ' || (c >= 9 && c <= 13));
        if (c < 0)
            assert_true(bt_ascii_upper(x) == x && bt_ascii_lower(x) == x && !bt_ascii_alnum(x));
    }
    assert_true(bt_ascii_upper('i') == 'I' && bt_ascii_lower('I') == 'i');
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_known_variables),
                                       cmocka_unit_test(test_hostile_name),
                                       cmocka_unit_test(test_locales),
                                       cmocka_unit_test(test_ascii_classification)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
