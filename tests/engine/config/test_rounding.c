/* test_rounding.c - the matrix products that use int8 by default. */
#include "engine/config/agree/job_agreement.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "tests/engine/config/settled.h"

/* int8 gradients are used on processors where they are faster, but not with an explicit precision or in layers without
 * ternary codes. */
static void int8_gradients_are_chosen_where_faster(void **state) {
    (void)state;
    const bt_cpu *cpu = bt_cpu_get();
    const bool avx2 = cpu->avx2 && cpu->fma && cpu->f16c, any = avx2 || cpu->neon;
    assert_false(bt_kernels_int8_pays("generic"));
    assert_false(bt_kernels_int8_pays("blas"));
    const struct {
        const char *isa;
        bool vectors;
    } isas[] = {{"auto", any},
                {"avx2", avx2},
                {"avx2-plain", avx2},
                {"neon", cpu->neon},
                {"neon-plain", cpu->neon}};
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        assert_int_equal(bt_kernels_int8_pays(isas[i].isa), isas[i].vectors);
        assert_int_equal(SETTLE(1, "--isa", isas[i].isa), BT_OK);
        assert_int_equal(c.train.grad, isas[i].vectors ? BT_GRAD_INT8 : BT_GRAD_FLOAT);
        assert_string_equal(origin_of_setting("train.grad"), "auto");
    }
    const char *const exact[][4] = {{"--precision", "fp32"},
                                    {"--precision", "fp16"},
                                    {"--set", "model.linear=dense"},
                                    {"--isa", "generic"},
                                    {"--grad", "float"}};
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        assert_int_equal(SETTLE(1, exact[i][0], exact[i][1]), BT_OK);
        assert_int_equal(c.train.grad, BT_GRAD_FLOAT);
    }
    assert_int_equal(SETTLE(1, "--grad", "int8", "--isa", "generic"), BT_OK);
    assert_int_equal(c.train.grad, BT_GRAD_INT8);
    assert_int_equal(c.train.attention, BT_ATTENTION_FLOAT);
    assert_int_equal(SETTLE(1, "--grad", "float", "--set", "train.attention=int8"), BT_OK);
    assert_int_equal(c.train.attention, BT_ATTENTION_INT8);
}

/* int8 attention is used for text with int8 gradients, on processors with VNNI and without bf16 products, but not with
 * an explicit float format. */
static void int8_attention_is_chosen_where_supported(void **state) {
    (void)state;
    const bt_cpu *cpu = bt_cpu_found();
    const bool avx512 = cpu->avx512 && cpu->avx512_vnni, avx2 = cpu->avx_vnni;
    static const char *const never[] = {"generic",      "blas", "avx2-plain",
                                        "avx512-plain", "amx",  "neon-plain"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_false(bt_kernels_int8_attention_pays(never[i]));
    assert_int_equal(bt_kernels_int8_attention_pays("avx2"), avx2);
    assert_int_equal(bt_kernels_int8_attention_pays("avx512-vnni"), avx512);
    assert_int_equal(bt_kernels_int8_attention_pays("neon"), cpu->dotprod);
    assert_int_equal(bt_kernels_int8_attention_pays("avx512"), avx512 && !cpu->avx512_bf16);
    assert_int_equal(bt_kernels_int8_attention_pays("auto"),
                     bt_kernels_int8_attention_pays(bt_kernels_auto_isa(cpu)));
    static const char *const isas[] = {"avx2", "avx512-vnni"};
    for (size_t k = 0; k < 2; k++) {
        const bool pays = bt_kernels_int8_attention_pays(isas[k]);
        assert_int_equal(SETTLE(1, "--isa", isas[k]), BT_OK);
        assert_int_equal(c.train.attention, pays ? BT_ATTENTION_INT8 : BT_ATTENTION_FLOAT);
        assert_string_equal(origin_of_setting("train.attention"), "auto");
        const char *const floats[][4] = {{"--set", "train.attention=float"},
                                         {"--grad", "float"},
                                         {"--precision", "fp32"},
                                         {"--form", "completion"}};
        for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
            if (SETTLE(1, "--isa", isas[k], floats[i][0], floats[i][1]) != BT_OK)
                fail_msg("%s: %s", floats[i][1], err.msg);
            assert_int_equal(c.train.attention, BT_ATTENTION_FLOAT);
        }
        if (SETTLE(1, "--isa", isas[k], "--set", "tune.mode=lora", "--set", "tune.base=b") != BT_OK)
            fail_msg("%s", err.msg);
        assert_int_equal(c.train.attention, BT_ATTENTION_FLOAT);
    }
}

/* All ranks use int8 attention only if each of them would. */
static void all_ranks_agree_on_int8_attention(void **state) {
    (void)state;
    /* In `some`, int8 attention is slower than float on another rank. */
    const bt_isa_agreement all = {.isa = "avx2", .int8_attention = true}, some = {.isa = "avx2"};
    const struct {
        const bt_isa_agreement *job;
        int given, taken;
    } cases[] = {{&some, BT_ATTENTION_INT8, BT_ATTENTION_INT8},
                 {&some, BT_ATTENTION_AUTO, BT_ATTENTION_FLOAT},
                 {&all, BT_ATTENTION_AUTO,
                  bt_kernels_int8_attention_pays("avx2") ? BT_ATTENTION_INT8 : BT_ATTENTION_FLOAT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(SETTLE(1, "--grad", "int8"), BT_OK);
        c.train.attention = cases[i].given;
        bt_isa_agreement_apply(cases[i].job, &c);
        /* Resolving the settings again, as for another number of ranks, does not change them. */
        for (int k = 0; k < 2; k++) assert_int_equal(bt_run_cfg_resolve(&c, 1, &err), BT_OK);
        assert_string_equal(c.launch.isa, "avx2");
        if (c.train.attention != cases[i].taken) fail_msg("case %zu", i);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_gradients_are_chosen_where_faster),
        cmocka_unit_test(int8_attention_is_chosen_where_supported),
        cmocka_unit_test(all_ranks_agree_on_int8_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
