// ctest: ranks=2 timeout=240
/* fp16 with a dynamic loss scale, on one rank and on two in every ZeRO stage: the losses are near those of fp32 and
 * equal in every layout, with equal bits in reproducible training. An overflow skips one step on all ranks, and a
 * checkpoint keeps the scale. */
#include <unistd.h>

#define LAYOUT_LONG      /* The loss scale changes every few steps. */
#define LAYOUT_ALL_ALONE /* Each process repeats the single-rank runs until the scale fits. */
#include "tests/mpi/layouts.h"

#define FP16 "--precision", "fp16"
#define STRIPES "--set", "train.bucket_bytes=4096"

static fake_sink full, exact, overflowing;
/* exponent of the largest scale at which no step of the run overflows */
static int most_exponent;

static void set_scale(char *text, size_t size, int exponent) {
    snprintf(text, size, "train.loss_scale=%.0f", ldexp(1, exponent));
}

static void near_fp32(void **state) {
    (void)state;
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        layout_near(full.steps[i].v[BT_MS_LOSS], alone.steps[i].v[BT_MS_LOSS], 2e-3, "loss", i);
        assert_true(alone.steps[i].v[BT_MS_LOSS_SCALE] == 65536);
        assert_true(full.steps[i].v[BT_MS_LOSS_SCALE] == 1);
    }
    /* Recorded gradients are divided by the scale and have the precision of fp16. */
    layout_near(full.steps[0].v[BT_MS_GRAD_NORM], alone.steps[0].v[BT_MS_GRAD_NORM], 2e-3,
                "grad_norm", 0);
    assert_true(full.steps[0].v[BT_MS_GRAD_NORM] != alone.steps[0].v[BT_MS_GRAD_NORM]);
    for (size_t i = 0; i < full.n_layers; i++)
        layout_near(full.layers[i].v[BT_ML_GRAD_NORM], alone.layers[i].v[BT_ML_GRAD_NORM], 0.1,
                    full.layers[i].tensor, 8);
}

static void same_records_in_every_layout(void **state) {
    (void)state;
    static const char *const cuts[][12] = {
        {FP16, NULL},
        {FP16, "--micro-batch", "1", NULL},
        {FP16, STRIPES, "--zero", "1", NULL},
        {FP16, STRIPES, "--zero", "2", "--micro-batch", "2", NULL},
        {FP16, STRIPES, "--zero", "3", "--recompute", "full", NULL},
        {FP16, "--tp", "2", NULL},
    };
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        layout_run(&together, cuts[k], NULL);
        layout_compare(1e-4);
    }
}

static const char *const units[] = {FP16,           "--set", "train.reproducible=true",  "--set",
                                    "train.unit=2", "--set", "train.loss_scale_every=4", NULL};

static void same_bits_when_reproducible(void **state) {
    (void)state;
    const char *words[16] = {STRIPES, "--zero", "2"};
    for (size_t i = 0; units[i]; i++) words[4 + i] = units[i];
    layout_run(&together, words, NULL);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        assert_true(together.steps[i].v[BT_MS_LOSS] == exact.steps[i].v[BT_MS_LOSS]);
        assert_true(together.steps[i].v[BT_MS_GRAD_NORM] == exact.steps[i].v[BT_MS_GRAD_NORM]);
        assert_true(together.steps[i].v[BT_MS_LOSS_SCALE] == ldexp(65536, (int)i / 4));
    }
    assert_int_equal(fake_events_of(&together, "loss_scale"), LAYOUT_STEPS / 4);
}

static void overflow_skips_one_step_on_all_ranks(void **state) {
    (void)state;
    char text[64];
    set_scale(text, sizeof text, most_exponent + 1);
    static const char *const cuts[][2] = {{"--zero", "0"}, {"--zero", "3"}, {"--tp", "2"}};
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++) {
        const char *words[] = {FP16, STRIPES, cuts[k][0], cuts[k][1], "--set", text, NULL};
        layout_run(&together, words, NULL);
        int skipped = 0;
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            const double *v = together.steps[i].v, *lonely = overflowing.steps[i].v;
            assert_true(v[BT_MS_SKIPPED] == lonely[BT_MS_SKIPPED]);
            assert_true(v[BT_MS_LOSS_SCALE] == ldexp(1, most_exponent + (skipped == 0)));
            assert_true(isfinite(v[BT_MS_GRAD_NORM]) == (v[BT_MS_SKIPPED] == 0));
            layout_near(lonely[BT_MS_LOSS], v[BT_MS_LOSS], 1e-4, "loss", i);
            /* a skipped step */
            if (v[BT_MS_SKIPPED] == 1 && i + 1 < LAYOUT_STEPS)
                assert_true(v[BT_MS_LR] == together.steps[i + 1].v[BT_MS_LR]);
            skipped += v[BT_MS_SKIPPED] == 1;
        }
        assert_int_equal(skipped, 1);
        assert_int_equal(fake_events_of(&together, "loss_scale"), 1);
        assert_int_equal(fake_events_of(&together, "warning"), 0);
    }
}

static void a_checkpoint_keeps_the_scale(void **state) {
    (void)state;
    static fake_sink first, second;
    char dir[64], text[64];
    bt_err err = BT_ERR_INIT;
    set_scale(text, sizeof text, most_exponent + 1);
    layout_folder(dir);
    const char *words[] = {FP16,    STRIPES, "--zero",       "2",
                           "--set", text,    "--set",        "train.loss_scale_every=3",
                           "--out", dir,     "--stop-after", "6",
                           NULL};
    const char *whole[] = {
        FP16, STRIPES, "--zero", "2", "--set", text, "--set", "train.loss_scale_every=3", NULL};
    layout_run(&together, whole, NULL);
    layout_run(&first, words, NULL);
    const char *rest[] = {FP16,    STRIPES, "--zero", "2",    "--set",   "train.loss_scale_every=3",
                          "--out", dir,     "--lr",   "3e-4", "--steps", "20",
                          NULL};
    bt_run_cfg cfg;
    tiny_cfg(&cfg, rest);
    tiny_run(&cfg, &second, NULL, dir);
    assert_int_equal(bt_broadcast(bt_comm_world(), &second, offsetof(fake_sink, last_checkpoint), 0,
                                  &err),
                     BT_OK);
    assert_int_equal(second.n_steps, LAYOUT_STEPS - 6);
    int halved = 0;
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const double *a = together.steps[i].v,
                     *b = i < 6 ? first.steps[i].v : second.steps[i - 6].v;
        assert_true(a[BT_MS_LOSS_SCALE] == b[BT_MS_LOSS_SCALE] && a[BT_MS_LOSS] == b[BT_MS_LOSS] &&
                    a[BT_MS_SKIPPED] == b[BT_MS_SKIPPED]);
        halved += a[BT_MS_SKIPPED] == 1;
    }
    assert_true(halved >= 2 && halved <= 10);
    layout_remove(dir);
}

/* Counts the skipped steps of a run with the scale 2^exponent. */
static int count_skipped_steps(int exponent, fake_sink *f) {
    char text[64];
    int n = 0;
    set_scale(text, sizeof text, exponent);
    const char *words[] = {FP16, "--set", text, NULL};
    layout_run(f, words, NULL);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) n += f->steps[i].v[BT_MS_SKIPPED] == 1;
    return n;
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    static const char *const fp16[] = {FP16, NULL};
    layout_run(&full, NULL, NULL);
    layout_run(&exact, units, NULL);
    /* The run halves the scale until a step succeeds. */
    (void)count_skipped_steps(34, &overflowing);
    most_exponent = ilogb(overflowing.steps[LAYOUT_STEPS - 1].v[BT_MS_LOSS_SCALE]);
    while (count_skipped_steps(most_exponent, &overflowing) > 0) most_exponent--;
    while (count_skipped_steps(most_exponent + 1, &overflowing) == 0) most_exponent++;
    layout_run(&alone, fp16, NULL);
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 2) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_fp32),
        cmocka_unit_test(same_records_in_every_layout),
        cmocka_unit_test(same_bits_when_reproducible),
        cmocka_unit_test(overflow_skips_one_step_on_all_ranks),
        cmocka_unit_test(a_checkpoint_keeps_the_scale),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
