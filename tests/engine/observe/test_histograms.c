/* Histograms: every count equals that of a loop over the edges of the bins, for any number of threads and division of
 * the work; values on an edge, beyond the ends or not finite have a defined bin; histograms follow their schedule; and
 * training has the same bits with and without them. */
#include <math.h>

#include "engine/model/shape/config.h"
#include "engine/observe/histograms.h"
#include "tests/tiny_run.h"

enum { PARTS = 3 };

/* Follows the description in the header with other arithmetic. */
static int weight_bin(float scaled) {
    int bin = 0;
    while (bin < BT_HIST_BINS - 1 && !(scaled < (float)(bin + 1 - 16) * 0.25f)) bin++;
    return bin;
}

static int gradient_bin(float g) {
    int bin = 0;
    const double size = fabs((double)g);
    while (bin < BT_HIST_BINS - 1 && !(size < ldexp(1, bin + 1 - 28))) bin++;
    return bin;
}

static void bins_are_those_of_their_edges(void **state) {
    (void)state;
    for (int i = -70; i <= 70; i++) { /* an edge and the floats next to it */
        const float edge = (float)i * 0.0625f;
        const float near[] = {nextafterf(edge, -INFINITY), edge, nextafterf(edge, INFINITY)};
        for (int k = 0; k < 3; k++)
            assert_int_equal(bt_hist_weight_bin(near[k]), weight_bin(near[k]));
    }
    for (int i = -40; i <= 40; i++)
        for (int sign = -1; sign <= 1; sign += 2) {
            const float edge = (float)sign * ldexpf(1, i);
            const float near[] = {nextafterf(edge, 0), edge, nextafterf(edge, 2 * edge)};
            for (int k = 0; k < 3; k++)
                assert_int_equal(bt_hist_gradient_bin(near[k]), gradient_bin(near[k]));
        }
    static const float odd[] = {0, -0.0f, 1e-45f, 3e38f, -3e38f, INFINITY, -INFINITY, NAN};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(bt_hist_weight_bin(odd[i]), weight_bin(odd[i]));
        assert_int_equal(bt_hist_gradient_bin(odd[i]), gradient_bin(odd[i]));
    }
    assert_int_equal(bt_hist_weight_bin(-0.5f), 14); /* the thresholds are edges */
    assert_int_equal(bt_hist_weight_bin(nextafterf(0.5f, 0)), 17);
}

static void counts_are_those_of_a_loop(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_model *m = NULL;
    bt_model_cfg c = bt_preset_find("nano")->model;
    c.L = 1;
    bt_model_setup s = {.cfg = c, .B = 1, .train = true, .n_threads = 3};
    if (bt_kernels_select("generic", &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_threads_init(3, &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, 1);
    bt_model_quantise(m);
    const bt_params *p = bt_model_params(m);
    const float *w = bt_model_weights(m), unscale = 1.0f / 1024;
    float *g = bt_model_grads(m);
    for (size_t i = 0; i < p->total; i++)
        g[i] = i % 97 ? 40 * sinf((float)i) * expf(-(float)(i % 13)) : i % 2 ? 0 : INFINITY;
    bt_shards shards;
    bt_shards_init(&shards, p->total, p->total * sizeof(float), 1, 1);
    bool ternary = false, other = false;
    for (size_t k = 0; k < p->n; k++) {
        const bt_tensor *t = &p->tensors[k];
        const bt_quant_stat q = bt_model_quant_stat(m, k);
        const float mean = (float)q.mean, inv = 1 / (float)q.scale;
        bt_histogram want = {{0}, {0}}, whole = {{0}, {0}}, shared = {{0}, {0}};
        for (size_t i = t->offset; i < t->offset + t->count; i++) {
            if (t->tern) want.weights[weight_bin((w[i] - mean) * inv)]++;
            want.gradients[gradient_bin(g[i] * unscale)]++;
        }
        for (int part = -1; part < PARTS; part++) {
            const bt_codes_cfg cfg = {
                .shards = &shards, .part = part < 0 ? 0 : part, .parts = part < 0 ? 1 : PARTS};
            bt_histogram_add(m, &cfg, k, unscale, part < 0 ? &whole : &shared);
        }
        for (int b = 0; b < BT_HIST_BINS; b++) {
            assert_true(whole.weights[b] == want.weights[b]);
            assert_true(whole.gradients[b] == want.gradients[b]);
        }
        assert_memory_equal(&whole, &shared, sizeof whole);
        ternary |= t->tern;
        other |= !t->tern;
    }
    assert_true(ternary && other);
    bt_model_destroy(m);
    bt_threads_release();
}

static void histograms_follow_their_schedule(void **state) {
    (void)state;
    static const struct {
        int64_t every, steps, most, samples;
    } rows[] = {{20, 1000, 20, 20}, {20, 1000, 7, 7},    {20, 100, 20, 5},  {1, 5, 20, 5},
                {20, 1000, 0, 0},   {0, 1000, 20, 0},    {7, 1000, 10, 10}, {1, 100, 1, 1},
                {20, 1, 20, 1},     {20, 100000, 20, 20}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n = 0;
        for (int64_t step = 0; rows[i].every && step < rows[i].steps; step += rows[i].every)
            n += bt_histogram_due(step, rows[i].every, rows[i].steps, rows[i].most);
        assert_int_equal(n, rows[i].samples);
    }
    /* The first statistics always include histograms. */
    assert_true(bt_histogram_due(0, 20, 1000, 20));
}

static fake_sink with, without;

static void training_keeps_its_bits(void **state) {
    (void)state;
    bt_run_cfg cfg;
    TINY(&cfg, "--steps", "9", "--set", "train.stats_every=2", "--set", "train.distributions=3");
    tiny_run(&cfg, &with, NULL, NULL);
    TINY(&cfg, "--steps", "9", "--set", "train.stats_every=2", "--set", "train.distributions=0");
    tiny_run(&cfg, &without, NULL, NULL);
    /* Steps 0, 4 and 6 are the first with statistics in each third of the run. */
    assert_int_equal(with.n_bin_calls, 3);
    assert_int_equal(without.n_bin_calls, 0);
    assert_int_equal(with.n_steps, without.n_steps);
    for (size_t i = 0; i < with.n_steps; i++) {
        assert_true(with.steps[i].v[BT_MS_LOSS] == without.steps[i].v[BT_MS_LOSS]);
        assert_true(with.steps[i].v[BT_MS_GRAD_NORM] == without.steps[i].v[BT_MS_GRAD_NORM]);
    }
    double weights = 0, gradients = 0;
    for (size_t i = 0; i < with.n_bins; i++) {
        assert_in_range(with.bins[i].bin, 0, BT_HIST_BINS - 1);
        if (!isnan(with.bins[i].v[BT_MD_WEIGHTS])) weights += with.bins[i].v[BT_MD_WEIGHTS];
        gradients += with.bins[i].v[BT_MD_GRADIENTS];
    }
    assert_true(weights == atof(fake_fact(&with, "params.linear")));
    assert_true(gradients == atof(fake_fact(&with, "params")));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bins_are_those_of_their_edges),
                                       cmocka_unit_test(counts_are_those_of_a_loop),
                                       cmocka_unit_test(histograms_follow_their_schedule),
                                       cmocka_unit_test(training_keeps_its_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
