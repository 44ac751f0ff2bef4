// ctest: ranks=4
/* ZeRO 1, 2 and 3 on four ranks with every division into shards and replicas: the losses equal those of one rank;
 * moments and latent weights are divided among ranks. test_layouts.c compares gradients and bytes, and resumes
 * checkpoints. */
#include <unistd.h>

#include "tests/mpi/layouts.h"

#define STRIPES \
    "--set", "train.bucket_bytes=4096" /* The minimum gives several stripes even in a tiny model. */

static const struct layout {
    const char *name, *words[14];
    int shards;
    bool ternary;
} layouts[] = {
    {"zero 1, 4 shards", {STRIPES, "--zero", "1", "--dp-shard", "4"}, 4, false},
    {"zero 1, 2 replicas of 2 shards",
     {STRIPES, "--zero", "1", "--dp-replicate", "2", "--dp-shard", "2"},
     2,
     false},
    {"zero 2, 4 shards", {STRIPES, "--zero", "2", "--dp-shard", "4"}, 4, false},
    {"zero 2, 2 replicas of 2 shards, 4 micro-batches",
     {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2", "--micro-batch", "1"},
     2,
     false},
    {"zero 2, no overlap, one stripe", {"--zero", "2", "--set", "train.overlap=false"}, 4, false},
    {"zero 3, 4 shards", {STRIPES, "--zero", "3", "--dp-shard", "4"}, 4, true},
    {"zero 3, 2 replicas of 2 shards, 2 threads",
     {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2", "--threads", "2"},
     2,
     true},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0] };

static void same_records_and_divided_moments(void **state) {
    (void)state;
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        bt_train_result r = layout_run(&together, layouts[k].words, NULL);
        layout_compare(1e-4);
        layout_conserves();
        layout_traffic();
        double whole = 8.0 * (double)r.params / layouts[k].shards,
               mine = atof(fake_fact(&together, "arena.optimizer"));
        /* A stripe is rounded up to whole blocks for each rank. */
        double blocks = 8.0 * BT_SUM_BLOCK * 4;
        if (!(mine <= whole + blocks && mine > 0))
            fail_msg("%s: %.0f bytes of moments here, %.0f are a shard's", layouts[k].name, mine,
                     whole);
    }
}

/* ZeRO-3: exactly one rank of a replica holds each latent ternary weight; untouched memory reads as zero. */
static void only_the_owner_holds_a_latent_weight(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    for (size_t k = 0; k < N_LAYOUTS; k++) {
        const char *words[18] = {"--steps", "2"};
        for (size_t i = 0; i < 14 && layouts[k].words[i]; i++) words[2 + i] = layouts[k].words[i];
        bt_run_cfg cfg;
        tiny_cfg(&cfg, words);
        bt_trainer *t = tiny_create(&cfg, NULL, NULL, "");
        bt_train_result r;
        assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
        const bt_params *p = bt_model_params(bt_trainer_model(t));
        const float *w = bt_model_weights(bt_trainer_model(t));
        double here[2] = {0, 0}, all; /* held latent values; number of values */
        for (size_t i = 0; i < p->n; i++) {
            if (!p->tensors[i].tern) continue;
            for (size_t e = 0; e < p->tensors[i].count; e++)
                here[0] += w[p->tensors[i].offset + e] != 0;
            here[1] += (double)p->tensors[i].count;
        }
        all = here[0];
        assert_int_equal(bt_all_reduce_f64(bt_comm_world(), &all, 1, BT_SUM, &err), BT_OK);
        double copies = layouts[k].ternary ? 4.0 / layouts[k].shards : 4;
        assert_true(all == copies * here[1]);
        bt_trainer_destroy(t);
    }
}

int main(void) {
    layout_run(&alone, NULL, NULL);
    if (!layout_begin(4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_and_divided_moments),
        cmocka_unit_test(only_the_owner_holds_a_latent_weight),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
