/* test_run_cfg.c - presets, checks between settings, automatic values, and the source of each value. */
#include "engine/config/ramp.h"
#include "engine/config/rank_setup.h"
#include "engine/config/run_property.h"
#include "engine/config/tune_cfg.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "tests/engine/config/settled.h"

static void assert_refusal_contains(bt_code code, const char *part) {
    assert_int_equal(code, BT_ARG);
    if (!strstr(err.msg, part)) fail_msg("'%s' does not contain '%s'", err.msg, part);
}

static void test_every_preset_resolves(void **state) {
    (void)state;
    for (size_t i = 0; i < bt_preset_count(); i++) {
        if (SETTLE(1, "--preset", bt_preset_at(i)->name) != BT_OK)
            fail_msg("%s: %s", bt_preset_at(i)->name, err.msg);
        bt_model_cfg m;
        bt_run_cfg_model(&c, &m);
        assert_memory_equal(&m.L, &bt_preset_at(i)->model.L, 8 * sizeof(int));
        assert_int_equal(m.norm, bt_preset_at(i)->model.norm);
        assert_true(m.rope_theta == bt_preset_at(i)->model.rope_theta);
        assert_int_equal(c.train.micro_batch * c.train.accum * c.model.seq_len,
                         c.train.batch_tokens);
        assert_true(c.train.steps > 0 && c.optim.lr > 0 && c.optim.warmup >= 0 &&
                    c.train.eval_every > 0 && c.launch.threads >= 1);
    }
}

static void test_defaults_are_nano(void **state) {
    (void)state;
    assert_int_equal(READ("--seed", "3"), BT_OK);
    const bt_preset *p = bt_preset_find("nano");
    assert_string_equal(origin_of_setting("model.layers"), "preset nano");
    assert_string_equal(origin_of_setting("run.seed"), "--seed");
    assert_int_equal(bt_run_cfg_resolve_opts(&o, &c, 2, &err), BT_OK);
    assert_int_equal(c.model.layers, p->model.L);
    assert_int_equal(c.train.steps, p->steps);
    assert_int_equal(c.launch.ranks, 2);
    assert_int_equal(c.mesh.dp_replicate, 2);
    assert_int_equal(c.train.micro_batch, 8); /* 2048 tokens of 256 */
    assert_int_equal(c.train.accum, 1);
    assert_string_equal(c.data.path, "builtin");
    assert_string_equal(origin_of_setting("train.micro_batch"), "auto");
    assert_string_equal(origin_of_setting("data.path"), "auto");
    assert_string_equal(origin_of_setting("model.layers"), "preset nano");
    bt_run_cfg once = c;
    assert_int_equal(bt_run_cfg_resolve(&c, 2, &err), BT_OK);
    assert_memory_equal(&once, &c, sizeof c); /* Resolving twice has the same result. */
}

static void test_settings_override_the_preset(void **state) {
    (void)state;
    assert_int_equal(SETTLE(1, "--preset", "small", "--set", "model.layers=2", "--lr", "0.5",
                            "--set", "optim.lr=0.1"),
                     BT_OK);
    assert_int_equal(c.model.layers, 2);
    assert_true(c.optim.lr == 0.5);
    assert_int_equal(c.model.d_model, 512);
    /* The number of kv heads follows the number of heads if they are equal in the preset. */
    assert_int_equal(SETTLE(1, "--set", "model.heads=3"), BT_OK);
    assert_int_equal(c.model.kv_heads, 3);
    assert_int_equal(c.model.head_dim, 64);
}

static void test_values_for_learned_tokens_need_long_text(void **state) {
    (void)state;
    assert_int_equal(READ("--preset", "nano"), BT_OK);
    assert_int_equal(bt_run_cfg_words(&o, &c, 1, false, &err), BT_OK);
    assert_int_equal(c.model.init_out, BT_INIT_OUT_ZERO);
    assert_true(c.optim.embed_lr == 1 && c.model.init_embed == 0 && c.optim.beta1 == 0.9);
    assert_int_equal(bt_run_cfg_words(&o, &c, 1, true, &err), BT_OK);
    assert_true(c.optim.embed_lr == 6 && c.model.init_embed == 0.02 && c.optim.beta1 == 0.8);
    assert_int_equal(READ("--preset", "nano", "--optimizer", "muon"), BT_OK);
    assert_int_equal(bt_run_cfg_words(&o, &c, 1, true, &err), BT_OK);
    assert_true(c.optim.embed_lr == 1 && c.model.init_embed == 0);
}

/* The default is PyTorch's constant rate. */
static void test_synthetic_data_use_a_constant_rate(void **state) {
    (void)state;
    assert_int_equal(SETTLE(1, "--data", "synth:chain"), BT_OK);
    assert_int_equal(c.optim.schedule, 0);
    assert_int_equal(c.optim.warmup, 0);
    assert_int_equal(SETTLE(1, "--data", "synth:chain", "--lr-schedule", "linear", "--warmup", "7"),
                     BT_OK);
    assert_int_equal(c.optim.schedule, 2);
    assert_int_equal(c.optim.warmup, 7);
    assert_int_equal(SETTLE(1, "--seed", "1"), BT_OK);
    assert_int_equal(c.optim.schedule, 1);
}

static void test_automatic_values(void **state) {
    (void)state;
    assert_int_equal(SETTLE(1, "--tokens", "100k"), BT_OK);
    assert_int_equal(c.train.steps, 25); /* 4096 tokens a step, rounded up */
    /* Warm-up is a third of a short run, a tenth of a longer one or of one with initial weights, and at most the
     * preset's. */
    assert_int_equal(c.optim.warmup, 8);
    assert_int_equal(c.train.eval_every, 25);
    assert_int_equal(SETTLE(1, "--tokens", "100k", "--init-from", "base"), BT_OK);
    assert_int_equal(c.optim.warmup, 2);
    assert_int_equal(SETTLE(1, "--preset", "small", "--steps", "300"), BT_OK);
    assert_int_equal(c.optim.warmup, 50);
    assert_int_equal(SETTLE(1, "--preset", "small", "--steps", "1000"), BT_OK);
    assert_int_equal(c.optim.warmup, 100);
    assert_int_equal(SETTLE(1, "--steps", "100000"), BT_OK);
    assert_int_equal(c.optim.warmup, bt_preset_find("nano")->warmup);
    assert_int_equal(c.train.eval_every, 10000);
    /* Another schedule has no second rate, so that equal runs have equal settings. */
    assert_true(c.optim.lr2 == 0);
    assert_int_equal(SETTLE(1, "--lr-schedule", "bitnet"), BT_OK);
    assert_true(c.optim.lr2 == c.optim.lr * 2 / 3);
    assert_int_equal(SETTLE(2, "--micro-batch", "3", "--accum", "5"), BT_OK);
    assert_int_equal(c.train.batch_tokens, 3 * 5 * 2 * 256);
    assert_int_equal(SETTLE(1, "--micro-batch", "4"), BT_OK);
    assert_int_equal(c.train.accum, 4);
    assert_int_equal(SETTLE(2, "--accum", "8"), BT_OK);
    assert_int_equal(c.train.micro_batch, 1);
    assert_int_equal(SETTLE(1, "--seq-len", "4096"), BT_OK);
    assert_int_equal(c.train.micro_batch, 1);
    assert_int_equal(SETTLE(1, "--seq-len", "100", "--batch-tokens", "700"), BT_OK);
    assert_int_equal(c.train.micro_batch, 7);
    int cores = bt_cpu_get()->cores;
    assert_int_equal(SETTLE(1, "--seed", "1"), BT_OK);
    assert_int_equal(c.launch.threads, cores);
    assert_int_equal(SETTLE(16, "--ranks", "16", "--threads", "3"), BT_OK);
    assert_int_equal(c.launch.threads, 3);
}

static bool close_to(double a, double b) { return a - b < 1e-12 && b - a < 1e-12; }

/* The rate of a smaller model is inversely proportional to width times layers, up to twice the preset's. */
static void test_rate_of_shape(void **state) {
    (void)state;
    const double own = bt_preset_find("nano")->lr;
    assert_int_equal(SETTLE(1, "--set", "model.d_model=192"), BT_OK);
    assert_true(c.optim.lr == own);
    assert_string_equal(origin_of_setting("optim.lr"), "preset nano");
    assert_int_equal(SETTLE(1, "--set", "model.d_model=120"), BT_OK);
    assert_true(close_to(c.optim.lr, own * 192 / 120));
    assert_string_equal(origin_of_setting("optim.lr"), "preset nano, for a smaller model");
    assert_int_equal(SETTLE(1, "--set", "model.layers=4"), BT_OK);
    assert_true(close_to(c.optim.lr, own * 1.5));
    assert_int_equal(SETTLE(1, "--set", "model.d_model=24"), BT_OK);
    assert_true(c.optim.lr == 2 * own);
    /* cases: wider; deeper; narrower and deeper; another number of steps */
    assert_int_equal(SETTLE(1, "--set", "model.d_model=384"), BT_OK);
    assert_true(c.optim.lr == own);
    assert_int_equal(SETTLE(1, "--set", "model.layers=12", "--batch-tokens", "8192"), BT_OK);
    assert_true(c.optim.lr == own);
    assert_int_equal(SETTLE(1, "--set", "model.layers=12", "--set", "model.d_model=96"), BT_OK);
    assert_true(c.optim.lr == own);
    /* cases: rate given; other optimizers; initial weights; comparison runs */
    assert_int_equal(SETTLE(1, "--set", "model.d_model=96", "--lr", "0.003"), BT_OK);
    assert_true(c.optim.lr == 0.003);
    assert_int_equal(SETTLE(1, "--set", "model.d_model=96", "--optimizer", "muon"), BT_OK);
    assert_true(c.optim.lr == own);
    assert_int_equal(SETTLE(1, "--set", "model.d_model=96", "--init-from", "base"), BT_OK);
    assert_true(c.optim.lr == own);
    assert_int_equal(SETTLE(1, "--set", "model.d_model=96", "--data", "synth:chain"), BT_OK);
    assert_true(c.optim.lr == own);
}

/* The automatic number of micro-batches is the number of stages or a multiple of it. */
static void test_micro_batches_of_virtual_stages(void **state) {
    (void)state;
    assert_int_equal(SETTLE(3, "--pp", "3", "--virtual-stages", "2", "--batch-tokens", "4608"),
                     BT_OK);
    assert_int_equal(c.train.accum % 3, 0);
    assert_int_equal(SETTLE(6, "--pp", "3", "--virtual-stages", "2", "--batch-tokens", "4608"),
                     BT_OK);
    assert_int_equal(c.train.accum % 3, 0);
}

static void test_ranks(void **state) {
    (void)state;
    assert_int_equal(READ("--seed", "1"), BT_OK);
    assert_int_equal(bt_run_cfg_ranks(&c, 1), 1);
    assert_int_equal(bt_run_cfg_ranks(&c, 2), 2);
    assert_int_equal(bt_run_cfg_ranks(&c, 64), 2);
    assert_int_equal(READ("--ranks", "5"), BT_OK);
    assert_int_equal(bt_run_cfg_ranks(&c, 2), 5);
    assert_int_equal(READ("--dp-replicate", "3"), BT_OK);
    assert_int_equal(bt_run_cfg_ranks(&c, 2), 3);
    assert_int_equal(READ("--tp", "2", "--pp", "2"), BT_OK);
    assert_int_equal(bt_run_cfg_ranks(&c, 64), 4);
    assert_int_equal(READ("--batch-tokens", "256"), BT_OK);
    assert_int_equal(bt_run_cfg_ranks(&c, 2), 1); /* one sequence cannot be divided */
    assert_int_equal(READ("--micro-batch", "3", "--accum", "1"), BT_OK);
    assert_int_equal(bt_run_cfg_ranks(&c, 2), 2);
}

static void test_contradictions_are_refused(void **state) {
    (void)state;
    assert_refusal_contains(SETTLE(1, "--preset", "naon"),
                            "unknown preset 'naon' (did you mean 'nano'? known: nano small base");
    assert_refusal_contains(SETTLE(3, "--ranks", "3"),
                            "3 data-parallel ranks do not divide the 16 sequences of a "
                            "step (train.batch_tokens 4096 / model.seq_len 256): "
                            "use 2 or 4 ranks, or --batch-tokens 3840 or 4608");
    assert_refusal_contains(SETTLE(32, "--ranks", "32"),
                            "more data-parallel ranks (32) than sequences in a step (16 "
                            "= train.batch_tokens 4096 / model.seq_len 256): "
                            "use at most 16 ranks, or --batch-tokens 8192");
    assert_refusal_contains(SETTLE(2, "--ranks", "4"),
                            "launch.ranks is 4 but the job was started with 2");
    assert_refusal_contains(SETTLE(1, "--seq-len", "300"),
                            "train.batch_tokens 4096 is not a multiple of "
                            "model.seq_len 300 (use --batch-tokens 3900 or 4200)");
    assert_refusal_contains(SETTLE(1, "--seq-len", "8192"), "(use --batch-tokens 8192)");
    assert_refusal_contains(
        SETTLE(1, "--micro-batch", "3"),
        "train.micro_batch 3 does not divide the 16 sequences of a rank's step (use 2 or 4)");
    assert_refusal_contains(SETTLE(1, "--micro-batch", "99"), "(use 16)");
    assert_refusal_contains(SETTLE(1, "--accum", "5"),
                            "train.accum 5 does not divide the 16 sequences");
    assert_refusal_contains(
        SETTLE(1, "--micro-batch", "4", "--accum", "2", "--batch-tokens", "4096"),
        "micro_batch 4 x accum 2 = 8 sequences, but a rank's step has 16 (use --accum 4, or "
        "--batch-tokens 2048)");
    assert_refusal_contains(SETTLE(1, "--virtual-stages", "2"),
                            "--virtual-stages 2 without a pipeline (use --pp 2 or more");
    assert_refusal_contains(SETTLE(2, "--pp", "2", "--virtual-stages", "4"),
                            "--virtual-stages 4: 2 pipeline stages times 4 chunks are more than "
                            "the 6 layers of the model (use "
                            "--virtual-stages 3)");
    assert_refusal_contains(
        SETTLE(2, "--pp", "2", "--virtual-stages", "2", "--micro-batch", "16"),
        "--virtual-stages 2: 1 micro-batch of a rank is no multiple of the 2 pipeline stages (use "
        "--micro-batch 8, or --batch-tokens 8192)");
    assert_refusal_contains(
        SETTLE(2, "--pp", "2", "--virtual-stages", "2", "--set", "train.reproducible=true", "--set",
               "train.unit=16"),
        "1 unit of a rank is no multiple of the 2 pipeline stages (use --batch-tokens 8192, or "
        "another train.unit");
    assert_refusal_contains(SETTLE(2, "--pp", "2", "--virtual-stages", "2", "--balance", "auto"),
                            "--virtual-stages 2 with parallel.balance=auto");
    assert_refusal_contains(SETTLE(1, "--batch-tokens", "0"),
                            "needs train.micro_batch and train.accum");
    assert_refusal_contains(SETTLE(1, "--micro-batch", "60000", "--accum", "60000"),
                            "above 1e9 tokens");
    assert_refusal_contains(SETTLE(1, "--set", "model.heads=5"),
                            "model.heads 5 does not divide model.d_model 192 (use 4 or 6 heads");
    assert_refusal_contains(SETTLE(1, "--set", "model.kv_heads=4"),
                            "model.kv_heads 4 does not divide model.heads 6 (use 3 or 6 kv_heads)");
    assert_refusal_contains(SETTLE(1, "--set", "model.head_dim=3"), "even");
    assert_refusal_contains(SETTLE(1, "--set", "model.vocab=100"),
                            "model.vocab 100 is too small for the byte tokenizer");
    assert_refusal_contains(
        SETTLE(1, "--steps", "5", "--tokens", "1M"),
        "train.tokens 1000000 at 4096 tokens a step is 245 steps, but train.steps is 5");
    assert_refusal_contains(SETTLE(1, "--name", "My Run"), "run name 'My Run' is not allowed");
    assert_refusal_contains(SETTLE(1, "--name", "last"), "'last' means the newest run");
    assert_refusal_contains(SETTLE(1, "--isa", "avx513"),
                            "unknown isa 'avx513': did you mean 'avx512'?");
    assert_refusal_contains(SETTLE(2, "--dp-replicate", "3"), "= 3 ranks, but the job has 2");
    assert_refusal_contains(SETTLE(2, "--dp-shard", "2"), "--dp-shard 2 needs --zero");
    assert_refusal_contains(SETTLE(1, "--precision", "fp16", "--set", "train.loss_scale=100"),
                            "train.loss_scale 100 is not a power of two (use 64 or 128)");
    assert_refusal_contains(SETTLE(1, "--set", "train.token_noise=0.5", "--set",
                                   "train.mask_inputs=0.5"),
                            "leave no token as it is (their sum must be below 1)");
    assert_refusal_contains(READ("--set", "train.token_noise=1"), "train.token_noise");
    assert_refusal_contains(SETTLE(1, "--set", "optim.average=50", "--set", "optim.weights=bf16"),
                            "optim.average with optim.weights=bf16 is not possible");
    assert_refusal_contains(READ("--precison", "fp32"),
                            "unknown option '--precison' (did you mean '--precision'?)");
}

static void test_layouts(void **state) {
    (void)state;
    /* All data-parallel ranks divide the state. */
    assert_int_equal(SETTLE(4, "--zero", "2"), BT_OK);
    assert_int_equal(c.mesh.dp_shard, 4);
    assert_int_equal(c.mesh.dp_replicate, 1);
    assert_int_equal(SETTLE(4, "--zero", "3", "--dp-shard", "2"), BT_OK);
    assert_int_equal(c.mesh.dp_replicate, 2);
    assert_int_equal(SETTLE(2, "--zero", "3", "--set", "model.linear=dense"), BT_OK);
    assert_int_equal(c.mesh.dp_shard, 2);
    assert_refusal_contains(SETTLE(1, "--grad", "int8", "--set", "model.linear=dense"),
                            "model.linear=dense has none (use --grad float)");
    assert_refusal_contains(
        SETTLE(2, "--set", "train.reproducible=true", "--set", "train.unit=16"),
        "1 unit of 16 sequences a step is too few for 2 data-parallel ranks (set train.unit=8");
    assert_refusal_contains(
        SETTLE(4, "--zero", "1", "--dp-replicate", "4"),
        "--zero 1 with --dp-replicate 4 leaves one shard, which shares nothing out (use "
        "--dp-shard 2, or leave --dp-replicate out)");
    assert_refusal_contains(
        SETTLE(1024, "--zero", "1", "--batch-tokens", "262144"),
        "--dp-shard 1024: more shards than blocks of 4096 parameters, of which the model has 662 "
        "(use --dp-shard 512)");
    assert_refusal_contains(
        SETTLE(2, "--tp", "2", "--seq-len", "1", "--batch-tokens", "8", "--micro-batch", "1"),
        "--tp 2: a micro-batch has 1 x 1 tokens, fewer than ranks to share them (use "
        "mesh.sequence=false, or --seq-len 2)");
    assert_int_equal(SETTLE(2, "--tp", "2", "--seq-len", "1", "--batch-tokens", "8",
                            "--micro-batch", "1", "--set", "mesh.sequence=false"),
                     BT_OK);

    /* The number of parts depends on the model and not on the ranks. */
    assert_int_equal(SETTLE(1, "--set", "train.reproducible=true", "--preset", "small"), BT_OK);
    assert_int_equal(c.train.parts, 8);
    assert_int_equal(
        SETTLE(2, "--tp", "2", "--set", "train.reproducible=true", "--preset", "small"), BT_OK);
    assert_int_equal(c.train.parts, 8);
    assert_int_equal(SETTLE(2, "--tp", "2", "--preset", "small"), BT_OK);
    assert_int_equal(c.train.parts, 0);
    assert_refusal_contains(
        SETTLE(3, "--tp", "3", "--set", "model.d_ff=510", "--set", "train.reproducible=true"),
        "train.reproducible: --tp 3 cannot share out the 2 parts of this model, 1, 2, 4, ... to a "
        "rank (use --tp 2, or train.parts=6 in all runs to be compared)");
    /* Six parts: each rank has 6, 2 or 1. */
    for (int tp = 1; tp <= 6; tp++) {
        char words[8];
        snprintf(words, sizeof words, "%d", tp);
        bt_code code = SETTLE(tp, "--tp", words, "--set", "model.d_ff=510", "--set",
                              "train.reproducible=true", "--set", "train.parts=6");
        if (tp == 1 || tp == 3 || tp == 6)
            assert_int_equal(code, BT_OK);
        else if (tp == 2)
            assert_refusal_contains(
                code, "--tp 2 cannot share out the 6 parts of this model, 1, 2, 4, ... to a rank "
                      "(use --tp 1 or 3, or train.parts=2 in all runs to be compared)");
        else
            assert_refusal_contains(code, "does not divide model.heads = 6");
    }
    assert_int_equal(SETTLE(1, "--set", "model.vocab=50257", "--data", "synth:chain", "--preset",
                            "small", "--set", "train.reproducible=true"),
                     BT_OK);
    /* The vocabulary need not be divisible. */
    assert_int_equal(c.train.parts, 8);
    assert_refusal_contains(SETTLE(4, "--tp", "4", "--preset", "small", "--set",
                                   "train.reproducible=true", "--set", "train.parts=2"),
                            "--tp 4 cannot share out the 2 parts of this model");
    assert_refusal_contains(
        SETTLE(1, "--preset", "small", "--set", "train.reproducible=true", "--set",
               "train.parts=3"),
        "train.parts 3: heads 8, kv heads 4 and d_ff 1408 do not make so many equal parts (use 2 "
        "or 4)");
    assert_refusal_contains(SETTLE(1, "--preset", "small", "--set", "train.reproducible=true",
                                   "--set", "train.parts=64"),
                            "do not make so many equal parts (use 8)");
    assert_refusal_contains(SETTLE(2, "--tp", "2", "--isa", "blas", "--preset", "small", "--set",
                                   "train.reproducible=true"),
                            "the rounding of OpenBLAS depends on the width of a rank's part");
    assert_refusal_contains(
        SETTLE(2, "--codec", "bf16", "--set", "train.reproducible=true"),
        "train.reproducible with --codec bf16: the codec rounds the sums that ranks send each "
        "other, and on another number of ranks those are other sums (use --codec int8, which is "
        "exact there, or none)");
    assert_int_equal(SETTLE(2, "--codec", "none", "--set", "train.reproducible=true"), BT_OK);
    assert_int_equal(SETTLE(2, "--codec", "bf16"), BT_OK);

    /* Units depend on the batch and neither on the ranks nor on --micro-batch. */
    for (int ranks = 1; ranks <= 4; ranks++) {
        assert_int_equal(SETTLE(ranks, "--set", "train.reproducible=true", "--micro-batch", "1"),
                         BT_OK);
        assert_int_equal(c.train.unit, 4);
        assert_int_equal(c.train.micro_batch, 4);
        assert_int_equal(c.train.accum, (4 + ranks - 1) / ranks);
        /* Resolving twice has the same result. */
        assert_int_equal(bt_run_cfg_resolve_opts(&o, &c, ranks, &err), BT_OK);
        assert_int_equal(c.train.micro_batch, 4);
    }
    assert_refusal_contains(
        SETTLE(5, "--set", "train.reproducible=true"),
        "4 units of 4 sequences a step are too few for 5 data-parallel ranks (set train.unit=2");
    assert_refusal_contains(SETTLE(1, "--set", "train.reproducible=true", "--set", "train.unit=3"),
                            "train.unit 3 does not divide the 16 sequences of a step (use 2 or 4)");
}

static void test_ramps(void **state) {
    (void)state;
    bt_ramp r;
    assert_int_equal(bt_ramp_read(&r, "train.seq_ramp", "0.1,0.3,0.31,0.9", 50, &err), BT_OK);
    for (int64_t s = 0; s < 50; s++) {
        int halved = 0;
        for (int i = 0; i < r.n; i++) halved += s < r.at[i];
        assert_int_equal(bt_ramp_halvings(&r, s), halved);
    }
    assert_int_equal(bt_ramp_read(&r, "train.seq_ramp", "", 50, &err), BT_OK);
    assert_int_equal(bt_ramp_halvings(&r, 0), 0);
    assert_int_equal(SETTLE(1, "--set", "train.tokens=307200"), BT_OK);
    assert_int_equal(c.train.steps, 75);
    assert_refusal_contains(SETTLE(1, "--set", "train.seq_ramp=0.2,0.1"),
                            "is not a list of ascending shares of the run");
    assert_refusal_contains(SETTLE(1, "--set", "train.seq_ramp=0.1,"),
                            "is not a list of ascending shares of the run");
    assert_refusal_contains(
        SETTLE(1, "--set", "train.seq_ramp=0.1,0.2,0.3", "--seq-len", "4", "--batch-tokens", "64"),
        "begins with 1/8 of model.seq_len 4, which is not whole tokens (use --seq-len 8");
    assert_refusal_contains(SETTLE(1, "--set", "train.dense_steps=10", "--steps", "10"),
                            "the switch would come after the end of the run, which has 10 steps");
    assert_refusal_contains(SETTLE(1, "--set", "train.dense_steps=10", "--set",
                                   "model.linear=dense"),
                            "the layers are dense in all steps");
    assert_int_equal(SETTLE(1, "--set", "train.dense_steps=9", "--steps", "10"), BT_OK);
    assert_true(bt_run_has(&c, BT_RUN_DENSE, 8) && !bt_run_has(&c, BT_RUN_DENSE, 9));
    assert_refusal_contains(SETTLE(1, "--set", "train.bigram_steps=10"),
                            "use train.share_steps, or omit it");
    assert_refusal_contains(SETTLE(1, "--set", "train.share_steps=3", "--init-from", "x"),
                            "train.share_steps 3 with --init-from");
    assert_refusal_contains(SETTLE(1, "--set", "train.share_steps=3", "--set", "model.logit_cap=8"),
                            "train.share_steps 3 with model.logit_cap");
    assert_int_equal(SETTLE(1, "--set", "train.share_steps=99", "--set", "model.init_out=depth",
                            "--steps", "9"),
                     BT_OK);
    assert_refusal_contains(SETTLE(1, "--set", "optim.weights=bf16", "--set", "model.linear=dense"),
                            "model.linear=dense has others (leave one of them out)");
    assert_refusal_contains(
        SETTLE(1, "--set", "optim.weights=bf16", "--set", "train.dense_steps=9", "--steps", "10"),
        "ternary from the first step on, and with train.dense_steps they are not");
    assert_int_equal(SETTLE(1, "--set", "model.value_residual=0.0"), BT_OK);
    assert_refusal_contains(SETTLE(1, "--set", "model.value_residual=0.5"),
                            "model.value_residual=0.5: this setting was removed (omit it; ");
    assert_int_equal(SETTLE(1, "--set", "optim.weights=bf16"), BT_OK);
}

static void test_unequal_shares(void **state) {
    (void)state;
    /* 3 need not divide 16. */
    assert_int_equal(SETTLE(3, "--balance", "auto"), BT_OK);
    assert_int_equal(c.train.micro_batch, 1);
    assert_int_equal(c.train.accum, 6);
    /* Resolving twice has the same result. */
    assert_int_equal(bt_run_cfg_resolve_opts(&o, &c, 3, &err), BT_OK);
    assert_int_equal(c.train.micro_batch, 1);
    assert_int_equal(SETTLE(2, "--balance", "3,1", "--micro-batch", "4"), BT_OK);
    assert_int_equal(c.train.accum, 2);
    assert_refusal_contains(
        SETTLE(2, "--balance", "auto", "--micro-batch", "8"),
        "parallel.balance=auto: 2 micro-batches a step are too few for 2 data-parallel ranks, 4 "
        "are needed "
        "(use --batch-tokens 8192 or a smaller --micro-batch, or parallel.balance=even)");
    assert_refusal_contains(
        SETTLE(2, "--balance", "auto", "--micro-batch", "5"),
        "train.micro_batch 5 does not divide the 16 sequences of a step (use 4 or 8)");
    assert_refusal_contains(SETTLE(2, "--balance", "auto", "--micro-batch", "2", "--accum", "3",
                                   "--batch-tokens", "4096"),
                            "4 each on average, but train.accum is 3");
    assert_refusal_contains(SETTLE(2, "--balance", "3,1,1"),
                            "has 3 shares, but there are 2 data-parallel ranks");
    assert_refusal_contains(SETTLE(2, "--balance", "fair"),
                            "must be even, auto, or one share for each");
    assert_int_equal(SETTLE(2, "--balance", "auto", "--set", "train.reproducible=true"), BT_OK);
    assert_refusal_contains(
        SETTLE(3, "--balance", "auto", "--set", "train.reproducible=true"),
        "4 units of 4 sequences a step are too few for 3 data-parallel ranks of unlike speed (set "
        "train.unit=2");
    assert_refusal_contains(
        SETTLE(9, "--balance", "auto", "--set", "train.reproducible=true"),
        "16 sequences per step are too few for 9 data-parallel ranks, 18 are needed (use "
        "parallel.balance=even)");
}

static void test_small_vocab_without_bytes(void **state) {
    (void)state;
    assert_int_equal(SETTLE(1, "--data", "synth:chain", "--set", "model.vocab=64"), BT_OK);
}

#define NANO "--preset", "nano", "--ranks", "1", "--data", "x.jsonl"
#define ADAPTERS NANO, "--tune", "lora", "--set", "tune.base=x", "--set", "tune.rank=4"
/* nano has 2,654,208 weights in layers, 49,152 in the head, and 1,769,472 operations of attention per token, a third of
 * them forward; adapters of rank 4 have 6 * 4 * (4 * 384 + 3 * 704) = 87,552 weights. */
static void test_operations_of_fine_tuning(void **state) {
    (void)state;
    const double forward = 2 * (2654208 + 49152) + 589824;
    assert_int_equal(SETTLE(1, ADAPTERS, "--form", "messages"), BT_OK);
    const double lora = 4 * 2654208 + 6 * 87552 + 4 * 49152 + 1769472;
    assert_true(bt_tune_count(&c).flop_token == lora);
    assert_int_equal(SETTLE(1, ADAPTERS, "--form", "preference"), BT_OK);
    assert_true(bt_tune_count(&c).flop_token == lora + forward);
    assert_refusal_contains(SETTLE(1, ADAPTERS, "--form", "preference", "--set",
                                   "train.mask_inputs=0.1"),
                            "train.mask_inputs with data.form=preference is not possible");
    assert_refusal_contains(SETTLE(1, ADAPTERS, "--form", "preference", "--set",
                                   "train.dropout=0.1"),
                            "train.dropout with data.form=preference is not possible");
    assert_refusal_contains(SETTLE(1, NANO, "--form", "messages", "--set", "tune.logits=y", "--set",
                                   "train.token_noise=0.1"),
                            "train.token_noise with tune.logits is not possible");
    assert_int_equal(SETTLE(1, NANO, "--form", "messages", "--teacher", "y", "--set",
                            "tune.teacher_shape=6,192,6,6,32,512,256,0,0,2,1,0"),
                     BT_OK);
    assert_true(bt_tune_count(&c).flop_token == 6 * (2654208 + 49152) + 1769472 + forward);
    assert_refusal_contains(SETTLE(1, NANO, "--form", "messages", "--teacher", "y", "--set",
                                   "tune.teacher_shape=6,192,6"),
                            "'6,192,6' is not the shape");
}

static void test_settings_reach_their_parts(void **state) {
    (void)state;
    assert_int_equal(SETTLE(1, "--set", "optim.eps=1e-6", "--set", "optim.momentum=0.9", "--set",
                            "optim.decay_frac=0.5", "--set", "optim.head_lr=3"),
                     BT_OK);
    const bt_optim_cfg optim = bt_run_cfg_optim(&c);
    assert_true(optim.eps == 1e-6 && optim.momentum == 0.9);
    assert_true(bt_run_cfg_lr_schedule(&c).decay_frac == 0.5 && c.optim.head_lr == 3);
    assert_int_equal(SETTLE(1, "--set", "tune.beta=0.3", "--set", "tune.sft_share=0.2", "--set",
                            "tune.label_smoothing=0.1", "--set", "alert.bell=false"),
                     BT_OK);
    const bt_dpo dpo = bt_tune_dpo(&c);
    assert_true(dpo.beta == 0.3 && dpo.sft_share == 0.2 && dpo.smoothing == 0.1 && !c.alert.bell);
    assert_int_equal(SETTLE(1, ADAPTERS, "--set", "tune.alpha=8", "--set", "tune.rslora=true"),
                     BT_OK);
    assert_true(bt_tune_lora(&c).scale == 4);
    assert_refusal_contains(SETTLE(1, "--set", "islands.poison=3"),
                            "islands.poison=3: this setting was removed (");
}

static void test_json_and_text_agree(void **state) {
    (void)state;
    assert_int_equal(SETTLE(1, "--data", "a b", "c\"d", "--lr", "0.25", "--quiet"), BT_OK);
    bt_text t;
    bt_text_init(&t);
    bt_run_cfg_json(&o, &t);
    assert_non_null(strstr(bt_text_str(&t),
                           "\"optim.lr\":{\"value\":0.25,\"origin\":\"flag\",\"where\":\"--lr\"}"));
    assert_non_null(strstr(
        bt_text_str(&t),
        "\"data.path\":{\"value\":[\"a b\",\"c\\\"d\"],\"origin\":\"flag\",\"where\":\"--data\"}"));
    assert_non_null(strstr(bt_text_str(&t), "\"run.quiet\":{\"value\":true,"));
    assert_non_null(
        strstr(bt_text_str(&t), "\"model.norm\":{\"value\":\"subln\",\"origin\":\"preset\""));
    assert_false(t.failed);
    bt_text_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_preset_resolves),
        cmocka_unit_test(test_defaults_are_nano),
        cmocka_unit_test(test_settings_override_the_preset),
        cmocka_unit_test(test_automatic_values),
        cmocka_unit_test(test_rate_of_shape),
        cmocka_unit_test(test_synthetic_data_use_a_constant_rate),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_contradictions_are_refused),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_ramps),
        cmocka_unit_test(test_micro_batches_of_virtual_stages),
        cmocka_unit_test(test_unequal_shares),
        cmocka_unit_test(test_settings_reach_their_parts),
        cmocka_unit_test(test_values_for_learned_tokens_need_long_text),
        cmocka_unit_test(test_small_vocab_without_bytes),
        cmocka_unit_test(test_operations_of_fine_tuning),
        cmocka_unit_test(test_json_and_text_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
