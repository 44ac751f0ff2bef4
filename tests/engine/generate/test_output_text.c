/* Generated text: only complete characters, and stop strings in portions of any size, compared with a plain search over
 * the whole text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/generate/output_text.h"

/* Returns the length of the final text, which ends before the first stop string. */
static size_t plain_cut(const char *text, size_t n, const char *const *stop, size_t n_stop) {
    for (size_t at = 0; at < n; at++)
        for (size_t i = 0; i < n_stop; i++) {
            const size_t k = strlen(stop[i]);
            if (k && at + k <= n && memcmp(text + at, stop[i], k) == 0) return at;
        }
    return n;
}

static bool ends_within_character(const char *s, size_t n) {
    /* Finds the lead byte of the last character and the number of bytes that should follow it. */
    size_t k = n;
    while (k > 0 && ((unsigned char)s[k - 1] & 0xc0) == 0x80) k--;
    if (k == 0) return false;
    const unsigned char lead = (unsigned char)s[k - 1];
    const size_t want = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return n - (k - 1) < want;
}

static void any_portions_give_the_text_before_the_stop(void **state) {
    (void)state;
    static const char text[] =
        "ab\xc3\xa9 aab \xe2\x82\xac\xf0\x9f\x98\x80 aaab\n\nUser: x\xc3\xa9y";
    static const char *const stops[][3] = {
        {"", "", ""},
        {"aab", "", ""},
        {"\n\nUser:", "\n\nX", ""},
        {"aaab", "aab", "b "},
        {"zzz", "\xf0\x9f\x98\x80", ""},
        {"y", "", ""},
        {"\xa9y", "ab\xc3\xa9 aac", ""},
    };
    const size_t n = sizeof text - 1;
    for (size_t c = 0; c < sizeof stops / sizeof *stops; c++) {
        const size_t want = plain_cut(text, n, stops[c], 3);
        for (uint64_t seed = 0; seed < 200; seed++) {
            bt_output o;
            char shown[sizeof text] = "";
            size_t have = 0, k;
            bt_output_init(&o, stops[c], 3);
            for (size_t at = 0, draw = 0; at < n;) {
                size_t part = 1 + bt_rng_u64(seed, 0, draw++) % 4;
                if (part > n - at) part = n - at;
                bt_output_add(&o, text + at, part);
                const char *s = bt_output_next(&o, false, &k);
                memcpy(shown + have, s, k);
                have += k;
                if (!o.stopped && ends_within_character(shown, have))
                    fail_msg("case %zu seed %d: cut inside a character", c, (int)seed);
                if (have > want) fail_msg("case %zu: more than the text before the stop", c);
                at += part;
            }
            const char *s = bt_output_next(&o, true, &k);
            memcpy(shown + have, s, k);
            have += k;
            assert_int_equal(have, want);
            assert_memory_equal(shown, text, want);
            assert_int_equal(o.stopped, want < n);
            bt_output_release(&o);
        }
    }
}

static void bytes_that_are_not_utf8_pass(void **state) {
    (void)state;
    static const char raw[] = "\x80\xff"
                              "a\xc3"
                              "b\0c\xed\xa0\x80\xe2\x82";
    bt_output o;
    size_t k, have = 0;
    char got[sizeof raw];
    bt_output_init(&o, NULL, 0);
    for (size_t i = 0; i < sizeof raw - 1; i++) {
        bt_output_add(&o, raw + i, 1);
        const char *s = bt_output_next(&o, i == sizeof raw - 2, &k);
        memcpy(got + have, s, k);
        have += k;
    }
    assert_int_equal(have, sizeof raw - 1);
    assert_memory_equal(got, raw, sizeof raw - 1);
    bt_output_release(&o);
}

static void mended_text_is_utf8(void **state) {
    (void)state;
    bt_text out;
    bt_text_init(&out);
    bt_utf8_mend(&out, "a\x80\xc3\xa9\xc0\xaf\0\xed\xa0\x80\x1b[\xc2\x9b\n\xe2\x82", 17, false);
    assert_string_equal(bt_text_str(&out),
                        "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\x1b[\xc2\x9b\n"
                        "\xef\xbf\xbd");
    bt_text_clear(&out);
    /* Python's decode with errors="replace" gives the same text. */
    bt_utf8_mend(
        &out,
        "\xe2\x82|\xf0\x9f\x98|\xe2\x82\xe2\x82\xac|\xf0\x80\x80|\xf4\x90\x80|\xe0\x9f|\xf5\x80",
        26, false);
    assert_string_equal(
        bt_text_str(&out),
        "\xef\xbf\xbd|\xef\xbf\xbd|\xef\xbf\xbd\xe2\x82\xac|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|"
        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd");
    bt_text_clear(&out);
    bt_utf8_mend(&out, "a\x1b[31m\xc2\x9b\t\n\x7f\xc3\xa9\0", 14, true);
    assert_string_equal(bt_text_str(&out), "a?[31m?\t\n?\xc3\xa9?");
    bt_text_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_portions_give_the_text_before_the_stop),
        cmocka_unit_test(bytes_that_are_not_utf8_pass),
        cmocka_unit_test(mended_text_is_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
