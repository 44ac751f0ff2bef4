/* test_spark.c - the curve of a run's loss (sparkline): at most 64 points for any length, formatted as text and parsed
 * again. */
#include "store/write/spark.h"
#include "tests/store/store_test.h"

static void expects_curve(const bt_spark *s, int64_t stride, const char *want) {
    char text[BT_SPARK_TEXT];
    bt_spark_text(s, text, sizeof text);
    assert_string_equal(text, want);
    assert_int_equal(s->stride, stride);
}

static void a_curve_follows_a_run_of_any_length(void **state) {
    (void)state;
    bt_spark s = {.stride = 1};
    char text[BT_SPARK_TEXT], want[BT_SPARK_TEXT] = "[";
    expects_curve(&s, 1, "[]");
    bt_spark_add(&s, 0, 3.14159);
    bt_spark_add(&s, 2, -0.5);
    expects_curve(&s, 1, "[3.142,null,-0.5]");
    bt_spark_add(&s, 3, NAN); /* A loss that is not finite is no point. */
    bt_spark_add(&s, 3, INFINITY);
    expects_curve(&s, 1, "[3.142,null,-0.5]");
    bt_spark_add(&s, 1, 7); /* The repeated step replaces it. */
    expects_curve(&s, 1, "[3.142,7]");
    for (int64_t step = 0; step < 64; step++) bt_spark_add(&s, step, (double)step);
    assert_true(s.n == 64 && s.stride == 1 && s.at[63] == 63);
    bt_spark_add(&s, 64, 64); /* Two points are merged into the later one. */
    assert_true(s.n == 33 && s.stride == 2);
    for (int i = 0; i < 32; i++) assert_true(s.at[i] == 2 * i + 1);
    assert_true(s.at[32] == 64);
    bt_spark_add(&s, 65, 65);
    assert_true(s.n == 33 && s.at[32] == 65);
    for (int64_t step = 66; step < 5000; step++) bt_spark_add(&s, step, (double)step);
    assert_true(s.stride == 128 && s.n == 40 && s.at[0] == 127 && s.at[38] == 39 * 128 - 1);
    assert_true(s.at[39] == 4999);
    bt_spark again;
    bt_spark_text(&s, text, sizeof text);
    for (int i = 0; i < s.n; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%.4g", i ? "," : "", s.at[i]);
    strcat(want, "]");
    assert_string_equal(text, want);
    bt_spark_parse(&again, text, 4999);
    assert_true(again.n == s.n && again.stride == s.stride);
    for (int i = 0; i < s.n; i++) assert_true(fabs(again.at[i] - s.at[i]) <= 0.5);
    /* The number of points is odd, and one of them is missing. */
    s = (bt_spark){.stride = 1};
    for (int64_t step = 0; step < 63; step += 2) bt_spark_add(&s, step, (double)step);
    assert_int_equal(s.n, 63);
    bt_spark_add(&s, 64, 1);
    assert_true(s.n == 33 && s.at[0] == 0 && s.at[30] == 60 && s.at[31] == 62 && s.at[32] == 1);
    s = (bt_spark){.stride = 1};
    bt_spark_add(&s, 1000, 1); /* The first steps of the run were not recorded. */
    assert_true(s.stride == 16 && s.n == 63 && isnan(s.at[0]) && isnan(s.at[61]) && s.at[62] == 1);
    char small[40]; /* The text is shortened to the buffer. */
    bt_spark_text(&s, small, sizeof small);
    assert_string_equal(small, "[null,null,null,null,null]");
}

static void curves_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t last;
        int n;
        int64_t stride;
        double at[3]; /* NaN: unknown */
    } rows[] = {{NULL, 5, 0, 1, {0}},
                {"", 5, 0, 1, {0}},
                {"1,2", 5, 0, 1, {0}},
                {"[]", -1, 0, 1, {0}},
                {"[1.5,null,-2e-3]", 63, 3, 1, {1.5, NAN, -2e-3}},
                {"[1.5,null,-2e-3]", 64, 3, 2, {1.5, NAN, -2e-3}},
                {"[1.5,null,-2e-3]", 127, 3, 2, {1.5, NAN, -2e-3}},
                {"[1.5,null,-2e-3]", 128, 3, 4, {1.5, NAN, -2e-3}},
                {"[null]", 0, 1, 1, {NAN}},
                {"[1,2", 0, 2, 1, {1, 2}},
                {"[1,x,3]", 0, 3, 1, {1, NAN, 3}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_spark s = {.n = 9, .stride = 99};
        bt_spark_parse(&s, rows[i].text, rows[i].last);
        if (s.n != rows[i].n || s.stride != rows[i].stride) fail_msg("row %zu: %d points", i, s.n);
        for (int k = 0; k < s.n; k++)
            assert_true(isnan(rows[i].at[k]) ? isnan(s.at[k]) : s.at[k] == rows[i].at[k]);
    }
    bt_spark s;
    char many[400] = "[0";
    for (int i = 1; i < 80; i++) strcat(many, ",0");
    bt_spark_parse(&s, strcat(many, "]"), 10); /* The text has more points than a curve can hold. */
    assert_int_equal(s.n, BT_SPARK_POINTS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_curve_follows_a_run_of_any_length),
                                       cmocka_unit_test(curves_are_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
