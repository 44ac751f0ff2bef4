/* Statistics of ternary codes between samples: sign flips and reverted changes are counted one by one, the share of
 * latent weights near a threshold is that of a Gaussian, and shares of the work add up to the whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "engine/model/shape/config.h"
#include "engine/observe/codes.h"

enum { TENSORS = 64, PARTS = 3 };

static void changes_are_counted_and_shared_out(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_model *m = NULL;
    bt_model_cfg c = bt_preset_find("nano")->model;
    c.L = 1;
    bt_model_setup s = {.cfg = c, .B = 1, .train = false, .n_threads = 1};
    if (bt_model_create(&m, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_model_init_weights(m, 1);
    bt_model_quantise(m);
    const bt_params *p = bt_model_params(m);
    const bt_tensor *gate = bt_params_get(p, 0, BT_P_FFN_GATE);
    /* The slices include some of odd length. */
    size_t i = (size_t)(gate - p->tensors), quarter = gate->count / 4 + 1;
    assert_true(p->n <= TENSORS);
    bt_shards shards;
    bt_shards_init(&shards, p->total, p->total * sizeof(float), 1, 1);
    /* one counter for all weights, and three that divide them */
    bt_codes *all[1 + PARTS];
    size_t bytes = 0;
    for (int k = 0; k <= PARTS; k++) {
        bt_codes_cfg cfg = {.shards = &shards, .part = k ? k - 1 : 0, .parts = k ? PARTS : 1};
        if (bt_codes_create(&all[k], m, &cfg, &err) != BT_OK) fail_msg("%s", err.msg);
        size_t b = bt_codes_bytes(p, &cfg);
        if (k == 0) assert_in_range(b, gate->count / 2, p->total);
        bytes = k ? bytes + b : 0;
    }
    assert_true(bytes > 0);

    bt_code_counts whole[TENSORS], part[TENSORS];
    uint64_t not_zero = 0;
    for (size_t k = 0; k < quarter; k++) not_zero += bt_model_codes(m, i)[k] != 0;
    float *w = bt_model_weights(m) + gate->offset;
    /* A quarter of the weights changes sign, changes back and then remains constant. */
    for (int sample = 0; sample < 4; sample++) {
        if (sample == 1 || sample == 2)
            for (size_t k = 0; k < quarter; k++) w[k] = -w[k];
        bt_model_quantise(m);
        bt_codes_sample(all[0], whole);
        bt_code_counts sum = {0, 0, 0, 0};
        for (int k = 1; k <= PARTS; k++) {
            bt_codes_sample(all[k], part);
            sum.flips += part[i].flips;
            sum.sign_flips += part[i].sign_flips;
            sum.back += part[i].back;
            sum.near += part[i].near;
        }
        assert_true(sum.flips == whole[i].flips && sum.sign_flips == whole[i].sign_flips &&
                    sum.back == whole[i].back && sum.near == whole[i].near);
        assert_int_equal(bt_codes_samples(all[0]), sample < 3 ? sample + 1 : 3);
        if (sample > 0)
            assert_true(whole[i].flips == (sample < 3 ? (double)not_zero : 0) &&
                        whole[i].sign_flips == whole[i].flips);
        if (sample > 1) assert_true(whole[i].back == whole[i].flips);
    }
    assert_true(fabs(whole[i].near / (double)gate->count - 0.0588) < 0.003);
    /* A code that becomes 0 is neither a sign flip nor a reverted change. */
    for (size_t k = 0; k < quarter; k++) w[k] = 0;
    bt_model_quantise(m);
    bt_codes_sample(all[0], whole);
    assert_true(whole[i].flips >= (double)not_zero && whole[i].sign_flips == 0 &&
                whole[i].back == 0);
    /* This tensor is not ternary. */
    assert_true(whole[(size_t)(bt_params_get(p, -1, BT_P_EMBED) - p->tensors)].near == 0);
    for (int k = 0; k <= PARTS; k++) bt_codes_destroy(all[k]);
    bt_model_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(changes_are_counted_and_shared_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
