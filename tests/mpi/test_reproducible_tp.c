/* mpi: 2
 * train.reproducible over tensor-parallel ranks: every kind of model, sequence parallel or not, any
 * recompute, ZeRO and cut of the batch: losses, norms and final weights have the bits of one
 * rank. */
#include "engine/base/testing/testing.h"
#include "tests/mpi/layouts.h"

#ifndef RANKS
#define RANKS 2
#define TP "2"
#define REST_TP "1"
#endif
#if RANKS % 3 /* eight parts; or six, of which three ranks have two each */
#define MODEL
#define MANY_HEADS "--set", "model.heads=8", "--set", "model.kv_heads=4"
#define FEW_KV "--set", "model.heads=8", "--set", "model.kv_heads=2"
#define ODD_CUTS "--set", "model.vocab=61", "--set", "model.d_ff=104", "--set", "model.head_dim=6"
#else
#define MODEL \
    "--set", "train.parts=6", "--set", "model.heads=6", "--set", "model.kv_heads=3", "--set", \
        "model.head_dim=8", "--set", "model.d_ff=96",
#define MANY_HEADS "--set", "model.kv_heads=6"
#define FEW_KV "--set", "model.kv_heads=" FEW
#define ODD_CUTS "--set", "model.vocab=61", "--set", "model.d_ff=102", "--set", "model.head_dim=6"
#endif
#ifndef FEW
#define FEW "1"
#endif

/* no warm-up, a high rate: other bits part the losses within few steps */
enum { STEPS = 12 };

typedef struct shape {
    const char *name, *words[40];
} shape;
typedef struct layout {
    const char *name;
    int shape;
    const char *words[12];
} layout;

static const shape shapes[] = {
    {"tiny, generic", {MODEL "--isa", "generic"}},
    {"untied, silu, bf16",
     {MODEL "--set", "model.tied=false", "--set", "model.act=silu", "--precision", "bf16"}},
    {"norm in the linears, one kv head",
     {MODEL "--set", "model.norm=bitlinear", "--set", "model.kv_heads=1"}},
    {"no norm before o and down, heads' norms",
     {MODEL "--set", "model.norm=pre", "--set", "model.qk_norm=true"}},
    {"dense, one kv head, heads' norms",
     {MODEL "--set", "model.linear=dense", "--set", "model.qk_norm=true", "--set",
      "model.kv_heads=1"}},
    {"binary, many kv heads", {MODEL "--set", "model.linear=bitnet1", MANY_HEADS}},
    {"int8 gradients, few kv heads", {MODEL "--grad", "int8", FEW_KV}},
    {"vocabulary, width and tokens of odd cuts",
     {MODEL ODD_CUTS, "--precision", "bf16", "--seq-len", "37", "--batch-tokens", "592", "--set",
      "train.unit=1"}},
    {"a run that changes, int8 gradients",
     {MODEL "--precision", "bf16", "--grad", "int8", "--set", "train.attention=int8", "--set",
      "model.logit_cap=4", "--set", "model.init_out=plain", "--set", "optim.embed_lr=2", "--set",
      "train.seq_ramp=0.4", "--set", "train.dense_steps=6", "--set",
      "train.unit=2"}}, /* units for three replicas in the ramp's smallest step, too */
    /* what the preset nano is where tokens are learned */
    {"nano's recipe, and a bigram model first",
     {MODEL "--precision", "bf16", "--grad", "int8", "--set", "model.init_out=zero", "--set",
      "optim.embed_lr=6", "--set", "optim.beta1=0.8", "--set", "train.seq_ramp=0.4,0.7", "--set",
      "train.bigram_steps=3", "--set", "train.share_steps=4"}},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static const layout layouts[] = {
    {"tp", 0, {"--tp", TP}},
#if RANKS == 6
    {"tp", 2, {"--tp", TP}},
    {"tp", 4, {"--tp", TP}},
    {"tp", 6, {"--tp", TP}},
    {"tp, residual on all ranks", 7, {"--tp", TP, "--set", "mesh.sequence=false"}},
    {"dp 2, tp 3", 0, {"--tp", "3"}},
    {"zero 3, tp 3",
     7,
     {"--tp", "3", "--zero", "3", "--dp-shard", "2", "--set", "train.bucket_bytes=4096"}},
#else
    {"tp, residual on all ranks", 0, {"--tp", TP, "--set", "mesh.sequence=false"}},
    {"tp, selective recompute, 2 threads",
     0,
     {"--tp", TP, "--recompute", "selective", "--threads", "2"}},
    {"tp, full recompute", 0, {"--tp", TP, "--recompute", "full", "--micro-batch", "1"}},
    {"tp", 1, {"--tp", TP}},
    {"tp, 2 threads", 1, {"--tp", TP, "--threads", "2", "--set", "mesh.sequence=false"}},
    {"tp", 2, {"--tp", TP}},
    {"tp, residual on all ranks", 2, {"--tp", TP, "--set", "mesh.sequence=false"}},
    {"tp", 3, {"--tp", TP}},
    {"tp", 4, {"--tp", TP}},
    {"tp, residual on all ranks", 4, {"--tp", TP, "--set", "mesh.sequence=false"}},
    {"tp", 5, {"--tp", TP}},
    {"tp", 6, {"--tp", TP}},
    {"tp", 7, {"--tp", TP}},
    {"tp, residual on all ranks", 7, {"--tp", TP, "--set", "mesh.sequence=false"}},
#if RANKS == 4
    {"dp 2, tp 2", 0, {"--tp", "2"}},
    {"zero 3, tp 2",
     0,
     {"--tp", "2", "--zero", "3", "--dp-shard", "2", "--set", "train.bucket_bytes=4096"}},
    {"zero 2, tp 2",
     3,
     {"--tp", "2", "--zero", "2", "--dp-shard", "2", "--set", "train.bucket_bytes=4096"}},
    {"dp 2, tp 2", 6, {"--tp", "2"}},
    {"zero 1", 5, {"--zero", "1"}},
#else
    {"replicas", 0, {NULL}},
    {"replicas", 4, {NULL}},
    {"replicas", 6, {NULL}},
    {"zero 3", 2, {"--zero", "3"}},
    {"tp", 8, {"--tp", TP}},
    {"zero 3", 8, {"--zero", "3", "--recompute", "full"}},
    {"replicas", 9, {NULL}},
    {"tp", 9, {"--tp", TP}},
    {"zero 3", 9, {"--zero", "3"}},
#endif
#endif
};

static fake_sink lonely[N_SHAPES];
static float *lonely_weights[N_SHAPES], *weights;

static const char *const *words_of(int s, const char *const *more) {
    static const char *words[64];
    /* a shape may say otherwise */
    static const char *const base[] = {"--set",   "train.reproducible=true",
                                       "--lr",    "5e-3",
                                       "--set",   "train.unit=4",
                                       "--steps", "12",
                                       "--isa",   "auto"};
    size_t n = sizeof base / sizeof *base;
    memcpy(words, base, sizeof base);
    for (const char *const *p = shapes[s].words; *p; p++) words[n++] = *p;
    while (more && *more) words[n++] = *more++;
    words[n] = NULL;
    return words;
}

static void run(fake_sink *f, int s, const char *const *more, float **w) {
    layout_run(f, words_of(s, more), w);
}

static bt_params params_of(int s, const char *const *more, bt_model_slice *part) {
    bt_run_cfg cfg;
    bt_model_cfg m;
    bt_params p;
    tiny_cfg(&cfg, words_of(s, more));
    bt_run_cfg_model(&cfg, &m);
    *part = cfg.tp > 1 ? (bt_model_slice){.tp_rank = bt_comm_rank(bt_comm_world()) % (int)cfg.tp,
                                          .tp_size = (int)cfg.tp}
                       : (bt_model_slice){.tp_size = 1};
    if (cfg.zero == 3) part->tp_size = 0; /* latent weights lie elsewhere */
    assert_int_equal(
        bt_params_init(&p, &m, cfg.tp > 1 ? *part : (bt_model_slice){.tp_size = 1}, NULL), BT_OK);
    return p;
}

/* this rank's blocks against the one rank's tensors; returns how many elements differ, and the
 * first such tensor */
static size_t other_weights(int s, const char *const *more, const char **first) {
    bt_model_slice part, none;
    /* enough of them for this many ranks */
    static const char *const units[] = {"--set", "train.unit=1", NULL};
    bt_params p = params_of(s, more, &part), whole = params_of(s, units, &none);
    size_t differ = 0;
    static char name[64];
    for (size_t i = 0; part.tp_size > 0 && i < p.n; i++) {
        const bt_tensor *t = &p.tensors[i], *w = bt_params_named(&whole, t->name);
        size_t here = 0;
        for (size_t k = 0; k < t->count; k++)
            here += weights[t->offset + k] != lonely_weights[s][w->offset + bt_tensor_place(t, k)];
        if (here && !differ) snprintf(name, sizeof name, "%s", t->name);
        if (here && getenv("BT_SHOW_TENSORS"))
            fprintf(stderr, "  %s: %zu of %zu\n", t->name, here, t->count);
        differ += here;
    }
    *first = name;
    bt_params_release(&p);
    bt_params_release(&whole);
    return differ;
}

static void same_bits(const layout *l) {
    static const bt_step_metric exact[] = {BT_MS_LOSS, BT_MS_GRAD_NORM, BT_MS_LR, BT_MS_TOKENS};
    print_message("%s: %s\n", shapes[l->shape].name, l->name);
    run(&together, l->shape, l->words, &weights);
    assert_int_equal(together.n_steps, STEPS);
    layout_same_bins(&lonely[l->shape], &together);
    for (size_t i = 0; i < STEPS; i++) {
        const double *a = lonely[l->shape].steps[i].v, *b = together.steps[i].v;
        for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
            if (a[exact[k]] != b[exact[k]])
                fail_msg("step %zu: %s is %.17g alone, %.17g together", i,
                         bt_step_metrics[exact[k]].key, a[exact[k]], b[exact[k]]);
        }
        assert_true((isnan(a[BT_MS_VAL_LOSS]) && isnan(b[BT_MS_VAL_LOSS])) ||
                    a[BT_MS_VAL_LOSS] == b[BT_MS_VAL_LOSS]);
    }
    const char *first = "";
    size_t differ = other_weights(l->shape, l->words, &first);
    if (differ) fail_msg("%zu weights differ from one rank's, the first in %s", differ, first);
}

static void the_bits_of_one_rank(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) same_bits(&layouts[i]);
}

/* as if the ranks were on several hosts */
static void over_messages_too(void **state) {
    (void)state;
    bt_testing_tp_messages = true;
    same_bits(&layouts[0]);
    bt_testing_tp_messages = false;
}

/* a checkpoint of tensor-parallel ranks, taken up by another layout */
static void resumed_by_another_layout(void **state) {
    (void)state;
    enum { CUT = 5 };
    static fake_sink second;
    char dir[64];
    bt_err err = BT_ERR_INIT;
    layout_folder(dir);
    const char *const first[] = {"--tp", TP, "--out", dir, "--stop-after", "5", NULL};
    static const char *const rest[] = {"--tp", REST_TP, "--zero", "1", NULL};
    run(&together, 2, first, NULL);
    const char *all[64] = {LAYOUT_BASE};
    size_t n = 0;
    while (all[n]) n++;
    for (const char *const *p = words_of(2, rest); *p; p++) all[n++] = *p;
    bt_run_cfg cfg;
    tiny_cfg(&cfg, all);
    tiny_run(&cfg, &second, NULL, dir);
    assert_int_equal(bt_broadcast(bt_comm_world(), &second, offsetof(fake_sink, last_checkpoint), 0,
                                  &err),
                     BT_OK);
    assert_int_equal(second.n_steps, STEPS - CUT);
    for (size_t i = 0; i < STEPS; i++) {
        const double *a = lonely[2].steps[i].v,
                     *b = i < CUT ? together.steps[i].v : second.steps[i - CUT].v;
        if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
            fail_msg("step %zu: loss %.17g in one go, %.17g", i, a[BT_MS_LOSS], b[BT_MS_LOSS]);
    }
    layout_remove(dir);
}

/* int8 gradients need no reproducible training: a rank rounds its parts by noise of their own */
static void int8_gradients_without(void **state) {
    (void)state;
    static const char *const words[] = {"--tp", TP,     "--set", "train.reproducible=false",
                                        "--lr", "3e-4", NULL};
    static fake_sink parts;
    run(&parts, 6, words, NULL);
    static const char *const floats[] = {
        "--tp", TP, "--set", "train.reproducible=false", "--lr", "3e-4", "--grad", "float", NULL};
    run(&together, 6, floats, NULL);
    bool differs = false;
    for (size_t i = 0; i < STEPS; i++) {
        layout_near(together.steps[i].v[BT_MS_LOSS], parts.steps[i].v[BT_MS_LOSS], 1e-2, "loss", i);
        differs |= together.steps[i].v[BT_MS_GRAD_NORM] != parts.steps[i].v[BT_MS_GRAD_NORM];
    }
    assert_true(differs);
}

/* the tests above can fail: without parts the bits part at once */
static void without_parts_the_bits_differ(void **state) {
    (void)state;
    static const char *const words[] = {"--tp", TP, "--set", "train.reproducible=false", NULL};
    run(&together, 0, words, NULL);
    bool differs = false;
    for (size_t i = 0; i < STEPS; i++)
        differs |= together.steps[i].v[BT_MS_GRAD_NORM] != lonely[0].steps[i].v[BT_MS_GRAD_NORM];
    assert_true(differs);
}

int main(void) {
    for (int s = 0; s < N_SHAPES; s++) run(&lonely[s], s, NULL, &lonely_weights[s]);
    if (!layout_begin(RANKS)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_rank),          cmocka_unit_test(over_messages_too),
        cmocka_unit_test(resumed_by_another_layout),     cmocka_unit_test(int8_gradients_without),
        cmocka_unit_test(without_parts_the_bits_differ),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return 0;
}
