// ctest: ranks=3
/* Ranks with unequal numbers of micro-batches, given or measured: in every ZeRO stage the losses and gradients equal
 * those of one rank, every sample is used once, and a slow rank ends with less work. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

static fake_sink alone_first;

static const char *const cuts[][14] = {
    {"--balance", "1,2,5", "--micro-batch", "2", NULL},
    {"--balance", "6,1,1", "--micro-batch", "1", NULL},
    {"--balance", "1,9,1", "--micro-batch", "2", "--zero", "1", "--set", "train.bucket_bytes=4096",
     NULL},
    {"--balance", "2,1,1", "--micro-batch", "4", "--zero", "2", "--set", "train.bucket_bytes=4096",
     NULL},
    {"--balance", "1,1,6", "--micro-batch", "2", "--zero", "3", "--set", "train.bucket_bytes=4096",
     NULL},
};
static const int64_t counts[][3] = {{1, 2, 5}, {12, 2, 2}, {1, 6, 1}, {2, 1, 1}, {1, 1, 6}};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < N_CUTS; k++) {
        layout_run(&together, cuts[k], NULL);
        layout_compare(1e-4);
        layout_conserves();
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            for (int r = 0; r < 3; r++)
                assert_true(together.steps[i].r[r][BT_MR_MICRO_BATCHES] == (double)counts[k][r]);
        }
    }
}

static void gradients_equal_tensor_by_tensor(void **state) {
    (void)state;
    for (size_t k = 0; k < N_CUTS; k++) {
        const char *words[18] = {"--steps", "1"};
        for (size_t i = 0; cuts[k][i]; i++) words[2 + i] = cuts[k][i];
        layout_run(&together, words, NULL);
        layout_same_gradients(&alone_first);
    }
}

/* Rank 1 sleeps seven times its computing time, so it must end with the least work on any machine, while the samples of
 * every step remain those of one rank. The last part of the run resumes on another layout. */
static void a_slow_rank_gets_less(void **state) {
    (void)state;
    static fake_sink first, second;
    char dir[64];
    bt_err err = BT_ERR_INIT;
    layout_folder(dir);
    assert_int_equal(setenv("BITRAIN_TEST_SLOW", "1:8", 1), 0);
    const char *words[] = {"--balance", "auto", "--micro-batch", "1",  "--zero", "3",
                           "--out",     dir,    "--stop-after",  "10", NULL};
    layout_run(&first, words, NULL);
    assert_int_equal(unsetenv("BITRAIN_TEST_SLOW"), 0);
    const double *r1 = first.steps[9].r[1];
    for (int r = 0; r < 3; r++)
        assert_true(r == 1 || first.steps[9].r[r][BT_MR_MICRO_BATCHES] > r1[BT_MR_MICRO_BATCHES]);
    assert_true(fake_events_of(&first, "balance") >= 1);
    const char *rest[] = {"--balance", "5,1,2",       "--micro-batch", "2",
                          "--zero",    "1",           "--lr",          "3e-4",
                          "--steps",   LAYOUT_LENGTH, "--set",         "data.val_frac=0.1",
                          NULL};
    bt_run_cfg cfg;
    tiny_cfg(&cfg, rest);
    tiny_run(&cfg, &second, NULL, dir);
    assert_int_equal(bt_broadcast(bt_comm_world(), &second, offsetof(fake_sink, last_checkpoint), 0,
                                  &err),
                     BT_OK);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const fake_step *s = i < 10 ? &first.steps[i] : &second.steps[i - 10];
        double micros = 0;
        for (int r = 0; r < 3; r++) micros += s->r[r][BT_MR_MICRO_BATCHES];
        assert_true(micros == (i < 10 ? 16 : 8));
        layout_near(alone.steps[i].v[BT_MS_LOSS], s->v[BT_MS_LOSS], 1e-4, "loss", i);
    }
    layout_remove(dir);
}

int main(void) {
    static const char *const one_step[] = {"--steps", "1", NULL};
    layout_run(&alone, NULL, NULL);
    layout_run(&alone_first, one_step, NULL);
    if (!layout_begin(3)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(gradients_equal_tensor_by_tensor),
        cmocka_unit_test(a_slow_rank_gets_less),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
