/* test_refused_trainer.c - each request for memory is refused, alone and with all later ones, while a trainer is
 * created, changes from dense to ternary layers, validates and saves: the result is one clear error with the code for
 * memory, or success, without a crash or a leak. */
#include "tests/memory/refuse_memory.h"

#include <stdlib.h>

#include "tests/store/store_test.h"
#include "tests/tiny_run.h"

static bt_code train_and_save(void *ctx, bt_err *err) {
    const bt_run_cfg *cfg = ctx;
    fake_sink heard = {0};
    const bt_sink sink = fake_sink_of(&heard);
    const bt_trainer_setup s = {.cfg = cfg, .sink = &sink, .resume_dir = "", .attempt = 1};
    bt_trainer *t = NULL;
    bt_train_result r;
    bt_code code = bt_trainer_create(&t, &s, err);
    if (code == BT_OK) code = bt_trainer_run(t, &r, err);
    bt_trainer_destroy(t);
    return code;
}

static bt_run_cfg cfg;

static void a_training_that_becomes_ternary(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "3", "--batch-tokens", "128", "--set", "train.dense_steps=1");
    assert_true(survives_refusals("a training", train_and_save, &cfg, true) > 50);
}

static void a_training_that_validates_and_saves(void **state) {
    const bt_tmp *t = *state;
    TINY(&cfg, "--steps", "3", "--batch-tokens", "128", "--set", "data.val_frac=0.1", "--set",
         "train.eval_every=2", "--set", "train.eval_tokens=128", "--out", t->dir, "--ckpt-every",
         "2", "--set", "ckpt.final=true");
    assert_true(survives_refusals("a training that saves", train_and_save, &cfg, true) > 50);
}

static void trainings_with_other_parts(void **state) {
    (void)state;
    TINY(&cfg, "--steps", "3", "--batch-tokens", "256", "--optimizer", "muon", "--set",
         "train.reproducible=true", "--set", "optim.states=log8");
    assert_true(survives_refusals("a reproducible training", train_and_save, &cfg, true) > 50);
    TINY(&cfg, "--steps", "3", "--batch-tokens", "256", "--codec", "int8", "--zero", "3", "--set",
         "train.profile=true", "--set", "train.seq_ramp=0.5");
    assert_true(survives_refusals("a training with a codec", train_and_save, &cfg, true) > 50);
    TINY(&cfg, "--steps", "3", "--batch-tokens", "256", "--set", "train.share_steps=2", "--set",
         "train.recompute=full");
    assert_true(survives_refusals("a training of shares", train_and_save, &cfg, true) > 50);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (!refuse_memory_works()) return 77;
    if (bt_kernels_select("generic", NULL) != BT_OK || bt_comm_init(&err) != BT_OK) return 1;
    if (bt_threads_init(1, &err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_training_that_becomes_ternary),
        cmocka_unit_test_setup_teardown(a_training_that_validates_and_saves, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test(trainings_with_other_parts),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_threads_release();
    bt_comm_finalize();
    return failed;
}
