/* test_elements.c - elements of every type: equal to the bytes of the gguf package's packers, and round
 * trips. */
#include <float.h>

#include "engine/kernels/table/half.h"
#include "tests/engine/interop/interop_fixture.h"
#include "tests/engine/interop/packers.h"

enum { N = 768 };

/* The same random values as in make_interop_golden.py. */
static void draw(float x[N], int8_t codes[N]) {
    uint32_t state = 1;
    for (size_t i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = ((float)(state >> 8) - 0x1p23f) / 0x1p23f;
        codes[i] = (int8_t)((x[i] > 1.0f / 3) - (x[i] < -1.0f / 3));
        if (i >= 256 && i < 512) codes[i] = 0;
    }
}

static void same_bytes(const char *name, const unsigned char *got, size_t n, const char *hex) {
    assert_int_equal(strlen(hex), 2 * n);
    for (size_t i = 0; i < n; i++) {
        unsigned want;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &want), 1);
        if (got[i] != want) fail_msg("%s, byte %zu: %02x, not %02x", name, i, got[i], want);
    }
}

static void bytes_are_those_of_the_packers(void **state) {
    (void)state;
    static float x[N];
    static int8_t codes[N];
    static unsigned char out[N * 4];
    draw(x, codes);
    bt_number_encode(BT_NUM_F16, out, x, N);
    same_bytes("f16", out, bt_number_bytes(BT_NUM_F16, N), packed_f16);
    bt_number_encode(BT_NUM_BF16, out, x, N);
    same_bytes("bf16", out, bt_number_bytes(BT_NUM_BF16, N), packed_bf16);
    bt_number_encode(BT_NUM_Q8_0, out, x, N);
    same_bytes("q8_0", out, bt_number_bytes(BT_NUM_Q8_0, N), packed_q8_0);
    bt_number_encode_codes(BT_NUM_TQ1_0, out, codes, 0.0371f, N);
    same_bytes("tq1_0", out, bt_number_bytes(BT_NUM_TQ1_0, N), packed_tq1_0);
    bt_number_encode_codes(BT_NUM_TQ2_0, out, codes, 0.0371f, N);
    same_bytes("tq2_0", out, bt_number_bytes(BT_NUM_TQ2_0, N), packed_tq2_0);
}

static void codes_are_restored(void **state) {
    (void)state;
    static float x[N], back[N];
    static int8_t codes[N];
    static unsigned char out[N];
    bt_err err = BT_ERR_INIT;
    draw(x, codes);
    bt_number_encode_codes(BT_NUM_I2_S, out, codes, 0.5f, N);
    assert_int_equal(bt_number_decode(BT_NUM_I2_S, back, out, N, &err), BT_OK);
    for (size_t i = 0; i < N; i++) assert_true(back[i] == (float)codes[i]);
    for (size_t j = 0; j < 32; j++)
        assert_int_equal(out[j], (codes[j] + 1) << 6 | (codes[32 + j] + 1) << 4 |
                                     (codes[64 + j] + 1) << 2 | (codes[96 + j] + 1));
    const bt_number types[] = {BT_NUM_TQ1_0, BT_NUM_Q2_0, BT_NUM_TQ2_0};
    for (size_t k = 0; k < 3; k++) {
        bt_number_encode_codes(types[k], out, codes, 0.5f, N);
        assert_int_equal(bt_number_decode(types[k], back, out, N, &err), BT_OK);
        for (size_t i = 0; i < N; i++) assert_true(back[i] == 0.5f * (float)codes[i]);
    }
    out[7] = 0xff; /* the code 3 */
    assert_int_equal(bt_number_decode(BT_NUM_TQ2_0, back, out, N, &err), BT_FORMAT);
}

/* Codes read directly: where all values have one size, they are the signs. */
static void codes_without_floats(void **state) {
    (void)state;
    static const bt_number types[] = {BT_NUM_F32,   BT_NUM_F16,   BT_NUM_BF16, BT_NUM_Q8_0,
                                      BT_NUM_TQ1_0, BT_NUM_TQ2_0, BT_NUM_Q2_0};
    static float x[N], back[N];
    static int8_t drawn[N], codes[N];
    static unsigned char out[N * 4];
    bt_err err = BT_ERR_INIT;
    draw(x, drawn);
    for (size_t i = 0; i < N; i++) x[i] = 0.375f * (float)drawn[i];
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        const bool coded = bt_number_at(types[k])->coded;
        float size = 0;
        if (coded)
            bt_number_encode_codes(types[k], out, drawn, 0.375f, N);
        else
            bt_number_encode(types[k], out, x, N);
        assert_true(bt_number_codes(types[k], codes, out, N, &size));
        assert_memory_equal(codes, drawn, N);
        assert_int_equal(bt_number_decode(types[k], back, out, N, &err), BT_OK);
        for (size_t i = 0; i < N; i++) assert_true(back[i] == size * (float)codes[i]);
        size = 0.25f; /* the scale of another tensor or thread */
        assert_false(bt_number_codes(types[k], codes, out, N, &size));
    }
    bt_number_encode_codes(BT_NUM_TQ2_0, out, drawn, 0.375f, N);
    float size = 0;
    /* scale of the last block */
    unsigned char *d = out + 2 * bt_number_bytes(BT_NUM_TQ2_0, 256) + 64;
    d[1] |= 0x80; /* -0.375 */
    assert_true(bt_number_codes(BT_NUM_TQ2_0, codes, out, N, &size));
    for (size_t i = 0; i < N; i++) assert_true(codes[i] == (i < 512 ? drawn[i] : -drawn[i]));
    d[0] = d[1] = 0;
    assert_true(bt_number_codes(BT_NUM_TQ2_0, codes, out, N, &size));
    for (size_t i = 512; i < N; i++) assert_int_equal(codes[i], 0);
    d[1] = 0x7c; /* infinity */
    assert_false(bt_number_codes(BT_NUM_TQ2_0, codes, out, N, &size));
    d[1] = 0x3c; /* 1 */
    assert_false(bt_number_codes(BT_NUM_TQ2_0, codes, out, N, &size));
    out[7] = 0xff; /* the code 3 */
    assert_false(bt_number_codes(BT_NUM_TQ2_0, codes, out, N, &size));
}

/* Every fp16 and bf16 value, and floats between two of them. */
static void halves(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float x = bt_half_to_float((uint16_t)h), y = bt_bf16_to_float((uint16_t)h);
        if (isnan(x))
            assert_true(isnan(bt_half_to_float(bt_float_to_half(x))));
        else
            assert_int_equal(bt_float_to_half(x), h);
        if (isnan(y))
            assert_true(isnan(bt_bf16_to_float(bt_float_to_bf16(y))));
        else
            assert_int_equal(bt_float_to_bf16(y), h);
    }
    for (uint32_t h = 0; h < 0x7bff; h++) { /* Ties round to even. */
        const float x = bt_half_to_float((uint16_t)h), next = bt_half_to_float((uint16_t)(h + 1)),
                    middle = x + (next - x) / 2;
        assert_int_equal(bt_float_to_half(middle), h + (h & 1));
        assert_int_equal(bt_float_to_half(nextafterf(middle, FLT_MAX)), h + 1);
        assert_int_equal(bt_float_to_half(nextafterf(middle, 0)), h);
    }
    assert_int_equal(bt_float_to_half(65519.0f), 0x7bff);
    assert_int_equal(bt_float_to_half(65520.0f), 0x7c00);
}

static void eighths_round_away_from_zero(void **state) {
    (void)state;
    float x[32] = {127, 0.5f, -2.5f, 1.5f, -0.49f};
    unsigned char out[34];
    bt_number_encode(BT_NUM_Q8_0, out, x, 32);
    assert_int_equal((int8_t)out[2], 127);
    assert_int_equal((int8_t)out[3], 1);
    assert_int_equal((int8_t)out[4], -3);
    assert_int_equal((int8_t)out[5], 2);
    assert_int_equal((int8_t)out[6], 0);
    memset(x, 0, sizeof x);
    bt_number_encode(BT_NUM_Q8_0, out, x, 32);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(out[i], 0);
}

/* Read-only types, as the gguf package decodes them; products may be fused. */
static void quantised_blocks_have_the_values_of_the_gguf_package(void **state) {
    (void)state;
    json_error_t why;
    json_t *root = json_load_file(golden_path("quantised/blocks.json"), 0, &why), *row;
    const char *name;
    int seen = 0;
    assert_non_null(root);
    json_object_foreach(root, name, row) {
        const char *hex = json_string_value(json_object_get(row, "hex"));
        json_t *values = json_object_get(row, "values");
        const size_t n = json_array_size(values);
        static unsigned char bytes[1024];
        static float got[512];
        bt_err err = BT_ERR_INIT;
        bt_number t = 0;
        while (strcmp(bt_number_at(t)->word, name) != 0) t++;
        assert_int_equal(bt_number_bytes(t, n) * 2, strlen(hex));
        for (size_t i = 0; hex[2 * i]; i++) {
            unsigned byte;
            assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
            bytes[i] = (unsigned char)byte;
        }
        assert_int_equal(bt_number_decode(t, got, bytes, n, &err), BT_OK);
        for (size_t i = 0; i < n; i++) {
            const double want = json_number_value(json_array_get(values, i));
            if (!(fabs((double)got[i] - want) <= 1e-5 + 1e-6 * fabs(want)))
                fail_msg("%s, value %zu: %.9g, not %.9g", name, i, (double)got[i], want);
        }
        seen++;
    }
    assert_int_equal(seen, 12);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_blocks_have_the_values_of_the_gguf_package),
        cmocka_unit_test(bytes_are_those_of_the_packers),
        cmocka_unit_test(codes_are_restored),
        cmocka_unit_test(codes_without_floats),
        cmocka_unit_test(halves),
        cmocka_unit_test(eighths_round_away_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
