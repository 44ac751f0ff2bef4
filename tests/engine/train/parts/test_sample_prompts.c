/* test_sample_prompts.c - prompts of a sample text: tokens of the data, a given text, or the lines of a file; the
 * number of generated tokens, and the errors. A small model generates the text; test_sample_text.c compares the texts
 * of all layouts. */
#include <unistd.h>

#include "engine/parallel/shard/shard_map.h"
#include "engine/train/parts/samples/sample_text.h"
#include "tests/engine/model/engine_fixture.h"
#include "tests/engine/model/small_model.h"

enum { T = 200, VOCAB = 256 };

static bt_run_cfg cfg;
static bt_err err;
static bt_mesh mesh;
static bt_shards shards;
static bt_model *model;
static bt_weights *weights;
static bt_text prompt, text; /* prompt and text of the newest sample */
static int32_t beginning[300];

static int make_model(void **state) {
    bt_model_setup setup = small_setup(1, T, VOCAB, 16, 16);
    setup.train = false;
    if (engine_start(state) != 0) return 1;
    model = small_model(&setup, 3);
    bt_model_quantise(model);
    bt_shards_init(&shards, bt_model_params(model)->total, 1 << 20, 1, 1);
    for (int i = 0; i < 300; i++) beginning[i] = 'A' + i % 26;
    bt_text_init(&prompt);
    bt_text_init(&text);
    return bt_mesh_create(&mesh, &(bt_mesh_shape){1, 1, 1, 1}, bt_comm_world(), &err) != BT_OK ||
           bt_weights_create(
               &weights,
               &(bt_weights_cfg){
                   .model = model, .mesh = &mesh, .shards = &shards, .prec = BT_PREC_FP32},
               &err) != BT_OK;
}

static int destroy_model(void **state) {
    bt_text_release(&prompt);
    bt_text_release(&text);
    bt_weights_destroy(weights);
    bt_mesh_release(&mesh);
    bt_model_destroy(model);
    return engine_stop(state);
}

static void set_sample_settings(int seq_len, int sample_tokens, const char *of_sample) {
    memset(&cfg, 0, sizeof cfg);
    strcpy(cfg.data.path, "text.txt");
    strcpy(cfg.data.tokenizer, "bytes");
    snprintf(cfg.samples.sample_prompt, sizeof cfg.samples.sample_prompt, "%s", of_sample);
    cfg.model.seq_len = seq_len;
    cfg.samples.sample_tokens = sample_tokens;
    cfg.model.vocab = VOCAB;
    cfg.run.seed = 5;
    err = (bt_err)BT_ERR_INIT;
}

static bt_sample_text *create_sample(size_t n) {
    bt_sample_text *s = (bt_sample_text *)(void *)&err;
    if (bt_sample_text_create(&s, &cfg, bt_comm_world(), beginning, n, &err) != BT_OK)
        assert_null(s);
    return s;
}

/* Generates a text; checks the prompt and the number of generated tokens, which are bytes. */
static void check_generated(bt_sample_text *s, const char *want, size_t n) {
    assert_non_null(s);
    bt_text_clear(&prompt);
    bt_text_clear(&text);
    if (bt_sample_text_run(s, model, NULL, weights, &prompt, &text, &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(bt_text_str(&prompt), want);
    assert_int_equal(text.len, n);
}

static void assert_prompt_refused(const bt_sample_text *s, bt_code code, const char *phrase) {
    assert_null(s);
    assert_int_equal(err.code, code);
    if (!strstr(err.msg, phrase)) fail_msg("'%s' does not contain '%s'", err.msg, phrase);
    err = (bt_err)BT_ERR_INIT;
}

/* A prompt from the data has at most 32 tokens and half a sequence; the text has the requested length if it fits. */
static void data_begin_a_text(void **state) {
    (void)state;
    static const struct {
        int seq_len, tokens;
        size_t n;
        int prompt, text;
    } rows[] = {{200, 8, 300, 32, 8},  {200, 300, 300, 32, 168}, {64, 8, 300, 32, 8},
                {62, 8, 300, 31, 8},   {20, 8, 300, 10, 8},      {20, 12, 300, 10, 10},
                {20, 10, 300, 10, 10}, {200, 8, 5, 5, 8},        {200, 8, 1, 1, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[64] = "";
        for (int k = 0; k < rows[i].prompt; k++) want[k] = (char)beginning[k];
        set_sample_settings(rows[i].seq_len, rows[i].tokens, "");
        bt_sample_text *s = create_sample(rows[i].n);
        check_generated(s, want, (size_t)rows[i].text);
        assert_null(bt_sample_text_next(s));
        bt_sample_text_destroy(s);
    }
    set_sample_settings(200, 8, "");
    strcpy(cfg.data.path, "synthetic.txt"); /* a file in spite of its name */
    bt_sample_text *s = create_sample(300);
    assert_non_null(s);
    bt_sample_text_destroy(s);
    /* There is no sample if none is requested, if the data are not text, or if there are no data. */
    set_sample_settings(200, 0, "");
    assert_null(create_sample(300));
    set_sample_settings(200, 8, "");
    strcpy(cfg.data.path, "synth:chain");
    assert_null(create_sample(300));
    set_sample_settings(200, 8, "");
    assert_null(create_sample(0));
    assert_int_equal(err.code, BT_OK);
    bt_sample_text_destroy(NULL);
}

/* The text is a function of model, prompt and seed; NUL becomes a space. */
static void a_text_can_be_repeated(void **state) {
    (void)state;
    char first[T + 1];
    set_sample_settings(T, 150, "abcde");
    bt_sample_text *s = create_sample(0), *again = create_sample(0);
    check_generated(s, "abcde", 150);
    assert_int_equal(strlen(bt_text_str(&text)), 150);
    strcpy(first, bt_text_str(&text));
    check_generated(s, "abcde", 150);
    assert_string_equal(bt_text_str(&text), first);
    check_generated(again, "abcde", 150);
    assert_string_equal(bt_text_str(&text), first);
    bt_sample_text_destroy(again);
    cfg.run.seed = 6;
    again = create_sample(0);
    check_generated(again, "abcde", 150);
    assert_string_not_equal(bt_text_str(&text), first);
    bt_sample_text_destroy(again);
    bt_sample_text_destroy(s);
}

static void a_prompt_leaves_room_for_a_token(void **state) {
    (void)state;
    set_sample_settings(6, 8, "abcde");
    bt_sample_text *s = create_sample(300);
    check_generated(s, "abcde", 1);
    bt_sample_text_destroy(s);
    set_sample_settings(5, 8, "abcde");
    assert_prompt_refused(create_sample(300), BT_ARG,
                          "train.sample_prompt has 5 tokens, a sequence has 5");
    set_sample_settings(50, 8, "abcde");
    cfg.model.vocab = 'e';
    assert_prompt_refused(create_sample(300), BT_ARG,
                          "the token 101, the model's vocabulary has 101");
    static const char *const outside[] = {
        "ea", "a~"}; /* first or last token; larger than the vocabulary */
    for (int i = 0; i < 2; i++) {
        strcpy(cfg.samples.sample_prompt, outside[i]);
        assert_prompt_refused(create_sample(300), BT_ARG, "vocabulary");
    }
    strcpy(cfg.samples.sample_prompt, "abcde");
    cfg.model.vocab = 'e' + 1;
    s = create_sample(300);
    assert_non_null(s);
    bt_sample_text_destroy(s);
    strcpy(cfg.data.tokenizer, "/nowhere/words.json");
    assert_prompt_refused(create_sample(300), BT_NOTFOUND, "/nowhere/words.json");
}

static bt_sample_text *request_prompt(const char *of_user) {
    bt_sample_text *s = NULL;
    (void)!bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), of_user, &err);
    return s;
}

static void a_requested_prompt_replaces_the_data(void **state) {
    (void)state;
    static const struct {
        int tokens;
        const char *prompt;
        size_t text;
    } rows[] = {{0, "say", 64}, {4, "say", 4}, {4, "s\xc3\xa4y", 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        set_sample_settings(200, rows[i].tokens, "");
        bt_sample_text *s = request_prompt(rows[i].prompt);
        check_generated(s, rows[i].prompt, rows[i].text);
        bt_sample_text_destroy(s);
    }
    assert_prompt_refused(request_prompt(""), BT_ARG, "the prompt is empty");
    assert_prompt_refused(request_prompt(NULL), BT_ARG, "the prompt is empty");
    set_sample_settings(3, 4, "");
    assert_prompt_refused(request_prompt("say"), BT_ARG,
                          "the prompt has 3 tokens, a sequence has 3");
    set_sample_settings(200, 4, "");
    strcpy(cfg.data.labels, "a");
    assert_prompt_refused(request_prompt("say"), BT_UNSUPPORTED, "a classifier");
    strcpy(cfg.data.path, "synth:chain");
    assert_prompt_refused(request_prompt("say"), BT_UNSUPPORTED, "'synth:chain'");
}

static char path[] = "/tmp/bt-prompts-XXXXXX";

static void write_prompt_file(const char *lines) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(lines, f) >= 0 && fclose(f) == 0);
}

static void lines_of_a_file_are_prompts(void **state) {
    (void)state;
    static const char *const prompts[] = {"one", " two ", "three"};
    char at[64], many[200] = "";
    int n = 0;
    snprintf(at, sizeof at, "@%s", path);
    write_prompt_file("one\r\n\n two \nthree");
    set_sample_settings(200, 4, at);
    bt_sample_text *s = create_sample(0);
    for (bt_sample_text *one = s; one; one = bt_sample_text_next(one), n++) {
        assert_true(n < 3);
        check_generated(one, prompts[n], 4);
    }
    assert_int_equal(n, 3);
    bt_sample_text_destroy(s);
    for (int i = 0; i < 32; i++) strcat(many, "a\n");
    write_prompt_file(many);
    s = create_sample(0);
    assert_non_null(s);
    bt_sample_text_destroy(s);
    write_prompt_file(strcat(many, "a\n"));
    assert_prompt_refused(create_sample(0), BT_ARG, "more than 32 prompts");
    write_prompt_file("\r\n\n");
    assert_prompt_refused(create_sample(0), BT_ARG, "no prompt");
    write_prompt_file("a\nb\nabcdefgh\n"); /* the first two prompts are freed */
    set_sample_settings(8, 4, at);
    assert_prompt_refused(create_sample(0), BT_ARG,
                          "prompt 3 of train.sample_prompt has 8 tokens, a sequence has 8");
    set_sample_settings(200, 4, "@/nowhere/prompts");
    assert_prompt_refused(create_sample(0), BT_NOTFOUND, "/nowhere/prompts");
    /* A file above a mebibyte is refused as a whole. */
    for (int more = 0; more < 2; more++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < (1 << 20) - 1 + more; i++) fputc('a', f);
        assert_true(fputc('\n', f) >= 0 && fclose(f) == 0);
        set_sample_settings(200, 4, at);
        assert_null(create_sample(0));
        assert_int_equal(strstr(err.msg, "has 1048575 tokens") != NULL, !more);
    }
}

int main(void) {
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_begin_a_text),
        cmocka_unit_test(a_text_can_be_repeated),
        cmocka_unit_test(a_prompt_leaves_room_for_a_token),
        cmocka_unit_test(a_requested_prompt_replaces_the_data),
        cmocka_unit_test(lines_of_a_file_are_prompts),
    };
    const int failed = cmocka_run_group_tests(tests, make_model, destroy_model);
    unlink(path);
    return failed;
}
