/* test_auto_isa.c - the kernel set that "auto" selects for descriptions of several processors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/cpu_arm.h"
#include "engine/kernels/table/kernels.h"

static const bt_cpu haswell = {.vendor = "GenuineIntel", .avx2 = true, .fma = true, .f16c = true};

static bt_cpu haswell_with_avx512(bool vnni, bool bf16, bool slow) {
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
    if (bt_cpu_found()->neon) skip(); /* A build for ARM has no sets of x86. */
    const bt_cpu none = {.vendor = "AuthenticAMD"};
    assert_auto("auto", none);
    assert_auto("avx2", haswell);
    bt_cpu half = haswell;
    half.fma = false;
    assert_auto("auto", half);
    assert_auto("avx512", haswell_with_avx512(false, false, false)); /* Skylake-X */
    assert_auto("avx512", haswell_with_avx512(true, true, false));   /* Zen 4, Cooper Lake */
    bt_cpu tiles = haswell_with_avx512(true, true, true);            /* Sapphire Rapids */
    tiles.amx_tile = tiles.amx_int8 = tiles.amx_bf16 = true;
    assert_auto("amx", tiles);
    tiles.amx_bf16 = false;
    assert_auto("avx512-vnni", tiles);
}

/* Builds for aarch64 have only the NEON set, and builds for x86 have no NEON set. */
static void arm_has_one_set_and_its_extensions(void **state) {
    (void)state;
    bt_cpu arm = {.vendor = "ARM", .neon = true};
    if (!bt_cpu_found()->neon) {
        assert_auto("auto", arm);
        return;
    }
    assert_auto("neon", arm);
    arm.dotprod = arm.i8mm = true;
    assert_auto("neon", arm);
    bt_err err = {0};
    const bt_cpu *c = bt_cpu_get();
    static const struct {
        const char *isa;
        bool dotprod, i8mm;
    } words[] = {{"neon-plain", false, false}, {"neon-dotprod", true, false}, {"neon", true, true}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        assert_int_equal(bt_kernels_select(words[i].isa, &err), BT_OK);
        assert_string_equal(bt_kernels_isa(), words[i].isa);
        assert_int_equal(c->dotprod, words[i].dotprod && bt_cpu_found()->dotprod);
        assert_int_equal(c->i8mm, words[i].i8mm && bt_cpu_found()->i8mm);
        assert_int_equal(bt_kernels_level(words[i].isa), BT_LEVEL_AVX2);
    }
    assert_string_equal(bt_kernels_level_isa(BT_LEVEL_AVX2), "neon");
    assert_int_equal(bt_kernels_select("avx2", &err), BT_UNSUPPORTED);
}

static void arm_cores_have_names(void **state) {
    (void)state;
    char model[64];
    const uint64_t rock5[] = {0x412fd050, 0x414fd0b0}, new[] = {0x41ffff00}, apple[] = {0x611f0221},
                   twice[] = {0x413fd0c1, 0x410fd0c0};
    bt_cpu_arm_model(rock5, 2, model, sizeof model);
    assert_string_equal(model, "Cortex-A55 and Cortex-A76");
    bt_cpu_arm_model(new, 1, model, sizeof model);
    assert_string_equal(model, "ARM core 0xff0");
    bt_cpu_arm_model(apple, 1, model, sizeof model);
    assert_string_equal(model, "M1 Icestorm");
    bt_cpu_arm_model(twice, 2, model, sizeof model);
    assert_string_equal(model, "Neoverse-N1");
    char small[20];
    bt_cpu_arm_model(rock5, 2, small, sizeof small);
    assert_string_equal(small, "Cortex-A55");
    const char *vendor;
    assert_string_equal(bt_cpu_arm_core(0xc00fac30, &vendor), "Ampere-1");
    assert_string_equal(vendor, "Ampere");
}

static void bf16_is_left_out_where_it_is_slower_than_fp32(void **state) {
    (void)state;
    if (bt_cpu_found()->neon) skip();
    assert_auto("avx512-vnni", haswell_with_avx512(true, true, true));
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
        cmocka_unit_test(arm_has_one_set_and_its_extensions),
        cmocka_unit_test(arm_cores_have_names),
        cmocka_unit_test(bf16_is_left_out_where_it_is_slower_than_fp32),
        cmocka_unit_test(auto_selects_the_named_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
