// ctest: ranks=4 timeout=200
/* parallel.gather=step and parallel.gather=flips in every ZeRO stage give the bits of ZeRO-1 with fp32 weights, also
 * after a checkpoint, and send fewer bytes; flips sends the fewest. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

#define STRIPES "--set", "train.bucket_bytes=65536", "--lr", "3e-3"
#define STEP "--set", "parallel.gather=step"
#define FLIPS "--set", "parallel.gather=flips"
#define HYBRID "--dp-replicate", "2", "--dp-shard", "2"

static const char *const layouts[][14] = {
    {STRIPES, "--zero", "1"},        {STRIPES, "--zero", "1", STEP},
    {STRIPES, "--zero", "1", FLIPS}, {STRIPES, "--zero", "2", STEP},
    {STRIPES, "--zero", "2", FLIPS}, {STRIPES, "--zero", "3", FLIPS},
};
static const char *const hybrids[][14] = {
    {STRIPES, "--zero", "2", HYBRID},
    {STRIPES, "--zero", "1", HYBRID, FLIPS},
    {STRIPES, "--zero", "3", HYBRID, FLIPS},
};
static const char *const others[][16] = {
    {STRIPES, "--zero", "1", "--set", "model.linear=dense"},
    {STRIPES, "--zero", "1", "--set", "model.linear=dense", FLIPS}, /* equal to "step" */
    {STRIPES, "--zero", "2", "--set", "model.tied=false", "--optimizer", "muon"},
    {STRIPES, "--zero", "2", "--set", "model.tied=false", "--optimizer", "muon", FLIPS},
    {STRIPES, "--zero", "1", "--pp", "2"},
    {STRIPES, "--zero", "1", "--pp", "2", FLIPS},
    {STRIPES, "--zero", "2", "--tp", "2"},
    {STRIPES, "--zero", "2", "--tp", "2", FLIPS},
};

static fake_sink first;

static void check_equal_runs(const char *what, size_t k, size_t from, size_t steps) {
    for (size_t i = 0; i < steps; i++) {
        const double *a = first.steps[from + i].v, *b = together.steps[i].v;
        if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
            fail_msg("%s %zu, step %zu: loss %.17g, not %.17g", what, k, i, b[BT_MS_LOSS],
                     a[BT_MS_LOSS]);
        assert_true(isnan(a[BT_MS_VAL_LOSS]) || a[BT_MS_VAL_LOSS] == b[BT_MS_VAL_LOSS]);
    }
}

static void no_gather_changes_a_bit(void **state) {
    (void)state;
    (void)layout_run(&first, layouts[0], NULL);
    for (size_t k = 1; k < sizeof layouts / sizeof *layouts; k++) {
        (void)layout_run(&together, layouts[k], NULL);
        check_equal_runs("layout", k, 0, LAYOUT_STEPS);
    }
    (void)layout_run(&first, hybrids[0], NULL);
    for (size_t k = 1; k < sizeof hybrids / sizeof *hybrids; k++) {
        (void)layout_run(&together, hybrids[k], NULL);
        check_equal_runs("hybrid", k, 0, LAYOUT_STEPS);
    }
    for (size_t k = 0; k < sizeof others / sizeof *others; k += 2) {
        (void)layout_run(&first, others[k], NULL);
        (void)layout_run(&together, others[k + 1], NULL);
        check_equal_runs("other", k, 0, LAYOUT_STEPS);
    }
}

/* Returns the mean over the ranks of the bytes gathered in a late step of a run with many small steps. */
static double gathered_bytes_per_step(const char *zero, const char *gather) {
    char set[64];
    snprintf(set, sizeof set, "parallel.gather=%s", gather);
    const char *words[] = {"--set",  "model.d_model=128",
                           "--set",  "model.d_ff=384",
                           "--zero", zero,
                           "--set",  set,
                           "--lr",   "3e-4",
                           NULL};
    double bytes = 0;
    (void)layout_run(&together, words, NULL);
    for (int r = 0; r < 4; r++) bytes += layout_op("all_gather", "shard", r)[BT_MC_BYTES_WIRE] / 16;
    return bytes;
}

static void flips_are_the_least(void **state) {
    (void)state;
    double fp32 = gathered_bytes_per_step("1", "layer"),
           step = gathered_bytes_per_step("1", "step"),
           flips = gathered_bytes_per_step("1", "flips"),
           linear = atof(fake_fact(&together, "params.linear")),
           params = atof(fake_fact(&together, "params"));
    /* Tensors that are not ternary are gathered as fp32, because this run has no bf16 products. */
    double rest = 4 * (params - linear) * 0.75, codes = linear / 4 * 0.75;
    if (!(fabs(fp32 / (4 * params * 0.75) - 1) < 0.02 && fabs(step / (rest + codes) - 1) < 0.02))
        fail_msg("%.0f and %.0f bytes, not %.0f and %.0f", fp32, step, 4 * params * 0.75,
                 rest + codes);
    if (!(flips < step - 0.7 * codes))
        fail_msg("%.0f bytes with flips, %.0f without", flips - rest, codes);
    assert_true(gathered_bytes_per_step("3", "flips") == flips &&
                gathered_bytes_per_step("2", "flips") == flips);
}

static void a_checkpoint_resumes(void **state) {
    (void)state;
    char dir[64];
    layout_folder(dir);
    const char *whole[32] = {"--steps", "8"},
               *stop[32] = {"--steps", "8", "--stop-after", "5", "--out", dir};
    for (size_t i = 0; layouts[2][i]; i++) whole[2 + i] = stop[6 + i] = layouts[2][i];
    layout_part(&first, whole, "");
    layout_part(&together, stop, "");
    for (size_t k = 0; k < 6; k++) {
        const char *on[32] = {"--steps", "8"};
        for (size_t i = 0; i < 14 && layouts[k][i]; i++) on[2 + i] = layouts[k][i];
        layout_part(&together, on, dir);
        assert_int_equal(together.n_steps, 3);
        check_equal_runs("resumed as", k, 5, 3);
    }
    layout_remove(dir);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 4) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_gather_changes_a_bit),
        cmocka_unit_test(flips_are_the_least),
        cmocka_unit_test(a_checkpoint_resumes),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
