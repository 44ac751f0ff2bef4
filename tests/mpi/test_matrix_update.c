// ctest: ranks=4 timeout=240
/* Muon updates whole matrices, whichever ranks hold their elements: reproducible runs of every layout have
 * the bits of one rank, record the same change of the weights, send the bytes of the formula, and resume
 * from each other's checkpoints. */
#include "tests/mpi/tp.h"

#define EXACT "--set", "train.reproducible=true", "--set", "train.unit=2", "--lr", "5e-3"
#define MUON "--optimizer", "muon", EXACT
#define STRIPES "--set", "train.bucket_bytes=4096"

static const tp_shape shapes[] = {
    {"muon", {MUON}},
    {"muon, eight heads, two kv heads",
     {MUON, "--set", "model.heads=8", "--set", "model.kv_heads=2", "--set", "model.qk_norm=true",
      "--set", "optim.matrix_lr=0.5", "--set", "model.init_out=zero"}},
    {"muon, dense",
     {MUON, "--set", "model.linear=dense", "--set", "model.tied=false", "--precision", "bf16"}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const tp_layout layouts[] = {
    {"four replicas", 0, {NULL}},
    {"zero 1", 0, {STRIPES, "--zero", "1"}},
    {"zero 2", 1, {STRIPES, "--zero", "2"}},
    {"zero 3", 0, {STRIPES, "--zero", "3"}},
    {"zero 3, 2 replicas of 2 shards",
     1,
     {STRIPES, "--zero", "3", "--dp-shard", "2", "--dp-replicate", "2"}},
    {"tp 4, a kv head on two ranks", 1, {"--tp", "4"}},
    {"tp 2, zero 3", 0, {STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2"}},
    {"tp 2, 2 replicas", 2, {"--tp", "2"}},
    {"2 stages, 2 replicas", 0, {"--pp", "2"}},
    {"2 stages, tp 2", 2, {"--pp", "2", "--tp", "2"}},
    {"2 stages, zero 3", 1, {STRIPES, "--pp", "2", "--zero", "3", "--dp-shard", "2"}},
};

static void the_bits_of_one_rank(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        const tp_layout *l = &layouts[k];
        print_message("%s: %s\n", shapes[l->shape].name, l->name);
        alone = tp_lonely[l->shape].run;
        tp_run(&together, &shapes[l->shape], l);
        for (size_t i = 0; i < LAYOUT_STEPS; i++) {
            const double *a = alone.steps[i].v, *b = together.steps[i].v;
            if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
                fail_msg("step %zu: loss %.17g alone, %.17g", i, a[BT_MS_LOSS], b[BT_MS_LOSS]);
        }
        layout_conserves();
        tp_same_tensors();
    }
}

/* Muon differs from the rows of AdamW above. */
static void bits_differ_from_adamw(void **state) {
    (void)state;
    static const tp_shape adamw = {"adamw", {EXACT}};
    tp_run(&together, &adamw, NULL);
    assert_true(together.steps[0].v[BT_MS_LOSS] == tp_lonely[0].run.steps[0].v[BT_MS_LOSS]);
    assert_true(together.steps[2].v[BT_MS_LOSS] != tp_lonely[0].run.steps[2].v[BT_MS_LOSS]);
}

/* The momentum of 1 - 1/D of the elements is sent to the owner, and the direction of R - 1/D of them. */
static double matrix_elements(const tp_shape *shape) {
    bt_run_cfg cfg;
    bt_model_cfg m;
    bt_params p;
    double sum = 0;
    tiny_cfg(&cfg, shape->words);
    bt_run_cfg_model(&cfg, &m);
    assert_int_equal(bt_params_init(&p, &m, (bt_model_slice){0}, NULL), BT_OK);
    for (size_t i = 0; i < p.n; i++) sum += p.tensors[i].linear ? (double)p.tensors[i].count : 0;
    bt_params_release(&p);
    return sum;
}

static void bytes_follow_the_formula(void **state) {
    (void)state;
    static const struct {
        tp_layout layout;
        double replicas, ranks_of_one;
    } rows[] = {
        {{"four replicas", 0, {NULL}}, 4, 1},
        {{"zero 1", 0, {STRIPES, "--zero", "1"}}, 1, 4},
        {{"2 of 2", 0, {STRIPES, "--zero", "1", "--dp-shard", "2", "--dp-replicate", "2"}}, 2, 2},
    };
    static const tp_shape often = {"muon", {MUON, "--set", "train.stats_every=4"}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        tp_shape shape = often;
        tp_layout l = rows[k].layout;
        size_t n = 0;
        while (l.words[n]) n++;
        l.words[n++] = "--set";
        l.words[n++] = "train.stats_every=4";
        tp_run(&together, &shape, &l);
        double sent = 0, d = rows[k].ranks_of_one;
        for (int r = 0; r < 4; r++) {
            const double *v = layout_op("send", "world", r);
            if (v) sent += v[BT_MC_BYTES_WIRE];
            if (v) assert_true(v[BT_MC_BYTES_LOGICAL] == 2 * v[BT_MC_BYTES_WIRE]);
        }
        double want = matrix_elements(&shape) * 2 * ((1 - 1 / d) + (rows[k].replicas - 1 / d));
        /* Per step of a sample; the shards of a tiny model are slightly unequal. */
        sent /= 4;
        if (!(fabs(sent - want) <= 0.2 * want))
            fail_msg("%s: %.0f bytes a step, not %.0f", rows[k].layout.name, sent, want);
    }
}

static void checkpoints_resume_in_other_layouts(void **state) {
    (void)state;
    static const tp_layout all[] = {
        {"tp 2, zero 3", 1, {MUON, STRIPES, "--tp", "2", "--zero", "3", "--dp-shard", "2"}},
        {"four replicas", 1, {MUON}},
        {"zero 2", 1, {MUON, STRIPES, "--zero", "2"}},
        {"2 stages, tp 2", 1, {MUON, "--pp", "2", "--tp", "2"}},
    };
    tp_goes_on(shapes, &all[0], all + 1, sizeof all / sizeof *all - 1);
}

int main(void) {
    if (!tp_begin(shapes, N_SHAPES, 4)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_rank),
        cmocka_unit_test(bits_differ_from_adamw),
        cmocka_unit_test(bytes_follow_the_formula),
        cmocka_unit_test(checkpoints_resume_in_other_layouts),
    };
    return tp_end(cmocka_run_group_tests(tests, NULL, NULL));
}
