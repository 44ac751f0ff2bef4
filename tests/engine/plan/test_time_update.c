/* test_time_update.c - predicted time of updates with weights and states in fewer bytes than fp32, which no probe of a
 * layer contains; and the time lost by ranks that share cores. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/shape/params.h"
#include "engine/parallel/shard/weight_prefetch.h"
#include "engine/plan/time_model.h"

static bt_run_cfg cfg;

static void resolve_update_settings(char *one, char *other) {
    static bt_opts o;
    bt_err err = BT_ERR_INIT;
    bool help;
    char *words[] = {"--preset", "nano",           "--threads", "1", "--data", "synth:chain",
                     "--set",    "ckpt.minutes=0", "--set",     one, "--set",  other};
    if (bt_run_cfg_read(&o, &cfg, sizeof words / sizeof *words, words, &help, &err) != BT_OK ||
        bt_run_cfg_resolve(&cfg, 1, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
}

/* Returns the predicted update on a machine where an element takes a nanosecond and nothing else takes time. */
static double update_ns(void) {
    static const bt_cluster here = {.ranks = 1, .ranks_per_host = 1, .cores = 1};
    bt_rates r = {.states_bf16_x = 1.25, .states_log8_x = 1.5, .weights_bf16_x = 2};
    const bt_part_rate layer = {.shape = bt_part_layer(&cfg, 1), .fwd_s = 1e-12},
                       head = {.shape = bt_part_head(&cfg, 1), .fwd_s = 1e-12};
    bt_prediction p;
    bt_err err = BT_ERR_INIT;
    bt_rates_put_part(&r, &layer);
    bt_rates_put_part(&r, &head);
    r.update[cfg.optim.name] = (bt_elem_rate){1e-9, 1e-9};
    if (bt_time_predict(&cfg, &r, &here, &p, &err) != BT_OK) fail_msg("%s", err.msg);
    return 1e9 * p.step.phase_s[BT_PH_OPTIM];
}

static bool is_near_9(double got, double want) { return fabs(got - want) <= 1e-9 * want; }

static void compressed_formats_cost_their_time(void **state) {
    (void)state;
    resolve_update_settings("optim.states=fp32", "optim.weights=fp32");
    bt_model_cfg m;
    bt_run_cfg_model(&cfg, &m);
    const bt_model_counts n = bt_model_count(&m);
    const double all = (double)n.params, linear = (double)n.linear;
    assert_true(is_near_9(update_ns(), all));
    resolve_update_settings("optim.states=bf16", "optim.weights=fp32");
    assert_true(is_near_9(update_ns(), 1.25 * all));
    resolve_update_settings("optim.states=log8", "optim.weights=fp32");
    assert_true(is_near_9(update_ns(), 1.5 * all));
    /* bf16 weights apply to the elements of ternary layers. */
    resolve_update_settings("optim.states=fp32", "optim.weights=bf16");
    assert_true(is_near_9(update_ns(), all + linear));
    resolve_update_settings("optim.states=log8", "optim.weights=bf16");
    assert_true(is_near_9(update_ns(), 1.5 * all + linear));
}

/* Returns the delay of three ranks on two cores, for a model whose layer takes this long forward and backward. */
static double delay_of_shared_cores(double layer_s, const char *gather) {
    static const bt_cluster here = {.ranks = 3, .ranks_per_host = 3, .cores = 2};
    static bt_opts o;
    static bt_rates r;
    bt_err err = BT_ERR_INIT;
    bt_prediction p;
    bool help;
    char way[64];
    (void)snprintf(way, sizeof way, "parallel.gather=%s", gather);
    char *words[] = {"--preset",  "nano", "--ranks",        "3",
                     "--threads", "1",    "--data",         "synth:chain",
                     "--zero",    "3",    "--batch-tokens", "3072",
                     "--set",     way};
    if (bt_run_cfg_read(&o, &cfg, sizeof words / sizeof *words, words, &help, &err) != BT_OK ||
        bt_run_cfg_resolve(&cfg, 3, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(bt_kernels_select("auto", &err), BT_OK);
    r = (bt_rates){.n_links = 1};
    r.links[0] = (bt_link_rate){.world = 3,
                                .n = 3,
                                .stride = 1,
                                .latency_s = 1e-6,
                                .bytes_per_s = 1e9,
                                .shared_x = 1.1,
                                .shared_often_x = 2};
    const bt_part_rate layer = {.shape = bt_part_layer(&cfg, 1),
                                .fwd_s = layer_s / 2,
                                .bwd_s = layer_s / 2},
                       head = {.shape = bt_part_head(&cfg, 1), .fwd_s = 1e-6};
    bt_rates_put_part(&r, &layer);
    bt_rates_put_part(&r, &head);
    if (bt_time_predict(&cfg, &r, &here, &p, &err) != BT_OK) fail_msg("%s", err.msg);
    return p.crowd;
}

/* If weights are gathered per layer, ranks may be apart by as many layers as weights are sent ahead. */
static void ranks_that_may_run_ahead_lose_less(void **state) {
    (void)state;
    const double visit = 2.0 /
                         /* a layer time for which exchanges are a second apart */
                         BT_PREFETCH_AHEAD;
    assert_true(is_near_9(delay_of_shared_cores(visit * BT_SHARED_OFTEN_S, "layer"), 1.5 * 2));
    assert_true(is_near_9(delay_of_shared_cores(visit * BT_SHARED_OFTEN_S / 9, "layer"), 1.5 * 2));
    assert_true(is_near_9(delay_of_shared_cores(visit * BT_SHARED_S, "layer"), 1.5 * 1.1));
    assert_true(is_near_9(delay_of_shared_cores(visit * BT_SHARED_S * 9, "layer"), 1.5 * 1.1));
    /* Each synchronization costs time: half as many cost half as much. */
    const double half = (25.0 - 1 / BT_SHARED_S) / (1 / BT_SHARED_OFTEN_S - 1 / BT_SHARED_S);
    assert_true(is_near_9(delay_of_shared_cores(visit / 25, "layer"), 1.5 * (1.1 + 0.9 * half)));
    assert_true(is_near_9(delay_of_shared_cores(visit * BT_SHARED_OFTEN_S, "step"), 1.5 * 1.1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_formats_cost_their_time),
        cmocka_unit_test(ranks_that_may_run_ahead_lose_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
