/* test_sample_prompts.c - what a model's sample goes on from: tokens of the data, a text, lines of a file, each as long
 * as there is room; what is refused, and with which words; and the passes that write the text, of one stage and of a
 * pipeline's, defined here. */
#include <unistd.h>

#include "tests/engine/train/said.h"

#include "engine/model/net/stage.h"
#include "engine/train/parts/samples/sample_text.h"

static bt_run_cfg cfg;
static bt_err err;

/* ---- in the place of other ranks ------------------------------------------------------------- */

/* what rank 0 has given to all, which rank 1 gets in the same order */
static struct {
    size_t bytes;
    char data[1024];
} given[80];
static int rank, n_given, n_taken;
static bt_code agreed; /* what another rank says */

bt_comm *bt_comm_world(void) { return (bt_comm *)(void *)&given; }
int bt_comm_rank(const bt_comm *c) {
    (void)c;
    return rank;
}
bt_code(bt_agree)(bt_comm *c, bt_code mine, bt_err *e) {
    assert_ptr_equal(c, bt_comm_world());
    return mine != BT_OK ? mine : agreed != BT_OK ? bt_fail(e, agreed, "another rank") : BT_OK;
}
bt_code bt_broadcast(bt_comm *c, void *x, size_t bytes, int root, bt_err *e) {
    assert_true(c == bt_comm_world() && root == 0 && bytes <= sizeof given->data);
    assert_true(rank || n_given < 80);
    if (rank) {
        assert_true(n_taken < n_given && given[n_taken].bytes == bytes);
        memcpy(x, given[n_taken++].data, bytes);
    } else {
        given[n_given].bytes = bytes;
        memcpy(given[n_given++].data, x, bytes);
    }
    (void)e;
    return BT_OK;
}

/* ---- in the place of a model ----------------------------------------------------------------- */

static bt_model_slice slice;
static int chunk;
static const char *fails;
static float in[1], out[1];
static char pipe_object, weights_object;
#define PIPE ((bt_pipe *)(void *)&pipe_object)
#define WEIGHTS ((bt_weights *)(void *)&weights_object)

static bt_code done(const char *what, bt_err *e) { return said_or_fails(what, fails, BT_IO, e); }

bt_model_slice bt_model_slice_of(const bt_model *m) {
    (void)m;
    return slice;
}
void bt_model_chunk(bt_model *m, int k) {
    (void)m;
    chunk = k;
    said("chunk %d", k);
}
bool bt_model_begins(const bt_model *m) {
    (void)m;
    return slice.pp_stage == 0 && chunk == 0;
}
bool bt_model_ends(const bt_model *m) {
    (void)m;
    return bt_slice_is_last_stage(slice) && chunk == bt_slice_chunks(slice) - 1;
}
float *bt_model_stage_in(bt_model *m) {
    (void)m;
    return in;
}
const float *bt_model_stage_out(const bt_model *m) {
    (void)m;
    return out;
}
void bt_model_stage_meet(bt_model *m) {
    (void)m;
    said("meet");
}
void bt_model_forward_tokens(bt_model *m, const int32_t *tokens, size_t n) {
    (void)m;
    said("forward of %zu, the last is %d", n, (int)tokens[n - 1]);
}
int32_t bt_model_draw(bt_model *m, const bt_draw *how, size_t n) {
    (void)m;
    assert_int_equal(how->index, n);
    said("draw behind %zu at %g with %d", n, how->temperature, (int)how->seed);
    return n % 3 == 0 ? 0 : 'a' + (int32_t)n % 26;
}
bt_code bt_weights_begin(bt_weights *w, bt_passes walk, const int64_t *micros, int64_t each,
                         bt_err *e) {
    assert_true(w == WEIGHTS && walk == BT_PASSES_FORWARD && !micros);
    said("of %d", (int)each);
    return done("weights", e);
}
bt_code bt_weights_check(const bt_weights *w, bt_err *e) {
    assert_ptr_equal(w, WEIGHTS);
    return done("check", e);
}
bt_code bt_weights_end(bt_weights *w, bt_err *e) {
    assert_ptr_equal(w, WEIGHTS);
    return done("end", e);
}
bt_code bt_pipe_begin(bt_pipe *p, int64_t down, int64_t up, bt_err *e) {
    assert_true(p == PIPE && down == 1 && up == 0);
    return done("begin", e);
}
bt_code bt_pipe_recv(bt_pipe *p, bt_pipe_way way, float *to, bt_err *e) {
    assert_true(p == PIPE && way == BT_PIPE_DOWN && to == in);
    return done("recv", e);
}
bt_code bt_pipe_send(bt_pipe *p, bt_pipe_way way, const float *from, bt_err *e) {
    assert_true(p == PIPE && way == BT_PIPE_DOWN && from == out);
    return done("send", e);
}
bt_code bt_pipe_end(bt_pipe *p, bt_err *e) {
    assert_ptr_equal(p, PIPE);
    return done("left", e);
}
bt_code bt_pipe_sum(bt_pipe *p, double *x, size_t n, bt_err *e) {
    assert_true(p == PIPE && n == 1);
    if (*x == 0) *x = 'z'; /* the stage that knows it says so */
    return done("sum", e);
}

/* ---- settings -------------------------------------------------------------------------------- */

static void settings(int seq_len, int sample_tokens, const char *prompt) {
    memset(&cfg, 0, sizeof cfg);
    strcpy(cfg.data.path, "text.txt");
    strcpy(cfg.data.tokenizer, "bytes");
    snprintf(cfg.samples.sample_prompt, sizeof cfg.samples.sample_prompt, "%s", prompt);
    cfg.model.seq_len = seq_len;
    cfg.samples.sample_tokens = sample_tokens;
    cfg.model.vocab = 256;
    cfg.run.seed = 5;
    slice = (bt_model_slice){.pp_size = 1};
    chunk = 0;
    fails = NULL;
    rank = n_given = n_taken = 0;
    agreed = BT_OK;
    err = (bt_err)BT_ERR_INIT;
    bt_text_clear(&heard);
}

/* prompt and text that a sample writes, as "prompt|text" */
static const char *written(bt_sample_text *s, bt_pipe *pipe) {
    static char both[512];
    bt_text prompt, text;
    bt_text_init(&prompt);
    bt_text_init(&text);
    if (bt_sample_text_run(s, NULL, pipe, WEIGHTS, &prompt, &text, &err) != BT_OK)
        fail_msg("%s", err.msg);
    snprintf(both, sizeof both, "%s|%s", bt_text_str(&prompt), bt_text_str(&text));
    bt_text_release(&prompt);
    bt_text_release(&text);
    return both;
}

static int32_t beginning[300];

static bt_sample_text *create(size_t n) {
    bt_sample_text *s = (bt_sample_text *)(void *)&err;
    n_given = rank ? n_given : 0;
    n_taken = 0;
    if (bt_sample_text_create(&s, &cfg, bt_comm_world(), beginning, n, &err) != BT_OK)
        assert_null(s);
    return s;
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* of the data at most 32 tokens and half a sequence; so many more as are asked for and have room */
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
        settings(rows[i].seq_len, rows[i].tokens, "");
        bt_sample_text *s = create(rows[i].n);
        assert_non_null(s);
        const char *both = written(s, NULL);
        if ((int)(strchr(both, '|') - both) != rows[i].prompt ||
            (int)strlen(strchr(both, '|') + 1) != rows[i].text)
            fail_msg("row %zu: '%s'", i, both);
        for (int k = 0; k < rows[i].prompt; k++) assert_int_equal(both[k], beginning[k]);
        assert_null(bt_sample_text_next(s));
        bt_sample_text_destroy(s);
    }
    settings(200, 8, "");
    strcpy(cfg.data.path, "synthetic.txt"); /* a file, in spite of its name */
    bt_sample_text *s = create(300);
    assert_non_null(s);
    bt_sample_text_destroy(s);
    settings(200, 0, ""); /* none is wanted; the data are none; there are no data */
    assert_null(create(300));
    settings(200, 8, "");
    strcpy(cfg.data.path, "synth:chain");
    assert_null(create(300));
    settings(200, 8, "");
    assert_null(create(0));
    assert_int_equal(err.code, BT_OK);
    bt_sample_text_destroy(NULL);
}

static void a_prompt_has_room_to_go_on(void **state) {
    (void)state;
    settings(6, 8, "abcde"); /* a token of room */
    bt_sample_text *s = create(300);
    assert_string_equal(written(s, NULL), "abcde|f");
    bt_sample_text_destroy(s);
    settings(5, 8, "abcde");
    assert_null(create(300));
    assert_int_equal(err.code, BT_ARG);
    assert_string_equal(err.msg,
                        "train.sample_prompt has 5 tokens, a sequence has 5 (model.seq_len): "
                        "there is no room to go on");
    settings(50, 8, "abcde");
    cfg.model.vocab = 'e';
    assert_null(create(300));
    assert_string_equal(err.msg,
                        "train.sample_prompt has the token 101, the model's vocabulary has 101");
    static const char *const others[] = {"ea", "a~"}; /* whichever it is, and however far beyond */
    for (int i = 0; i < 2; i++) {
        strcpy(cfg.samples.sample_prompt, others[i]);
        err = (bt_err)BT_ERR_INIT;
        assert_null(create(300));
        assert_int_equal(err.code, BT_ARG);
    }
    strcpy(cfg.samples.sample_prompt, "abcde");
    cfg.model.vocab = 'e' + 1;
    s = create(300);
    assert_non_null(s);
    bt_sample_text_destroy(s);
    strcpy(cfg.data.tokenizer, "/nowhere/words.json");
    assert_null(create(300));
    assert_int_not_equal(err.code, BT_OK);
}

static void a_prompt_that_is_asked_for(void **state) {
    (void)state;
    bt_sample_text *s = NULL;
    settings(200, 0, "");
    assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), "say", &err), BT_OK);
    assert_int_equal(strlen(written(s, NULL)), 3 + 1 + 64); /* where no number is set */
    bt_sample_text_destroy(s);
    settings(200, 4, "");
    assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), "say", &err), BT_OK);
    assert_string_equal(written(s, NULL), "say| ef ");
    bt_sample_text_destroy(s);
    /* bytes of other scripts stay */
    assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), "s\xc3\xa4y", &err),
                     BT_OK);
    assert_string_equal(written(s, NULL), "s\xc3\xa4y|ef h");
    bt_sample_text_destroy(s);
    static const char *const empty[] = {"", NULL};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), empty[i], &err),
                         BT_ARG);
        assert_string_equal(err.msg, "the prompt is empty");
        assert_null(s);
    }
    settings(3, 4, "");
    assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), "say", &err), BT_ARG);
    assert_string_equal(err.msg,
                        "the prompt has 3 tokens, a sequence has 3 (model.seq_len): there is "
                        "no room to go on");
    settings(200, 4, "");
    strcpy(cfg.data.labels, "a");
    assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), "say", &err),
                     BT_UNSUPPORTED);
    assert_string_equal(err.msg, "a classifier writes no text");
    strcpy(cfg.data.path, "synth:chain");
    assert_int_equal(bt_sample_text_for_prompt(&s, &cfg, bt_comm_world(), "say", &err),
                     BT_UNSUPPORTED);
    assert_string_equal(err.msg, "the data 'synth:chain' are no text: the model writes none");
    assert_null(s);
}

/* ---- a file of prompts ----------------------------------------------------------------------- */

static char path[] = "/tmp/bt-prompts-XXXXXX";

static void put(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
}

static void lines_of_a_file_are_prompts(void **state) {
    (void)state;
    char at[64], many[200] = "", want[160];
    snprintf(at, sizeof at, "@%s", path);
    put("one\r\n\n two \nthree");
    settings(200, 4, at);
    bt_sample_text *s = create(0);
    static const char *const begins[] = {"one|", " two |", "three|"};
    int n = 0;
    for (bt_sample_text *one = s; one; one = bt_sample_text_next(one), n++) {
        assert_true(n < 3);
        const char *both = written(one, NULL);
        assert_int_equal(strncmp(both, begins[n], strlen(begins[n])), 0);
        assert_int_equal(strlen(both), strlen(begins[n]) + 4);
    }
    assert_int_equal(n, 3);
    bt_sample_text_destroy(s);
    for (int lines = 32; lines <= 33; lines++) {
        many[0] = '\0';
        for (int i = 0; i < lines; i++) strcat(many, "a\n");
        put(many);
        s = create(0);
        assert_int_equal(s != NULL, lines == 32);
        bt_sample_text_destroy(s);
    }
    snprintf(want, sizeof want, "train.sample_prompt: '%s' has more than 32 prompts", path);
    assert_string_equal(err.msg, want);
    put("\r\n\n");
    assert_null(create(0));
    snprintf(want, sizeof want, "train.sample_prompt: '%s' has no prompt (one a line)", path);
    assert_string_equal(err.msg, want);
    /* the second is too long: the first is given back */
    put("a\nb\nabcdefgh\n");
    settings(8, 4, at);
    assert_null(create(0));
    assert_string_equal(err.msg, "prompt 3 of train.sample_prompt has 8 tokens, a sequence has 8 "
                                 "(model.seq_len): there is no room to go on");
    settings(200, 4, "@/nowhere/prompts");
    assert_null(create(0));
    assert_int_not_equal(err.code, BT_OK);
    /* nobody writes a mebibyte of prompts: what is longer is another file */
    for (int more = 0; more < 2; more++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < (1 << 20) - 1 + more; i++) fputc('a', f);
        assert_true(fputc('\n', f) >= 0 && fclose(f) == 0);
        settings(200, 4, at);
        assert_null(create(0));
        assert_int_equal(
            strstr(err.msg, "prompt 1 of train.sample_prompt has 1048575 tokens") != NULL, !more);
    }
}

/* ---- passes ---------------------------------------------------------------------------------- */

static void a_whole_model_writes(void **state) {
    (void)state;
    settings(200, 2, "go");
    bt_sample_text *s = create(0);
    assert_string_equal(written(s, NULL), "go|c ");
    heard_is("of 2\nweights\n"
             "chunk 0\nmeet\nforward of 2, the last is 111\ndraw behind 2 at 0.7 with 5\nchunk 0\n"
             "check\n"
             "chunk 0\nmeet\nforward of 3, the last is 99\ndraw behind 3 at 0.7 with 5\nchunk 0\n"
             "check\nend\n");
    bt_sample_text_destroy(s);
}

/* each stage has a part in each token, which the last one draws and all learn */
static void stages_write_together(void **state) {
    (void)state;
    static const struct {
        bt_model_slice slice;
        const char *want;
    } rows[] = {
        {{.pp_size = 2},
         "of 1\nweights\nbegin\nchunk 0\nmeet\nforward of 2, the last is 111\nsend\nchunk 0\nleft\n"
         "sum\ncheck\nend\n"},
        {{.pp_size = 2, .pp_stage = 1},
         "of 1\nweights\nbegin\nchunk 0\nrecv\nmeet\nforward of 2, the last is 111\n"
         "draw behind 2 at 0.7 with 5\nchunk 0\nleft\nsum\ncheck\nend\n"},
        {{.pp_size = 2, .virtual_stages = 2},
         "of 1\nweights\nbegin\nchunk 0\nmeet\nforward of 2, the last is 111\nsend\n"
         "chunk 1\nrecv\nmeet\nforward of 2, the last is 111\nsend\nchunk "
         "0\nleft\nsum\ncheck\nend\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        settings(200, 1, "go");
        bt_sample_text *s = create(0);
        slice = rows[i].slice;
        assert_string_equal(written(s, PIPE), slice.pp_stage ? "go|c" : "go|z");
        heard_is(rows[i].want);
        /* whatever fails is told, and is the end of it */
        static const char *const parts[] = {"weights", "begin", "recv",  "send",
                                            "left",    "sum",   "check", "end"};
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char line[16], says[32];
            bt_text prompt, text;
            snprintf(line, sizeof line, "\n%s\n", parts[k]);
            const char *at = strstr(rows[i].want, line);
            if (!at) continue;
            bt_text_init(&prompt);
            bt_text_init(&text);
            chunk = 0;
            fails = parts[k];
            assert_int_equal(bt_sample_text_run(s, NULL, PIPE, WEIGHTS, &prompt, &text, &err),
                             BT_IO);
            snprintf(says, sizeof says, "%s fails", parts[k]);
            assert_string_equal(err.msg, says);
            assert_true(prompt.len == 0 && text.len == 0);
            const size_t n = (size_t)(at - rows[i].want) + strlen(line);
            assert_int_equal(heard.len, n);
            assert_memory_equal(bt_text_str(&heard), rows[i].want, n);
            bt_text_clear(&heard);
            fails = NULL;
        }
        bt_sample_text_destroy(s);
    }
}

/* other ranks have no prompt and no tokenizer: they learn the tokens, write the same ones, and say nothing */
static void other_ranks_write_the_same(void **state) {
    (void)state;
    char at[64], own[256];
    snprintf(at, sizeof at, "@%s", path);
    put("go\nto\n");
    settings(60, 2, at);
    bt_sample_text *s = create(0);
    assert_string_equal(written(s, NULL), "go|c ");
    snprintf(own, sizeof own, "%s", bt_text_str(&heard));
    bt_text_clear(&heard);
    assert_int_equal(n_given, 1 + 2 * 2);
    assert_int_equal(given[2].bytes, 60 * sizeof(int32_t));
    bt_sample_text_destroy(s);
    rank = 1;
    strcpy(cfg.data.tokenizer, "/nowhere/words.json");
    s = create(0);
    assert_int_equal(n_taken, n_given);
    assert_true(s && bt_sample_text_next(s) && !bt_sample_text_next(bt_sample_text_next(s)));
    assert_string_equal(written(s, NULL), "|");
    heard_is(own);
    bt_sample_text_destroy(s);
    /* one that fails is all ranks' */
    for (rank = 0; rank < 2; rank++) {
        agreed = BT_NOMEM;
        assert_null(create(0));
        assert_int_equal(err.code, BT_NOMEM);
    }
}

int main(void) {
    const int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    for (int i = 0; i < 300; i++) beginning[i] = 'A' + i % 26;
    bt_text_init(&heard);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_begin_a_text),          cmocka_unit_test(a_prompt_has_room_to_go_on),
        cmocka_unit_test(a_prompt_that_is_asked_for), cmocka_unit_test(lines_of_a_file_are_prompts),
        cmocka_unit_test(a_whole_model_writes),       cmocka_unit_test(stages_write_together),
        cmocka_unit_test(other_ranks_write_the_same),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_text_release(&heard);
    unlink(path);
    return failed;
}
