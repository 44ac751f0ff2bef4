// ctest: ranks=3
/* ZeRO-3 gathers weights on three ranks, per layer or once a step, with the same bits; the statistics equal those of
 * one rank, and the memory of gathered weights is that of one layer. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

enum { RANKS = 3 };

#define SHARDED \
    "--set", "train.bucket_bytes=4096", "--zero", "3", "--micro-batch", "1", "--balance", "4,3,1"

static const char *const by_layer[][20] = {
    {SHARDED, NULL},
    {SHARDED, "--recompute", "full", "--set", "model.layers=1", NULL},
    {SHARDED, "--recompute", "selective", "--set", "model.layers=5", "--threads", "2", NULL},
    {SHARDED, "--set", "train.reproducible=true", "--set", "train.unit=1", "--set",
     "model.linear=bitnet1", NULL},
};

static void once_a_step_has_the_same_bits(void **state) {
    (void)state;
    static fake_sink layer;
    for (size_t k = 0; k < sizeof by_layer / sizeof *by_layer; k++) {
        const char *words[24];
        size_t n = 0;
        for (; by_layer[k][n]; n++) words[n] = by_layer[k][n];
        words[n] = NULL;
        layout_run(&layer, words, NULL);
        words[n++] = "--set";
        words[n++] = "parallel.gather=step";
        words[n] = NULL;
        layout_run(&together, words, NULL);
        assert_int_equal(layer.n_steps, LAYOUT_STEPS);
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            const double *a = layer.steps[i].v, *b = together.steps[i].v;
            if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
                fail_msg("%zu: step %zu: loss %.17g by layers, %.17g once a step", k, i,
                         a[BT_MS_LOSS], b[BT_MS_LOSS]);
            assert_true(isnan(a[BT_MS_VAL_LOSS]) ? isnan(b[BT_MS_VAL_LOSS])
                                                 : a[BT_MS_VAL_LOSS] == b[BT_MS_VAL_LOSS]);
        }
        assert_int_equal(memcmp(layer.layers, together.layers, sizeof layer.layers), 0);
    }
}

/* The counts in the owners' pieces add up to those of one rank. */
static void statistics_are_those_of_one_rank(void **state) {
    (void)state;
    static const char *const words[] = {SHARDED, NULL};
    static const int same[] = {BT_ML_ZERO,      BT_ML_POS,         BT_ML_FLIP,
                               BT_ML_SIGN_FLIP, BT_ML_OSCILLATION, BT_ML_BOUNDARY};
    layout_run(&together, words, NULL);
    layout_compare(1e-4);
    layout_conserves();
    layout_traffic();
    assert_int_equal(alone.n_layers, together.n_layers);
    for (size_t i = 0; i < alone.n_layers; i++) {
        for (size_t k = 0; k < sizeof same / sizeof *same; k++) {
            double a = alone.layers[i].v[same[k]], b = together.layers[i].v[same[k]];
            if (isnan(a) ? !isnan(b) : !(fabs(a - b) <= 2e-3))
                fail_msg("%s: %s is %.6g alone, %.6g together", alone.layers[i].tensor,
                         bt_layer_metrics[same[k]].key, a, b);
        }
    }
}

static void memory_is_that_of_one_layer(void **state) {
    (void)state;
    enum { LAYERS = 12 };
    double quantised[2], exchange[2], zero2;
    static const char *const modes[] = {"parallel.gather=layer", "parallel.gather=step"};
    for (size_t k = 0; k < 2; k++) {
        const char *words[] = {SHARDED,           "--steps", "1",      "--set",
                               "model.layers=12", "--set",   modes[k], NULL};
        layout_run(&together, words, NULL);
        quantised[k] = atof(fake_fact(&together, "arena.quantised"));
        exchange[k] = atof(fake_fact(&together, "arena.exchange"));
    }
    const char *words[] = {SHARDED,           "--steps", "1", "--set",
                           "model.layers=12", "--zero",  "2", NULL};
    layout_run(&together, words, NULL);
    zero2 = atof(fake_fact(&together, "arena.quantised"));
    double linear = atof(fake_fact(&together, "params.linear")), layer = linear / LAYERS,
           taken = 32 * 64;
    assert_true(exchange[0] == exchange[1]);
    /* A packed weight uses at least a code and a byte. */
    assert_true(zero2 >= 2 * linear);
    double panels = (zero2 - linear) / LAYERS; /* memory of one layer */
    if (!(fabs(quantised[0] - panels - taken) <= 0.02 * panels))
        fail_msg("%.0f bytes by layers, %.0f are a layer's panels", quantised[0], panels);
    if (!(fabs(quantised[1] - LAYERS * panels - taken) <= 0.02 * LAYERS * panels))
        fail_msg("%.0f bytes once a step, %.0f are a layer's panels", quantised[1], panels);
    assert_true(quantised[0] < 3 * layer);
}

int main(void) {
    layout_run(&alone, NULL, NULL);
    if (!layout_begin(RANKS)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(once_a_step_has_the_same_bits),
        cmocka_unit_test(statistics_are_those_of_one_rank),
        cmocka_unit_test(memory_is_that_of_one_layer),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
