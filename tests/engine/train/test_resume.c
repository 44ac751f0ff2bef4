/* k steps, a checkpoint, a new trainer and 10 - k steps give the same bits as ten steps at once, for every k, on
 * shuffled text. */
#include "tests/tiny_run.h"

#include <math.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/model/net/model.h"

enum { STEPS = 10 };

static char dir[64], text_path[128], out_path[128];
static fake_sink straight, first, second;
static float *final_weights;
static size_t n_weights;

static int make_data(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/bt-resume-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(text_path, sizeof text_path, "%s/text.txt", dir);
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    FILE *f = fopen(text_path, "w");
    if (!f) return 1;
    for (int i = 0; i < 1500; i++)
        fprintf(f, "line %d says that %d is the square of %d.\n", i, i * i, i);
    return fclose(f);
}

static int remove_data(void **state) {
    (void)state;
    char command[160];
    free(final_weights);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static void cfg_of(bt_run_cfg *cfg, const char *stop_after, const char *more) {
    TINY(cfg, "--set", "model.vocab=256", "--steps", "10", "--out", out_path, "--stop-after",
         stop_after, "--set", "ckpt.keep=3", "--warmup", "3", "--set", more);
    snprintf(cfg->data.path, sizeof cfg->data.path, "%s", text_path);
}

/* Trains and stores the weights after the last step. */
static void run_and_store_weights(const bt_run_cfg *cfg, fake_sink *f, const char *resume_dir,
                                  float *weights) {
    memset(f, 0, offsetof(fake_sink, on_step));
    bt_trainer *t = tiny_create(cfg, f, NULL, resume_dir);
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    n_weights = bt_model_params(bt_trainer_model(t))->total;
    if (weights)
        memcpy(weights, bt_model_weights(bt_trainer_model(t)), n_weights * sizeof *weights);
    bt_trainer_destroy(t);
}

static void same_step(const fake_step *a, const fake_step *b) {
    static const bt_step_metric exact[] = {BT_MS_TOKENS, BT_MS_LOSS,         BT_MS_GRAD_NORM,
                                           BT_MS_LR,     BT_MS_WEIGHT_DECAY, BT_MS_SKIPPED};
    assert_int_equal(a->step, b->step);
    for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) {
        if (a->v[exact[i]] != b->v[exact[i]]) {
            fail_msg("step %d: %s is %.17g, uninterrupted %.17g", (int)a->step,
                     bt_step_metrics[exact[i]].key, b->v[exact[i]], a->v[exact[i]]);
        }
    }
}

static void resumed_equals_uninterrupted(void **state) {
    (void)state;
    bt_run_cfg cfg;
    cfg_of(&cfg, "0", "ckpt.final=false");
    final_weights = calloc(1 << 20, sizeof *final_weights);
    float *weights = calloc(1 << 20, sizeof *weights);
    run_and_store_weights(&cfg, &straight, "", final_weights);
    assert_int_equal(straight.n_steps, STEPS);

    for (int k = 1; k < STEPS; k += k < 3 ? 1 : 3) { /* 1 2 3 6 9 */
        char after[16], command[256];
        snprintf(command, sizeof command, "rm -rf '%s'", out_path);
        assert_int_equal(system(command), 0);
        snprintf(after, sizeof after, "%d", k);
        cfg_of(&cfg, after, "ckpt.final=false");
        run_and_store_weights(&cfg, &first, "", NULL);
        assert_int_equal(first.n_steps, k);
        assert_int_equal(first.n_checkpoints, 1);
        assert_int_equal(first.last_checkpoint.step, k);

        cfg_of(&cfg, "0", "ckpt.final=false");
        run_and_store_weights(&cfg, &second, out_path, weights);
        assert_int_equal(second.n_steps, STEPS - k);
        assert_int_equal(fake_events_of(&second, "resumed"), 1);
        for (int i = 0; i < STEPS; i++)
            same_step(&straight.steps[i], i < k ? &first.steps[i] : &second.steps[i - k]);
        assert_memory_equal(weights, final_weights, n_weights * sizeof *weights);
    }
    free(weights);
}

/* Interrupts before, at and after every change: sequences grow at steps 2, 3 and 4, layers become ternary at step 6. */
static void check_interrupted_run(bool shares) {
    static const int after[] = {1, 2, 3, 5, 6, 8};
    float *weights = calloc(1 << 20, sizeof *weights), *want = calloc(1 << 20, sizeof *want);
    for (size_t k = 0; k <= sizeof after / sizeof *after; k++) {
        bt_run_cfg cfg;
        char command[256];
        snprintf(command, sizeof command, "rm -rf '%s'", out_path);
        assert_int_equal(system(command), 0);
        const int n = k ? after[k - 1] : 0;
        for (int part = k ? 0 : 1; part < 2; part++) {
            TINY(&cfg, "--set", "model.vocab=256", "--out", out_path, "--set",
                 "train.seq_ramp=0.2,0.3,0.4", "--set", "train.dense_steps=6", "--set",
                 "model.logit_cap=8", "--set", "optim.embed_lr=2", "--set", "train.token_noise=0.1",
                 "--set", "train.mask_inputs=0.1", "--set", "train.dropout=0.2", "--set",
                 "optim.average=3", "--optimizer", "muon");
            snprintf(cfg.data.path, sizeof cfg.data.path, "%s", text_path);
            cfg.train.stop_after = part ? 0 : n;
            if (shares) cfg.shares.share_steps = 8, cfg.model.logit_cap = 0;
            run_and_store_weights(&cfg, part ? &second : &first, part && k ? out_path : "",
                                  part ? weights : NULL);
        }
        if (k == 0) {
            straight = second;
            memcpy(want, weights, n_weights * sizeof *want);
            /* one event at the beginning and one for each change */
            assert_int_equal(fake_events_of(&straight, "ramp"), shares ? 6 : 5);
        }
        assert_int_equal(second.n_steps, STEPS - n);
        for (int i = 0; i < STEPS; i++)
            same_step(&straight.steps[i], i < n ? &first.steps[i] : &second.steps[i - n]);
        assert_memory_equal(weights, want, n_weights * sizeof *weights);
    }
    free(weights);
    free(want);
}

static void a_changing_run_resumes(void **state) {
    (void)state;
    check_interrupted_run(false);
}

/* The soft targets end in step 8. */
static void a_run_that_begins_with_soft_targets_resumes(void **state) {
    (void)state;
    check_interrupted_run(true);
}

static void checkpoints_are_written_at_their_interval(void **state) {
    (void)state;
    bt_run_cfg cfg;
    cfg_of(&cfg, "0", "ckpt.every=4");
    run_and_store_weights(&cfg, &first, "", NULL);
    assert_int_equal(first.n_checkpoints, 2);
    cfg_of(&cfg, "0", "ckpt.final=true");
    cfg.ckpt.every = 4;
    cfg.ckpt.async = false; /* The next step is charged with the whole time of the checkpoint. */
    const int64_t began_ns = bt_now_ns();
    run_and_store_weights(&cfg, &first, "", NULL);
    assert_true(first.last_checkpoint.took_us > 0 &&
                first.last_checkpoint.took_us <= (bt_now_ns() - began_ns) / 1000);
    assert_int_equal(first.n_checkpoints, 3);
    assert_int_equal(first.last_checkpoint.step, STEPS);
    assert_int_equal(fake_events_of(&first, "checkpoint"), 3);
    /* If a record were written later than its checkpoint, a killed rank would leave a gap in the recorded steps. */
    assert_int_equal(first.unsaid_checkpoints, 0);
    for (size_t i = 0; i < first.n_steps; i++)
        assert_true((first.steps[i].r[0][BT_MR_CKPT] > 0) == (i > 0 && i % 4 == 0));
    /* A finished run resumes and has no step left. */
    run_and_store_weights(&cfg, &second, out_path, NULL);
    assert_int_equal(second.n_steps, 0);
}

/* Five steps with generic kernels and five with the best give a warning that contains both sets, and losses near those
 * of one set. */
static void resumed_on_other_kernels_warns(void **state) {
    (void)state;
    bt_run_cfg cfg;
    char command[160];
    snprintf(command, sizeof command, "rm -rf '%s'", out_path);
    assert_int_equal(system(command), 0);
    cfg_of(&cfg, "5", "ckpt.final=false");
    run_and_store_weights(&cfg, &first, "", NULL);
    cfg_of(&cfg, "0", "ckpt.final=false");
    memcpy(cfg.launch.isa, "auto", sizeof "auto");
    run_and_store_weights(&cfg, &second, out_path, NULL);
    assert_int_equal(second.n_steps, STEPS - 5);
    for (size_t i = 0; i < second.n_steps; i++) {
        double want = straight.steps[5 + i].v[BT_MS_LOSS], got = second.steps[i].v[BT_MS_LOSS];
        if (!(fabs(got - want) < 0.01 * want))
            fail_msg("step %d: loss %.6f, with generic kernels %.6f", (int)second.steps[i].step,
                     got, want);
    }
    if (strcmp(bt_kernels_isa(), "generic") == 0) skip();
    assert_int_equal(fake_events_of(&second, "warning"), 1);
    size_t i = 0;
    while (strcmp(second.events[i].kind, "warning") != 0) i++;
    assert_int_equal(second.events[i].step, 4); /* last step of the checkpoint */
    assert_non_null(strstr(
        second.events[i].body[0] ? second.events[i].body : second.events[i].title, "generic"));
}

/* Optimizer states that are resumed in another format give one warning and similar losses; in the same format they give
 * no warning and equal bits. */
static void states_of_another_kind_are_converted(void **state) {
    (void)state;
    static const char *const kinds[] = {"optim.states=fp32", "optim.states=bf16",
                                        "optim.states=log8", "optim.weights=bf16"};
    for (int from = 0; from < 4; from++) {
        bt_run_cfg cfg;
        char command[160];
        cfg_of(&cfg, "0", kinds[from]);
        cfg.run.out[0] = '\0';
        run_and_store_weights(&cfg, &straight, "", NULL);
        snprintf(command, sizeof command, "rm -rf '%s'", out_path);
        assert_int_equal(system(command), 0);
        cfg_of(&cfg, "5", kinds[from]);
        run_and_store_weights(&cfg, &first, "", NULL);
        for (int to = 0; to < 4; to++) {
            cfg_of(&cfg, "0", kinds[to]);
            cfg.run.out[0] = '\0';
            run_and_store_weights(&cfg, &second, out_path, NULL);
            assert_int_equal(second.n_steps, STEPS - 5);
            /* Conversions of weights and of states are separate warnings. */
            const int told = (from % 3 != to % 3) + ((from == 3) != (to == 3));
            assert_int_equal(fake_events_of(&second, "warning"), told);
            for (size_t i = 0; i < second.n_events; i++)
                if (strcmp(second.events[i].kind, "warning") == 0)
                    assert_int_equal(second.events[i].step, 4);
            for (size_t i = 0; i < second.n_steps; i++) {
                const double want = straight.steps[5 + i].v[BT_MS_LOSS],
                             got = second.steps[i].v[BT_MS_LOSS];
                if (!(from == to ? got == want : fabs(got - want) < 0.02 * want))
                    fail_msg("%s to %s, step %zu: loss %.9g, of one kind %.9g", kinds[from],
                             kinds[to], 5 + i, got, want);
            }
        }
    }
}

static void expect_refusal(const bt_run_cfg *cfg, const char *words) {
    bt_trainer_setup s = {.cfg = cfg, .resume_dir = out_path, .attempt = 1};
    bt_trainer *t = NULL;
    bt_err err = BT_ERR_INIT;
    assert_int_not_equal(bt_trainer_create(&t, &s, &err), BT_OK);
    assert_null(t);
    if (!strstr(err.msg, words)) fail_msg("'%s' does not contain '%s'", err.msg, words);
}

static void another_model_or_other_data_are_refused(void **state) {
    (void)state;
    bt_run_cfg cfg;
    cfg_of(&cfg, "0", "model.d_ff=128");
    expect_refusal(&cfg, "another model");
    cfg_of(&cfg, "0", "model.d_ff=64");
    memcpy(cfg.data.path, "synth:chain", sizeof "synth:chain");
    expect_refusal(&cfg, "--other-data");
    cfg.data.other = true;
    cfg.train.steps = 12;
    run_and_store_weights(&cfg, &second, out_path, NULL);
    assert_int_equal(second.n_steps, 2);
    assert_true(fake_events_of(&second, "warning") >= 1);
    for (size_t i = 0; i < second.n_events; i++)
        if (strstr(second.events[i].title, "resumed on other data"))
            assert_int_equal(second.events[i].step, STEPS - 1);
}

static void init_from_takes_the_weights_only(void **state) {
    (void)state;
    bt_run_cfg cfg;
    cfg_of(&cfg, "0", "ckpt.final=false");
    cfg.train.stop_after = 0;
    snprintf(cfg.model.init_from, sizeof cfg.model.init_from, "%s", out_path);
    cfg.run.out[0] = '\0';
    run_and_store_weights(&cfg, &second, "", NULL);
    assert_int_equal(second.n_steps, STEPS);
    /* The weights are already trained. */
    assert_true(second.steps[0].v[BT_MS_LOSS] < straight.steps[0].v[BT_MS_LOSS] - 0.1);
    /* The schedule restarts. */
    assert_true(second.steps[0].v[BT_MS_LR] == straight.steps[0].v[BT_MS_LR]);
}

/* A checkpoint of format version 1 resumes with the losses that its program recorded. */
static void version_1_resumes(void **state) {
    (void)state;
    static const double want[] = {4.150722827762365, 4.14948364906013, 4.135145427659153};
    char from[512];
    bt_run_cfg cfg;
    snprintf(from, sizeof from, "%s/tests/engine/train/checkpoint_v1",
             getenv("BT_SRC") ? getenv("BT_SRC") : ".");
    TINY(&cfg, "--set", "model.layers=1", "--set", "model.d_model=16", "--set", "model.heads=2",
         "--set", "model.kv_heads=1", "--set", "model.d_ff=32", "--set", "model.head_dim=8",
         "--micro-batch", "2", "--batch-tokens", "128", "--steps", "6", "--precision", "fp16",
         "--lr", "2e-3", "--lr-schedule", "constant");
    tiny_run(&cfg, &first, NULL, from);
    assert_int_equal(first.n_steps, 3);
    /* Version 1 contains only fp32 and resumes as fp32. */
    for (size_t i = 0; i < first.n_events; i++)
        if (strstr(first.events[i].title, " and become ")) fail_msg("%s", first.events[i].title);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(first.steps[i].step, 3 + i);
        assert_true(first.steps[i].v[BT_MS_LOSS_SCALE] == 65536);
        if (!(fabs(first.steps[i].v[BT_MS_LOSS] - want[i]) < 1e-6))
            fail_msg("step %d: loss %.17g, version 1 recorded %.17g", 3 + i,
                     first.steps[i].v[BT_MS_LOSS], want[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_equals_uninterrupted),
        cmocka_unit_test(resumed_on_other_kernels_warns),
        cmocka_unit_test(checkpoints_are_written_at_their_interval),
        cmocka_unit_test(another_model_or_other_data_are_refused),
        cmocka_unit_test(init_from_takes_the_weights_only),
        cmocka_unit_test(version_1_resumes),
        cmocka_unit_test(a_changing_run_resumes),
        cmocka_unit_test(a_run_that_begins_with_soft_targets_resumes),
        cmocka_unit_test(states_of_another_kind_are_converted),
    };
    return cmocka_run_group_tests(tests, make_data, remove_data);
}
