/* Storage formats of optimizer states (bf16 and 8-bit): every code is restored with any rounding noise, codes are
 * ordered, the mean over all noise values is the number itself; limits, and values that are not finite. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "engine/base/numbers/moment.h"
#include "engine/base/rng.h"

enum { NOISES = 65536 };

static float encode_and_decode(bt_moment_form as, float x, uint32_t noise) {
    switch (as) {
    case BT_MOMENT_BF16: return bt_moment_of_bf16(bt_moment_to_bf16(x, noise));
    case BT_MOMENT_LOG8: return bt_moment_of_log8(bt_moment_to_log8(x, noise));
    case BT_MOMENT_ULOG8: return bt_moment_of_ulog8(bt_moment_to_ulog8(x, noise));
    default: return x;
    }
}

static void a_code_reads_back_as_itself(void **state) {
    (void)state;
    const uint32_t noises[] = {0, 1, 0x7fff, BT_MOMENT_NEAREST, 0xffff};
    for (size_t k = 0; k < 5; k++) {
        for (uint32_t c = 0; c < 256; c++) {
            const float x = bt_moment_of_log8((uint8_t)c), u = bt_moment_of_ulog8((uint8_t)c);
            assert_int_equal(bt_moment_to_log8(x, noises[k]), c);
            assert_int_equal(bt_moment_to_ulog8(u, noises[k]), c);
        }
        for (uint32_t c = 0; c <= 0x7f80; c++) /* 0x7f80: infinity */
            assert_int_equal(bt_moment_to_bf16(bt_moment_of_bf16((uint16_t)c), noises[k]), c);
    }
    for (uint32_t c = 1; c < 256; c++) {
        assert_true(bt_moment_of_ulog8((uint8_t)c) > bt_moment_of_ulog8((uint8_t)(c - 1)));
        if (c < 128)
            assert_true(bt_moment_of_log8((uint8_t)c) > bt_moment_of_log8((uint8_t)(c - 1)));
        if (c > 128) assert_true(bt_moment_of_log8((uint8_t)c) < 0);
    }
}

static void codes_cover_the_documented_range(void **state) {
    (void)state;
    assert_true(bt_moment_of_log8(0) == 0 && bt_moment_of_ulog8(0) == 0);
    assert_true(bt_moment_of_log8(1) == 0x1p-29f && bt_moment_of_ulog8(1) == 0x1p-58f);
    assert_true(bt_moment_of_log8(4) == 0x1p-27f && bt_moment_of_ulog8(4) == 0x1p-56f);
    assert_true(bt_moment_of_log8(0x7f) == 14 && bt_moment_of_ulog8(0xff) == 112);
    for (uint32_t u = 0; u < NOISES; u += 4369) {
        assert_true(encode_and_decode(BT_MOMENT_LOG8, 1e30f, u) == 14);
        assert_true(encode_and_decode(BT_MOMENT_LOG8, -1e30f, u) == -14);
        assert_true(encode_and_decode(BT_MOMENT_LOG8, 15.9f, u) == 14);
        assert_true(encode_and_decode(BT_MOMENT_ULOG8, 1e30f, u) == 112);
        assert_true(encode_and_decode(BT_MOMENT_LOG8, 0, u) == 0 &&
                    encode_and_decode(BT_MOMENT_ULOG8, 0, u) == 0);
        assert_false(signbit(encode_and_decode(BT_MOMENT_LOG8, 0, u)));
        assert_true(isinf(encode_and_decode(BT_MOMENT_BF16, INFINITY, u)));
        assert_true(isnan(encode_and_decode(BT_MOMENT_BF16, NAN, u)));
        assert_true(encode_and_decode(BT_MOMENT_LOG8, -INFINITY, u) == -14);
        assert_true(encode_and_decode(BT_MOMENT_LOG8, NAN, u) == 14);
        assert_true(encode_and_decode(BT_MOMENT_ULOG8, INFINITY, u) == 112);
    }
}

/* Over all noise values, the mean is the number, and only its two neighbours occur. */
static void the_mean_is_the_number(void **state) {
    (void)state;
    for (int f = BT_MOMENT_BF16; f < BT_MOMENT_FORMS; f++)
        for (uint64_t k = 0; k < 60; k++) {
            const double exponent = 28 * bt_rng_unit(1, (uint64_t)f, 2 * k) - 27;
            const double sign = f != BT_MOMENT_ULOG8 && k % 2 ? -1 : 1;
            const float x = (float)(sign * exp2(f == BT_MOMENT_ULOG8 ? 2 * exponent : exponent) *
                                    (k % 5 == 0 ? 0.1 : 1));
            double sum = 0, low = INFINITY, high = -INFINITY;
            int others = 0;
            for (uint32_t u = 0; u < NOISES; u++) {
                const double y = (double)encode_and_decode((bt_moment_form)f, x, u);
                sum += y;
                low = y < low ? y : low;
                high = y > high ? y : high;
            }
            for (uint32_t u = 0; u < NOISES; u++) {
                const double y = (double)encode_and_decode((bt_moment_form)f, x, u);
                others += y > low && y < high;
            }
            assert_int_equal(others, 0);
            assert_true(low <= (double)x && (double)x <= high);
            if (!(fabs(sum / NOISES - (double)x) <= (high - low) * 0x1p-16))
                fail_msg("form %d: the mean of %.9g is %.9g", f, (double)x, sum / NOISES);
            /* the nearest code */
            const double near = (double)encode_and_decode((bt_moment_form)f, x, BT_MOMENT_NEAREST);
            assert_true(fabs(near - (double)x) <= 0.5001 * (high - low));
        }
}

static void larger_numbers_have_no_lower_code(void **state) {
    (void)state;
    float last[BT_MOMENT_FORMS] = {0};
    for (uint32_t bits = 0; bits < 0x7f800000u; bits += 40961)
        for (int f = BT_MOMENT_BF16; f < BT_MOMENT_FORMS; f++) {
            const float y = encode_and_decode((bt_moment_form)f, bt_moment_float(bits), 12345);
            assert_true(y >= last[f]);
            last[f] = y;
        }
}

static void formats_convert_into_each_other(void **state) {
    (void)state;
    const float x[] = {0, 1, 0.3f, 3e-5f, 7e-9f};
    uint8_t few[5];
    uint16_t half[5];
    float y[5];
    bt_moment_convert(few, BT_MOMENT_ULOG8, x, BT_MOMENT_F32, 5);
    /* These values are exact in both formats. */
    bt_moment_convert(half, BT_MOMENT_BF16, few, BT_MOMENT_ULOG8, 5);
    bt_moment_convert(y, BT_MOMENT_F32, half, BT_MOMENT_BF16, 5);
    for (int i = 0; i < 5; i++) {
        assert_true(y[i] == bt_moment_of_ulog8(few[i]));
        assert_true(fabs((double)y[i] - (double)x[i]) <= 0.125 * (double)x[i]);
    }
    bt_moment_convert(y, BT_MOMENT_F32, x, BT_MOMENT_F32, 5);
    assert_memory_equal(x, y, sizeof x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_code_reads_back_as_itself),
        cmocka_unit_test(codes_cover_the_documented_range),
        cmocka_unit_test(the_mean_is_the_number),
        cmocka_unit_test(larger_numbers_have_no_lower_code),
        cmocka_unit_test(formats_convert_into_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
