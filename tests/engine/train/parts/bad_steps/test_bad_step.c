/* Bad steps on one rank: garbage in the data is a spike and is skipped, ordinary data are never skipped, and damaged
 * weights are not attributed to the data. */
#include "tests/tiny_run.h"

#include <math.h>
#include <unistd.h>

#include "engine/base/testing/testing.h"
#include "engine/model/net/model.h"
#include "engine/train/parts/bad_steps/guard.h"
#include "engine/train/parts/bad_steps/skipped_data.h"
#include "tests/memory/refuse_memory.h"

static fake_sink sink, again;

enum { STEP_BYTES = 128, STEPS = 64, GARBAGE = 50 };

/* Writes the same words repeatedly, except that the batches of some steps contain random bytes. */
static void write_garbage(const char *path, int first, int last) {
    static const char words[] = "the quick brown fox jumps over the lazy dog. ";
    FILE *f = fopen(path, "w");
    uint32_t x = 12345;
    assert_non_null(f);
    for (int i = 0; i < STEP_BYTES * (STEPS + 2); i++) {
        x = x * 1664525 + 1013904223;
        const bool garbage = i / STEP_BYTES >= first && i / STEP_BYTES <= last;
        fputc(garbage ? 1 + (int)((x >> 16) % 255) : words[i % 45], f);
    }
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *path, int garbage_step) {
    write_garbage(path, garbage_step, garbage_step);
}

static void cfg_of(bt_run_cfg *cfg, const char *path, const char *set, const char *out,
                   const char *stop) {
    TINY(cfg, "--steps", "64", "--set", "data.shuffle=false", "--set", "model.vocab=260", "--lr",
         "1e-2", "--batch-tokens", "128", "--set", set, "--out", out, "--stop-after", stop);
    snprintf(cfg->data.path, sizeof cfg->data.path, "%s", path);
}

static void train_on_file(fake_sink *f, const char *path, const char *set, const char *out,
                          const char *resume, const char *stop) {
    bt_run_cfg cfg;
    cfg_of(&cfg, path, set, out, stop);
    (void)tiny_run(&cfg, f, NULL, resume);
}

static int skipped_at(const fake_sink *f, int *n) {
    int at = -1;
    *n = 0;
    for (size_t i = 0; i < f->n_steps; i++)
        if (f->steps[i].v[BT_MS_SKIPPED] == 1) at = (int)f->steps[i].step, ++*n;
    return at;
}

static void garbage_in_the_data_is_skipped(void **state) {
    (void)state;
    char path[] = "/tmp/bt-bad-step-XXXXXX.txt";
    int n, fd = mkstemps(path, 4);
    assert_true(fd >= 0);
    close(fd);
    write_text(path, GARBAGE);
    train_on_file(&sink, path, "train.spike_limit=12", "", "", "0");
    assert_int_equal(skipped_at(&sink, &n), GARBAGE);
    assert_int_equal(n, 1);
    assert_int_equal(fake_events_of(&sink, "bad_step"), 1);
    const double before = sink.steps[GARBAGE - 1].v[BT_MS_LOSS],
                 with = sink.steps[GARBAGE].v[BT_MS_LOSS],
                 after = sink.steps[GARBAGE + 1].v[BT_MS_LOSS];
    assert_true(with > 1.5 * before && after < 1.05 * before);

    /* A limit of 0 switches the check off. */
    train_on_file(&again, path, "train.spike_limit=0", "", "", "0");
    assert_int_equal(skipped_at(&again, &n), -1);
    assert_true(again.steps[GARBAGE].v[BT_MS_LOSS] == with);
    assert_true(again.steps[GARBAGE + 1].v[BT_MS_LOSS] != after);

    /* Ordinary data produce no spike, even in the first steps. */
    write_text(path, -1);
    train_on_file(&again, path, "train.spike_limit=12", "", "", "0");
    assert_int_equal(skipped_at(&again, &n), -1);
    unlink(path);
}

/* The noise of the inputs begins after the soft targets, and a mixture may change its sources: both raise the loss. */
static void a_change_that_the_run_makes_is_no_spike(void **state) {
    (void)state;
    static const char *const rows[][2] = {{"train.token_noise=0.8", "train.share_steps=50"},
                                          {"data.mixture=1:0,50=0:1", "train.share_steps=0"}};
    char words[] = "/tmp/bt-bad-step-XXXXXX.txt", garbage[] = "/tmp/bt-bad-step-XXXXXX.txt";
    const int a = mkstemps(words, 4), b = mkstemps(garbage, 4);
    assert_true(a >= 0 && b >= 0);
    close(a);
    close(b);
    write_text(words, -1);
    write_garbage(garbage, 0, STEPS + 2);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bt_run_cfg cfg;
        TINY(&cfg, "--steps", "64", "--set", "data.shuffle=false", "--set", "model.vocab=260",
             "--lr", "1e-2", "--batch-tokens", "128", "--set", rows[i][0], "--set", rows[i][1]);
        snprintf(cfg.data.path, sizeof cfg.data.path, i == 0 ? "%s" : "%s\n%s", words, garbage);
        (void)tiny_run(&cfg, &sink, NULL, "");
        assert_true(sink.steps[50].v[BT_MS_LOSS] > 1.3 * sink.steps[49].v[BT_MS_LOSS]);
        assert_int_equal(fake_events_of(&sink, "bad_step"), 0);
    }
    unlink(words);
    unlink(garbage);
}

/* The checkpoint contains the history of losses: a run resumed just before the spike skips the same step. */
static void a_resumed_run_skips_the_same_step(void **state) {
    (void)state;
    char path[] = "/tmp/bt-bad-step-XXXXXX.txt", dir[] = "/tmp/bt-bad-step-XXXXXX", command[80];
    int n, fd = mkstemps(path, 4);
    assert_true(fd >= 0 && mkdtemp(dir));
    close(fd);
    write_text(path, GARBAGE);
    train_on_file(&sink, path, "train.spike_window=64", "", "", "0");
    assert_int_equal(skipped_at(&sink, &n), GARBAGE);
    train_on_file(&again, path, "train.spike_window=64", dir, "", "49");
    train_on_file(&again, path, "train.spike_window=64", dir, dir, "0");
    assert_int_equal(again.steps[0].step, 49);
    assert_int_equal(skipped_at(&again, &n), GARBAGE);
    for (size_t i = 0; i < again.n_steps; i++)
        assert_memory_equal(&again.steps[i].v[BT_MS_LOSS],
                            &sink.steps[again.steps[i].step].v[BT_MS_LOSS], sizeof(double));
    unlink(path);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

static bt_trainer *damaged;

static void damage_after_two(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step != 2) return;
    bt_model *m = bt_trainer_model(damaged);
    bt_model_weights(m)[bt_params_get(bt_model_params(m), -1, BT_P_FINAL_NORM)->offset] = NAN;
}

/* If every batch looks bad, the weights are damaged, and the run returns to a checkpoint. */
static void damaged_weights_are_not_blamed_on_the_batch(void **state) {
    (void)state;
    char dir[] = "/tmp/bt-bad-step-XXXXXX", command[80];
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    assert_non_null(mkdtemp(dir));
    memset(&sink, 0, sizeof sink);
    bt_run_cfg cfg;
    TINY(&cfg, "--steps", "8", "--out", dir, "--ckpt-every", "2", "--set", "ckpt.async=false");
    sink.on_step = damage_after_two;
    damaged = tiny_create(&cfg, &sink, NULL, "");
    assert_int_equal(bt_trainer_run(damaged, &r, &err), BT_DAMAGED);
    bt_trainer_destroy(damaged);
    bt_threads_release();
    assert_non_null(strstr(err.msg, "a weight of 'final_norm' on rank 0 is not finite"));
    assert_int_equal(fake_events_of(&sink, "bad_step"), 0);
    sink.on_step = NULL;
    /* The run continues from the checkpoint with the losses of an undisturbed run. */
    bt_run_cfg whole;
    TINY(&whole, "--steps", "8");
    (void)tiny_run(&whole, &again, NULL, "");
    (void)tiny_run(&cfg, &sink, NULL, dir);
    assert_int_equal(sink.steps[0].step, 2);
    assert_int_equal(sink.n_steps, 6);
    for (size_t i = 0; i < sink.n_steps; i++)
        assert_memory_equal(&again.steps[2 + i].v[BT_MS_LOSS], &sink.steps[i].v[BT_MS_LOSS],
                            sizeof(double));
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* Runs a training in which a gradient of this rank becomes NaN, or none does. */
static bt_code run_with_nan(const bt_run_cfg *cfg, const char *nan, bt_train_result *r,
                            bt_err *err) {
    *err = (bt_err)BT_ERR_INIT;
    memset(&sink, 0, sizeof sink);
    if (nan) assert_int_equal(setenv("BITRAIN_TEST_NAN", nan, 1), 0);
    bt_trainer *t = tiny_create(cfg, &sink, NULL, "");
    const bt_code code = bt_trainer_run(t, r, err);
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(unsetenv("BITRAIN_TEST_NAN"), 0);
    (void)bt_testing_nan(0, 0, ""); /* Disarms the NaN for the next run. */
    return code;
}

/* Replaces %H by the name of this host. */
static void put_host_in_text(char *out, size_t size, const char *text) {
    char host[BT_HOST_MAX] = "";
    gethostname(host, sizeof host - 1);
    const char *at = strstr(text, "%H");
    snprintf(out, size, "%.*s%s%s", at ? (int)(at - text) : (int)strlen(text), text, at ? host : "",
             at ? at + 2 : "");
}

/* Compares the k-th event of a kind with this text, in which %H is the name of the host. */
static void assert_kth_event(const char *kind, size_t k, int64_t step, const char *title,
                             const char *body) {
    char want[512];
    for (size_t i = 0; i < sink.n_events; i++) {
        if (strcmp(sink.events[i].kind, kind) != 0 || k-- > 0) continue;
        put_host_in_text(want, sizeof want, title);
        want[sizeof sink.events[i].title - 1] = '\0';
        assert_string_equal(sink.events[i].title, want);
        put_host_in_text(want, sizeof want, body);
        assert_string_equal(sink.events[i].body, want);
        assert_int_equal(sink.events[i].step, step);
        return;
    }
    fail_msg("there are too few events '%s'", kind);
}

#define NAN_OF "gradient of layers.0.attn_k is not finite"
#define BATCH "\"first_sequence\":80,\"sequences\":16}"

static void nan_gradients_are_reported(void **state) {
    (void)state;
    static const char
        second[] = NAN_OF
        ", but not when computed again: a fault of the hardware of rank 0 (host '%H'); the "
        "second result is applied",
        second_body[] =
            "{\"cause\":\"not_finite\",\"action\":\"applied\",\"same_bits\":false,\"tensor\":"
            "\"layers.0.attn_k\",\"rank\":0,\"host\":\"%H\"," BATCH;
    static const struct {
        const char *nan, *policy;
        bt_code code;
        const char *kind, *title, *body, *err;
    } rows[] = {
        {"0:5:layers.0.attn_k", "skip", BT_OK, "hardware", second, second_body, NULL},
        {"0:5:layers.0.attn_k", "retry", BT_OK, "hardware", second, second_body, NULL},
        {"0:5-5:layers.0.attn_k", "skip", BT_OK, "bad_step",
         "step skipped: " NAN_OF ", same bits on retry; batch dropped (sequences 80 "
         "to 95), 1 in a row",
         "{\"cause\":\"not_finite\",\"action\":\"skipped\",\"same_bits\":true,\"tensor\":"
         "\"layers.0.attn_k\"," BATCH,
         NULL},
        {"0:5-5:layers.0.attn_k", "retry", BT_CHECK, "bad_step",
         NAN_OF ", the same bits when computed again",
         "{\"cause\":\"not_finite\",\"action\":\"ended\",\"same_bits\":true,\"tensor\":"
         "\"layers.0.attn_k\"," BATCH,
         "step 6: " NAN_OF
         ", the same bits when computed again; train.on_bad_step=retry ends the run (resume from "
         "the newest checkpoint; train.on_bad_step=skip omits the batch)"},
        {"0:5:layers.0.attn_k", "stop", BT_CHECK, "bad_step", NAN_OF,
         "{\"cause\":\"not_finite\",\"action\":\"ended\",\"same_bits\":false,\"tensor\":"
         "\"layers.0.attn_k\"," BATCH,
         "step 6: " NAN_OF "; train.on_bad_step=stop ends the run (resume from the newest "
         "checkpoint; train.on_bad_step=skip omits the batch)"},
    };
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err;
    TINY(&cfg, "--steps", "8");
    assert_int_equal(run_with_nan(&cfg, NULL, &r, &err), BT_OK);
    again = sink;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char policy[64], want[512];
        const bool skips = strcmp(rows[i].kind, "bad_step") == 0;
        snprintf(policy, sizeof policy, "train.on_bad_step=%s", rows[i].policy);
        TINY(&cfg, "--steps", "8", "--set", policy);
        assert_int_equal(run_with_nan(&cfg, rows[i].nan, &r, &err), rows[i].code);
        assert_int_equal(fake_events_of(&sink, "hardware"), !skips);
        assert_int_equal(fake_events_of(&sink, "bad_step"), skips);
        assert_kth_event(rows[i].kind, 0, 5, rows[i].title, rows[i].body);
        if (rows[i].code != BT_OK) {
            snprintf(want, sizeof want, "%s", rows[i].err);
            want[sizeof err.msg - 1] = '\0';
            assert_string_equal(err.msg, want);
            assert_int_equal(fake_events_of(&sink, "failure"), 1);
            assert_kth_event("failure", 0, 5, want, "");
            assert_int_equal(sink.n_steps, 5);
            continue;
        }
        assert_int_equal(r.skipped, skips);
        assert_int_equal(sink.n_steps, 8);
        for (
            size_t k = 0; k < 8;
            /* A step that is computed twice and then applied has the same bits as a step computed once. */
            k++) {
            assert_int_equal(sink.steps[k].v[BT_MS_SKIPPED], skips && k == 5);
            if (!skips || k <= 5)
                assert_memory_equal(&sink.steps[k].v[BT_MS_LOSS], &again.steps[k].v[BT_MS_LOSS],
                                    sizeof(double));
        }
    }
}

static bt_request_box box;

static void halve_after(void *arg, const bt_step_record *r) {
    const double half = 0.5;
    uint64_t bits;
    memcpy(&bits, &half, sizeof bits);
    if (r->step != *(const int64_t *)arg) return;
    atomic_store(&box.lr_factor_bits, bits);
    atomic_fetch_or(&box.bits, BT_REQ_LR);
}

/* Requests that reach rank 0 while a step is computed twice take effect after the first computation. */
static void requests_during_a_repeated_step_take_effect(void **state) {
    (void)state;
    static int64_t asked = 4;
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    TINY(&cfg, "--steps", "8", "--lr-schedule", "constant");
    memset(&sink, 0, sizeof sink);
    memset(&box, 0, sizeof box);
    sink.on_step = halve_after;
    sink.arg = &asked;
    assert_int_equal(setenv("BITRAIN_TEST_NAN", "0:5:embed", 1), 0);
    bt_trainer *t = tiny_create(&cfg, &sink, &box, "");
    assert_int_equal(bt_trainer_run(t, &r, &err), BT_OK);
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(unsetenv("BITRAIN_TEST_NAN"), 0);
    (void)bt_testing_nan(0, 0, "");
    assert_int_equal(fake_events_of(&sink, "hardware"), 1);
    assert_int_equal(fake_events_of(&sink, "control"), 1);
    for (size_t k = 0; k < 8; k++)
        assert_true(fabs(sink.steps[k].v[BT_MS_LR] - (k > 5 ? 1.5e-3 : 3e-3)) < 1e-12);
}

/* Compares the k-th event with a spike whose loss is that of the step. */
static void spike_is(size_t k, int64_t step, const char *action, const char *title) {
    double value, median, z;
    char what[128], want[512], body[256];
    size_t i = 0;
    for (size_t left = k; i < sink.n_events; i++)
        if (strcmp(sink.events[i].kind, "bad_step") == 0 && left-- == 0) break;
    assert_true(i < sink.n_events);
    const char *at = strstr(sink.events[i].body, "\"value\":");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "\"value\":%lf,\"median\":%lf,\"z\":%lf", &value, &median, &z), 3);
    const double loss = sink.steps[step].v[BT_MS_LOSS];
    assert_true(fabs(value - loss) < 1e-9 * loss);
    assert_true(median > 0 && median < value / 1.5 && z > 12);
    snprintf(what, sizeof what, "loss %.4g is a spike (median %.4g, z %.0f)", value, median, z);
    snprintf(want, sizeof want, title, what);
    snprintf(body, sizeof body,
             "{\"cause\":\"loss_spike\",\"action\":\"%s\",\"same_bits\":true,%.*s,"
             "\"first_sequence\":%d,\"sequences\":4}",
             action, (int)strcspn(at, "f") - 2, at, 4 * (int)step);
    assert_kth_event("bad_step", k, step, want, body);
}

/* Two of three garbage batches in a row may be skipped; the third is accepted as the new level. In the last case one
 * garbage batch coincides with a hardware fault. */
static void spikes_in_a_row_are_a_new_level(void **state) {
    (void)state;
    char path[] = "/tmp/bt-bad-step-XXXXXX.txt", want[512];
    int n, fd = mkstemps(path, 4);
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err;
    assert_true(fd >= 0);
    close(fd);
    write_garbage(path, GARBAGE, GARBAGE + 2);
    cfg_of(&cfg, path, "train.max_bad_steps=3", "", "53");
    assert_int_equal(run_with_nan(&cfg, NULL, &r, &err), BT_OK);
    assert_int_equal(fake_events_of(&sink, "bad_step"), 3);
    assert_int_equal(skipped_at(&sink, &n), GARBAGE + 1);
    assert_int_equal(n, 2);
    spike_is(0, GARBAGE, "skipped",
             "step skipped: %s, same bits on retry; batch dropped (sequences 200 to "
             "203), 1 in a row");
    spike_is(1, GARBAGE + 1, "skipped",
             "step skipped: %s, same bits on retry; batch dropped (sequences 204 to "
             "207), 2 in a row");
    spike_is(2, GARBAGE + 2, "accepted",
             "%s, as in the 2 steps before: taken as the new level, steps are applied again");
    assert_int_equal(run_with_nan(&cfg, "0:50:layers.0.attn_k", &r, &err), BT_DAMAGED);
    assert_kth_event(
        "hardware", 0, GARBAGE,
        NAN_OF ", computed again with other bits and no better: a fault of the hardware of rank 0 "
               "(host '%H')",
        "{\"cause\":\"not_finite\",\"action\":\"ended\",\"same_bits\":false,\"tensor\":"
        "\"layers.0.attn_k\",\"rank\":0,\"host\":\"%H\",\"first_sequence\":200,"
        "\"sequences\":4}");
    put_host_in_text(
        want, sizeof want,
        "step 51: " NAN_OF
        ", computed again with other bits and no better: a fault of the hardware of rank 0 "
        "(host '%H') (resume from the newest checkpoint)");
    want[sizeof err.msg - 1] = '\0';
    assert_string_equal(err.msg, want);
    unlink(path);
}

static void the_set_of_skipped_sequences_survives(void **state) {
    (void)state;
    bt_skipped a = {0}, b = {0};
    bt_state from = {0}, to = {0};
    bt_text text;
    bt_err err = BT_ERR_INIT;
    for (int64_t i = 0; i < 100; i++) assert_int_equal(bt_skipped_add(&a, 48 * i, 16, &err), BT_OK);
    /* These sequences belong to the next step. */
    assert_int_equal(bt_skipped_add(&a, 48 * 99 + 16, 16, &err), BT_OK);
    assert_int_equal(a.n, 100);
    assert_int_equal(a.ranges[99][1] - a.ranges[99][0], 2 * 16);
    bt_skipped_add_state(&a, &from);
    bt_skipped_add_state(&b, &to);
    bt_text_init(&text);
    assert_int_equal(bt_state_save_values(&from, &text, &err), BT_OK);
    assert_int_equal(bt_state_load_values(&to, &text, &err), BT_OK);
    assert_int_equal(b.n, 100);
    assert_memory_equal(a.ranges, b.ranges, 100 * sizeof *a.ranges);
    static const char *const not_ours[] = {"{}",
                                           "{\"skipped\":{\"sequences\":[16,32,24,40]}}",
                                           "{\"skipped\":{\"sequences\":[16,\"32\"]}}",
                                           "{\"skipped\":{\"sequences\":[-1,5]}}",
                                           "{\"skipped\":{\"sequences\":[32,16]}}",
                                           "{\"skipped\":{\"sequences\":[16,16]}}",
                                           "{\"skipped\":{\"sequences\":[8,16,16,32]}}"};
    for (size_t i = 0; i < sizeof not_ours / sizeof *not_ours; i++) {
        bt_text_clear(&text);
        bt_text_put(&text, not_ours[i]);
        assert_int_equal(bt_state_load_values(&to, &text, &err), BT_OK);
        assert_int_equal(b.n, 0);
    }
    /* If memory for the set is refused, the set is empty. */
    for (long k = 0; k < 8 && refuse_memory_works(); k++) {
        bt_text_clear(&text);
        bt_text_put(&text, "{\"skipped\":{\"sequences\":[0,16,32,48]}}");
        assert_int_equal(bt_state_load_values(&to, &text, &err), BT_OK);
        assert_int_equal(b.n, 2);
        refuse_memory(&(refusal){.after = k, .own = true});
        const bt_code code = bt_state_load_values(&to, &text, &err);
        if (!grant_memory()) break;
        assert_true(code == BT_NOMEM || (code == BT_OK && b.n == 0));
    }
    bt_text_release(&text);
    bt_skipped_release(&a);
    bt_skipped_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_in_the_data_is_skipped),
        cmocka_unit_test(a_change_that_the_run_makes_is_no_spike),
        cmocka_unit_test(a_resumed_run_skips_the_same_step),
        cmocka_unit_test(damaged_weights_are_not_blamed_on_the_batch),
        cmocka_unit_test(nan_gradients_are_reported),
        cmocka_unit_test(requests_during_a_repeated_step_take_effect),
        cmocka_unit_test(spikes_in_a_row_are_a_new_level),
        cmocka_unit_test(the_set_of_skipped_sequences_survives),
    };
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
