// ctest: ranks=2
/* Tensor parallelism on two ranks: the losses equal those of one rank for every kind of model and of recomputation; the
 * bytes follow the formula. */
#include "engine/base/testing/testing.h"
#include "tests/mpi/tp.h"

static const tp_shape shapes[] = {
    {"tiny", {NULL}},
    {"unequal vocabulary, untied, silu",
     {"--set", "model.vocab=61", "--set", "model.tied=false", "--set", "model.act=silu"}},
    {"norm in the linears, one kv head",
     {"--set", "model.norm=bitlinear", "--set", "model.kv_heads=1", "--set",
      "model.qkv_bias=true"}},
    {"no norm before o and down, heads' norms",
     {"--set", "model.norm=pre", "--set", "model.qk_norm=true", "--set", "model.no_rope_every=2"}},
    {"dense, biases",
     {"--set", "model.linear=dense", "--set", "model.qk_norm=true", "--set",
      "model.qkv_bias=true"}},
    {"binary", {"--set", "model.linear=bitnet1"}},
    {"bf16", {"--precision", "bf16"}},
};
static const tp_layout layouts[] = {
    {"tp 2", 0, {"--tp", "2"}},
    {"tp 2, residual on both ranks", 0, {"--tp", "2", "--set", "mesh.sequence=false"}},
    {"tp 2, selective recompute, 2 micro-batches, 2 threads",
     0,
     {"--tp", "2", "--micro-batch", "8", "--recompute", "selective", "--threads", "2"}},
    {"tp 2, full recompute", 0, {"--tp", "2", "--recompute", "full"}},
    {"tp 2", 1, {"--tp", "2"}},
    {"tp 2", 2, {"--tp", "2"}},
    {"tp 2", 3, {"--tp", "2"}},
    {"tp 2", 4, {"--tp", "2"}},
    {"tp 2, full recompute, residual on both ranks",
     4,
     {"--tp", "2", "--recompute", "full", "--set", "mesh.sequence=false"}},
    {"tp 2", 5, {"--tp", "2"}},
    {"tp 2", 6, {"--tp", "2"}},
    {"tp 2, full recompute, residual on both ranks",
     6,
     {"--tp", "2", "--recompute", "full", "--set", "mesh.sequence=false"}},
};

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) tp_compare(shapes, &layouts[k]);
}

/* Simulating two hosts gives the same bits. */
static void messages_make_no_difference(void **state) {
    (void)state;
    static fake_sink memory;
    tp_run(&memory, &shapes[0], &layouts[0]);
    bt_testing_tp_messages = true;
    tp_run(&together, &shapes[0], &layouts[0]);
    bt_testing_tp_messages = false;
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const double *a = memory.steps[i].v, *b = together.steps[i].v;
        assert_true(a[BT_MS_LOSS] == b[BT_MS_LOSS] && a[BT_MS_GRAD_NORM] == b[BT_MS_GRAD_NORM] &&
                    a[BT_MS_BYTES_WIRE] == b[BT_MS_BYTES_WIRE]);
    }
    layout_conserves();
}

/* Bytes that each of n ranks sends in its tensor-parallel group for the M tokens of a step:
 * - divided by tokens: (n-1)/n of 2 int8 rows and scales, 2 rows of integers and 2 + 2 rows of fp32
 * gradients per layer; 4 rows in addition for embedding and head
 * - on every rank: 2 (n-1)/n of 4 rows per layer, and of 3 for embedding and head
 * - to n-1 ranks: 16 bytes a token for the statistics of o and down (forward), 8 (backward) per layer, 16 for the loss
 * and small sums once a step: norm gains, scales of tensors. */
static void bytes_follow_the_formula(void **state) {
    (void)state;
    double n = 2, M = 512, L = 2, C = 32, row = 4 * C, share = (n - 1) / n;
    double small = (n - 1) * M * (L * (2 * 16 + 2 * 8) + 16);
    double wants[] = {M * share * (L * (2 * (C + 4) + 6 * row) + 4 * row) + small,
                      M * share * 2 * (L * 4 * row + 2 * row) + small};
    for (size_t k = 0; k < 2; k++) {
        bt_train_result r = tp_run(&together, &shapes[0], &layouts[k]);
        double got = r.step_ms[BT_MR_BYTES_WIRE], want = wants[k];
        if (!(got >= want && got < 1.01 * want))
            fail_msg("%s: %.0f bytes a step and rank, %.0f by the formula", layouts[k].name, got,
                     want);
    }
}

int main(void) {
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 2)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(messages_make_no_difference),
        cmocka_unit_test(bytes_follow_the_formula),
    };
    return tp_end(cmocka_run_group_tests(tests, NULL, NULL));
}
