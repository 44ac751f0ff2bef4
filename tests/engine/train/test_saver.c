/* test_saver.c - checkpoints of a training and their events: the tokenizer in them, failed saves, damaged checkpoints
 * that are skipped, repeated verification of the newest one, and resuming from a state in memory only with the same
 * data. */
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/clock.h"
#include "engine/ckpt/memory/memory_state.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/train/trainer_impl.h"
#include "tests/tiny_run.h"

enum { STEPS = 10 };
static const int64_t S = 1000000000;

static char dir[64], out_path[128], text_path[128], shared[64], home[1024];
static fake_sink straight, first, second;

static int make_dirs(void **state) {
    (void)state;
    strcpy(dir, "/tmp/bt-saver-XXXXXX");
    strcpy(shared, "/dev/shm/bt-saver-XXXXXX");
    if (!mkdtemp(dir) || !mkdtemp(shared) || !getcwd(home, sizeof home)) return 1;
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    snprintf(text_path, sizeof text_path, "%s/text.txt", dir);
    FILE *f = fopen(text_path, "w");
    if (!f) return 1;
    for (int i = 0; i < 1500; i++) fprintf(f, "line %d is not line %d.\n", i, i * i);
    return fclose(f);
}

static int remove_dirs(void **state) {
    char command[200];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", dir, shared);
    return system(command);
}

static double number_in(const char *body, const char *key) {
    const char *at = strstr(body, key);
    return at ? strtod(at + strlen(key), NULL) : NAN;
}

/* Returns the text after these words in a format; NULL if they are absent. */
static const char *text_after(const char *text, const char *words) {
    const char *at = strstr(text, words);
    return at ? at + strlen(words) : NULL;
}

/* The folder may have a name of one letter. */
static void checkpoints_are_events_and_rows(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, "--out", "o", "--ckpt-every", "4", "--set", "ckpt.async=false", "--set",
         "ckpt.memory=off");
    assert_int_equal(chdir(dir), 0);
    tiny_run(&cfg, &first, NULL, "");
    TINY(&cfg, "--out", "o", "--steps", "2");
    tiny_run(&cfg, &second, NULL, "");
    assert_int_equal(chdir(home), 0);
    /* facts about the time-based interval, emitted at the start */
    static const char *const facts[] = {"ckpt.interval_s", "ckpt.cost_s", "ckpt.mtbf_s"};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *value = fake_fact(&second, facts[i]);
        if (!value || !(atof(value) > 0)) fail_msg("%s is '%s'", facts[i], value ? value : "");
    }
    assert_int_equal(first.n_checkpoints, 2);
    assert_int_equal(fake_events_of(&first, "checkpoint"), 2);
    assert_int_equal(fake_events_of(&first, "checkpoint_failed"), 0);
}

/* Other versions of the program read these rows of the state by name. */
static void rows_of_the_state_have_their_names(void **state) {
    static const char *const names[] = {"progress", "best", "failures"};
    bt_run_cfg cfg;
    bt_ckpt_meta meta;
    bt_err err = BT_ERR_INIT;
    char path[1024], want[40];
    (void)state;
    TINY(&cfg, "--out", out_path, "--set", "ckpt.final=true", "--set", "ckpt.memory=off", "--steps",
         "2");
    tiny_run(&cfg, &first, NULL, "");
    if (bt_ckpt_find(NULL, out_path, path, sizeof path, &meta, NULL, &err) != BT_OK)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(want, sizeof want, "\"%s\":{", names[i]);
        if (!strstr(bt_text_str(&meta.state), want)) fail_msg("no row '%s'", names[i]);
    }
    bt_ckpt_meta_release(&meta);
}

/* Replaces the folder by a file at the third step. */
static void replace_folder_by_file(void *arg, const bt_step_record *r) {
    char command[300];
    if (r->step != 2) return;
    snprintf(command, sizeof command, "rm -rf '%s' && echo >'%s'", (const char *)arg,
             (const char *)arg);
    assert_int_equal(system(command), 0);
}

/* A failed save loses only the checkpoint; its event contains the step and the reason. */
static void a_failed_save_is_an_event(void **state) {
    bt_run_cfg cfg;
    char spoilt[160];
    (void)state;
    for (int beside = 0; beside < 2; beside++) {
        snprintf(spoilt, sizeof spoilt, "%s/spoilt%d", dir, beside);
        TINY(&cfg, "--out", spoilt, "--ckpt-every", "4", "--set", "ckpt.memory=off", "--set",
             beside ? "ckpt.async=true" : "ckpt.async=false");
        first.on_step = replace_folder_by_file;
        first.arg = spoilt;
        const int64_t began_ns = bt_now_ns();
        const bt_train_result r = tiny_run(&cfg, &first, NULL, "");
        const double most_ms = (double)(bt_now_ns() - began_ns) / 1e6;
        first.on_step = NULL;
        assert_int_equal(first.n_steps, STEPS);
        assert_int_equal(first.n_checkpoints, 0);
        assert_int_equal(fake_events_of(&first, "checkpoint_failed"), 2);
        for (size_t i = 0, step = 4; i < first.n_events; i++) {
            if (strcmp(first.events[i].kind, "checkpoint_failed") != 0) continue;
            const double took_ms = number_in(first.events[i].body, "\"took_ms\":");
            char says[80];
            snprintf(says, sizeof says,
                     "checkpoint after step %zu failed, training continues: ", step);
            const char *why = text_after(first.events[i].title, says);
            assert_non_null(why);
            assert_non_null(strstr(why, spoilt));
            assert_int_equal(first.events[i].step, step - 1);
            assert_true(took_ms > 0 && took_ms < most_ms);
            step += 4;
        }
        assert_non_null(strstr(r.trouble, spoilt)); /* The newest save failed. */
    }
}

/* Truncates the data of the newest checkpoint. */
static void truncate_newest(const char *out, const char *checkpoint) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", out, checkpoint);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s/%s", out, checkpoint, e->d_name);
        if (strncmp(e->d_name, "data-", 5) != 0) continue;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(truncate(path, st.st_size - 1), 0);
    }
    closedir(d);
}

static void a_skipped_checkpoint_is_an_event(void **state) {
    bt_run_cfg cfg;
    char out[160];
    (void)state;
    snprintf(out, sizeof out, "%s/over", dir);
    TINY(&cfg, "--out", out, "--ckpt-every", "3", "--set", "ckpt.memory=off");
    tiny_run(&cfg, &first, NULL, "");
    assert_int_equal(first.last_checkpoint.step, 9);
    truncate_newest(out, "step-000000000009");
    tiny_run(&cfg, &second, NULL, out);
    assert_int_equal(second.n_steps, STEPS - 6);
    assert_int_equal(fake_events_of(&second, "ckpt_damaged"), 1);
    for (size_t i = 0; i < second.n_events; i++) {
        if (strcmp(second.events[i].kind, "ckpt_damaged") != 0) continue;
        assert_non_null(strstr(second.events[i].title, "step-000000000009 passed over"));
        assert_int_equal(second.events[i].step, -1); /* The event precedes the first step. */
    }
}

/* Weights of a checkpoint with the same shapes give no warning; of another model the tensors that fit are used and the
 * remaining tensors are reported. */
static void init_from_reports_what_differs(void **state) {
    bt_run_cfg cfg;
    char out[160];
    (void)state;
    snprintf(out, sizeof out, "%s/deep", dir);
    TINY(&cfg, "--set", "model.vocab=256", "--out", out, "--set", "ckpt.final=true", "--set",
         "ckpt.memory=off");
    tiny_run(&cfg, &first, NULL, "");
    for (int layers = 2; layers > 0; layers--) {
        TINY(&cfg, "--set", "model.vocab=256", "--init-from", out, "--steps", "2", "--set",
             layers == 2 ? "model.layers=2" : "model.layers=1");
        tiny_run(&cfg, &second, NULL, "");
        assert_int_equal(second.n_steps, 2);
        assert_int_equal(fake_events_of(&second, "warning") > 0, layers == 1);
        for (size_t i = 0; i < second.n_events; i++)
            if (strcmp(second.events[i].kind, "warning") == 0)
                assert_int_equal(second.events[i].step, -1);
    }
}

static char words_path[128];

static void delete_tokenizer_file(void *arg, const bt_step_record *r) {
    (void)arg;
    if (r->step == 1) assert_int_equal(unlink(words_path), 0);
}

/* Each checkpoint contains the tokenizer, even if the tokenizer's file is deleted during the run. */
static void checkpoints_have_the_tokenizer_of_the_start(void **state) {
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    bt_tokenizer *tok = NULL;
    bt_text words;
    bt_ckpt_meta meta;
    char path[PATH_MAX], out[128];
    (void)state;
    bt_text_init(&words);
    assert_int_equal(bt_tokenizer_load(&tok, "bytes", &err), BT_OK);
    bt_tokenizer_save(tok, &words);
    snprintf(words_path, sizeof words_path, "%s/words.json", dir);
    FILE *f = fopen(words_path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(words.data, 1, words.len, f), words.len);
    assert_int_equal(fclose(f), 0);
    snprintf(out, sizeof out, "%s/words", dir);
    TINY(&cfg, "--set", "model.vocab=512", "--out", out, "--ckpt-every", "4", "--set",
         "ckpt.memory=off");
    snprintf(cfg.data.path, sizeof cfg.data.path, "%s", text_path);
    snprintf(cfg.data.tokenizer, sizeof cfg.data.tokenizer, "%s", words_path);
    first.on_step = delete_tokenizer_file;
    tiny_run(&cfg, &first, NULL, "");
    first.on_step = NULL;
    assert_int_equal(first.n_steps, STEPS);
    assert_int_equal(first.n_checkpoints, 2);
    assert_int_equal(bt_ckpt_find(NULL, out, path, sizeof path, &meta, NULL, &err), BT_OK);
    assert_string_equal(bt_text_str(&meta.tokenizer), bt_text_str(&words));
    assert_true(meta.vocab_hash == bt_tokenizer_hash(tok));
    bt_ckpt_meta_release(&meta);
    bt_text_release(&words);
    bt_tokenizer_free(tok);
}

/* Runs the verification to its end; returns its start in nanoseconds. */
static int64_t read_to_its_end(bt_saver *s) {
    int64_t began = bt_now_ns();
    for (int i = 0; i < 30000 && s->check; i++) {
        bt_sleep_ns(1000000);
        began = bt_now_ns();
        bt_saver_check(s, false);
    }
    assert_null(s->check);
    return began;
}

static void the_newest_checkpoint_is_verified_later(void **state) {
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    bt_telemetry t;
    bt_progress at = {.step = 12};
    (void)state;
    TINY(&cfg, "--out", out_path, "--set", "ckpt.final=true", "--set", "ckpt.memory=off");
    const bt_train_result made = tiny_run(&cfg, &first, NULL, "");
    memset(&second, 0, offsetof(fake_sink, on_step));
    const bt_sink sink = fake_sink_of(&second);
    assert_int_equal(bt_telemetry_init(&t, bt_comm_world(), &sink, &err), BT_OK);
    bt_saver s = {.cfg = &cfg,
                  .world = bt_comm_world(),
                  .telemetry = &t,
                  .at = &at,
                  .step = STEPS,
                  .checked_step = -1};
    snprintf(s.path, sizeof s.path, "%s", made.checkpoint);
    s.saved_ns = bt_now_ns();
    bt_saver_check(&s, false);
    assert_null(s.check); /* A checkpoint that is replaced within two seconds is not verified. */
    s.saved_ns -= 5 * S / 2;
    s.next_check_ns = bt_now_ns() + 3600 * S;
    bt_saver_check(&s, false);
    assert_null(s.check); /* No verification begins shortly after the previous one. */
    s.next_check_ns = 0;
    bt_saver_check(&s, false);
    assert_non_null(s.check);
    const int64_t began = read_to_its_end(&s);
    assert_int_equal(second.n_events, 1);
    assert_string_equal(second.events[0].kind, "ckpt_verified");
    assert_int_equal(second.events[0].step, 11); /* current step of the training */
    assert_true(number_in(second.events[0].body, "\"step\":") == STEPS);
    /* Verification may use a hundredth of the time: the next one begins after a hundred times the duration of this
     * one. */
    const double read_ns = 1e6 * number_in(second.events[0].body, "\"read_ms\":");
    assert_true(read_ns > 0 && (double)(s.next_check_ns - began) > 99 * read_ns);
    assert_false(s.damaged || bt_saver_due(&s));
    s.next_check_ns = 0;
    bt_saver_check(&s, false);
    assert_null(s.check); /* The verification has ended. */

    /* The checkpoint was deleted: the next one is due at once. */
    s.step = s.at->step = 13;
    snprintf(s.path, sizeof s.path, "%s/none", dir);
    bt_saver_check(&s, true); /* a paused run writes no checkpoint by time */
    if (s.check) read_to_its_end(&s);
    assert_int_equal(second.n_events, 2);
    assert_string_equal(second.events[1].kind, "ckpt_damaged");
    assert_non_null(strstr(second.events[1].title, "cannot be read back from disk"));
    assert_int_equal(second.events[1].step, 12);
    assert_true(number_in(second.events[1].body, "\"step\":") == 13);
    assert_true(s.damaged && bt_saver_due(&s));
    bt_telemetry_release(&t);
}

/* A time-based checkpoint is due one interval after the newest, unless a save is in progress. */
static void a_checkpoint_is_due_after_the_interval(void **state) {
    bt_run_cfg cfg;
    (void)state;
    TINY(&cfg, "--out", out_path, "--set", "ckpt.every=0");
    bt_saver s = {.cfg = &cfg,
                  .interval = {.most_s = 1000, .cost_s = 1, .written_s = 1e9, .measured = true}};
    s.saved_ns = bt_now_ns() - 1 * S;
    assert_false(bt_saver_due(&s));
    s.saved_ns = bt_now_ns() - 1000 * S;
    assert_true(bt_saver_due(&s));
    s.interval.most_s = 0;
    assert_false(bt_saver_due(&s));
    s.interval.most_s = 1000;
    cfg.ckpt.every = 5; /* a number of steps replaces the time */
    assert_false(bt_saver_due(&s));
    cfg.ckpt.every = 0;
    cfg.run.out[0] = '\0';
    assert_false(bt_saver_due(&s));
    s.damaged = true;
    assert_true(bt_saver_due(&s));
}

static bt_code create_trainer_resumed(bt_trainer **t, const bt_run_cfg *cfg, fake_sink *f,
                                      const char *resume_dir, bt_err *err) {
    static bt_sink sink;
    memset(f, 0, offsetof(fake_sink, on_step));
    sink = fake_sink_of(f);
    if (bt_kernels_select(cfg->launch.isa, err) != BT_OK || bt_threads_init(1, err) != BT_OK)
        fail_msg("%s", err->msg);
    return bt_trainer_create(t,
                             &(bt_trainer_setup){.cfg = cfg,
                                                 .sink = &sink,
                                                 .resume_dir = resume_dir,
                                                 .memory_dir = shared,
                                                 .attempt = 1},
                             err);
}

static void train_once_more(const bt_run_cfg *cfg, fake_sink *f, const char *resume_dir) {
    bt_err err = BT_ERR_INIT;
    bt_trainer *t = NULL;
    bt_train_result r;
    if (create_trainer_resumed(&t, cfg, f, resume_dir, &err) != BT_OK ||
        bt_trainer_run(t, &r, &err) != BT_OK)
        fail_msg("%s", err.msg);
    bt_trainer_destroy(t);
    bt_threads_release();
}

static void assert_saver_refused(const bt_run_cfg *cfg, const char *says) {
    bt_err err = BT_ERR_INIT;
    bt_trainer *t = NULL;
    bt_memory_id id;
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_int_equal(create_trainer_resumed(&t, cfg, &second, shared, &err), BT_ARG);
    assert_null(t);
    if (!strstr(err.msg, says)) fail_msg("'%s' does not contain '%s'", err.msg, says);
    /* The next attempt resumes from the disk. */
    assert_false(bt_memory_state_find(shared, &id, NULL));
    bt_threads_release();
}

/* Returns the configuration of a run on text with the additional settings `more`. */
static bt_run_cfg config_for_text_file(const char *out, const char *stop_after, const char *more) {
    bt_run_cfg cfg;
    TINY(&cfg, "--set", "model.vocab=256", "--out", out, "--stop-after", stop_after, "--set", more);
    snprintf(cfg.data.path, sizeof cfg.data.path, "%s", text_path);
    return cfg;
}

static void train_interrupted(void) {
    const bt_run_cfg cfg = config_for_text_file(out_path, "5", "ckpt.memory=auto");
    train_once_more(&cfg, &first, "");
    assert_int_equal(first.n_steps, 5);
}

static void a_run_resumes_from_its_state_in_memory(void **state) {
    bt_run_cfg cfg = config_for_text_file(out_path, "0", "ckpt.memory=off");
    bt_memory_id id;
    (void)state;
    cfg.run.out[0] = '\0';
    train_once_more(&cfg, &straight, "");
    assert_int_equal(straight.n_steps, STEPS);
    train_interrupted();
    const char *told = fake_fact(&first, "memory_states"),
               *size = told ? text_after(told, "two, ") : NULL;
    assert_true(size == told + strlen("two, ") && atof(size) > 0);
    assert_string_equal(strstr(told, " on"), " on rank 0");
    assert_true(bt_memory_state_find(shared, &id, NULL));
    assert_true(id.step >= 1 && id.step <= 5);
    cfg = config_for_text_file(out_path, "0", "ckpt.memory=auto");
    train_once_more(&cfg, &second, shared);
    assert_int_equal(second.n_steps, STEPS - id.step);
    for (size_t i = 0; i < second.n_steps; i++)
        if (second.steps[i].v[BT_MS_LOSS] != straight.steps[(size_t)id.step + i].v[BT_MS_LOSS])
            fail_msg("step %d has another loss", (int)second.steps[i].step);
}

static void a_state_in_memory_of_another_run_is_refused(void **state) {
    (void)state;
    train_interrupted();
    bt_run_cfg cfg = config_for_text_file(out_path, "0", "ckpt.memory=auto");
    memcpy(cfg.data.path, "synth:chain", sizeof "synth:chain");
    assert_saver_refused(&cfg, "the data are not those of the checkpoint");
    train_interrupted();
    cfg = config_for_text_file(out_path, "0", "model.d_ff=128");
    assert_saver_refused(&cfg, "the state in memory is of another model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_are_events_and_rows),
        cmocka_unit_test(checkpoints_have_the_tokenizer_of_the_start),
        cmocka_unit_test(rows_of_the_state_have_their_names),
        cmocka_unit_test(a_failed_save_is_an_event),
        cmocka_unit_test(a_skipped_checkpoint_is_an_event),
        cmocka_unit_test(init_from_reports_what_differs),
        cmocka_unit_test(the_newest_checkpoint_is_verified_later),
        cmocka_unit_test(a_checkpoint_is_due_after_the_interval),
        cmocka_unit_test(a_run_resumes_from_its_state_in_memory),
        cmocka_unit_test(a_state_in_memory_of_another_run_is_refused),
    };
    return cmocka_run_group_tests(tests, make_dirs, remove_dirs);
}
