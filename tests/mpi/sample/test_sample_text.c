// ctest: ranks=2
/* The text that a model generates at validations is the same on one rank and in every layout, begins with the given
 * prompt, and differs between models. */
#include "tests/engine/data/data_fixture.h"
#include "tests/mpi/layouts.h"

static char data_path[300];
static fake_sink heard;

static void write_data(void) {
    static const char *const words[] = {"the ", "cat ",   "sat ",  "on ",
                                        "a ",   "mat.\n", "Dogs ", "ran "};
    static char text[40000];
    uint64_t random = 1;
    for (size_t n = 0; n + 8 < sizeof text;) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s", words[random >> 61]);
    }
    snprintf(data_path, sizeof data_path, "%s", fixture_text("text.txt", text));
}

/* the texts of a run in order, from the bodies of its events */
typedef struct samples {
    size_t n;
    char body[8][256];
    int64_t step[8];
} samples;

static bt_run_cfg cfg_of(const char *data, const char *const *more) {
    const char *words[64] = {"--set",   "model.vocab=256",
                             "--set",   "train.reproducible=true",
                             "--set",   "train.unit=4",
                             "--steps", "24",
                             "--lr",    "3e-2",
                             "--set",   "data.val_frac=0.1",
                             "--set",   "train.eval_every=4",
                             "--set",   "train.eval_tokens=480",
                             "--set",   "train.sample_tokens=12"};
    bt_run_cfg cfg;
    size_t n = 0;
    while (words[n]) n++;
    while (more && *more) words[n++] = *more++;
    tiny_cfg(&cfg, words);
    snprintf(cfg.data.path, sizeof cfg.data.path, "%s", data);
    snprintf(cfg.data.cache, sizeof cfg.data.cache, "%s", fixture_dir);
    return cfg;
}

static samples run_and_collect_samples(const char *data, const char *const *more) {
    bt_run_cfg cfg = cfg_of(data, more);
    bt_err err = BT_ERR_INIT;
    tiny_run(&cfg, &heard, NULL, "");
    if (bt_broadcast(bt_comm_world(), &heard, offsetof(fake_sink, last_checkpoint), 0, &err) !=
        BT_OK)
        fail_msg("%s", err.msg);
    samples all = {0};
    for (size_t i = 0; i < heard.n_events && all.n < 8; i++) {
        if (strcmp(heard.events[i].kind, "sample") != 0) continue;
        all.step[all.n] = heard.events[i].step;
        snprintf(all.body[all.n], sizeof all.body[0], "%s", heard.events[i].body);
        char *time = strstr(all.body[all.n++], ",\"took_ms\"");
        assert_non_null(time);
        *time = '\0';
    }
    return all;
}

static samples lonely;

static void every_layout_writes_the_text_of_one_rank(void **state) {
    (void)state;
    static const char *const layouts[][6] = {
        {NULL},        {"--tp", "2"},   {"--tp", "2", "--set", "mesh.sequence=false"},
        {"--pp", "2"}, {"--zero", "3"}, {"--zero", "3", "--set", "parallel.gather=step"}};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        samples s = run_and_collect_samples(data_path, layouts[l]);
        assert_int_equal(s.n, lonely.n);
        for (size_t i = 0; i < s.n; i++) {
            assert_int_equal(s.step[i], lonely.step[i]);
            assert_string_equal(s.body[i], lonely.body[i]);
        }
    }
}

static void a_text_for_every_validation_of_what_was_learned(void **state) {
    (void)state;
    assert_int_equal(lonely.n, 6);
    for (size_t i = 0; i < 6; i++) assert_int_equal(lonely.step[i], 4 * i + 3);
    assert_string_not_equal(lonely.body[0], lonely.body[5]);
}

static void the_configured_prompt_is_used(void **state) {
    (void)state;
    static const char *const words[] = {"--set", "train.sample_prompt=Dogs ran", NULL};
    samples s = run_and_collect_samples(data_path, words);
    assert_int_equal(s.n, 6);
    assert_non_null(strstr(s.body[0], "\"prompt\":\"Dogs ran\""));
}

/* Every validation generates a text for each prompt of a file, which has one per line. */
static void prompts_of_a_file_have_a_text_each(void **state) {
    (void)state;
    static char setting[340];
    snprintf(setting, sizeof setting, "train.sample_prompt=@%s",
             fixture_text("prompts.txt", "Dogs ran\r\n\nthe cat \n"));
    const char *const words[] = {"--set", setting, NULL};
    samples s = run_and_collect_samples(data_path, words);
    assert_int_equal(s.n, 8); /* eight of twelve texts fit the array */
    for (size_t i = 0; i < s.n; i++) {
        assert_int_equal(s.step[i], 4 * (i / 2) + 3);
        assert_non_null(
            strstr(s.body[i], i % 2 ? "\"prompt\":\"the cat \"" : "\"prompt\":\"Dogs ran\""));
    }
}

static void no_text_is_written_by_default(void **state) {
    (void)state;
    static const char *const none[] = {"--set", "train.sample_tokens=0", NULL};
    assert_int_equal(run_and_collect_samples(data_path, none).n, 0);
    assert_int_equal(run_and_collect_samples("synth:chain", NULL).n, 0);
}

static void assert_sample_refused(const char *setting, const char *says) {
    const char *const words[] = {"--set", setting, NULL};
    bt_run_cfg cfg = cfg_of(data_path, words);
    bt_err err = BT_ERR_INIT;
    bt_trainer *t = NULL;
    assert_int_equal(bt_kernels_select(cfg.launch.isa, &err), BT_OK);
    assert_int_equal(bt_threads_init(1, &err), BT_OK);
    bt_trainer_setup s = {.cfg = &cfg, .resume_dir = "", .attempt = 1};
    assert_int_equal(bt_trainer_create(&t, &s, &err), BT_ARG);
    if (!strstr(err.msg, says)) fail_msg("%s: %s", setting, err.msg);
    bt_threads_release();
}

/* A prompt that fills the sequence of 32 tokens ends the run with an error, and so does a file without prompts. */
static void impossible_prompts_are_refused(void **state) {
    (void)state;
    char setting[340];
    assert_sample_refused("train.sample_prompt=0123456789012345678901234567890123456789",
                          "no room");
    snprintf(setting, sizeof setting, "train.sample_prompt=@%s", fixture_text("none.txt", "\n"));
    assert_sample_refused(setting, "has no prompt");
    snprintf(setting, sizeof setting, "train.sample_prompt=@%s",
             fixture_text("long.txt", "Dogs\n0123456789012345678901234567890123456789\n"));
    assert_sample_refused(setting, "prompt 2 of train.sample_prompt");
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    void *state = NULL;
    if (fixture_setup(&state) != 0) return 1;
    write_data();
    lonely = run_and_collect_samples(data_path, NULL);
    if (bt_comm_init(&err) != BT_OK || bt_comm_size(bt_comm_world()) != 2) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_writes_the_text_of_one_rank),
        cmocka_unit_test(a_text_for_every_validation_of_what_was_learned),
        cmocka_unit_test(the_configured_prompt_is_used),
        cmocka_unit_test(no_text_is_written_by_default),
        cmocka_unit_test(prompts_of_a_file_have_a_text_each),
        cmocka_unit_test(impossible_prompts_are_refused),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fixture_teardown(&state);
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return 0;
}
