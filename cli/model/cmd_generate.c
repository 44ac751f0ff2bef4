/* cmd_generate.c - text from a trained model. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/model/checkpoint_model.h"
#include "engine/base/clock.h"
#include "engine/model/net/generate.h"

typedef struct generate_cfg {
    char prompt[65536], store[1024], isa[16];
    int64_t tokens, top_k, seed, threads;
    double temperature, top_p;
    bool json;
} generate_cfg;

#define FIELD(f) offsetof(generate_cfg, f), sizeof(((generate_cfg *)0)->f)
static const bt_opt generate_opts[] = {
    {"prompt", "--prompt", BT_OPT_TEXT, FIELD(prompt), "", 0, 0, NULL, NULL,
     "text to go on from ('-' reads it from standard input)"},
    {"tokens", "--tokens", BT_OPT_INT, FIELD(tokens), "256", 1, 1e9, NULL, "tokens",
     "how many to write"},
    {"temperature", "--temperature", BT_OPT_REAL, FIELD(temperature), "0.8", 0, 100, NULL, NULL,
     "0: always the likeliest token"},
    {"top_k", "--top-k", BT_OPT_INT, FIELD(top_k), "0", 0, 1e9, NULL, "tokens",
     "choose among the likeliest N (0: all)"},
    {"top_p", "--top-p", BT_OPT_REAL, FIELD(top_p), "0.95", 0, 1, NULL, NULL,
     "choose among the likeliest that hold this probability (1: all)"},
    {"seed", "--seed", BT_OPT_INT, FIELD(seed), "1", 0, 9007199254740992.0, NULL, NULL,
     "same seed, same text"},
    {"threads", "--threads", BT_OPT_INT, FIELD(threads), "0", 0, 1024, NULL, NULL,
     "threads (0: all cores)"},
    {"isa", "--isa", BT_OPT_TEXT, FIELD(isa), "", 0, 0, NULL, NULL,
     "fastest kernel set allowed (default: as the run)"},
    {"json", "--json", BT_OPT_BOOL, FIELD(json), "false", 0, 0, NULL, NULL,
     "one JSON object at the end"},
    {"store", "--store", BT_OPT_TEXT, FIELD(store), "", 0, 0, NULL, NULL, "metrics database"},
};

static const bt_opt *options(size_t *n) {
    *n = sizeof generate_opts / sizeof generate_opts[0];
    return generate_opts;
}

/* A terminal gets no control bytes; a file or pipe gets what the model said. */
static void show(const char *s, size_t n, bool terminal) {
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        putchar(terminal && (c < 0x20 || c == 0x7f) && c != '\n' && c != '\t' ? '?' : c);
    }
    fflush(stdout);
}

static bt_code read_stdin(bt_text *out, bt_err *err) {
    char buf[4096];
    for (size_t n; (n = fread(buf, 1, sizeof buf, stdin)) > 0 && out->len < 16 << 20;)
        bt_text_putn(out, buf, n);
    return ferror(stdin) || out->failed
               ? bt_fail(err, BT_IO, "cannot read the prompt from standard input")
               : BT_OK;
}

static bt_code write_on(bt_trained *t, const generate_cfg *cfg, const bt_text *prompt,
                        bt_text *text, int64_t *written, double *seconds, bt_err *err) {
    bt_gen *gen = NULL;
    int32_t *ids = NULL;
    size_t n = 0, cap = 0;
    const bt_sampling how = {.temperature = cfg->temperature,
                             .top_k = (int)(cfg->top_k > 1 << 30 ? 0 : cfg->top_k),
                             .top_p = cfg->top_p,
                             .seed = (uint64_t)cfg->seed};
    const char *from = prompt->len ? bt_text_str(prompt) : "\n";
    const bool terminal = isatty(STDOUT_FILENO);
    bt_code code = bt_tokenizer_encode(t->tokenizer, from, prompt->len ? prompt->len : 1, &ids, &n,
                                       &cap, err);
    if (code == BT_OK) code = bt_gen_create(&gen, t->model, err);
    if (code == BT_OK) code = bt_gen_feed(gen, ids, n, err);
    if (code == BT_OK && !cfg->json) show(bt_text_str(prompt), prompt->len, terminal);
    const int64_t began = bt_now_ns();
    for (; code == BT_OK && *written < cfg->tokens; (*written)++) {
        int32_t id;
        code = bt_gen_next(gen, &how, &id, err);
        if (code != BT_OK || (id == bt_tokenizer_eot(t->tokenizer) && id >= 0)) break;
        const size_t at = text->len;
        bt_tokenizer_decode(t->tokenizer, &id, 1, text);
        if (!cfg->json) show(text->data + at, text->len - at, terminal);
    }
    *seconds = (double)(bt_now_ns() - began) / 1e9;
    if (code == BT_OK && !cfg->json && (!text->len || text->data[text->len - 1] != '\n'))
        putchar('\n');
    bt_gen_destroy(gen);
    free(ids);
    return code;
}

static bt_code generate(const generate_cfg *cfg, const char *which, bt_err *err) {
    bt_trained t;
    bt_text prompt, text;
    int64_t written = 0;
    double seconds = 0;
    bt_text_init(&prompt);
    bt_text_init(&text);
    const bt_trained_how how = {
        .which = which, .store = cfg->store, .isa = cfg->isa, .threads = cfg->threads, .B = 1};
    bt_code code = BT_OK;
    if (strcmp(cfg->prompt, "-") == 0)
        code = read_stdin(&prompt, err);
    else
        bt_text_put(&prompt, cfg->prompt);
    memset(&t, 0, sizeof t);
    if (code == BT_OK) code = bt_trained_load(&t, &how, err);
    if (code == BT_OK) code = write_on(&t, cfg, &prompt, &text, &written, &seconds, err);
    if (code == BT_OK && cfg->json) {
        bt_text out;
        bt_json j;
        bt_text_init(&out);
        bt_json_begin(&j, &out);
        bt_json_object(&j, NULL);
        bt_json_str(&j, "run", t.meta.run);
        bt_json_str(&j, "checkpoint", t.path);
        bt_json_int(&j, "step", t.meta.step);
        bt_json_str(&j, "prompt", bt_text_str(&prompt));
        bt_json_str(&j, "text", bt_text_str(&text));
        bt_json_int(&j, "tokens", written);
        bt_json_num(&j, "tokens_per_s", seconds > 0 ? (double)written / seconds : NAN);
        bt_json_end(&j, '}');
        puts(bt_text_str(&out));
        bt_text_release(&out);
    }
    bt_trained_release(&t);
    bt_text_release(&text);
    bt_text_release(&prompt);
    return code;
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    (void)exit_status;
    static generate_cfg cfg;
    bt_opts o;
    const char *which = "last";
    size_t n = 0;
    bool help;
    BT_TRY(
        bt_opts_init(&o, generate_opts, sizeof generate_opts / sizeof generate_opts[0], &cfg, err));
    BT_TRY(bt_opts_argv(&o, argc, argv, &which, 1, &n, &help, err));
    return generate(&cfg, which, err);
}

const bt_command bt_cmd_generate = {
    .name = "generate",
    .summary = "write text with a trained model",
    .args = "[RUN|DIR]",
    .examples = "bitrain generate last --prompt 'In the beginning'\n"
                "bitrain generate abl-3 --tokens 400 --temperature 0.7 --top-k 40 --seed 7\n"
                "echo 'And God said' | bitrain generate last --prompt -\n",
    .options = options,
    .run = run,
};
