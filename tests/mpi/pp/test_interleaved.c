/* mpi: 4
 * timeout: 400
 * Pipelines whose stages have several chunks of layers, alone and with every other axis: losses and
 * gradients of one rank, element by element, its bits in reproducible training; bytes by the formula; a
 * checkpoint of one layout resumes in others. */
#include "tests/mpi/tp.h"

/* A small learning rate, so that no code changes by rounding: see test_pipeline.c. */
#define DEEP "--set", "model.layers=8", "--lr", "3e-5"
#define VIRTUAL(n) "--virtual-stages", n

static const tp_shape shapes[] = {
    {"eight layers", {DEEP}},
    {"five layers, untied, silu, unequal vocabulary",
     {"--set", "model.layers=5", "--lr", "3e-5", "--set", "model.vocab=61", "--set",
      "model.tied=false", "--set", "model.act=silu"}},
    {"bf16", {DEEP, "--precision", "bf16"}},
};
static const tp_layout layouts[] = {
    {"pp 4, 2 chunks, 4 micro-batches, full recompute",
     0,
     {"--pp", "4", VIRTUAL("2"), "--micro-batch", "4", "--recompute", "full"}},
    {"pp 2 x 2 replicas, 3 chunks of unequal layers, selective recompute",
     0,
     {"--pp", "2", VIRTUAL("3"), "--micro-batch", "2", "--recompute", "selective"}},
    {"pp 2 x 2 shards, 4 chunks, zero 2",
     0,
     {"--pp", "2", VIRTUAL("4"), "--micro-batch", "2", "--zero", "2", "--set",
      "train.bucket_bytes=4096"}},
    {"pp 2 x tp 2, 2 chunks", 0, {"--pp", "2", "--tp", "2", VIRTUAL("2"), "--micro-batch", "4"}},
    {"pp 2 x 2 replicas, 2 chunks", 1, {"--pp", "2", VIRTUAL("2"), "--micro-batch", "2"}},
    {"pp 4, 2 chunks", 2, {"--pp", "4", VIRTUAL("2"), "--micro-batch", "2"}},
};

static layout_grads lonely_grads;

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) tp_compare(shapes, &layouts[k]);
}

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    static const char *const words[][16] = {
        {DEEP, "--pp", "4", VIRTUAL("2"), NULL},
        {DEEP, "--pp", "2", "--tp", "2", VIRTUAL("2"), NULL},
    };
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        layout_check_grads(words[k][5], words[k], &lonely_grads, 1e-5);
}

static fake_sink exact, exact_changing;

static void reproducible_keeps_the_bits(void **state) {
    (void)state;
    static const char *const cuts[][24] = {
        {DEEP, "--pp", "4", VIRTUAL("2"), NULL},
        {DEEP, "--pp", "2", VIRTUAL("4"), NULL},
        {DEEP, "--pp", "2", "--tp", "2", VIRTUAL("3"), NULL},
        {DEEP, "--pp", "2", "--zero", "3", VIRTUAL("2"), "--set", "train.bucket_bytes=4096", NULL},
        {DEEP, TP_CHANGING, "--pp", "2", "--tp", "2", VIRTUAL("2"), NULL},
    };
    const size_t changing = sizeof cuts / sizeof *cuts - 1;
    for (size_t k = 0; k < sizeof cuts / sizeof *cuts; k++) {
        tp_run_reproducible(&together, cuts[k]);
        tp_same_bits(k == changing ? &exact_changing : &exact, k);
    }
}

/* A micro-batch's residual (M, C) is sent by every virtual stage except the last, and its gradient by every
 * one except the first: twice as much from each rank as without chunks. The tied table (V, C) is unchanged:
 * gradients to the first stage, weights to the last. */
static void bytes_follow_the_formula(void **state) {
    (void)state;
    static const tp_layout l = {"pp 4, 2 chunks",
                                0,
                                {"--pp", "4", VIRTUAL("2"), "--micro-batch", "4", "--set",
                                 "train.stats_every=4", "--eval-every", "100"}};
    const double steps = 4, M = 4 * 32, C = 32, V = 64, micros = 4;
    tp_run(&together, &shapes[0], &l);
    for (int r = 0; r < 4; r++) {
        const double *v = layout_op("send", "pp", r);
        assert_non_null(v);
        const double table = 4 * V * C * (r == 0 || r == 3),
                     want = steps * (4 * micros * M * C * (4 - (r == 0) - (r == 3)) + table);
        if (v[BT_MC_BYTES_WIRE] != want)
            fail_msg("stage %d: %.0f bytes in %.0f steps, %.0f by the formula", r,
                     v[BT_MC_BYTES_WIRE], steps, want);
    }
}

static void one_checkpoint_resumes_in_other_layouts(void **state) {
    (void)state;
    static const tp_layout all[] = {
        {"pp 4, 2 chunks", 0, {"--pp", "4", VIRTUAL("2"), "--micro-batch", "2"}},
        {"pp 4", 0, {"--pp", "4", "--micro-batch", "2"}},
        {"pp 2, 3 chunks", 0, {"--pp", "2", VIRTUAL("3"), "--micro-batch", "2"}},
        {"tp 4", 0, {"--tp", "4"}},
    };
    tp_goes_on(shapes, &all[0], all + 1, sizeof all / sizeof *all - 1);
    tp_goes_on(shapes, &all[1], all, 1);
}

int main(void) {
    tp_run_reproducible(&exact, (const char *const[]){DEEP, NULL});
    tp_run_reproducible(&exact_changing, (const char *const[]){DEEP, TP_CHANGING, NULL});
    lonely_grads = layout_lonely_grads((const char *const[]){DEEP, NULL});
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(reproducible_keeps_the_bits),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(one_checkpoint_resumes_in_other_layouts),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    layout_release_grads(&lonely_grads);
    return tp_end(failed);
}
