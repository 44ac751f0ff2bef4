// ctest: ranks=4 timeout=400
/* A NaN in one rank's gradient. If it occurs once, the step is computed again, an event names the rank, and the losses
 * equal those of an undisturbed run. If it recurs with the same batch, the batch is skipped; a checkpoint records that
 * for any layout. */
#include "engine/base/testing/testing.h"
#include "engine/ckpt/ckpt.h"
#include "tests/mpi/layouts.h"

#define REPRODUCIBLE "--set", "train.reproducible=true", "--set", "train.unit=4"
#define STRIPES "--set", "train.bucket_bytes=4096"

static const struct layout {
    const char *name, *words[12];
    const char *tensor; /* tensor of rank 1 that gets the NaN */
} layouts[] = {
    {"4 replicas", {STRIPES}, "layers.1.ffn_up"},
    {"without overlap", {STRIPES, "--set", "train.overlap=false"}, "embed"},
    {"zero 1, 4 shards", {STRIPES, "--zero", "1", "--dp-shard", "4"}, "final_norm"},
    {"zero 2, 2 replicas of 2 shards",
     {STRIPES, "--zero", "2", "--dp-replicate", "2", "--dp-shard", "2"},
     "layers.0.attn_q"},
    {"zero 3, 4 shards", {STRIPES, "--zero", "3", "--dp-shard", "4"}, "layers.0.ffn_down"},
    {"2 replicas of tp 2", {"--tp", "2"}, "layers.1.attn_o"},
    {"tp 4", {"--tp", "4", "--set", "model.kv_heads=4"}, "layers.1.attn_o"},
    {"2 replicas of pp 2", {"--pp", "2", "--micro-batch", "2"}, "layers.0.attn_v"},
    {"codec bf16", {"--codec", "bf16"}, "layers.0.attn_k"},
    {"codec int8", {"--codec", "int8", STRIPES}, "layers.0.attn_k"},
    {"reproducible", {REPRODUCIBLE}, "layers.0.ffn_gate"},
    {"reproducible, zero 3", {REPRODUCIBLE, "--zero", "3", "--dp-shard", "4"}, "layers.0.ffn_gate"},
};
enum { N_LAYOUTS = sizeof layouts / sizeof layouts[0], STEPS = 12, BAD = 5 };

static fake_sink calm, other;

static void inject_nan_at(int rank, const char *steps, const char *tensor) {
    char hook[96];
    snprintf(hook, sizeof hook, "%d:%s:%s", rank, steps, tensor);
    assert_int_equal(setenv("BITRAIN_TEST_NAN", hook, 1), 0);
}

static void remove_nan(void) {
    assert_int_equal(unsetenv("BITRAIN_TEST_NAN"), 0);
    (void)bt_testing_nan(0, 0, ""); /* Re-arms the NaN for the next run. */
}

/* Trains with the events of rank 0 copied to f on every rank. */
static bt_code train_with_events(fake_sink *f, const struct layout *l, const char *const *more,
                                 const char *resume, bt_train_result *r, bt_err *err) {
    const char *words[48] = {"--steps", "12"};
    size_t n = 2;
    for (size_t i = 0; i < 12 && l->words[i]; i++) words[n++] = l->words[i];
    while (more && *more) words[n++] = *more++;
    bt_run_cfg cfg;
    tiny_cfg(&cfg, words);
    memset(f, 0, sizeof *f);
    *err = (bt_err)BT_ERR_INIT;
    bt_trainer *t = tiny_create(&cfg, f, NULL, resume);
    bt_code code = bt_trainer_run(t, r, err);
    bt_trainer_destroy(t);
    bt_threads_release();
    bt_err ignored = BT_ERR_INIT;
    assert_int_equal(
        bt_broadcast(bt_comm_world(), f, offsetof(fake_sink, last_checkpoint), 0, &ignored), BT_OK);
    return code;
}

static void run(fake_sink *f, const struct layout *l, const char *const *more, const char *resume,
                bt_train_result *r) {
    bt_err err;
    if (train_with_events(f, l, more, resume, r, &err) != BT_OK)
        fail_msg("%s: %s", l->name, err.msg);
}

static int event_of(const fake_sink *f, const char *kind) {
    for (size_t i = 0; i < f->n_events; i++)
        if (strcmp(f->events[i].kind, kind) == 0) return (int)i;
    return -1;
}

static void same_steps(const char *name, const fake_sink *a, const fake_sink *b, int64_t from) {
    for (size_t i = 0; i < b->n_steps; i++) {
        const fake_step *y = &b->steps[i], *x = &a->steps[y->step];
        assert_int_equal(x->step, y->step);
        if (y->step >= from && (memcmp(&x->v[BT_MS_LOSS], &y->v[BT_MS_LOSS], sizeof(double)) != 0 ||
                                x->v[BT_MS_SKIPPED] != y->v[BT_MS_SKIPPED]))
            fail_msg("%s: step %d: loss %.17g and %.17g, skipped %g and %g", name, (int)y->step,
                     x->v[BT_MS_LOSS], y->v[BT_MS_LOSS], x->v[BT_MS_SKIPPED], y->v[BT_MS_SKIPPED]);
    }
}

static void a_single_fault_costs_one_computation(void **state) {
    (void)state;
    bt_train_result r;
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        const struct layout *l = &layouts[i];
        run(&calm, l, NULL, "", &r);
        assert_int_equal(event_of(&calm, "hardware"), -1);
        inject_nan_at(1, "5", l->tensor);
        run(&other, l, NULL, "", &r);
        remove_nan();
        const int e = event_of(&other, "hardware");
        if (e < 0) fail_msg("%s: there is no message", l->name);
        if (!strstr(other.events[e].title, "of rank 1 (host '") ||
            !strstr(other.events[e].title, l->tensor) ||
            !strstr(other.events[e].body, "\"action\":\"applied\"") ||
            !strstr(other.events[e].body, "\"rank\":1,") || other.events[e].step != BAD)
            fail_msg("%s: %s %s", l->name, other.events[e].title, other.events[e].body);
        assert_int_equal(event_of(&other, "bad_step"), -1);
        assert_int_equal(r.skipped, 0);
        assert_int_equal(other.n_steps, STEPS);
        same_steps(l->name, &calm, &other, 0);
    }
}

static void ranks_that_err_at_once_are_all_named(void **state) {
    (void)state;
    bt_train_result r;
    const int rank = bt_comm_rank(bt_comm_world());
    for (int first = 2; first >= 1; first--) {
        inject_nan_at(rank < first ? 9 : rank, "5", "embed");
        run(&other, &layouts[0], NULL, "", &r);
        remove_nan();
        const int e = event_of(&other, "hardware");
        assert_true(e >= 0);
        assert_non_null(
            strstr(other.events[e].title, first == 2 ? "of ranks 2, 3;" : "of ranks 1, 2, 3;"));
    }
}

static void a_batch_that_is_bad_each_time_is_skipped(void **state) {
    (void)state;
    bt_train_result r;
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        const struct layout *l = &layouts[i];
        inject_nan_at(1, "5-5", l->tensor);
        run(&other, l, NULL, "", &r);
        remove_nan();
        const int e = event_of(&other, "bad_step");
        if (e < 0) fail_msg("%s: there is no message", l->name);
        if (!strstr(other.events[e].title, "(sequences 80 to 95), 1 in a row") ||
            !strstr(other.events[e].body, "\"action\":\"skipped\"") ||
            !strstr(other.events[e].body, "\"same_bits\":true") || other.events[e].step != BAD)
            fail_msg("%s: %s %s", l->name, other.events[e].title, other.events[e].body);
        assert_int_equal(event_of(&other, "hardware"), -1);
        assert_int_equal(r.skipped, 1);
        assert_true(isfinite(other.steps[STEPS - 1].v[BT_MS_LOSS]));
        for (size_t k = 0; k < STEPS; k++)
            assert_true((other.steps[k].v[BT_MS_SKIPPED] == 1) == (k == BAD));
    }
}

/* Checks the list of skipped sequences in the newest checkpoint's manifest. */
static void assert_skipped(const char *dir, const char *list) {
    char path[1024];
    bt_ckpt_meta meta;
    bt_err err = BT_ERR_INIT;
    if (bt_ckpt_find(NULL, dir, path, sizeof path, &meta, NULL, &err) != BT_OK)
        fail_msg("%s", err.msg);
    char *text = meta.state.data, *to = text; /* white space is removed */
    for (char *from = text; *from; from++)
        if (*from != ' ' && *from != '\n') *to++ = *from;
    *to = '\0';
    if (!strstr(text, list)) fail_msg("not '%s': %s", list, text);
    bt_ckpt_meta_release(&meta);
}

/* Resumes from a step before the skipped batch, directly after it and later, on the same ranks and as one replica of
 * four shards. */
static void skipped_sequences_survive_a_resume(void **state) {
    (void)state;
    static const struct layout whole = {"whole", {REPRODUCIBLE}, ""},
                               shards = {
                                   "shards", {REPRODUCIBLE, "--zero", "3", "--dp-shard", "4"}, ""};
    bt_train_result r;
    inject_nan_at(2, "5-6", "layers.0.attn_k");
    run(&calm, &whole, NULL, "", &r);
    assert_int_equal(r.skipped, 2);
    static const char *const stops[] = {"4", "6", "7", "9"};
    for (size_t i = 0; i < 4; i++) {
        char dir[64];
        layout_folder(dir);
        run(&other, &whole, (const char *const[]){"--out", dir, "--stop-after", stops[i], NULL}, "",
            &r);
        same_steps("first part", &calm, &other, 0);
        run(&other, i % 2 ? &whole : &shards,
            (const char *const[]){"--out", dir, "--set", "ckpt.final=true", NULL}, dir, &r);
        same_steps("second part", &calm, &other, 0);
        assert_int_equal(other.steps[0].step, atoi(stops[i]));
        assert_int_equal(r.skipped, 2);
        if (bt_comm_rank(bt_comm_world()) == 0) assert_skipped(dir, "\"sequences\":[80,112]");
        layout_remove(dir);
    }
    remove_nan();
}

static void too_many_in_a_row_end_the_run(void **state) {
    (void)state;
    bt_train_result r;
    bt_err err;
    inject_nan_at(3, "2-9", "layers.0.attn_k");
    assert_int_equal(train_with_events(&other, &layouts[0], NULL, "", &r, &err), BT_CHECK);
    assert_non_null(
        strstr(err.msg, "the gradient was not finite in 5 consecutive steps, the last one step 7"));
    assert_non_null(strstr(err.msg, "'layers.0.attn_k'"));
    static const char *const three[] = {"--set", "train.max_bad_steps=3", NULL};
    assert_int_equal(train_with_events(&other, &layouts[0], three, "", &r, &err), BT_CHECK);
    assert_non_null(
        strstr(err.msg, "the gradient was not finite in 3 consecutive steps, the last one step 5"));
    remove_nan();
}

static void the_policy_decides(void **state) {
    (void)state;
    static const char *const retry[] = {"--set", "train.on_bad_step=retry", NULL},
                             *const stop[] = {"--set", "train.on_bad_step=stop", NULL};
    bt_train_result r;
    bt_err err;
    inject_nan_at(3, "2-2", "layers.0.attn_k");
    assert_int_equal(train_with_events(&other, &layouts[0], retry, "", &r, &err), BT_CHECK);
    assert_non_null(strstr(err.msg, "the same bits when computed again"));
    assert_non_null(strstr(err.msg, "train.on_bad_step=retry ends the run"));
    assert_non_null(strstr(other.events[event_of(&other, "bad_step")].body, "\"ended\""));
    remove_nan();
    inject_nan_at(
        3, "2",
        "layers.0.attn_k"); /* This replaces the NaN, which the second computation would not have. */
    assert_int_equal(train_with_events(&other, &layouts[0], stop, "", &r, &err), BT_CHECK);
    assert_non_null(strstr(err.msg, "gradient of layers.0.attn_k is not finite"));
    assert_non_null(strstr(err.msg, "train.on_bad_step=stop ends the run"));
    remove_nan();
    inject_nan_at(3, "2", "layers.0.attn_k");
    run(&other, &layouts[0], retry, "", &r);
    assert_int_equal(r.skipped, 0);
    remove_nan();
}

/* A checkpoint that is due at a bad step is written after the next good step. */
static void no_checkpoint_is_made_of_a_bad_step(void **state) {
    (void)state;
    char dir[64];
    bt_train_result r;
    layout_folder(dir);
    inject_nan_at(0, "5-6", "layers.0.attn_k");
    run(&other, &layouts[0],
        (const char *const[]){"--out", dir, "--ckpt-every", "6", "--set", "ckpt.keep=9", NULL}, "",
        &r);
    remove_nan();
    if (bt_comm_rank(bt_comm_world()) == 0) {
        char command[200];
        snprintf(command, sizeof command,
                 "test \"$(cd %s && echo step-*)\" = 'step-000000000008 step-000000000012'", dir);
        assert_int_equal(system(command), 0);
    }
    layout_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_single_fault_costs_one_computation),
        cmocka_unit_test(ranks_that_err_at_once_are_all_named),
        cmocka_unit_test(a_batch_that_is_bad_each_time_is_skipped),
        cmocka_unit_test(skipped_sequences_survive_a_resume),
        cmocka_unit_test(too_many_in_a_row_end_the_run),
        cmocka_unit_test(the_policy_decides),
        cmocka_unit_test(no_checkpoint_is_made_of_a_bad_step),
    };
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}
