// ctest: ranks=2
/* The codec that a training uses: with a fast network it is fp32 with equal bits; a budget selects a codec, which a
 * resumed run keeps; a tensor with a large residual is sent as fp32 from then on; after two bad steps in a row all
 * tensors use a codec with a smaller error. */
#include <unistd.h>

#include "engine/base/testing/testing.h"
#include "engine/parallel/grad/codec_dial.h"
#include "engine/train/trainer_impl.h"
#include "tests/mpi/layouts.h"

static int count_events(const fake_sink *f, const char *kind, const char *with) {
    int n = 0;
    for (size_t i = 0; i < f->n_events; i++)
        n += strcmp(f->events[i].kind, kind) == 0 && strstr(f->events[i].title, with) != NULL;
    return n;
}

static bool check_same_losses(const fake_sink *a, size_t from, const fake_sink *b, size_t first,
                              size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a->steps[from + i].v[BT_MS_LOSS] != b->steps[first + i].v[BT_MS_LOSS]) return false;
    return true;
}

static fake_sink first, none;

static void a_wide_budget_changes_no_bit(void **state) {
    (void)state;
    static const char *const wide[] = {"--codec", "sign", "--comm-budget", "1000000Gbit", NULL};
    (void)layout_run(&none, NULL, NULL);
    (void)layout_run(&together, wide, NULL);
    assert_true(check_same_losses(&none, 0, &together, 0, LAYOUT_STEPS));
    assert_int_equal(count_events(&together, "codec", ""), 0);
    assert_string_equal(fake_fact(&together, "comm.budget"), "1000000Gbit");
}

/* The first step is sent as fp32; later steps use the last codec of the list, because none fits the budget. */
static void a_narrow_budget_takes_the_strongest(void **state) {
    (void)state;
    static const char *const narrow[] = {"--comm-budget", "0.001kbit", NULL};
    (void)layout_run(&together, narrow, NULL);
    assert_true(check_same_losses(&none, 0, &together, 0, 2));
    assert_false(check_same_losses(&none, 0, &together, 0, 3));
    assert_int_equal(count_events(&together, "codec", "gradients travel as int8"), 1);
    for (size_t i = 0; i < together.n_layers; i++) {
        const double bits = together.layers[i].v[BT_ML_GRAD_BITS],
                     ratio = together.layers[i].v[BT_ML_RESIDUAL];
        const bool plain = bits == 32;
        assert_true(plain || fabs(bits - 8.125) < 0.01);
        assert_true(plain ? isnan(ratio) : ratio > 0 && ratio < 1);
    }
    for (size_t i = 0; i < LAYOUT_STEPS; i++)
        layout_near(none.steps[i].v[BT_MS_LOSS], together.steps[i].v[BT_MS_LOSS], 1e-3, "loss", i);
}

/* A resumed run keeps the codec of its budget, and the second moment that AdamW freezes after the warm-up (here three
 * steps). */
static void a_resumed_run_continues_with_its_codec(void **state) {
    (void)state;
    char dir[64];
    static fake_sink rest;
    static const char *const how[][2] = {{"--comm-budget", "0.001kbit"}, {"--codec", "ternary"}};
    for (size_t k = 0; k < 2; k++) {
        const char *whole[] = {"--steps", "14", how[k][0], how[k][1], NULL},
                   *part[] = {"--steps", "14",    how[k][0], how[k][1], "--stop-after",
                              "10",      "--out", dir,       NULL};
        layout_folder(dir);
        layout_part(&together, whole, "");
        layout_part(&first, part, "");
        layout_part(&rest, whole, dir);
        assert_int_equal(rest.n_steps, 4);
        assert_true(check_same_losses(&together, 10, &rest, 0, 4));
        assert_int_equal(count_events(&together, "codec", ""), 1);
        assert_int_equal(count_events(&rest, "codec", ""), 0);
        layout_remove(dir);
    }
}

/* Returns the smallest second moment of the embedding relative to its mean, after a run in which most tokens do not
 * occur. */
static double least_moment(const char *codec) {
    const char *words[] = {"--steps", "8", "--codec", codec, "--set", "model.vocab=4000", NULL};
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    double least = INFINITY, sum = 0;
    float v;
    tiny_cfg(&cfg, words);
    memset(&first, 0, sizeof first);
    bt_trainer *t = tiny_create(&cfg, &first, NULL, "");
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    const bt_tensor *x = &t->setup.params.tensors[0];
    assert_string_equal(x->name, "embed");
    for (size_t i = 0; i < x->count; i++) {
        const size_t at = x->offset + i;
        assert_true(bt_optim_read(t->update.optims[0], 0, 1, (bt_range){at, at + 1}, &v));
        least = fmin(least, (double)v);
        sum += (double)v;
    }
    bt_trainer_destroy(t);
    bt_threads_release();
    return least / (sum / (double)x->count);
}

/* Frozen second moments have a lower bound, so neither a gradient nor a rounding error of the codec causes a long
 * step. */
static void frozen_second_moments_are_not_small(void **state) {
    (void)state;
    assert_true(least_moment("none") < 0.1 * least_moment("sign"));
    assert_true(least_moment("none") < 0.1 * least_moment("ternary"));
}

static void a_tensor_with_a_large_residual_travels_as_fp32(void **state) {
    (void)state;
    static const char *const strict[] = {"--codec", "int8", "--set", "comm.residual_cap=1e-6",
                                         NULL},
                             *const lenient[] = {"--codec", "int8", "--set", "comm.residual_cap=0",
                                                 NULL};
    (void)layout_run(&first, lenient, NULL);
    (void)layout_run(&together, strict, NULL);
    assert_int_equal(count_events(&first, "codec_fallback", ""), 0);
    int coded = 0;
    for (size_t i = 0; i < first.n_layers; i++) coded += first.layers[i].v[BT_ML_GRAD_BITS] < 32;
    assert_true(coded > 0);
    assert_int_equal(count_events(&together, "codec_fallback", "sent as fp32"), coded);
    for (size_t i = 0; i < together.n_layers; i++)
        assert_true(together.layers[i].v[BT_ML_GRAD_BITS] == 32);
    assert_true(check_same_losses(&first, 0, &together, 0, BT_DIAL_WINDOW));
    /* The residual was added to the first step after the change. */
    for (size_t i = 0; i < LAYOUT_STEPS; i++)
        layout_near(first.steps[i].v[BT_MS_LOSS], together.steps[i].v[BT_MS_LOSS], 1e-3, "loss", i);
}

/* One rank's gradients contain a NaN each time the step is computed, so the steps are bad. */
static void bad_steps_in_a_row_change_the_codec(void **state) {
    (void)state;
    static const char *const words[] = {"--codec", "int8", NULL};
    static const struct {
        const char *steps;
        int falls;
        double bits;
    } rows[] = {{"1:5-5:layers.0.attn_k", 0, 8.125}, {"1:5-6:layers.0.attn_k", 1, 16}};
    for (size_t k = 0; k < 2; k++) {
        assert_int_equal(setenv("BITRAIN_TEST_NAN", rows[k].steps, 1), 0);
        (void)layout_run(&together, words, NULL);
        assert_int_equal(unsetenv("BITRAIN_TEST_NAN"), 0);
        (void)bt_testing_nan(0, 0, ""); /* The NaN may occur again in the next run. */
        assert_int_equal(
            count_events(&together, "codec_fallback",
                         "2 bad steps in a row with --codec int8: gradients travel as bf16"),
            rows[k].falls);
        assert_int_equal(count_events(&together, "codec_fallback", ""), rows[k].falls);
        for (size_t i = 0; i < together.n_layers; i++) {
            const double bits = together.layers[i].v[BT_ML_GRAD_BITS];
            assert_true(fabs(bits - rows[k].bits) < 0.01 || (bits == 32 && rows[k].bits < 16));
        }
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 2) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wide_budget_changes_no_bit),
        cmocka_unit_test(a_narrow_budget_takes_the_strongest),
        cmocka_unit_test(a_resumed_run_continues_with_its_codec),
        cmocka_unit_test(frozen_second_moments_are_not_small),
        cmocka_unit_test(a_tensor_with_a_large_residual_travels_as_fp32),
        cmocka_unit_test(bad_steps_in_a_row_change_the_codec),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
