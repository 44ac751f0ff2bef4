/* The 2-bit format of ternary weights: round trip, bit layout, padding, and products compared with the plain
 * product. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/kernels/table/kernels.h"
#include "engine/kernels/table/ternary.h"

static int8_t draw_codes(uint64_t i) { return (int8_t)(bt_rng_u64(3, 4, i) % 3) - 1; }

static void bits_are_packed_as_documented(void **state) {
    (void)state;
    int8_t codes[130];
    uint8_t packed[64];
    for (size_t i = 0; i < 130; i++) codes[i] = 0;
    codes[0] = -1, codes[33] = 1, codes[127] = -1, codes[129] = 1;
    assert_int_equal(bt_tern2_row_bytes(130), 64);
    bt_tern2_pack(packed, codes, 1, 130);
    assert_int_equal(packed[0], 0x54);  /* inputs 0, 32, 64, 96: -1, 0, 0, 0 */
    assert_int_equal(packed[1], 0x59);  /* input 33 is 1: bits 2, 3 hold 2 */
    assert_int_equal(packed[31], 0x15); /* input 127 is -1: bits 6, 7 hold 0 */
    assert_int_equal(packed[32], 0x55);
    assert_int_equal(packed[33], 0x56);
    for (size_t i = 34; i < 64; i++) assert_int_equal(packed[i], 0x55);
}

static void test_round_trip(void **state) {
    (void)state;
    static const size_t K[] = {1, 31, 32, 33, 127, 128, 129, 192, 255, 256, 1408};
    for (size_t i = 0; i < sizeof K / sizeof *K; i++) {
        size_t N = 3, n = N * K[i];
        int8_t *codes = malloc(n), *back = malloc(n);
        uint8_t *packed = malloc(N * bt_tern2_row_bytes(K[i]));
        for (size_t j = 0; j < n; j++) codes[j] = draw_codes(j);
        bt_tern2_pack(packed, codes, N, K[i]);
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_tern2_unpack(back, packed, N, K[i], &err), BT_OK);
        assert_memory_equal(codes, back, n);
        packed[(N - 1) * bt_tern2_row_bytes(K[i])] |= 3;
        assert_int_equal(bt_tern2_unpack(back, packed, N, K[i], &err), BT_FORMAT);
        free(codes);
        free(back);
        free(packed);
    }
}

/* Any range of a row is read; the error contains the position of an invalid code 3. */
static void test_read_and_refuse(void **state) {
    (void)state;
    enum { K = 300 };
    int8_t codes[K], back[K];
    uint8_t packed[3 * 32];
    char place[32];
    for (size_t i = 0; i < K; i++) codes[i] = draw_codes(i + 7);
    bt_tern2_pack(packed, codes, 1, K);
    for (size_t first = 0; first < K; first += 19) {
        for (size_t n = 1; first + n <= K; n += 23) {
            bt_tern2_read(back, packed, first, n);
            assert_memory_equal(back, codes + first, n);
        }
    }
    for (size_t k = 0; k < K; k++) {
        uint8_t *byte = &packed[k / 128 * 32 + k % 32], kept = *byte;
        bt_err err = BT_ERR_INIT;
        *byte |= (uint8_t)(3 << k % 128 / 32 * 2);
        assert_int_equal(bt_tern2_unpack(back, packed, 1, K, &err), BT_FORMAT);
        snprintf(place, sizeof place, "input %zu holds", k);
        assert_non_null(strstr(err.msg, place));
        *byte = kept;
    }
}

static void test_gemv_of_packed(void **state) {
    (void)state;
    enum { N = 37, K = 700 };
    static int8_t codes[N * K], x[K];
    static uint8_t packed[N * ((K + 127) / 128 * 32)];
    float y[N], want[N], dq = 0.03f;
    for (size_t i = 0; i < N * K; i++) codes[i] = draw_codes(i);
    for (size_t i = 0; i < K; i++) x[i] = (int8_t)((int)(bt_rng_u64(5, 6, i) % 255) - 127);
    bt_tern2_pack(packed, codes, N, K);
    bt_kernels_generic.tern_fwd(want, N, x, &dq, codes, 0.5f, 0, 1, N, K, 0, NULL);
    bt_kernels_generic.tern_gemv(y, N, x, &dq, 1, packed, 0.5f, K, 0, N, 0, NULL);
    assert_memory_equal(y, want, sizeof y);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_packed_as_documented),
                                       cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_read_and_refuse),
                                       cmocka_unit_test(test_gemv_of_packed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
