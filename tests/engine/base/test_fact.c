/* Facts are displayed in their units, and two facts are equal if they differ by less than the noise of their
 * measurement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/base/tables/fact.h"

static void numbers_have_their_unit(void **state) {
    static const char *const cases[][3] = {
        {"link.dp.latency_s", "1.59999999e-02", "16.0 ms"},
        {"link.dp.latency_s", "3.9e-07", "390 ns"},
        {"link.dp.latency_s", "1e-06", "1 us"},
        {"link.dp.latency_s", "9.995e-05", "0.10 ms"},
        {"link.dp.latency_s", "0", "0.00 ms"},
        {"link.shard.bytes_per_s", "83886080.123456", "80.0 MiB/s"},
        {"peak_flops", "1231200000000.1234", "1.23 TFLOP/s"},
        {"flop_token", "19005440", "19.0 MFLOP"},
        {"flop_token", "480", "480 FLOP"},
        {"params", "3144384", "3.14 M"},
        {"params.linear", "12", "12"},
        {"data.bytes_per_token", "3.7283950617283951", "3.728"},
        {"arena.weights", "12582912", "12.0 MiB"},
        {"isa", "avx512", "avx512"},
        {"data.hash", "0123456789abcdef", "0123456789abcdef"},
        {"steps_total", "200", "200"},
        {"link.dp.measured", "no: the machine was busy", "no: the machine was busy"},
        {"peak_flops", "", ""}};
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(bt_fact_format(text, sizeof text, cases[i][0], cases[i][1]),
                            cases[i][2]);
    assert_string_equal(bt_fact_format(text, sizeof text, "peak_flops", NULL), "-");
}

static void settings_have_one_form(void **state) {
    static const char *const cases[][2] = {{"0.0013333333333333333", "0.00133333"},
                                           {"1e-08", "1e-08"},
                                           {"0.95", "0.95"},
                                           {"65536.0", "65536"},
                                           {"10000000", "10000000"},
                                           {"0.4,0.7", "0.4,0.7"},
                                           {"book.txt", "book.txt"},
                                           {"", ""}};
    char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(bt_setting_format(text, sizeof text, cases[i][0]), cases[i][1]);
    assert_string_equal(bt_setting_format(text, sizeof text, NULL), "-");
}

static void facts_within_their_noise_are_equal(void **state) {
    (void)state;
    assert_true(bt_fact_same("peak_flops", "1.00e12", "1.24e12"));
    assert_false(bt_fact_same("peak_flops", "1.00e12", "1.26e12"));
    assert_false(bt_fact_same("peak_flops", "1.26e12", "1.00e12"));
    assert_true(bt_fact_same("link.dp.bytes_per_s", "1e9", "9e9"));
    assert_false(bt_fact_same("link.dp.bytes_per_s", "1e9", "2e10"));
    /* A missing measurement does not count as a difference. */
    assert_true(bt_fact_same("link.dp.bytes_per_s", "1e9", NULL));
    assert_true(bt_fact_same("ckpt.cost_s", "0.0246", "0.0223"));
    assert_true(bt_fact_same("ckpt.interval_s", "12.1", "11"));
    assert_false(bt_fact_same("ckpt.cost_s", "0.02", "0.4"));
    assert_true(bt_fact_same("params", "12", "12"));
    assert_false(bt_fact_same("params", "12", "13"));
    assert_false(bt_fact_same("params", "12", NULL));
    assert_false(bt_fact_same("isa", "avx2", "amx"));
    assert_true(bt_fact_same("isa", NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_their_unit),
        cmocka_unit_test(settings_have_one_form),
        cmocka_unit_test(facts_within_their_noise_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
