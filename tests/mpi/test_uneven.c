// ctest: ranks=4 timeout=240
/* Tensor-parallel ranks whose parts begin within a kv head, as with the published BitNet shape (20 heads, 5 kv heads):
 * two neighbouring ranks share the head. Losses and gradients equal those of one rank; every element is counted and
 * saved once; a checkpoint resumes in other layouts; reproducible runs have the bits of one rank, also with int8
 * gradients and norms of heads. */
#include "engine/base/testing/testing.h"
#include "tests/message.h"
#include "tests/mpi/tp.h"

#define HEADS(h, kv) \
    "--set", "model.heads=" h, "--set", "model.kv_heads=" kv, "--set", "model.head_dim=4"
#define STRIPES "--set", "train.bucket_bytes=4096"

static const tp_shape shapes[] = {
    {"20 heads, 5 kv heads", {HEADS("20", "5"), "--seed", "2"}},
    {"6 heads, 3 kv heads, heads' norms, dense",
     {HEADS("6", "3"), "--set", "model.qk_norm=true", "--set", "model.linear=dense"}},
    {"28 heads, 7 kv heads: three in some parts",
     {HEADS("28", "7"), "--set", "model.qk_norm=true", "--set", "model.qkv_bias=true"}},
};
static const tp_layout layouts[] = {
    {"tp 4", 0, {"--tp", "4"}},
    {"tp 2, 2 replicas, full recompute",
     0,
     {"--tp", "2", "--recompute", "full", "--micro-batch", "2"}},
    {"tp 2, zero 3", 0, {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2"}},
    {"tp 2, zero 1", 1, {STRIPES, "--tp", "2", "--zero", "1", "--dp-shard", "2"}},
    {"tp 4, residual on all ranks",
     2,
     {"--tp", "4", "--set", "mesh.sequence=false", "--recompute", "selective"}},
    {"tp 2, zero 2", 2, {STRIPES, "--tp", "2", "--zero", "2", "--dp-shard", "2"}},
};

static void same_records_as_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) tp_compare(shapes, &layouts[k]);
    bt_testing_tp_messages = true; /* exchange by messages, as between hosts */
    tp_compare(shapes, &layouts[0]);
    bt_testing_tp_messages = false;
}

#define WIDE HEADS("20", "5"), "--set", "model.qk_norm=true", "--set", "model.qkv_bias=true"
static layout_grads lonely_grads;

static void gradients_equal_element_by_element(void **state) {
    (void)state;
    static const struct {
        const char *name, *words[20];
    } rows[] = {
        {"tp 4", {WIDE, "--tp", "4"}},
        {"tp 2, zero 2", {WIDE, "--tp", "2", "--zero", "2", "--dp-shard", "2"}},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        layout_check_grads(rows[k].name, rows[k].words, &lonely_grads, 1e-4);
}

/* The formula of test_eight.c for tp 4 alone, plus, once a step, 2 (T-1)/T of the three kv heads that two ranks share,
 * for k and v. */
static void bytes_follow_the_formula(void **state) {
    (void)state;
    static const char *const words[] = {HEADS("20", "5"), "--tp", "4", NULL};
    bt_train_result r;
    bt_run_cfg cfg;
    bt_model_cfg m;
    double linear, T = 4, M = 512, share = (T - 1) / T, copies = 0;
    double got = layout_bytes(words, "16", 1, &r, &linear);
    tiny_cfg(&cfg, (const char *const[]){LAYOUT_WIDE, HEADS("20", "5"), "--tp", "4", NULL});
    bt_run_cfg_model(&cfg, &m);
    bt_params p;
    assert_int_equal(bt_params_init(&p, &m, (bt_model_slice){.tp_rank = 0, .tp_size = 4}, NULL),
                     BT_OK);
    for (size_t i = 0; i < p.n; i++)
        copies += p.tensors[i].copies == 4 ? 8 * share * (double)p.tensors[i].count : 0;
    bt_params_release(&p);
    double row = 4.0 * m.C, want = M * share * (m.L * (2 * (m.C + 4.0) + 6 * row) + 4 * row) +
                                   (T - 1) * M * (m.L * 48.0 + 16) + copies;
    want += m.L * 2 * 8 * share * 3 * m.D * m.C;
    if (!(fabs(got / want - 1) < 0.01))
        fail_msg("%.0f bytes a step and rank, %.0f by the formula", got, want);
}

static void a_checkpoint_resumes_in_other_layouts(void **state) {
    (void)state;
    static const tp_layout all[] = {
        {"tp 4", 0, {"--tp", "4"}},
        {"4 replicas", 0, {"--micro-batch", "2"}},
        {"tp 2, zero 3", 0, {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2"}},
        {"tp 2, zero 1", 0, {STRIPES, "--tp", "2", "--zero", "1", "--dp-shard", "2"}},
    };
    /* Ranks with uneven parts, or their shards, write the checkpoint. */
    for (size_t from = 0; from < 3; from += 2)
        tp_goes_on(shapes, &all[from], all, sizeof all / sizeof *all);
}

#define EXACT "--set", "train.reproducible=true", "--set", "train.unit=2", "--lr", "5e-3"
static const tp_shape exact_shapes[] = {
    {"20 heads, 5 kv heads: four parts", {HEADS("20", "5")}},
    {"28 heads, 7 kv heads, heads' norms, int8 gradients",
     {HEADS("28", "7"), "--set", "model.qk_norm=true", "--grad", "int8"}},
    {"6 heads, 3 kv heads, binary, bf16: two parts",
     {HEADS("6", "3"), "--set", "model.linear=bitnet1", "--precision", "bf16"}},
    {"28 heads, 7 kv heads, heads' norms, dense",
     {HEADS("28", "7"), "--set", "model.qk_norm=true", "--set", "model.linear=dense"}},
};
static const tp_layout exact[] = {
    {"tp 4", 0, {EXACT, "--tp", "4"}},
    {"tp 2, zero 3", 0, {EXACT, STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2"}},
    {"tp 4", 1, {EXACT, "--tp", "4"}},
    {"tp 2, 2 replicas", 1, {EXACT, "--tp", "2"}},
    {"tp 2, 2 replicas", 2, {EXACT, "--tp", "2"}},
    {"tp 4", 3, {EXACT, "--tp", "4", "--set", "mesh.sequence=false"}},
    {"tp 2, zero 1", 3, {EXACT, STRIPES, "--tp", "2", "--zero", "1", "--dp-shard", "2"}},
};
enum { N_EXACT = sizeof exact_shapes / sizeof *exact_shapes };
static fake_sink lonely_exact[N_EXACT];

static void reproducible_bits(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
        print_message("%s, %s\n", exact_shapes[exact[k].shape].name, exact[k].name);
        tp_run(&together, &exact_shapes[exact[k].shape], &exact[k]);
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            const double *a = lonely_exact[exact[k].shape].steps[i].v, *b = together.steps[i].v;
            if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
                fail_msg("step %zu: loss %.17g alone, %.17g", i, a[BT_MS_LOSS], b[BT_MS_LOSS]);
        }
    }
}

static void two_parts_share_one_kv_head(void **state) {
    (void)state;
    bt_model_cfg m = bt_preset_find("bitnet-2b4t")->model, p;
    static const struct {
        int tp, index, kv, skip;
        size_t row0, others;
    } rows[] = {
        {2, 0, 3, 0, 0, 0}, {2, 1, 3, 2, 2, 1}, {4, 0, 2, 0, 0, 0},
        {4, 1, 2, 1, 1, 1}, {4, 2, 2, 2, 2, 1}, {4, 3, 2, 3, 3, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_model_slice of = {.tp_rank = rows[i].index, .tp_size = rows[i].tp};
        bt_params t;
        m.L = 1;
        assert_int_equal(bt_slice_cfg(&p, &m, of, NULL), BT_OK);
        assert_true(p.KV == rows[i].kv && p.skip == rows[i].skip && p.group == 4 &&
                    p.H == 20 / of.tp_size);
        assert_int_equal(bt_params_init(&t, &m, of, NULL), BT_OK);
        const bt_tensor *k = bt_params_get(&t, 0, BT_P_ATTN_K);
        assert_true(k->row0 == rows[i].row0 * 128 && k->rows == (size_t)rows[i].kv * 128 &&
                    k->first_counted == rows[i].others * 128 * 2560);
        bt_params_release(&t);
    }
    assert_true(bt_leaves_auto(&m) == 4 &&
                bt_slice_shared_kv(&m, (bt_model_slice){.tp_rank = 4, .tp_size = 4}) == 3 &&
                bt_slice_shared_kv(&m, (bt_model_slice){.tp_rank = 2, .tp_size = 2}) == 1);
    bt_err err = BT_ERR_INIT;
    assert_int_equal(bt_slice_cfg(&p, &m, (bt_model_slice){.tp_rank = 0, .tp_size = 5}, &err),
                     BT_ARG);
    message_has(err.msg, "--tp 5 does not divide model.d_ff = 6912");
    m.H = 30;
    /* Three of five parts with six heads each would share one kv head. */
    m.KV = 3;
    assert_int_equal(bt_slice_cfg(&p, &m, (bt_model_slice){.tp_rank = 0, .tp_size = 10}, &err),
                     BT_ARG);
    message_has(err.msg, "--tp 10 does not divide model.kv_heads = 3");
}

int main(void) {
    lonely_grads = layout_lonely_grads((const char *const[]){WIDE, NULL});
    for (size_t i = 0; i < N_EXACT; i++)
        tp_run(&lonely_exact[i], &exact_shapes[i], &(tp_layout){"one rank", 0, {EXACT}});
    if (!tp_begin(shapes, sizeof shapes / sizeof *shapes, 4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_parts_share_one_kv_head),
        cmocka_unit_test(gradients_equal_element_by_element),
        cmocka_unit_test(same_records_as_one_rank),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(a_checkpoint_resumes_in_other_layouts),
        cmocka_unit_test(reproducible_bits),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    layout_release_grads(&lonely_grads);
    return tp_end(failed);
}
