/* cmd_help.c - `bitrain help`: chooses what to print. */
#include <stdio.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/verbs.h"
#include "cli/help.h"
#include "monitor/tui/draw/keys.h"

enum { MAX_WORDS = 3 }; /* a command, its verb, and one more word, so that the error can name it */

typedef struct help_cfg {
    bool markdown, man, json;
    char completion[16];
} help_cfg;

static const bt_opt help_opts[] = {
    BT_ROW_FLAG(help_cfg, markdown, "--markdown", "the generated blocks of cli/REFERENCE.md"),
    BT_ROW_FLAG(help_cfg, man, "--man", "the man page, as roff"),
    BT_ROW_FLAG(help_cfg, json, "--json",
                "one JSON object with all commands, settings, metrics and exit codes"),
    BT_ROW_TEXT(help_cfg, completion, "--completion", "",
                "completion script of a shell: bash, zsh or fish"),
};

/* Prints the help of a command, or of one of its verbs (words after the command). */
static bt_code print_command_help(const bt_command *c, const char *const *words, size_t n,
                                  bt_err *err) {
    char *argv[MAX_WORDS + 1] = {0};
    bt_verb_help verb;
    bool found = false;
    int argc = 0;
    if (n && c->verb_at)
        argv[argc++] =
            (char
                 *)"RUN"; /* a command line has the run in front of the verb, the words of `help` have not */
    for (size_t i = 0; i < n; i++) argv[argc++] = (char *)words[i];
    const size_t most = c->verb || c->verbs ? 1 : 0;
    if (n > most) return bt_fail(err, BT_ARG, "unexpected word '%s'", words[most]);
    BT_TRY(bt_command_verb(c, argc, argv, &verb, &found, err));
    bt_help_command(c, found ? &verb : NULL, stdout);
    return BT_OK;
}

static bt_code help_topic(const char *const *words, size_t n_words, bt_text *out, bt_err *err) {
    const char *word = words[0];
    static const struct {
        const char *name;
        void (*print)(bt_text *out);
    } topics[] = {{"options", bt_help_options},
                  {"presets", bt_help_presets},
                  {"metrics", bt_help_metrics},
                  {"keys", bt_keys_help},
                  {"exit-codes", bt_help_exit_codes}};
    enum { N_TOPICS = sizeof topics / sizeof topics[0] };
    const bt_command *c = bt_command_find(word);
    if (c) return print_command_help(c, words + 1, n_words - 1, err);
    if (n_words > 1) return bt_fail(err, BT_ARG, "unexpected word '%s'", words[1]);
    const char *names[64 + N_TOPICS];
    size_t n = 0;
    for (size_t i = 0; i < N_TOPICS; i++) {
        if (strcmp(word, topics[i].name) == 0) {
            topics[i].print(out);
            return BT_OK;
        }
        names[n++] = topics[i].name;
    }
    for (size_t i = 0; i < bt_command_count() && i < 64; i++)
        if (!bt_command_at(i)->hidden) names[n++] = bt_command_at(i)->name;
    const char *near = bt_nearest(word, names, n);
    return near ? bt_fail(err, BT_ARG, "no help about '%s' (did you mean '%s'?)", word, near)
                : bt_fail(err, BT_ARG,
                          "no help about '%s' (a command, 'options', 'presets', 'metrics', 'keys' "
                          "or 'exit-codes')",
                          word);
}

static bt_code cmd_help(bt_call *call, bt_err *err) {
    help_cfg *cfg = call->cfg;
    const char *const *words = call->words;
    bt_text out;
    bt_text_init(&out);
    bt_code code = BT_OK;
    if (cfg->markdown)
        bt_help_markdown(&out);
    else if (cfg->man)
        bt_help_man(&out);
    else if (cfg->json)
        bt_help_json(&out);
    else if (cfg->completion[0])
        code = bt_help_completion(cfg->completion, &out, err);
    else if (call->n)
        code = help_topic(words, call->n, &out, err);
    else
        bt_help_overview(stdout);
    if (code == BT_OK && out.failed) code = bt_fail(err, BT_NOMEM, "no memory for the help text");
    if (code == BT_OK) fputs(bt_text_str(&out), stdout);
    bt_text_release(&out);
    return code;
}

const bt_command bt_cmd_help = {
    .name = "help",
    .summary = "help on commands, settings, presets, metrics, keys and exit codes",
    .args = "[COMMAND|options|presets|metrics|keys|exit-codes] [VERB]",
    .examples =
        "bitrain help # the commands\n"
        "bitrain help train # examples and options of one command\n"
        "bitrain help bench train # options of one verb\n"
        "bitrain help options # every setting of a run\n"
        "bitrain help presets # the models, with parameters and memory\n"
        "bitrain help metrics # every figure that is recorded\n"
        "bitrain help keys # the keys of bitrain top\n"
        "bitrain help --json | jq -r '.settings[].key'\n"
        "bitrain help --completion bash > ~/.local/share/bash-completion/completions/bitrain",
    .options = BT_OPTION_SET(help_opts, help_cfg),
    .max_words = MAX_WORDS,
    .run = cmd_help,
};
