// ctest: ranks=3
/* The setting train.reproducible gives the losses, norms and final weights of every layout the bits of one rank. Each
 * row of the table names the numbers of ranks that it runs on; test_reproducible2.c, test_reproducible4.c and
 * test_reproducible6.c compile the same table for other numbers. Three ranks have no tensor parallelism. */
#include "engine/base/testing/testing.h"
#include "tests/mpi/layouts.h"

#ifndef RANKS
#define RANKS 3
#define TP "1"
#define REST_TP "1"
#define SHARES "9,1,6"
#endif
/* Properties of Gemma 2 and 3. */
#define GEMMA \
    "--set", "model.act=gelu", "--set", "model.post_norm=true", "--set", "model.embed_scale=true", \
        "--set", "model.window=9", "--set", "model.window_every=2", "--set", \
        "model.rope_local_theta=500", "--set", "model.attention_cap=3", "--set", \
        "model.rotary_dim=4",
#if RANKS == 2 || RANKS == 4 /* The model divides into eight parts. */
#define MODEL
#define MANY_HEADS "--set", "model.heads=8", "--set", "model.kv_heads=4"
#define FEW_KV "--set", "model.heads=8", "--set", "model.kv_heads=2"
#define ODD_CUTS "--set", "model.vocab=61", "--set", "model.d_ff=104", "--set", "model.head_dim=6"
#else /* six parts: with tp 6 each rank has one and three share a kv head, with tp 3 each rank has two */
#define MODEL \
    "--set", "train.parts=6", "--set", "model.heads=6", "--set", "model.kv_heads=3", "--set", \
        "model.head_dim=8", "--set", "model.d_ff=96",
#define MANY_HEADS "--set", "model.kv_heads=6"
#define FEW_KV "--set", "model.kv_heads=2"
#define ODD_CUTS "--set", "model.vocab=61", "--set", "model.d_ff=102", "--set", "model.head_dim=6"
#endif

#define LONGROPE \
    "--set", "model.rotary_dim=4", "--set", "model.rope_scaling=longrope", "--set", \
        "model.rope_context=16", "--set", "model.rope_factor=4", "--set", "model.rope_short=1,1", \
        "--set", "model.rope_long=1.5,12"

#define NOISE \
    "--set", "train.token_noise=0.1", "--set", "train.mask_inputs=0.1", "--set", \
        "train.dropout=0.2", "--set", "optim.average=4"

enum { R2 = 1 << 2, R3 = 1 << 3, R4 = 1 << 4, R6 = 1 << 6 };

typedef struct shape {
    const char *name, *words[80];
} shape;

enum {
    TINY_MODEL,
    UNTIED,
    BITLINEAR,
    PRE_NORM,
    DENSE,
    BINARY,
    INT8_GRADIENTS,
    ODD,
    CHANGING,
    NANO,
    ROW_SCALES,
    GROUP_SCALES,
    UNITS_OF_TWO,
    UNITS_OF_ONE,
    N_SHAPES
};
static const shape shapes[N_SHAPES] = {
    [TINY_MODEL] = {"tiny, generic", {MODEL "--isa", "generic"}},
    [UNTIED] = {"untied, silu, bf16",
                {MODEL "--set", "model.tied=false", "--set", "model.act=silu", "--precision",
                 "bf16"}},
    [BITLINEAR] = {"norm in the linears, one kv head",
                   {MODEL "--set", "model.norm=bitlinear", "--set", "model.kv_heads=1"}},
    [PRE_NORM] = {"no norm before o and down, heads' norms",
                  {MODEL "--set", "model.norm=pre", "--set", "model.qk_norm=true", "--set",
                   "model.no_rope_every=2", "--set", "model.window=9", LONGROPE}},
    [DENSE] = {"dense, one kv head, heads' norms",
               {MODEL "--set", "model.linear=dense", "--set", "model.qk_norm=true", "--set",
                "model.kv_heads=1", "--set", "model.qkv_bias=true", "--set",
                "model.rope_scaling=yarn", "--set", "model.rope_factor=4", "--set",
                "model.rope_context=16"}},
    [BINARY] = {"binary, many kv heads", {MODEL "--set", "model.linear=bitnet1", MANY_HEADS}},
    [INT8_GRADIENTS] = {"int8 gradients, few kv heads, biases",
                        {MODEL "--grad", "int8", FEW_KV, "--set", "model.qkv_bias=true"}},
    [ODD] = {"vocabulary, width and tokens of odd cuts",
             {MODEL ODD_CUTS, "--precision", "bf16", "--seq-len", "37", "--batch-tokens", "592",
              "--set", "train.unit=1"}},
    [CHANGING] = {"a run that changes, int8 gradients",
                  {MODEL "--precision",
                   "bf16",
                   "--grad",
                   "int8",
                   "--set",
                   "train.attention=int8",
                   GEMMA "--set",
                   "model.logit_cap=4",
                   "--set",
                   "model.no_rope_every=2",
                   "--set",
                   "model.init_out=plain",
                   "--set",
                   "optim.embed_lr=2",
                   "--set",
                   "train.seq_ramp=0.4",
                   "--set",
                   "train.dense_steps=6",
                   "--set",
                   "train.unit=2",
                   NOISE}},
    /* the settings of the preset nano, for data with learnable tokens */
    [NANO] = {"nano's recipe",
              {MODEL "--precision", "bf16", "--grad", "int8", "--set", "model.init_out=zero",
               "--set", "model.init_embed=0.02", "--set", "optim.embed_lr=6", "--set",
               "optim.beta1=0.8", "--set", "train.seq_ramp=0.4,0.7", "--set",
               "train.share_steps=4"}},
    [ROW_SCALES] = {"a scale for each row, int8 gradients, few kv heads, a run that changes",
                    {MODEL "--grad", "int8", "--precision", "bf16", FEW_KV, "--set",
                     "model.scale=row", "--set", "train.dense_steps=6"}},
    [GROUP_SCALES] = {"a scale for each group of inputs, int8 gradients, a run that changes",
                      {MODEL "--grad", "int8", "--precision", "bf16", "--set", "model.d_model=64",
                       "--set", "model.head_dim=32", "--set", "model.d_ff=96", "--set",
                       "model.scale=group:32", "--set", "train.dense_steps=6"}},
    [UNITS_OF_TWO] = {"8 units, int8 attention",
                      {MODEL "--isa", "generic", "--set", "train.unit=2", "--set",
                       "train.attention=int8"}},
    [UNITS_OF_ONE] = {"16 units", {MODEL "--isa", "generic", "--set", "train.unit=1"}},
};

#define STRIPES "--set", "train.bucket_bytes=4096"
#define ALL_RANKS "--set", "mesh.sequence=false"

enum {
    UNITS_8 = 8, /* micro-batches of a step on all ranks */
    UNITS_16 = 16,
    MESSAGES = 32, /* tensor-parallel ranks use messages, as between hosts */
    HOSTS = 64,    /* the first two ranks share a simulated host, the other ranks another */
    SLOW = 128     /* rank 1 sleeps, so that measured shares give it less */
};

typedef struct layout {
    int ranks;
    const char *name;
    int shape, flags;
    const char *words[12];
} layout;

static const layout layouts[] = {
    {R2 | R6, "tp, over messages", TINY_MODEL, MESSAGES, {"--tp", TP}},
    {R2 | R4, "tp, residual on all ranks", TINY_MODEL, 0, {"--tp", TP, ALL_RANKS}},
    {R2,
     "tp, selective recompute, 2 threads",
     TINY_MODEL,
     0,
     {"--tp", TP, "--recompute", "selective", "--threads", "2"}},
    {R2,
     "tp, full recompute",
     TINY_MODEL,
     0,
     {"--tp", TP, "--recompute", "full", "--micro-batch", "1"}},
    {R2, "tp", UNTIED, 0, {"--tp", TP}},
    {R2, "tp, 2 threads", UNTIED, 0, {"--tp", TP, "--threads", "2", ALL_RANKS}},
    {R2 | R4 | R6, "tp", BITLINEAR, 0, {"--tp", TP}},
    {R2, "tp, residual on all ranks", BITLINEAR, 0, {"--tp", TP, ALL_RANKS}},
    {R2, "tp", PRE_NORM, 0, {"--tp", TP}},
    {R2 | R6, "tp", DENSE, 0, {"--tp", TP}},
    {R2, "tp, residual on all ranks", DENSE, 0, {"--tp", TP, ALL_RANKS}},
    {R2, "tp", BINARY, 0, {"--tp", TP}},
    {R2 | R4 | R6, "tp", INT8_GRADIENTS, 0, {"--tp", TP}},
    {R2 | R4, "tp", ODD, 0, {"--tp", TP}},
    {R2 | R6, "tp, residual on all ranks", ODD, 0, {"--tp", TP, ALL_RANKS}},
    {R2, "tp", CHANGING, 0, {"--tp", TP}},
    {R2, "tp", NANO, 0, {"--tp", TP}},

    {R2 | R4 | R6, "tp", ROW_SCALES, 0, {"--tp", TP}},
    {R2, "zero 3", ROW_SCALES, 0, {"--zero", "3", STRIPES}},
    {R3, "zero 2", ROW_SCALES, 0, {"--zero", "2", STRIPES}},
    {R4, "zero 3, tp 2", ROW_SCALES, 0, {"--tp", "2", "--zero", "3", "--dp-shard", "2"}},

    {R2, "zero 3", GROUP_SCALES, 0, {"--zero", "3", STRIPES}},
    {R3, "zero 2", GROUP_SCALES, 0, {"--zero", "2", STRIPES}},
    {R4, "replicas", GROUP_SCALES, 0, {NULL}},

    {R4, "dp 2, tp 2", TINY_MODEL, 0, {"--tp", "2"}},
    {R4, "dp 2, tp 2", INT8_GRADIENTS, 0, {"--tp", "2"}},
    {R4, "zero 3, tp 2", TINY_MODEL, 0, {"--tp", "2", "--zero", "3", "--dp-shard", "2", STRIPES}},
    {R4, "zero 2, tp 2", PRE_NORM, 0, {"--tp", "2", "--zero", "2", "--dp-shard", "2", STRIPES}},
    {R6, "dp 2, tp 3", TINY_MODEL, 0, {"--tp", "3"}},
    {R6, "dp 2, tp 3", DENSE, 0, {"--tp", "3"}},
    {R6, "zero 3, tp 3", ODD, 0, {"--tp", "3", "--zero", "3", "--dp-shard", "2", STRIPES}},

    {R2, "replicas", DENSE, 0, {NULL}},
    {R2, "replicas", INT8_GRADIENTS, 0, {NULL}},
    {R2, "replicas", NANO, 0, {NULL}},
    {R2, "zero 3", BITLINEAR, 0, {"--zero", "3"}},
    {R2, "zero 3, full recompute", CHANGING, 0, {"--zero", "3", "--recompute", "full"}},
    {R2, "zero 3", NANO, 0, {"--zero", "3"}},
    {R4, "zero 1", BINARY, 0, {"--zero", "1"}},
    {R3 | R4, "replicas", TINY_MODEL, 0, {NULL}},
    {R3,
     "replicas, micro-batches of 2, 2 threads",
     TINY_MODEL,
     0,
     {"--micro-batch", "2", "--threads", "2"}},
    {R3, "replicas, no overlap", TINY_MODEL, 0, {"--set", "train.overlap=false"}},
    {R4, "replicas, small buckets", TINY_MODEL, 0, {STRIPES}},
    {R3, "zero 1", TINY_MODEL, 0, {STRIPES, "--zero", "1"}},
    {R3 | R4, "zero 2", TINY_MODEL, 0, {STRIPES, "--zero", "2"}},
    {R3, "zero 3", TINY_MODEL, 0, {STRIPES, "--zero", "3"}},
    {R3, "zero 3, one stripe", TINY_MODEL, 0, {"--zero", "3"}},
    {R4,
     "zero 3, 2 replicas of 2 shards",
     TINY_MODEL,
     0,
     {STRIPES, "--zero", "3", "--dp-replicate", "2", "--dp-shard", "2"}},
    {R3, "replicas", UNITS_OF_TWO, UNITS_8, {NULL}},
    {R3 | R4, "zero 3", UNITS_OF_TWO, UNITS_8, {"--zero", "3"}},
    {R3, "zero 3", UNITS_OF_ONE, UNITS_16, {"--zero", "3"}},
    {R2 | R3 | R4, "given shares", UNITS_OF_ONE, UNITS_16, {"--balance", SHARES}},
    {R3, "zero 3, given shares", UNITS_OF_ONE, 0, {"--balance", SHARES, "--zero", "3", STRIPES}},
    {R3, "measured shares", UNITS_OF_ONE, UNITS_16 | SLOW, {"--balance", "auto"}},
    {R4,
     "zero 2, measured shares",
     UNITS_OF_ONE,
     SLOW,
     {"--balance", "auto", "--zero", "2", STRIPES}},
    {R3 | R4, "two hosts", UNITS_OF_ONE, HOSTS, {NULL}},
    {R4, "two hosts, given shares", UNITS_OF_ONE, HOSTS, {"--balance", SHARES}},
    {R3, "two hosts, zero 3", UNITS_OF_ONE, HOSTS, {STRIPES, "--zero", "3"}},
    {R4,
     "two hosts, zero 2, 2 replicas of 2 shards",
     UNITS_OF_ONE,
     HOSTS,
     {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"}},
};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

/* These layouts add in another order and differ in the first steps, which shows that the comparison can
 * fail. */
static const layout not_reproducible[] = {
    {R2, "tp", TINY_MODEL, 0, {"--tp", TP, "--set", "train.reproducible=false"}},
    {R4, "replicas", UNITS_OF_ONE, 0, {"--set", "train.reproducible=false", "--micro-batch", "1"}},
};

static fake_sink lonely[N_SHAPES];
static float *lonely_weights[N_SHAPES], *weights;

static bool runs_on_these_ranks(const layout *l) { return l->ranks & 1 << RANKS; }

/* A high rate without warm-up: different bits separate the losses within a few steps. */
static const char *const *words_of(int s, const char *const *more) {
    static const char *words[128];
    static const char *const base[] = {"--set", "train.reproducible=true",
                                       "--lr",  "5e-3",
                                       "--set", "train.unit=4",
                                       "--isa", "auto"};
    size_t n = sizeof base / sizeof *base;
    memcpy(words, base, sizeof base);
    for (const char *const *p = shapes[s].words; *p; p++) words[n++] = *p;
    while (more && *more) words[n++] = *more++;
    words[n] = NULL;
    return words;
}

static void run_layout_row(fake_sink *f, int s, const char *const *more, float **w) {
    layout_run(f, words_of(s, more), w);
}

static bt_params params_of(int s, const char *const *more, bt_model_slice *part) {
    bt_run_cfg cfg;
    bt_model_cfg m;
    bt_params p;
    tiny_cfg(&cfg, words_of(s, more));
    bt_run_cfg_model(&cfg, &m);
    *part = cfg.mesh.tp > 1
                ? (bt_model_slice){.tp_rank = bt_comm_rank(bt_comm_world()) % (int)cfg.mesh.tp,
                                   .tp_size = (int)cfg.mesh.tp}
                : (bt_model_slice){.tp_size = 1};
    if (cfg.mesh.zero == 3) part->tp_size = 0; /* The owners hold the latent weights. */
    assert_int_equal(bt_params_init(&p, &m,
                                    cfg.mesh.tp > 1 ? *part : (bt_model_slice){.tp_size = 1}, NULL),
                     BT_OK);
    return p;
}

/* Compares this rank's blocks with the tensors of one rank. Returns the number of elements that differ, and the first
 * tensor with a difference. */
static size_t count_other_weights(int s, const char *const *more, const char **first) {
    bt_model_slice part, none;
    /* the number of units that the ranks need */
    static const char *const units[] = {"--set", "train.unit=1", NULL};
    bt_params p = params_of(s, more, &part), whole = params_of(s, units, &none);
    size_t differ = 0;
    static char name[64];
    for (size_t i = 0; part.tp_size > 0 && i < p.n; i++) {
        const bt_tensor *t = &p.tensors[i], *w = bt_params_named(&whole, t->name);
        size_t count = 0;
        for (size_t k = 0; k < t->count; k++)
            count += weights[t->offset + k] != lonely_weights[s][w->offset + bt_tensor_place(t, k)];
        if (count && !differ) snprintf(name, sizeof name, "%s", t->name);
        if (count && getenv("BT_SHOW_TENSORS"))
            fprintf(stderr, "  %s: %zu of %zu\n", t->name, count, t->count);
        differ += count;
    }
    *first = name;
    bt_params_release(&p);
    bt_params_release(&whole);
    return differ;
}

static bool same_value(const double *a, const double *b, bt_step_metric m) {
    return a[m] == b[m] || (isnan(a[m]) && isnan(b[m]));
}

static void run_layout(const layout *l) {
    bt_testing_tp_messages = l->flags & MESSAGES;
    if (l->flags & HOSTS) assert_int_equal(setenv("BITRAIN_TEST_HOSTS", "2", 1), 0);
    if (l->flags & SLOW) assert_int_equal(setenv("BITRAIN_TEST_SLOW", "1:8", 1), 0);
    run_layout_row(&together, l->shape, l->words, &weights);
    assert_int_equal(unsetenv("BITRAIN_TEST_HOSTS"), 0);
    assert_int_equal(unsetenv("BITRAIN_TEST_SLOW"), 0);
    bt_testing_tp_messages = false;
}

/* Checks that each unit is computed once and that a rank that sleeps has fewer units at the end. */
static void units_are_shared(const layout *l) {
    const fake_step *first = &together.steps[0], *last = &together.steps[LAYOUT_STEPS - 1];
    double sum = 0;
    for (int r = 0; r < RANKS; r++) sum += first->r[r][BT_MR_MICRO_BATCHES];
    const int units = l->flags & (UNITS_8 | UNITS_16);
    if (units && sum != units) fail_msg("%.0f micro-batches of %d", sum, units);
    if (!(l->flags & SLOW)) return;
    assert_true(fake_events_of(&together, "balance") >= 1);
    assert_true(last->r[1][BT_MR_MICRO_BATCHES] < 16.0 / RANKS);
}

static void same_bits(const layout *l) {
    static const bt_step_metric exact[] = {BT_MS_LOSS, BT_MS_GRAD_NORM, BT_MS_LR, BT_MS_TOKENS,
                                           BT_MS_VAL_LOSS};
    print_message("%s: %s\n", shapes[l->shape].name, l->name);
    run_layout(l);
    assert_int_equal(together.n_steps, LAYOUT_STEPS);
    layout_same_bins(&lonely[l->shape], &together);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const double *a = lonely[l->shape].steps[i].v, *b = together.steps[i].v;
        for (size_t k = 0; k < sizeof exact / sizeof *exact; k++) {
            if (!same_value(a, b, exact[k]))
                fail_msg("step %zu: %s is %.17g alone, %.17g together", i,
                         bt_step_metrics[exact[k]].key, a[exact[k]], b[exact[k]]);
        }
    }
    const char *first = "";
    size_t differ = count_other_weights(l->shape, l->words, &first);
    if (differ) fail_msg("%zu weights differ from one rank's, the first in %s", differ, first);
    layout_conserves();
    units_are_shared(l);
}

static void the_bits_of_one_rank(void **state) {
    (void)state;
    for (size_t i = 0; i < N_LAYOUTS; i++)
        if (runs_on_these_ranks(&layouts[i])) same_bits(&layouts[i]);
}

static void without_it_the_bits_differ(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof not_reproducible / sizeof *not_reproducible; k++) {
        const layout *l = &not_reproducible[k];
        bool differs = false;
        if (!runs_on_these_ranks(l)) continue;
        run_layout(l);
        for (size_t i = 0; i < LAYOUT_STEPS; i++)
            differs |= !same_value(lonely[l->shape].steps[i].v, together.steps[i].v,
                                   BT_MS_GRAD_NORM);
        assert_true(differs);
    }
}

#if RANKS != 3
/* A checkpoint of tensor-parallel ranks is resumed by another layout. */
static void resumed_by_another_layout(void **state) {
    (void)state;
    enum { CUT = 5 };
    static fake_sink second;
    char dir[64];
    layout_folder(dir);
    const char *const first[] = {"--tp", TP, "--out", dir, "--stop-after", "5", NULL};
    static const char *const rest[] = {"--tp", REST_TP, "--zero", "1", NULL};
    run_layout_row(&together, BITLINEAR, first, NULL);
    const char *all[64] = {LAYOUT_BASE};
    size_t n = 0;
    while (all[n]) n++;
    for (const char *const *p = words_of(BITLINEAR, rest); *p; p++) all[n++] = *p;
    layout_part(&second, all, dir);
    assert_int_equal(second.n_steps, LAYOUT_STEPS - CUT);
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        const double *a = lonely[BITLINEAR].steps[i].v,
                     *b = i < CUT ? together.steps[i].v : second.steps[i - CUT].v;
        if (a[BT_MS_LOSS] != b[BT_MS_LOSS] || a[BT_MS_GRAD_NORM] != b[BT_MS_GRAD_NORM])
            fail_msg("step %zu: loss %.17g in one go, %.17g", i, a[BT_MS_LOSS], b[BT_MS_LOSS]);
    }
    layout_remove(dir);
}
#endif

#if RANKS == 2
/* int8 gradients without reproducible training: each rank rounds its parts with different noise. */
static void int8_gradients_without(void **state) {
    (void)state;
    static const char *const words[] = {"--tp", TP,     "--set", "train.reproducible=false",
                                        "--lr", "3e-4", NULL};
    static fake_sink parts;
    run_layout_row(&parts, INT8_GRADIENTS, words, NULL);
    static const char *const floats[] = {
        "--tp", TP, "--set", "train.reproducible=false", "--lr", "3e-4", "--grad", "float", NULL};
    run_layout_row(&together, INT8_GRADIENTS, floats, NULL);
    bool differs = false;
    for (size_t i = 0; i < LAYOUT_STEPS; i++) {
        layout_near(together.steps[i].v[BT_MS_LOSS], parts.steps[i].v[BT_MS_LOSS], 1e-2, "loss", i);
        differs |= together.steps[i].v[BT_MS_GRAD_NORM] != parts.steps[i].v[BT_MS_GRAD_NORM];
    }
    assert_true(differs);
}
#endif

int main(void) {
    /* the single-rank run of each model that the rows for this number of ranks use */
    for (int s = 0; s < N_SHAPES; s++) {
        bool used = false;
        for (size_t i = 0; i < N_LAYOUTS; i++)
            used |= runs_on_these_ranks(&layouts[i]) && layouts[i].shape == s;
        if (used) run_layout_row(&lonely[s], s, NULL, &lonely_weights[s]);
    }
    if (!layout_begin(RANKS)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_one_rank),
        cmocka_unit_test(without_it_the_bits_differ),
#if RANKS != 3
        cmocka_unit_test(resumed_by_another_layout),
#endif
#if RANKS == 2
        cmocka_unit_test(int8_gradients_without),
#endif
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
