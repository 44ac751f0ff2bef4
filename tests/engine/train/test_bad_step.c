/* Bad steps on one rank: garbage in the data is a spike and skipped, ordinary data are none; damaged
 * weights are not the data's fault. */
#include "tests/tiny_run.h"

#include <math.h>
#include <unistd.h>

#include "engine/model/net/model.h"
#include "engine/train/bad_steps/guard.h"
#include "engine/train/bad_steps/skipped_data.h"

static fake_sink sink, again;

/* ---- data -------------------------------------------------------------------------------------- */

enum { STEP_BYTES = 512, STEPS = 64, GARBAGE = 50 };

/* The same words over and over, but for one step's batch of bytes that no text has. */
static void write_text(const char *path, int garbage_step) {
    static const char words[] = "the quick brown fox jumps over the lazy dog. ";
    FILE *f = fopen(path, "w");
    uint32_t x = 12345;
    assert_non_null(f);
    for (int i = 0; i < STEP_BYTES * (STEPS + 2); i++) {
        x = x * 1664525 + 1013904223;
        fputc(i / STEP_BYTES == garbage_step ? 1 + (int)((x >> 16) % 255) : words[i % 45], f);
    }
    assert_int_equal(fclose(f), 0);
}

static void train(fake_sink *f, const char *path, const char *set, const char *out,
                  const char *resume, const char *stop) {
    bt_run_cfg cfg;
    TINY(&cfg, "--steps", "64", "--set", "data.shuffle=false", "--set", "model.vocab=260", "--lr",
         "1e-2", "--set", set, "--out", out, "--stop-after", stop);
    snprintf(cfg.data, sizeof cfg.data, "%s", path);
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
    train(&sink, path, "train.spike_limit=12", "", "", "0");
    assert_int_equal(skipped_at(&sink, &n), GARBAGE);
    assert_int_equal(n, 1);
    assert_int_equal(fake_events_of(&sink, "bad_step"), 1);
    const double before = sink.steps[GARBAGE - 1].v[BT_MS_LOSS],
                 with = sink.steps[GARBAGE].v[BT_MS_LOSS],
                 after = sink.steps[GARBAGE + 1].v[BT_MS_LOSS];
    assert_true(with > 1.5 * before && after < 1.05 * before);

    /* the limit decides */
    train(&again, path, "train.spike_limit=0", "", "", "0");
    assert_int_equal(skipped_at(&again, &n), -1);
    assert_true(again.steps[GARBAGE].v[BT_MS_LOSS] == with);
    assert_true(again.steps[GARBAGE + 1].v[BT_MS_LOSS] != after);

    /* clean data have no spike, from the first step on */
    write_text(path, -1);
    train(&again, path, "train.spike_limit=12", "", "", "0");
    assert_int_equal(skipped_at(&again, &n), -1);
    unlink(path);
}

/* The history is in the checkpoint: one that was resumed just before judges the same. */
static void a_resumed_run_judges_the_same(void **state) {
    (void)state;
    char path[] = "/tmp/bt-bad-step-XXXXXX.txt", dir[] = "/tmp/bt-bad-step-XXXXXX", command[80];
    int n, fd = mkstemps(path, 4);
    assert_true(fd >= 0 && mkdtemp(dir));
    close(fd);
    write_text(path, GARBAGE);
    train(&sink, path, "train.spike_window=64", "", "", "0");
    assert_int_equal(skipped_at(&sink, &n), GARBAGE);
    train(&again, path, "train.spike_window=64", dir, "", "49");
    train(&again, path, "train.spike_window=64", dir, dir, "0");
    assert_int_equal(again.steps[0].step, 49);
    assert_int_equal(skipped_at(&again, &n), GARBAGE);
    for (size_t i = 0; i < again.n_steps; i++)
        assert_memory_equal(&again.steps[i].v[BT_MS_LOSS],
                            &sink.steps[again.steps[i].step].v[BT_MS_LOSS], sizeof(double));
    unlink(path);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

/* ---- weights ----------------------------------------------------------------------------------- */

static bt_trainer *damaged;

static void damage_after_two(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step != 2) return;
    bt_model *m = bt_trainer_model(damaged);
    bt_model_weights(m)[bt_params_get(bt_model_params(m), -1, BT_P_FINAL_NORM)->offset] = NAN;
}

/* Every batch would look bad: not the batch is to blame, and a checkpoint has the weights. */
static void damaged_weights_are_no_bad_batch(void **state) {
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
    /* and goes on from the checkpoint as if nothing had been */
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

/* ---- the set ----------------------------------------------------------------------------------- */

static void the_set_of_skipped_sequences_survives(void **state) {
    (void)state;
    bt_skipped a = {0}, b = {0};
    bt_state from = {0}, to = {0};
    bt_text text;
    bt_err err = BT_ERR_INIT;
    for (int64_t i = 0; i < 100; i++) assert_int_equal(bt_skipped_add(&a, 48 * i, 16, &err), BT_OK);
    assert_int_equal(bt_skipped_add(&a, 48 * 99 + 16, 16, &err), BT_OK); /* the next step's */
    assert_int_equal(a.n, 100);
    assert_int_equal(bt_skipped_sequences(&a), 101 * 16);
    bt_skipped_add_state(&a, &from);
    bt_skipped_add_state(&b, &to);
    bt_text_init(&text);
    assert_int_equal(bt_state_save_values(&from, &text, &err), BT_OK);
    assert_int_equal(bt_state_load_values(&to, &text, &err), BT_OK);
    assert_int_equal(b.n, 100);
    assert_memory_equal(a.ranges, b.ranges, 100 * sizeof *a.ranges);
    static const char *const not_ours[] = {"{}", "{\"skipped\":{\"sequences\":[16,32,24,40]}}",
                                           "{\"skipped\":{\"sequences\":[16,\"32\"]}}",
                                           "{\"skipped\":{\"sequences\":[-1,5]}}"};
    for (size_t i = 0; i < 4; i++) {
        bt_text_clear(&text);
        bt_text_put(&text, not_ours[i]);
        assert_int_equal(bt_state_load_values(&to, &text, &err), BT_OK);
        assert_int_equal(b.n, 0);
    }
    bt_text_release(&text);
    bt_skipped_release(&a);
    bt_skipped_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_in_the_data_is_skipped),
        cmocka_unit_test(a_resumed_run_judges_the_same),
        cmocka_unit_test(damaged_weights_are_no_bad_batch),
        cmocka_unit_test(the_set_of_skipped_sequences_survives),
    };
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}
