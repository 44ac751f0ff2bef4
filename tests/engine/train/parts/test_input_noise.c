/* test_input_noise.c - noise of the input tokens: its strength, the variables on which it depends, and passes without
 * noise. */
#include "tests/tiny_run.h"

#include "engine/train/trainer_impl.h"

enum { ROWS = 128, MICROS = 64 }; /* tokens of a micro-batch; micro-batches of a sample */

static fake_sink plain, noisy;

static void changed_share(bt_trainer *t, int32_t *out, int64_t step, int64_t first_row) {
    static const int32_t inputs[ROWS] = {0};
    bt_batch b = {.inputs = inputs, .targets = inputs};
    t->at.step = step;
    bt_parts_change_batch(t, &b, first_row);
    assert_ptr_equal(b.targets, inputs);
    memcpy(out, b.inputs, sizeof inputs);
}

static bt_trainer *noise_of(const char *replaced, const char *masked) {
    bt_run_cfg cfg;
    TINY(&cfg, "--set", replaced, "--set", masked);
    return tiny_create(&cfg, NULL, NULL, "");
}

static void tokens_change_with_the_configured_probability(void **state) {
    (void)state;
    static const struct {
        const char *replaced, *masked;
        double p_replaced, p_masked;
    } rows[] = {{"train.token_noise=0.1", "train.mask_inputs=0", 0.1, 0},
                {"train.token_noise=0", "train.mask_inputs=0.2", 0, 0.2},
                {"train.token_noise=0.3", "train.mask_inputs=0.4", 0.3, 0.4}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        bt_trainer *t = noise_of(rows[k].replaced, rows[k].masked);
        int n_replaced = 0, n_masked = 0, seen[64] = {0}, kinds = 0;
        int32_t inputs[ROWS];
        for (int64_t i = 0; i < MICROS; i++) {
            changed_share(t, inputs, 7, i * ROWS);
            for (int r = 0; r < ROWS; r++) {
                assert_true(inputs[r] >= -1 && inputs[r] < 64);
                n_replaced += inputs[r] > 0;
                n_masked += inputs[r] < 0;
                if (inputs[r] > 0) seen[inputs[r]] = 1;
            }
        }
        for (int v = 0; v < 64; v++) kinds += seen[v];
        /* One of 64 random tokens equals the replaced one; five standard deviations are at most 0.03. */
        const double n = ROWS * MICROS;
        assert_true(n_replaced >= n * (rows[k].p_replaced * 63 / 64 - 0.03) &&
                    n_replaced <= n * (rows[k].p_replaced * 63 / 64 + 0.03));
        assert_true(n_masked >= n * (rows[k].p_masked - 0.03) &&
                    n_masked <= n * (rows[k].p_masked + 0.03));
        assert_int_equal(kinds, rows[k].p_replaced > 0 ? 63 : 0);
        bt_trainer_destroy(t);
    }
}

/* The noise depends on the position of a token in the global batch and not on the division into micro-batches. */
static void the_noise_depends_on_step_and_token_only(void **state) {
    (void)state;
    bt_trainer *t = noise_of("train.token_noise=0.4", "train.mask_inputs=0.2");
    int32_t here[ROWS], shifted[ROWS], later[ROWS];
    changed_share(t, here, 3, 0);
    changed_share(t, shifted, 3, ROWS / 2);
    changed_share(t, later, 4, 0);
    assert_memory_equal(here + ROWS / 2, shifted, sizeof here / 2);
    assert_memory_not_equal(here, later, sizeof here);
    bt_trainer_destroy(t);
}

/* The soft targets of the first steps are derived from the original token, so the noise begins after them. */
static void the_noise_begins_after_the_soft_targets(void **state) {
    (void)state;
    bt_run_cfg cfg;
    int32_t inputs[ROWS], zeros[ROWS] = {0};
    TINY(&cfg, "--set", "train.token_noise=0.5", "--set", "train.share_steps=5");
    bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
    changed_share(t, inputs, 4, 0);
    assert_memory_equal(inputs, zeros, sizeof zeros);
    changed_share(t, inputs, 5, 0);
    assert_memory_not_equal(inputs, zeros, sizeof zeros);
    bt_trainer_destroy(t);
}

/* A vanishing learning rate leaves the weights unchanged, so the validation losses are equal. */
static void validations_have_no_noise(void **state) {
    (void)state;
    bt_run_cfg cfg;
    for (int k = 0; k < 2; k++) {
        TINY(&cfg, "--steps", "1", "--lr", "1e-30", "--set", "optim.weight_decay=0", "--set",
             "data.val_frac=0.1", "--set", "train.eval_tokens=512", "--set",
             k ? "train.token_noise=0.3" : "train.token_noise=0", "--set",
             k ? "train.mask_inputs=0.3" : "train.mask_inputs=0");
        tiny_run(&cfg, k ? &noisy : &plain, NULL, "");
    }
    assert_int_equal(fake_events_of(&plain, "evaluation"), 1);
    assert_true(plain.steps[0].v[BT_MS_VAL_LOSS] == noisy.steps[0].v[BT_MS_VAL_LOSS]);
    assert_true(plain.steps[0].v[BT_MS_LOSS] != noisy.steps[0].v[BT_MS_LOSS]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_change_with_the_configured_probability),
        cmocka_unit_test(the_noise_depends_on_step_and_token_only),
        cmocka_unit_test(the_noise_begins_after_the_soft_targets),
        cmocka_unit_test(validations_have_no_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
