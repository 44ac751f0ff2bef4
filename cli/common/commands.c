/* commands.c - the registered table of commands, and the call of one command. */
#include <stdlib.h>
#include <string.h>

#include "cli/common/command.h"
#include "cli/common/verbs.h"
#include "engine/config/run_cfg.h"

static const bt_command *const *commands;
static size_t n_commands;

void bt_commands_register(const bt_command *const *table, size_t n) {
    commands = table;
    n_commands = n;
}

size_t bt_command_count(void) { return n_commands; }
const bt_command *bt_command_at(size_t i) { return commands[i]; }

const bt_command *bt_command_find(const char *name) {
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

size_t bt_option_count(const bt_option_set *set) {
    return set->rows == bt_run_opts ? bt_run_opts_n : set->n;
}

bt_code bt_command_run(const bt_command *c, int argc, char **argv, int *exit_status, bt_err *err) {
    if (c->run_argv) return c->run_argv(argc, argv, exit_status, err);
    const size_t max_words = c->verbs ? BT_VERB_WORDS : c->max_words;
    bool help;
    bt_call call = {.cfg = calloc(1, c->options.cfg_bytes),
                    .words = calloc(max_words + 1, sizeof *call.words),
                    .exit_status = exit_status,
                    .command = c};
    bt_code code = call.cfg && call.words ? BT_OK
                                          : bt_fail(err, BT_NOMEM, "no memory for the options");
    if (code == BT_OK)
        code = bt_opts_init(&call.opts, c->options.rows, c->options.n, call.cfg, err);
    if (c->options.rows != bt_run_opts) {
        call.opts.other_table = bt_run_opts;
        call.opts.n_other = bt_run_opts_n;
        call.opts.other_hint = c->train_hint ? c->train_hint : "it is one of 'bitrain train'";
    }
    call.opts.word_hint = c->word_hint;
    if (c->edit) c->edit(argc, argv);
    if (code == BT_OK)
        code = bt_opts_argv(&call.opts, argc, argv, call.words, max_words, &call.n, &help, err);
    if (code == BT_OK && c->no_word && call.n == 0) code = bt_fail(err, BT_ARG, "%s", c->no_word);
    if (code == BT_OK) code = c->verbs ? bt_verbs_run(&call, err) : c->run(&call, err);
    free(call.words);
    free(call.cfg);
    return code;
}
