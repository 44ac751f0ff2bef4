/* test_words.c - lists of arguments for a command line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/system/words.h"

static void words_become_an_argument_list(void **state) {
    (void)state;
    static const char *const want[] = {"train", "", "--set", "run.note=two\nlines", "abc"};
    bt_words w = {0};
    for (int round = 0; round < 2; round++) { /* the second list contains none of the first */
        bt_words_clear(&w);
        bt_words_put(&w, "train");
        bt_words_put(&w, "");
        bt_words_set(&w, "run.note", "two\nlines");
        bt_words_putn(&w, "abcdef", 3);
        const char **argv = bt_words_argv(&w);
        assert_int_equal(w.n, 5);
        for (size_t i = 0; i < w.n; i++) assert_string_equal(argv[i], want[i]);
        assert_null(argv[5]);
        free(argv);
    }
    w.text.failed = true; /* simulates a failed allocation */
    assert_null(bt_words_argv(&w));
    bt_words_release(&w);
    const char **none = bt_words_argv(&w);
    assert_null(none[0]);
    free(none);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(words_become_an_argument_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
