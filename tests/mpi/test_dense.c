// ctest: ranks=2
/* Models without ternary weights: the losses of every layout equal those of one rank within 1e-6, the error of sums
 * in another order. Ternary models diverge where this error changes the code of a weight near its threshold
 * (layouts.h). */
#define LAYOUT_LONG /* Divergence would need more than twelve steps to show. */
#include "tests/mpi/layouts.h"

static double of_one_rank[LAYOUT_STEPS];

static void losses_with(const char *const *words, double *losses) {
    static fake_sink f;
    const char *all[64] = {LAYOUT_BASE, "--micro-batch", "16", "--set", "model.linear=dense"};
    size_t n = 0;
    while (all[n]) n++;
    while (*words) all[n++] = *words++;
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    tiny_cfg(&cfg, all);
    memset(&f, 0, sizeof f);
    bt_trainer *t = tiny_create(&cfg, &f, NULL, "");
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(
        bt_broadcast(bt_comm_world(), &f, offsetof(fake_sink, last_checkpoint), 0, &err), BT_OK);
    for (int i = 0; i < LAYOUT_STEPS; i++) losses[i] = f.steps[i].v[BT_MS_LOSS];
}

static void layouts_have_the_losses_of_one_rank(void **state) {
    (void)state;
    static const char *const rows[][5] = {{"--tp", "2"},
                                          {"--micro-batch", "8"},
                                          {"--zero", "3", "--micro-batch", "8"},
                                          {"--pp", "2", "--micro-batch", "4"}};
    double losses[LAYOUT_STEPS];
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        losses_with(rows[k], losses);
        for (int i = 0; i < LAYOUT_STEPS; i++)
            if (!(fabs(losses[i] / of_one_rank[i] - 1) <= 1e-6))
                fail_msg("%s %s, step %d: %.9g alone, %.9g together", rows[k][0], rows[k][1], i,
                         of_one_rank[i], losses[i]);
    }
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    losses_with((const char *const[]){NULL}, of_one_rank);
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 2) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_have_the_losses_of_one_rank)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
