// ctest: ranks=4 timeout=600
/* Pipelines on four ranks, with one or several chunks of layers per stage, alone and with every other axis: losses and
 * gradients equal those of one rank, element by element (bit for bit in reproducible training); the bytes sent follow
 * the formula; a checkpoint of one layout resumes in the others. */
#include "tests/mpi/tp.h"

/* Some layouts of five layers with a rate of 3e-4 change a ternary code by rounding within twenty steps, because they
 * add in another order, and then the losses differ: see tests/mpi/layouts.h. */
#define DEEP "--set", "model.layers=8", "--lr", "3e-5"
#define CHUNKS(n) "--virtual-stages", n

static const tp_shape shapes[] = {
    {"eight layers", {DEEP}},
    {"five layers, untied, silu, unequal vocabulary",
     {"--set", "model.layers=5", "--lr", "3e-5", "--set", "model.vocab=61", "--set",
      "model.tied=false", "--set", "model.act=silu"}},
    {"dense, heads' norms", {DEEP, "--set", "model.linear=dense", "--set", "model.qk_norm=true"}},
    {"bf16", {DEEP, "--precision", "bf16"}},
};
static const tp_layout layouts[] = {
    {"pp 4, 8 micro-batches", 0, {"--pp", "4", "--micro-batch", "2"}},
    {"pp 4, one micro-batch", 0, {"--pp", "4", "--micro-batch", "16"}},
    {"pp 2 x 2 replicas, selective recompute",
     0,
     {"--pp", "2", "--micro-batch", "2", "--recompute", "selective"}},
    {"pp 2 x 2 shards, zero 2",
     0,
     {"--pp", "2", "--micro-batch", "2", "--zero", "2", "--set", "train.bucket_bytes=4096"}},
    {"pp 2 x 2 shards, zero 3, full recompute",
     0,
     {"--pp", "2", "--micro-batch", "1", "--zero", "3", "--recompute", "full"}},
    {"pp 2 x tp 2", 0, {"--pp", "2", "--tp", "2", "--micro-batch", "4"}},
    {"pp 2 x tp 2, residual on both ranks, 2 threads",
     1,
     {"--pp", "2", "--tp", "2", "--set", "mesh.sequence=false", "--micro-batch", "2", "--threads",
      "2"}},
    {"pp 2", 1, {"--pp", "2", "--micro-batch", "2"}},
    {"pp 2, unlike shares", 2, {"--pp", "2", "--micro-batch", "2", "--balance", "3,1"}},
    {"pp 4", 3, {"--pp", "4", "--micro-batch", "2"}},
    {"pp 4, full recompute", 3, {"--pp", "4", "--micro-batch", "2", "--recompute", "full"}},
    {"pp 4, 2 chunks, 4 micro-batches, full recompute",
     0,
     {"--pp", "4", CHUNKS("2"), "--micro-batch", "4", "--recompute", "full"}},
    {"pp 2 x 2 replicas, 3 chunks of unequal layers, selective recompute",
     0,
     {"--pp", "2", CHUNKS("3"), "--micro-batch", "2", "--recompute", "selective"}},
    {"pp 2 x 2 shards, 4 chunks, zero 2",
     0,
     {"--pp", "2", CHUNKS("4"), "--micro-batch", "2", "--zero", "2", "--set",
      "train.bucket_bytes=4096"}},
    {"pp 2 x tp 2, 2 chunks", 0, {"--pp", "2", "--tp", "2", CHUNKS("2"), "--micro-batch", "4"}},
    {"pp 2 x 2 replicas, 2 chunks", 1, {"--pp", "2", CHUNKS("2"), "--micro-batch", "2"}},
    {"pp 4, 2 chunks", 3, {"--pp", "4", CHUNKS("2"), "--micro-batch", "2"}},
};

static layout_grads lonely_grads;

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) tp_compare(shapes, &layouts[k]);
}

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    static const char *const words[][16] = {
        {DEEP, "--pp", "4", NULL},
        {DEEP, "--pp", "4", CHUNKS("2"), NULL},
        {DEEP, "--pp", "2", "--tp", "2", NULL},
        {DEEP, "--pp", "2", "--tp", "2", CHUNKS("2"), NULL},
        {DEEP, "--pp", "2", "--zero", "2", "--set", "train.bucket_bytes=65536", NULL},
    };
    for (size_t k = 0; k < sizeof words / sizeof *words; k++)
        layout_check_grads(words[k][5], words[k], &lonely_grads, 1e-5);
}

/* a scale for each group of inputs */
#define GROUPS "--set", "model.scale=group:32", "--grad", "int8"
static fake_sink exact, exact_changing, exact_groups;

static void reproducible_keeps_the_bits(void **state) {
    (void)state;
    static const char *const cuts[][32] = {
        {DEEP, "--pp", "4", NULL},
        {DEEP, "--pp", "2", NULL},
        {DEEP, "--pp", "2", "--tp", "2", NULL},
        {DEEP, "--pp", "2", "--zero", "3", "--set", "train.bucket_bytes=4096", NULL},
        {DEEP, "--pp", "2", "--balance", "1,3", NULL},
        {DEEP, "--pp", "4", CHUNKS("2"), NULL},
        {DEEP, "--pp", "2", CHUNKS("4"), NULL},
        {DEEP, "--pp", "2", "--tp", "2", CHUNKS("3"), NULL},
        {DEEP, "--pp", "2", "--zero", "3", CHUNKS("2"), "--set", "train.bucket_bytes=4096", NULL},
        {DEEP, TP_CHANGING, "--pp", "2", "--tp", "2", NULL},
        {DEEP, TP_CHANGING, "--pp", "2", "--tp", "2", CHUNKS("2"), NULL},
        {DEEP, GROUPS, "--pp", "4", NULL},
        {DEEP, GROUPS, "--pp", "2", "--zero", "3", "--set", "train.bucket_bytes=4096", NULL},
    };
    const size_t n = sizeof cuts / sizeof *cuts;
    for (size_t k = 0; k < n; k++) {
        tp_run_reproducible(&together, cuts[k]);
        tp_same_bits(k + 4 < n ? &exact : k + 2 < n ? &exact_changing : &exact_groups, k);
    }
}

/* Every virtual stage except the last sends a micro-batch's residual (M, C), and every one except the first sends its
 * gradient. Once a step the first and last stages exchange the tied table (V, C): gradients to the first, weights to
 * the last. All are fp32. */
static void check_bytes(const tp_layout *l, double bytes, int chunks) {
    double steps = 4, M = 4 * 32, C = 32, V = 64, micros = 4;
    tp_run(&together, &shapes[0], l);
    for (int r = 0; r < 4; r++) {
        const double *v = layout_op("send", "pp", r);
        assert_non_null(v);
        double table = 4 * V * C * (r == 0 || r == 3),
               passed = micros * M * C * (2 * chunks - (r == 3) - (r == 0)),
               want = bytes * passed + table, plain = 4 * passed + table;
        if (v[BT_MC_BYTES_WIRE] != steps * want || v[BT_MC_BYTES_LOGICAL] != steps * plain)
            fail_msg("%s: stage %d: %.0f bytes in %.0f steps, %.0f by the formula", l->name, r,
                     v[BT_MC_BYTES_WIRE], steps, steps * want);
    }
}

#define FOUR_STAGES \
    "--pp", "4", "--micro-batch", "4", "--set", "train.stats_every=4", "--eval-every", "100"

static void bytes_follow_the_formula(void **state) {
    (void)state;
    check_bytes(&(tp_layout){"pp 4", 0, {FOUR_STAGES}}, 4, 1);
    check_bytes(&(tp_layout){"pp 4, 2 chunks", 0, {FOUR_STAGES, CHUNKS("2")}}, 4, 2);
}

/* comm.pipe=bf16 halves the bytes between stages, and the losses are near those of fp32. */
static void residuals_travel_as_bf16_on_request(void **state) {
    (void)state;
    static fake_sink plain;
    tp_run(&plain, &shapes[0], &(tp_layout){"pp 4", 0, {FOUR_STAGES}});
    check_bytes(&(tp_layout){"pp 4, bf16", 0, {FOUR_STAGES, "--set", "comm.pipe=bf16"}}, 2, 1);
    bool differs = false;
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const double a = plain.steps[i].v[BT_MS_LOSS], b = together.steps[i].v[BT_MS_LOSS];
        layout_near(a, b, 2e-2, "loss", i);
        differs |= a != b;
    }
    assert_true(differs);
}

static void one_checkpoint_resumes_in_other_layouts(void **state) {
    (void)state;
    static const tp_layout all[] = {
        {"pp 4", 0, {"--pp", "4", "--micro-batch", "2"}},
        {"pp 2", 0, {"--pp", "2", "--micro-batch", "2"}},
        {"pp 2 x tp 2", 0, {"--pp", "2", "--tp", "2"}},
        {"zero 3", 0, {"--zero", "3"}},
        {"tp 4", 0, {"--tp", "4"}},
        {"pp 2, zero 1", 0, {"--pp", "2", "--zero", "1", "--micro-batch", "2"}},
        {"pp 4, 2 chunks", 0, {"--pp", "4", CHUNKS("2"), "--micro-batch", "2"}},
        {"pp 2, 3 chunks", 0, {"--pp", "2", CHUNKS("3"), "--micro-batch", "2"}},
    };
    tp_goes_on(shapes, &all[0], all + 1, sizeof all / sizeof *all - 1);
    tp_goes_on(shapes, &all[6], all, 1);
}

int main(void) {
    tp_run_reproducible(&exact, (const char *const[]){DEEP, NULL});
    tp_run_reproducible(&exact_changing, (const char *const[]){DEEP, TP_CHANGING, NULL});
    tp_run_reproducible(&exact_groups, (const char *const[]){DEEP, GROUPS, NULL});
    lonely_grads = layout_lonely_grads((const char *const[]){DEEP, NULL});
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(reproducible_keeps_the_bits),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(residuals_travel_as_bf16_on_request),
        cmocka_unit_test(one_checkpoint_resumes_in_other_layouts),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    layout_release_grads(&lonely_grads);
    return tp_end(failed);
}
