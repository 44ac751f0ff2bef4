/* Presets, numbers of parameters and operations, and the tensor table: exact figures for comparisons with other
 * programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model/shape/params.h"
#include "tests/message.h"

static void presets_have_their_published_shapes(void **state) {
    (void)state;
    const struct {
        const char *name;
        int n[7];
    } want[] = {
        {"nano", {6, 192, 6, 6, 512, 256, 256}},
        {"small", {8, 512, 8, 4, 1408, 512, 8192}},
        {"base", {12, 768, 12, 4, 2048, 1024, 32000}},
        {"bitnet-2b4t", {30, 2560, 20, 5, 6912, 4096, 128256}},
        {"qwen3-0.6b", {28, 1024, 16, 8, 3072, 40960, 151936}},
    };
    assert_int_equal(bt_preset_count(), sizeof want / sizeof *want);
    for (size_t i = 0; i < bt_preset_count(); i++) {
        const bt_preset *p = bt_preset_find(want[i].name);
        assert_non_null(p);
        assert_ptr_equal(p, bt_preset_at(i));
        const bt_model_cfg *c = &p->model;
        const int got[] = {c->L, c->C, c->H, c->KV, c->F, c->T, c->V};
        assert_memory_equal(got, want[i].n, sizeof got);
        bt_err err = BT_ERR_INIT;
        assert_int_equal(bt_model_cfg_check(c, &err), BT_OK);
    }
    assert_null(bt_preset_find("nona"));
    assert_null(bt_preset_at(99));
}

static void counts_are_exact(void **state) {
    (void)state;
    /* the plain block (norm = pre), as the PyTorch script counts it */
    const struct {
        const char *name;
        uint64_t params, linear, embedding, norms;
        double mflop[4];
    } want[] = {
        {"nano", 2705856, 2654208, 49152, 2496, {15.93, 0.29, 1.77, 17.99}},
        {"small", 27795968, 23592960, 4194304, 8704, {141.56, 25.17, 12.58, 179.31}},
        {"base", 100092672, 75497472, 24576000, 19200, {452.98, 147.46, 56.62, 657.06}},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        bt_model_cfg c = bt_preset_find(want[i].name)->model;
        c.norm = BT_NORM_PRE;
        bt_model_counts n = bt_model_count(&c);
        assert_int_equal(n.params, want[i].params);
        assert_int_equal(n.linear, want[i].linear);
        assert_int_equal(n.embedding, want[i].embedding);
        assert_int_equal(n.norms, want[i].norms);
        assert_int_equal(n.head, 0);
        const double mflop[] = {n.flop_linear, n.flop_head, n.flop_attention, n.flop_token};
        for (int k = 0; k < 4; k++)
            assert_true(mflop[k] / 1e6 - want[i].mflop[k] < 0.0051 &&
                        mflop[k] / 1e6 - want[i].mflop[k] > -0.0051);
        c.tied = false;
        assert_int_equal(bt_model_count(&c).params, want[i].params + want[i].embedding);
    }
    bt_model_counts big = bt_model_count(&bt_preset_find("bitnet-2b4t")->model);
    /* 30 x 69.5 M + 328 M */
    assert_true(big.params > 2410000000u && big.params < 2415000000u);
    bt_model_counts qwen = bt_model_count(&bt_preset_find("qwen3-0.6b")->model);
    assert_int_equal(qwen.params, 596049920); /* count of the published file */
}

/* The counts are computed by hand: beside adapters a frozen weight has two products and a trained one three. */
static void frozen_weights_have_two_products(void **state) {
    (void)state;
    bt_model_cfg c = {
        .L = 2, .C = 8, .H = 2, .KV = 1, .D = 4, .F = 16, .T = 10, .V = 20, .tied = true};
    bt_model_counts n = bt_model_count(&c);
    assert_int_equal(n.linear, 2 * (8 * 8 + 2 * 4 * 8 + 8 * 8 + 3 * 8 * 16));
    assert_int_equal(n.adapters, 0);
    assert_true(n.flop_token == 6 * 1152 + 6 * 160 + 960);
    assert_true(n.flop_forward == 2 * 1152 + 2 * 160 + 320);
    c.lora = (bt_lora){.rank = 2, .scale = 1, .targets = BT_LORA_ALL};
    n = bt_model_count(&c);
    assert_int_equal(n.adapters, 2 * 2 * (16 + 12 + 12 + 16 + 24 + 24 + 24));
    assert_true(n.flop_token == (4 * 1152 + 6 * 512) + 4 * 160 + 960);
    assert_true(n.flop_forward == 2 * (1152 + 512) + 2 * 160 + 320);
    c.lora.targets = BT_LORA_Q | BT_LORA_DOWN;
    assert_int_equal(bt_model_count(&c).adapters, 2 * 2 * (16 + 24));
}

static void the_tensor_table_agrees_with_the_counts(void **state) {
    (void)state;
    for (size_t i = 0; i < bt_preset_count(); i++) {
        for (int bits = 0; bits < 12; bits++) {
            bt_model_cfg c = bt_preset_at(i)->model;
            c.norm = (bt_norm_kind)(bits % 3);
            c.tied = (bits / 3) & 1;
            c.qk_norm = (bits / 6) & 1;
            bt_params p;
            bt_err err = BT_ERR_INIT;
            assert_int_equal(bt_params_init(&p, &c, (bt_model_slice){0}, &err), BT_OK);
            bt_model_counts n = bt_model_count(&c);
            uint64_t linear = 0, all = 0, end = 0;
            for (size_t k = 0; k < p.n; k++) {
                const bt_tensor *t = &p.tensors[k];
                assert_int_equal(t->offset % 16, 0);
                assert_true(t->offset >= end && t->offset < end + 16);
                end = t->offset + t->count;
                assert_int_equal(t->count, t->rows * t->cols);
                assert_ptr_equal(bt_params_get(&p, t->layer, t->id), t);
                if (k < 40) assert_ptr_equal(bt_params_named(&p, t->name), t);
                assert_int_equal(t->decay, t->rows > 1);
                assert_int_equal(t->tern, t->linear && c.linear != BT_LIN_DENSE);
                all += t->count;
                linear += t->linear ? t->count : 0;
            }
            assert_int_equal(all, n.params);
            assert_int_equal(p.count, n.params);
            assert_int_equal(linear, n.linear);
            assert_true(p.total >= end && p.total < end + 16);
            bt_params_release(&p);
        }
    }
}

static void names_and_hash_follow_the_layout(void **state) {
    (void)state;
    bt_model_cfg c = bt_preset_find("nano")->model;
    bt_params a, b;
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_params_init(&a, &c, (bt_model_slice){0}, &err), BT_OK);
    assert_string_equal(a.tensors[0].name, "embed");
    assert_string_equal(a.tensors[1].name, "layers.0.attn_norm");
    assert_string_equal(a.tensors[a.n - 1].name, "final_norm");
    assert_non_null(bt_params_named(&a, "layers.5.ffn_down"));
    assert_null(bt_params_named(&a, "layers.6.ffn_down"));
    assert_null(bt_params_get(&a, 0, BT_P_Q_NORM));
    assert_null(bt_params_get(&a, -1, BT_P_HEAD));
    c.init_std = 0.5; /* does not change the layout */
    c.init_embed = 0.25;
    c.init_out = BT_INIT_OUT_ZERO;
    assert_int_equal(bt_params_init(&b, &c, (bt_model_slice){0}, &err), BT_OK);
    assert_int_equal(bt_params_hash(&a), bt_params_hash(&b));
    for (size_t i = 0; i < b.n; i++) {
        const bt_tensor *t = &b.tensors[i];
        const bool out = t->id == BT_P_ATTN_O || t->id == BT_P_FFN_DOWN, gain = t->rows == 1;
        const float std = t->id == BT_P_EMBED ? 0.25f : 0.5f;
        assert_true(t->zero == out && t->init_std == (out || gain ? 0.0f : std));
        assert_true(!a.tensors[i].zero && (a.tensors[i].init_std > 0) == !gain);
    }
    bt_params_release(&b);
    c.F += 16;
    assert_int_equal(bt_params_init(&b, &c, (bt_model_slice){0}, &err), BT_OK);
    assert_int_not_equal(bt_params_hash(&a), bt_params_hash(&b));
    bt_params_release(&b);
    bt_params_release(&a);
}

static void impossible_shapes_name_their_numbers(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_model_cfg c = bt_preset_find("nano")->model;
    c.KV = 4;
    assert_int_equal(bt_model_cfg_check(&c, &err), BT_ARG);
    message_has(err.msg, "model.kv_heads = 4 must divide model.heads = 6");
    c = bt_preset_find("nano")->model;
    c.D = 33;
    assert_int_equal(bt_model_cfg_check(&c, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "head_dim = 33 must be even"));
    c = bt_preset_find("nano")->model;
    c.L = 0;
    assert_int_equal(bt_model_cfg_check(&c, &err), BT_ARG);
    message_has(err.msg, "model.layers is 0 but must be at least");
    c = bt_preset_find("nano")->model;
    c.norm_eps = 0;
    assert_int_equal(bt_model_cfg_check(&c, &err), BT_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_have_their_published_shapes),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(frozen_weights_have_two_products),
        cmocka_unit_test(the_tensor_table_agrees_with_the_counts),
        cmocka_unit_test(names_and_hash_follow_the_layout),
        cmocka_unit_test(impossible_shapes_name_their_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
