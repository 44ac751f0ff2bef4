/* test_saver_events.c - events and facts about checkpoints: a finished save, warnings about checkpoints of other
 * kernels, compilers, data or optimizer states, verification, delays, and the interval. */
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "engine/base/clock.h"
#include "engine/ckpt/format.h"
#include "engine/train/trainer_impl.h"
#include "tests/tiny_run.h"

static char dir[64], out_path[128], other_path[128];
static fake_sink sink;

static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/bt-saver-told-XXXXXX");
    if (!mkdtemp(dir)) return 1;
    snprintf(out_path, sizeof out_path, "%s/out", dir);
    snprintf(other_path, sizeof other_path, "%s/other", dir);
    return 0;
}

static int remove_dir(void **state) {
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

static const char *body_of(size_t event, const char *key, double *out) {
    const char *at = strstr(sink.events[event].body, key);
    assert_non_null(at);
    *out = strtod(at + strlen(key), NULL);
    return at;
}

static bool same_json(const char *a, const char *b) {
    json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
    const bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static void a_checkpoint_records_itself_and_its_run(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta;
    ckpt_manifest m;
    bt_text config;
    struct stat st;
    char path[1024], file[1200], begins[200];
    TINY(&cfg, "--out", out_path, "--steps", "8", "--ckpt-every", "8", "--set", "ckpt.async=false",
         "--set", "ckpt.memory=off", "--set", "data.val_frac=0.1", "--set", "train.eval_tokens=64",
         "--set", "train.eval_every=8", "--name", "calm-otter");
    memset(&sink, 0, sizeof sink);
    const int64_t began_us = bt_wall_us();
    bt_trainer *t = tiny_create(&cfg, &sink, NULL, "");
    t->saver.vocab_hash = 1; /* hash of the tokenizer, which is computed at the start */
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    const uint64_t params_hash = t->saver.params_hash, data_hash = t->saver.data_hash,
                   vocab_hash = t->saver.vocab_hash;
    bt_trainer_destroy(t);
    bt_threads_release();
    assert_int_equal(sink.n_checkpoints, 1);
    size_t event = 0;
    while (strcmp(sink.events[event].kind, "checkpoint") != 0) event++;
    assert_int_equal(sink.events[event].step, 7);
    assert_non_null(strstr(sink.events[event].title, "checkpoint after step 8: "));
    assert_non_null(strstr(sink.events[event].title, ", the best by validation so far"));
    snprintf(path, sizeof path, "%s/step-000000000008", out_path);
    assert_string_equal(r.checkpoint, path);
    assert_string_equal(r.trouble, "");
    assert_string_equal(sink.checkpoint_path, path);
    assert_int_equal(sink.last_checkpoint.step, 8);
    assert_true(sink.last_checkpoint.wall_us >= began_us &&
                sink.last_checkpoint.wall_us <= bt_wall_us());
    assert_int_equal(ckpt_manifest_read(path, &m, &err), BT_OK);
    snprintf(file, sizeof file, "%s/%s", path, m.files[0].name);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(sink.last_checkpoint.bytes, st.st_size);
    ckpt_manifest_release(&m);

    assert_int_equal(bt_ckpt_find(NULL, out_path, file, sizeof file, &meta, NULL, &err), BT_OK);
    assert_true(meta.step == 8 && meta.tokens == 8 * 512 && meta.attempt == 1);
    assert_string_equal(meta.run, "calm-otter");
    assert_string_equal(meta.isa, "generic");
    assert_string_equal(meta.build, __VERSION__);
    assert_true(meta.params_hash == params_hash && meta.data_hash == data_hash &&
                meta.vocab_hash == vocab_hash && vocab_hash != 1 && params_hash && data_hash);
    bt_text_init(&config);
    bt_run_cfg_texts(&cfg, &config);
    assert_true(same_json(bt_text_str(&config), bt_text_str(&meta.config)));
    bt_text_release(&config);
    snprintf(begins, sizeof begins,
             "{\"progress\":{\"updates\":8,\"lr_factor\":1},\"best\":{\"val_loss\":%.17g},"
             "\"failures\":{\"count\":0,\"trained_s\":",
             r.val_loss);
    if (strncmp(bt_text_str(&meta.state), begins, strlen(begins)) != 0)
        fail_msg("'%s' does not begin with '%s'", bt_text_str(&meta.state), begins);
    bt_ckpt_meta_release(&meta);
}

/* The link to the best checkpoint exists only if keep_best and an output folder are set. */
static void the_best_is_known_by_its_loss(void **state) {
    (void)state;
    static const struct {
        double best, loss;
        bool keep, out, wanted;
        double then;
    } rows[] = {{INFINITY, 2, true, true, true, 2}, {2, 2, true, true, false, 2},
                {2, 1.5, true, true, true, 1.5},    {2, NAN, true, true, false, 2},
                {2, 1.5, false, true, false, 1.5},  {2, 1.5, true, false, false, 1.5}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_run_cfg cfg;
        TINY(&cfg, "--out", rows[i].out ? out_path : "");
        cfg.ckpt.keep_best = rows[i].keep;
        bt_saver s = {.cfg = &cfg, .best = rows[i].best};
        assert_int_equal(bt_saver_validated(&s, rows[i].loss), rows[i].wanted);
        assert_true(s.best == rows[i].then);
    }
}

static void add_huge_slice(void *ctx, bt_state_use use, bt_slices *out) {
    (void)use;
    bt_slices_add(out, &(bt_ckpt_slice){.tensor = "w",
                                        .state = "weight",
                                        .tensor_elems = UINT64_C(1) << 60,
                                        .count = UINT64_C(1) << 60,
                                        .data = ctx});
}

/* If memory for a copy is refused, training waits for each checkpoint, and an event reports that. */
static void a_copy_that_is_too_large_is_reported(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    TINY(&cfg, "--out", out_path, "--set", "ckpt.memory=off");
    memset(&sink, 0, sizeof sink);
    bt_trainer *t = tiny_create(&cfg, &sink, NULL, "");
    bt_state_add(&t->saver.state,
                 &(bt_state_row){.name = "more", .ctx = t, .slices = add_huge_slice});
    t->at.step = 4;
    assert_int_equal(bt_saver_start(&t->saver, &err), BT_OK);
    assert_null(t->saver.async);
    assert_int_equal(sink.n_events, 1);
    assert_string_equal(sink.events[0].kind, "warning");
    assert_int_equal(sink.events[0].step, 3);
    assert_string_equal(
        sink.events[0].title,
        "no memory for a copy of the state: training pauses while a checkpoint is written");
    /* The interval therefore assumes blocking saves. */
    assert_true(t->saver.interval.cost_s == t->saver.interval.written_s);
    bt_trainer_destroy(t);
    bt_threads_release();
}

/* The facts contain the numbers of the interval and are emitted again after a change by a tenth. */
static void the_interval_is_recorded_when_it_changes(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    char want[64];
    TINY(&cfg, "--out", out_path, "--set", "ckpt.memory=off", "--set", "ckpt.every=0", "--set",
         "ckpt.minutes=30");
    memset(&sink, 0, sizeof sink);
    bt_trainer *t = tiny_create(&cfg, &sink, NULL, "");
    bt_saver *s = &t->saver;
    assert_true(s->interval.most_s == 1800);
    static const struct {
        double cost_s;
        bool told;
    } rows[] = {{0.5, true}, {0.55, false}, {0.45, false}, {0.7, true}, {0.4, true}, {1e-9, true}};
    s->interval.measured = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sink.n_facts = 0;
        s->interval.cost_s = rows[i].cost_s;
        assert_int_equal(bt_saver_start(s, &err), BT_OK);
        assert_int_equal(sink.n_facts, rows[i].told ? 3 : 0);
        if (!rows[i].told) continue;
        /* Both times grow with the training time: their values are between those before and after the call. */
        const int64_t began = s->interval.began_ns, now = bt_now_ns();
        const double mtbf_s = atof(fake_fact(&sink, "ckpt.mtbf_s"));
        assert_true(s->reported_interval_s >= bt_ckpt_interval_s(&s->interval, began) &&
                    s->reported_interval_s <= bt_ckpt_interval_s(&s->interval, now));
        assert_true(mtbf_s >= 86400 && mtbf_s < bt_ckpt_interval_mtbf_s(&s->interval, now) + 0.51);
        snprintf(want, sizeof want, "%.1f", s->reported_interval_s);
        assert_string_equal(fake_fact(&sink, "ckpt.interval_s"), want);
        snprintf(want, sizeof want, "%.6f", rows[i].cost_s);
        assert_string_equal(fake_fact(&sink, "ckpt.cost_s"), want);
    }
    /* There is no such fact for an interval in steps, or if checkpoints are off. */
    sink.n_facts = 0;
    t->cfg.ckpt.every = 5;
    s->interval.cost_s = 100;
    assert_int_equal(bt_saver_start(s, &err), BT_OK);
    t->cfg.ckpt.every = 0;
    s->interval.most_s = 0;
    assert_int_equal(bt_saver_start(s, &err), BT_OK);
    s->interval.most_s = 1800;
    t->cfg.run.out[0] = '\0';
    assert_int_equal(bt_saver_start(s, &err), BT_OK);
    assert_int_equal(sink.n_facts, 0);
    bt_trainer_destroy(t);
    bt_threads_release();
}

/* Writes a checkpoint of step 7 as another program, model or data set would have written it. */
static void save_as(bool other_program, bool other_data, bool other_model) {
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    bt_ckpt_meta meta = {.step = 0};
    bt_slices mine = {0};
    TINY(&cfg, "--out", other_path, "--set", "ckpt.memory=off");
    memset(&sink, 0, sizeof sink);
    bt_trainer *t = tiny_create(&cfg, &sink, NULL, "");
    t->at = (bt_progress){.step = 7, .updates = 6, .tokens = 99, .lr_factor = 0.5};
    t->saver.best = 1.25;
    bt_saver_identify(&t->saver, &meta);
    if (other_program) {
        strcpy(meta.isa, "abacus");
        strcpy(meta.build, "cc 0");
    }
    meta.data_hash += other_data;
    meta.params_hash += other_model;
    assert_int_equal(bt_state_save_values(&t->saver.state, &meta.state, &err), BT_OK);
    assert_int_equal(bt_state_slices(&t->saver.state, BT_STATE_SAVE, &mine, &err), BT_OK);
    const bt_ckpt_job job = {
        .dir = other_path, .meta = &meta, .slices = mine.at, .n = mine.n, .keep = 1};
    if (bt_ckpt_save(bt_comm_world(), &job, NULL, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_slices_release(&mine);
    bt_ckpt_meta_release(&meta);
    bt_trainer_destroy(t);
    bt_threads_release();
}

/* Compares the warnings of a run resumed from it, one per line, and the restored state of the trainer. */
static void check_warnings_of_resume(const bt_run_cfg *cfg, const char *want) {
    char told[1024] = "", path[200];
    memset(&sink, 0, sizeof sink);
    bt_trainer *t = tiny_create(cfg, &sink, NULL, other_path);
    for (size_t i = 0; i < sink.n_events; i++) {
        assert_string_equal(sink.events[i].kind, "warning");
        assert_int_equal(sink.events[i].step, 6);
        snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", sink.events[i].title);
    }
    assert_string_equal(told, want);
    const bt_progress *at = &t->at;
    assert_true(at->step == 7 && at->updates == 6 && at->tokens == 99 && at->lr_factor == 0.5);
    assert_true(t->saver.best == 1.25 && t->saver.step == 7);
    snprintf(path, sizeof path, "%s/step-000000000007", other_path);
    assert_string_equal(t->saver.path, path);
    bt_trainer_destroy(t);
    bt_threads_release();
}

static void assert_save_settings_refused(const bt_run_cfg *cfg, const char *want) {
    bt_err err = BT_ERR_INIT;
    bt_trainer *t = NULL;
    const bt_trainer_setup s = {.cfg = cfg, .resume_dir = other_path, .attempt = 1};
    assert_int_equal(bt_kernels_select(cfg->launch.isa, &err), BT_OK);
    assert_int_equal(bt_threads_init(1, &err), BT_OK);
    assert_int_equal(bt_trainer_create(&t, &s, &err), BT_ARG);
    assert_null(t);
    assert_string_equal(err.msg, want);
    bt_threads_release();
}

static void differences_are_reported(void **state) {
    (void)state;
    bt_run_cfg cfg;
    char want[400];
    save_as(false, false, false);
    TINY(&cfg, "--set", "ckpt.memory=off");
    check_warnings_of_resume(&cfg, "");
    save_as(true, true, false);
    assert_save_settings_refused(
        &cfg, "the data are not those of the checkpoint: a resumed run would see other tokens "
              "(give the same --data, or allow it with --other-data)");
    TINY(&cfg, "--set", "ckpt.memory=off", "--set", "optim.states=bf16", "--set",
         "optim.weights=bf16", "--other-data");
    check_warnings_of_resume(
        &cfg,
        "resumed on other data than the checkpoint's\n"
        "the checkpoint's optimizer states are fp32 and become bf16 (optim.states): each is "
        "rounded to the nearest once\n"
        "the checkpoint's weights of ternary layers are fp32 and become bf16 (optim.weights): "
        "each is rounded to the nearest once\n"
        "the checkpoint was written with abacus kernels, this run uses generic: losses may "
        "differ in the last bits\n"
        "the checkpoint was written by a build with another compiler (cc 0): losses may differ "
        "in the last bits\n");
    save_as(false, false, true);
    TINY(&cfg, "--set", "ckpt.memory=off");
    snprintf(want, sizeof want,
             "checkpoint '%s/step-000000000007' is of another model: its tensors differ in name or "
             "shape (same preset and model.* settings needed)",
             other_path);
    assert_save_settings_refused(&cfg, want);
}

static void verify_again(bt_saver *s) {
    bt_saver_check(s, true);
    for (int i = 0; i < 30000 && s->check; i++) {
        bt_sleep_ns(1000000);
        bt_saver_check(s, false);
    }
    assert_null(s->check);
}

/* Compares the newest event, which is the only new one. */
static void check_verification_event(size_t n, const char *kind, int64_t step, const char *begins) {
    double read_ms, of_step;
    char body[120];
    assert_int_equal(sink.n_events, n);
    assert_string_equal(sink.events[n - 1].kind, kind);
    assert_int_equal(sink.events[n - 1].step, step);
    body_of(n - 1, "\"step\":", &of_step);
    body_of(n - 1, "\"read_ms\":", &read_ms);
    snprintf(body, sizeof body, "{\"step\":%.0f,\"read_ms\":%.3f}", of_step, read_ms);
    assert_string_equal(sink.events[n - 1].body, body);
    assert_true(of_step == 7);
    if (strncmp(sink.events[n - 1].title, begins, strlen(begins)) != 0)
        fail_msg("'%s' does not begin with '%s'", sink.events[n - 1].title, begins);
}

static void results_of_verification_are_reported(void **state) {
    (void)state;
    bt_run_cfg cfg;
    bt_err err = BT_ERR_INIT;
    bt_telemetry telemetry;
    bt_progress at = {.step = 12};
    bt_ckpt_meta meta;
    ckpt_manifest m;
    struct stat st;
    char path[1024], file[1200], says[200], size[32];
    save_as(false, false, false);
    assert_int_equal(bt_ckpt_find(NULL, other_path, path, sizeof path, &meta, NULL, &err), BT_OK);
    bt_ckpt_meta_release(&meta);
    assert_int_equal(ckpt_manifest_read(path, &m, &err), BT_OK);
    snprintf(file, sizeof file, "%s/%s", path, m.files[0].name);
    ckpt_manifest_release(&m);
    assert_int_equal(stat(file, &st), 0);
    TINY(&cfg, "--out", other_path);
    memset(&sink, 0, sizeof sink);
    const bt_sink to = fake_sink_of(&sink);
    assert_int_equal(bt_telemetry_init(&telemetry, bt_comm_world(), &to, &err), BT_OK);
    bt_saver s = {.cfg = &cfg,
                  .world = bt_comm_world(),
                  .telemetry = &telemetry,
                  .at = &at,
                  .step = 7,
                  .checked_step = -1};
    verify_again(&s); /* no path is set yet */
    snprintf(s.path, sizeof s.path, "%s", path);
    s.step = -1;
    verify_again(&s);
    s.step = 7;
    cfg.ckpt.verify = false;
    verify_again(&s);
    assert_true(sink.n_events == 0 && s.checked_step == -1 && s.next_check_ns == 0);
    cfg.ckpt.verify = true;
    verify_again(&s);
    snprintf(says, sizeof says, "checkpoint after step 7 verified on disk (%s in ",
             bt_metric_format(size, sizeof size, (double)st.st_size, BT_UNIT_BYTES));
    check_verification_event(1, "ckpt_verified", 11, says);
    assert_true(s.checked_step == 7 && s.check_step == 7 && !s.damaged);
    verify_again(&s); /* a second call has no effect */
    assert_int_equal(sink.n_events, 1);
    /* The file is truncated while it is the newest, and after another checkpoint has replaced it. */
    assert_int_equal(truncate(file, st.st_size - 1), 0);
    s.checked_step = -1;
    bt_saver_check(&s, true);
    s.step = 9;
    for (int i = 0; i < 30000 && s.check; i++) {
        bt_sleep_ns(1000000);
        bt_saver_check(&s, false);
    }
    assert_true(!s.check && sink.n_events == 1 && !s.damaged);
    s.step = 7, s.checked_step = -1;
    verify_again(&s);
    check_verification_event(
        2, "ckpt_damaged", 11,
        "checkpoint after step 7 is damaged on disk, another one is written: '/tmp/");
    assert_true(s.damaged);
    bt_telemetry_release(&telemetry);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_records_itself_and_its_run),
        cmocka_unit_test(the_best_is_known_by_its_loss),
        cmocka_unit_test(a_copy_that_is_too_large_is_reported),
        cmocka_unit_test(the_interval_is_recorded_when_it_changes),
        cmocka_unit_test(differences_are_reported),
        cmocka_unit_test(results_of_verification_are_reported),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
