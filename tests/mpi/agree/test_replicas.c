// ctest: ranks=4
/* Replicas compare the hashes of their weights: they are equal in every layout, and a flipped bit in one rank's weights
 * ends the training on all ranks with the names of the tensor and the rank. */
#include "tests/mpi/layouts.h"

#define STRIPES \
    "--set", "train.bucket_bytes=4096" /* The minimum gives several stripes even in a tiny model. */
#define EACH_STEP "--check-weights", "1"

static const struct layout {
    const char *name, *words[14];
    /* a tensor that replicas compare, and a tensor that only one rank holds (NULL: there is none) */
    const char *compared, *alone;
} layouts[] = {
    {"4 replicas", {STRIPES}, "layers.1.ffn_up", NULL},
    {"zero 1, 4 shards", {STRIPES, "--zero", "1", "--dp-shard", "4"}, "layers.0.attn_q", NULL},
    {"zero 2, 2 replicas of 2 shards",
     {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"},
     "final_norm",
     NULL},
    {"zero 3, 4 shards", {STRIPES, "--zero", "3", "--dp-shard", "4"}, "embed", "layers.0.ffn_down"},
    {"zero 3, 2 replicas of 2 shards",
     {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"},
     "layers.0.ffn_down",
     NULL},
    {"2 replicas of tp 2", {"--tp", "2"}, "layers.1.attn_o", NULL},
    {"2 replicas of pp 2", {"--pp", "2", "--micro-batch", "2"}, "layers.0.attn_v", NULL},
    {"muon", {"--optimizer", "muon"}, "layers.0.attn_k", NULL},
    {"muon, zero 2, 4 shards",
     {STRIPES, "--zero", "2", "--dp-shard", "4", "--optimizer", "muon"},
     "layers.0.attn_k",
     NULL},
    {"lion", {"--optimizer", "lion"}, "layers.0.attn_k", NULL},
    {"codec bf16", {"--codec", "bf16"}, "layers.0.attn_k", NULL},
    {"weights in bf16, zero 3, 2 replicas of 2 shards",
     {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2", "--set",
      "optim.weights=bf16"},
     "layers.0.ffn_down",
     NULL},
    {"reproducible",
     {"--set", "train.reproducible=true", "--set", "train.unit=4"},
     "layers.1.attn_norm",
     NULL},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

static bt_code train(const struct layout *l, const char *const *more, bt_err *err) {
    const char *words[40] = {"--steps", "6"};
    size_t n = 2;
    for (size_t i = 0; i < 14 && l->words[i]; i++) words[n++] = l->words[i];
    while (*more) words[n++] = *more++;
    bt_run_cfg cfg;
    bt_train_result r;
    tiny_cfg(&cfg, words);
    *err = (bt_err)BT_ERR_INIT;
    bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
    bt_code code = bt_trainer_run(t, &r, err);
    bt_trainer_destroy(t);
    bt_threads_release();
    return code;
}

static void flip_weight_bit(int rank, int step, const char *tensor) {
    char hook[80];
    snprintf(hook, sizeof hook, "%d:%d:%s", rank, step, tensor);
    assert_int_equal(setenv("BITRAIN_TEST_FLIP", hook, 1), 0);
}

static void replicas_are_equal_in_every_layout(void **state) {
    (void)state;
    static const char *const each[] = {EACH_STEP, NULL};
    bt_err err;
    for (size_t i = 0; i < N_LAYOUTS; i++)
        if (train(&layouts[i], each, &err) != BT_OK) fail_msg("%s: %s", layouts[i].name, err.msg);
}

static void a_flipped_bit_ends_the_training_by_name(void **state) {
    (void)state;
    static const char *const each[] = {EACH_STEP, NULL};
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        bt_err err;
        char tensor[64];
        flip_weight_bit(1, 3, layouts[i].compared);
        bt_code code = train(&layouts[i], each, &err);
        snprintf(tensor, sizeof tensor, "after step 3: '%s'", layouts[i].compared);
        if (code != BT_DAMAGED || !strstr(err.msg, tensor) || !strstr(err.msg, "rank 1 (host '"))
            fail_msg("%s: %d %s", layouts[i].name, (int)code, err.msg);
        if (layouts[i].alone) { /* No replica has this shard, so the flip remains undetected. */
            flip_weight_bit(1, 3, layouts[i].alone);
            if (train(&layouts[i], each, &err) != BT_OK)
                fail_msg("%s: %s", layouts[i].name, err.msg);
        }
    }
    assert_int_equal(unsetenv("BITRAIN_TEST_FLIP"), 0);
}

/* Four replicas identify the deviating rank; two replicas cannot. */
static void the_deviating_rank_is_named(void **state) {
    (void)state;
    static const char *const each[] = {EACH_STEP, NULL};
    bt_err err;
    for (int rank = 0; rank < 4; rank++) {
        char who[64];
        flip_weight_bit(rank, 2, "final_norm");
        assert_int_equal(train(&layouts[0], each, &err), BT_DAMAGED);
        snprintf(who, sizeof who, "'final_norm' on rank %d (host", rank);
        if (!strstr(err.msg, who) || !strstr(err.msg, "and 2 more hold")) fail_msg("%s", err.msg);
    }
    flip_weight_bit(3, 2, "layers.0.attn_q");
    assert_int_equal(train(&layouts[5], each, &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "is not the same on rank 1 (host"));
    assert_non_null(strstr(err.msg, "and rank 3 (host"));
    assert_int_equal(unsetenv("BITRAIN_TEST_FLIP"), 0);
}

/* Gradients are summed over all ranks and equal on all of them, so only the comparison of weights detects the flip. */
static void without_the_comparison_the_flip_is_undetected(void **state) {
    (void)state;
    static const char *const never[] = {"--check-weights", "0", NULL}, *const late[] = {
                                                                           "--check-weights", "4",
                                                                           NULL};
    bt_err err;
    flip_weight_bit(2, 1, "layers.0.attn_q");
    if (train(&layouts[0], never, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(train(&layouts[0], late, &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "after step 4: 'layers.0.attn_q' on rank 2"));
    assert_int_equal(unsetenv("BITRAIN_TEST_FLIP"), 0);
}

/* The default compares weights after the first step, after ten more, and at the end. */
static void weights_are_compared_by_default(void **state) {
    (void)state;
    static const char *const by_cost[] = {"--check-weights", "-1", NULL}, *const longer[] = {
                                                                              "--check-weights",
                                                                              "-1", "--steps", "13",
                                                                              NULL};
    bt_err err;
    flip_weight_bit(2, 1, "layers.0.attn_q");
    assert_int_equal(train(&layouts[0], by_cost, &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "after step 1: 'layers.0.attn_q' on rank 2"));
    flip_weight_bit(2, 2, "layers.0.attn_q");
    assert_int_equal(train(&layouts[0], by_cost, &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "after step 6: 'layers.0.attn_q' on rank 2"));
    assert_int_equal(train(&layouts[0], longer, &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "after step 11: 'layers.0.attn_q' on rank 2"));
    assert_int_equal(unsetenv("BITRAIN_TEST_FLIP"), 0);
}

static void no_checkpoint_is_made_of_unequal_weights(void **state) {
    (void)state;
    char dir[64], command[160];
    layout_folder(dir);
    const char *const rarely[] = {
        "--check-weights",  "1000", "--ckpt-every", "2", "--out", dir, "--set",
        "ckpt.async=false", NULL};
    bt_err err;
    flip_weight_bit(2, 3, "layers.0.attn_q");
    assert_int_equal(train(&layouts[0], rarely, &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "after step 4"));
    assert_int_equal(unsetenv("BITRAIN_TEST_FLIP"), 0);
    if (bt_comm_rank(bt_comm_world()) == 0) {
        snprintf(command, sizeof command, "test \"$(ls %s | grep -c '^step-')\" = 1", dir);
        assert_int_equal(system(command), 0);
    }
    /* Training resumes from the checkpoint before the flip. */
    static const char *const words[] = {"--steps", "6", EACH_STEP, NULL};
    layout_part(&together, words, dir);
    assert_int_equal(together.n_steps, 4);
    assert_int_equal(together.steps[0].step, 2);
    layout_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_are_equal_in_every_layout),
        cmocka_unit_test(a_flipped_bit_ends_the_training_by_name),
        cmocka_unit_test(the_deviating_rank_is_named),
        cmocka_unit_test(without_the_comparison_the_flip_is_undetected),
        cmocka_unit_test(weights_are_compared_by_default),
        cmocka_unit_test(no_checkpoint_is_made_of_unequal_weights),
    };
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
