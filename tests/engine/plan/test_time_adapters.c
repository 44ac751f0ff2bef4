/* test_time_adapters.c - predicted step of adapters on a frozen base, compared with arithmetic: parts cost what was
 * measured with adapters, the head computes only learned tokens, a checkpoint costs the bytes of its contents; and the
 * probe of such a layer computes no gradient of base weights. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/base/threads.h"
#include "engine/config/run_cfg.h"
#include "engine/kernels/ops/ops.h"
#include "engine/model/net/model.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/plan/probe/rates_probe.h"
#include "engine/plan/time_model.h"

static bt_run_cfg cfg;
static bt_rates rates;
static const bt_cluster here = {.ranks = 1, .ranks_per_host = 1, .cores = 1};

enum { TRAINED, ADAPTERS };

static void resolve_adapter_settings(int mode) {
    static bt_opts o;
    bt_err err = BT_ERR_INIT;
    bool help;
    char *words[] = {"--preset",      "nano",
                     "--threads",     "1",
                     "--micro-batch", "2",
                     "--accum",       "3",
                     "--data",        "synth:chain",
                     "--set",         "data.val_frac=0",
                     "--set",         "model.linear=dense",
                     "--set",         "train.stats_every=0",
                     "--set",         "tune.base=x",
                     "--set",         "tune.rank=8",
                     "--tune",        mode == ADAPTERS ? "lora" : "full"};
    if (bt_run_cfg_read(&o, &cfg, sizeof words / sizeof *words, words, &help, &err) != BT_OK ||
        bt_run_cfg_resolve(&cfg, 1, &err) != BT_OK)
        fail_msg("%s", err.msg);
}

/* Sets the times of this job's parts, without attention. */
static void put_parts(double layer_fwd, double layer_bwd, double head_fwd, double head_bwd) {
    const bt_part_rate layer = {.shape = bt_part_layer(&cfg, 1),
                                .fwd_s = layer_fwd,
                                .bwd_s = layer_bwd},
                       head = {
                           .shape = bt_part_head(&cfg, 1), .fwd_s = head_fwd, .bwd_s = head_bwd};
    bt_rates_put_part(&rates, &layer);
    bt_rates_put_part(&rates, &head);
}

static bt_prediction predict_step(double learned_frac) {
    bt_cluster c = here;
    bt_prediction p;
    bt_err err = BT_ERR_INIT;
    c.data.learned_frac = learned_frac;
    if (bt_time_predict(&cfg, &rates, &c, &p, &err) != BT_OK) fail_msg("%s", err.msg);
    return p;
}

static bool is_near_12(double got, double want) { return fabs(got - want) <= 1e-12 * fabs(want); }

static void a_step_is_the_sum_of_its_parts(void **state) {
    (void)state;
    resolve_adapter_settings(ADAPTERS);
    rates = (bt_rates){0};
    put_parts(0.010, 0.015, 0.004, 0.006);
    const bt_prediction all = predict_step(0), quarter = predict_step(0.25);
    assert_false(all.scaled);
    assert_true(is_near_12(all.fwd_s, 6 * 0.010 + 0.004) &&
                is_near_12(all.bwd_s, 6 * 0.015 + 0.006));
    assert_true(is_near_12(quarter.fwd_s, 6 * 0.010 + 0.001) &&
                is_near_12(quarter.bwd_s, 6 * 0.015 + 0.0015));
    assert_int_equal(cfg.train.accum, 3);
    assert_true(is_near_12(quarter.step.step_s, 3 * (6 * 0.025 + 0.0025)));
    assert_true(is_near_12(quarter.tokens_per_s, 3 * 2 * 256 / (3 * (6 * 0.025 + 0.0025))));
}

/* Attention covers a fifth of the usual positions, and so do its forward, backward and recomputation times. */
static void attention_is_within_documents(void **state) {
    (void)state;
    resolve_adapter_settings(ADAPTERS);
    for (int full = 0; full < 2; full++) {
        cfg.train.recompute = full ? BT_RECOMPUTE_FULL : BT_RECOMPUTE_NONE;
        const bt_part_rate layer = {.shape = bt_part_layer(&cfg, 1),
                                    .fwd_s = 0.010,
                                    .bwd_s = 0.030,
                                    .attn_fwd_s = 0.002,
                                    .attn_bwd_s = 0.005},
                           head = {.shape = bt_part_head(&cfg, 1)};
        bt_cluster c = here;
        bt_prediction p;
        bt_err err = BT_ERR_INIT;
        rates = (bt_rates){0};
        bt_rates_put_part(&rates, &layer);
        bt_rates_put_part(&rates, &head);
        c.data.attended_frac = 0.2;
        assert_int_equal(bt_time_predict(&cfg, &rates, &c, &p, &err), BT_OK);
        assert_true(is_near_12(p.fwd_s, 6 * (0.010 - 0.8 * 0.002)));
        assert_true(is_near_12(p.bwd_s, 6 * (0.030 - 0.8 * (full ? 0.007 : 0.005))));
    }
}

/* If every weight is trained, the head is applied to all tokens. */
static void a_head_that_trains_has_all_rows(void **state) {
    (void)state;
    resolve_adapter_settings(TRAINED);
    rates = (bt_rates){0};
    put_parts(0.010, 0.030, 0.004, 0.008);
    assert_true(is_near_12(predict_step(0.25).fwd_s, predict_step(0).fwd_s));
    assert_true(is_near_12(predict_step(0.25).fwd_s, 6 * 0.010 + 0.004));
}

static void frozen_parts_are_another_kind(void **state) {
    (void)state;
    bt_prediction p;
    bt_err err = BT_ERR_INIT;
    resolve_adapter_settings(ADAPTERS);
    rates = (bt_rates){0};
    put_parts(0.010, 0.015, 0.004, 0.006);
    resolve_adapter_settings(TRAINED); /* Rates of adapters do not apply to a trained layer. */
    assert_int_equal(bt_time_predict(&cfg, &rates, &here, &p, &err), BT_NOTFOUND);
    put_parts(0.010, 0.030, 0.004, 0.008);
    resolve_adapter_settings(ADAPTERS); /* Its own rates are already known. */
    assert_true(is_near_12(predict_step(0).bwd_s, 6 * 0.015 + 0.006));
    /* If there are adapters, one of two weight products remains in the backward pass, the head's gradient is omitted,
     * and the adapters' products run at the rate of dense matrices: 2 operations per weight forward, 6 backward. */
    resolve_adapter_settings(TRAINED);
    rates = (bt_rates){.matrix_op_s = 1e-9};
    put_parts(0.010, 0.030, 0.004, 0.008);
    resolve_adapter_settings(ADAPTERS);
    const double adapters = 8.0 * (4 * (192 + 192) + 3 * (192 + 512)), tokens = 2 * 256;
    p = predict_step(0);
    assert_true(p.scaled);
    assert_true(is_near_12(p.fwd_s, 6 * (0.010 + 2e-9 * adapters * tokens) + 0.004));
    assert_true(is_near_12(p.bwd_s, 6 * (0.015 + 6e-9 * adapters * tokens) + 0.004));
}

static void operations_are_counted_as_executed(void **state) {
    (void)state;
    const double weights = 4.0 * 192 * 192 + 3.0 * 192 * 512,
                 adapters = 8.0 * (4 * (192 + 192) + 3 * (192 + 512)), tokens = 2 * 256;
    resolve_adapter_settings(TRAINED);
    bt_part_shape layer = bt_part_layer(&cfg, 1), head = bt_part_head(&cfg, 1);
    assert_true(is_near_12(bt_part_ops(&layer), 6 * weights * tokens));
    resolve_adapter_settings(ADAPTERS);
    layer = bt_part_layer(&cfg, 1), head = bt_part_head(&cfg, 1);
    assert_true(is_near_12(bt_part_ops(&layer), (4 * weights + 6 * adapters) * tokens));
    assert_true(is_near_12(bt_part_ops(&head), 4.0 * 192 * (double)cfg.model.vocab * tokens));
}

static void a_checkpoint_holds_the_adapters(void **state) {
    (void)state;
    resolve_adapter_settings(ADAPTERS);
    rates = (bt_rates){.disk_per_s = 1e6};
    put_parts(0.010, 0.015, 0.004, 0.006);
    const double adapters = 6 * 8.0 * (4 * (192 + 192) + 3 * (192 + 512));
    /* A checkpoint holds a value and two states of each element. */
    assert_true(is_near_12(predict_step(0).ckpt_s, 12 * adapters / 1e6));
}

/* The probe of a layer has products of adapters and no gradient of the base's weights. */
static void the_probe_measures_a_frozen_layer(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    resolve_adapter_settings(ADAPTERS);
    for (int kind = 0; kind < 2; kind++) {
        bt_part_shape layer = bt_part_layer(&cfg, 1), head = bt_part_head(&cfg, 1);
        layer.C = head.C = 64;
        layer.H = layer.KV = 2;
        layer.D = 32;
        layer.F = 128;
        layer.T = head.T = 64;
        head.V = 300;
        layer.linear = head.linear = kind ? BT_LIN_DENSE : BT_LIN_BITNET158;
        layer.base8 = head.base8 = kind;
        layer.lean = head.lean = !kind;
        const bt_part_shape parts[] = {head, layer};
        const bt_probe_job job = {.parts = parts, .n_parts = 2, .budget_s = 60, .disk_dir = ""};
        rates = (bt_rates){0};
        if (bt_rates_probe(&rates, &job, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(rates.n_parts, 2);
        for (size_t i = 0; i < 2; i++)
            assert_true(rates.parts[i].fwd_s > 0 && rates.parts[i].bwd_s > 0 &&
                        !(rates.parts[i].quantise_s > 0));
        assert_true(rates.n_ops > 0);
        for (size_t i = 0; i < rates.n_ops; i++) assert_null(strstr(rates.ops[i].op, "tern_dw"));
    }
}

static int begin(void **state) {
    bt_err err = BT_ERR_INIT;
    (void)state;
    return bt_comm_init(&err) != BT_OK || bt_kernels_select("auto", &err) != BT_OK ||
           bt_threads_init(1, &err) != BT_OK;
}

static int end(void **state) {
    (void)state;
    bt_threads_release();
    bt_ops_release();
    bt_comm_finalize();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_the_sum_of_its_parts),
        cmocka_unit_test(attention_is_within_documents),
        cmocka_unit_test(a_head_that_trains_has_all_rows),
        cmocka_unit_test(frozen_parts_are_another_kind),
        cmocka_unit_test(operations_are_counted_as_executed),
        cmocka_unit_test(a_checkpoint_holds_the_adapters),
        cmocka_unit_test(the_probe_measures_a_frozen_layer),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
