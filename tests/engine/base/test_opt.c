/* test_opt.c - option tables: types, ranges, order of precedence of their sources, argument vectors, environment
 * variables, YAML. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "engine/base/opt.h"

typedef struct cfg {
    int64_t steps;
    double lr;
    bool shuffle, no_monitor;
    int precision;
    char name[8];
    char data[64];
} cfg;

static const bt_opt table[] = {
    {"train.steps", "--steps", BT_OPT_INT, offsetof(cfg, steps), sizeof(int64_t), "10", 0, 1e12,
     NULL, "steps", "updates"},
    {"optim.lr", "--lr", BT_OPT_REAL, offsetof(cfg, lr), sizeof(double), "2e-3", 0, 100, NULL, NULL,
     "peak rate"},
    {"data.shuffle", "--shuffle", BT_OPT_BOOL, offsetof(cfg, shuffle), sizeof(bool), "true", 0, 0,
     NULL, NULL, "random order"},
    {"run.no_monitor", "--no-monitor", BT_OPT_BOOL, offsetof(cfg, no_monitor), sizeof(bool),
     "false", 0, 0, NULL, NULL, "record nothing"},
    {"train.precision", "--precision", BT_OPT_ENUM, offsetof(cfg, precision), sizeof(int), "bf16",
     0, 0, "fp32|bf16|fp16", NULL, "operands"},
    {"run.name", "--name", BT_OPT_TEXT, offsetof(cfg, name), 8, "", 0, 0, NULL, NULL, "name"},
    {"data.path", "--data", BT_OPT_LIST, offsetof(cfg, data), 64, "", 0, 0, NULL, NULL, "data"},
};
enum { N = sizeof table / sizeof table[0], STEPS = 0, LR = 1 };

static cfg c;
static bt_opts o;
static bt_err err;

static int setup(void **state) {
    (void)state;
    memset(&err, 0, sizeof err);
    return bt_opts_init(&o, table, N, &c, &err) == BT_OK ? 0 : -1;
}

static bt_code set_from_command_line(const char *key, const char *text) {
    return bt_opts_set(&o, key, text, BT_FROM_SET, "--set", &err);
}

static void check_refused_setting(bt_code code, const char *message) {
    assert_int_equal(code, BT_ARG);
    assert_string_equal(err.msg, message);
}

static void test_defaults(void **state) {
    (void)state;
    assert_int_equal(c.steps, 10);
    assert_true(c.lr == 2e-3);
    assert_true(c.shuffle);
    assert_int_equal(c.precision, 1);
    assert_string_equal(c.name, "");
}

static void test_whole_numbers(void **state) {
    (void)state;
    const struct {
        const char *text;
        int64_t value;
    } good[] = {{"4096", 4096},  {"4k", 4000},   {"4K", 4000},     {"4Ki", 4096},
                {"2M", 2000000}, {"1.5k", 1500}, {"1e6", 1000000}, {"0", 0}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(set_from_command_line("train.steps", good[i].text), BT_OK);
        assert_int_equal(c.steps, good[i].value);
    }
    const char *const bad[] = {"",     " 1",  "1 ",  "1.5", "x",    "1x",    "1kk",
                               "0x10", "nan", "inf", "-1",  "2e12", "1e400", "99999999999999999999",
                               "--"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(set_from_command_line("train.steps", bad[i]), BT_ARG);
    assert_int_equal(c.steps, 0);
}

static void test_messages(void **state) {
    (void)state;
    check_refused_setting(
        set_from_command_line("train.steps", "1.5"),
        "--set train.steps must be a whole number from 0 to 1000000000000 steps, not '1.5'");
    check_refused_setting(set_from_command_line("optim.lr", "fast"),
                          "--set optim.lr must be a number from 0 to 100, not 'fast'");
    check_refused_setting(set_from_command_line("train.precision", "bf17"),
                          "--set train.precision must be one of fp32|bf16|fp16, not 'bf17'");
    check_refused_setting(set_from_command_line("data.shuffle", "True"),
                          "--set data.shuffle must be true or false, not 'True'");
    check_refused_setting(set_from_command_line("run.name", "eightlet"),
                          "--set run.name must be text shorter than 8 bytes, not 'eightlet'");
    check_refused_setting(set_from_command_line("optim.lrr", "1"),
                          "unknown option 'optim.lrr' (did you mean 'optim.lr'?)");
    check_refused_setting(set_from_command_line("lr", "1"),
                          "unknown option 'lr' (did you mean 'optim.lr'?)");
    check_refused_setting(set_from_command_line("zebra", "1"),
                          "unknown option 'zebra' ('bitrain help options' lists them)");
    check_refused_setting(bt_opts_set(&o, "optim.lr", "-1", BT_FROM_FLAG, "--lr", &err),
                          "--lr must be a number from 0 to 100, not '-1'");
}

static void test_stronger_origin_wins(void **state) {
    (void)state;
    assert_int_equal(bt_opts_set(&o, "optim.lr", "1", BT_FROM_ENV, "BITRAIN_OPTIM_LR", &err),
                     BT_OK);
    assert_int_equal(bt_opts_set(&o, "optim.lr", "2", BT_FROM_FILE, "f:1", &err), BT_OK);
    assert_true(c.lr == 1);
    assert_int_equal(bt_opts_set(&o, "optim.lr", "3", BT_FROM_FLAG, "--lr", &err), BT_OK);
    assert_int_equal(bt_opts_set(&o, "optim.lr", "4", BT_FROM_SET, "--set", &err), BT_OK);
    assert_true(c.lr == 3);
    assert_int_equal(o.origin[LR], BT_FROM_FLAG);
    assert_string_equal(o.where[LR], "--lr");
    /* A weaker source is ignored but still checked. */
    assert_int_equal(bt_opts_set(&o, "optim.lr", "x", BT_FROM_FILE, "f:1", &err), BT_ARG);
    assert_int_equal(
        bt_opts_set(&o, "optim.lr", "5", BT_FROM_FLAG,
                    "a/very/long/path/that/does/not/fit/into/forty-eight/bytes/conf.yaml:12", &err),
        BT_OK);
    assert_true(strlen(o.where[LR]) == 47 && strncmp(o.where[LR], "...", 3) == 0);
    assert_string_equal(o.where[LR] + 47 - strlen("/conf.yaml:12"), "/conf.yaml:12");
}

static bt_code parse_arguments(const char *const *words, size_t *n_pos, const char **pos,
                               bool *help) {
    int n = 0;
    while (words[n]) n++;
    return bt_opts_argv(&o, n, (char *const *)(uintptr_t)words, pos, 1, n_pos, help, &err);
}

#define ARGV(...) parse_arguments((const char *const[]){__VA_ARGS__, NULL}, &n_pos, &pos, &help)

static void test_argv(void **state) {
    (void)state;
    size_t n_pos;
    const char *pos;
    bool help;
    assert_int_equal(ARGV("--steps", "5", "--lr=0.5", "--no-shuffle", "--no-monitor", "--data",
                          "a b", "c", "--set", "run.name=x=y", "conf"),
                     BT_OK);
    assert_int_equal(c.steps, 5);
    assert_true(c.lr == 0.5);
    assert_false(c.shuffle);
    assert_true(c.no_monitor);
    assert_string_equal(c.data, "a b\nc");
    assert_string_equal(c.name, "x=y");
    assert_int_equal(n_pos, 1);
    assert_string_equal(pos, "conf");
    assert_int_equal(ARGV("--data", "d", "--", "--data"), BT_OK);
    assert_string_equal(c.data, "a b\nc\nd"); /* A list option that is given again is extended. */
    assert_string_equal(pos, "--data");
    assert_int_equal(ARGV("--shuffle=false", "--help", "--nonsense"), BT_OK);
    assert_true(help);
}

static void test_argv_messages(void **state) {
    (void)state;
    size_t n_pos;
    const char *pos;
    bool help;
    check_refused_setting(ARGV("--stpes", "5"),
                          "unknown option '--stpes' (did you mean '--steps'?)");
    check_refused_setting(ARGV("--zebra"), "unknown option '--zebra' ('--help' lists the options)");
    check_refused_setting(ARGV("--steps"), "--steps needs a value (N)");
    check_refused_setting(ARGV("--name", "--steps"), "--name needs a value (TEXT)");
    check_refused_setting(ARGV("--data"), "--data needs at least one value");
    check_refused_setting(ARGV("--data", "a\nb", "c"),
                          "--data: the name 'a b' contains a line feed, which a list cannot store: "
                          "rename the file, or pass its folder");
    check_refused_setting(ARGV("--steps", "-5"),
                          "--steps must be a whole number from 0 to 1000000000000 steps, not '-5'");
    check_refused_setting(ARGV("--no-shuffle=1"), "--no-shuffle takes no value");
    check_refused_setting(ARGV("--no-steps"),
                          "unknown option '--no-steps' (did you mean '--steps'?)");
    check_refused_setting(ARGV("--set", "steps"), "--set needs KEY=VALUE, not 'steps'");
    check_refused_setting(ARGV("--set"), "--set needs KEY=VALUE");
    check_refused_setting(ARGV("a", "b"), "unexpected word 'b' (--help lists the arguments)");
    check_refused_setting(ARGV("-x"), "unknown option '-x' ('--help' lists the options)");
    check_refused_setting(ARGV("--name", "12345678"),
                          "--name must be text shorter than 8 bytes, not '12345678'");
}

static void test_environment(void **state) {
    (void)state;
    setenv("BITRAIN_OPTIM_LR", "0.25", 1);
    setenv("BITRAIN_STEPS", "7", 1);
    assert_int_equal(bt_opts_env(&o, &err), BT_OK);
    assert_true(c.lr == 0.25);
    assert_int_equal(c.steps, 7);
    assert_int_equal(o.origin[STEPS], BT_FROM_ENV);
    assert_string_equal(o.where[STEPS], "BITRAIN_STEPS");
    setenv("BITRAIN_STEPS", "many", 1);
    check_refused_setting(
        bt_opts_env(&o, &err),
        "BITRAIN_STEPS must be a whole number from 0 to 1000000000000 steps, not 'many'");
    unsetenv("BITRAIN_OPTIM_LR");
    unsetenv("BITRAIN_STEPS");
}

static bt_code yaml_bytes(const char *text, size_t n) {
    char path[] = "/tmp/bt_opt_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), (ssize_t)n);
    close(fd);
    bt_code code = bt_opts_yaml(&o, path, &err);
    unlink(path);
    char *at = strstr(err.msg, path); /* The path is removed so that messages can be compared. */
    if (at) {
        memmove(at + 1, at + strlen(path), strlen(at + strlen(path)) + 1);
        *at = 'F';
    }
    return code;
}

static bt_code parse_yaml_text(const char *text) {
    memset(&err, 0, sizeof err);
    assert_int_equal(setup(NULL), 0);
    return yaml_bytes(text, strlen(text));
}

static void test_yaml(void **state) {
    (void)state;
    assert_int_equal(parse_yaml_text(
                         "# a run\ntrain:\n  steps: 1e3\n  precision: \"fp32\"\noptim.lr: "
                         "1e-3\nrun:\n  name: no\ndata:\n  path: [a b, c]\n"),
                     BT_OK);
    assert_int_equal(c.steps, 1000);
    assert_int_equal(c.precision, 0);
    assert_true(c.lr == 1e-3);
    assert_string_equal(c.name, "no"); /* YAML's words for false are accepted as text. */
    assert_string_equal(c.data, "a b\nc");
    assert_int_equal(o.origin[LR], BT_FROM_FILE);
    assert_non_null(strstr(o.where[LR], ":5"));
    assert_int_equal(parse_yaml_text(""), BT_OK);
    assert_int_equal(parse_yaml_text("# nothing\n"), BT_OK);
    assert_int_equal(parse_yaml_text("---\n"), BT_OK);
    assert_int_equal(parse_yaml_text("data: {path: one}\n"), BT_OK);
    assert_string_equal(c.data, "one");
}

static void test_yaml_messages(void **state) {
    (void)state;
    check_refused_setting(parse_yaml_text("train:\n  stpes: 5\n"),
                          "F:2: unknown option 'train.stpes' (did you mean 'train.steps'?)");
    check_refused_setting(
        parse_yaml_text("train:\n  steps: many\n"),
        "F:2: train.steps must be a whole number from 0 to 1000000000000 steps, not 'many'");
    check_refused_setting(parse_yaml_text("optm:\n  lr: 5\n"),
                          "F:1:1: unknown group 'optm' (did you mean 'optim'?)");
    check_refused_setting(parse_yaml_text("optim:\n  lr:\n    x: 5\n"),
                          "F:2:3: 'optim.lr' is a value, not a group: write 'optim.lr: VALUE'");
    check_refused_setting(parse_yaml_text("optim.lr: 1\noptim:\n  lr: 2\n"),
                          "F:3:3: 'optim.lr' was already set on line 1");
    check_refused_setting(parse_yaml_text("optim: {lr: [1, 2]}\n"),
                          "F:1:9: 'optim.lr' takes one value, not a list");
    check_refused_setting(parse_yaml_text("data:\n  path: [[a]]\n"),
                          "F:2:10: a list may contain only plain values of one line");
    check_refused_setting(parse_yaml_text("run: {name: &a x}\n"),
                          "F:1:13: anchors are not supported");
    check_refused_setting(parse_yaml_text("run: {name: *a}\n"),
                          "F:1:13: aliases are not supported");
    check_refused_setting(parse_yaml_text("run: {name: !!str x}\n"),
                          "F:1:13: tags are not supported");
    check_refused_setting(parse_yaml_text("- a\n- b\n"), "F:1:1: expected 'key: value' lines");
    check_refused_setting(parse_yaml_text("just words\n"), "F:1:1: expected 'key: value' lines");
    check_refused_setting(parse_yaml_text("run: {name: a}\n---\nrun: {name: b}\n"),
                          "F:2:1: a second document is not supported");
    check_refused_setting(parse_yaml_text("%YAML 1.1\n---\nrun: {name: a}\n"),
                          "F:1:1: directives are not supported");
    check_refused_setting(parse_yaml_text("optim: {lr: ''}\n"),
                          "F:1: optim.lr must be a number from 0 to 100, not ''");
    check_refused_setting(parse_yaml_text("train:\n\tsteps: 5\n"),
                          "F:2:1: a tab is not allowed: indent YAML with spaces");
    check_refused_setting(parse_yaml_text("train:\n  steps: 5\n  \tseq: 5\n"),
                          "F:3:3: a tab is not allowed: indent YAML with spaces");
    assert_int_equal(parse_yaml_text("run: [\n"), BT_ARG);
    assert_non_null(strstr(err.msg, "not valid YAML"));
    assert_int_equal(parse_yaml_text("a: b\n\tc: d\n"), BT_ARG);
    assert_int_equal(yaml_bytes("run: {name: \"a\\0b\"}\n", 20), BT_ARG);
    assert_non_null(strstr(err.msg, "NUL byte"));
    assert_int_equal(yaml_bytes("\x7f"
                                "ELF\x02\x01\x01\x00",
                                8),
                     BT_ARG);
    assert_int_equal(bt_opts_yaml(&o, "/nowhere/conf.yaml", &err), BT_NOTFOUND);
    assert_int_equal(bt_opts_yaml(&o, "/", &err), BT_IO);
}

/* A key without a value is ignored, even if no such option exists. */
static void test_yaml_empty_keys(void **state) {
    (void)state;
    static const char text[] = "optim.lr:\ntrain:\n  steps: ~\nwandb_project:\nfsdp: null\n"
                               "run: {name: }\ndata.path: a\n";
    bt_text ignored = {0};
    assert_int_equal(setup(NULL), 0);
    o.ignored = &ignored;
    assert_int_equal(yaml_bytes(text, sizeof text - 1), BT_OK);
    assert_true(c.lr == 2e-3);
    assert_int_equal(c.steps, 10);
    assert_string_equal(c.data, "a");
    assert_int_equal(o.origin[LR], BT_FROM_DEFAULT);
    assert_string_equal(bt_text_str(&ignored),
                        "optim.lr, train.steps, wandb_project, fsdp, run.name");
    bt_text_release(&ignored);
}

/* One pass reports all invalid settings of a file and of the arguments; the valid ones are applied. */
static void test_all_faults(void **state) {
    (void)state;
    static const char text[] = "train:\n  stpes: 5\n  steps: 7\noptm:\n  lr: {a: [1, {b: 2}]}\n"
                               "optim:\n  lr: fast\ndata:\n  path: [[a], b]\nrun: {name: &x y}\n"
                               "train.precision: fp32\n";
    static const char *const wanted[] = {"unknown option 'train.stpes'", "unknown group 'optm'",
                                         "optim.lr must be a number",
                                         "only plain values of one line",
                                         "anchors are not supported"};
    size_t n_pos, lines = 0;
    const char *pos;
    bool help;
    bt_text faults = {0};
    assert_int_equal(setup(NULL), 0);
    o.faults = &faults;
    assert_int_equal(yaml_bytes(text, sizeof text - 1), BT_OK);
    assert_int_equal(c.steps, 7);
    assert_int_equal(c.precision, 0);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (!strstr(bt_text_str(&faults), wanted[i])) fail_msg("no '%s'", wanted[i]);
    for (const char *p = bt_text_str(&faults); *p; p++) lines += *p == '\n';
    assert_int_equal(lines, 5);
    bt_text_clear(&faults);
    assert_int_equal(ARGV("--zebra", "3", "--lr", "x", "conf", "--set", "a.b=1", "--steps", "9"),
                     BT_OK);
    assert_int_equal(c.steps, 9);
    assert_int_equal(n_pos, 1);
    assert_string_equal(bt_text_str(&faults),
                        "unknown option '--zebra' ('--help' lists the options)\n"
                        "--lr must be a number from 0 to 100, not 'x'\n"
                        "unknown option 'a.b' ('bitrain help options' lists them)\n");
    bt_text_release(&faults);
}

static bt_code parse_foreign_yaml(const char *text) {
    static const bt_opt_alias aliases[] = {
        {"learning_rate", "optim.lr", "*", ""},
        {"max_steps", "train.steps", "*", ""},
        {"bf16", "train.precision", "true=bf16|false=", "is true or false"},
        {"optimizer", "run.name", "adamw=a;optim.lr=0.5|Lion=l", "is not there (run.name)"},
        {"modules", "run.name", "*", ""},
        {"sets", "data.path", "*", ""},
        {"sets.path", "data.path", "*", ""},
        {"sets.form", "run.name", "chat=c|text=", "is not there (run.name)"},
        {"sets.roles", "run.name", "u,v=uv", "is not there"},
        {"sets.roles.user", "run.name", "u,v=uv", "is not there"},
        {"shares", "run.name", "%", "must be numbers"},
        {"named", "data.path", "?", ""},
        {"noise", "", "~", ""},
        {"ratio", "", "0=", "is a share: say how many (train.steps)"}};
    memset(&err, 0, sizeof err);
    assert_int_equal(setup(NULL), 0);
    o.aliases = aliases;
    o.n_aliases = sizeof aliases / sizeof *aliases;
    return yaml_bytes(text, strlen(text));
}

static void test_keys_of_other_programs(void **state) {
    (void)state;
    assert_int_equal(
        parse_foreign_yaml(
            "learning_rate: 1e-3\nmax_steps: 7\nbf16: TRUE\nratio: 0\nmodules: [a, b]\n"),
        BT_OK);
    assert_true(c.lr == 1e-3 && c.steps == 7 && c.precision == 1);
    assert_string_equal(c.name, "a,b");
    assert_int_equal(o.origin[LR], BT_FROM_FILE);
    assert_int_equal(parse_foreign_yaml("bf16: false\ntrain.precision: fp32\noptimizer: adamw\n"),
                     BT_OK);
    assert_int_equal(c.precision, 0);
    assert_true(c.lr == 0.5);
    assert_int_equal(parse_foreign_yaml("optimizer: adamw\noptim.lr: 2\n"), BT_OK);
    assert_true(c.lr == 2);
    assert_int_equal(
        parse_foreign_yaml("sets:\n  - path: a.jsonl\n    form: chat\n  - {form: chat, path: b}\n"),
        BT_OK);
    assert_string_equal(c.data, "a.jsonl\nb");
    assert_string_equal(c.name, "c");
    assert_int_equal(parse_foreign_yaml("sets: [a, b]\n"), BT_OK);
    assert_string_equal(c.data, "a\nb");

    assert_int_equal(parse_foreign_yaml("sets:\n  - path: a\n    roles:\n      user: [u, v]\n"),
                     BT_OK);
    assert_string_equal(c.name, "uv");
    assert_int_equal(parse_foreign_yaml("sets: [{path: a, roles: [u, v]}]\nshares: [0.5, 2]\n"),
                     BT_ARG);
    assert_int_equal(parse_foreign_yaml("shares: 0.7,0.3\n"), BT_OK);
    assert_string_equal(c.name, "0.7:0.3");
    assert_int_equal(parse_foreign_yaml("shares: [1, 3]\nnoise: [{a: 1}]\n"), BT_OK);
    assert_string_equal(c.name, "1:3");
    assert_int_equal(parse_foreign_yaml("named: x,y\n"), BT_OK);
    assert_int_equal(o.n_deferred, 1);
    assert_string_equal(o.deferred[0].text, "x,y");
    assert_non_null(strstr(o.deferred[0].where, ":1:1"));

    check_refused_setting(parse_foreign_yaml("shares: a\n"), "F:1:1: 'shares: a' must be numbers");
    check_refused_setting(parse_foreign_yaml("sets: [{form: chat}]\n"),
                          "F:1:1: no entry of the list has a 'path'");
    check_refused_setting(parse_foreign_yaml("ratio: 0.1\n"),
                          "F:1:1: 'ratio: 0.1' is a share: say how many (train.steps)");
    check_refused_setting(parse_foreign_yaml("optimizer: sgd\n"),
                          "F:1:1: 'optimizer: sgd' is not there (run.name)");
    check_refused_setting(parse_foreign_yaml("max_steps: 1\ntrain.steps: 2\n"),
                          "F:2:1: 'train.steps' was already set on line 1");
    check_refused_setting(
        parse_foreign_yaml("sets: [{path: a, form: chat}, {path: b, form: text}]\n"),
        "F:1:41: 'sets.form' differs between the data sets of one run");
    check_refused_setting(parse_foreign_yaml("sets: [{path: a, field: x}]\n"),
                          "F:1:18: 'sets.field' is not read ('bitrain help options' lists data.*)");
    check_refused_setting(parse_foreign_yaml("sets: [[a]]\n"),
                          "F:1:8: a list inside a list is not supported");
    check_refused_setting(parse_foreign_yaml("sets: [{path: [a]}]\n"),
                          "F:1:9: 'sets.path' is not read ('bitrain help options' lists data.*)");
    /* Keys of other programs are recognized only at the top level. */
    assert_int_equal(parse_foreign_yaml("train:\n  max_steps: 5\n"), BT_ARG);
    assert_int_equal(parse_foreign_yaml("max_steps:\n  x: 5\n"), BT_ARG);
    assert_int_equal(parse_foreign_yaml("sets: [a\n"), BT_ARG);
}

/* A message about an invalid value names the option of the command line; lists contain every key. */
static void test_errors_name_the_command_line_option(void **state) {
    (void)state;
    static const bt_opt_alias aliases[] = {{"optimizer", "run.name", "adamw=a", "is not there"},
                                           {"noise", "", "~", ""}};
    static const char text[] = "optimizer: sgd\nnoise: 1\noptim.lr: 2\n";
    bt_text taken = {0}, ignored = {0};
    for (int answered = 0; answered < 2; answered++) {
        memset(&err, 0, sizeof err);
        assert_int_equal(setup(NULL), 0);
        o.aliases = aliases;
        o.n_aliases = 2;
        o.taken = &taken;
        o.ignored = &ignored;
        if (answered)
            assert_int_equal(bt_opts_set(&o, "run.name", "mine", BT_FROM_FLAG, "--name", &err),
                             BT_OK);
        assert_int_equal(yaml_bytes(text, strlen(text)), answered ? BT_OK : BT_ARG);
    }
    assert_string_equal(c.name, "mine");
    assert_string_equal(bt_text_str(&taken), "optimizer (--name)");
    assert_string_equal(bt_text_str(&ignored), "noise");
    o.taken = o.ignored = NULL;
    bt_text_release(&taken);
    bt_text_release(&ignored);
}

static void test_values_read_back(void **state) {
    (void)state;
    assert_int_equal(set_from_command_line("optim.lr", "0.30000000000000004"), BT_OK);
    assert_int_equal(set_from_command_line("train.precision", "fp16"), BT_OK);
    assert_int_equal(set_from_command_line("data.path", "a\nb"), BT_OK);
    for (size_t i = 0; i < N; i++) {
        bt_text first, second;
        bt_text_init(&first);
        bt_text_init(&second);
        bt_opt_value(&o, i, &first);
        assert_int_equal(
            bt_opts_set(&o, table[i].key, bt_text_str(&first), BT_FROM_FLAG, "again", &err), BT_OK);
        bt_opt_value(&o, i, &second);
        assert_string_equal(bt_text_str(&first), bt_text_str(&second));
        bt_text_release(&first);
        bt_text_release(&second);
    }
    assert_true(c.lr == 0.30000000000000004);
}

static void test_help_lists_every_flag(void **state) {
    (void)state;
    bt_text t;
    bt_text_init(&t);
    bt_opt_help(table, N, &t);
    for (size_t i = 0; i < N; i++) assert_non_null(strstr(bt_text_str(&t), table[i].flag));
    assert_non_null(strstr(bt_text_str(&t), "(default 10 steps)"));
    bt_text_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_defaults, setup),
        cmocka_unit_test_setup(test_whole_numbers, setup),
        cmocka_unit_test_setup(test_messages, setup),
        cmocka_unit_test_setup(test_stronger_origin_wins, setup),
        cmocka_unit_test_setup(test_argv, setup),
        cmocka_unit_test_setup(test_argv_messages, setup),
        cmocka_unit_test_setup(test_environment, setup),
        cmocka_unit_test_setup(test_yaml, setup),
        cmocka_unit_test_setup(test_yaml_messages, setup),
        cmocka_unit_test_setup(test_yaml_empty_keys, setup),
        cmocka_unit_test_setup(test_all_faults, setup),
        cmocka_unit_test_setup(test_keys_of_other_programs, setup),
        cmocka_unit_test_setup(test_errors_name_the_command_line_option, setup),
        cmocka_unit_test_setup(test_values_read_back, setup),
        cmocka_unit_test_setup(test_help_lists_every_flag, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
