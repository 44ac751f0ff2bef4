/* test_auto_isa.c - the kernel set that "auto" selects on processors described here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"

static const bt_cpu haswell = {.vendor = "GenuineIntel", .avx2 = true, .fma = true, .f16c = true};

static bt_cpu with_avx512(bool vnni, bool bf16, bool slow) {
    bt_cpu c = haswell;
    c.avx512 = true;
    c.avx512_vnni = vnni;
    c.avx512_bf16 = bf16;
    c.bf16_slow = slow;
    return c;
}

static void assert_auto(const char *isa, bt_cpu c) {
    assert_string_equal(bt_kernels_auto_isa(&c), isa);
}

static void the_fastest_set_that_a_processor_has(void **state) {
    (void)state;
    const bt_cpu none = {.vendor = "AuthenticAMD"};
    assert_auto("auto", none);
    assert_auto("avx2", haswell);
    bt_cpu half = haswell;
    half.fma = false;
    assert_auto("auto", half);
    assert_auto("avx512", with_avx512(false, false, false)); /* Skylake-X */
    assert_auto("avx512", with_avx512(true, true, false));   /* Zen 4, Cooper Lake */
    bt_cpu tiles = with_avx512(true, true, true);            /* Sapphire Rapids */
    tiles.amx_tile = tiles.amx_int8 = tiles.amx_bf16 = true;
    assert_auto("amx", tiles);
    tiles.amx_bf16 = false;
    assert_auto("avx512-vnni", tiles);
}

static void bf16_is_left_out_where_it_is_slower_than_fp32(void **state) {
    (void)state;
    assert_auto("avx512-vnni", with_avx512(true, true, true));
}

static void auto_selects_the_named_set(void **state) {
    (void)state;
    bt_err err = {0};
    const char *means = bt_kernels_auto_isa(bt_cpu_found());
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    if (strcmp(means, "auto") == 0) {
        assert_true(bt_kernels_level("auto") <= BT_LEVEL_BLAS);
        return;
    }
    assert_string_equal(bt_kernels_isa(), means);
    assert_int_equal(bt_kernels_level("auto"), bt_kernels_level(means));
    assert_true(bt_kernels_int8_pays("auto"));
    assert_int_equal(bt_cpu_found()->bf16_slow,
                     bt_cpu_found()->avx512_bf16 && bt_cpu_found()->avx512_vbmi &&
                         strcmp(bt_cpu_found()->vendor, "GenuineIntel") == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_set_that_a_processor_has),
        cmocka_unit_test(bf16_is_left_out_where_it_is_slower_than_fp32),
        cmocka_unit_test(auto_selects_the_named_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
